// The target that the user aims at while parts of the page are replaced. It stays where it is on the screen: what is inserted above it
// is scrolled by. A row that goes away is held while the pointer or the keyboard is used, and a click never lands on a
// button that has just come.

import { FIELDS, WRITING, actionOf, focusLike, keyOf, rowLike, words } from "./keep.js";

const CLICKED = "a, button, summary, label, select, input[type=checkbox], input[type=radio]";
const HERE = "[data-key], form";
const ROW = "li[data-key], tr[data-key]";
// A hold ends when neither the pointer nor the keyboard was used for this long.
const RESTS_MS = 5000;
const MOVED_PX = 4;
// For this long no click lands on what has just come under the pointer or the focus; with a finger, on a new button.
const GUARD_MS = 600;
const GUARD_TOUCH_MS = 350;
// A press that lasts longer is no click.
const PRESS_MS = 2000;

// On a phone what was touched last counts as hovered for ever.
const pointer = matchMedia("(hover: hover)");

let usedAt = 0;
let byKeys = false;
let at = null;
let pressedAt = 0;
let guard = { until: 0, region: "", known: new Set(), keys: false, pointer: false };

document.addEventListener("pointermove", (event) => {
  if (event.pointerType === "touch") return;
  const here = { x: event.clientX, y: event.clientY };
  // A mouse on a table trembles, and one that rests is moved by nothing but the page.
  if (at && Math.hypot(here.x - at.x, here.y - at.y) < MOVED_PX) return;
  at = here;
  usedAt = Date.now();
  byKeys = false;
  guard.pointer = false;
}, { passive: true, capture: true });
document.documentElement.addEventListener("pointerleave", () => { at = null; }, { passive: true });
document.addEventListener("keydown", () => {
  usedAt = Date.now();
  byKeys = true;
}, { passive: true, capture: true });
document.addEventListener("pointerdown", () => {
  pressedAt = usedAt = Date.now();
  byKeys = false;
}, { passive: true, capture: true });
for (const name of ["pointerup", "pointercancel", "dragend"]) {
  // The click comes behind it.
  document.addEventListener(name, () => setTimeout(() => { pressedAt = 0; }), { passive: true, capture: true });
}

export const isResting = () => Date.now() - usedAt >= RESTS_MS;
export const isPressed = () => Date.now() - pressedAt < PRESS_MS;

const isOnScreen = (node) => {
  const box = node.getBoundingClientRect();
  return box.height > 0 && box.bottom > 0 && box.top < innerHeight;
};

function hovered() {
  if (!pointer.matches) return null;
  // What is hovered is known again only some time after a part was replaced. The pill lies above what is meant.
  const under = at
    ? document.elementsFromPoint(at.x, at.y).find((node) => !node.closest(".pill-box"))
    : [...document.querySelectorAll(":hover")].at(-1);
  return under?.closest("#main") ? under.closest(CLICKED) ?? under.closest(HERE) : null;
}

function focused() {
  const on = document.activeElement;
  return on?.closest("#main > *") && isOnScreen(on) ? on : null;
}

// The row or button under the pointer, else under the keyboard; whichever was used last goes first.
function aimed() {
  const [hover, focus] = [hovered(), focused()];
  // The pointer rests on the field that the user writes in.
  if (focus && (byKeys || (focus.matches(WRITING) && hover?.contains(focus)))) return focus;
  return hover ?? focus;
}

function describe(node) {
  const row = node.closest("[data-key]");
  const region = node.closest("[data-live]");
  const list = row?.closest("[data-rows]")?.dataset.rows ?? "";
  return { node, region: region?.id ?? "", key: keyOf(node), list, words: words(node), top: node.getBoundingClientRect().top };
}

// What it is by where it leads and what it is called: a click does the same as long as both are.
const identity = (node) =>
  node ? [node.tagName, node.getAttribute("href") ?? "", actionOf(node), node.name ?? "", node.value ?? "", keyOf(node), words(node)].join("|") : "";

const focusedButton = () => document.activeElement?.closest(CLICKED) ?? null;

function clickable() {
  if (!at || !pointer.matches) return null;
  return document.elementFromPoint(at.x, at.y)?.closest(CLICKED) ?? null;
}

function likeIn(region, was) {
  const form = was.node.matches("form") ? region.querySelector(`form[action="${CSS.escape(was.node.getAttribute("action") ?? "")}"]`) : null;
  return form ?? focusLike(region, was) ?? (was.key ? rowLike(region, was) : null);
}

export const aimsInto = (region) => !isResting() && region.contains(aimed());

// The row of this part at which the user aims now.
export function rowAimedAt(region) {
  if (isResting()) return null;
  const node = aimed();
  const row = node && !node.matches(WRITING) ? node.closest(ROW) : null;
  return row && region.contains(row) ? describe(row) : null;
}

