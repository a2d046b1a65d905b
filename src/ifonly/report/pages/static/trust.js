// How far an answer may be trusted: a sentence first, what it rests on when somebody asks.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  const NOT_ASKED = {
    refits: "Not asked: the model was fitted once, so that nothing is known of what refitting it would change.",
    support: "Not asked: how usual the changes are takes a model of what clinicians do.",
    sensitivity: "Not asked for this answer.",
  };

  /** Beside the sentence: whether anything speaks against the answer, in a word; no calm one for an unchecked model. */
  function trustSeal({ examined, warnings }, { check }) {
    if (warnings.length) return el("span", { class: "seal open" }, ifonly.plural(warnings.length, "warning"));
    return examined && check ? el("span", { class: "seal calm" }, "No warnings") : null;
  }

  function list(texts, attributes) {
    return el("ul", attributes || {}, texts.map((text) => el("li", {}, tidy(text))));
  }

  /** Sentences of the server with true minus signs and raised figures. */
  function tidy(text) {
    return ifonly.unit(text).replace(/(^|\s)-(?=\d)/g, "$1\u2212");
  }

  /** What a check of the model concluded, and on how many episodes. */
  function modelPart({ said, check }) {
    if (!check) return [el("p", {}, `${said} How well it explains the data is not known.`)];
    const found = check.summary.replace(new RegExp(`^${check.verdict}: `), "");
    return [
      el("p", {}, `${said} ${ifonly.capital(found)}, on ${ifonly.plural(check.episodes, "recorded episode")}.`),
      el("p", { class: "note" }, "A check tells how well the model explains what was recorded, not whether it is right about what was not."),
    ];
  }

  /** In units of the outcome; more is better. */
  function gain(value) {
    return value === null ? "no finite outcome" : ifonly.number(value);
  }

  function refitWords(refits, question) {
    if (refits.refits < 2 || refits.median === null) return null;
    const costs = question.change_cost ? ", the cost of changes counted" : "";
    return `Improvement over refits, in ${question.objective}${costs}: median ${gain(refits.median)}, ` +
      `${refits.between} between ${gain(refits.low)} and ${gain(refits.high)}.`;
  }

  function refitsTable(refits) {
    return el("table", { class: "figures refits-table" },
      el("caption", { class: "unseen" }, "Improvement under every refit"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Refit"), el("th", { scope: "col" }, "Improvement"))),
      el("tbody", {}, refits.improvements.map((value, index) => el("tr", {},
        el("th", { scope: "row" }, String(index + 1)), el("td", {}, gain(value))))));
  }

  function stepsTable(case_, steps) {
    const known = steps.some((step) => step.same_action !== null);
    const titles = ["When", "Change", "Refits that change this step too", ...(known ? ["to the same treatment"] : [])];
    return el("div", { class: "wide" }, el("table", { class: "figures words" },
      el("thead", {}, el("tr", {}, titles.map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, steps.map((step) => el("tr", {},
        el("th", { scope: "row" }, ifonly.capital(ifonly.moment(case_, step.step))),
        el("td", { class: "text" }, ifonly.pretty(case_, step.words)),
        el("td", {}, ifonly.percent(step.same_step)), known && el("td", {}, ifonly.percent(step.same_action)))))));
  }

  function refitsPart(case_, refits) {
    if (!refits) return [el("p", {}, NOT_ASKED.refits)];
    const words = refitWords(refits, case_.question);
    const chart = el("div", {
      class: "chart refits-chart", role: "img",
      "aria-label": `${refits.summary} ${words || ""} The table below has every value.`,
    });
    const key = (sign, text) => el("span", { class: "key" }, el("span", { class: "sign", "aria-hidden": "true" }, sign), text);
    return [
      el("p", {}, refits.summary, words && ` ${words}`),
      el("p", { class: "legend" }, key("\u25CB", "a refit under which it helps"),
        refits.helping < refits.refits && key("\u2715", "one under which it does not"), key("\u25C6", case_.question.judged_by || "the model itself"),
        refits.refits > 1 && key("\u2500", `${refits.between} refits, and their median`)),
      chart,
      el("details", {}, el("summary", {}, "Every refit as a table"), refitsTable(refits)),
      refits.steps
        ? stepsTable(case_, refits.steps)
        : el("p", { class: "note" }, "The refits were not searched themselves, so that how often they would make each change is not known."),
      refits.unsolved > 0 && el("p", { class: "note" }, `Of the refits, ${refits.unsolved} could not be searched to the end and are not counted.`),
      refits.notes.length > 0 && list(refits.notes.map(ifonly.capital), { class: "note" }),
    ];
  }

  /** Sentences about steps; those beyond the data are marked in words. */
  function supportList(support) {
    return el("ul", { class: "support" }, support.steps.map((step) => el("li", {},
      step.beyond && el("span", { class: "tag open" }, "beyond the data"), step.beyond && " ", step.words.join(" "))));
  }

  function supportPart(support) {
    return support ? [el("p", {}, support.summary), supportList(support)] : [el("p", {}, NOT_ASKED.support)];
  }

  function sensitivityPart(sensitivity) {
    if (!sensitivity) return [el("p", {}, NOT_ASKED.sensitivity)];
    return [
      el("p", {}, sensitivity.summary), sensitivity.details.length > 0 && list(sensitivity.details),
      el("p", { class: "note" }, "Sizes are standard deviations of what the model leaves unexplained. Smaller influences " +
        "than those found may exist, but none below what is said to be harmless."),
    ];
  }

  /** Everything that the sentence rests on; charts are drawn when the parts are in the page. `heading` makes titles. */
  function fillTrust(place, case_, heading) {
    const { trust, model } = case_;
    const part = (title, children) => el("section", {}, heading(title), children);
    place.replaceChildren(...[
      trust.warnings.length && part("Warnings", [list(trust.warnings)]),
      trust.examined && !trust.warnings.length && el("p", { class: "note" }, "That nothing warns does not prove the answer right."),
      part("The model", modelPart(model)),
      case_.answer && part("Under refits of the model", refitsPart(case_, trust.refits)),
      case_.answer && part("What the data supports", supportPart(trust.support)),
      case_.answer && part("What would undo the gain", sensitivityPart(trust.sensitivity)),
    ].filter(Boolean));
    const chart = place.querySelector(".refits-chart");
    if (chart) {
      ifonly.refitsChart(chart, {
        ...trust.refits, width: Math.min(chart.clientWidth, 720), title: `improvement, in ${case_.question.objective}`,
      });
    }
  }

  /** What everybody must see of a model that failed. */
  function cautionBox(caution) {
    return caution ? el("p", { class: "problem grave", role: "note" }, el("strong", {}, "Caution. "), caution) : null;
  }

  Object.assign(ifonly, { trustSeal, fillTrust, supportList, cautionBox });
})((window.ifonly = window.ifonly || {}));
