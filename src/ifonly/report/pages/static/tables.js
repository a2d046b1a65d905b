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
    const length = ifonly.say("fact.length", { steps });
    const hours = ifonly.trimmed(steps * case_.time.step);
    const lasted = ifonly.isHours(case_) ? ifonly.say("fact.hours", { hours, length }) : length;
    return [...case_.facts.map(ifonly.fact), lasted].map((text) => el("span", {}, text));
  }

  function dated(case_, change) {
    return ifonly.say("change.when", { when: ifonly.moment(case_, change.step), change: ifonly.changeWords(case_, change) });
  }

  /** The changes of the best sequence, with bars for what each brings. */
  function contributionsTable(case_) {
    const { contributions, best, claim } = case_.answer;
    if (!best.changes.length) {
      return el("p", { class: "note" }, ifonly.say(`table.nothing changed${claim.proven ? "" : " found"}`));
    }
    if (!contributions.length) {
      return el("ul", {}, best.changes.map((change) => el("li", {}, ifonly.capital(dated(case_, change)))));
    }
    const sizes = contributions.flatMap((item) => [item.alone, item.lost_without, item.share]).map(Math.abs);
    const largest = Math.max(...sizes, 1e-12);
    return el("div", {},
      el("table", { class: "figures words contributions-table" },
        head(["when", "change", "alone", "lost", "share"].map((name) => ifonly.say(`table.${name}`))),
        el("tbody", {}, contributions.map((item, index) => el("tr", {},
          el("th", { scope: "row" }, ifonly.capital(ifonly.moment(case_, item.step))),
          el("td", { class: "text" }, ifonly.changeWords(case_, best.changes[index])),
          [item.alone, item.lost_without, item.share].map((value) => barCell(value, largest)))))),
      el("p", { class: "note" }, ifonly.say(`table.of best${claim.proven ? "" : " found"}`, {
        changes: ifonly.plural(case_.question.max_changes, "change"), outcome: case_.question.outcome,
      })));
  }

  const ORGANS = 1e-12;

  /** What the measurements, and the organs of a score, bring to the gain; null where there is only one of them. */
  function sourcesTable(case_) {
    const { sources, result } = case_.answer;
    const organs = result.evidence.scores.filter(({ asked }) => asked).flatMap(({ score, organs: all }) =>
      all.filter(({ gain }) => Math.abs(gain) > ORGANS).map(({ organ, gain }) => ({
        name: ifonly.say("source.organ", { score, organ: ifonly.knows(`organ.${organ}`) ? ifonly.say(`organ.${organ}`) : organ }), gain,
      })));
    const parts = sources.map(({ kind, name, gain }) => ({ name: kind === "feature" ? name : ifonly.say(`source.${kind}`), gain }));
    const rows = [...(parts.length > 1 ? parts : []), ...organs.sort((a, b) => b.gain - a.gain)];
    if (!rows.length) return null;
    const largest = Math.max(...rows.map(({ gain }) => Math.abs(gain)));
    return el("div", {},
      el("table", { class: "figures sources-table" }, head(["source", "gain"].map((name) => ifonly.say(`source.${name}`))),
        el("tbody", {}, rows.map(({ name, gain }) => el("tr", {}, el("th", { scope: "row" }, name), barCell(gain, largest))))),
      el("p", { class: "note" }, ifonly.say(organs.length ? "source.note organs" : "source.note", { outcome: case_.question.outcome })));
  }

  function barCell(value, largest) {
    const width = `${(Math.abs(value) / largest) * 50}%`;
    const decimals = largest >= 10 ? 1 : largest >= 1 || largest === 0 ? 2 : Math.min(20, 1 - Math.floor(Math.log10(largest)));
    const size = Math.abs(value).toFixed(decimals);
    return el("td", { class: "bar" },
      el("span", { class: "bar-value" }, value < 0 && Number(size) !== 0 ? `\u2212${size}` : size),
      el("span", { class: `bar-line${value < 0 ? " worse" : ""}`, "aria-hidden": "true", style: { width } }));
  }

  /** A row per number of changes; `chosen` is the one shown, or null. */
  function frontierTable(case_, chosen) {
    const { budgets } = case_.answer;
    const open = budgets.some((budget) => !budget.claim.proven);
    const titles = [ifonly.say("view.budget"), ifonly.capital(case_.question.outcome), ifonly.say("table.improvement")];
    return el("table", { class: "figures" }, head([...titles, ...(open ? [ifonly.say("table.best possible")] : []), ifonly.say("table.proven")]),
      el("tbody", {}, budgets.map((budget) => el("tr", { class: budget.max_changes === chosen ? "chosen" : "" },
        el("th", { scope: "row" }, String(budget.max_changes)),
        cells(budget.course ? ifonly.outcome(budget.course.outcome, [case_.observed.outcome, budget.course.outcome]) : ifonly.say("table.no sequence"),
          ifonly.tenths(budget.course?.improvement)),
        open && cells(ifonly.bestPossible(budget.claim, case_.question)), cells(ifonly.say(budget.claim.proven ? "page.yes" : "page.no"))))));
  }

  /** What is said of a value that was not measured; nothing of others. */
  function originWords(origin) {
    return origin && origin !== "measured" ? ifonly.say("origin.beside", { origin: ifonly.say(`origin.${origin}`) }) : "";
  }

  /** Every value in figures; `lines`: [{feature, name (of the course), values, origins}]. */
  function valuesTable(case_, lines) {
    const moments = case_.time.at.map((_, step) => ifonly.capital(ifonly.moment(case_, step)));
    return el("div", { class: "wide", tabindex: "0", role: "group", "aria-label": ifonly.say("view.values scroll") },
      el("table", { class: "figures values" }, head([ifonly.say("view.measurement"), ifonly.say("view.course"), ...moments]),
        el("tbody", {}, lines.map(({ feature, name, values, origins }) => el("tr", {},
          el("th", { scope: "row" }, `${feature.name} ${ifonly.unitBeside(feature)}`.trim()),
          el("td", { class: "text" }, name),
          cells(...values.map((value, step) => `${ifonly.number(value)}${originWords(origins?.[step])}`)))))));
  }

  /** How the answer came about, as pairs of a name and a text. */
  function methodLines(case_) {
    const { question, model, answer } = case_;
    const { say, capital, plural } = ifonly;
    const asked = { outcome: capital(question.outcome), changes: plural(question.max_changes, "change") };
    const lines = [
      ["question", say(`method.question.${question.lower_is_better ? "lower" : "higher"}`, asked)],
      question.change_cost && ["cost", ifonly.number(question.change_cost)],
      question.objective && ["counts", capital(say("method.counts of", { objective: question.objective }))],
      ["model", say("method.model is", {
        ...model, refits: model.refits ? say("method.refits", { refits: model.refits }) : "",
      })],
      ["check", model.check
        ? say("method.check is", { verdict: model.check.verdict, episodes: plural(model.check.episodes, "episode") })
        : say("page.none")],
      ...(answer ? answerLines(answer) : []),
      ["made with", say("method.version", { version: case_.ifonly })],
    ];
    return lines.filter(Boolean).map(([name, text]) => [say(`method.${name}`), text]);
  }

  function answerLines({ result, claim }) {
    const { stats, certificate, status } = result;
    const method = certificate.proven ? certificate.method : "no proof";
    return [
      ["search", ifonly.say("method.search is", {
        method: ifonly.knows(`method.by.${method}`) ? ifonly.say(`method.by.${method}`) : method,
        nodes: ifonly.number(stats.nodes_expanded), seconds: ifonly.number(stats.seconds_bounds + stats.seconds_search),
      })],
      ["ended", ifonly.say(`answer.${status}`)],
      claim.gap !== null && ["gap", ifonly.gapWords(claim.gap)],
    ];
  }

  /** A chart for those who cannot see it. */
  function chartWords(feature, series) {
    const courses = series.map(({ name, values, origins }) => ifonly.say("table.chart course", {
      name, first: ifonly.number(values[0]), last: ifonly.number(values[values.length - 1]),
      measured: origins ? ifonly.say("table.chart measured", {
        measured: origins.filter((origin) => origin === "measured").length, steps: values.length,
      }) : "",
    })).join("; ");
    const name = ifonly.unitBeside(feature) ? ifonly.say("table.feature in", { feature: feature.name, unit: feature.unit }) : feature.name;
    return ifonly.say("table.chart", { feature: name, courses });
  }

  /** The plausible range, said where some value leaves it. */
  function limitWords(feature, values) {
    if (!feature.plausible) return "";
    const [low, high] = feature.plausible;
    const left = values.some((value) => value !== null && (value < low || value > high));
    return left ? ifonly.say("table.plausible", { low: ifonly.trimmed(low), high: ifonly.trimmed(high) }) : "";
  }

  /** Which courses leave plausible ranges, and when. */
  function implausibleWords(case_, rows) {
    const when = (steps) => (steps.length > 4
      ? ifonly.say("table.many steps", { steps: steps.length })
      : steps.map((step) => ifonly.moment(case_, step)).join(", "));
    return rows.filter((row) => row.kind !== "observed" && row.course.implausible.length).map((row) => {
      const left = row.course.implausible.map(({ feature, steps }) =>
        ifonly.say("table.outside one", { feature, when: when(steps) }));
      return ifonly.say("table.outside", { course: row.name, features: left.join("; ") });
    }).join(" ");
  }

  Object.assign(ifonly, {
    facts, contributionsTable, sourcesTable, frontierTable, valuesTable, methodLines, chartWords, limitWords,
    implausibleWords, originWords,
  });
})((window.ifonly = window.ifonly || {}));
