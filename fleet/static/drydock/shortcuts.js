// The keyboard's shortcuts. This file is loaded only for people who want them. No key sends anything: c and a lead to a
// form, and the form is sent by its own button.

const dialog = document.getElementById("shortcuts");
const ROWS = "#main [data-rows] > [data-key], #main tbody > tr[data-key]";
const FIELDS = "textarea, select, input:not([type=hidden]):not([disabled]), button:not([disabled])";

const shown = (node) => node.checkVisibility();
const rows = () => [...document.querySelectorAll(ROWS)].filter(shown);
const current = () => document.activeElement?.closest?.(ROWS) ?? null;

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(current());
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)];
  const target = next.querySelector("a.row-link, :scope > details > summary") ?? next.querySelector("a[href], button, input:not([type=hidden])") ?? next;
  if (target === next) next.tabIndex = -1;
  target.focus();
  next.scrollIntoView({ block: "nearest" });
}

function select() {
  const box = current()?.querySelector("input[type=checkbox]");
  if (!box) return;
  box.checked = !box.checked;
  box.dispatchEvent(new Event("change", { bubbles: true }));
}

// A form on this page, else the page of the row that is looked at.
function lead(selector) {
  const form = document.querySelector(selector);
  if (form) {
    form.closest("details")?.setAttribute("open", "");
    const field = [...form.querySelectorAll(FIELDS)].find(shown);
    field?.focus();
    field?.scrollIntoView({ block: "center" });
    return;
  }
  const link = current()?.querySelector("a[href^='/events/']");
  if (link) location.assign(`${link.getAttribute("href")}#decision`);
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  x: select,
  c: () => lead("#claim, form[action$='/claim/']"),
  a: () => lead("#approve"),
  "/": () => document.getElementById("find-open").click(),
  "?": () => dialog.showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const on = event.target;
  if (on.isContentEditable || on.closest("textarea, select, input:not([type=checkbox]):not([type=radio])")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
