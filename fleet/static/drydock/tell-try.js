// One's own settings: whether the browser may notify is asked when the box is ticked, and both can be tried.

import { notify, sound } from "./tell.js";

const said = document.getElementById("tell-said");
const boxes = { sound: document.getElementById("sound"), notifications: document.getElementById("notifications") };

async function ask() {
  if (!("Notification" in window) || !window.isSecureContext) {
    said.textContent = "This browser shows notifications only over HTTPS.";
    return false;
  }
  const answer = Notification.permission === "default" ? await Notification.requestPermission() : Notification.permission;
  if (answer !== "granted") said.textContent = "This browser blocks notifications of Drydock. Allow them in the settings of the browser.";
  return answer === "granted";
}

boxes.notifications.addEventListener("change", () => {
  if (boxes.notifications.checked) ask();
});

const button = document.getElementById("tell-try");
button.hidden = false;
button.addEventListener("click", async () => {
  if (boxes.sound.checked) sound();
  if (boxes.notifications.checked && (await ask())) notify("Test of Drydock", "drydock-try");
  if (!boxes.sound.checked && !boxes.notifications.checked) said.textContent = "Select an option first.";
});
