// What else: what is likely, what must not be missed, what to ask or do next. Shared by stored and typed visits.
// After a decision every card stays where it is, so that nothing moves under the pointer; a new page sorts anew.

import { $, capital, compared, h, lower, percent, typing } from "./dom.js";
import { whyView } from "./why.js";

const PARTS = ["must_not_miss", "likely", "known"];
const MOVED = 0.005; // a change of probability that is worth showing

export class Panel {
  // actions: decide(subject, verdict), undo(), why(condition) -> promise, leave(), places(mark)
  constructor({ titles, mayDecide, actions }) {
    Object.assign(this, { titles, mayDecide, actions });
    this.view = null;
    this.shown = {}; // part -> conditions, in the order of the screen
    this.before = new Map(); // condition -> tag before the last change
    this.explains = {};
    this.asked = []; // questions on the screen
    this.open = null; // the condition whose why is shown
    if (mayDecide) this.adding();
    $("hints").append(...(mayDecide
      ? hints([["↓", ""], ["↑", "move"], ["c", "confirm"], ["x", "reject"], ["w", "why"], ["u", "undo"], ["y", ""], ["n", "answer the first question"], ["Esc", "back"]])
      : hints([["↓", ""], ["↑", "move"], ["w", "why"], ["Esc", "back"]])));
    document.addEventListener("keydown", (event) => this.key(event));
  }

  // Show a view; with `change`, say it and leave every card in its place.
  show(view, change = null) {
    this.before = new Map(change && this.view ? this.view.tags.map((tag) => [tag.condition, tag]) : []);
    this.view = view;
    this.tags = new Map(view.tags.map((tag) => [tag.condition, tag]));
    const focused = document.activeElement?.closest?.("li[data-condition]")?.dataset.condition;
    for (const part of PARTS) {
      const now = view.tags.filter((tag) => tag.part === part).sort((a, b) => b.probability - a.probability).map((tag) => tag.condition);
      const decided = part === "known" ? [...view.state.confirmed, ...view.state.rejected] : [];
      const kept = change ? this.shown[part] ?? [] : [];
      const elsewhere = new Set(change ? PARTS.flatMap((other) => this.shown[other] ?? []) : []);
      this.shown[part] = [...kept, ...[...decided, ...now].filter((name) => !elsewhere.has(name) && !kept.includes(name))];
    }
    this.draw();
    if (change) this.tell(change);
    if (focused) this.item(focused)?.focus();
  }

  // A sentence, with a button to take the decision back; `more` follows when it is known.
  tell(text, more = "") {
    $("said").replaceChildren(h("p", {}, h("strong", {}, text), " ", h("span", { id: "moved" }, more),
      this.mayDecide && h("button", { type: "button", class: "plain", onclick: () => this.actions.undo() }, "Undo")));
  }

  say(text) {
    $("said").replaceChildren(h("p", { class: "problem" }, text));
  }

  setReading(explains) {
    this.explains = explains;
    for (const item of this.items()) this.drawReason(item, this.tags.get(item.dataset.condition));
  }

  items = () => [...document.querySelectorAll(".tags > li.tag")];
  item = (condition) => document.querySelector(`li[data-condition="${CSS.escape(condition)}"]`);
  title = (condition) => this.titles[condition] ?? condition;

  draw() {
    const { state } = this.view;
    for (const part of PARTS) {
      const verdict = (name) => (state.confirmed.includes(name) ? "confirmed" : state.rejected.includes(name) ? "rejected" : null);
      $(part).replaceChildren(...this.shown[part].map((name) => (verdict(name) ? this.decidedView(name, verdict(name))
        : part === "known" ? this.knownView(name) : this.tagView(name, part))));
      $(`${part}-part`).hidden = !this.shown[part].length && part !== "likely";
    }
    $("nothing").hidden = this.shown.likely.length > 0;
    $("nothing").textContent = this.view.open ? "Nothing else stands out in this record." : "Every condition is decided.";
    if (this.open) this.toggleWhy(this.open, true);
    this.drawQuestions();
  }

