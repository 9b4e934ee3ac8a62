// Sound and desktop notifications, switched on by one click in the queue: browsers ask for permission only after a click.

import { sound } from "./tell.js";

const form = document.getElementById("alerts");
const isPossible = "Notification" in window && window.isSecureContext;

function show() {
  const permission = isPossible ? Notification.permission : "denied";
  const wanted = "wanted" in form.dataset ? "on" : "off";
  form.dataset.alerts = permission === "denied" ? `blocked-${wanted}` : permission === "granted" ? wanted : "off";
}

let hasAsked = false;
form.addEventListener("submit", async (event) => {
  if (hasAsked || event.submitter.value !== "on") return;
  sound(true);
  if (!isPossible || Notification.permission !== "default") return;
  event.preventDefault();
  await Notification.requestPermission();
  hasAsked = true;
  form.requestSubmit(event.submitter);
});
show();
