// Elements from data. Text is always set as text: nothing from a record is ever read as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const $ = (id) => document.getElementById(id);
export const capital = (text) => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;
export const lower = (text) => (/^.[A-Z]/.test(text) ? text : `${text.slice(0, 1).toLowerCase()}${text.slice(1)}`);

export function percent(p) {
  if (p > 0.995) return ">99%";
  if (p < 0.005) return "<1%";
  return `${Math.round(100 * p)}%`;
}

// "12 times the usual": how a probability compares with the department's.
export function compared(probability, baseline) {
  const times = probability / Math.max(baseline, 1e-6);
  if (times >= 1000) return "over 1,000 times the usual";
  if (times >= 1.5) return `${times >= 10 ? Math.round(times) : times.toFixed(1).replace(".0", "")} times the usual`;
  return times > 0.67 ? "about the usual" : "below the usual";
}

export function patient({ age, sex }) {
  const who = { F: ["girl", "woman"], M: ["boy", "man"] }[sex] ?? ["child", "patient"];
  if (age === null) return sex ? `${capital(who[1])}, age unknown` : "Age and sex unknown";
  if (age === 0) return `${capital(who[0])} under 1 year`;
  if (age < 28 / 365) return `${Math.round(age * 365)}-day-old ${who[0]}`;
  if (age < 2) return `${Math.max(1, Math.round(age * 12))}-month-old ${who[0]}`;
  return `${Math.floor(age)}-year-old ${who[age < 16 ? 0 : 1]}`;
}

// The time of the hospital's clock, as the record has it: day, month in letters, year, 24 hours.
export function clock(time) {
  return time ? new Date(time).toLocaleString("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" }) : "";
}

export function typing(event) {
  const at = event.target;
  return event.ctrlKey || event.metaKey || event.altKey || at.matches?.("input:not([type=radio], [type=checkbox]), textarea, select");
}

/** Do what a key stands for, if it stands for anything; j and k are the arrows down and up. */
export function press(event, keys) {
  const action = { j: keys.ArrowDown, k: keys.ArrowUp, ...keys }[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}
