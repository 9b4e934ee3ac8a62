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
})();
