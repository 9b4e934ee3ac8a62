// Before the first paint: dark or light as chosen, else as the system says. Loaded in the head, so that nothing flashes.
(function () {
  "use strict";
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  function follow() {
    if (!root.hasAttribute("data-theme-chosen")) root.setAttribute("data-bs-theme", system.matches ? "dark" : "light");
  }
  follow();
  system.addEventListener("change", follow);
  // Paper is light.
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = root.getAttribute("data-bs-theme");
    root.setAttribute("data-bs-theme", "light");
  });
  window.addEventListener("afterprint", () => before && root.setAttribute("data-bs-theme", before));
})();
