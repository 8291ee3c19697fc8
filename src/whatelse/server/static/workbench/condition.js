// One condition: its anchors, what else might be one, and ten visits of a phrase to judge by.

import { begin, here, post } from "../api.js";
import { $, h, typing } from "../dom.js";
import { watch } from "./status.js";

await begin();
const name = new URLSearchParams(location.search).get("name") ?? "";
const look = watch(() => show());
let view = null;
let subject = null; // {phrase, key, system}: the phrase that is looked at
let seen = null; // what was found about it
let at = 0; // the excerpt that is to be judged next
let asked = 0;
const past = []; // how to take back what was done, newest last

const about = (phrase) => ({ condition: name, phrase: phrase.phrase, key: phrase.key, system: phrase.system });
const same = (a, b) => a && b && a.phrase === b.phrase && a.key === b.key && a.system === b.system;
const under = (line) => (line.key === "notes" ? null : h("span", { class: "quiet small" }, ` ${line.system ?? line.key.replaceAll("_", " ")}`));

function say(text, problem = false) {
  $("said").replaceChildren(h("p", { class: problem ? "problem" : "" }, text));
}

async function show() {
  await look();
  try {
    draw(await post("/api/workbench/condition", { condition: name }));
  } catch (problem) {
    say(problem.message, true);
  }
}

function draw(answer) {
  view = answer;
  $("title").textContent = view.title;
  document.title = `${view.title} · whatelse`;
  $("summary").textContent = `${view.anchors.length} ${view.anchors.length === 1 ? "anchor" : "anchors"}`;
  $("suggestions").replaceChildren(...view.suggestions.map(suggestion));
  $("none").hidden = view.suggestions.length > 0;
  $("none").textContent = view.hunted ? "Nothing more to suggest. Try a phrase of your own." : "The records are being looked through; suggestions come here.";
  $("anchors").replaceChildren(...view.anchors.map(anchor));
  $("refused-title").textContent = `Refused (${view.refused.length})`;
  $("refused-box").hidden = view.refused.length === 0;
  $("refused").replaceChildren(...view.refused.map((phrase) => h("li", {}, h("span", { class: "phrase" }, phrase),
    h("button", { type: "button", class: "plain", onclick: () => edit("allow", { phrase, key: "notes", system: null }) }, "Allow again"))));
  drawKnowledge(view.knowledge);
  mark();
}

function drawKnowledge(found) {
  $("knowledge").hidden = !found;
  if (!found) return;
  const percent = (p) => `${(100 * p).toFixed(p < 0.01 ? 2 : 1)}%`;
  $("shares").textContent = found.share === null
    ? `The knowledge base does not know this condition. The anchor fires in ${percent(found.fires)} of the visits.`
    : `By the knowledge base (${found.entries.join(", ").replaceAll("_", " ")}) ${percent(found.share)} of emergency visits have it; here the anchor fires in ${percent(found.fires)}.`;
  const times = (x) => (x === null ? "–" : x >= 9.95 ? x.toFixed(0) : x.toFixed(1));
  $("lifts").replaceChildren(...found.lifts.map((lift) => h("tr", {}, h("th", { scope: "row" }, lift.text),
    h("td", { data: { label: "Knowledge base" } }, times(lift.knowledge)), h("td", { data: { label: "These records" } }, times(lift.records)))));
}

function suggestion(found) {
  const overlap = found.overlaps.map((o) => `${o.condition} (${o.both})`).join(", ");
  return h("li", {}, h("button", { type: "button", class: "suggestion", data: { phrase: found.phrase, key: found.key, system: found.system ?? "" }, onclick: () => choose(found) },
    h("span", { class: "phrase-line" }, h("span", { class: "phrase" }, found.label || found.phrase), under(found),
      h("span", { class: "number" }, `${Math.round(100 * found.precision)}%`)),
    h("span", { class: "quiet small" }, `adds ${found.gained.toLocaleString()} of ${found.fires.toLocaleString()} visits with ${found.key === "notes" ? "these words" : "it"}${found.judged ? ` · ${found.yes} of ${found.judged} judged have it` : ""}`),
    h("span", { class: "small" }, found.why.filter((r) => r.log_odds > 0).slice(0, 2).map((r) => r.says).join("; ")),
    overlap && h("span", { class: "quiet small" }, `also beside ${overlap}`)));
}

function anchor(line) {
  return h("li", { data: { phrase: line.phrase, key: line.key, system: line.system ?? "" } },
    h("button", { type: "button", class: "link phrase", onclick: () => choose(line) }, line.phrase), under(line),
    h("span", { class: "quiet small" }, ` ${line.fires.toLocaleString()} visits`),
    line.shared && h("span", { class: "conflict small" }, `⚠ also of ${line.shared}`),
    h("span", { class: "buttons" },
      line.key !== "coded" && h("button", { type: "button", class: "plain", "aria-label": `Edit ${line.phrase}`, onclick: () => change(line) }, "Edit"),
      h("button", { type: "button", class: "plain", "aria-label": `Remove ${line.phrase}`, onclick: () => edit("remove", line) }, "Remove")));
}