  tagView(name, part) {
    const tag = this.tags.get(name) ?? { condition: name, title: this.title(name), probability: 0, baseline: 0, danger: 0, settle: "" };
    const was = this.before.get(name);
    const moved = was && Math.abs(tag.probability - was.probability) >= MOVED;
    const item = h("li", { class: `tag ${part}`, tabindex: "-1", data: { condition: name }, "aria-label": `${tag.title}, ${percent(tag.probability)}` },
      h("div", { class: "tag-line" },
        h("span", { class: "tag-title" }, tag.title),
        moved && h("span", { class: `delta ${tag.probability > was.probability ? "up" : "down"}` }, `${tag.probability > was.probability ? "▲" : "▼"} was ${percent(was.probability)}`),
        h("span", { class: "tag-p" }, percent(tag.probability))),
      bar(tag),
      h("p", { class: "tag-reason small" }),
      part === "must_not_miss" && tag.settle && h("p", { class: "small" }, h("strong", {}, "Would settle it: "), `${lower(tag.settle)}.`),
      h("div", { class: "buttons" }, this.verdicts(name), this.whyButton(name)),
      h("div", { class: "why", hidden: true }));
    this.drawReason(item, tag);
    return item;
  }

  drawReason(item, tag) {
    const found = this.explains[item.dataset.condition] ?? [];
    const raised = found.length ? ` Raised by: ${found.join(", ")}.` : "";
    const danger = tag?.danger === 3 && item.classList.contains("likely") ? " Must not be missed." : "";
    item.querySelector(".tag-reason").textContent = tag ? `${capital(compared(tag.probability, tag.baseline))}.${danger}${raised}` : "No longer likely.";
  }

  // What the record says itself: no suggestion, but it can be confirmed or rejected.
  knownView(name) {
    return h("li", { class: "known", data: { condition: name } }, h("span", { class: "known-title" }, this.title(name)),
      h("span", { class: "buttons" }, this.verdicts(name, true), this.whyButton(name)), h("div", { class: "why", hidden: true }));
  }

  decidedView(name, verdict) {
    return h("li", { class: `tag decided ${verdict}`, tabindex: "-1", data: { condition: name } },
      h("div", { class: "tag-line" },
        h("span", { class: "tag-title" }, h("span", { class: "sign", "aria-hidden": "true" }, verdict === "confirmed" ? "✓" : "✕"), this.title(name), h("span", { class: "quiet small" }, ` ${verdict}`)),
        h("span", { class: "buttons" }, this.whyButton(name),
          this.mayDecide && h("button", { type: "button", class: "plain", "aria-label": `Reopen ${this.title(name)}`, onclick: () => this.actions.decide(name, "open") }, "Reopen"))),
      h("p", { class: "tag-reason", hidden: true }),
      h("div", { class: "why", hidden: true }));
  }

  verdicts(name, short = false) {
    const button = (verdict, kind, sign, word) => h("button", { type: "button", class: kind, "aria-label": `${word} ${this.title(name)}`, title: word,
      onclick: () => this.actions.decide(name, verdict) }, short ? sign : `${sign} ${word}`);
    return this.mayDecide && [button("confirmed", "yes", "✓", "Confirm"), button("rejected", "no", "✕", "Reject")];
  }

  whyButton(name) {
    return h("button", { type: "button", class: "plain", "aria-expanded": "false", "aria-label": `Why ${this.title(name)}?`, onclick: () => this.toggleWhy(name) }, "Why?");
  }

  async toggleWhy(condition, redraw = false) {
    for (const button of document.querySelectorAll("button[aria-expanded=true]")) button.setAttribute("aria-expanded", "false");
    document.querySelectorAll(".why").forEach((box) => { box.hidden = true; });
    const item = this.item(condition);
    const close = !item || (!redraw && this.open === condition);
    this.open = close ? null : condition;
    if (close) return;
    const answer = await this.actions.why(condition);
    if (this.open !== condition) return;
    const box = this.item(condition).querySelector(".why");
    this.item(condition).querySelector("button[aria-expanded]").setAttribute("aria-expanded", "true");
    box.replaceChildren(whyView(answer, this.titles, this.actions.places));
    box.hidden = false;
  }

