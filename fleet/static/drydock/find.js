// Finding from every page: Ctrl-K, the magnifier, and with shortcuts the slash (shortcuts.js presses the magnifier).
// Without this file the magnifier leads to a page that does the same.

const box = document.getElementById("find");
const text = document.getElementById("find-text");
const opener = document.getElementById("find-open");

function open() {
  if (!box.open) box.showModal();
  text.focus();
  text.select();
  htmx.trigger(text, "opened");
}

const links = () => [...box.querySelectorAll("#find-found a[href]")];

// Down and up go through what was found, and from the first back to the text.
function step(by) {
  const all = links();
  const at = all.indexOf(document.activeElement) + by;
  if (at < 0) text.focus();
  else all[Math.min(at, all.length - 1)]?.focus();
}

if (box && opener) {
  opener.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    if (!document.querySelector("dialog[open]:not(#find)")) open();
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      step(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter" && event.target === text && shown === text.value.trim() && links().length) {
      // The first is chosen, once the answer belongs to the typed text.
      event.preventDefault();
      links()[0].click();
    } else if (event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey && event.target.matches("#find-found a")) {
      // Further typing continues the search.
      text.focus();
    }
  });
}

let shown = null;
document.body.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target?.id === "find-found") shown = event.detail.requestConfig?.parameters?.q?.trim() ?? text.value.trim();
});
