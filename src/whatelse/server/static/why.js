// Why a condition: findings for and against it by kind, each leading to its place in the record.

import { capital, h, lower, percent } from "./dom.js";

const GROUPS = { named: "In the record", symptoms: "Symptoms", signs: "Signs", results: "Results and treatment", drugs: "Drugs", history: "History", patient: "Age and sex", words: "Words of the notes" };
const SMALL = 0.1; // log odds that are not worth a line

export function whyView(why, titles, showPlace) {
  const big = why.reasons.filter((reason) => Math.abs(reason.log_odds) >= SMALL);
  const company = Object.entries(why.others).filter(([, value]) => Math.abs(value) >= SMALL);
  const most = Math.max(0.5, ...big.map((reason) => Math.abs(reason.log_odds)), ...company.map(([, value]) => Math.abs(value)));
  const side = (title, kind, reasons, others) => (reasons.length || others.length) > 0 && h("section", { class: `reasons ${kind}` }, h("h4", {}, title),
    Object.entries(GROUPS).map(([group, name]) => section(name, reasons.filter((reason) => reason.group === group).map((reason) => line(reason, most, showPlace)))),
    section("Company", others.map(([name, value]) => line({ text: lower(titles[name] ?? name), log_odds: value, places: [] }, most))));
  const against = big.filter((reason) => reason.log_odds < 0 && (reason.present || reason.denied));
  const nothing = !big.length && !company.length;
  const usual = `Usual here: ${share(why.usual)} of visits`;
  return h("div", {},
    side("For it", "for", big.filter((reason) => reason.present && reason.log_odds > 0), company.filter(([, value]) => value > 0)),
    side("Against it", "against", against, company.filter(([, value]) => value < 0)),
    why.expected.length > 0 && h("p", { class: "small" }, h("strong", {}, "Expected, but not recorded: "), `${why.expected.join(", ")}.`),
    nothing && h("p", { class: "small" }, "Nothing in the record speaks clearly for or against it."),
    why.settle && h("p", { class: "small" }, h("strong", {}, "Would settle it: "), `${why.settle}.`),
    h("p", { class: "quiet small" }, `${usual}${why.textbook === null ? "" : `; by the knowledge base: ${share(why.textbook)}`}. Longer bars weigh more.`));
}

const share = (p) => (p < 0.01 ? `1 in ${Math.round(1 / p).toLocaleString()}` : percent(p));
const section = (name, lines) => lines.length > 0 && h("div", { class: "reason-group" }, h("h5", {}, name), h("ul", {}, lines));

function line(reason, most, showPlace) {
  const strength = h("span", { class: "strength" });
  strength.style.width = `${Math.max(4, (100 * Math.abs(reason.log_odds)) / most)}%`;
  const place = reason.places[0];
  const text = capital(reason.denied ? `no ${reason.text.replace(/^no /, "")}` : reason.text);
  return h("li", {},
    place
      ? h("button", { type: "button", class: "link", onclick: () => showPlace(place) }, text, reason.places.length > 1 && ` (${reason.places.length}×)`)
      : h("span", { class: "no-place" }, text),
    h("span", { class: "strength-box" }, strength, h("span", { class: "sr" }, `weight ${reason.log_odds.toFixed(1)}`)));
}
