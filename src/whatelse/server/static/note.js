// The record as it was read: mentions marked by assertion where they are. Offsets count characters, so texts are split
// by character.

import { capital, clock, h, patient } from "./dom.js";

const FIELDS = { chief_complaint: "Chief complaint", triage_note: "Triage note", md_comments: "Physician’s comments" };
const LISTS = { medication_history: "Takes at home", dispensed: "Given here", coded: "Coded" };
const SIGNS = { denied: "no", possible: "?", history: "hx", family: "fam", hypothetical: "if" };
const SAYS = { denied: "denied", possible: "possible", history: "in the past", family: "in the family", hypothetical: "only if" };
const LONG = 900; // characters of a note that is folded

export const headView = (record, heading = "h1") => [
  h(heading, { class: "record-name" }, patient(record), record.chief_complaint && h("span", { class: "complaint" }, `: ${record.chief_complaint}`)),
  h("p", { class: "quiet" }, [record.id, clock(record.time)].filter(Boolean).join(" · ")),
];

export const recordView = (record, read, marks, titles) => [...noteView(record, read, marks, titles), legend(read.mentions, marks)];

export function noteView(record, read, marks, titles) {
  const sections = [];
  const all = merged(read.mentions, marks);
  for (const [field, title] of Object.entries(FIELDS)) {
    if (field === "triage_note" && read.vitals.length) sections.push(vitals(read.vitals));
    if (!record[field]) continue;
    const text = h("p", {}, ...marked(record[field], all.filter((mark) => mark.field === field && mark.start !== null), titles));
    const long = record[field].length > LONG;
    sections.push(h("section", { class: `note ${field}${long ? " folded" : ""}` }, h("h2", {}, title), text,
      long && h("button", { type: "button", class: "plain", onclick: (event) => unfold(event.target.parentElement) }, "Show the whole note")));
  }
  for (const [field, title] of Object.entries(LISTS)) {
    if (record[field]?.length) sections.push(h("section", { class: "note" }, h("h2", {}, title), listed(record[field], field, read.classes, all, titles)));
  }
  return sections;
}

const unfold = (note) => { note?.classList.remove("folded"); note?.querySelector(":scope > button")?.remove(); };

// One mark a place: what speaks for a condition stands over the plain mention.
function merged(mentions, marks) {
  const by = new Map(mentions.map((mark) => [placeOf(mark), mark]));
  for (const mark of marks) {
    const plain = by.get(placeOf(mark));
    by.set(placeOf(mark), plain ? { ...mark, text: plain.text, assertion: plain.assertion, end: Math.max(mark.end, plain.end) } : mark);
  }
  return [...by.values()];
}

function vitals(list) {
  const item = (vital) => h("li", { class: vital.means.length ? "abnormal" : "" },
    h("span", { class: "quiet" }, `${vital.label} `), h("strong", {}, vital.text), vital.means.length > 0 && ` (${vital.means[0]})`);
  return h("section", { class: "note vitals" }, h("h2", {}, "Measured"), h("ul", { class: "drugs" }, list.map(item)));
}

// Drugs by class, in the order of the record; what has no class comes as it is.
function listed(names, field, classes, marks, titles) {
  const groups = new Map();
  names.forEach((name, item) => {
    const mark = marks.find((candidate) => candidate.field === field && candidate.item === item);
    const group = classes[name] ?? "";
    groups.set(group, [...(groups.get(group) ?? []), mark ? markView(name, mark, titles) : name]);
  });
  return h("ul", { class: "drugs" }, [...groups].map(([group, items]) => h("li", {}, group && h("span", { class: "quiet" }, `${group}: `),
    items.flatMap((item, k) => (k ? [", ", item] : [item])))));
}

function marked(text, marks, titles) {
  const characters = Array.from(text);
  const weight = (mark) => (mark.conditions.length ? 0 : mark.explained.length ? 1 : 2);
  const chosen = [];
  for (const mark of [...marks].sort((a, b) => weight(a) - weight(b) || (b.end - b.start) - (a.end - a.start))) {
    if (!chosen.some((other) => mark.start < other.end && other.start < mark.end)) chosen.push(mark);
  }
  const out = [];
  let at = 0;
  for (const mark of chosen.sort((a, b) => a.start - b.start)) {
    out.push(characters.slice(at, mark.start).join(""), markView(characters.slice(mark.start, mark.end).join(""), mark, titles));
    at = mark.end;
  }
  return [...out, characters.slice(at).join("")];
}

const kindOf = (mark) => (mark.assertion !== "present" && mark.assertion !== "drug" ? mark.assertion
  : mark.conditions.length ? "open" : mark.explained.length ? "explained" : mark.assertion);

function markView(text, mark, titles) {
  const kind = kindOf(mark);
  const says = [
    SAYS[kind] ? `${capital(SAYS[kind])}: ${mark.text.replace(/^no /, "")}` : capital(mark.text),
    mark.conditions.length ? `speaks for ${mark.conditions.map((name) => titles[name]).join(", ")}` : null,
    mark.explained.length ? `explained by ${mark.explained.map((name) => titles[name]).join(", ")}` : null,
  ].filter(Boolean).join("; ");
  return h("mark", { class: kind, title: says, tabindex: "-1", data: { place: placeOf(mark) } },
    SIGNS[kind] && h("span", { class: "sign" }, SIGNS[kind]), text);
}

export const placeOf = (mark) => `${mark.field}:${mark.start ?? `item${mark.item}`}`;

// Scroll to a place of the record and let it be seen; false if it is not marked.
export function showPlace(place) {
  const found = document.querySelector(`mark[data-place="${CSS.escape(placeOf(place))}"]`);
  if (!found) return false;
  unfold(found.closest(".folded"));
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  found.scrollIntoView({ block: "center", behavior: still ? "auto" : "smooth" });
  document.querySelectorAll("mark.pointed").forEach((mark) => mark.classList.remove("pointed"));
  found.classList.add("pointed");
  found.focus({ preventScroll: true });
  return true;
}

function legend(mentions, marks) {
  const kinds = new Set(merged(mentions, marks).map(kindOf));
  const says = { open: "speaks for a suggestion", explained: "explained by what is confirmed", present: "present", drug: "drug", ...SAYS };
  const items = Object.entries(says).filter(([kind]) => kinds.has(kind));
  return h("p", { class: "legend quiet small", hidden: !items.length },
    items.map(([kind, text]) => h("span", {}, h("mark", { class: kind }, SIGNS[kind] && h("span", { class: "sign" }, SIGNS[kind]), "word"), ` ${text}`)));
}
