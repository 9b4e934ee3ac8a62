"use strict";

(() => {
  const place = document.getElementById("docs");
  window.SwaggerUIBundle({
    domNode: place,
    url: place.dataset.schema,
    deepLinking: true,
    defaultModelsExpandDepth: -1,
    displayRequestDuration: true,
    // The badge would be fetched from elsewhere.
    validatorUrl: null,
    presets: [window.SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    requestInterceptor: (request) => {
      const own = new URL(request.url, window.location.href).origin === window.location.origin;
      if (own && !["GET", "HEAD"].includes((request.method || "GET").toUpperCase())) {
        request.headers["X-CSRFToken"] = place.dataset.csrf;
      }
      return request;
    },
  });
})();
