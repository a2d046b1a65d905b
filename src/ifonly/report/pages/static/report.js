// The report file: a summary of the cohort and a page per case, in one document without a server.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  const SIZE = 50;
  const NO_FILTERS = { search: "", status: "", least: 0, warnings: "", pattern: "" };

  /** Rows that say something: where no answer is to be believed there is nothing to draw. */
  function known(byChanges) {
    return byChanges.filter(({ mean }) => mean !== null);
  }

  class Report {
    constructor(root, { summary, cases }) {
      this.summary = summary;
      this.cases = cases;
      this.query = { order: "improvement", descending: true, page: 1, ...NO_FILTERS };
      this.pages = cases.map((case_) => el(
        "section", { class: "report-case", hidden: true, tabindex: "-1", "aria-label": ifonly.say("report.case", { episode: case_.episode }) },
      ));
      this.views = new Map();
      this.overview = summary ? this.buildSummary() : null;
      root.replaceChildren(...[this.overview, ...this.pages].filter(Boolean));
      window.addEventListener("hashchange", () => this.route(true));
      ifonly.printing(() => {
        this.cases.forEach((_, index) => this.view(index));
        if (this.overview) this.drawSummary();
        return [...this.views.values()];
      });
      ifonly.onColours(() => this.overview && !this.overview.hidden && this.drawSummary());
      new ResizeObserver(() => {
        if (this.overview && !this.overview.hidden && this.overview.clientWidth !== this.width) this.drawSummary();
      }).observe(root);
      this.route(false);
    }

    patternAddress({ pattern }) {
      return `#pattern=${encodeURIComponent(pattern)}`;
    }

    address(index) {
      return `#case=${encodeURIComponent(this.cases[index].episode)}`;
    }

    /** Show the page that the address names; the summary, or the only case, where it names none. */
    route(moved) {
      const named = /^#case=(.*)$/.exec(location.hash);
      let index = named ? this.cases.findIndex((case_) => encodeURIComponent(case_.episode) === named[1]) : -1;
      if (index < 0 && !this.overview) index = 0;
      this.pages.forEach((page, at) => { page.hidden = at !== index; });
      if (this.overview) this.overview.hidden = index >= 0;
      if (index >= 0) this.view(index).draw();
      else this.showSummary();
      document.title = ifonly.say("report.document", {
        title: index >= 0 ? this.cases[index].episode : ifonly.say("report.title"),
      });
      if (moved) {
        window.scrollTo(0, 0);
        (index >= 0 ? this.pages[index] : this.overview).focus({ preventScroll: true });
      }
    }

    /** The summary, with the cases of the pattern that the address names, and of nothing else. */
    showSummary() {
      const named = /^#pattern=(.*)$/.exec(location.hash);
      if (named) {
        this.overview.querySelector(".filters").reset();
        Object.assign(this.query, NO_FILTERS, { pattern: decodeURIComponent(named[1]), page: 1 });
        const field = this.overview.querySelector("#pattern");
        if (field) field.value = this.query.pattern;
      }
      this.drawSummary();
      if (named) this.overview.querySelector(".report-table").scrollIntoView();
    }

    /** The view of a case, made when it is first needed. */
    view(index) {
      if (!this.views.has(index)) {
        const place = el("div", {});
        this.pages[index].append(...[this.navigation(index), place].filter(Boolean));
        this.views.set(index, new ifonly.CaseView(place, this.cases[index], { level: 1 }));
      }
      return this.views.get(index);
    }

    navigation(index) {
      if (!this.summary) return null;
      const link = (at, words) => (this.cases[at] ? el("a", { href: this.address(at) }, words) : null);
      return el("nav", { class: "case-nav", "aria-label": ifonly.say("report.nav") }, el("a", { href: "#summary" }, ifonly.say("report.summary")),
        link(index - 1, ifonly.say("report.previous")), link(index + 1, ifonly.say("report.next")),
        el("span", { class: "unit" }, ifonly.say("report.case of", { number: index + 1, count: this.cases.length })),
        this.patternsOf(this.cases[index].episode));
    }

    /** Links to the changes of a case that recur. */
    patternsOf(episode) {
      const named = this.summary.rows.find((row) => row.episode === episode)?.patterns || [];
      const found = this.summary.patterns.filter((one) => named.includes(one.pattern));
      return found.length > 0 && [el("span", {}, ifonly.say("pattern.here")), ...found.map((one) =>
        el("a", { href: this.patternAddress(one) }, ifonly.say("pattern.link", { said: one.said, count: ifonly.say("pattern.of", one) })))];
    }

    buildSummary() {
      const { summary } = this;
      const question = summary.question;
      this.spread = el("div", { class: "chart" });
      this.budgets = el("div", { class: "chart" });
      this.count = el("p", { role: "status" });
      this.head = el("tr", {});
      this.body = el("tbody", {});
      this.paging = el("nav", { class: "paging", "aria-label": ifonly.say("report.pages") });
      ifonly.openRows(this.body);
      const asked = ifonly.capital(ifonly.askedWords(question));
      return el("section", { class: "report-summary", tabindex: "-1", "aria-label": ifonly.say("report.summary") },
        el("div", { class: "case-head" }, el("h1", {}, ifonly.say("report.title")),
          el("p", { class: "headline" }, asked), ifonly.cautionBox(summary.model.caution)),
        el("dl", { class: "report-counts" }, summary.counts.map((item) => el("div", {}, el(
          "dt", {}, ifonly.capital(ifonly.say(item.label)),
        ),
          el("dd", {}, typeof item.value === "number" ? ifonly.number(item.value).replace(/\.0+$/, "") : String(item.value),
            item.note ? el("span", { class: "note" }, ifonly.say(item.note)) : null)))),
        el("div", { class: "overview" },
          el("section", { hidden: !summary.improvements.length }, el("h2", {}, ifonly.say("report.spread")), this.spread),
          el("section", { hidden: !known(summary.by_changes).length }, el("h2", {}, ifonly.say("report.budgets")),
            el(
              "p", { class: "legend" },
              el("span", { class: "key" }, ifonly.sample("observed"), ifonly.say("report.mean legend")),
              el("span", { class: "key" }, ifonly.sample("best"), ifonly.say("report.median")),
            ),
            this.budgets)),
        el("section", { class: "summary-words" }, el("h2", {}, ifonly.say("report.proven")),
          el("ul", {}, [...question.goals, ...summary.notes, ...question.rules].map((note) => el("li", {}, ifonly.sentence(note))))),
        evidenceSummary(summary),
        el("section", { hidden: !summary.patterns.length }, ...ifonly.patternsPart(summary, (one) => this.patternAddress(one))),
        el("section", { class: "report-table" }, el("h2", {}, ifonly.say("report.cases")),
          this.filters(), el("div", { class: "list-state" }, this.count),
          ifonly.wide(el("table", { class: "figures cohort" },
            el("caption", { class: "unseen" }, ifonly.say("list.caption")), el("thead", {}, this.head), this.body)),
          this.paging));
    }

    filters() {
      const change = (name, read) => (event) => { this.query[name] = read(event.target.value); this.query.page = 1; this.drawTable(); };
      const statuses = [...new Set(this.summary.rows.map((row) => row.status))];
      const field = (id, words, input) => el(
        "div", { class: id === "find" ? "field search" : "field" }, el("label", { for: id }, words), input,
      );
      return el("form", {
        class: "filters", role: "search", "aria-label": ifonly.say("report.cases"), on: { submit: (event) => event.preventDefault() },
      },
        field(
          "find", ifonly.say("list.search"),
          el(
            "input",
            {
              type: "search", id: "find", placeholder: ifonly.say("list.search episodes"), autocomplete: "off",
              on: { input: change("search", (text) => text.trim().toLowerCase()) },
            },
          ),
        ),
        field("ended", ifonly.say("list.answer"), el("select", {
          id: "ended", on: { change: change("status", String) },
        }, el("option", { value: "" }, ifonly.say("page.all")),
          statuses.map((status) => el("option", { value: status }, ifonly.say(`answer.${status}`))))),
        field("least", ifonly.say("list.improvement"), el("select", { id: "least", on: { change: change("least", Number) } },
          [0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5].map((share) =>
            el("option", { value: share }, share ? ifonly.say("list.at least", { percent: `${Math.round(100 * share)} %` }) : ifonly.say("page.any"))))),
        this.summary.patterns.length > 0 && field("pattern", ifonly.say("pattern.filter"), el("select", {
          id: "pattern", on: { change: change("pattern", String) },
        }, el("option", { value: "" }, ifonly.say("page.all")),
          this.summary.patterns.map((one) => el("option", { value: one.pattern }, ifonly.say(one.said))))),
        this.summary.evidence && field("warned", ifonly.say("list.warnings"), el("select", {
          id: "warned", on: { change: change("warnings", String) },
        }, ["all", "none", "some"].map((name) => el("option", { value: name === "all" ? "" : name }, ifonly.say(`page.${name}`))))));
    }

    drawSummary() {
      const { summary } = this;
      this.width = this.overview.clientWidth;
      const size = (place) => ({ width: place.parentElement.clientWidth, height: 270 });
      this.spread.setAttribute("role", "img");
      this.spread.setAttribute(
        "aria-label", ifonly.say("report.spread chart"),
      );
      this.budgets.setAttribute("role", "img");
      this.budgets.setAttribute(
        "aria-label",
        summary.by_changes.map(({ max_changes: most, mean, median }) => ifonly.say("report.budget of", {
          changes: ifonly.plural(most, "change"), mean: ifonly.percent(mean), median: ifonly.percent(median),
        })).join("; "),
      );
      if (summary.improvements.length) ifonly.spreadChart(
        this.spread, { improvements: summary.improvements, threshold: summary.threshold, ...size(this.spread) },
      );
      if (known(summary.by_changes).length) ifonly.budgetChart(this.budgets, { byChanges: summary.by_changes, ...size(this.budgets) });
      this.drawTable();
    }

    found() {
      const { search, status, least, warnings, pattern, order, descending } = this.query;
      const warned = (row) => !warnings || (row.warnings !== null && (row.warnings > 0) === (warnings === "some"));
      const kept = this.summary.rows.filter((row) => row.episode.toLowerCase().includes(search) &&
        (!status || row.status === status) && (!pattern || (row.patterns || []).includes(pattern)) && warned(row) && (!least || (row.improvement !== null && row.improvement >= least)));
      const sign = descending ? -1 : 1;
      const missing = (value) => value === null || value === undefined;
      return kept.sort((a, b) => {
        const [left, right] = [ifonly.sortKey(a, order), ifonly.sortKey(b, order)];
        if (missing(left) || missing(right)) return Number(missing(left)) - Number(missing(right));
        return left === right ? 0 : sign * (left < right ? -1 : 1);
      });
    }

    drawTable() {
      const { query } = this;
      const found = this.found();
      const pages = Math.max(1, Math.ceil(found.length / SIZE));
      const start = (query.page - 1) * SIZE;
      const paged = new Map(this.cases.map((case_, index) => [case_.episode, index]));
      const largest = Math.max(0.1, ...this.summary.rows.map((row) => row.improvement || 0));
      ifonly.cohortHead(
        this.head, [...ifonly.COLUMNS, ...(this.summary.evidence ? ifonly.EVIDENCE_COLUMNS : [])], query, (order) => { Object.assign(query, order, { page: 1 }); this.drawTable(); },
      );
      this.body.replaceChildren(...found.slice(start, start + SIZE).map((row) =>
        ifonly.cohortRow(
          row, largest, paged.has(row.episode) ? this.address(paged.get(row.episode)) : null, Boolean(this.summary.evidence),
        )));
      const part = found.length > SIZE
        ? ifonly.say("report.count part", { first: start + 1, last: Math.min(start + SIZE, found.length) }) : "";
      const cases = ifonly.capital(ifonly.plural(found.length, "case"));
      ifonly.setText(this.count, ifonly.say("report.count", { cases, part }));
      const go = (page) => () => { query.page = page; this.drawTable(); };
      this.paging.hidden = pages < 2;
      this.paging.replaceChildren(el(
        "button", { type: "button", disabled: query.page < 2, on: { click: go(query.page - 1) } }, ifonly.say("page.previous"),
      ),
        el("span", {}, ifonly.say("page.page of", { page: query.page, pages })),
        el("button", { type: "button", disabled: query.page >= pages, on: { click: go(query.page + 1) } }, ifonly.say("page.next")));
    }
  }

  /** What is known of the model and, over all answers, of how far to trust them. */
  function evidenceSummary({ model, evidence }) {
    const table = (titles, rows) => el("table", { class: "figures" },
      el("thead", {}, el("tr", {}, titles.map((name) => el("th", { scope: "col" }, ifonly.say(`report.${name}`))))),
      el("tbody", {}, rows.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row" }, ifonly.capital(ifonly.say(name))),
        cells.map((text) => el("td", {}, text))))));
    const agreed = evidence && evidence.median_agreement !== null
      ? ifonly.say("report.agreed", { percent: ifonly.percent(evidence.median_agreement) }) : "";
    return el("section", { class: "evidence-summary" }, el("h2", {}, ifonly.say("report.evidence")),
      el("p", {}, evidence
        ? ifonly.say("report.examined", {
            said: model.said,
            judged: evidence.verdicts && ifonly.say("report.judged", { verdicts: evidence.verdicts }), without: evidence.without_warnings,
            answers: ifonly.plural(evidence.examined, "examined answer"), agreed,
          })
        : ifonly.say("report.not examined", { said: model.said })),
      evidence && el("div", { class: "overview" },
        ifonly.wide(table(["answers", "number", "median improvement", "quartiles"], evidence.groups.map((group) => [
          group.answers, String(group.episodes), ifonly.tenths(group.median),
          ifonly.say("report.from to", { low: ifonly.tenths(group.lower_quartile), high: ifonly.tenths(group.upper_quartile) }),
        ]))),
        evidence.warnings.length > 0 && ifonly.wide(table(["warning", "answers", "share"],
          evidence.warnings.map((item) => [item.warning, String(item.episodes), ifonly.percent(item.share)])))));
  }

  const root = document.getElementById("report");
  if (root) {
    const content = ifonly.embedded("report-data");
    ifonly.useSentences(content.sentences);
    ifonly.report = new Report(root, content);
  }
})((window.ifonly = window.ifonly || {}));
