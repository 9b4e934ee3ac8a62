// "Notify this browser": asks the browser for a subscription and sends it with the form next to it.

const form = document.getElementById("push-form");
const said = document.getElementById("push-said");

function bytes(text) {
  const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
}

async function subscribe() {
  if ((await Notification.requestPermission()) !== "granted") {
    throw new Error("This browser blocks notifications of Drydock. Allow them in the settings of the browser.");
  }
  const answer = await fetch(form.dataset.key, {
    method: "POST",
    headers: { "X-CSRFToken": form.elements.csrfmiddlewaretoken.value },
  });
  if (!answer.ok) throw new Error("Drydock did not send the push key. Try again.");
  const worker = await navigator.serviceWorker.register("/sw.js");
  await navigator.serviceWorker.ready;
  const key = bytes((await answer.json()).key);
  const found = (await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key })).toJSON();
  form.elements.endpoint.value = found.endpoint;
  form.elements.p256dh.value = found.keys.p256dh;
  form.elements.auth.value = found.keys.auth;
}

if ("serviceWorker" in navigator && "PushManager" in window && window.isSecureContext) {
  form.hidden = false;
  said.textContent = "";
  form.addEventListener("submit", async (event) => {
    if (form.elements.endpoint.value) return;
    event.preventDefault();
    try {
      await subscribe();
      form.requestSubmit();
    } catch (error) {
      said.textContent = error.message;
    }
  });
}
