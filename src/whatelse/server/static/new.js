// A visit that is being typed: suggestions follow, a moment after the last key. Nothing of it is stored.

import { begin, here, post } from "./api.js";
import { $, capital, h } from "./dom.js";
import { noteView, showPlace } from "./note.js";
import { Panel } from "./panel.js";

const PAUSE = 200; // milliseconds without a key
const SAYS = { confirmed: "confirmed", rejected: "rejected", open: "reopened", present: "yes", absent: "no", unasked: "answer taken back" };
const { titles } = await begin();
const state = { confirmed: [], rejected: [], present: [], absent: [] };
const past = []; // states before each decision
let marks = [];
let read = { mentions: [], vitals: [], classes: {} };
let asked = 0;
let pause;

const panel = new Panel({
  titles,
  mayDecide: true, // nothing is recorded, so everybody may try
  actions: {
    decide,
    undo,
    why: (condition) => post("/api/why", { ...question(), condition }),
    places: (place) => { if (!showPlace(place)) { drawRead([...marks, place]); showPlace(place); } },
    leave: () => location.assign(here("/")),
    typing: (event) => event.target.matches?.("input, textarea, select") && (event.target.blur(), true),
  },
});

const list = (id) => {
  const names = $(id).value.split(",").map((name) => name.trim()).filter(Boolean);
  return names.length ? names : null;
};

function visit() {
  const age = $("age").value === "" ? null : Number($("age").value);
  return {
    age: age !== null && age >= 0 && age <= 130 ? age : null,
    sex: $("sex").value || null,
    chief_complaint: $("chief_complaint").value,
    triage_note: $("triage_note").value,
    md_comments: $("md_comments").value,
    medication_history: list("medication_history"),
    dispensed: list("dispensed"),
  };
}

const question = () => ({ visit: visit(), ...state });

async function refresh(change = null, before = null) {
  const mine = ++asked;
  try {
    const answer = await post("/api/suggest", question());
    if (mine !== asked) return;
    panel.explains = answer.explains;
    read = answer.read;
    panel.show(answer, change);
    panel.setQuestions(answer);
    drawRead((marks = answer.marks));
    if (before) post("/api/moved", { ...question(), before }).then(({ sentence }) => { if (mine === asked && $("moved")) $("moved").textContent = sentence; }, () => {});
    document.documentElement.classList.add("loaded");
  } catch (problem) {
    if (mine === asked) panel.say(problem.message);
  }
}

function drawRead(found) {
  const sections = noteView(visit(), read, found, titles);
  $("read").replaceChildren(...(found.length || read.mentions.length ? [h("h2", {}, "As it was read"), ...sections] : []));
}

function decide(subject, verdict) {
  const before = structuredClone(state);
  past.push(before);
  for (const group of Object.keys(state)) state[group] = state[group].filter((name) => name !== subject);
  if (state[verdict]) state[verdict].push(subject);
  const finding = panel.asked.find((question) => question.finding === subject)?.text ?? subject.replaceAll("_", " ");
  return refresh(`${titles[subject] ?? capital(finding)}: ${SAYS[verdict]}.`, before);
}

function undo() {
  if (!past.length) return panel.say("There is nothing left to undo.");
  Object.assign(state, past.pop());
  return refresh("Undone.");
}

$("typed").addEventListener("input", () => {
  clearTimeout(pause);
  pause = setTimeout(() => refresh(), PAUSE);
});
$("typed").addEventListener("submit", (event) => event.preventDefault());
await refresh();
$("chief_complaint").focus();