function mark() {
  for (const button of $("suggestions").querySelectorAll("button.suggestion")) {
    const chosen = same(subject, { phrase: button.dataset.phrase, key: button.dataset.key, system: button.dataset.system || null });
    button.toggleAttribute("aria-current", Boolean(chosen));
    if (chosen) button.setAttribute("aria-current", "true");
  }
}

// ---- one phrase

async function choose(phrase, show = true) {
  subject = { phrase: phrase.phrase, key: phrase.key, system: phrase.system };
  const mine = ++asked;
  at = 0;
  mark();
  try {
    const found = await post("/api/workbench/look", about(subject));
    if (mine !== asked) return;
    seen = found;
    at = Math.max(0, found.excerpts.findIndex((excerpt) => excerpt.said === null));
    drawLook();
    $("look").scrollTop = 0;
    if (show && matchMedia("(max-width: 1000px)").matches) $("look").scrollIntoView({ block: "start" });
  } catch (problem) {
    if (mine === asked) say(problem.message, true);
  }
}

function drawLook() {
  const { worth, excerpts, owner } = seen;
  const lines = [
    h("p", { class: "phrase-line" }, h("span", { class: "phrase" }, subject.phrase), under(subject)),
    h("p", {}, `In ${worth.fires.toLocaleString()} visits${subject.key === "notes" ? ", other spellings included" : ""}; in ${worth.gained.toLocaleString()} of them the anchor is silent (it fires in ${worth.anchored.toLocaleString()}).`),
    worth.labelled > 0 && h("p", {}, `${worth.true.toLocaleString()} of ${worth.labelled.toLocaleString()} labelled visits with it have the condition.`),
    worth.overlaps.map((o) => h("p", { class: "quiet" }, `Also beside the anchor of ${o.condition}: ${o.both} visits, ${o.lift.toFixed(1)} times chance.`)),
    owner && owner !== name && h("p", { class: "conflict" }, `⚠ It is an anchor of ${owner} now.`),
    h("p", { id: "precision" }, worth.precision
      ? [h("strong", {}, `${worth.yes} of ${worth.judged} judged have it`), `: precision ${Math.round(100 * worth.precision[0])}% (95%: ${Math.round(100 * worth.precision[1])}–${Math.round(100 * worth.precision[2])}%).`]
      : "Does the patient have it? Judge the visits below."),
  ];
  $("worth").replaceChildren(...lines.flat().filter(Boolean));
  $("excerpts").replaceChildren(...excerpts.map((excerpt, k) => drawExcerpt(excerpt, k)));
  const taken = owner && owner !== name;
  $("decide").hidden = false;
  $("decide").replaceChildren(...(owner === name
    ? [h("p", { class: "quiet" }, "This is an anchor of the condition.")]
    : [h("button", { type: "button", class: "yes", id: "accept", onclick: accept }, taken ? `Take it from ${owner}` : "Accept ", !taken && h("kbd", {}, "a")),
      h("button", { type: "button", class: "no", id: "refuse", onclick: refuse }, "Refuse ", h("kbd", {}, "r"))]));
}

function drawExcerpt(excerpt, k) {
  const characters = Array.from(excerpt.text);
  const cut = (a, b) => characters.slice(a, b).join("");
  const said = { true: "has it", false: "has not" }[excerpt.said];
  return h("li", { class: `excerpt${excerpt.said === true ? " yes" : excerpt.said === false ? " no" : ""}`, "aria-current": k === at ? "true" : null, data: { field: excerpt.field } },
    h("p", {}, cut(0, excerpt.start), h("mark", {}, cut(excerpt.start, excerpt.end)), cut(excerpt.end)),
    h("span", { class: "buttons" },
      said && h("span", { class: "verdict-word" }, `${excerpt.said ? "✓" : "✕"} ${said}`),
      h("button", { type: "button", class: "yes", "aria-label": `Visit ${k + 1} has it`, onclick: () => judge(k, "yes") }, "Yes"),
      h("button", { type: "button", class: "no", "aria-label": `Visit ${k + 1} has it not`, onclick: () => judge(k, "no") }, "No")));
}

