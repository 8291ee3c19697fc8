// The conditions: how often anchors fire, how right they are, and where another one would help most.

import { begin, embedded, get, here, post } from "../api.js";
import { $, h, press, typing } from "../dom.js";
import { bar, watch } from "./status.js";

await begin();
const look = watch(() => show());

async function show() {
  const state = await look();
  const answer = await get("/api/workbench/conditions");
  $("summary").textContent = `${answer.rows.length} conditions, ${state.visits.toLocaleString()} visits. Precision and sensitivity by ${answer.labels}.`;
  $("rows").replaceChildren(...answer.rows.map(row));
}

function row(condition) {
  const where = `${here("/workbench/condition")}${embedded ? "&" : "?"}name=${encodeURIComponent(condition.name)}`;
  const built = condition.fires !== null;
  return h("tr", {},
    h("th", { scope: "row" }, h("a", { href: where }, condition.title),
      condition.conflicts.length > 0 && h("span", { class: "conflict small" }, `⚠ shared: ${condition.conflicts.join(", ")}`)),
    h("td", { data: { label: "Anchors" } }, condition.anchors),
    h("td", { data: { label: "Coverage" } }, built
      ? [h("span", { class: "number" }, condition.fires.toLocaleString()), h("span", { class: "quiet small" }, ` ${share(condition.share)}`)]
      : h("span", { class: "quiet small" }, "not looked for yet")),
    h("td", { data: { label: "Precision" } }, bar(condition.precision)),
    h("td", { data: { label: "Sensitivity" } }, bar(condition.sensitivity)),
    h("td", { data: { label: "Could gain" } }, condition.gain === null
      ? h("span", { class: "quiet small" }, "…")
      : condition.gain >= 0.5 ? h("span", { class: "number" }, `+${Math.round(condition.gain).toLocaleString()}`) : h("span", { class: "quiet small" }, "nothing found")));
}

const share = (p) => `${(100 * p).toFixed(p < 0.1 ? 1 : 0)}%`;

$("new-condition").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("problem").textContent = "";
  try {
    await post("/api/workbench/conditions", { name: $("new-name").value.trim(), phrase: $("new-phrase").value.trim() });
    event.target.reset();
    await show();
  } catch (problem) {
    $("problem").textContent = problem.message;
  }
});

document.addEventListener("keydown", (event) => {
  if (typing(event)) return;
  const links = [...$("rows").querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  const keys = {
    ArrowDown: () => links[Math.min(at + 1, links.length - 1)]?.focus(),
    ArrowUp: () => links[Math.max(at - 1, 0)]?.focus(),
    l: () => location.assign(here("/workbench/labels")),
    n: () => $("new-name").focus(),
  };
  press(event, keys);
});

await show();
document.documentElement.classList.add("loaded");
