// What every page of the workbench shows: where one is, and what is under way.

import { get, here, post } from "../api.js";
import { $, h } from "../dom.js";

const EVERY = 1000; // milliseconds between two looks while something is under way

// ended(kind): called when work that was started or seen running has ended without a problem
export function watch(ended = () => {}) {
  for (const link of document.querySelectorAll(".bench-nav a")) {
    if (link.getAttribute("href") === location.pathname) link.setAttribute("aria-current", "page");
    link.setAttribute("href", here(link.getAttribute("href")));
  }
  let last = null;
  let timer = null;
  async function look(begun = false) { // begun: something was started, which may have ended by now
    clearTimeout(timer);
    const state = await get("/api/workbench/state");
    draw(state, look);
    const running = state.job?.running ?? false;
    if ((begun || last?.running) && !running && !state.job.problem) ended(state.job.kind, state);
    last = state.job;
    if (running) timer = setTimeout(() => look(), EVERY);
    return state;
  }
  return look;
}

function draw(state, look) {
  const job = state.job;
  const parts = [];
  if (job?.running) {
    parts.push(
      h("span", {}, `${job.what[0].toUpperCase()}${job.what.slice(1)} … ${Math.round(job.seconds)} s${left(job)}`),
      h("progress", { max: job.total, value: job.done, "aria-label": job.what }),
    );
  } else if (job?.problem) parts.push(h("span", { class: "problem" }, `Not done: ${job.problem}`));
  if (state.edited && !job?.running) {
    parts.push(
      h("span", {}, "The conditions have changed since the records were looked through."),
      h("button", { type: "button", id: "again", onclick: async () => { await post("/api/workbench/hunt", {}); look(true); } }, "Look again"),
    );
  }
  if (state.candidate && location.pathname !== "/workbench/learn") {
    parts.push(h("a", { href: here("/workbench/learn") }, "A new model waits to be promoted or dropped."));
  }
  $("bench-status").replaceChildren(...parts);
}

// By the share that is done; nothing while too little is.
const left = ({ done, total, seconds }) => (done > 0 && done < total && seconds > 3 ? `, about ${Math.ceil((seconds * (total - done)) / done)} s left` : "");

export function bar(estimate) {
  if (!estimate) return [h("span", { class: "quiet small" }, "not labelled")];
  const [value, low, high] = estimate;
  const percent = (p) => `${Math.round(100 * p)}%`;
  const line = h("span", { class: "range", "aria-hidden": "true" }, h("span", { class: "range-box" }), h("span", { class: "range-at" }));
  line.children[0].style.left = percent(low);
  line.children[0].style.width = percent(high - low);
  line.children[1].style.left = percent(value);
  return [h("span", { class: "number" }, percent(value)), h("span", { class: "quiet small" }, ` ${percent(low)}–${percent(high)}`), line];
}
