// What the pages do by themselves: clocks, the live stream, and parts that refresh without jumping under the cursor.
// Every part is asked for by htmx at the address that it carries, so it keeps its own filter.

import "./copy.js";
import { aimsInto, edge, isPressed, isResting, rowAimedAt, settle, take, takesRowAway, tidy } from "./aim.js";
import { remember, restore, tell } from "./keep.js";
import { age, ago, clockIn, span } from "./words.js";

const POLL_MS = 10_000;
const STALE_MS = 40_000;
// A page that is hidden for this long closes its connection and polls now and then.
const HIDDEN_MS = 600_000;
const HIDDEN_POLL_MS = 60_000;

// The server's clock

let ahead = Date.parse(document.querySelector('meta[name="drydock-time"]').content) - Date.now();
const serverNow = () => Date.now() + ahead;

function setClock(text) {
  const at = Date.parse(text);
  if (!Number.isNaN(at)) ahead = at - Date.now();
}

// On a phone the tabs of a place are wider than the screen: the open one is in its middle.

const openTab = document.querySelector(".tabs [aria-current]");
if (openTab) {
  const [tab, tabs] = [openTab, openTab.parentElement].map((node) => node.getBoundingClientRect());
  openTab.parentElement.scrollLeft += tab.left + tab.width / 2 - tabs.left - tabs.width / 2;
}

// Times on the page

const baseTitle = document.title;
const clockText = clockIn(document.body.dataset.zone || "UTC");

// Who wants the browser's own time zone has to say it: the server cannot know.
if ("browserZone" in document.body.dataset) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.cookie = `drydock_zone=${zone}; path=/; max-age=31536000; samesite=lax`;
}

function tickTimes() {
  const now = serverNow();
  for (const node of document.querySelectorAll("[data-countdown]")) {
    const left = (Date.parse(node.dataset.countdown) - now) / 1000;
    const text = left > 0 ? span(left) : "due now";
    // What was to be done until then is too late now: the part says what is instead.
    if (left <= 0 && node.textContent !== text && node.textContent) isOver(node);
    if (node.textContent !== text) node.textContent = text;
    node.classList.toggle("is-past", left <= 0);
    node.classList.toggle("is-short", left > 0 && left < 120);
    node.classList.toggle("is-near", left >= 120 && left < 600);
  }
  for (const node of document.querySelectorAll("[data-left]")) node.value = Math.max(0, (Date.parse(node.dataset.left) - now) / 1000);
  for (const node of document.querySelectorAll("[data-since]")) {
    const text = ("age" in node.dataset ? age : ago)((now - Date.parse(node.dataset.since)) / 1000);
    if (node.textContent !== text) node.textContent = text;
  }
  for (const node of document.querySelectorAll("[data-until]")) node.hidden = Date.parse(node.dataset.until) <= now;
  for (const node of document.querySelectorAll("[data-from]")) node.hidden = Date.parse(node.dataset.from) > now;
  // Azure may start the event from NotBefore on: nothing is left to approve, whether or not an update has arrived.
  for (const node of document.querySelectorAll("[data-closes]")) {
    if (Date.parse(node.dataset.closes) > now || node.disabled) continue;
    // A disabled box takes no click.
    if (node.checked) node.click();
    node.disabled = true;
  }
  const clock = document.getElementById("clock");
  if (clock) clock.textContent = clockText(new Date(now));
  const pulse = document.getElementById("pulse");
  if (pulse) {
    const waiting = Number(pulse.dataset.waiting);
    const next = pulse.dataset.next ? (Date.parse(pulse.dataset.next) - now) / 1000 : null;
    const shortest = next === null ? "" : ` ${next > 0 ? span(next) : "now"}`;
    document.title = waiting ? `(${waiting})${shortest} · ${baseTitle}` : baseTitle;
  }
}

// Parts

const regions = () => [...document.querySelectorAll("[data-live]")];
const lastAsked = new Map();
let lastContact = Date.now();

