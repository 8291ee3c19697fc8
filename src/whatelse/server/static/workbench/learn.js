// Learning in the background; then the old and the new model side by side, to promote or to drop.

import { begin, get, post } from "../api.js";
import { $, h } from "../dom.js";
import { watch } from "./status.js";

await begin();
const look = watch(() => show());
const WORDS = { better: "▲ better", worse: "▼ worse", same: "no difference shown" };
const VERDICTS = { better: "The new model is better", worse: "The new model is worse", "not worse": "The new model is not worse", "not known": "Not known yet" };

async function show() {
  const state = await look();
  $("start").disabled = Boolean(state.job?.running);
  const { outcome, previous } = await get("/api/workbench/candidate");
  $("rollback").hidden = !previous;
  $("candidate").hidden = outcome === null;
  $("summary").textContent = outcome ? "" : "There is no new model to look at.";
  if (outcome) draw(outcome);
}

function draw(outcome) {
  const [source, count] = outcome.learned;
  $("verdict").className = `card verdict ${outcome.verdict.replace(" ", "-")}`;
  $("verdict").replaceChildren(
    h("h2", {}, VERDICTS[outcome.verdict]),
    h("p", {}, `${outcome.because[0].toUpperCase()}${outcome.because.slice(1)}.`),
    h("p", { class: "quiet small" }, `Learned from ${(outcome.visits - outcome.held_out).toLocaleString()} of ${outcome.visits.toLocaleString()} visits with ${source}${count ? ` (${count.toLocaleString()} visits)` : ""}; judged on the other ${outcome.held_out.toLocaleString()}. ${outcome.relearned ? "The old model may have seen those, so what it knows was learned again without them. " : ""}Model ${outcome.old.slice(0, 12)} and ${outcome.new.slice(0, 12)}.`));
  $("changes").replaceChildren(...(outcome.changed.length ? outcome.changed.map((c) => h("li", {},
    h("strong", {}, c.condition), ": ",
    c.came.map((p) => h("span", { class: "came" }, `+ ${p}`)), c.went.map((p) => h("span", { class: "went" }, `− ${p}`)),
    h("span", { class: "quiet small" }, ` fires in ${c.fires_before.toLocaleString()} → ${c.fires_after.toLocaleString()} visits`))) : [h("li", {}, "Nothing.")]));
  const group = (title, rows) => (rows.length ? [h("tr", {}, h("th", { colspan: "6", scope: "colgroup", class: "group-head" }, title)), ...rows.map(measure)] : []);
  const labels = outcome.labels;
  $("measures").replaceChildren(
    ...group("By hidden anchors, without labels", outcome.anchors),
    ...group(labels ? `By the labels of ${labels.visits.toLocaleString()} visits` : "", labels?.rows ?? []));
  const touched = new Set(outcome.changed.map((c) => c.condition));
  const own = (labels?.by_condition ?? []).map((row) => ({ ...row, touched: touched.has(row.measure) }));
  $("by-condition").hidden = own.length === 0;
  $("condition-measures").replaceChildren(...own.sort((a, b) => b.touched - a.touched).map(measure));
}

function measure(row) {
  const sign = (x) => (Math.abs(x) < 0.00005 ? "0.0000" : `${x > 0 ? "+" : "−"}${Math.abs(x).toFixed(4)}`);
  return h("tr", { class: row.says },
    h("th", { scope: "row" }, row.measure, row.touched && h("span", { class: "quiet small" }, " (its anchors changed)")),
    h("td", { data: { label: "Old" } }, row.old.toFixed(4)), h("td", { data: { label: "New" } }, row.new.toFixed(4)),
    h("td", { data: { label: "Difference" } }, sign(row.difference)), h("td", { data: { label: "Interval" } }, `${sign(row.low)} to ${sign(row.high)}`),
    h("td", { data: { label: "Says" } }, WORDS[row.says]));
}

async function act(path, said) {
  $("problem").textContent = "";
  for (const id of ["promote", "drop", "start"]) $(id).disabled = true;
  try {
    await post(`/api/workbench/${path}`, {});
    await show();
    if (said) $("summary").textContent = said;
  } catch (problem) {
    $("problem").textContent = problem.message;
  }
  $("promote").disabled = $("drop").disabled = false;
}

$("start").addEventListener("click", () => act("learn", ""));
$("rollback").addEventListener("click", () => confirm("Serve the model that was in place before the last promotion? The present one is kept.") && act("rollback", "The model before serves again; the other one is kept beside it."));
$("promote").addEventListener("click", () => confirm("Serve the new model to everybody from now on? The old one is kept, and you can go back.") && act("promote", "The new model serves now; the old one is kept beside it."));
$("drop").addEventListener("click", () => act("drop", "Dropped. The conditions file is as it was: take phrases back there if you do not want them."));

await show();
document.documentElement.classList.add("loaded");
