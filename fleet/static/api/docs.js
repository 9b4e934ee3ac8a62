// Swagger UI takes its dark colours from a class of its own.
(function () {
  "use strict";
  const root = document.documentElement;
  function follow() {
    root.classList.toggle("dark-mode", root.getAttribute("data-bs-theme") === "dark");
  }
  follow();
  new MutationObserver(follow).observe(root, { attributeFilter: ["data-bs-theme"] });
})();
