// The label queue: one visit after another, all its conditions at once, with undo.

import { begin, get, post } from "../api.js";
import { $, h, press, typing } from "../dom.js";
import { headView, recordView } from "../note.js";
import { watch } from "./status.js";

await begin();
const look = watch(() => show());
const SIGNS = { 1: "✓ has it", 0: "✕ has not", "": "? cannot be told" };
const skipped = new Set();
let queue = { waiting: [], done: 0 };
let state = null;
let key = null;
let conditions = [];
let marks = new Map(); // condition -> "1", "0" or "" (cannot be told); all are "0" until marked

function say(text, problem = false) {
  $("said").replaceChildren(h("p", { class: problem ? "problem" : "" }, text));
}

async function show() {
  state = await look();
  queue = await get("/api/workbench/labels");
  await next();
}

async function next(wanted = null) {
  key = wanted ?? queue.waiting.find((one) => !skipped.has(one)) ?? null;
  const total = queue.waiting.length + queue.done;
  $("summary").textContent = total ? `${queue.done} of ${total} are done, in labels.csv.` : "";
  $("labelling").hidden = key === null;
  $("empty").hidden = key !== null;
  if (key === null) return drawEmpty(total);
  const visit = await get(`/api/workbench/labels/${key}`);
  conditions = visit.conditions;
  const before = conditions.some((c) => c.said !== "");
  marks = new Map(conditions.map((c) => [c.condition, before ? c.said : "0"]));
  $("record").replaceChildren(...headView(visit.record, "h2"), ...recordView(visit.record, visit.read, [], {}));
  $("record").scrollTop = 0;
  draw(0);
}

function drawEmpty(total) {
  const running = state?.job?.running;
  const text = total ? "Every visit that was chosen is labelled or skipped." : "No visits have been chosen to label yet. Those are chosen whose labels say most about the anchors.";
  $("empty").replaceChildren(h("p", {}, text), h("div", { class: "buttons" },
    h("button", { type: "button", class: "primary", id: "more", disabled: running, onclick: more }, total ? "Choose 100 more" : "Choose 200 visits")));
}

async function more() {
  try {
    await post("/api/workbench/labels/more", { count: 100 });
    await show();
  } catch (problem) {
    say(problem.message, true);
  }
}

function draw(focus = null) {
  $("checks").replaceChildren(...conditions.map((c) => {
    const mark = marks.get(c.condition);
    return h("li", {}, h("button", { type: "button", class: `check mark-${mark === "1" ? "yes" : mark === "0" ? "no" : "open"}`, data: { condition: c.condition }, "aria-pressed": mark === "1" ? "true" : mark === "" ? "mixed" : "false",
      onclick: () => set(c.condition, mark === "1" ? "0" : "1") },
    h("span", { class: "check-title" }, c.title),
    h("span", { class: "check-sign" }, mark === "0" ? "–" : SIGNS[mark])));
  }));
  if (focus !== null) $("checks").querySelectorAll("button")[focus]?.focus({ preventScroll: focus === 0 });
}

function set(condition, mark) {
  marks.set(condition, mark);
  draw(conditions.findIndex((c) => c.condition === condition));
}

async function save() {
  if (key === null) return;
  const of = (mark) => [...marks].filter(([, m]) => m === mark).map(([condition]) => condition);
  const yes = of("1");
  queue = await post(`/api/workbench/labels/${key}`, { yes, unknown: of("") });
  const titles = conditions.filter((c) => yes.includes(c.condition)).map((c) => c.title);
  say(`Saved: ${titles.length ? titles.join(", ") : "none of these"}.`);
  await next();
}

async function skip() {
  if (key !== null) skipped.add(key);
  say("Skipped.");
  await next();
}

async function undo() {
  const { key: back } = await post("/api/workbench/labels/undo", {});
  if (back === null) return say("There is nothing left to undo.");
  queue = await get("/api/workbench/labels");
  skipped.delete(back);
  say("Taken back: label this visit again.");
  await next(back);
}

let busy = Promise.resolve();
const inTurn = (work) => { busy = busy.then(work).catch((problem) => say(problem.message, true)); };
$("save").addEventListener("click", () => inTurn(save));
$("skip").addEventListener("click", () => inTurn(skip));
$("undo").addEventListener("click", () => inTurn(undo));

document.addEventListener("keydown", (event) => {
  if (typing(event)) return;
  const buttons = [...$("checks").querySelectorAll("button")];
  const at = buttons.indexOf(document.activeElement);
  const here = buttons[at]?.dataset.condition;
  const put = (mark) => here && set(here, mark);
  const keys = {
    ArrowDown: () => buttons[Math.min(at + 1, buttons.length - 1)]?.focus(),
    ArrowUp: () => buttons[Math.max(at - 1, 0)]?.focus(),
    y: () => put("1"),
    n: () => put("0"),
    "?": () => put(""),
    s: () => inTurn(skip),
    u: () => inTurn(undo),
  };
  if (at >= 0 || document.activeElement === document.body) keys.Enter = () => inTurn(save);
  press(event, keys);
});

await show();
document.documentElement.classList.add("loaded");
