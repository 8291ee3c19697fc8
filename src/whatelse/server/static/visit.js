// A stored visit: its record, its tags, and decisions that others may be making at the same time.

import "./smart.js";
import { Refused, begin, get, here, post, requestKey } from "./api.js";
import { $ } from "./dom.js";
import { recordView, showPlace } from "./note.js";
import { Panel } from "./panel.js";

const key = location.pathname.split("/").pop();
const base = `/api/visits/${encodeURIComponent(key)}`;
const { titles, mayDecide } = await begin();
const SAYS = { confirmed: "confirmed", rejected: "rejected", open: "reopened", present: "answered yes", absent: "answered no", unasked: "answer taken back" };

let record = null;
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
  const name = titles[subject] ?? subject.replaceAll("_", " ");
  return change(`${base}/decisions`, { subject, verdict, model: panel.view.model }, () => `${name} ${SAYS[verdict]}.`, (now) => {
    // Somebody was faster. If they left this one alone, ours stands beside theirs; else the person must look again.
    return standing(now.state, subject) === before;
  });
}

async function change(path, body, says, stillMeant = () => false) {
  const request = requestKey();
  for (let attempt = 0; attempt < 5; attempt++) {
    try {
      const view = await post(path, { ...body, version: panel.view.state.version, request });
      panel.show(view, says());
      performance.mark("whatelse-shown");
      return void settle();
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
      panel.show(problem.body, `${actor} has just set ${titles[subject] ?? subject} to ${verdict}.`);
      settle();
      if (!stillMeant(problem.body)) return void panel.say(`${actor} has just set ${titles[subject] ?? subject} to ${verdict}. Yours was not recorded; decide again if it should be.`);
    }
  }
  throw new Error("Others are deciding on this visit right now; try again.");
}

// After the tags have moved: marks in the note and questions follow in their own time.
async function settle() {
  const version = panel.view.state.version;
  const [reading, asked] = await Promise.all([get(`${base}/findings`), get(`${base}/questions`)]);
  if (panel.view.state.version !== version) return;
  marks = reading.marks;
  $("record").replaceChildren(...recordView(record, marks, titles));
  panel.setReading(reading.explains);
  panel.setQuestions(asked.questions);
  document.documentElement.classList.add("loaded");
}

function show(place) {
  if (showPlace(place)) return;
  // not marked: it matters to this tag alone
  $("record").replaceChildren(...recordView(record, [...marks, place], titles));
  showPlace(place);
}

try {
  const visit = await get(base);
  record = visit.record;
  $("record").replaceChildren(...recordView(record, [], titles));
  panel.show(visit);
  await settle();
} catch (problem) {
  $("record").replaceChildren(Object.assign(document.createElement("p"), { className: "problem", textContent: problem.message }));
}
