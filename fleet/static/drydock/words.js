// Times in words, the same as the server writes them (fleet/wording/times.py).

const two = (number) => String(number).padStart(2, "0");

export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 3600) return `${Math.floor(whole / 60)}:${two(whole % 60)}`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export const ago = (seconds) => (seconds < 2 ? "just now" : `${age(seconds)} ago`);

export function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h`;
  return `${Math.floor(whole / 86400)} d`;
}

// The clock in the time zone of the page, with what it is called there.
export function clockIn(zone) {
  const parts = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZone: zone };
  const format = new Intl.DateTimeFormat("en-GB", { ...parts, timeZoneName: "short" });
  return (at) => format.format(at);
}
