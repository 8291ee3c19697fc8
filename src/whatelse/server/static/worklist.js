// The worklist: searched, sorted and paged by the service; moved through by key.

import { begin, get, here, post } from "./api.js";
import { $, h, patient, percent, typing } from "./dom.js";

const PAGE = 50;
const WORTH_SHOWING = 0.05;
let offset = 0;
let total = 0;
let asked = 0;
const { titles } = await begin();

for (const [name, title] of Object.entries(titles)) $("condition").append(h("option", { value: name }, title));

async function show(focus = false) {
  const mine = ++asked;
  const answer = await post("/api/visits/search", {
    words: $("words").value.slice(0, 200),
    condition: $("condition").value || null,
    status: document.querySelector("input[name=status]:checked").value,
    offset,
    limit: PAGE,
  });
  if (mine !== asked) return; // a later question was asked meanwhile
  total = answer.total;
  $("rows").replaceChildren(...answer.rows.map(row));
  const last = Math.min(offset + PAGE, total);
  $("where").textContent = total ? `${(offset + 1).toLocaleString()}–${last.toLocaleString()} of ${total.toLocaleString()}` : "";
  const waiting = answer.scored < answer.visits ? ` · suggestions ready for ${answer.scored.toLocaleString()}` : "";
  const none = answer.visits ? "No visit matches." : "There are no visits here. Type one in.";
  $("summary").textContent = total ? `${total.toLocaleString()} visits${waiting}` : none;
  $("earlier").disabled = offset === 0;
  $("later").disabled = last >= total;
  if (focus) $("rows").querySelector("a")?.focus();
  if (waiting) setTimeout(refreshSummary, 2000);
}

async function refreshSummary() {
  if (document.hidden) return void setTimeout(refreshSummary, 5000);
  const answer = await get("/api/visits?limit=1");
  const waiting = answer.scored < answer.visits ? ` · suggestions ready for ${answer.scored.toLocaleString()}` : "";
  if (total) $("summary").textContent = `${total.toLocaleString()} visits${waiting}`;
  if (waiting) setTimeout(refreshSummary, 2000);
  else if ($("condition").value) show();
}

function row(visit) {
  const likely = visit.top.filter(([, p]) => p >= WORTH_SHOWING);
  const time = visit.time ? new Date(visit.time).toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" }) : "";
  return h("li", {},
    h("a", { class: "row", href: here(`/visit/${visit.key}`) },
      h("span", { class: "row-who" }, h("strong", {}, patient(visit)), h("span", { class: "quiet small" }, `${visit.id}${time ? ` · ${time}` : ""}`)),
      h("span", { class: "row-complaint" }, visit.chief_complaint || "no chief complaint"),
      h("span", { class: "row-tags" },
        visit.confirmed.map((name) => h("span", { class: "chip yes" }, `✓ ${titles[name] ?? name}`)),
        likely.map(([name, p]) => h("span", { class: "chip" }, titles[name], " ", h("b", {}, percent(p)))),
        !likely.length && !visit.confirmed.length && h("span", { class: "quiet small" }, "nothing stands out"))));
}

let pause;
$("words").addEventListener("input", () => {
  clearTimeout(pause);
  pause = setTimeout(() => { offset = 0; show(); }, 200);
});
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("filters").addEventListener("change", (event) => { if (event.target.id !== "words") { offset = 0; show(); } });
const turn = (by) => {
  const next = offset + by * PAGE;
  if (next < 0 || next >= total) return;
  offset = next;
  show(true).then(() => window.scrollTo(0, 0));
};
$("earlier").addEventListener("click", () => turn(-1));
$("later").addEventListener("click", () => turn(1));

document.addEventListener("keydown", (event) => {
  if (event.target.id === "words" && (event.key === "Escape" || event.key === "ArrowDown")) {
    event.preventDefault();
    $("rows").querySelector("a")?.focus();
  }
  if (typing(event)) return;
  const links = [...$("rows").querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  const keys = {
    "/": () => $("words").focus(),
    n: () => location.assign(here("/new")),
    "[": () => turn(-1),
    "]": () => turn(1),
    ArrowDown: () => links[Math.min(at + 1, links.length - 1)]?.focus(),
    ArrowUp: () => links[Math.max(at - 1, 0)]?.focus(),
  };
  keys.j = keys.ArrowDown;
  keys.k = keys.ArrowUp;
  if (keys[event.key]) {
    event.preventDefault();
    keys[event.key]();
  }
});

await show();
document.documentElement.classList.add("loaded");