// Whether the answer lacks that row: what follows it would come under the pointer.
export function takesRowAway(region, fresh) {
  const row = rowAimedAt(region);
  return row !== null && !rowLike(fresh, row);
}

// What is on the screen before a part is replaced.
export function take(region) {
  const node = aimed() ?? (document.scrollingElement.scrollTop > 0 ? firstRow() : null);
  const buttons = new Set([...region.querySelectorAll(CLICKED)].map(identity));
  return { aim: node && describe(node), under: identity(clickable()), focus: identity(focusedButton()), region: region.id, buttons };
}

// The bar of places may stick to the window: what lies behind it is not seen.
export const edge = () => Math.max(0, document.querySelector("header.bar")?.getBoundingClientRect().bottom ?? 0);

// The user aims at nothing: the page stays where it is being read.
const firstRow = () =>
  [...document.querySelectorAll("#main [data-key], #main h2")].find((node) => node.getBoundingClientRect().top >= edge()) ?? null;

// The same afterwards: what was aimed at goes back to where it was, and clicks that were meant for something else are void.
export function settle({ aim, under, focus, region, buttons }) {
  if (aim) {
    const within = document.getElementById(aim.region) ?? document.body;
    const node = aim.node.isConnected ? aim.node : likeIn(within, aim);
    if (node) moveTo(node, aim.top);
  }
  const now = identity(clickable());
  guard = {
    until: Date.now() + GUARD_MS,
    region,
    known: buttons,
    touch: Date.now() + GUARD_TOUCH_MS,
    pointer: now !== "" && now !== under,
    keys: identity(focusedButton()) !== focus,
  };
}

document.addEventListener("click", (event) => {
  const now = Date.now();
  if (now >= guard.until || !event.isTrusted) return;
  const on = event.target.closest?.(CLICKED);
  if (!on) return;
  const byFinger = event.pointerType === "touch" && now < guard.touch;
  const isNew = byFinger && on.matches("button") && on.closest(`#${CSS.escape(guard.region)}`) && !guard.known.has(identity(on));
  // The keyboard clicks without a place.
  if (isNew || (event.detail === 0 ? guard.keys && !on.matches(FIELDS) : guard.pointer)) {
    event.preventDefault();
    event.stopImmediatePropagation();
  }
}, true);

// Scrolling is all that moves: where the page is too short for it, there is room above or below for a while.

const room = { above: null, below: null };

function roomFor(side, height) {
  if (!room[side]) {
    room[side] = document.createElement("div");
    room[side].ariaHidden = "true";
    room[side].style.flex = "none";
    const main = document.getElementById("main");
    if (side === "above") main.prepend(room[side]);
    else document.body.append(room[side]);
  }
  room[side].style.height = `${(parseFloat(room[side].style.height) || 0) + height}px`;
}

const scrollBy = (pixels) => scrollTo({ top: document.scrollingElement.scrollTop + pixels, behavior: "instant" });

function moveTo(node, top) {
  const panel = node.closest(".split-side");
  if (panel && getComputedStyle(panel).position === "sticky") {
    // It scrolls by itself.
    panel.scrollTop += node.getBoundingClientRect().top - top;
    return;
  }
  for (let tries = 0; tries < 4; tries += 1) {
    const begin = node.getBoundingClientRect().top;
    const off = begin - top;
    if (Math.abs(off) < 0.02) return;
    const from = document.scrollingElement.scrollTop;
    // By whole pixels; the rest is room above.
    scrollBy(Math.ceil(off));
    const scrolled = document.scrollingElement.scrollTop - from;
    const left = node.getBoundingClientRect().top - top;
    // It sticks to the window.
    if (scrolled && Math.abs(begin - scrolled - top - left) > 1) {
      scrollBy(-scrolled);
      return;
    }
    if (left > 0.02) {
      roomFor("below", left);
    } else if (left < 0) {
      roomFor("above", -left);
      if (node.getBoundingClientRect().top - top === left) {
        roomFor("above", left);
        return;
      }
    }
  }
}

// Unused room is removed, where that moves nothing that is aimed at.
export function tidy() {
  if (!room.above && !room.below) return;
  const aim = aimed();
  if (aim && !isResting()) return;
  const root = document.scrollingElement;
  if (room.above) {
    const height = room.above.offsetHeight;
    if (!aim || root.scrollTop >= height) {
      room.above.remove();
      room.above = null;
      scrollBy(-height);
    }
  }
  if (room.below && (!aim || room.below.getBoundingClientRect().top > innerHeight)) {
    room.below.remove();
    room.below = null;
  }
}
