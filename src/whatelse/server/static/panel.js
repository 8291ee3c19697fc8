// "What else?": confirmed, suggested and rejected tags, why, and what to ask. Shared by stored and typed visits.

import { $, h, percent, points, typing } from "./dom.js";
import { whyView } from "./why.js";

const FIRST = 7; // suggestions shown before "show all"
const MOVED = 0.005; // a change of probability that is worth saying
// A tag stands out that is likely enough to look into, or, though unlikely, several times as likely as usual.
const standsOut = ({ probability, baseline }) => probability >= 0.05 || (probability >= 0.02 && probability >= 3 * baseline);

export class Panel {
  // actions: decide(subject, verdict), undo(), why(condition) -> promise, leave(), places(mark)
  constructor({ titles, mayDecide, actions }) {
    Object.assign(this, { titles, mayDecide, actions });
    this.view = null;
    this.before = new Map(); // condition -> {probability, rank} before the last change
    this.explains = {};
    this.selected = 0;
    this.all = false;
    this.open = null; // the condition whose why is shown
    $("more").addEventListener("click", () => { this.all = !this.all; this.draw(); });
    $("hints").append(...(mayDecide
      ? hints([["↓", ""], ["↑", "move"], ["c", "confirm"], ["x", "reject"], ["w", "why"], ["u", "undo"], ["y", ""], ["n", "answer the first question"], ["Esc", "back"]])
      : hints([["↓", ""], ["↑", "move"], ["w", "why"], ["Esc", "back"]])));
    document.addEventListener("keydown", (event) => this.key(event));
  }

  // Show a new view; with `change`, say what moved since the last one.
  show(view, change = null) {
    const last = this.view;
    const focused = document.activeElement?.closest?.("#suggested > li")?.dataset.condition;
    this.before = new Map(change && last ? last.tags.map((tag) => [tag.condition, tag]) : []);
    this.view = view;
    if (!change) this.selected = Math.min(this.selected, view.tags.length - 1);
    const places = positions();
    this.draw();
    if (change) {
      glide(places);
      $("said").replaceChildren(h("p", {}, h("strong", {}, change), " ", this.summary()));
      if (focused !== undefined) this.select(Math.min(this.selected, view.tags.length - 1));
    }
  }

  say(text) {
    $("said").replaceChildren(h("p", { class: "problem" }, text));
  }

  setReading(explains) {
    this.explains = explains;
    for (const item of document.querySelectorAll("#suggested > li")) this.drawReason(item, this.tag(item.dataset.condition));
  }

  tag(condition) {
    return this.view.tags.find((tag) => tag.condition === condition);
  }

  summary() {
    const moved = this.view.tags
      .map((tag) => ({ tag, change: tag.probability - (this.before.get(tag.condition)?.probability ?? tag.probability) }))
      .filter(({ change }) => Math.abs(change) >= MOVED)
      .sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
    if (!moved.length) return "Nothing else moved.";
    const said = moved.slice(0, 2).map(({ tag, change }) => `${tag.title} ${change > 0 ? "up" : "down"} ${points(change)} points to ${percent(tag.probability)}`);
    return `${said.join("; ")}${moved.length > 2 ? `; ${moved.length - 2} more moved` : ""}.`;
  }

  draw() {
    const { state, tags } = this.view;
    const quiet = !tags.some(standsOut);
    const given = state.confirmed.map((name) => this.titles[name] ?? name);
    $("given").textContent = given.length ? `Given ${given.join(" and ")}: what would explain the rest?` : "What might this patient have?";
    $("suggested").replaceChildren(...this.listed().map((tag, i) => this.tagView(tag, i)));
    $("nothing").hidden = !quiet;
    if (quiet) $("nothing").textContent = nothing(tags, given.length > 0);
    $("more").hidden = tags.length <= (quiet ? 0 : FIRST);
    $("more").textContent = !this.all ? `Show all ${tags.length} that it was taught` : quiet ? "Show none" : "Show the likeliest only";
    for (const [group, names, sign] of [["confirmed", state.confirmed, "✓"], ["rejected", state.rejected, "✕"]]) {
      $(`${group}-group`).hidden = !names.length;
      $(group).replaceChildren(...names.map((name) => this.decidedView(name, group, sign)));
    }
    this.drawAnswers();
    if (this.open) this.toggleWhy(this.open, true);
  }

