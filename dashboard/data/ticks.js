// Ticks of a time axis: whole seconds, minutes, hours and days of local time.

const STEPS_S = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];

export function ticks(begin, end, most) {
  const width = end - begin;
  const step = STEPS_S.find((s) => width / s <= most) ?? Math.ceil(width / most / 2592000) * 2592000;
  const zone = -new Date(begin * 1000).getTimezoneOffset() * 60;
  const out = [];
  for (let at = Math.ceil((begin + zone) / step) * step - zone; at <= end; at += step) out.push([at, label(at, step)]);
  return out;
}

function label(seconds, step) {
  const at = new Date(seconds * 1000), two = (n) => String(n).padStart(2, "0");
  const isMidnight = !at.getHours() && !at.getMinutes() && !at.getSeconds();
  if (step >= 86400 || isMidnight) {
    return at.toLocaleDateString("en", { weekday: "short", day: "numeric", month: "short" });
  }
  const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return step < 60 ? `${time}:${two(at.getSeconds())}` : time;
}
