// Treatment lanes: a table with one column per step, and rows for every course under each dose axis.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  const ARROWS = { up: "\u25B2", down: "\u25BC", other: "\u25C6" };

  /** The lanes of a case: its dose axes, or one lane of labels where actions have no order. */
  function lanesOf(case_) {
    const { axes, actions } = case_.treatments;
    if (!axes.length) {
      return [{
        index: null, name: ifonly.say("lane.treatment"), unit: "", levels: actions.length,
        level: (action) => action, shown: (action) => actions[action].label,
      }];
    }
    return axes.map((axis, index) => ({
      index, name: ifonly.capital(axis.name), unit: ifonly.unit(axis.unit), levels: axis.levels.length,
      level: (action) => actions[action].levels[index],
      shown: (action) => axis.shown[actions[action].levels[index]],
    }));
  }

  function direction(lane, from, to) {
    if (lane.level(from) === lane.level(to)) return null;
    if (lane.index === null) return "other";
    return lane.level(to) > lane.level(from) ? "up" : "down";
  }

  /** A cell's name for those who cannot see its column and row. */
  function spoken(case_, lane, row, step, way) {
    const recorded = case_.observed.actions[step];
    return ifonly.say("lane.cell", {
      when: ifonly.capital(ifonly.moment(case_, step)), lane: lane.name.toLowerCase(), course: row.name,
      dose: `${lane.shown(row.actions[step])}${lane.unit ? ` ${lane.unit}` : ""}`,
      moved: way ? ifonly.say("lane.moved", { moved: ifonly.say(`lane.${way}`), dose: lane.shown(recorded) }) : "",
    });
  }

  function cell(case_, lane, row, step, options) {
    const action = row.actions[step];
    const way = row.kind === "observed" ? null : direction(lane, case_.observed.actions[step], action);
    const share = lane.index === null || lane.levels < 2 ? 0 : lane.level(action) / (lane.levels - 1);
    const content = [
      way && el("span", { class: "arrow", "aria-hidden": "true" }, ARROWS[way]),
      el("span", { class: "dose" }, lane.shown(action)),
    ];
    const name = spoken(case_, lane, row, step, way);
    const inner = options.onCell
      ? el("button", {
          type: "button", class: "cell", "aria-label": name, "aria-haspopup": "dialog", tabindex: "-1",
          "data-key": `${row.kind}/${lane.index}/${step}`, on: { click: () => options.onCell(step, lane.index, row.kind) },
        }, content)
      : el(
        "span", { class: "cell" }, content,
        way && el("span", { class: "unseen" }, ifonly.say("lane.moved alone", {
          moved: ifonly.say(`lane.${way}`), dose: lane.shown(case_.observed.actions[step]),
        })),
      );
    return el(
      "td",
      {
        class: [way && `changed ${way}`, row.kind].filter(Boolean).join(" "), "data-step": step,
        style: { "--dose": share.toFixed(2) },
      },
      inner,
    );
  }

  /** One tab stop for the whole table; arrow keys, Home and End move within it. */
  function roving(table) {
    const rows = [...table.querySelectorAll("tr")]
      .map((row) => [...row.querySelectorAll("button.cell")])
      .filter((row) => row.length);
    if (!rows.length) return;
    rows[0][0].tabIndex = 0;
    table.addEventListener("focusin", (event) => {
      if (!event.target.matches("button.cell")) return;
      table.querySelectorAll('button.cell[tabindex="0"]').forEach((button) => { button.tabIndex = -1; });
      event.target.tabIndex = 0;
    });
    table.addEventListener("keydown", (event) => {
      const row = rows.findIndex((buttons) => buttons.includes(event.target));
      if (row < 0) return;
      const column = rows[row].indexOf(event.target);
      const goals = {
        ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
        Home: [row, 0], End: [row, rows[row].length - 1],
      };
      const goal = goals[event.key];
      if (!goal) return;
      event.preventDefault();
      rows[goal[0]]?.[goal[1]]?.focus();
    });
  }

  /**
   * The table. `rows`: [{kind, name, actions}]; `options`: {label, column (widths in pixels), steps (those shown),
   * onCell(step, axis, kind), marks: {step: word}, caption}.
   */
  function lanesTable(case_, rows, options) {
    const { steps } = options;
    const marks = options.marks || {};
    const table = el("table", { class: `lanes${options.onCell ? " live" : ""}` },
      el("caption", { class: "unseen" }, options.caption),
      el(
        "colgroup", {}, el("col", { style: { width: `${options.label}px` } }),
        steps.map(() => el("col", { style: { width: `${options.column}px` } })),
      ),
      el("thead", {}, el("tr", {},
        el("th", { scope: "col" }, ifonly.timeTitle(case_)),
        steps.map((step) => el("th", { scope: "col", "data-step": step }, ifonly.trimmed(case_.time.at[step]),
          marks[step] && el("span", { class: "mark" }, marks[step]))))),
      lanesOf(case_).map((lane) => el("tbody", {},
        el("tr", { class: "axis" }, el("th", { scope: "rowgroup", colspan: String(steps.length + 1) },
          el("span", { class: "axis-name" }, lane.name, lane.unit && el("span", { class: "unit" }, ` ${lane.unit}`)))),
        rows.map((row) => el("tr", { class: row.kind },
          el("th", { scope: "row" }, ifonly.sample(row.kind), el("span", {}, row.name)),
          steps.map((step) => cell(case_, lane, row, step, options)))))));
    table.style.width = `${options.label + options.column * steps.length}px`;
    if (options.onCell) roving(table);
    return table;
  }

  Object.assign(ifonly, { lanesOf, lanesTable });
})((window.ifonly = window.ifonly || {}));
