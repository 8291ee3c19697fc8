// Why a tag: the findings for and against it, each leading to its place in the note.

import { h } from "./dom.js";

export function whyView(why, titles, showPlace) {
  const present = why.reasons.filter((reason) => reason.present && reason.log_odds > 0);
  const against = why.reasons.filter((reason) => reason.log_odds < 0 && (reason.present || reason.denied));
  const silent = why.reasons.filter((reason) => reason.log_odds < 0 && !reason.present && !reason.denied);
  const absent = Object.entries(why.absent).filter(([, value]) => Math.abs(value) > 0.05)
    .map(([part, value]) => ({ text: `all else that the ${part} could have and have not`, log_odds: value, places: [] }));
  const missing = [...silent, ...absent];
  const most = Math.max(0.1, ...[...why.reasons, ...absent].map((reason) => Math.abs(reason.log_odds)));
  const group = (title, reasons, sign) => reasons.length > 0 && h("section", { class: `reasons ${sign}` },
    h("h4", {}, title), h("ul", {}, reasons.map((reason) => line(reason, most, showPlace))));
  const other = Object.entries(why.others).filter(([, value]) => Math.abs(value) > 0.05)
    .map(([name, value]) => `${titles[name] ?? name} (${value > 0 ? "for" : "against"} it)`);
  return h("div", {},
    group("For it", present, "for"),
    group("Against it", against, "against"),
    group("Not mentioned in the record", missing, "missing"),
    Math.abs(why.sureness) > 0.2 && h("p", { class: "small" }, why.sureness > 0
      ? "Records like this one have proved more telling than the sum of their findings."
      : "Records like this one have proved less telling than the sum of their findings."),
    other.length > 0 && h("p", { class: "small" }, `Goes together with: ${other.join(", ")}.`),
    !present.length && !against.length && h("p", { class: "small" }, "Nothing in the record speaks clearly for or against it."),
    h("p", { class: "quiet small" }, "Longer bars weigh more. Counted beside what is already confirmed."));
}

function line(reason, most, showPlace) {
  const strength = h("span", { class: "strength" });
  strength.style.width = `${Math.max(4, (100 * Math.abs(reason.log_odds)) / most)}%`;
  const place = reason.places[0];
  const text = reason.denied ? `denied: ${reason.text}` : reason.text;
  return h("li", {},
    place
      ? h("button", { type: "button", class: "link", onclick: () => showPlace(place) }, text, reason.places.length > 1 && ` (${reason.places.length}×)`)
      : h("span", { class: "no-place" }, text),
    h("span", { class: "strength-box", title: `${reason.log_odds.toFixed(2)} log odds` }, strength,
      h("span", { class: "sr" }, `weight ${reason.log_odds.toFixed(1)}`)));
}
