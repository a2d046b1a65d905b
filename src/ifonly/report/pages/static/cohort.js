// A table of cases, as the list and the report show it.
(function (ifonly) {
  "use strict";
  const { el, fill } = ifonly;

  const COLUMNS = [
    { order: "episode", text: true }, { order: "steps" }, { order: "observed" }, { order: "best" },
    { order: "improvement", falls: true }, { order: "changes", falls: true }, { order: "badge", text: true },
  ];
  /** Where a run had its answers examined. */
  const EVIDENCE_COLUMNS = [{ order: "refits_agree", falls: true }, { order: "warnings" }];

  const LEVELS = ["good", "reserved", "bad"];

  /** A row's answer in a word: the badge of its case, and what keeps it from being green; or why there is no answer. */
  function answerTag({ badge, doubts, status }) {
    if (!badge) return el("span", { class: `tag ${status === "failed" ? "failed" : ""}` }, ifonly.say(`answer.${status}`));
    const why = doubts.map((code) => ifonly.say(`badge.${code}`)).join(", ");
    return el("span", { class: `tag ${badge}`, title: why || null }, ifonly.say(`badge.${badge}`),
      why && el("span", { class: "unseen" }, ifonly.say("badge.because", { why })));
  }

  function gain(row, largest) {
    if (row.improvement === null || row.improvement === undefined) return "\u2013";
    const share = Math.max(0, Math.min(1, row.improvement / largest));
    return el("span", { class: "gain" },
      el(
        "span", { class: "gain-track", "aria-hidden": "true" },
        el("span", { class: "bar-line", style: { width: `${100 * share}%` } }),
      ),
      el("span", {}, ifonly.tenths(row.improvement)));
  }

  /** How many refits agree, and how many warnings there are; a dash where that is not known. */
  function evidenceCells({ refits_agree: share, refits, warnings }) {
    const unknown = (value) => value === null || value === undefined;
    return [
      el("td", {}, unknown(share) ? "\u2013" : ifonly.say("column.agreeing", { helping: Math.round(share * refits), refits })),
      el("td", {}, unknown(warnings) ? "\u2013" : warnings === 0 ? ifonly.say("page.none") : el("span", { class: "tag open" }, String(warnings))),
    ];
  }

  /** One case; `href` null: it has no page here; `examined`: with the columns of evidence. */
  function cohortRow(row, largest, href, examined) {
    return el("tr", { class: href ? "opens" : "" },
      el("th", { scope: "row" }, href ? el("a", { href }, row.episode) : row.episode),
      el("td", {}, String(row.steps)), ...[row.observed, row.best].map((value, _, pair) => el("td", {}, ifonly.outcome(value, pair))),
      el("td", {}, gain(row, largest)), el("td", {}, row.changes === null ? "\u2013" : String(row.changes)),
      el("td", { class: "text" }, answerTag(row)), examined && evidenceCells(row));
  }

  /** Headings that sort; `query` has the order now, `onSort` is told the new one. */
  function cohortHead(place, columns, query, onSort) {
    const { order, descending } = query;
    const focused = document.activeElement?.dataset?.order;
    place.replaceChildren(...columns.map((column) => {
      const chosen = column.order === order;
      const sort = () => onSort({ order: column.order, descending: chosen ? !descending : Boolean(column.falls) });
      return el("th", {
        scope: "col", class: column.text ? "text" : "",
        "aria-sort": chosen ? (descending ? "descending" : "ascending") : "none",
      },
        el("button", { type: "button", "data-order": column.order, on: { click: sort } }, ifonly.say(`column.${column.order}`),
          el("span", { class: "sign", "aria-hidden": "true" }, chosen ? (descending ? "\u25BE" : "\u25B4") : "")));
    }));
    if (focused) place.querySelector(`[data-order="${focused}"]`)?.focus();
  }

  /** A row opens wherever it is clicked; arrow keys move from case to case. */
  function openRows(body) {
    body.addEventListener("click", (event) => {
      if (event.target.closest("a") || getSelection().toString()) return;
      event.target.closest("tr")?.querySelector("a")?.click();
    });
    body.addEventListener("keydown", (event) => {
      const links = [...body.querySelectorAll("th a")];
      const at = links.indexOf(event.target);
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key];
      if (at < 0 || to === undefined) return;
      event.preventDefault();
      links[to]?.focus();
    });
  }

  /** The changes that recur, most frequent first, folded; `address` tells where the cases of a pattern are listed. */
  function patternsPart({ patterns, smallest_cell: smallest }, address) {
    const { say } = ifonly;
    if (!patterns.length) return [];
    const cells = ({ subjects, of, share, low, high, supported }) => [
      el("td", {}, say("pattern.of", { subjects, of })),
      el("td", {}, say("pattern.interval", { share: ifonly.percent(share), low: ifonly.percent(low), high: ifonly.percent(high) })),
      el("td", {}, supported === null ? "\u2013" : say("pattern.of", { subjects: supported, of: subjects })),
    ];
    const body = el("tbody", {});
    const draw = (chosen) => fill(body, ...patterns.flatMap((one) => [
      el("tr", {}, el("th", { scope: "row" }, el("a", { href: address(one) }, ifonly.capital(say(one.said)))), cells(one)),
      ...one.groups.filter(({ by }) => by === chosen).map((group) =>
        el("tr", { class: "within" }, el("th", { scope: "row" }, say("pattern.by", group)), cells(group))),
    ]));
    const groupings = [...new Set(patterns.flatMap(({ groups }) => groups.map(({ by }) => by)))]
      .sort((a, b) => (b === "severity") - (a === "severity"));
    const choose = el("select", { on: { change: ({ target }) => draw(target.value) } },
      groupings.map((by) => el("option", { value: by }, by)), el("option", { value: "" }, say("page.none")));
    draw(choose.value);
    const titles = ["change", "subjects", "share", "supported"].map((name) => ifonly.capital(say(`pattern.${name}`)));
    return [el("details", { class: "patterns" }, el("summary", {}, say("pattern.title")),
      el("p", { class: "note" }, say("pattern.means", { smallest })),
      groupings.length > 0 && el("label", { class: "row" }, say("pattern.by group"), choose),
      ifonly.wide(el("table", { class: "figures" },
        el("thead", {}, el("tr", {}, titles.map((text) => el("th", { scope: "col" }, text)))), body)))];
  }

  /** What rows are sorted by. */
  function sortKey(row, order) {
    return order === "badge" && row.badge ? LEVELS.indexOf(row.badge) : row[order];
  }

  Object.assign(ifonly, { patternsPart, sortKey, COLUMNS, EVIDENCE_COLUMNS, cohortRow, cohortHead, openRows });
})((window.ifonly = window.ifonly || {}));