  // Any condition can be confirmed, suggested or not.
  adding() {
    const names = Object.entries(this.titles);
    $("conditions").append(...names.map(([, title]) => h("option", { value: title })));
    $("add").hidden = false;
    $("add").addEventListener("submit", (event) => {
      event.preventDefault();
      const wanted = $("add-name").value.trim().toLowerCase();
      const found = names.find(([, title]) => title.toLowerCase() === wanted);
      if (!found) return void this.say("There is no such condition in this model. Choose one from the list.");
      $("add-name").value = "";
      this.actions.decide(found[0], "confirmed");
    });
  }

  // ---- questions

  setQuestions({ questions, tests }) {
    const answered = this.asked.filter((question) => this.answer(question.finding));
    const fresh = questions.filter((question) => !answered.some((other) => other.finding === question.finding));
    this.asked = this.asked.map((question) => (this.answer(question.finding) ? question : fresh.shift())).filter(Boolean).concat(fresh);
    this.tests = tests;
    this.drawQuestions();
  }

  answer(finding) {
    const { present, absent } = this.view.state;
    return present.some((f) => f.finding === finding) ? "present" : absent.some((f) => f.finding === finding) ? "absent" : null;
  }

  drawQuestions() {
    const { present, absent } = this.view.state;
    const more = [...present, ...absent].filter((f) => !this.asked.some((question) => question.finding === f.finding));
    $("questions").replaceChildren(
      ...[...more, ...this.asked].map((question) => this.questionView(question)),
      ...(this.tests ?? []).map((test) => h("li", { class: "question" }, h("div", {}, h("span", { class: "kind" }, "Do"), " ", h("strong", {}, test.text),
        h("p", { class: "quiet small" }, `Would settle ${lower(this.title(test.about))}, now ${percent(test.now)}.`)))));
    $("ask-part").hidden = !$("questions").children.length;
  }

  questionView(question) {
    const said = this.answer(question.finding);
    const button = (word, verdict) => h("button", { type: "button", "aria-label": `${word}: ${question.text}`, "aria-pressed": said ? String(said === verdict) : null,
      onclick: () => this.actions.decide(question.finding, said === verdict ? "unasked" : verdict) }, word);
    const does = question.about && `${this.title(question.about)} is at ${percent(question.now)}. Yes: ${percent(question.if_yes)}. No: ${percent(question.if_no)}.`;
    return h("li", { class: "question", data: { finding: question.finding } },
      h("div", {}, h("span", { class: "kind" }, question.kind === "examine" ? "Examine" : "Ask"), " ", h("strong", {}, `${capital(question.text)}?`),
        h("p", { class: "quiet small" }, said ? `Answered ${said === "present" ? "yes" : "no"}. Press again to take it back.` : does)),
      this.mayDecide && h("div", { class: "buttons" }, button("Yes", "present"), button("No", "absent")));
  }

  // ---- keys

  select(by) {
    const items = this.items();
    const at = items.indexOf(document.activeElement?.closest("li.tag"));
    items[at < 0 ? 0 : Math.max(0, Math.min(at + by, items.length - 1))]?.focus();
  }

  key(event) {
    if (event.key === "Escape" && !event.defaultPrevented && !this.actions.typing?.(event)) return this.actions.leave();
    if (typing(event) || !this.view) return;
    const chosen = document.activeElement?.closest("li[data-condition]")?.dataset.condition;
    const keys = { ArrowDown: () => this.select(1), ArrowUp: () => this.select(-1), w: () => chosen && this.toggleWhy(chosen) };
    keys.j = keys.ArrowDown;
    keys.k = keys.ArrowUp;
    if (this.mayDecide) {
      const first = [...document.querySelectorAll("#questions li")].find((item) => item.dataset.finding && !this.answer(item.dataset.finding))?.querySelectorAll("button");
      Object.assign(keys, {
        c: () => chosen && this.actions.decide(chosen, "confirmed"),
        x: () => chosen && this.actions.decide(chosen, "rejected"),
        u: () => this.actions.undo(),
        y: () => first?.[0].click(),
        n: () => first?.[1].click(),
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
  const tick = h("span", { class: "tick" });
  tick.style.left = `${100 * tag.baseline}%`;
  return h("div", { class: "bar", "aria-hidden": "true" }, fill, tick);
}

const hints = (pairs) => pairs.flatMap(([key, text]) => [h("kbd", {}, key), text ? ` ${text} ` : ""]);
