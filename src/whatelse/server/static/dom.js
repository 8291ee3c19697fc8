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

export function percent(p) {
  if (p > 0.995) return ">99%";
  if (p < 0.005) return "<1%";
  return `${Math.round(100 * p)}%`;
}

export function points(change) {
  const size = Math.abs(100 * change);
  return size >= 0.95 ? size.toFixed(0) : size.toFixed(1);
}

export function patient(record) {
  const who = { F: "woman", M: "man" }[record.sex] ?? "patient";
  const child = { F: "girl", M: "boy" }[record.sex] ?? "child";
  if (record.age === null) return record.sex ? `${who[0].toUpperCase()}${who.slice(1)}, age unknown` : "Age and sex unknown";
  return `${Math.floor(record.age)}-year-old ${record.age < 16 ? child : who}`;
}

export function typing(event) {
  const at = event.target;
  return event.ctrlKey || event.metaKey || event.altKey || at.matches?.("input:not([type=radio]), textarea, select");
}
