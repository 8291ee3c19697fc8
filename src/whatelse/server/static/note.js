// The record with its findings marked where they are. Offsets count characters, so texts are split by character.

import { h, patient } from "./dom.js";

const FIELDS = { chief_complaint: "Chief complaint", triage_note: "Triage note", md_comments: "Physician’s comments" };
const LISTS = { medication_history: "Takes at home", dispensed: "Given here", coded: "Coded" };

export function recordView(record, marks, titles, heading = "h1") {
  const time = record.time ? new Date(record.time).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) : null;
  return [
    h("header", { class: "record-head" },
      h(heading, { class: "record-name" }, patient(record)),
      h("p", { class: "quiet" }, [record.id, time].filter(Boolean).join(" · "))),
    ...noteView(record, marks, titles),
    legend(marks),
  ];
}

export function noteView(record, marks, titles) {
  const sections = [];
  for (const [field, title] of Object.entries(FIELDS)) {
    if (!record[field]) continue;
    const own = marks.filter((mark) => mark.field === field && mark.start !== null);
    sections.push(h("section", { class: `note ${field}` }, h("h2", {}, title), h("p", {}, ...marked(record[field], own, titles))));
  }
  for (const [field, title] of Object.entries(LISTS)) {
    if (!record[field]?.length) continue;
    const items = record[field].map((name, item) => {
      const mark = marks.find((candidate) => candidate.field === field && candidate.item === item);
      return h("li", {}, mark ? markView(name, mark, titles) : name);
    });
    sections.push(h("section", { class: "note" }, h("h2", {}, title), h("ul", { class: "drugs" }, items)));
  }
  return sections;
}

function marked(text, marks, titles) {
  const characters = Array.from(text);
  const sorted = [...marks].sort((a, b) => a.start - b.start || b.end - a.end);
  const out = [];
  let at = 0;
  for (const mark of sorted) {
    if (mark.start < at) continue; // inside one that is marked already
    out.push(characters.slice(at, mark.start).join(""), markView(characters.slice(mark.start, mark.end).join(""), mark, titles));
    at = mark.end;
  }
  return [...out, characters.slice(at).join("")];
}

function markView(text, mark, titles) {
  const kind = mark.negated ? "negated" : mark.conditions.length ? "open" : mark.explained.length ? "explained" : "open";
  const about = mark.conditions.map((name) => titles[name]);
  const by = mark.explained.map((name) => titles[name]);
  const says = [
    mark.negated ? `denied: ${mark.text.replace(/^no /, "")}` : mark.text,
    about.length ? `speaks for ${about.join(", ")}` : null,
    by.length ? `explained by ${by.join(", ")}` : null,
  ].filter(Boolean).join("; ");
  return h("mark", { class: kind, title: says, tabindex: "-1", data: { place: placeOf(mark) } },
    mark.negated && h("span", { class: "no" }, "no"), text);
}

export const placeOf = (mark) => `${mark.field}:${mark.start ?? `item${mark.item}`}`;

// Scroll to a place of the record and let it be seen; a place that is not marked is marked for the moment.
export function showPlace(place) {
  const found = document.querySelector(`mark[data-place="${CSS.escape(placeOf(place))}"]`);
  if (!found) return false;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  found.scrollIntoView({ block: "center", behavior: still ? "auto" : "smooth" });
  document.querySelectorAll("mark.pointed").forEach((mark) => mark.classList.remove("pointed"));
  found.classList.add("pointed");
  found.focus({ preventScroll: true });
  return true;
}

function legend(marks) {
  const kinds = new Set(marks.map((mark) => (mark.negated ? "negated" : mark.conditions.length ? "open" : "explained")));
  const says = { open: "speaks for a suggestion", explained: "explained by what is confirmed", negated: "denied" };
  const items = Object.entries(says).filter(([kind]) => kinds.has(kind));
  return h("p", { class: "legend quiet small", hidden: !items.length },
    items.map(([kind, text]) => h("span", {}, h("mark", { class: kind }, kind === "negated" && h("span", { class: "no" }, "no"), "word"), ` ${text}`)));
}
