// A stored visit: its record, its tags, and decisions that others may be making at the same time.

import "./smart.js";
import { Refused, begin, get, here, post, requestKey } from "./api.js";
import { $, capital } from "./dom.js";
import { headView, recordView, showPlace } from "./note.js";
import { Panel } from "./panel.js";

const key = location.pathname.split("/").pop();
const base = `/api/visits/${encodeURIComponent(key)}`;
const { titles, mayDecide } = await begin();
const SAYS = { confirmed: "confirmed", rejected: "rejected", open: "reopened", present: "answered yes", absent: "answered no", unasked: "answer taken back" };

const CALM = 150; // milliseconds after a decision
let record = null;
let read = null;
let marks = [];
let busy = Promise.resolve(); // decisions go one after the other: each is made on what the last one showed

const panel = new Panel({
  titles,
  mayDecide,
  actions: {
    decide: (subject, verdict) => inTurn(() => decide(subject, verdict)),
    undo: () => inTurn(() => change(`${base}/undo`, {}, () => "Undone.")),
    why: (condition) => get(`${base}/why?condition=${encodeURIComponent(condition)}`),
    places: show,
    leave: () => location.assign(here("/")),
  },
});

function inTurn(work) {
  busy = busy.then(work).catch((problem) => panel.say(problem.message));
  return busy;
}

const standing = (state, subject) =>
  ["confirmed", "rejected"].find((group) => state[group].includes(subject))
  ?? ["present", "absent"].find((group) => state[group].some((finding) => finding.finding === subject)) ?? "open";

function decide(subject, verdict) {
  const before = standing(panel.view.state, subject);
  return change(`${base}/decisions`, { subject, verdict, model: panel.view.model }, (view) => `${named(subject, view)}: ${SAYS[verdict]}.`, (now) => {
    // Somebody was faster. If they left this one alone, ours stands beside theirs; else the person must look again.
    return standing(now.state, subject) === before;
  });
}

// A condition, or a finding that was asked about, as people call it.
function named(subject, view) {
  const asked = [...panel.asked, ...view.state.present, ...view.state.absent].find((finding) => finding.finding === subject);
  return titles[subject] ?? capital(asked?.text ?? subject.replaceAll("_", " "));
}

const known = ({ confirmed, rejected, present, absent }) => ({ confirmed, rejected, present: present.map((f) => f.finding), absent: absent.map((f) => f.finding) });

async function change(path, body, says, stillMeant = () => false) {
  const request = requestKey();
  for (let attempt = 0; attempt < 5; attempt++) {
    try {
      const before = known(panel.view.state);
      const view = await post(path, { ...body, version: panel.view.state.version, request });
      panel.show(view, says(view));
      performance.mark("whatelse-shown");
      return void settle(before);
    } catch (problem) {
      if (!(problem instanceof Refused)) {
        if (attempt < 4) { // the connection broke: the same request again is recorded once
          await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** attempt));
          continue;
        }
        throw new Error("The service cannot be reached. Your last decision may not be recorded.");
      }
      if (problem.status !== 409 || !problem.body.state) throw problem;
      const { actor, subject, verdict } = problem.body;
      const said = `${actor} has just set ${named(subject, problem.body)} to ${SAYS[verdict]}.`;
      panel.show(problem.body, said);
      settle();
      if (!stillMeant(problem.body)) return void panel.say(`${said} Your decision was not recorded. Decide again if it should be.`);
    }
  }
  throw new Error("Others are deciding on this visit right now; try again.");
}

// After the cards have changed: why they moved, marks in the note and questions follow in their own time.
async function settle(before = null) {
  const version = panel.view.state.version;
  if (before) await new Promise((resolve) => setTimeout(resolve, CALM)); // of quick decisions the last one counts
  if (panel.view.state.version !== version) return;
  if (before) post(`${base}/moved`, before).then(({ sentence }) => { if (panel.view.state.version === version && $("moved")) $("moved").textContent = sentence; }, () => {});
  const [reading, asked] = await Promise.all([get(`${base}/findings`), get(`${base}/questions`)]);
  if (panel.view.state.version !== version) return;
  marks = reading.marks;
  $("record").replaceChildren(...recordView(record, read, marks, titles));
  panel.setReading(reading.explains);
  panel.setQuestions(asked);
  document.documentElement.classList.add("loaded");
}

function show(place) {
  if (showPlace(place)) return;
  // not marked: it matters to this tag alone
  $("record").replaceChildren(...recordView(record, read, [...marks, place], titles));
  showPlace(place);
}

try {
  const visit = await get(base);
  ({ record, read } = visit);
  $("head").replaceChildren(...headView(record));
  $("record").replaceChildren(...recordView(record, read, [], titles));
  panel.show(visit);
  await settle();
} catch (problem) {
  $("record").replaceChildren(Object.assign(document.createElement("p"), { className: "problem", textContent: problem.message }));
}