// On the page of the queue its answer brings the head along: all that counts there is of one state.
const isBrought = (region) => region.id === "pulse" && document.querySelector("[data-brings-head]") !== null;

function refresh(region) {
  if (isBrought(region)) return;
  if (region.hasAttribute("data-lazy") && !region.childElementCount) return;
  lastAsked.set(region.id, Date.now());
  htmx.trigger(region, "refresh");
}

function isOver(node) {
  const region = node.closest("[data-live]");
  if (region) refreshSoon([region]);
}

const due = new Set();
let flushing = 0;
let flushedAt = 0;

// News is asked for at once, and in a storm of it once a second: every open page asks the same server. A slow one is
// left in peace for four times as long as its last answer took, and asked again when it has answered, or when it is
// unknown whether it will.
const BURST_MS = 120;
const PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 2000;
const ANSWER_MS = 30_000;
const asked = new Map();
// Parts that were replaced while their own answer was on its way: it finds no place any more, and its end is not announced.
const unanswered = new Set();
let pause = PAUSE_MS;

function refreshSoon(found) {
  for (const region of found) due.add(region.id);
  if (flushing || !due.size) return;
  flushing = setTimeout(flush, Math.max(BURST_MS, flushedAt + pause - Date.now()));
}

function flush() {
  flushing = 0;
  flushedAt = Date.now();
  for (const id of [...due]) {
    if (flushedAt - (asked.get(id) ?? 0) < ANSWER_MS) continue;
    due.delete(id);
    const region = document.getElementById(id);
    if (region) refresh(region);
  }
}

document.body.addEventListener("htmx:beforeRequest", ({ detail }) => {
  const { elt } = detail.requestConfig;
  if (elt.hasAttribute("data-live")) asked.set(elt.id, Date.now());
});
document.body.addEventListener("htmx:afterRequest", ({ detail }) => {
  // The part itself may have been replaced by the answer.
  const { id } = detail.requestConfig.elt;
  const since = asked.get(id);
  if (!asked.delete(id)) return;
  pause = Math.min(LONGEST_PAUSE_MS, Math.max(PAUSE_MS, 5 * (Date.now() - since)));
  refreshSoon([]);
});

function concerns(region, change) {
  const scopes = new Set(["any", `event:${change.event_id}`, `set:${change.set}`, `machine:${change.machine}`]);
  return region.dataset.live.split(" ").some((scope) => scopes.has(scope));
}

const keysOf = (node) => new Set([...node.querySelectorAll("[data-key]")].map((row) => row.dataset.key));

// What a part says, without what changes by the second and what the browser added.
function essence(node, { pictures = true } = {}) {
  const copy = node.cloneNode(true);
  if (!pictures) for (const picture of copy.querySelectorAll("svg[viewBox]")) picture.remove();
  for (const own of copy.querySelectorAll(".pill-box, [data-told], [data-answer]")) own.remove();
  for (const secret of copy.querySelectorAll("[name=csrfmiddlewaretoken]")) secret.remove();
  for (const version of copy.querySelectorAll("[data-newest]")) {
    version.setAttribute("value", version.dataset.newest);
    version.removeAttribute("data-newest");
  }
  for (const time of copy.querySelectorAll("[data-countdown], [data-since], .mark-now")) {
    time.replaceWith(time.dataset.countdown ?? time.dataset.since ?? "");
  }
  for (const box of copy.querySelectorAll("details")) box.removeAttribute("open");
  for (const button of copy.querySelectorAll("[data-closes]")) button.removeAttribute("disabled");
  for (const line of copy.querySelectorAll("[data-until], [data-from]")) line.removeAttribute("hidden");
  for (const any of [copy, ...copy.querySelectorAll("[class]")]) {
    any.classList.remove("is-new", "is-past", "is-short", "is-near", "htmx-request", "htmx-settling", "htmx-swapping", "htmx-added");
  }
  return copy.innerHTML.replace(/\s+/g, " ");
}

