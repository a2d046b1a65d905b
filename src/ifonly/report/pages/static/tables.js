// What a case says in tables and in words beside its charts.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  function head(titles) {
    return el("thead", {}, el("tr", {}, titles.map((text) => el("th", { scope: "col" }, text))));
  }

  function cells(...texts) {
    return texts.map((text) => el("td", {}, text));
  }

  /** Who the patient is, as far as it was recorded, and how long the record is. */
  function facts(case_) {
    const steps = case_.time.at.length;
    const hours = ifonly.isHours(case_) ? `${ifonly.trimmed(steps * case_.time.step)} hours in ` : "";
    return [...(case_.facts || []).map(ifonly.fact), `${hours}${steps} steps`].map((text) => el("span", {}, text));
  }

  function changeWords(case_, change) {
    return `${ifonly.moment(case_, change.step)}: ${ifonly.pretty(case_, change.words)}`;
  }

  /** The changes of the best sequence, with bars for what each brings. */
  function contributionsTable(case_) {
    const { contributions, best, proven } = case_.answer;
    if (!best.changes.length) {
      return el("p", { class: "note" }, `The best sequence ${proven ? "" : "found "}is the recorded one: there is no change to weigh.`);
    }
    if (!contributions.length) {
      return el("ul", {}, best.changes.map((change) => el("li", {}, ifonly.capital(changeWords(case_, change)))));
    }
    const sizes = contributions.flatMap((item) => [item.alone, item.lost_without, item.share]).map(Math.abs);
    const largest = Math.max(...sizes, 1e-12);
    const most = ifonly.plural(case_.question.max_changes, "change");
    return el("div", {},
      el("table", { class: "figures words contributions-table" },
        head(["When", "Change", "Gain if only this is changed", "Loss if this one is left out", "Fair share of the gain"]),
        el("tbody", {}, contributions.map((item) => el("tr", {},
          el("th", { scope: "row" }, ifonly.capital(ifonly.moment(case_, item.step))),
          el("td", { class: "text" }, ifonly.pretty(case_, item.words)),
          [item.alone, item.lost_without, item.share].map((value) => barCell(value, largest)))))),
      el("p", { class: "note" },
        `Of the best sequence ${proven ? "" : "found "}with at most ${most}, in ${case_.question.objective}; more is better. `,
        "Changes act on one another, so that gains alone do not add up; the fair shares do."));
  }

  function barCell(value, largest) {
    const width = `${(Math.abs(value) / largest) * 50}%`;
    const size = Math.abs(value).toFixed(largest >= 10 ? 1 : 2);
    return el("td", { class: "bar" },
      el("span", { class: "bar-value" }, value < 0 && Number(size) !== 0 ? `\u2212${size}` : size),
      el("span", { class: `bar-line${value < 0 ? " worse" : ""}`, "aria-hidden": "true", style: { width } }));
  }

  /** A row per number of changes; `chosen` is the one shown, or null. */
  function frontierTable(case_, chosen) {
    const { budgets } = case_.answer;
    const open = budgets.some((budget) => !budget.proven);
    const titles = ["Changes allowed", ifonly.capital(case_.question.objective), "Improvement"];
    return el("table", { class: "figures" }, head([...titles, ...(open ? ["Best possible"] : []), "Proven"]),
      el("tbody", {}, budgets.map((budget) => el("tr", { class: budget.max_changes === chosen ? "chosen" : "" },
        el("th", { scope: "row" }, String(budget.max_changes)),
        cells(budget.course ? ifonly.outcome(budget.course.outcome) : "none keeps the rules",
          ifonly.tenths(budget.course?.improvement)),
        open && cells(ifonly.bestPossible(budget, case_.question)), cells(budget.proven ? "yes" : "no")))));
  }

  /** A row per alternative; `onChoose` is told the one to show. */
  function alternativesTable(case_, chosen, onChoose) {
    const words = (course) => course.changes.map((change) => changeWords(case_, change)).join("; ") || "as recorded";
    return el("table", { class: "figures words" },
      head(["No.", ifonly.capital(case_.question.objective), "Improvement", "Changes"]),
      el("tbody", {}, case_.answer.alternatives.map((course, index) => el("tr", { class: index === chosen ? "chosen" : "" },
        el("th", { scope: "row" }, el("button", {
          type: "button", class: "link", "aria-label": `Show alternative ${index + 1}`, on: { click: () => onChoose(index) },
        }, String(index + 1))),
        cells(ifonly.outcome(course.outcome), ifonly.tenths(course.improvement)),
        el("td", { class: "text" }, words(course))))));
  }

  /** Every value in figures; `lines`: [{feature, name (of the course), values}]. */
  function valuesTable(case_, lines) {
    const moments = case_.time.at.map((_, step) => ifonly.capital(ifonly.moment(case_, step)));
    return el("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Values of all measurements, scrolls sideways" },
      el("table", { class: "figures values" }, head(["Measurement", "Course", ...moments]),
        el("tbody", {}, lines.map(({ feature, name, values }) => el("tr", {},
          el("th", { scope: "row" }, `${feature.name} ${ifonly.unit(feature.unit)}`),
          el("td", { class: "text" }, name), cells(...values.map(ifonly.number)))))));
  }

  /** How the answer came about, as pairs of a name and a text. */
  function methodLines(case_) {
    const { question, model, answer } = case_;
    const better = question.lower_is_better ? "lower" : "higher";
    const lines = [
      ["Question", `${ifonly.capital(question.objective)}, ${better} is better; at most ${ifonly.plural(question.max_changes, "change")}`],
      question.change_cost && ["Cost of a change", ifonly.number(question.change_cost)],
      question.judged_by && ["What counts", `${ifonly.capital(question.judged_by)} of the model`],
      ["Model", `${model.kind}${model.refits ? `, ${model.refits} refits` : ""}, fingerprint ${model.fingerprint}`],
      ["Model check", model.check ? `${model.check.summary}; ${ifonly.plural(model.check.episodes, "episode")}` : "none"],
      ...(answer ? [
        ["Search", `${answer.work.method}; ${ifonly.number(answer.work.nodes)} nodes, ${ifonly.number(answer.work.seconds)} seconds`],
        ["Ended", answer.status],
        answer.gap !== null && ["Gap", ifonly.gapWords(answer.gap)],
      ] : []),
      ["Made with", `ifonly ${case_.ifonly}`],
    ];
    return lines.filter(Boolean);
  }

  /** A chart for those who cannot see it. */
  function chartWords(feature, series) {
    const ends = series.map(({ name, values }) =>
      `${name} from ${ifonly.number(values[0])} to ${ifonly.number(values[values.length - 1])}`);
    return `${feature.name}${feature.unit ? ` in ${feature.unit}` : ""}: ${ends.join("; ")}.`;
  }

  /** The plausible range, said where some value leaves it. */
  function limitWords(feature, values) {
    if (!feature.plausible) return "";
    const [low, high] = feature.plausible;
    const left = values.some((value) => value !== null && (value < low || value > high));
    return left ? `plausible ${ifonly.trimmed(low)} to ${ifonly.trimmed(high)}` : "";
  }

  /** Which courses leave plausible ranges, and when. */
  function implausibleWords(case_, rows) {
    const when = (steps) =>
      steps.length > 4 ? `${steps.length} steps` : steps.map((step) => ifonly.moment(case_, step)).join(", ");
    return rows.filter((row) => row.kind !== "observed" && row.course.implausible.length).map((row) => {
      const left = row.course.implausible.map((item) => `${item.feature} at ${when(item.steps)}`);
      return `Outside the plausible range, ${row.name}: ${left.join("; ")}.`;
    }).join(" ");
  }

  Object.assign(ifonly, {
    facts, contributionsTable, frontierTable, alternativesTable, valuesTable, methodLines, chartWords, limitWords,
    implausibleWords,
  });
})((window.ifonly = window.ifonly || {}));
