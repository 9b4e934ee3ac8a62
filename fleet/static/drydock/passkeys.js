// Passkeys: the browser signs the challenge, and the form sends the answer. Without them the buttons stay hidden.

const knows = (name) => typeof window.PublicKeyCredential?.[name] === "function";
const able = knows("parseCreationOptionsFromJSON") && knows("parseRequestOptionsFromJSON");

function show(part) {
  if (!able) return;
  for (const button of part.querySelectorAll("[data-passkey][hidden]")) button.hidden = false;
}

async function answer(button) {
  const { passkey, options, from } = button.dataset;
  const told = options ? JSON.parse(options) : await (await fetch(from, { headers: { Accept: "application/json" } })).json();
  if (passkey === "create") {
    const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(told.publicKey);
    return navigator.credentials.create({ publicKey });
  }
  return navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(told.publicKey) });
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-passkey]");
  if (!button) return;
  const { form } = button;
  const said = form.querySelector("[data-passkey-said]");
  said.textContent = "";
  button.disabled = true;
  try {
    const made = await answer(button);
    form.elements.credential.value = JSON.stringify(made.toJSON());
    form.requestSubmit();
  } catch (error) {
    said.textContent = error.name === "InvalidStateError" ? "This passkey is already added." : "No passkey was used. Try again, or use another way.";
  }
  button.disabled = false;
});

show(document);
document.body.addEventListener("htmx:afterSwap", (event) => show(event.detail.target));