async function judge(k, answer, keep = true) {
  const excerpt = seen?.excerpts[k];
  if (!excerpt) return;
  const before = { true: "yes", false: "no" }[excerpt.said] ?? "open";
  try {
    seen = await post("/api/workbench/judge", { ...about(subject), visit: excerpt.visit, answer });
    if (keep) past.push(() => { at = k; return judge(k, before, false); });
    const next = seen.excerpts.findIndex((other, j) => j > k && other.said === null);
    at = !keep ? k : next >= 0 ? next : Math.min(k + 1, seen.excerpts.length - 1);
    drawLook();
    $("excerpts").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  } catch (problem) {
    say(problem.message, true);
  }
}

const accept = () => decide("accept", { take: Boolean(seen?.owner && seen.owner !== name) }, "remove");
const refuse = () => decide("refuse", {}, "allow");

async function decide(action, more, back) {
  if (!subject || !seen || seen.owner === name) return;
  const phrase = subject;
  const owner = seen.owner;
  const places = view.suggestions.map((s) => same(s, phrase));
  const index = Math.max(0, places.indexOf(true));
  if (!await edit(action, phrase, more, false)) return;
  past.push(async () => {
    await edit(back, phrase, {}, false);
    if (owner && action === "accept") await post("/api/workbench/edit", { ...about(phrase), condition: owner, action: "accept" });
    say(`Undone: ${phrase.phrase}.`);
    await choose(phrase);
  });
  const next = view.suggestions[Math.min(index, view.suggestions.length - 1)];
  if (next) await choose(next);
  else clear();
}

async function edit(action, phrase, more = {}, undoable = true) {
  const done = { accept: "accepted", refuse: "refused", remove: "removed", change: "changed", allow: "allowed again" }[action];
  try {
    draw(await post("/api/workbench/edit", { ...about(phrase), action, ...more }));
    say(`${phrase.phrase}: ${done}.${action === "accept" ? " Learn to see what it is worth." : ""}`);
    await look();
  } catch (problem) {
    say(problem.message, true);
    return false;
  }
  const opposite = { remove: "accept", allow: "refuse" }[action];
  if (undoable && opposite) past.push(() => edit(opposite, phrase, {}, false));
  return true;
}

function change(line) {
  const item = [...$("anchors").children].find((li) => li.dataset.phrase === line.phrase && li.dataset.key === line.key);
  const field = h("input", { value: line.phrase, maxlength: "200", "aria-label": `New text of ${line.phrase}` });
  const form = h("form", { class: "inline", onsubmit: async (event) => {
    event.preventDefault();
    const now = field.value.trim();
    if (now === line.phrase || !now) return draw(view);
    if (await edit("change", line, { new: now }, false)) past.push(() => edit("change", { ...line, phrase: now }, { new: line.phrase }, false));
  } }, field, h("button", { class: "primary" }, "Save"), h("button", { type: "button", class: "plain", onclick: () => draw(view) }, "Cancel"));
  field.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.stopPropagation(); draw(view); } });
  item.replaceChildren(form);
  field.focus();
  field.select();
}

function clear() {
  subject = seen = null;
  $("worth").replaceChildren(h("p", { class: "quiet" }, "Choose a phrase to see ten visits that have it."));
  $("excerpts").replaceChildren();
  $("decide").hidden = true;
}

async function undo() {
  const last = past.pop();
  if (last) await last();
  else say("There is nothing left to undo.");
}

$("own").addEventListener("submit", (event) => {
  event.preventDefault();
  const phrase = $("own-phrase").value.trim();
  if (phrase) choose({ phrase, key: "notes", system: null });
  $("own-phrase").blur();
});

// ---- keys

let busy = Promise.resolve(); // one thing after the other: each is decided on what the last one showed

document.addEventListener("keydown", (event) => {
  if (typing(event)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const move = (by) => {
    const index = view.suggestions.findIndex((s) => same(s, subject));
    const next = view.suggestions[Math.min(Math.max(index + by, 0), view.suggestions.length - 1)];
    if (next) return choose(next).then(() => $("suggestions").querySelector("[aria-current]")?.focus());
  };
  const keys = {
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    y: () => judge(at, "yes"),
    n: () => judge(at, "no"),
    s: () => { at = Math.min(at + 1, (seen?.excerpts.length ?? 1) - 1); if (seen) drawLook(); },
    a: accept,
    r: refuse,
    u: undo,
    e: () => { const line = view.anchors.find((l) => same(l, subject)) ?? view.anchors[0]; if (line && line.key !== "coded") change(line); },
    "/": () => $("own-phrase").focus(),
    Escape: () => location.assign(here("/workbench")),
  };
  keys.j = keys.ArrowDown;
  keys.k = keys.ArrowUp;
  if (!keys[event.key]) return;
  event.preventDefault();
  busy = busy.then(keys[event.key]).catch((problem) => say(problem.message, true));
});

await show();
if (view?.suggestions.length) await choose(view.suggestions[0], false);
document.documentElement.classList.add("loaded");