// A line in the middle of a part, which does what it says.
function pill(region, text, act) {
  let box = region.querySelector(":scope > .pill-box");
  if (!box) {
    box = document.createElement("div");
    box.className = "pill-box";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "pill";
    box.append(button);
    region.prepend(box);
  }
  const button = box.firstElementChild;
  button.onclick = act;
  if (button.textContent !== text) button.textContent = text;
}

const unpill = (region) => region.querySelector(":scope > .pill-box")?.remove();

// Parts that have to be asked for again: a button was pressed just then, or a row is gone that the user aims at.
const waiting = new Map();

function release(region, forced = false) {
  const key = waiting.get(region.id);
  if (key === undefined || (!forced && (isPressed() || (key && rowAimedAt(region)?.key === key)))) return;
  waiting.delete(region.id);
  unpill(region);
  if (forced) region.dataset.forced = "";
  refresh(region);
}

// Rows that came while the page was scrolled past their place, by part.
const unseen = new Map();

function showUnseen() {
  for (const [id, keys] of unseen) {
    const region = document.getElementById(id);
    const rows = [...(region?.querySelectorAll("[data-rows] > [data-key]") ?? [])].filter((row) => {
      if (!keys.has(row.dataset.key) || !row.checkVisibility()) return false;
      const { top, bottom } = row.getBoundingClientRect();
      return bottom <= edge() || (top < 0 && bottom < innerHeight / 4);
    });
    unseen.set(id, new Set(rows.map((row) => row.dataset.key)));
    if (rows.length) {
      const left = rows[0].querySelector("[data-countdown]")?.textContent;
      pill(region, `${rows.length} new above${left ? `, NotBefore in ${left}` : ""}`, () => rows[0].scrollIntoView({ block: "start" }));
    } else {
      unseen.delete(id);
      if (region && !waiting.has(id)) unpill(region);
    }
  }
}

// Whether something new has less than two minutes: nothing holds that back.
const URGENT_MS = 120_000;
const isUrgent = (row) => Date.parse(row.querySelector("[data-countdown]")?.dataset.countdown ?? "") - serverNow() < URGENT_MS;
const newRows = (region, fresh) => {
  const old = keysOf(region);
  return [...fresh.querySelectorAll("[data-key]:not(details, .fold)")].filter((row) => !old.has(row.dataset.key));
};

const before = new Map();
const CHANGED = "The content changed while you were typing. Check it before you send.";

const isSame = (fresh, old) =>
  essence(fresh) === essence(old) && ["waiting", "next", "newest", "critical"].every((name) => fresh.dataset[name] === old.dataset[name]);

// An answer may bring more than the part that asked: each has its own place on the page.
function renewOthers(found) {
  for (const fresh of [...found.children].slice(1)) {
    const old = fresh.id && document.getElementById(fresh.id);
    if (!old || isSame(fresh, old)) continue;
    const kept = remember(old);
    old.replaceWith(fresh);
    htmx.process(fresh);
    restore(fresh, kept);
    if (asked.delete(fresh.id)) refreshSoon([fresh]);
  }
}