  // The tags on the screen: none while nothing stands out, unless asked for.
  listed() {
    const { tags } = this.view;
    if (this.all) return tags;
    return tags.some(standsOut) ? tags.slice(0, FIRST) : [];
  }

  tagView(tag, i) {
    const was = this.before.get(tag.condition);
    const change = was ? tag.probability - was.probability : 0;
    const item = h("li", { class: `tag ${tag.evidence}`, tabindex: i === this.selected ? "0" : "-1", data: { condition: tag.condition },
      "aria-label": `${tag.rank}. ${tag.title}, ${percent(tag.probability)}`, onfocus: () => this.mark(i) },
      h("div", { class: "tag-line" },
        h("span", { class: "tag-title" }, tag.title),
        Math.abs(change) >= MOVED && h("span", { class: `delta ${change > 0 ? "up" : "down"}` },
          `${change > 0 ? "▲ +" : "▼ −"}${points(change)}`, was.rank !== tag.rank && h("span", { class: "quiet" }, ` was ${ordinal(was.rank)}`)),
        h("span", { class: "tag-p" }, percent(tag.probability))),
      bar(tag),
      h("div", { class: "tag-foot" }, h("p", { class: "tag-reason small" }), h("div", { class: "buttons" },
        this.mayDecide && [
          h("button", { type: "button", class: "yes", onclick: () => this.decide(tag.condition, "confirmed") }, "✓ Confirm"),
          h("button", { type: "button", class: "no", onclick: () => this.decide(tag.condition, "rejected") }, "✕ Reject")],
        h("button", { type: "button", class: "plain", "aria-expanded": "false", onclick: () => this.toggleWhy(tag.condition) }, "Why?"))),
      h("div", { class: "why", hidden: true }));
    this.drawReason(item, tag);
    return item;
  }

  drawReason(item, tag) {
    const reason = item.querySelector(".tag-reason");
    const found = this.explains[tag.condition] ?? [];
    const about = `usual here: ${percent(tag.baseline)}`;
    if (tag.evidence === "for") reason.textContent = found.length ? `Would explain ${found.join(", ")}` : about;
    else if (tag.evidence === "against") reason.textContent = `Against it: denied ${tag.denied.join(", ")}`;
    else reason.textContent = "Evidence is missing, for it or against it";
  }

  decidedView(name, group, sign) {
    return h("li", { class: `decided ${group}`, data: { condition: name } },
      h("div", { class: "tag-line" },
        h("span", { class: "tag-title" }, h("span", { class: "sign", "aria-hidden": "true" }, sign), this.titles[name] ?? name),
        h("span", { class: "buttons" },
          h("button", { type: "button", class: "plain", "aria-expanded": "false", onclick: () => this.toggleWhy(name) }, "Why?"),
          this.mayDecide && h("button", { type: "button", class: "plain", onclick: () => this.actions.decide(name, "open") }, "Reopen"))),
      h("div", { class: "why", hidden: true }));
  }

  decide(condition, verdict) {
    this.selected = Math.max(0, this.view.tags.findIndex((tag) => tag.condition === condition));
    this.open = null;
    return this.actions.decide(condition, verdict);
  }

  async toggleWhy(condition, redraw = false) {
    const item = document.querySelector(`li[data-condition="${CSS.escape(condition)}"]`);
    document.querySelectorAll(".why").forEach((other) => { if (!item?.contains(other)) other.hidden = true; });
    if (!item) return void (this.open = null);
    const box = item.querySelector(".why");
    const button = item.querySelector("button[aria-expanded]");
    if (!redraw && this.open === condition) {
      this.open = null;
      box.hidden = true;
      return button.setAttribute("aria-expanded", "false");
    }
    this.open = condition;
    button.setAttribute("aria-expanded", "true");
    const answer = await this.actions.why(condition);
    if (this.open !== condition) return;
    box.replaceChildren(whyView(answer, this.titles, this.actions.places));
    box.hidden = false;
  }

  // ---- questions

