// Finding a call, opening the one that the address names, and trying one with the login of this browser.

const calls = [...document.querySelectorAll("[data-call]")];

const find = document.getElementById("find");
find.closest("[hidden]").hidden = false;
find.addEventListener("input", () => {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const call of calls) {
    const text = `${call.querySelector("summary").textContent} ${call.id}`.toLowerCase();
    call.hidden = !words.every((word) => text.includes(word));
  }
  for (const section of document.querySelectorAll("section:has([data-call])")) {
    section.hidden = !section.querySelector("[data-call]:not([hidden])");
  }
});

function openNamed() {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (named?.matches("details")) {
    named.open = true;
    named.scrollIntoView();
  }
}
addEventListener("hashchange", openNamed);
openNamed();

const csrf = () => document.cookie.match(/(?:^|; )drydock_csrf=([^;]*)/)?.[1] ?? JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];

function request(form) {
  const method = form.dataset.method;
  const query = new URLSearchParams();
  const headers = { Accept: "application/json" };
  let path = form.dataset.path;
  let body;
  for (const field of form.querySelectorAll("[data-where]")) {
    const { where } = field.dataset;
    if (where === "body") body = field.value;
    else if (where === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
    else if (field.value && where === "query") query.append(field.name, field.value);
    else if (field.value && where === "header") headers[field.name] = field.value;
  }
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET") headers["X-CSRFToken"] = csrf();
  return [`${path}${query.size ? `?${query}` : ""}`, { method, headers, body }];
}

function shown(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

for (const form of document.querySelectorAll(".try")) {
  // The stream never ends, so there is nothing to show.
  form.hidden = form.dataset.path.endsWith("/stream");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const place = form.querySelector(".try-answer");
    const line = document.createElement("p");
    const box = document.createElement("pre");
    box.className = "raw";
    box.tabIndex = 0;
    const began = performance.now();
    try {
      const answer = await fetch(...request(form));
      line.textContent = `${answer.status} ${answer.statusText}, ${Math.round(performance.now() - began)} ms`;
      box.textContent = shown(await answer.text());
    } catch (error) {
      line.textContent = `No answer: ${error.message}`;
    }
    place.replaceChildren(line, ...(box.textContent ? [box] : []));
  });
}