document.body.addEventListener("htmx:beforeSwap", (event) => {
  const { target, xhr, requestConfig } = event.detail;
  // The one that asked; `event.detail.elt` is where the answer goes.
  const elt = requestConfig.elt;
  const isPart = elt.hasAttribute("data-live");
  if (xhr.status < 400) setClock(xhr.getResponseHeader("X-Drydock-Time") ?? "");
  if (!isPart) {
    // The answer to a form: show it, whatever is held.
    answeredAt.set(target.id, Date.now());
    if (asked.delete(target.id)) unanswered.add(target.id);
    const form = elt.closest("form");
    const kept = remember(target, form);
    before.set(target.id, { keys: keysOf(target), open: [], kept, place: take(target), sentBy: sentFrom === form ? form : null });
    sentFrom = null;
    return;
  }
  // What a form of this part was answered goes to where the form is.
  if (xhr.status !== 200 || elt.querySelector("form.htmx-request")) {
    event.detail.shouldSwap = false;
    return;
  }
  const box = document.createElement("template");
  box.innerHTML = xhr.responseText;
  const lazy = elt.hasAttribute("data-lazy");
  const fresh = lazy ? Object.assign(document.createElement("div"), { innerHTML: xhr.responseText }) : box.content.firstElementChild;
  if (!fresh) return;
  const forced = "forced" in elt.dataset;
  if (!forced && isPressed()) {
    // Nothing is replaced between pressing a button and letting it go.
    waiting.set(elt.id, "");
    event.detail.shouldSwap = false;
    return;
  }
  const same = isSame(fresh, elt);
  if (!forced && !same && isHeld(elt, fresh)) {
    event.detail.shouldSwap = false;
    return;
  }
  if (!lazy && box.content.childElementCount > 1) {
    event.detail.serverResponse = fresh.outerHTML;
    const others = take(elt);
    renewOthers(box.content.cloneNode(true));
    settle(others);
  }
  if (same) {
    event.detail.shouldSwap = false;
    delete elt.dataset.forced;
    return;
  }
  const open = [...elt.querySelectorAll("details[data-key][open]")].map((node) => node.dataset.key);
  const told = [...elt.querySelectorAll("[data-told]")].map((node) => node.textContent);
  const answer = Date.now() - (answeredAt.get(elt.id) ?? 0) < ANSWER_STAYS_MS ? elt.querySelector("[data-answer]") : null;
  before.set(elt.id, { keys: keysOf(elt), open, told, answer, kept: remember(elt), place: take(elt) });
});

// What a form was answered stays for a while, also when the part follows what happens.
const ANSWER_STAYS_MS = 10_000;
const answeredAt = new Map();
// The form whose own button had the focus when it was sent.
let sentFrom = null;
document.addEventListener("submit", ({ target, submitter }) => {
  const on = document.activeElement;
  sentFrom = on && (on === submitter || target.contains(on) || on.form === target) ? target : null;
}, true);

// A row that is gone stays for some seconds while the user aims at it. Rows with less than two minutes left do not wait.
function isHeld(region, fresh) {
  // A picture moves on with the clock; the tables next to it show what is new.
  if (aimsInto(region) && essence(fresh, { pictures: false }) === essence(region, { pictures: false })) return true;
  const news = newRows(region, fresh);
  if (!takesRowAway(region, fresh) || news.some(isUrgent)) return false;
  waiting.set(region.id, rowAimedAt(region).key);
  pill(region, news.length ? `${news.length} new` : "Show changes", () => release(region, true));
  return true;
}

document.body.addEventListener("htmx:load", (event) => {
  const node = event.detail.elt;
  const region = node.closest?.("[data-live]") ?? node;
  if (unanswered.delete(region.id)) refreshSoon([region]);
  const known = before.get(region.id);
  if (!known) return;
  before.delete(region.id);
  for (const box of region.querySelectorAll("details[data-key]")) if (known.open.includes(box.dataset.key)) box.open = true;
  const came = [...region.querySelectorAll("[data-key]")].filter((row) => !known.keys.has(row.dataset.key));
  if (known.keys.size) for (const row of came) row.classList.add("is-new");
  const lost = restore(region, known.kept);
  const said = known.told ?? [];
  if (known.kept.isWriting && known.told) said.push(CHANGED);
  for (const line of new Set([...said, ...lost.map((text) => `Your text: “${text}”`)])) tell(region, line);
  if (known.answer && !region.querySelector("[data-answer]")) tell(region, known.answer);
  if (known.sentBy) focusAnswer(region);
  // What the clock shows and hides has its height before the place is settled.
  tickTimes();
  settle(known.place);
  if (came.length && region.querySelector("[data-rows]")) unseen.set(region.id, new Set([...came.map((row) => row.dataset.key), ...(unseen.get(region.id) ?? [])]));
  showUnseen();
});

