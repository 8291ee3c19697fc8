// The worklist: searched, sorted and paged by the service; moved through by key; live while it is open.

import { begin, here, post } from "./api.js";
import { $, clock, h, patient, percent, press, typing } from "./dom.js";

const PAGE = 50;
const EVERY = 5000; // milliseconds between two looks at what others do
let offset = 0;
let total = 0;
let asked = 0;
let shown = "";
const { titles } = await begin();

for (const [name, title] of Object.entries(titles)) $("condition").append(h("option", { value: name }, title));

async function show(focus = false) {
  const mine = ++asked;
  const answer = await post("/api/visits/search", {
    words: $("words").value.slice(0, 200),
    condition: $("condition").value || null,
    order: $("order").value,
    must_not_miss: $("must_not_miss").checked,
    status: document.querySelector("input[name=status]:checked").value,
    offset,
    limit: PAGE,
  });
  if (mine !== asked) return; // a later question was asked meanwhile
  total = answer.total;
  const at = [...$("rows").querySelectorAll("a")].indexOf(document.activeElement);
  const now = JSON.stringify(answer.rows);
  if (now !== shown) $("rows").replaceChildren(...answer.rows.map(row));
  shown = now;
  const last = Math.min(offset + PAGE, total);
  $("where").textContent = total ? `${(offset + 1).toLocaleString()}–${last.toLocaleString()} of ${total.toLocaleString()}` : "";
  $("summary").textContent = summary(answer);
  $("earlier").disabled = offset === 0;
  $("later").disabled = last >= total;
  if (focus || at >= 0) $("rows").querySelectorAll("a")[Math.max(0, at)]?.focus({ preventScroll: !focus });
}

function summary({ visits, scored, decided, alerts }) {
  if (!visits) return "There are no visits here. Type one in.";
  const parts = [total ? `${total.toLocaleString()} of ${visits.toLocaleString()} visits` : "No visit matches", `${decided.toLocaleString()} decided`];
  if (alerts) parts.push(`${alerts.toLocaleString()} with something that must not be missed`);
  if (scored < visits) parts.push(`${scored.toLocaleString()} read so far`);
  return `${parts.join(" · ")}.`;
}

function row(visit) {
  return h("li", {},
    h("a", { class: "row", href: here(`/visit/${visit.key}`) },
      h("span", { class: "row-who" }, h("strong", {}, patient(visit)), h("span", { class: "quiet small" }, [visit.id, clock(visit.time)].filter(Boolean).join(" · "))),
      h("span", { class: "row-complaint" }, visit.chief_complaint || "no chief complaint"),
      h("span", { class: "row-tags" },
        visit.confirmed.map((name) => h("span", { class: "chip yes" }, `✓ ${titles[name] ?? name}`)),
        visit.must_not_miss.map(([name, p]) => h("span", { class: "chip miss" }, `⚠ ${titles[name]} `, h("b", {}, percent(p)))),
        visit.likely.map(([name, p]) => h("span", { class: "chip" }, titles[name], " ", h("b", {}, percent(p)))),
        !visit.likely.length && !visit.confirmed.length && !visit.must_not_miss.length && h("span", { class: "quiet small" }, visit.read ? "nothing stands out" : "being read …"))));
}

// Others decide and visits are read meanwhile. Rows do not move while somebody is on one.
setInterval(() => { if (!document.hidden && !$("rows").matches(":hover, :focus-within")) show().catch(() => {}); }, EVERY);

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
  press(event, keys);
});

await show();
document.documentElement.classList.add("loaded");
