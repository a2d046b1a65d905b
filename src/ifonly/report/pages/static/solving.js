// The card of rules, and the search under them: progress, a stop button, the bracket so far.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  const PAUSE = 350;
  const ENDED = ["finished", "stopped", "failed"];

  class RulesCard {
    /**
     * `hooks`: {asked() (rules, most, apart), isAnswered() (whether the answer to that is shown), onAsked(part),
     * onSolved({job, case, asked, again})}; `seconds`: the search's limit.
     */
    constructor(place, case_, hooks, seconds) {
      this.case = case_;
      this.hooks = hooks;
      this.seconds = seconds;
      this.job = null;
      this.list = el("ul", { class: "rules" });
      this.none = el("p", { class: "note" }, ifonly.say("search.no rules"));
      this.limits = el("div", { class: "fields" });
      this.most = el("input", {
        type: "number", id: "most", min: 0, max: case_.time.at.length, step: 1, inputmode: "numeric",
        on: { change: () => this.setNumbers() },
      });
      this.apart = el("input", {
        type: "number", id: "apart", min: 1, max: case_.time.at.length, step: 1, inputmode: "numeric",
        on: { change: () => this.setNumbers() },
      });
      this.start = el(
        "button", { type: "button", class: "main", on: { click: () => this.solve() } },
        ifonly.say("search.start"),
      );
      this.progress = el("div", { class: "progress", hidden: true });
      this.status = el("p", { role: "status", class: "note" });
      this.trouble = el("div", {});
      place.append(el("section", { class: "card", "aria-labelledby": "rules-title" },
        el("h2", { id: "rules-title" }, ifonly.say(case_.answer ? "search.title again" : "search.title")),
        this.list, this.none,
        case_.treatments.axes.length ? el("details", {}, el("summary", {}, ifonly.say("search.limits")), this.limits) : null,
        el("div", { class: "fields" }, el("label", { for: "most" }, ifonly.say("search.most")), this.most,
          el("label", { for: "apart" }, ifonly.say("search.apart")), this.apart),
        el("div", { class: "asking" }, this.start, this.progress, this.status, this.trouble)));
      window.addEventListener("pagehide", () => {
        if (this.job) ifonly.ask(
          `/api/jobs/${encodeURIComponent(this.job)}/stop`, { method: "POST", keepalive: true },
        ).catch(() => {});
      });
    }

    draw() {
      const { rules, most, apart } = this.hooks.asked();
      const given = this.case.question.rules.map((rule) => el("li", { class: "fixed" }, ifonly.say(rule)));
      this.list.replaceChildren(...given, ...rules.map((rule) => {
        const words = ifonly.ruleWords(this.case, rule);
        return el("li", {}, el("span", {}, words), el("button", {
          type: "button", class: "link", "aria-label": ifonly.say("search.remove rule", { rule: words }),
          on: { click: () => { this.hooks.onAsked({ rules: ifonly.without(this.hooks.asked().rules, rule) }); this.start.focus(); } },
        }, ifonly.say("search.remove")));
      }));
      if (!this.job && !this.hooks.isAnswered()) this.tell("");
      if (this.refused && this.refused !== JSON.stringify(this.hooks.asked())) this.clearTrouble();
      this.list.hidden = !this.list.children.length;
      this.none.hidden = rules.length > 0;
      if (document.activeElement !== this.most) this.most.value = most;
      if (document.activeElement !== this.apart) this.apart.value = apart;
      if (!this.limits.contains(document.activeElement)) this.drawLimits(rules);
    }

    drawLimits(rules) {
      this.limits.replaceChildren(...this.case.treatments.axes.flatMap((axis, index) =>
        ["jump", "shift"].flatMap((kind) => {
          const id = `${kind}-${index}`;
          const set = rules.find((rule) => rule[0] === kind && rule[1] === index);
          const choose = (event) => {
            const value = event.target.value;
            const rule = [kind, index, Number(value)];
            const now = this.hooks.asked().rules;
            this.hooks.onAsked({ rules: value === "" ? ifonly.without(now, rule) : ifonly.withRule(now, rule) });
          };
          const option = (value, text) => el(
            "option", { value, selected: set ? set[2] === value : value === "" }, text,
          );
          return [el("label", { for: id }, ifonly.say(`search.${kind}`, { axis: ifonly.capital(axis.name) })),
            el("select", { id, on: { change: choose } }, option("", ifonly.say("search.no limit")),
              axis.levels.slice(0, -1).map((_, most) => option(most, most === 0 ? ifonly.say("page.none") : ifonly.say("search.levels", { most }))))];
        })));
    }

    /** A refusal stands as long as what was refused does. */
    clearTrouble() {
      this.refused = null;
      this.trouble.replaceChildren();
    }

    /** A field that was cleared, or that holds no number, goes back to what it was. */
    setNumbers() {
      const steps = this.case.time.at.length;
      const before = this.hooks.asked();
      const whole = (field, least, known) => {
        const given = Math.round(field.valueAsNumber);
        field.value = Number.isFinite(given) ? Math.min(Math.max(least, given), steps) : known;
        return Number(field.value);
      };
      const [most, apart] = [whole(this.most, 0, before.most), whole(this.apart, 1, before.apart)];
      if (most !== before.most || apart !== before.apart) this.hooks.onAsked({ most, apart });
    }

    /** Start a search, or take up one that the server may still know; `earlier`: what that one was asked. */
    async solve(known, earlier) {
      this.setNumbers();
      const asked = earlier || this.hooks.asked();
      this.clearTrouble();
      this.start.disabled = true;
      this.tell(ifonly.say("search.waiting"));
      try {
        const recalled = known ? await this.recall(known) : null;
        const answer = recalled || (await ifonly.ask("/api/jobs", { method: "POST", body: {
          episode: this.case.episode, max_changes: asked.most, alternatives: 5, apart: asked.apart, seconds: this.seconds,
          constraints: ifonly.toConstraints(this.case, asked.rules),
        } }));
        this.job = answer.job;
        const ended = await this.follow(answer);
        this.tell(ifonly.say(ended.state === "stopped" ? "search.stopped" : "search.done"));
        this.hooks.onSolved({ job: ended.job, case: ended.case, asked, again: Boolean(known) && !recalled });
      } catch (problem) {
        this.trouble.replaceChildren(ifonly.problemBox(problem));
        this.refused = JSON.stringify(this.hooks.asked());
        this.tell("");
      }
      this.job = null;
      this.start.disabled = false;
      this.progress.hidden = true;
    }

    /** The search of this name; null where there is none, no search can have that name, or it is of another case. */
    async recall(job) {
      try {
        const answer = await ifonly.ask(`/api/jobs/${encodeURIComponent(job)}`);
        return answer.episode === this.case.episode ? answer : null;
      } catch (problem) {
        if (problem.status === 404 || problem.status === 422) return null;
        throw problem;
      }
    }

    /** What is known of a search when it has ended with an answer. */
    async follow(first) {
      let answer = first;
      this.stopping = false;
      while (!ENDED.includes(answer.state)) {
        this.drawProgress(answer);
        await new Promise((done) => setTimeout(done, PAUSE));
        answer = await ifonly.ask(`/api/jobs/${encodeURIComponent(answer.job)}`);
      }
      if (answer.state === "failed" || !answer.case) {
        throw new ifonly.Problem(500, answer.error || ifonly.say("search.no answer"), ifonly.say("search.no answer.do"));
      }
      return answer;
    }

    drawProgress(answer) {
      this.tell(ifonly.say(`search.${this.stopping ? "stopping" : answer.state}`));
      const known = answer.progress || {};
      const entries = [
        [ifonly.say("search.found"), ifonly.outcome(known.found)],
        [ifonly.say("search.best possible"), ifonly.bestPossible(known, this.case.question)],
        [ifonly.say("search.gap"), ifonly.gapWords(known.gap)], [ifonly.say("search.seconds"), known.seconds == null ? "–" : known.seconds.toFixed(0)],
      ];
      if (this.progress.hidden) {
        this.stop = el(
          "button", { type: "button", on: { click: () => this.stopJob() } }, ifonly.say("search.stop"),
        );
        this.figures = el("dl", {});
        this.progress.replaceChildren(el("div", { class: "working", "aria-hidden": "true" }), this.figures, this.stop);
        this.progress.hidden = false;
      }
      this.stop.disabled = this.stopping;
      this.figures.replaceChildren(...entries.map(([name, value]) => el(
        "div", {}, el("dt", {}, name), el("dd", {}, value),
      )));
    }

    async stopJob() {
      this.stopping = true;
      this.stop.disabled = true;
      this.tell(ifonly.say("search.stopping"));
      try {
        await ifonly.ask(`/api/jobs/${encodeURIComponent(this.job)}/stop`, { method: "POST" });
      } catch (problem) {
        this.stopping = false;
        this.trouble.replaceChildren(ifonly.problemBox(problem));
      }
    }

    tell(words) {
      ifonly.setText(this.status, words);
    }
  }

  Object.assign(ifonly, { RulesCard });
})((window.ifonly = window.ifonly || {}));