  setQuestions(questions) {
    $("questions").replaceChildren(...questions.map((question) => h("li", { class: "question" },
      h("div", {}, h("strong", {}, `${question.text[0].toUpperCase()}${question.text.slice(1)}?`),
        h("p", { class: "quiet small" }, `${this.titles[question.about]}: yes → ${percent(question.if_yes)}, no → ${percent(question.if_no)}`)),
      this.mayDecide && h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => this.actions.decide(question.finding, "present") }, "Yes"),
        h("button", { type: "button", onclick: () => this.actions.decide(question.finding, "absent") }, "No")))));
    $("ask-lead").textContent = questions.length ? "The answers that would settle most." : "No single answer would settle much.";
  }

  drawAnswers() {
    const { present, absent } = this.view.state;
    const answered = [...present.map((f) => [f, "yes"]), ...absent.map((f) => [f, "no"])];
    $("answers").replaceChildren(...answered.map(([finding, answer]) => h("li", {}, `${finding.text}: `, h("strong", {}, answer), " ",
      this.mayDecide && h("button", { type: "button", class: "plain", onclick: () => this.actions.decide(finding.finding, "unasked") }, "take back"))));
  }

  // ---- keys

  mark(i) {
    this.selected = i;
    document.querySelectorAll("#suggested > li").forEach((item, k) => item.setAttribute("tabindex", k === i ? "0" : "-1"));
  }

  select(i) {
    const items = document.querySelectorAll("#suggested > li");
    const at = Math.max(0, Math.min(i, items.length - 1));
    if (!items.length) return void $("more").focus();
    this.mark(at);
    items[at].focus();
  }

  key(event) {
    if (event.key === "Escape" && !event.defaultPrevented && !this.actions.typing?.(event)) return this.actions.leave();
    if (typing(event) || !this.view) return;
    const tag = this.listed()[this.selected]; // a key decides on nothing that is not on the screen
    const inList = document.activeElement?.closest("#suggested");
    const keys = {
      ArrowDown: () => this.select(inList ? this.selected + 1 : this.selected),
      ArrowUp: () => this.select(inList ? this.selected - 1 : this.selected),
      w: () => tag && this.toggleWhy(tag.condition),
    };
    keys.j = keys.ArrowDown;
    keys.k = keys.ArrowUp;
    if (this.mayDecide) {
      const first = document.querySelectorAll("#questions li:first-child button");
      Object.assign(keys, {
        c: () => tag && this.decide(tag.condition, "confirmed"),
        x: () => tag && this.decide(tag.condition, "rejected"),
        u: () => this.actions.undo(),
        y: () => first[0]?.click(),
        n: () => first[1]?.click(),
      });
    }
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  }
}

// The probability as a bar, with a tick where the department usually is.
function bar(tag) {
  const fill = h("span", { class: "fill" });
  fill.style.width = `${100 * tag.probability}%`;
  const tick = h("span", { class: "tick", title: `usual here: ${percent(tag.baseline)}` });
  tick.style.left = `${100 * tag.baseline}%`;
  return h("div", { class: "bar", "aria-hidden": "true" }, fill, tick);
}

function nothing(tags, confirmed) {
  if (!tags.length) return "Every tag that it was taught is decided.";
  return `Nothing ${confirmed ? "else " : ""}stands out. Likeliest: ${tags[0].title}, ${percent(tags[0].probability)}.`;
}

const positions = () => new Map([...document.querySelectorAll("#suggested > li")].map((item) => [item.dataset.condition, item.getBoundingClientRect().top]));

// Let tags move from where they were to where they are now.
function glide(places) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const item of document.querySelectorAll("#suggested > li")) {
    const was = places.get(item.dataset.condition);
    const by = was === undefined ? 0 : was - item.getBoundingClientRect().top;
    if (by) item.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], { duration: 180, easing: "ease-out" });
  }
}

const hints = (pairs) => pairs.flatMap(([key, text]) => [h("kbd", {}, key), text ? ` ${text} ` : ""]);
const ordinal = (n) => `${n}${["th", "st", "nd", "rd"][n % 100 > 10 && n % 100 < 14 ? 0 : n % 10] ?? "th"}`;
