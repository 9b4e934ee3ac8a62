// Selecting several rows: what is ticked stays ticked when a part of the page is replaced or its filter changes, a click
// with Shift ticks a range, and the count says how many of them are not on the page. Without this file the forms work alike.

const KEY = `drydock-picks:${location.pathname}`;
const form = () => document.querySelector("form[data-picks]");
// The value of the attribute is the name of the boxes.
const name = () => form()?.dataset.picks || "event";
const boxes = () => [...document.querySelectorAll(`input[type=checkbox][name=${name()}]`)];
const keeps = () => form()?.id === "pick";

const picked = new Set(JSON.parse(sessionStorage.getItem(KEY) ?? "[]"));
let last = "";

if (document.querySelector("[data-bulk-done]")) {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith("drydock-picks:")) sessionStorage.removeItem(key);
}

function show() {
  if (!form()) return;
  const here = boxes();
  const ticked = here.filter((box) => box.checked).length;
  for (const place of document.querySelectorAll("[data-picked=of]")) place.textContent = ` (${ticked})`;
  const count = document.querySelector("[data-picked=count]");
  if (!count) return;
  const hidden = [...picked].filter((id) => !here.some((box) => box.value === id)).length;
  const text = picked.size ? `${picked.size} selected${hidden ? `, ${hidden} of them hidden by the filter` : ""}` : "Select rows first";
  // Also Enter in a box sends nothing then: the form's first button is disabled.
  const none = !picked.size && !form().querySelector("[name=all]:checked");
  for (const button of form().querySelectorAll(".pick-acts button")) button.disabled = none;
  if (count.textContent !== text) count.textContent = text;
  form().classList.toggle("is-picking", picked.size > 0);
}

function keep() {
  if (keeps()) {
    for (const box of boxes()) {
      if (box.checked) picked.add(box.value);
      else picked.delete(box.value);
    }
    sessionStorage.setItem(KEY, JSON.stringify([...picked]));
  }
  show();
}

function restore() {
  if (keeps()) for (const box of boxes()) if (picked.has(box.value)) box.checked = true;
  show();
}

document.addEventListener("click", (event) => {
  const box = event.target.closest?.(`input[type=checkbox][name=${name()}]`);
  if (!box) return;
  // Not those of a closed group.
  const all = boxes().filter((one) => one.checkVisibility());
  // By its event: the row itself may have been replaced meanwhile.
  const from = all.findIndex((one) => one.value === last);
  if (event.shiftKey && from >= 0) {
    const to = all.indexOf(box);
    for (const one of all.slice(Math.min(from, to), Math.max(from, to) + 1)) one.checked = box.checked;
  }
  last = box.value;
});
// Enter opens the event of the row, and does not send the form of the boxes.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !event.target.matches(`input[type=checkbox][name=${name()}]`)) return;
  event.preventDefault();
  event.target.closest("[data-key]")?.querySelector("a.row-link, a[href]")?.click();
});
document.addEventListener("change", (event) => {
  if (event.target.matches(`input[type=checkbox][name=${name()}]`)) keep();
  else if (event.target.matches("form[data-picks] [name=all]")) show();
});
// Those that the filter hides go along: they were selected all the same.
document.addEventListener("submit", (event) => {
  if (event.target.id !== "pick") return;
  for (const old of event.target.querySelectorAll("[data-hidden-pick]")) old.remove();
  const here = new Set(boxes().map((box) => box.value));
  for (const id of picked) {
    if (here.has(id)) continue;
    const field = Object.assign(document.createElement("input"), { type: "hidden", name: name(), value: id });
    field.dataset.hiddenPick = "";
    event.target.append(field);
  }
});
document.body.addEventListener("htmx:load", restore);
addEventListener("pageshow", restore);
restore();
