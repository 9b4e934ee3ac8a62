// A sound and a notification of the desktop for users who want them, when something new needs their decision. What is new
// the pulse in the head says, which every page keeps up to date. Loaded only where one of both is wanted.

const TOLD = "drydock-told";
const WITHIN_MS = 1000;
// Tabs that are a little behind do not tell the same once more.
const APART_MS = 5000;

let sounds = null;

// Two short tones, three times for a critical event, made here: there is no file to load, and nothing that the policy
// would have to allow.
export function sound(critical = false) {
  sounds ??= new AudioContext();
  sounds.resume();
  const tones = [[0, 660], [0.18, 880]];
  if (critical) tones.push([0.5, 660], [0.68, 880], [1, 660], [1.18, 880]);
  for (const [after, pitch] of tones) {
    const tone = sounds.createOscillator();
    const volume = sounds.createGain();
    const at = sounds.currentTime + after;
    tone.frequency.value = pitch;
    volume.gain.setValueAtTime(0.0001, at);
    volume.gain.exponentialRampToValueAtTime(0.25, at + 0.02);
    volume.gain.exponentialRampToValueAtTime(0.0001, at + 0.16);
    tone.connect(volume).connect(sounds.destination);
    tone.start(at);
    tone.stop(at + 0.18);
  }
}

export function notify(text, tag, critical = false) {
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  const shown = new Notification("Drydock", {
    body: text,
    tag,
    icon: document.querySelector("link[rel=icon]").href,
    requireInteraction: critical,
  });
  shown.addEventListener("click", () => {
    window.focus();
    location.assign("/");
    shown.close();
  });
}

const wanted = (document.body.dataset.tell ?? "").split(" ");

function tell(waiting, newest, critical) {
  const text = waiting === 1 ? "1 event needs a decision" : `${waiting} events need a decision`;
  if (wanted.includes("sound")) sound(critical);
  if (wanted.includes("notification")) notify(critical ? `Critical: ${text}` : text, `drydock-${newest}`, critical);
}

// Of several tabs one tells.
const alone = (act) => (navigator.locks ? navigator.locks.request(TOLD, act) : act());

function look() {
  const pulse = document.getElementById("pulse");
  if (!pulse) return;
  const [waiting, newest, critical] = ["waiting", "newest", "critical"].map((name) => Number(pulse.dataset[name]));
  alone(() => {
    const told = JSON.parse(localStorage.getItem(TOLD) ?? "null");
    const now = Date.now();
    // A proposal that waits for one's consent is no new event, but one more.
    const more = told && (newest > told.newest || (waiting > told.waiting && now - told.at > APART_MS));
    if (told && !more && waiting === told.waiting) return;
    const seen = { newest: Math.max(newest, told?.newest ?? 0), critical: Math.max(critical, told?.critical ?? 0) };
    localStorage.setItem(TOLD, JSON.stringify({ ...seen, waiting, at: more ? now : (told?.at ?? 0) }));
    // Events that waited before the first visit are on the screen.
    if (more) tell(waiting, newest, critical > (told.critical ?? critical));
  });
}

if (wanted.some(Boolean)) {
  addEventListener("pointerdown", () => sounds?.resume(), { passive: true });
  look();
  setInterval(look, WITHIN_MS);
}
