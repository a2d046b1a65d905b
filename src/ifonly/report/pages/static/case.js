// One case: drawn the same in the report and in the application.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  // Widths of the board in pixels: of row labels, and the least of a column of doses or of named treatments.
  const SCREEN = { label: 204, doses: 46, names: 104 };
  const PAPER = { label: 150, doses: 32, names: 72 };
  const LEVELS = 6;
  const LINES = 5; // of changes at the top
  let unique = 0;

  /** The budget that a view shows; the last one where alternatives are paged through. */
  function budgetOf(case_, view) {
    const budgets = case_.answer ? case_.answer.budgets : [];
    return budgets[Math.min(view.k, budgets.length - 1)] || null;
  }

  /** The counterfactual course that a view shows, or null. */
  function courseOf(case_, view) {
    if (!case_.answer) return null;
    if (view.alternative !== null && case_.answer.alternatives[view.alternative]) {
      return case_.answer.alternatives[view.alternative];
    }
    const budget = budgetOf(case_, view);
    return budget ? budget.course : case_.answer.best;
  }

  function firstView(case_) {
    const budgets = case_.answer ? case_.answer.budgets : [];
    // A page that was exported holds the version that was tried.
    return { k: Math.max(0, budgets.length - 1), alternative: null, own: case_.edited || null };
  }

  /** What the shown course is called, in lanes, legends and charts; "best" alone only where that is proven. */
  function courseName(case_, view) {
    const course = courseOf(case_, view);
    if (view.alternative !== null) return ifonly.say("view.alternative", { number: view.alternative + 1 });
    const changes = ifonly.plural(course.changes.length, "change");
    return ifonly.say(isProven(case_, view) ? "view.best" : "view.best found", { changes });
  }

  /** Whether a view shows the answer itself, which the badge is about, and no other budget or alternative. */
  function isAnswer(case_, view) {
    return Boolean(case_.answer) && view.alternative === null && view.k >= case_.answer.budgets.length - 1;
  }

  function isProven(case_, view) {
    const budget = budgetOf(case_, view);
    return Boolean(budget ? budget.claim.proven : case_.answer && case_.answer.claim.proven);
  }

  /** The same name in full, for the outcome. */
  function outcomeName(case_, view, row) {
    if (row.kind !== "best" || view.alternative !== null) return ifonly.capital(row.name);
    const budget = budgetOf(case_, view);
    const most = budget ? budget.max_changes : case_.question.max_changes;
    const allowed = ifonly.say("view.with at most", { changes: ifonly.plural(most, "change") });
    return ifonly.say(isProven(case_, view) ? "view.best with" : "view.best found with", { allowed });
  }

  /** The measurements that the outcome is made of: those that its name mentions, else the first. */
  function primaryFeatures(case_) {
    const dynamic = case_.features.filter((feature) => feature.kind === "dynamic");
    const words = case_.question.outcome.toLowerCase().split(/[^\w.]+/);
    const named = dynamic.filter((feature) => words.includes(feature.name.toLowerCase()));
    return named.length ? named : dynamic.slice(0, 1);
  }

  class CaseView {
    /** `options`: {level: of the first heading, onCell, onBudget, onAlternative, marks: () => ({step: word})}. */
    constructor(root, case_, options) {
      this.root = root;
      this.options = { level: 1, ...options };
      this.case = case_;
      this.view = firstView(case_);
      this.places = {};
      this.slots = {};
      this.build();
      new ResizeObserver(() => this.resized()).observe(root);
      ifonly.onColours(() => this.draw());
    }

    heading(extra, ...children) {
      return el(`h${this.options.level + extra}`, {}, ...children);
    }

    place(name, tag, attributes) {
      this.places[name] = el(tag, attributes);
      return this.places[name];
    }

    slot(name) {
      this.slots[name] = el("div", { class: `slot slot-${name}` });
      return this.slots[name];
    }

    build() {
      const case_ = this.case;
      const id = (unique += 1);
      const section = (name, title, ...children) =>
        el("section", { class: name, "aria-labelledby": `${name}-${id}` },
          Object.assign(this.heading(1, title), { id: `${name}-${id}` }), ...children);
      const upper = el("div", { class: "upper" },
        el("header", { class: "case-head" },
          this.heading(0, case_.episode),
          el("p", { class: "facts" }, ifonly.facts(case_)),
          this.place("grave", "div", {}),
          this.place("headline", "p", { class: "headline", role: "status" }),
          this.place("changes", "ul", { class: "change-lines" }),
          this.place("badge", "div", {}),
          this.place("certificate", "p", { class: "certificate" }),
          this.place("evidence", "div", { class: "evidence" }),
          this.place("cautions", "div", { class: "cautions" })),
        this.place("outcomes", "dl", { class: "outcomes" }), this.place("tried", "div", { class: "tried" }),
        el("div", { class: "controls no-print" }, this.place("budget", "div", { class: "budget" }),
          this.place("pager", "div", { class: "pager" }), this.slot("tools")),
        section("course", this.courseTitle(),
          this.options.onCell && el("p", { class: "hint no-print" },
            ifonly.say("view.hint")),
          this.place("board", "div", {
            class: "board", tabindex: "0", role: "group", "aria-label": ifonly.say("view.board"),
          }),
          this.place("marks", "p", { class: "legend" }), this.place("organs", "p", { class: "note organs" })),
        this.slot("notice"));
      const lower = el("div", { class: "lower" },
        section("features", ifonly.say("view.measurements"), this.place("legend", "p", { class: "legend" }),
          this.place("implausible", "p", { class: "note" }),
          this.place("charts", "div", { class: "charts" }),
          this.place("context", "div", {}), this.place("values", "div", {})),
        this.place("answer", "div", { class: "answer" }),
        section("assumptions", ifonly.say("view.rests on"), this.place("assumptions", "ul", {})),
        this.place("method", "details", { class: "method" }));
      this.root.replaceChildren(el("article", { class: "case" }, upper, this.slot("aside"), lower));
      this.places.values.append(details(ifonly.say("view.values"), () => this.valuesTable()));
      this.evidenceLine = el("p", { class: "evidence-line" });
      this.evidenceParts = el("details", { class: "evidence-parts" }, el("summary", {}, ifonly.say("view.evidence")), el("div", {}));
      this.evidenceParts.addEventListener("toggle", () => this.fillEvidence());
      this.warnings = el("ul", { class: "print-only" });  // on paper nothing can be unfolded
      this.places.evidence.append(this.evidenceLine, this.warnings, this.evidenceParts);
    }

    courseTitle() {
      const names = primaryFeatures(this.case).map((feature) => feature.name);
      return ifonly.say("view.board title", { features: names.join(", ") });
    }

    /** Draw another case or another view of it. */
    show(case_, view) {
      this.case = case_;
      this.view = view;
      this.draw();
    }

    draw() {
      this.drawWords();
      this.drawTrust();
      this.drawBudget();
      this.drawPager();
      this.drawBoard();
      this.drawCharts();
      this.drawAnswer();
      this.drawMethod();
      for (const one of this.places.values.querySelectorAll("details[open]")) one.fill();
      this.width = this.root.clientWidth;
    }

    /** Charts have fixed sizes: they are drawn again when there is more or less room. */
    resized() {
      if (!this.root.clientWidth || this.width === this.root.clientWidth || this.width === undefined) return;
      this.draw();
    }

    course() {
      return courseOf(this.case, this.view);
    }

    /** The courses to compare: recorded, shown, and the reviewer's own. */
    rows() {
      const { case: case_, view } = this;
      const course = this.course();
      return [
        { kind: "observed", name: ifonly.say("view.recorded"), course: case_.observed },
        course && { kind: "best", name: courseName(case_, view), course },
        view.own && { kind: "own", name: ifonly.say("view.own"), course: view.own },
      ].filter(Boolean).map((row) => ({ ...row, actions: row.course.actions }));
    }

    /** Those in which a feature differs: what no treatment changes is drawn once. */
    rowsOf(feature) {
      return feature.kind === "dynamic" ? this.rows() : this.rows().slice(0, 1);
    }

    drawWords() {
      const { case: case_, view, places } = this;
      const budget = budgetOf(case_, view);
      const course = this.course();
      ifonly.setText(
        places.headline, ifonly.headline(case_, course, budget ? budget.max_changes : case_.question.max_changes),
      );
      const known = isProven(case_, view);
      const answered = isAnswer(case_, view);
      const seal = ifonly.say(`view.seal.${case_.answer ? (known ? "proven" : "not proven") : "no answer"}`);
      const sealed = view.alternative === null && !(budget && budget.max_changes === 0);
      const words = view.alternative === null || !case_.answer
        ? claim(ifonly.certificate(case_, budget), sealed)
        : ifonly.say("view.alternative of", {
            number: view.alternative + 1, count: case_.answer.alternatives.length, best: ifonly.outcome(case_.answer.best.outcome),
          });
      fill(places.certificate,
        sealed && !answered && el("span", { class: `seal ${known ? "calm" : "open"}` }, seal), ` ${words}`);
      fill(places.badge, answered && ifonly.badge(case_.answer.badge));
      this.drawChangeLines(course);
      const items = (messages) => messages.map((message) => el("li", {}, ifonly.sentence(message)));
      const about = ifonly.say("view.about", { changes: ifonly.plural(case_.question.max_changes, "change") });
      const elsewhere = case_.answer && !(course && this.isBest(course));
      fill(places.grave, ifonly.cautionBox(case_.model.caution));
      this.drawCautions(items([...case_.cautions]), elsewhere && el("p", { class: "note" }, about));
      places.assumptions.replaceChildren(...items([...case_.question.goals, ...case_.question.rules, ...case_.assumptions]));
      places.outcomes.replaceChildren(...this.rows().map((row) => el("div", { class: `outcome ${row.kind}` },
        el("dt", {}, ifonly.sample(row.kind), outcomeName(case_, view, row)),
        el("dd", {}, el("span", { class: "value" }, ifonly.outcome(row.course.outcome)),
          row.kind !== "observed" && el("span", { class: "shift" }, shiftWords(case_, view, row))))));
    }

    /** What is changed, in words; of many changes the first ones. */
    drawChangeLines(course) {
      const changes = course ? course.changes : [];
      const rest = changes.length > LINES ? changes.length - LINES + 1 : 0;
      const lines = changes.slice(0, changes.length - rest).map((change) => ifonly.changeLine(this.case, change));
      if (rest) lines.push(ifonly.say("view.more changes listed", { count: rest }));
      this.places.changes.hidden = !lines.length;
      fill(this.places.changes, ...lines.map((line) => el("li", {}, line)));
    }

    /** Folded, and as they were left; on paper, where nothing can be unfolded, in full. */
    drawCautions(items, about) {
      const { cautions } = this.places;
      const parts = [about, el("ul", {}, items)].filter(Boolean);
      const open = cautions.querySelector("details")?.open || document.documentElement.classList.contains("printing");
      const said = ifonly.say("view.cautions", { cautions: ifonly.plural(items.length, "caution") });
      fill(cautions, items.length && el("details", { open }, el("summary", {}, said), parts));
    }

    /** The sentence about the answer, not about other sequences that may be shown; the rest only if it is unfolded. */
    drawTrust() {
      const { case: case_, places } = this;
      const { evidence } = case_;
      const text = ifonly.sentence(evidence.statement);
      const words = evidence.examined ? this.aboutAnswer(text) : text;
      ifonly.setText(this.evidenceLine, words);
      const warnings = ifonly.plural(evidence.warnings.length, "warning");
      ifonly.setText(this.evidenceParts.firstChild,
        evidence.warnings.length ? ifonly.say("view.evidence warned", { warnings }) : ifonly.say("view.evidence"));
      fill(this.warnings, ...evidence.warnings.map((message) => el("li", {}, ifonly.sentence(message))));
      this.fillEvidence();
      const support = this.view.own && this.view.own.support;
      fill(places.tried, support && el("p", {}, ifonly.sentence({ code: "view.tried", values: { text: support.summary } })), support && ifonly.supportList(support));
    }

    /** A sentence about the answer, which says so where another course is shown. */
    aboutAnswer(text) {
      const { case: case_ } = this;
      const course = this.course();
      if (!case_.answer || !course || this.isBest(course)) return text;
      return ifonly.say("view.about sentence", { changes: ifonly.plural(case_.question.max_changes, "change"), text });
    }

    fillEvidence() {
      if (this.evidenceParts.open) ifonly.fillEvidence(this.evidenceParts.lastChild, this.case, (title) => this.heading(1, title));
    }

    drawBudget() {
      const { case: case_, view, places } = this;
      const most = case_.answer ? case_.answer.budgets.length - 1 : 0;
      if (most < 1) {
        places.budget.replaceChildren();
        return;
      }
      const said = view.k === 0 ? ifonly.say("page.none") : ifonly.say("count.at most", { count: view.k });
      if (this.range && places.budget.contains(this.range)) {
        Object.assign(this.range, { max: most, value: view.k });
        this.range.setAttribute("aria-valuetext", said);
        ifonly.setText(this.said, said);
        this.ticks.replaceChildren(...tickMarks(most));
        return;
      }
      const id = `budget-${(unique += 1)}`;
      this.range = el(
        "input", { type: "range", id, min: 0, max: most, step: 1, value: view.k, "aria-valuetext": said },
      );
      this.said = el("output", { for: id }, said);
      this.ticks = el("span", { class: "ticks", "aria-hidden": "true" }, tickMarks(most));
      this.range.addEventListener("input", () => this.choose({ k: Number(this.range.value), alternative: null }));
      places.budget.replaceChildren(
        el("label", { for: id }, ifonly.say("view.budget")), el("span", { class: "track" }, this.range, this.ticks),
        this.said,
      );
    }

    drawPager() {
      const { case: case_, view, places } = this;
      const count = case_.answer ? case_.answer.alternatives.length : 0;
      const focused = document.activeElement?.dataset?.pager;
      if (count < 2) {
        places.pager.replaceChildren();
        return;
      }
      const at = view.alternative;
      const go = (to) => () => this.page(to);
      const button = (name, sign, to, off) => el("button", {
        type: "button", class: "quiet", "aria-label": name, "data-pager": name, disabled: off, on: { click: go(to) },
      }, sign);
      fill(places.pager,
        el("span", { class: "pager-name" }, ifonly.say("view.alternatives")),
        button(ifonly.say("view.previous alternative"), "\u2039", at === null ? 0 : at - 1, at === null || at === 0),
        el("span", { class: "pager-at" }, at === null
          ? ifonly.say("view.alternatives found", { count }) : ifonly.say("view.alternative at", { number: at + 1, count })),
        button(ifonly.say("view.next alternative"), "\u203a", at === null ? 0 : at + 1, at === count - 1),
        at !== null && el("button", {
          type: "button", class: "link", "data-pager": "best", on: { click: go(null) },
        }, ifonly.say("view.back to best")));
      if (focused) {
        const usable = [...places.pager.querySelectorAll("button:not(:disabled)")];
        (usable.find((one) => one.dataset.pager === focused) || usable[0])?.focus();
      }
    }

    /** Show an alternative, or with null the best, both for the most changes allowed. */
    page(alternative) {
      this.choose({ k: firstView(this.case).k, alternative });
    }

    choose(change) {
      const view = { ...this.view, ...change };
      if (this.options.onView) this.options.onView(view);
      else this.show(this.case, view);
    }

    /** Values of one feature along a course, which has only the dynamic ones. */
    values(feature, course) {
      if (course === this.case.observed || feature.kind !== "dynamic") return feature.observed;
      const index = this.case.features.filter((one) => one.kind === "dynamic").indexOf(feature);
      return course.states.map((state) => state[index]);
    }

    /** Everything that a feature's axis must hold, whichever course is shown. */
    within(feature) {
      const { answer } = this.case;
      const courses = [
        this.case.observed, this.view.own,
        ...(answer ? [answer.best, ...answer.alternatives, ...answer.budgets.map((budget) => budget.course)] : []),
      ];
      return courses.filter(Boolean).flatMap(
        (course) => [...this.values(feature, course), ...(organValues(feature, course) || [])],
      );
    }

    /** The best course has its cautions at the top of the page. */
    isBest(course) {
      const best = this.case.answer?.best;
      return Boolean(best) && best.actions.join() === course.actions.join();
    }

    changedTimes() {
      const course = this.view.own || this.course();
      return course ? course.changes.map((change) => this.case.time.at[change.step]) : [];
    }

    /** What a feature's chart shows: every course, and thin the score that its organs make. */
    seriesOf(feature) {
      return this.rowsOf(feature).flatMap(({ kind, name, course }) => {
        const organs = organValues(feature, course);
        return [
          { kind, name, values: this.values(feature, course), origins: kind === "observed" ? feature.origins : null },
          organs && { kind, name: ifonly.say("view.by organs", { course: name }), values: organs, thin: true },
        ].filter(Boolean);
      });
    }

    chart(place, feature, size) {
      const series = this.seriesOf(feature);
      place.setAttribute("role", "img");
      place.setAttribute("aria-label", ifonly.chartWords(feature, series));
      ifonly.featureChart(place, {
        times: this.case.time.at, series, within: this.within(feature), changed: this.changedTimes(),
        limits: feature.plausible, unit: ifonly.unit(feature.unit), momentWord: ifonly.timeTitle(this.case), ...size,
      });
    }

    drawBoard() {
      const { case: case_, places } = this;
      const board = places.board;
      const steps = case_.time.at.length;
      const paper = document.documentElement.classList.contains("printing");
      const sizes = paper ? PAPER : SCREEN;
      const column = Math.max(
        case_.treatments.axes.length ? sizes.doses : sizes.names, (board.clientWidth - sizes.label) / steps,
      );
      const width = sizes.label + column * steps;
      // Paper does not scroll: a long course is made smaller instead.
      board.style.setProperty("zoom", paper && width > board.clientWidth ? String(board.clientWidth / width) : "1");
      const focused = document.activeElement?.dataset?.key;
      const scrolled = board.scrollLeft;
      const features = primaryFeatures(case_);
      const height = features.length > 1 || paper ? 180 : 250;
      const edges = { l: sizes.label, r: 0, t: 14, b: 8 };
      const charts = features.map((feature) => {
        const key = `board-${feature.name}`;
        this.places[key] = this.places[key] || el("div", { class: "chart" });
        return el("div", { class: "board-chart", style: { width: `${width}px`, height: `${height}px` } },
          this.places[key], scale(feature, ifonly.span(this.within(feature)), { label: sizes.label, height, edges }));
      });
      const table = ifonly.lanesTable(case_, this.rows(), {
        label: sizes.label, column, onCell: this.options.onCell, marks: this.options.marks ? this.options.marks() : {},
        caption: ifonly.say("view.lanes"),
      });
      board.replaceChildren(...charts, table);
      features.forEach((feature) => this.chart(this.places[`board-${feature.name}`], feature, {
        width, height, pad: 0.5, margin: edges, levels: ifonly.roundValues(ifonly.span(this.within(feature)), LEVELS),
      }));
      board.scrollLeft = scrolled;
      if (focused) board.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
    }

    drawCharts() {
      const { case: case_, places } = this;
      const primary = primaryFeatures(case_);
      fill(places.legend, ...this.rows().map((row) => key(ifonly.sample(row.kind), row.name)),
        this.changedTimes().length && key(el("span", { class: "rule-sample", "aria-hidden": "true" }), ifonly.say("view.changed step")));
      this.drawMarks();
      // A board that scrolls shows a part of its course only: then the whole of it is among the small charts.
      const scrolls = places.board.scrollWidth > places.board.clientWidth + 1;
      const small = (feature) => feature.kind === "dynamic" && (scrolls || !primary.includes(feature));
      const others = this.rows().filter((row) => !this.isBest(row.course));
      ifonly.setText(places.implausible, ifonly.implausibleWords(case_, others));
      const dynamic = case_.features.filter(small);
      places.legend.hidden = !dynamic.length;
      this.grid(places.charts, dynamic, scrolls ? primary : []);
      const context = case_.features.filter((feature) => feature.kind === "contextual");
      if (context.length && !places.context.children.length) {
        const inside = el("div", { class: "charts" });
        const folded = el(
          "details", {}, el("summary", {}, ifonly.say("view.circumstances", { count: context.length })), inside,
        );
        folded.addEventListener("toggle", () => folded.open && this.grid(inside, context));
        places.context.append(folded);
      } else if (places.context.querySelector("details[open]")) {
        this.grid(places.context.querySelector(".charts"), context);
      }
    }

    /** What the marks of recorded values and thin lines mean, and what the organs say of the answer. */
    drawMarks() {
      const { case: case_, places } = this;
      const known = new Set(case_.features.flatMap((feature) => feature.origins || []));
      const scored = case_.observed.scores.length > 0;
      fill(places.marks,
        ...(known.size ? ["measured", "carried", "assumed"] : []).filter((origin) => known.has(origin))
          .map((origin) => key(ifonly.markSample(origin), ifonly.say(`origin.${origin}`))),
        scored && key(el("span", { class: "thin-sample", "aria-hidden": "true" }), ifonly.say("view.thin", {
          scores: case_.observed.scores.map((score) => score.feature),
        })));
      places.marks.hidden = !places.marks.children.length;
      const [said] = case_.evidence.organs;
      ifonly.setText(places.organs, said ? this.aboutAnswer(ifonly.sentence(said)) : "");
    }

    /** Small charts; those of `whole` are as wide as the page. */
    grid(place, features, whole = []) {
      if (place.children.length !== features.length) {
        place.replaceChildren(...features.map((feature) => el("figure", { class: whole.includes(feature) ? "whole" : "" },
          el("figcaption", {}, el("span", { class: "feature" }, feature.name),
            el("span", { class: "unit" }, ifonly.unit(feature.unit)), el("span", { class: "unit limits" })),
          el("div", { class: "chart" }))));
      }
      const widths = [...place.children].map((figure) => figure.clientWidth);
      features.forEach((feature, index) => {
        const figure = place.children[index];
        ifonly.setText(figure.querySelector(".limits"), ifonly.limitWords(feature, this.within(feature)));
        this.chart(figure.querySelector(".chart"), feature, { width: widths[index], height: 150 });
      });
    }

    drawAnswer() {
      const { case: case_, places, view } = this;
      const answer = case_.answer;
      if (!answer) {
        places.answer.replaceChildren();
        this.answerParts = null;
        return;
      }
      if (!this.answerParts) {
        this.answerParts = {
          frontier: el("div", { class: "chart" }), frontierTable: el("div", { class: "wide" }),
          changes: el("div", { class: "wide" }), alternatives: el("div", { class: "wide" }),
        };
        const parts = this.answerParts;
        const named = el("p", { class: "note" }, ifonly.capital(case_.question.outcome));
        parts.title = this.heading(1);
        places.answer.replaceChildren(
          el("section", { class: "contributions" }, this.heading(1, ifonly.say("view.contributions")), parts.changes),
          el("section", { class: "frontier" }, this.heading(1, ifonly.say("view.frontier")),
            el("div", { class: "side-by-side" }, el("div", {}, named, parts.frontier), parts.frontierTable)),
          el("section", { class: "alternatives" }, parts.title, parts.alternatives));
      }
      const parts = this.answerParts;
      places.answer.querySelector(".frontier").hidden = answer.budgets.length < 2;
      places.answer.querySelector(".alternatives").hidden = answer.alternatives.length < 2;
      const chosen = view.alternative === null ? view.k : null;
      parts.changes.replaceChildren(ifonly.contributionsTable(case_));
      parts.frontierTable.replaceChildren(ifonly.frontierTable(case_, chosen));
      parts.frontier.setAttribute("role", "img");
      parts.frontier.setAttribute("aria-label", ifonly.say("view.frontier chart"));
      if (answer.budgets.length > 1) {
        const width = parts.frontier.clientWidth;
        ifonly.frontierChart(
          parts.frontier, { budgets: answer.budgets, chosen, width, height: 220, question: case_.question },
        );
      }
      const count = answer.alternatives.length;
      const apart = answer.result.provenance.solver.apart || 1;
      const title = ifonly.say(answer.alternatives_proven ? "view.best sequences" : "view.best sequences found", { count });
      ifonly.setText(parts.title, apart > 1 ? ifonly.say("view.sequences apart", { title, apart }) : title);
      parts.alternatives.replaceChildren(ifonly.alternativesTable(case_, view.alternative, (index) => this.page(index)));
    }

    drawMethod() {
      const lines = ifonly.methodLines(this.case).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]);
      this.places.method.replaceChildren(el("summary", {}, ifonly.say("view.method")), el("dl", {}, lines));
    }

    valuesTable() {
      return ifonly.valuesTable(this.case, this.case.features.flatMap((feature) =>
        this.seriesOf(feature).map((one) => ({ feature, ...one }))));
    }
  }

  /** An entry of a legend. */
  function key(sample, name) {
    return el("span", { class: "key" }, sample, name);
  }

  /** The values of a score along a course as its organs make it, or null. */
  function organValues(feature, course) {
    const score = course.scores.find((one) => one.feature === feature.name);
    return score ? score.values : null;
  }

  /** Put children into a place, leaving out what is not there. */
  function fill(place, ...children) {
    place.replaceChildren(...children.filter(Boolean));
  }

  /** The name and the y axis of a chart on the board: they stay when the board scrolls. */
  function scale(feature, range, { label, height, edges }) {
    const [low, high] = range;
    const place = (value) => edges.t + ((high - value) / (high - low)) * (height - edges.t - edges.b);
    return el("div", {
      class: "board-label", "aria-hidden": "true", style: { width: `${label}px`, height: `${height}px` },
    },
      el("span", { class: "feature" }, feature.name), el("span", { class: "unit" }, ifonly.unit(feature.unit)),
      ifonly.roundValues(range, LEVELS).map((value) =>
        el("span", { class: "level", style: { top: `${place(value)}px` } }, ifonly.trimmed(value))));
  }

  function tickMarks(most) {
    if (most > 12) return [el("span", {}, "0"), el("span", {}, String(most))];
    return Array.from({ length: most + 1 }, (_, index) => el("span", {}, String(index)));
  }

  function details(title, make) {
    const body = el("div", {});
    const folded = el("details", {}, el("summary", {}, title), body);
    folded.fill = () => body.replaceChildren(make());
    folded.addEventListener("toggle", () => folded.open && folded.fill());
    return folded;
  }

  /** What is claimed, less what the seal beside it says already. */
  function claim(statement, sealed) {
    return ifonly.sentence(sealed && statement.code === "case.not proven" ? statement.values.claim : statement);
  }

  /** What stands beside an outcome: how it moved, by how many changes, and why it is no answer to the question. */
  function shiftWords(case_, view, { kind, course }) {
    const words = [ifonly.moved(course.improvement, case_.question)];
    if (kind === "own" || view.alternative !== null) words.push(ifonly.plural(course.changes.length, "change"));
    const most = case_.question.max_changes;
    if (course.changes.length > most) words.push(ifonly.say("view.more changes", { most }));
    else if (kind === "own" && course.admissible === false) words.push(ifonly.say("view.breaks rule"));
    return words.filter(Boolean).join(", ");
  }

  /** Charts have fixed sizes, so they are drawn to the width of the paper before printing, and back afterwards. */
  function printing(views) {
    const redraw = (on) => () => {
      document.documentElement.classList.toggle("printing", on);
      for (const view of views()) view.draw();
    };
    window.addEventListener("beforeprint", redraw(true));
    window.addEventListener("afterprint", redraw(false));
  }

  Object.assign(ifonly, { CaseView, printing, firstView });
})((window.ifonly = window.ifonly || {}));
