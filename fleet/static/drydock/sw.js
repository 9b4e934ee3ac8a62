// Shows what was pushed to this browser. It keeps nothing, fetches nothing and decides nothing: a click opens the page.

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  let said = {};
  try {
    said = event.data.json();
  } catch {
    // A push without words still has to show something, or the browser shows something of its own.
  }
  const shown = self.registration.showNotification(String(said.title || "Drydock"), {
    body: String(said.body || ""),
    tag: String(said.tag || "drydock"),
    renotify: true,
    data: { url: String(said.url || "/") },
  });
  event.waitUntil(shown);
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  // Never another site, whatever was pushed.
  const url = new URL(event.notification.data.url, self.location.origin);
  event.waitUntil(self.clients.openWindow(url.origin === self.location.origin ? url.href : self.location.origin));
});
