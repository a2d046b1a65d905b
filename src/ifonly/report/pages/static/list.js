// The list of cases: search, filters, order and pages, all kept in the address.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  const PAUSE = 200;
  const SIZE = 50;
  const VERDICT = { order: "verdict", text: true };
  const FILTERS = ["search", "status", "verdict", "reviews", "at_least", "warnings", "pattern"].filter(
    (name) => document.getElementById(name), // warnings only where answers were examined, patterns where changes recur
  );

  class List {
    constructor(first, query, about) {
      this.query = {
        order: query.order || null, descending: isTrue(query.descending), page: Number(query.page) || 1,
        size: Number(query.size) || SIZE,
      };
      for (const name of FILTERS) this.query[name] = query[name] ?? "";
      this.parts = Object.fromEntries([
        "filters", "count", "trouble", "cohort", "empty", "paging", "asked",
      ].map((id) => [id, document.getElementById(id)]));
      this.about = about || {};
      ifonly.setText(this.parts.asked, asked(this.about));
      const recurring = ifonly.embedded("patterns-data");
      document.getElementById("patterns").replaceChildren(...ifonly.patternsPart(recurring, ({ pattern }) => `/?${ifonly.query({ pattern })}`));
      document.getElementById("agreement").replaceChildren(...agreementPart(ifonly.embedded("agreement-data")));
      this.fillFilters();
      this.draw(first);
      this.listen();
    }

    fillFilters() {
      for (const name of FILTERS) {
        const field = this.parts.filters.elements[name];
        const value = String(this.query[name]);
        // An improvement that somebody wrote into the address by hand is offered as well.
        if (field.tagName === "SELECT" && value && ![...field.options].some((option) => option.value === value)) {
          field.append(el(
            "option", { value }, name === "at_least" ? ifonly.say("list.at least", { percent: ifonly.percent(Number(value)) }) : value,
          ));
        }
        field.value = value;
      }
    }

    listen() {
      const { filters, cohort } = this.parts;
      filters.addEventListener("input", (event) => {
        this.query[event.target.name] = event.target.value;
        this.later({ page: 1 }, event.target.type === "search" ? PAUSE : 0);
      });
      filters.addEventListener("submit", (event) => event.preventDefault());
      filters.addEventListener("reset", (event) => {
        event.preventDefault();
        for (const name of FILTERS) this.query[name] = "";
        this.fillFilters();
        this.later({ page: 1 }, 0);
      });
      document.getElementById("queue").addEventListener("click", () => {
        for (const name of FILTERS) this.query[name] = "";
        Object.assign(this.query, { reviews: "open", order: "queue", descending: null });
        this.fillFilters();
        this.later({ page: 1 }, 0);
      });
      ifonly.openRows(cohort.tBodies[0]);
    }

    later(part, pause) {
      Object.assign(this.query, part);
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.fetch(), pause);
    }

    parameters() {
      const { order, descending, page, size } = this.query;
      const filters = Object.fromEntries(FILTERS.map((name) => [name, String(this.query[name]).trim()]));
      return ifonly.query({
        ...filters, order, descending: order ? descending : null, page: page > 1 ? page : null, size: size === SIZE ? null : size,
      });
    }

    async fetch() {
      const parameters = this.parameters();
      const { cohort, count, trouble } = this.parts;
      this.running?.abort();
      this.running = new AbortController();
      cohort.classList.add("busy");
      cohort.setAttribute("aria-busy", "true");
      trouble.replaceChildren();
      const slow = setTimeout(() => ifonly.setText(count, ifonly.say("page.loading")), 400);
      try {
        const found = await ifonly.ask(`/api/episodes?${parameters}`, { signal: this.running.signal });
        clearTimeout(slow);
        history.replaceState(null, "", parameters ? `/?${parameters}` : "/");
        this.draw(found);
      } catch (problem) {
        clearTimeout(slow);
        if (problem.name === "AbortError") return;
        ifonly.setText(count, ifonly.say("list.failed"));
        trouble.replaceChildren(
          ifonly.problemBox(problem),
          el("p", {}, el("button", { type: "button", on: { click: () => this.fetch() } }, ifonly.say("page.try again"))),
        );
      }
      cohort.classList.remove("busy");
      cohort.removeAttribute("aria-busy");
    }

    draw(found) {
      this.drawHead();
      const largest = Math.max(0.1, ...found.rows.map((row) => row.improvement || 0));
      this.parts.cohort.tBodies[0].replaceChildren(...found.rows.map((row) => {
        const made = ifonly.cohortRow(row, largest, `/case?${ifonly.query({ episode: row.episode })}`, this.isExamined());
        made.append(el("td", { class: "text" }, verdictOf(row)));
        return made;
      }));
      const filtered = FILTERS.some((name) => String(this.query[name]).trim());
      const total = found.total.toLocaleString("en-US").replaceAll(",", "\u202f");
      ifonly.setText(this.parts.count, ifonly.say("list.count", {
        cases: ifonly.say("count.case", { count: found.total, number: total }), found: filtered ? ifonly.say("list.found") : "",
      }));
      this.parts.cohort.hidden = !found.rows.length;
      this.parts.empty.hidden = found.rows.length > 0;
      this.parts.empty.replaceChildren(
        ifonly.say(filtered ? "list.nothing fits" : found.total ? "list.empty page" : "list.empty"));
      this.drawPaging(found);
      this.keep(found);
    }

    isExamined() {
      return Boolean(this.about.run && this.about.run.examined);
    }

    drawHead() {
      // Unless told otherwise, the server sends the largest improvement first where there are answers.
      const now = this.query.order || !this.about.run ? this.query : { order: "improvement", descending: true };
      ifonly.cohortHead(
        this.parts.cohort.tHead.rows[0],
        [...ifonly.COLUMNS, ...(this.isExamined() ? ifonly.EVIDENCE_COLUMNS : []), VERDICT], now,
        (order) => this.later({ ...order, page: 1 }, 0),
      );
    }

    drawPaging(found) {
      const pages = Math.max(1, Math.ceil(found.total / found.size));
      const go = (page) => () => { this.later({ page }, 0); window.scrollTo(0, 0); };
      const button = (words, page, off) => el(
        "button", { type: "button", disabled: off, on: { click: go(page) } }, words,
      );
      this.parts.paging.replaceChildren(button(ifonly.say("page.previous"), Math.min(found.page - 1, pages), found.page <= 1),
        el("span", {}, ifonly.say("page.page of", { page: found.page, pages })), button(ifonly.say("page.next"), found.page + 1, found.page >= pages));
      this.parts.paging.hidden = pages < 2 && found.page < 2;
    }

    /** So that a case can lead back to this list and on to the next of its cases. */
    keep(found) {
      try {
        sessionStorage.setItem(
          ifonly.LIST, JSON.stringify({ query: this.parameters(), episodes: found.rows.map((row) => row.episode) }),
        );
      } catch {
        // Without storage a case leads back to the first page.
      }
    }
  }

  function isTrue(value) {
    return value === true || value === "true" || value === "1";
  }

  /** What reviewers say of a case: the verdict and how many share it, or that they differ. */
  function verdictOf({ verdict, noted, reviewers, differ }) {
    if (differ) return el("span", { class: "tag open" }, ifonly.say("list.differ", { reviewers }));
    if (!verdict) return noted ? ifonly.say("list.note only") : el("span", { class: "unit" }, "\u2013");
    const words = ifonly.say(`verdict.${verdict}`);
    return reviewers > 1 ? ifonly.say("list.agreed", { verdict: words, reviewers }) : words;
  }

  /** How far reviewers agree; nothing before two have judged the same case. */
  function agreementPart({ judged, twice, differ, pairs }) {
    if (!twice) return [];
    const { say, number } = ifonly;
    const titles = ["reviewers", "cases", "agreed", "kappa"].map((name) => say(`agreement.${name}`));
    const name = (one) => one || say("agreement.unnamed");
    const kappa = ({ kappa: value, low, high }) => {
      if (value === null) return say("agreement.no kappa");
      if (low === null) return say("agreement.kappa alone", { value: number(value) });
      return say("agreement.kappa is", { value: number(value), low: number(low), high: number(high) });
    };
    return [el("details", { class: "patterns" }, el("summary", {}, say("agreement.title")),
      el("p", { class: "note" }, ifonly.withTerms(say("agreement.means", { judged, twice, differ }))),
      ifonly.wide(el("table", { class: "figures" },
        el("thead", {}, el("tr", {}, titles.map((text) => el("th", { scope: "col" }, text)))),
        el("tbody", {}, pairs.map((pair) => el("tr", {},
          el("th", { scope: "row" }, say("agreement.pair", { first: name(pair.first), second: name(pair.second) })),
          [String(pair.cases), ifonly.percent(pair.agreed / pair.cases), kappa(pair)].map((text) => el("td", {}, text))))))))];
  }

  /** What is asked, as far as the server says it. */
  function asked({ question }) {
    if (!question) return "";
    return ifonly.say("list.asked", { question: ifonly.askedWords(question) });
  }

  document.addEventListener("DOMContentLoaded", () => {
    const first = ifonly.embedded("first-data");
    if (first) new List(first, ifonly.embedded("query-data") || {}, ifonly.embedded("about-data"));
  });
})((window.ifonly = window.ifonly || {}));
