// One case: drawn the same in the report and in the application.
(function (ifonly) {
  "use strict";
  const { el, fill } = ifonly;

  const LINES = 5; // of changes at the top
  let unique = 0;

  class CaseView {
    /**
     * `options`: {level: of the first heading, onCell, onView(view), marks: () => ({step: word}), answers: () => ({first,
     * ruled}), the cases of the first answer and of that under other rules}.
     */
    constructor(root, case_, options) {
      this.root = root;
      this.options = { level: 1, answers: () => ({ first: this.case, ruled: null }), ...options };
      this.case = case_;
      this.view = ifonly.firstView(case_);
      this.places = {};
      this.slots = {};
      this.timeline = new ifonly.Timeline({
        onCell: this.options.onCell, marks: this.options.marks, onSpan: (span) => this.choose({ span }),
      });
      this.compare = new ifonly.Compare({
        heading: (...children) => this.heading(1, ...children), onAlternative: (index) => this.page(index),
        answers: this.options.answers, timeline: this.timeline,
      });
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
      const { case: case_, timeline } = this;
      const id = (unique += 1);
      const section = (name, title, ...children) =>
        el("section", { class: name, "aria-labelledby": `${name}-${id}` },
          Object.assign(this.heading(1, title), { id: `${name}-${id}` }), ...children);
      const upper = el("div", { class: "upper" },
        el("header", { class: "case-head", "data-tour": "claim" },
          el("div", { class: "title-row" }, this.heading(0, case_.episode), this.slot("tools")),
          el("p", { class: "facts" }, ifonly.facts(case_)),
          this.place("grave", "div", {}),
          this.place("headline", "p", { class: "headline", role: "status" }),
          this.place("changes", "ul", { class: "change-lines" }),
          this.place("badge", "div", {}),
          this.place("certificate", "p", { class: "certificate" }),
          this.place("evidence", "div", { class: "evidence" }),
          el("div", { class: "folds" }, this.place("parts", "div", {}), this.place("cautions", "div", { class: "cautions" }))),
        el("div", { class: "outcome-row" }, this.place("outcomes", "dl", { class: "outcomes" }),
          this.place("meaning", "p", { class: "note meaning" })),
        el("div", { class: "controls no-print" }, this.place("budget", "div", { class: "budget" }),
          this.place("pager", "div", { class: "pager" }), timeline.zoom),
        section("course", this.courseTitle(), timeline.board,
          this.options.onCell && el("p", { class: "hint no-print" },
            ifonly.say("view.hint")),
          timeline.marks, this.place("organs", "p", { class: "note organs" })),
        this.place("tried", "div", { class: "tried" }), this.slot("ruled"), this.slot("notice"));
      const lower = el("div", { class: "lower" }, this.compare.place,
        section("features", ifonly.say("view.measurements"), timeline.legend, timeline.implausible, timeline.charts,
          timeline.context, this.place("values", "div", {})),
        this.place("answer", "div", { class: "answer" }),
        section("assumptions", ifonly.say("view.rests on"), this.place("assumptions", "ul", {})),
        this.place("method", "details", { class: "method" }), ifonly.glossary());
      this.root.replaceChildren(el("article", { class: "case" }, upper, this.slot("aside"), lower));
      this.places.values.append(details(ifonly.say("view.values"), () => this.valuesTable()));
      this.evidenceLine = el("p", { class: "evidence-line" });
      this.evidenceParts = el("details", { class: "evidence-parts" }, el("summary", {}, ifonly.say("view.evidence")), el("div", {}));
      this.evidenceParts.addEventListener("toggle", () => this.fillEvidence());
      this.told = el("p", { class: "print-only" });  // on paper nothing can be unfolded
      this.warnings = el("ul", { class: "print-only" });
      this.places.evidence.append(this.evidenceLine, this.told, this.warnings);
      this.places.parts.append(this.evidenceParts);
    }

    courseTitle() {
      const names = ifonly.primaryFeatures(this.case).map((feature) => feature.name);
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
      this.timeline.draw(this.case, this.view);
      this.compare.draw(this.case, this.view);
      this.drawAnswer();
      if (this.described !== this.case) this.drawMethod();
      this.described = this.case;
      for (const one of this.places.values.querySelectorAll("details[open]")) one.fill();
      this.width = this.root.clientWidth;
    }

    /** Charts have fixed sizes: they are drawn again when there is more or less room. */
    resized() {
      if (!this.root.clientWidth || this.width === this.root.clientWidth || this.width === undefined) return;
      this.draw();
    }

    course() {
      return ifonly.courseOf(this.case, this.view);
    }

    drawWords() {
      const { case: case_, view, places } = this;
      const budget = ifonly.budgetOf(case_, view);
      const course = this.course();
      ifonly.setText(
        places.headline, ifonly.headline(case_, course, budget ? budget.max_changes : case_.question.max_changes),
      );
      const known = ifonly.isProven(case_, view);
      const answered = ifonly.isAnswer(case_, view);
      const seal = ifonly.say(`view.seal.${case_.answer ? (known ? "proven" : "not proven") : "no answer"}`);
      const sealed = view.alternative === null && !(budget && budget.max_changes === 0);
      const words = view.alternative === null || !case_.answer
        ? claim(ifonly.certificate(case_, budget), sealed)
        : ifonly.say("view.alternative of", {
            number: view.alternative + 1, count: case_.answer.alternatives.length, best: ifonly.outcome(case_.answer.best.outcome, [case_.observed.outcome, case_.answer.best.outcome]),
          });
      fill(places.certificate,
        sealed && !answered && el("span", { class: `seal ${known ? "calm" : "open"}` }, seal), " ", ...ifonly.withTerms(words));
      fill(places.badge, answered && ifonly.badge(case_.answer.badge));
      this.drawChangeLines(course);
      const items = (messages) => messages.map((message) => el("li", {}, ifonly.sentence(message)));
      const about = ifonly.say("view.about", { changes: ifonly.plural(case_.question.max_changes, "change") });
      const elsewhere = case_.answer && !ifonly.isBest(case_, course);
      fill(places.grave, ifonly.cautionBox(case_.model.caution));
      ifonly.setText(places.meaning, case_.question.meaning ? ifonly.sentence(case_.question.meaning) : "");
      const [organs] = case_.evidence.organs;
      ifonly.setText(places.organs, organs ? this.aboutAnswer(ifonly.sentence(organs)) : "");
      this.drawCautions(items([...case_.cautions]), elsewhere && el("p", { class: "note" }, about));
      places.assumptions.replaceChildren(...items([...case_.question.goals, ...case_.question.rules, ...case_.assumptions]));
      const rows = ifonly.rowsOf(case_, view);
      const shown = rows.map((row) => row.course.outcome);
      places.outcomes.replaceChildren(...rows.map((row) => el("div", { class: `outcome ${row.kind}` },
        el("dt", {}, ifonly.sample(row.kind), ifonly.outcomeName(case_, view, row)),
        el("dd", {}, el("span", { class: "value" }, ifonly.outcome(row.course.outcome, shown)),
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
      const { verdict, told } = ifonly.statementParts(evidence);
      const words = evidence.examined ? this.aboutAnswer(verdict || told) : told;
      if (this.evidenceLine.textContent !== words) fill(this.evidenceLine, ...ifonly.withTerms(words));
      const warnings = ifonly.plural(evidence.warnings.length, "warning");
      ifonly.setText(this.evidenceParts.firstChild,
        evidence.warnings.length ? ifonly.say("view.evidence warned", { warnings }) : ifonly.say("view.evidence"));
      ifonly.setText(this.told, verdict && told);
      fill(this.warnings, ...evidence.warnings.map((message) => el("li", {}, ifonly.sentence(message))));
      this.fillEvidence();
      const support = this.view.own && this.view.own.support;
      fill(places.tried, support && el("p", {}, ifonly.sentence({ code: "view.tried", values: { text: support.summary } })), support && ifonly.supportList(support));
    }

    /** A sentence about the answer, which says so where another course is shown. */
    aboutAnswer(text) {
      const { case: case_ } = this;
      const course = this.course();
      if (!case_.answer || !course || ifonly.isBest(case_, course)) return text;
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
      this.choose({ k: ifonly.firstView(this.case).k, alternative });
    }

    choose(change) {
      const view = { ...this.view, ...change };
      if (this.options.onView) this.options.onView(view);
      else this.show(this.case, view);
    }

    drawAnswer() {
      const { case: case_, places, view } = this;
      const answer = case_.answer;
      if (!answer) {
        places.answer.replaceChildren();
        this.answerParts = null;
        return;
      }
      this.answerParts = this.answerParts || this.makeAnswerParts();
      const parts = this.answerParts;
      if (parts.case !== case_) this.fillAnswerParts(parts);
      const chosen = view.alternative === null ? view.k : null;
      const look = [case_, chosen, parts.frontier.clientWidth, ifonly.scheme()];
      if (answer.budgets.length < 2 || look.every((one, index) => one === parts.look?.[index])) return;
      fill(parts.frontierTable, ifonly.frontierTable(case_, chosen));
      this.timeline.add(() => {
        parts.look = look;
        ifonly.frontierChart(parts.frontier, {
          budgets: answer.budgets, chosen, width: parts.frontier.clientWidth, height: 220, question: case_.question,
        });
      });
    }

    makeAnswerParts() {
      const div = (name) => el("div", { class: name });
      const parts = { frontier: div("chart"), frontierTable: ifonly.wide(), changes: ifonly.wide(), sources: ifonly.wide() };
      parts.frontier.setAttribute("role", "img");
      parts.frontier.setAttribute("aria-label", ifonly.say("view.frontier chart"));
      const section = (name, ...children) => el("section", { class: name }, this.heading(1, ifonly.say(`view.${name}`)), ...children);
      const named = el("p", { class: "note" }, ifonly.capital(this.case.question.outcome));
      parts.sections = {
        contributions: section("contributions", parts.changes), sources: section("sources", parts.sources),
        frontier: section("frontier", el("div", { class: "side-by-side" }, el("div", {}, named, parts.frontier), parts.frontierTable)),
      };
      fill(this.places.answer, ...Object.values(parts.sections));
      return parts;
    }

    fillAnswerParts(parts) {
      const { case: case_ } = this;
      parts.case = case_;
      fill(parts.changes, ifonly.contributionsTable(case_));
      const sources = ifonly.sourcesTable(case_);
      fill(parts.sources, sources);
      parts.sections.sources.hidden = !sources;
      parts.sections.frontier.hidden = case_.answer.budgets.length < 2;
    }

    drawMethod() {
      const lines = ifonly.methodLines(this.case).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]);
      this.places.method.replaceChildren(el("summary", {}, ifonly.say("view.method")), el("dl", {}, lines));
    }

    valuesTable() {
      const { case: case_, view } = this;
      const rows = ifonly.rowsOf(case_, view);
      return ifonly.valuesTable(case_, case_.features.flatMap((feature) =>
        ifonly.seriesOf(case_, feature, rows).map((one) => ({ feature, ...one }))));
    }
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

  Object.assign(ifonly, { CaseView });
})((window.ifonly = window.ifonly || {}));
