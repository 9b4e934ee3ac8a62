// Buttons that copy the text next to them. Without this script, or where copying is not allowed, the text can be
// selected by hand; the buttons are shown only where this script runs.

document.documentElement.classList.add("can-copy");

async function copied(source) {
  try {
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    return true;
  } catch {
    // Without TLS there is no clipboard: select it, so that one key press copies it.
    if (source.select) source.select();
    else getSelection().selectAllChildren(source);
    return false;
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  const source = button && document.getElementById(button.dataset.copy);
  if (!source) return;
  const word = button.querySelector("span");
  word.textContent = (await copied(source)) ? "Copied" : "Selected";
  setTimeout(() => (word.textContent = "Copy"), 2000);
});
