// All courses side by side: recorded, best, best under the reviewer's rules, their own, and alternatives.
(function (ifonly) {
  "use strict";
  const { el, fill } = ifonly;

  const HEIGHT = 260;

  /** What is compared. `first`: the case with the first answer; `ruled`: that of the search under other rules, or null. */
  function coursesOf(case_, view, { first, ruled }) {
    const { say, plural } = ifonly;
    const allowed = (one) => say("view.with at most", { changes: plural(one.question.max_changes, "change") });
    const named = (one, name) => say(`compare.${name}${one.answer.claim.proven ? "" : " found"}`, { allowed: allowed(one) });
    const answers = [
      first.answer && { id: "best", kind: "best", name: named(first, "best"), course: first.answer.best },
      ruled && { id: "ruled", kind: "ruled", name: named(ruled, "ruled"), course: ruled.answer.best },
    ].filter(Boolean);
    const alternatives = (case_.answer ? case_.answer.alternatives : []).map((course, index) => ({
      id: `alternative ${index}`, kind: "alternative", number: index + 1, index, course,
      name: ifonly.capital(say("view.alternative", { number: index + 1 })),
    }));
    return [
      { id: "observed", kind: "observed", name: ifonly.capital(say("view.recorded")), course: case_.observed },
      ...answers,
      view.own && { id: "own", kind: "own", name: ifonly.capital(say("view.own")), course: view.own },
      ...alternatives.filter(({ course }) => !ifonly.isBest(case_, course)),
    ].filter(Boolean);
  }

  /** How much worse an outcome is than another one, in the units shown. */
  function loss(question, outcome, best) {
    if (outcome === null || best === null) return null;
    return question.lower_is_better ? outcome - best : best - outcome;
  }

  function lossWords(value) {
    if (value === null) return "\u2013";
    const size = ifonly.outcome(Math.abs(value));
    if (Number(size) === 0) return ifonly.say("compare.same");
    return ifonly.say(value > 0 ? "compare.worse" : "compare.better", { size });
  }

  /** What the reviewer's rules cost, against the best with as many changes without them; "" where there are none. */
  function priceWords({ first, ruled }) {
    if (!ruled || !first.answer) return "";
    const most = ruled.question.max_changes;
    const budget = first.answer.budgets.find((one) => one.max_changes === most);
    const best = budget ? budget.course : most === first.question.max_changes ? first.answer.best : null;
    const pair = [(best || first.answer.best).outcome, ruled.answer.best.outcome];
    const values = { outcome: ruled.question.outcome, best: ifonly.outcome(pair[0], pair), shown: ifonly.outcome(pair[1], pair) };
    if (!best) {
      return ifonly.say("compare.other budget", {
        ...values, most: ifonly.plural(most, "change"),
        first: ifonly.plural(first.question.max_changes, "change"),
      });
    }
    const price = loss(ruled.question, ruled.answer.best.outcome, best.outcome);
    if (price === null) return "";
    const proven = ruled.answer.claim.proven && (budget ? budget.claim : first.answer.claim).proven;
    const size = ifonly.outcome(Math.abs(price));
    const code = Number(size) === 0 ? "nothing" : price > 0 ? "price" : "gain";
    const words = ifonly.say(`compare.${code}`, {
      ...values, size, changes: ifonly.plural(most, "change"),
    });
    return proven ? words : ifonly.say("compare.as found", { words });
  }

  class Compare {
    /** `options`: {heading(...children), onAlternative(index), answers() => ({first, ruled}), timeline}. */
    constructor(options) {
      this.options = options;
      this.chosen = new Map(); // by ids: whether a course is in the chart, where somebody has said so
      this.title = options.heading(ifonly.say("compare.title"));
      this.price = el("p", { class: "price" });
      this.note = el("p", { class: "note" });
      this.table = ifonly.wide();
      this.chart = el("div", { class: "chart compare-chart" });
      this.place = el("section", { class: "compare" }, this.title, this.price, this.table, this.chart, this.note);
    }

    draw(case_, view) {
      const answers = this.options.answers();
      const rows = coursesOf(case_, view, answers);
      this.place.hidden = rows.length < 3;
      if (this.place.hidden) return;
      ifonly.setText(this.price, priceWords(answers));
      ifonly.setText(this.note, alternativesNote(case_));
      const focused = this.table.contains(document.activeElement) ? document.activeElement.dataset.key : null;
      fill(this.table, this.tableOf(case_, view, rows, answers));
      if (focused) this.table.querySelector(`[data-key="${focused}"]`)?.focus();
      const shown = rows.filter((row) => this.isInChart(row));
      const look = [ifonly.scheme(), this.chart.clientWidth, String(view.span), ...shown.map(({ course }) => course)];
      if (this.look && look.length === this.look.length && look.every((one, index) => one === this.look[index])) return;
      this.options.timeline.add(() => {
        this.look = look;
        this.drawChart(case_, view, shown, rows);
      });
    }

    isInChart({ id, kind }) {
      return this.chosen.get(id) ?? kind !== "alternative";
    }

    tableOf(case_, view, rows, { first }) {
      const { question } = case_;
      const best = (first.answer || case_.answer)?.best.outcome ?? null;
      const titles = ["chart", "course", "outcome", "recorded", "best", "changes", "what"];
      const heads = titles.map((name) => (name === "outcome" ? ifonly.capital(question.outcome) : ifonly.say(`compare.column.${name}`)));
      return el("table", { class: "figures words compare-table" },
        el("thead", {}, el("tr", {}, heads.map((text, index) => el("th", {
          scope: "col", class: ["course", "what"].includes(titles[index]) ? "text" : "",
        }, text)))),
        el("tbody", {}, rows.map((row) => this.rowOf(case_, view, row, best))));
    }

    rowOf(case_, view, row, best) {
      const { course, kind, id, name, index } = row;
      const choose = el("input", {
        type: "checkbox", checked: this.isInChart(row), "data-key": `in/${id}`, "aria-label": ifonly.say("compare.in chart", { course: name }),
        on: { change: ({ target }) => { this.chosen.set(id, target.checked); this.draw(case_, view); } },
      });
      const title = index === undefined ? name : el("button", {
        type: "button", class: "link", "data-key": id, "aria-label": ifonly.say("table.show alternative", { number: index + 1 }),
        on: { click: () => this.options.onAlternative(index) },
      }, name);
      const changes = course.changes.map((change) => ifonly.changeBrief(case_, change));
      const broken = kind === "own" && course.admissible === false && ifonly.say("view.breaks rule");
      return el("tr", { class: index !== undefined && index === view.alternative ? "chosen" : "" },
        el("td", {}, choose),
        el("th", { scope: "row" }, el("span", { class: `key ${kind}` }, ifonly.sample(kind, row.number), title)),
        el("td", {}, ifonly.outcome(course.outcome, [case_.observed.outcome, course.outcome])),
        el("td", {}, kind === "observed" ? "\u2013" : ifonly.moved(course.improvement, case_.question) || "\u2013"),
        el("td", {}, kind === "best" ? "\u2013" : lossWords(loss(case_.question, course.outcome, best))),
        el("td", {}, String(course.changes.length)),
        el("td", { class: "text" }, changes.length ? el("ul", {}, changes.map((text) => el("li", {}, text))) : ifonly.say("page.none"),
          broken && el("span", { class: "tag open" }, broken)));
    }

    drawChart(case_, view, shown, rows) {
      const [feature] = ifonly.primaryFeatures(case_);
      const { timeline } = this.options;
      const series = ifonly.seriesOf(case_, feature, shown).filter(({ thin }) => !thin);
      this.chart.setAttribute("role", "img");
      this.chart.setAttribute("aria-label", ifonly.chartWords(feature, series));
      ifonly.featureChart(this.chart, {
        times: case_.time.at, shown: timeline.shown(), series, within: ifonly.within(case_, feature, rows.map(({ course }) => course)),
        changed: [], limits: feature.plausible, unit: ifonly.unit(feature.unit), momentWord: ifonly.timeTitle(case_),
        title: feature.label, width: this.chart.clientWidth, height: HEIGHT, ...timeline.hooks(),
      });
      timeline.moment.watch(this.chart, null, () => []);
    }
  }

  /** What is known of the alternatives as a whole. */
  function alternativesNote(case_) {
    const { answer } = case_;
    if (!answer || answer.alternatives.length < 2) return "";
    const count = answer.alternatives.length;
    const apart = answer.result.provenance.solver.apart || 1;
    const title = ifonly.say(answer.alternatives_proven ? "compare.alternatives" : "compare.alternatives found", { count });
    return ifonly.sentence({ code: apart > 1 ? "view.sequences apart" : "compare.plain", values: { title, apart } });
  }

  Object.assign(ifonly, { Compare, priceWords });
})((window.ifonly = window.ifonly || {}));
