// An ended session, an old key and a failure cost nothing that was typed: the page stays as it is, and says what to do.

const box = document.getElementById("again");
let focused = null;

const asksFor = (xhr) => xhr.getResponseHeader("HX-Retarget") === "#again";

// Later than the listener that keeps parts of the page from being replaced by anything else.
document.body.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr, requestConfig } = event.detail;
  const ours = box.contains(requestConfig.elt);
  if (ours || asksFor(xhr)) {
    // Parts of the page continue polling while the user types the password: the box is made once.
    event.detail.shouldSwap = ours || !box.querySelector("dialog[open]");
    event.detail.isError = false;
    return;
  }
  // A whole page is no part of one.
  if (xhr.status >= 400 && /^\s*<!doctype/i.test(xhr.responseText)) event.detail.shouldSwap = false;
});

document.body.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target !== box) return;
  const dialog = box.querySelector("dialog");
  if (dialog) {
    if (!focused) focused = document.activeElement;
    dialog.showModal();
    dialog.querySelector("input[type=password], input[name=code]")?.focus();
    return;
  }
  const token = box.querySelector("[data-token]")?.dataset.token;
  if (!token) return;
  // Logging in makes a new key: every part of the page gets it.
  const headers = JSON.parse(document.body.getAttribute("hx-headers"));
  document.body.setAttribute("hx-headers", JSON.stringify({ ...headers, "X-CSRFToken": token }));
  for (const field of document.querySelectorAll("input[name=csrfmiddlewaretoken]")) field.value = token;
  focused?.focus?.();
  focused = null;
});

// The error, next to the form that was sent. The text is the page's own that came as the answer.
// Trying again sends the same form: the server refuses a second decision about the version that the form shows.
function trouble(form, text) {
  form.querySelector(":scope > .form-trouble")?.remove();
  if (!text) return;
  const said = document.createElement("p");
  said.className = "notice tone-bad form-trouble";
  said.setAttribute("role", "alert");
  said.textContent = text;
  const again = document.createElement("button");
  again.className = "btn btn-sm btn-outline-secondary";
  again.textContent = "Try again";
  said.append(again);
  form.prepend(said);
  said.scrollIntoView({ block: "nearest" });
}

function reasonIn(xhr) {
  const page = new DOMParser().parseFromString(xhr.responseText, "text/html");
  const part = (selector) => page.querySelector(selector)?.textContent.trim() ?? "";
  return [part("#main h1"), part("#main .what-to-do, #main .lonely p")].filter(Boolean).join(". ");
}

const sent = (event) => {
  const form = event.detail.requestConfig?.elt ?? event.detail.elt;
  return form instanceof HTMLFormElement && !box.contains(form) ? form : null;
};

document.body.addEventListener("htmx:beforeRequest", (event) => {
  const form = sent(event);
  if (form) trouble(form, "");
});
document.body.addEventListener("htmx:afterRequest", (event) => {
  const form = sent(event);
  const { xhr } = event.detail;
  if (!form || !form.isConnected || !xhr || xhr.status < 400 || asksFor(xhr)) return;
  if (!/^\s*<!doctype/i.test(xhr.responseText)) return;
  trouble(form, `${reasonIn(xhr) || "The request was refused."} Your input is kept.`);
});
for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.body.addEventListener(name, (event) => {
    const form = sent(event);
    if (form) trouble(form, "Drydock is unavailable: the request may have succeeded or not. Your input is kept.");
  });
}
