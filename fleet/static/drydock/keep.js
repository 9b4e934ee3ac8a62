// What stays while a part of the page is replaced: the focus, and what the user has typed or ticked. What they aim at: aim.js.

export const FIELDS = "input:not([type=hidden]):not([type=submit]):not([type=button]), textarea, select";
export const WRITING = "textarea, input:not([type=hidden]):not([type=submit]):not([type=button]):not([type=checkbox]):not([type=radio])";
const FOCUSED = `a[href], button, summary, [tabindex], ${FIELDS}`;

function isChanged(field) {
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.tagName !== "SELECT") return field.value !== field.defaultValue;
  const chosen = [...field.options].findIndex((option) => option.defaultSelected);
  return field.selectedIndex !== Math.max(chosen, 0);
}

export const keyOf = (node) => node.closest("[data-key]")?.dataset.key ?? "";
export const actionOf = (node) => node.form?.getAttribute("action") ?? "";
export const words = (node) => (node.getAttribute("aria-label") ?? node.textContent).replace(/\s+/g, " ").trim();

// The same field of the part as it is now.
function fieldLike(region, field) {
  if (field.id) return region.querySelector(`#${CSS.escape(field.id)}`);
  const isBox = field.type === "checkbox" || field.type === "radio";
  return [...region.querySelectorAll(FIELDS)].find(
    (node) =>
      node.name === field.name &&
      node.type === field.type &&
      keyOf(node) === keyOf(field) &&
      actionOf(node) === actionOf(field) &&
      (!isBox || node.value === field.value),
  );
}

// The same row or block of the part as it is now: in the same list, if it was in one.
export function rowLike(region, { key, list }) {
  const within = list ? region.querySelector(`[data-rows="${CSS.escape(list)}"]`) : region;
  return within?.querySelector(`[data-key="${CSS.escape(key)}"]`);
}

// The same thing that can have the focus: by id, by where it leads and what it is called, else by its place. Never the
// same button of another row.
export function focusLike(region, was) {
  if (was.node.id) return region.querySelector(`#${CSS.escape(was.node.id)}`);
  if (was.node.matches(FIELDS)) return fieldLike(region, was.node);
  const within = was.key ? region.querySelector(`[data-key="${CSS.escape(was.key)}"]`) : region;
  const alike = [...(within?.querySelectorAll(was.node.tagName) ?? [])].filter((node) => node.matches(FOCUSED));
  const to = was.node.getAttribute("href");
  return alike.find((node) => node.getAttribute("href") === to && words(node) === was.words)
    ?? alike.find((node) => (to ? node.getAttribute("href") === to : words(node) === was.words))
    // Its text may count down.
    ?? alike.find((node) => node.matches("summary"));
}

// What has to outlive the replacement of a part. `sent` is the form whose answer it is: what was typed there is the
// server's to keep.
export function remember(region, sent = null) {
  const on = document.activeElement;
  const focus = on && on !== document.body && region.contains(on) ? { node: on, key: keyOf(on), words: words(on) } : null;
  const place = focus && on.matches(WRITING) && typeof on.selectionStart === "number" ? [on.selectionStart, on.selectionEnd] : null;
  const fields = [...region.querySelectorAll(FIELDS)].filter((field) => field.form !== sent && isChanged(field));
  // An approval names the version that its author has read. A user who is writing has not read a newer one yet.
  const read = [...new Set(fields.map((field) => field.form))].flatMap((form) => {
    const version = form?.querySelector("input[name=expected_version]");
    return version ? [{ field: version, twin: fields.find((field) => field.form === form) }] : [];
  });
  return { focus, place, fields, read, isWriting: fields.some((field) => field.matches(WRITING)) };
}

// Puts it back. Returns the texts whose fields are gone.
export function restore(region, kept) {
  const lost = [];
  for (const old of kept.fields) {
    const field = fieldLike(region, old);
    if (!field) {
      if (old.matches(WRITING) && old.value.trim()) lost.push(old.value);
      continue;
    }
    if (old.type === "checkbox" || old.type === "radio") field.checked = old.checked;
    else field.value = old.value;
    field.closest("details")?.setAttribute("open", "");
  }
  for (const { field, twin } of kept.read) {
    const version = fieldLike(region, twin)?.form?.querySelector("input[name=expected_version]");
    if (!version) continue;
    version.dataset.newest = version.value;
    version.value = field.value;
  }
  if (kept.focus && (!document.activeElement || document.activeElement === document.body)) {
    let node = focusLike(region, kept.focus);
    if (!node) {
      // What had it is gone: the part in which it was comes nearest.
      node = region;
      node.tabIndex = -1;
    }
    node.focus({ preventScroll: true });
    if (kept.place && node.matches(WRITING) && typeof node.selectionStart === "number") node.setSelectionRange(...kept.place);
  }
  return lost;
}

// A line at the top of a part, for readers and for those who listen; or a notice that was there.
export function tell(region, text) {
  const title = region.querySelector(":scope > h2");
  const put = (node) => (title ? title.after(node) : region.prepend(node));
  if (text instanceof Node) {
    put(text);
    return;
  }
  const line = document.createElement("p");
  line.className = "notice tone-due";
  line.setAttribute("role", "status");
  line.dataset.told = "";
  line.textContent = text;
  put(line);
}