// The next key after a decision takes it back, or does nothing.
function focusAnswer(region) {
  const on = document.activeElement;
  if (on && on !== document.body && on !== region && region.contains(on)) return;
  const undo = region.querySelector(".undo button");
  if (!undo) region.tabIndex = -1;
  (undo ?? region).focus({ preventScroll: true });
}

document.body.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful) lastContact = Date.now();
});

const letGo = () => setTimeout(() => regions().forEach((region) => release(region)), 60);
for (const name of ["pointerout", "pointerup", "focusout"]) document.addEventListener(name, letGo, { passive: true });
setInterval(() => {
  if (isResting()) letGo();
  showUnseen();
  tidy();
}, 250);

// The stream

const address = document.body.dataset.stream;
let stream = null;
let opened = false;
let retryAt = 0;
let hiddenSince = document.hidden ? Date.now() : 0;

function connect() {
  stream = new EventSource(address);
  stream.addEventListener("open", () => {
    lastContact = Date.now();
    showLive();
    // Changes without a connection are not missed: everything is asked for once.
    if (opened) refreshSoon(regions());
    opened = true;
  });
  stream.addEventListener("clock", (event) => {
    lastContact = Date.now();
    try {
      setClock(JSON.parse(event.data).server_time);
    } catch {
      setClock(event.data);
    }
  });
  stream.addEventListener("changed", (event) => {
    lastContact = Date.now();
    const change = JSON.parse(event.data);
    refreshSoon(regions().filter((region) => concerns(region, change)));
  });
  stream.addEventListener("error", () => {
    if (stream && stream.readyState === EventSource.CLOSED) {
      stream = null;
      retryAt = Date.now() + 5000 + Math.random() * 5000;
    }
  });
}

function disconnect() {
  stream?.close();
  stream = null;
}

const streaming = () => stream !== null && stream.readyState === EventSource.OPEN;

function showLive() {
  const badge = document.getElementById("live");
  if (!badge) return;
  const silent = Date.now() - lastContact;
  let state = "polling";
  let word = "Page: every 10 s";
  if (silent > STALE_MS) [state, word] = ["stale", `Page stale ${Math.floor(silent / 10_000) * 10} s`];
  else if (streaming()) [state, word] = ["live", "Page live"];
  else if (!opened && silent < 3000) [state, word] = ["starting", "Connecting"];
  badge.dataset.state = state;
  const shown = badge.querySelector(".live-word");
  if (shown.textContent !== word) shown.textContent = word;
}

function keepUp() {
  const now = Date.now();
  const away = hiddenSince && now - hiddenSince > HIDDEN_MS;
  if (away) disconnect();
  else if (!stream && now >= retryAt) connect();
  else if (streaming() && now - lastContact > STALE_MS) {
    // Open and silent: a path that swallows everything looks like this.
    disconnect();
    retryAt = now + 1000;
  }
  for (const region of regions()) {
    const every = streaming() ? Number(region.dataset.every ?? 0) * 1000 : away ? HIDDEN_POLL_MS : POLL_MS;
    if (!lastAsked.has(region.id)) lastAsked.set(region.id, now);
    if (every && now - lastAsked.get(region.id) >= every) refresh(region);
  }
}

if (address) {
  connect();
  setInterval(() => {
    keepUp();
    showLive();
  }, 1000);
  document.addEventListener("visibilitychange", () => {
    hiddenSince = document.hidden ? Date.now() : 0;
    if (document.hidden) return;
    retryAt = 0;
    keepUp();
    refreshSoon(regions());
  });
  addEventListener("pagehide", disconnect);
}

setInterval(tickTimes, 250);
tickTimes();

// Dark and light, and the person's menu

const theme = document.getElementById("theme");
if (theme) {
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const root = document.documentElement;
    const chosen = root.dataset.bsTheme === "dark" ? "light" : "dark";
    root.dataset.bsTheme = chosen;
    root.setAttribute("data-theme-chosen", "");
    document.cookie = `drydock_theme=${chosen}; path=/; max-age=31536000; samesite=lax`;
  });
}

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.who[open]")) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.who[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});
