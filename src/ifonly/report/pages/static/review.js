// The case page of the application: what is shown, tried and ruled, with a link and an undo for all of it.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  const SECONDS = 60;

  class Review {
    constructor(root, case_, about, reviews) {
      this.recorded = case_;
      this.past = [];
      this.courses = new Map();
      this.state = this.firstState();
      this.view = new ifonly.CaseView(root, case_, {
        level: 1,
        onCell: (step, axis, kind) => this.openDose(step, axis, kind),
        onView: ({ k, alternative, span }) => this.change({ k, alternative, span }, span === this.state.span ? "view" : "span"),
        marks: () => ({ ...(this.noteCard ? this.noteCard.marks() : {}), ...ifonly.ruleMarks(this.state.rules) }),
        answers: () => ({ first: this.recorded, ruled: this.state.solved ? this.state.solved.case : null }),
      });
      this.tools();
      this.rulesCard = new ifonly.RulesCard(this.view.slots.aside, case_, {
        asked: () => this.asked(),
        isAnswered: () => this.state.solved !== null && !this.isOutdated(),
        onAsked: (part) => this.change(part),
        onSolved: (solved) => this.change({ solved, k: ifonly.firstView(solved.case).k, alternative: null }),
      }, (about && about.limits && about.limits.seconds) || SECONDS);
      this.noteCard = new ifonly.NoteCard(
        this.view.slots.aside, case_, reviews || [], (about && about.limits) || {}, () => this.draw(),
      );
      document.addEventListener("keydown", (event) => {
        const typing = event.target.matches("input:not([type=range], [type=radio], [type=checkbox]), textarea");
        if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !event.shiftKey && !typing) {
          event.preventDefault();
          this.undo();
        }
      });
    }

    firstState() {
      const { k } = ifonly.firstView(this.recorded);
      const asked = Math.min(this.recorded.question.max_changes, this.recorded.time.at.length);
      const apart = this.recorded.question.query.solver?.apart || 1; // as the question says
      return { k, alternative: null, span: null, actions: null, rules: [], most: asked, apart, solved: null };
    }

    /** What a search would be asked now. */
    asked() {
      const { rules, most, apart } = this.state;
      return { rules, most, apart };
    }

    /** The case whose answer is shown: the run's, or that of the search under the reviewer's rules. */
    shown() {
      return this.state.solved ? this.state.solved.case : this.recorded;
    }

    /** Whether the rules are no longer those of the answer that is shown. */
    isOutdated() {
      const { solved } = this.state;
      return solved !== null && JSON.stringify(solved.asked) !== JSON.stringify(this.asked());
    }

    /** Change the state, remember the one before, draw and keep the address in step. */
    change(part, kind) {
      // A slider that is dragged makes one step to undo, not one per notch.
      if (!(kind === "view" && this.lastKind === "view")) this.past.push(this.state);
      this.lastKind = kind;
      this.state = { ...this.state, ...part };
      this.draw();
    }

    undo() {
      if (!this.past.length) return;
      this.state = this.past.pop();
      this.lastKind = null;
      this.draw();
    }

    reset() {
      this.change(this.firstState());
    }

    draw() {
      const { state } = this;
      const key = state.actions && state.actions.join(",");
      const own = key ? this.courses.get(key) || null : null;
      this.view.show(
        this.shown(), { k: state.k, alternative: state.alternative, span: state.span, own: own || (key ? this.lastOwn : null) || null },
      );
      if (own) this.lastOwn = own;
      if (key && !own) this.fetchCourse(key);
      if (!key) this.lastOwn = null;
      this.rulesCard.draw();
      this.drawNotice(own);
      this.undoButton.disabled = !this.past.length;
      this.resetButton.disabled = this.query() === ifonly.query({ episode: this.recorded.episode });
      history.replaceState(null, "", `?${this.query()}`);
      this.drawExports();
    }

    async fetchCourse(key) {
      if (this.asking === key) return;
      this.asking = key;
      try {
        const course = await ifonly.ask(
          "/api/course",
          { method: "POST", body: { episode: this.recorded.episode, actions: key.split(",").map(Number) } },
        );
        this.courses.set(key, course);
      } catch (problem) {
        // What cannot be worked out is not kept: the version before, if there was one, is still the one shown.
        const before = this.lastOwn ? this.lastOwn.actions : null;
        if (this.isTrying(key)) this.state = { ...this.state, actions: before };
        this.draw();
        this.view.slots.notice.prepend(ifonly.problemBox(problem));
        return;
      } finally {
        this.asking = null;
      }
      if (this.isTrying(key)) this.draw();
    }

    isTrying(key) {
      return this.state.actions !== null && this.state.actions.join(",") === key;
    }

    drawNotice(own) {
      const { view } = this;
      ifonly.fill(view.slots.ruled, this.state.solved && this.ruledNotice());
      ifonly.fill(view.slots.notice, this.state.actions && this.triedNotice(own));
    }

    ruledNotice() {
      const { state: { solved }, recorded } = this;
      const changes = ifonly.plural(solved.case.question.max_changes, "change");
      const rules = solved.asked.rules.map((rule) => ifonly.ruleWords(recorded, rule)).join("; ") || ifonly.say("page.none");
      return el("div", { class: "notice" },
        el("p", {}, ifonly.say(this.isOutdated() ? "review.outdated" : "review.shown", { changes, rules }),
          ` ${ifonly.priceWords({ first: recorded, ruled: solved.case })}`,
          solved.again ? ` ${ifonly.say("review.again")}` : ""),
        el("button", {
          type: "button", class: "no-print",
          on: { click: () => this.change({ solved: null, k: ifonly.firstView(recorded).k, alternative: null }) },
        }, ifonly.say(recorded.answer !== null ? "review.back" : "review.put away")));
    }

    /** What a tried dose does; `own`: the course, or null while it is worked out. */
    triedNotice(own) {
      const { question } = this.recorded;
      const words = own ? [
        ifonly.say("review.own", {
          outcome: question.outcome, shown: ifonly.outcome(own.outcome, [this.recorded.observed.outcome, own.outcome]), moved: ifonly.movedWords(own.improvement, question),
          changes: ifonly.plural(own.changes.length, "change"),
        }), own.support && ifonly.sentence(own.support.summary),
      ].filter(Boolean).join(" ") : ifonly.say("review.working");
      return el("div", { class: "notice" }, el("p", { role: "status" }, words),
        el("button", {
          type: "button", class: "no-print", on: { click: () => this.change({ actions: null }) },
        }, ifonly.say("review.discard")));
    }

    openDose(step, axis, kind) {
      const { state, view } = this;
      const course = view.course();
      const from = state.actions || (kind === "best" && course ? course.actions : this.recorded.observed.actions);
      ifonly.openDoseDialog({
        case: this.recorded, step, axis, current: from[step],
        courses: ifonly.rowsOf(view.case, view.view).map((row) => ({
          name: row.name, actions: row.kind === "own" ? state.actions || row.actions : row.actions,
        })),
        locked: state.rules.some((rule) => rule[0] === "lock" && rule[1] === step),
        onDose: (action) => this.change({ actions: from.map((one, at) => (at === step ? action : one)) }),
        onRule: (rule) => this.change({ rules: ifonly.withRule(state.rules, rule) }),
        remark: this.noteCard.remarkOn(step),
        onRemark: (text) => this.noteCard.remark(step, text),
        onUnrule: (rule) => this.change({ rules: ifonly.without(state.rules, rule) }),
      });
    }

    tools() {
      this.undoButton = el("button", { type: "button", on: { click: () => this.undo() } }, ifonly.say("review.undo"));
      this.resetButton = el("button", { type: "button", on: { click: () => this.reset() } }, ifonly.say("review.reset"));
      this.copied = el("span", { class: "note", role: "status" });
      this.exports = el("div", { class: "menu" });
      const menu = el("details", {}, el("summary", {}, ifonly.say("review.export")), this.exports);
      document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
      menu.addEventListener("keydown", (event) => {
        if (event.key !== "Escape") return;
        menu.open = false;
        menu.firstChild.focus();
      });
      this.view.slots.tools.append(this.undoButton, this.resetButton,
        el("button", { type: "button", on: { click: () => this.copyLink() } }, ifonly.say("review.copy")), menu, this.copied);
    }

    drawExports() {
      const { state } = this;
      const parameters = {
        episode: this.recorded.episode, actions: state.actions && state.actions.join(","),
        job: state.solved && state.solved.job,
      };
      this.exports.replaceChildren(...["html", "pdf", "slide.svg", "slide.png", "png", "json"].map((kind) => el(
        "a", { href: `/api/export?${ifonly.query({ ...parameters, kind })}`, download: "" }, ifonly.say(`review.export.${kind}`),
      )));
    }

    /** The view as an address; what is as it was at first is left out. */
    query() {
      const { state } = this;
      const first = this.firstState();
      return ifonly.query({
        episode: this.recorded.episode,
        k: state.k === first.k && !state.solved ? null : state.k,
        alternative: state.alternative === null ? null : state.alternative + 1,
        time: state.span && state.span.join("-"),
        actions: state.actions && state.actions.join(","),
        rules: state.rules.length ? JSON.stringify(state.rules) : null,
        most: state.most === first.most ? null : state.most,
        apart: state.apart === first.apart ? null : state.apart,
        job: state.solved && state.solved.job,
        asked_rules: this.isOutdated() ? JSON.stringify(state.solved.asked.rules) : null,
        asked_most: this.isOutdated() ? state.solved.asked.most : null,
        asked_apart: this.isOutdated() ? state.solved.asked.apart : null,
      });
    }

    /** Take up the view that an address describes. */
    async restore(address) {
      const given = new URLSearchParams(address);
      const case_ = this.recorded;
      const whole = (name, end) => {
        const value = Number(given.get(name) ?? NaN);
        return Number.isInteger(value) && value >= 0 && value <= end ? value : null;
      };
      const actions = (given.get("actions") || "").split(",").map(Number);
      const known = (action) => Number.isInteger(action) && Boolean(case_.treatments.actions[action]);
      const fits = actions.length === case_.time.at.length && actions.every(known);
      const chosen = () => {
        const answer = this.shown().answer;
        const k = whole("k", answer ? answer.budgets.length - 1 : 0);
        const alternative = whole("alternative", answer ? answer.alternatives.length : 0);
        return {
          k: k === null ? ifonly.firstView(this.shown()).k : k, alternative: alternative ? alternative - 1 : null,
          span: spanFrom(given.get("time"), case_.time.at.length),
        };
      };
      const first = this.firstState();
      this.state = {
        ...first, actions: fits ? actions : null, rules: ifonly.rulesFromText(case_, given.get("rules") || "[]"),
        most: whole("most", case_.time.at.length) ?? first.most,
        apart: whole("apart", case_.time.at.length) || first.apart,
      };
      if (given.get("job")) {
        const { rules, most, apart } = this.state;
        const earlier = given.get("asked_rules");
        this.draw();
        await this.rulesCard.solve(given.get("job"), {
          rules: earlier === null ? rules : ifonly.rulesFromText(case_, earlier),
          most: whole("asked_most", case_.time.at.length) ?? most,
          apart: whole("asked_apart", case_.time.at.length) || apart,
        });
      }
      this.state = { ...this.state, ...chosen() };
      this.past = [];
      this.draw();
    }

    async copyLink() {
      const address = location.href;
      try {
        await navigator.clipboard.writeText(address);
        this.copied.textContent = ifonly.say("review.copied");
        setTimeout(() => { this.copied.textContent = ""; }, 4000);
      } catch {
        const field = el("input", { type: "text", readonly: true, value: address, "aria-label": ifonly.say("review.link") });
        this.copied.replaceChildren(field);
        field.focus();
        field.select();
      }
    }
  }

  /** The steps that an address names as "2-7"; null where it names none that there are. */
  function spanFrom(text, steps) {
    const found = /^(\d{1,4})-(\d{1,4})$/.exec(text || "");
    const [first, last] = found ? [Number(found[1]), Number(found[2])] : [0, 0];
    return first < last && last < steps ? [first, last] : null;
  }

  /** Back to the list as it was, and on to its next case. */
  function neighbours(episode) {
    let list = null;
    try {
      list = JSON.parse(sessionStorage.getItem(ifonly.LIST) || "null");
    } catch {
      list = null;
    }
    const back = document.getElementById("back");
    if (!list || !back || !Array.isArray(list.episodes)) return;
    back.href = `/${list.query ? `?${list.query}` : ""}`;
    const at = list.episodes.indexOf(episode);
    const link = (to, words) => to && el("a", { href: `/case?${ifonly.query({ episode: to })}` }, words);
    if (at >= 0) back.after(...[
      link(list.episodes[at - 1], ifonly.say("page.previous case")), link(list.episodes[at + 1], ifonly.say("page.next case")),
    ].filter(Boolean));
  }

  function start() {
    const root = document.getElementById("case");
    if (!root) return;
    const case_ = ifonly.embedded("case-data");
    ifonly.review = new Review(root, case_, ifonly.embedded("about-data"), ifonly.embedded("reviews-data"));
    ifonly.printing(() => [ifonly.review.view]);
    neighbours(case_.episode);
    ifonly.review.restore(location.search);
    ifonly.tour();
  }

  document.addEventListener("DOMContentLoaded", start);
})((window.ifonly = window.ifonly || {}));
