// Everything over time: the board with its lanes, a chart for each measurement, one moment pointed at in all of them.
(function (ifonly) {
  "use strict";
  const { el, fill } = ifonly;

  // Widths of the board in pixels: of row labels, and the least of a column of doses or of named treatments.
  // Of a dose: the size of its letters, and how much stands around it, edges of its cell and an arrow.
  const SCREEN = { label: 204, doses: 46, names: 104, letters: 13.6, around: 18 };
  const PHONE = { ...SCREEN, label: 128 };
  const PAPER = { label: 150, doses: 32, names: 72, letters: 9, around: 16 };
  const NARROW = 480;
  const LEVELS = 6;
  // Lower charts leave room for the doses on the first screen, as the style sheet's lower lanes do.
  const HEIGHTS = [["(max-height: 800px)", 120], ["(max-height: 920px), (max-width: 1099px)", 150]];
  const HIGH = 250;
  const SEVERAL = 180; // of one chart among several, and on paper
  const FEW = 4; // steps, of which there is nothing to choose

  /** Work that can wait: one piece after the other, between which the page answers; a later draw takes its place. */
  class Later {
    start(pieces) {
      this.pieces = pieces;
      if (isOnPaper()) this.finish();
      else if (!this.timer) this.next();
    }

    next() {
      this.timer = setTimeout(() => {
        this.timer = null;
        this.pieces.shift()?.();
        if (this.pieces.length) this.next();
      }, 0);
    }

    finish() {
      for (const piece of this.pieces.splice(0)) piece();
    }
  }

  /** The moment that is pointed at: a line in every chart, a column of the lanes, values beside the names. */
  class Moment {
    constructor() {
      this.charts = new Map();
      this.step = null;
    }

    /** `said(step)`: what stands in `reading` at a step. */
    watch(place, reading, said) {
      this.charts.set(place, { reading, said });
      if (!place.line) {
        place.line = el("span", { class: "moment", "aria-hidden": "true", hidden: true });
        place.append(place.line);
      }
      this.mark(place);
    }

    /** Point at a step, or with null at none. */
    at(step, time) {
      if (step === this.step) return;
      [this.step, this.time] = [step, time];
      for (const place of this.charts.keys()) this.mark(place);
      this.markLanes();
    }

    mark(place) {
      const { reading, said } = this.charts.get(place);
      place.line.hidden = this.step === null || !place.across;
      if (!place.line.hidden) place.line.style.setProperty("left", `${place.across(this.time)}px`);
      if (reading) reading.replaceChildren(...(this.step === null ? [] : said(this.step)));
    }

    markLanes() {
      for (const one of this.lanes?.querySelectorAll(".at") || []) one.classList.remove("at");
      if (this.step === null) return;
      for (const one of this.lanes?.querySelectorAll(`[data-step="${this.step}"]`) || []) one.classList.add("at");
    }
  }

  class Timeline {
    /** `options`: {onCell(step, axis, kind), marks() => ({step: word}), onSpan([first, last] or null)}. */
    constructor(options) {
      this.options = options;
      this.later = new Later();
      this.moment = new Moment();
      this.onBoard = {};
      this.board = el("div", { class: "board", "data-tour": "board", tabindex: "0", role: "group", "aria-label": ifonly.say("view.board") });
      this.zoom = el("div", { class: "zoom no-print" });
      this.marks = el("p", { class: "legend" });
      this.legend = el("p", { class: "legend" });
      this.implausible = el("p", { class: "note" });
      this.charts = el("div", { class: "charts" });
      this.context = el("div", {});
      this.board.addEventListener("mouseover", ({ target }) => this.pointAtCell(target));
      this.board.addEventListener("focusin", ({ target }) => this.pointAtCell(target));
      this.board.addEventListener("mouseleave", () => this.moment.at(null));
    }

    /** What is in view at once, the rest as soon as the page has answered. */
    draw(case_, view) {
      this.case = case_;
      this.view = view;
      this.rows = ifonly.rowsOf(case_, view);
      this.pieces = [];
      this.drawZoom();
      this.drawBoard();
      this.drawCharts();
      const [now, then] = split(this.pieces, ({ place }) => isOnPaper() || isInView(place));
      for (const { draw } of now) draw();
      this.later.start(then.map(({ draw }) => draw));
    }

    /** Have something else drawn with the rest. */
    add(draw) {
      this.later.start([...(this.later.pieces || []), draw]);
    }

    changedTimes() {
      const course = this.view.own || ifonly.courseOf(this.case, this.view);
      return course ? course.changes.map((change) => this.case.time.at[change.step]) : [];
    }

    within(feature) {
      return ifonly.within(this.case, feature, [this.view.own]);
    }

    /** The band of the shown course under every refit, or null. */
    band(feature) {
      return ifonly.bandOf(this.case, feature, ifonly.courseOf(this.case, this.view));
    }

    pointAtCell(target) {
      const cell = target.closest("[data-step]");
      const step = cell ? Number(cell.dataset.step) : null;
      this.moment.at(step, step === null ? null : this.case.time.at[step]);
    }

    /** From when to when, with a button for all of it. */
    drawZoom() {
      const { case: case_, view } = this;
      const times = case_.time.at;
      this.zoom.hidden = times.length <= FEW;
      const [first, last] = view.span || [0, times.length - 1];
      if (!this.ends) {
        const end = (name, change) => el("select", {
          "aria-label": ifonly.say(`view.${name}`), on: { change: (event) => this.options.onSpan?.(change(Number(event.target.value))) },
        }, times.map((_, step) => el("option", { value: step }, ifonly.moment(case_, step))));
        this.ends = [
          end("from", (step) => spanOf(case_, step, Math.max(step, this.shown()[1]))),
          end("until", (step) => spanOf(case_, Math.min(step, this.shown()[0]), step)),
        ];
        this.whole = el("button", {
          type: "button", class: "link", on: { click: () => this.options.onSpan?.(null) },
        }, ifonly.say("view.all steps"));
        fill(this.zoom, el("span", { class: "label" }, ifonly.say("view.time shown")), this.ends[0],
          el("span", {}, ifonly.say("view.to")), this.ends[1], this.whole);
      }
      this.ends[0].value = first;
      this.ends[1].value = last;
      this.whole.hidden = !view.span;
    }

    shown() {
      return this.view.span || [0, this.case.time.at.length - 1];
    }

    /** Have a chart drawn, unless it shows already what it would show. */
    chart(place, feature, size, reading) {
      const { case: case_, view } = this;
      const rows = feature.kind === "dynamic" ? this.rows : this.rows.slice(0, 1);
      const look = [case_.features, ifonly.scheme(), size.width, size.height, String(view.span), ...rows.flatMap((row) => [row.course, row.name])];
      const known = place.look;
      if (known && known.length === look.length && known.every((one, index) => one === look[index])) return;
      const draw = () => {
        place.look = look;
        const series = ifonly.seriesOf(case_, feature, rows);
        place.setAttribute("role", "img");
        place.setAttribute("aria-label", ifonly.chartWords(feature, series));
        ifonly.featureChart(place, {
          times: case_.time.at, shown: this.shown(), series, band: this.band(feature), within: this.within(feature), changed: this.changedTimes(),
          limits: feature.plausible, unit: ifonly.unit(feature.unit), momentWord: ifonly.timeTitle(case_),
          ...this.hooks(), ...size,
        });
        const said = (step) => rows.map(({ kind, course }) =>
          el("span", { class: kind }, ifonly.number(ifonly.valuesAlong(case_, feature, course)[step])));
        this.moment.watch(place, reading, said);
      };
      this.pieces.push({ place, draw });
    }

    /** What happens when a chart is pointed at, or a part of it is drawn out. */
    hooks() {
      const { case: case_, options } = this;
      const step = (time) => nearest(case_.time.at, time);
      return {
        onHover: (time) => (time === null ? this.moment.at(null) : this.moment.at(step(time), case_.time.at[step(time)])),
        onZoom: options.onSpan && ((range) => options.onSpan(range && spanOf(case_, step(range[0]), step(range[1])))),
      };
    }

    drawBoard() {
      const { case: case_, board, options, rows } = this;
      const steps = ifonly.stepsOf(case_, this.view);
      const paper = isOnPaper();
      const sizes = paper ? PAPER : board.clientWidth < NARROW ? PHONE : SCREEN;
      const least = case_.treatments.axes.length ? sizes.doses : sizes.names;
      const column = Math.max(this.doseWidth(sizes), least, (board.clientWidth - sizes.label) / steps.length);
      const width = sizes.label + column * steps.length;
      // Paper does not scroll: a long course is made smaller instead.
      board.style.setProperty("zoom", paper && width > board.clientWidth ? String(board.clientWidth / width) : "1");
      const focused = document.activeElement?.dataset?.key;
      const scrolled = board.scrollLeft;
      const features = ifonly.primaryFeatures(case_);
      const height = paper ? SEVERAL : Math.min(
        features.length > 1 ? SEVERAL : HIGH, ...HEIGHTS.filter(([media]) => window.matchMedia(media).matches).map(([, least]) => least),
      );
      const edges = { l: sizes.label, r: 0, t: 14, b: 8 };
      const table = ifonly.lanesTable(case_, rows, {
        label: sizes.label, column, steps, onCell: options.onCell, marks: options.marks ? options.marks() : {},
        caption: ifonly.say("view.lanes"),
      });
      const charts = features.map((feature) => {
        this.onBoard[feature.name] = this.onBoard[feature.name] || el("div", { class: "chart" });
        const reading = el("span", { class: "reading" });
        return { feature, reading, place: this.onBoard[feature.name], frame: el(
          "div", { class: "board-chart", style: { width: `${width}px`, height: `${height}px` } }, this.onBoard[feature.name],
          scale(feature, ifonly.span(this.within(feature)), { label: sizes.label, height, edges, reading }),
        ) };
      });
      fill(board, ...charts.map(({ frame }) => frame), table);
      for (const { feature, place, reading } of charts) {
        place.look = null; // its reading is a new one
        this.chart(place, feature, {
          width, height, pad: 0.5, margin: edges, levels: ifonly.roundValues(ifonly.span(this.within(feature)), LEVELS),
        }, reading);
      }
      this.moment.lanes = table;
      this.moment.markLanes();
      board.scrollLeft = scrolled;
      if (focused) board.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
    }

    /** How wide a column must be for every dose of this case, also in the bold letters of a change. */
    doseWidth({ letters, around }) {
      const { axes, actions } = this.case.treatments;
      const taken = new Set(ifonly.allCourses(this.case, [this.view.own]).flatMap((course) => course.actions));
      const pen = document.createElement("canvas").getContext("2d");
      pen.font = `bold ${letters}px ${getComputedStyle(document.body).fontFamily}`;
      const widths = axes.flatMap(({ shown }, axis) => [...taken].map((one) => pen.measureText(shown[actions[one].levels[axis]]).width));
      return around + Math.ceil(Math.max(0, ...widths));
    }

    drawCharts() {
      const { case: case_, board, rows } = this;
      const primary = ifonly.primaryFeatures(case_);
      fill(this.legend, ...rows.map((row) => key(ifonly.sample(row.kind), row.name)),
        this.changedTimes().length && key(el("span", { class: "rule-sample", "aria-hidden": "true" }), ifonly.say("view.changed step")),
        key(ifonly.cutSample(), ifonly.say("view.cut")));
      this.drawMarks();
      // A board that scrolls shows a part of its course only: then the whole of it is among the small charts.
      const scrolls = board.scrollWidth > board.clientWidth + 1;
      const small = (feature) => feature.kind === "dynamic" && (scrolls || !primary.includes(feature));
      const others = rows.filter((row) => !ifonly.isBest(case_, row.course));
      ifonly.setText(this.implausible, ifonly.implausibleWords(case_, others));
      const dynamic = case_.features.filter(small);
      this.legend.hidden = !dynamic.length;
      this.grid(this.charts, dynamic, scrolls ? primary : []);
      const circumstances = case_.features.filter((feature) => feature.kind === "contextual");
      if (circumstances.length && !this.context.children.length) {
        const inside = el("div", { class: "charts" });
        const folded = el(
          "details", {}, el("summary", {}, ifonly.say("view.circumstances", { count: circumstances.length })), inside,
        );
        folded.addEventListener("toggle", () => folded.open && this.draw(this.case, this.view));
        this.context.append(folded);
      } else if (this.context.querySelector("details[open]")) {
        this.grid(this.context.querySelector(".charts"), circumstances);
      }
    }

    /** What the marks of recorded values and thin lines mean. */
    drawMarks() {
      const { case: case_ } = this;
      const known = new Set(case_.features.flatMap((feature) => feature.origins || []));
      const scored = case_.observed.scores.length > 0;
      const [band] = ifonly.primaryFeatures(case_).map((feature) => this.band(feature)).filter(Boolean);
      fill(this.marks,
        band && key(el("span", { class: "band-sample", "aria-hidden": "true" }), ifonly.say(band.many ? "view.band many" : "view.band", {
          refits: band.refits, members: ifonly.say(`members.${ifonly.membersOf(case_.answer)}`),
        })),
        ...(known.size ? ["measured", "carried", "assumed"] : []).filter((origin) => known.has(origin))
          .map((origin) => key(ifonly.markSample(origin), ifonly.say(`origin.${origin}`))),
        scored && key(el("span", { class: "thin-sample", "aria-hidden": "true" }), ifonly.say("view.thin", {
          scores: case_.observed.scores.map((score) => score.feature),
        })));
      this.marks.hidden = !this.marks.children.length;
    }

    /** Small charts; those of `whole` are as wide as the page. */
    grid(place, features, whole = []) {
      if (place.children.length !== features.length) {
        place.replaceChildren(...features.map((feature) => el("figure", { class: whole.includes(feature) ? "whole" : "" },
          el("figcaption", {}, el("span", { class: "feature" }, feature.name),
            el("span", { class: "unit" }, ifonly.unitBeside(feature)), el("span", { class: "unit limits" }),
            el("span", { class: "reading", "aria-hidden": "true" })),
          el("div", { class: "chart" }))));
      }
      const widths = [...place.children].map((figure) => figure.clientWidth);
      features.forEach((feature, index) => {
        const figure = place.children[index];
        ifonly.setText(figure.querySelector(".limits"), ifonly.limitWords(feature, this.within(feature)));
        this.chart(figure.querySelector(".chart"), feature, { width: widths[index], height: 150 }, figure.querySelector(".reading"));
      });
    }
  }

  /** An entry of a legend. */
  function key(sample, name) {
    return el("span", { class: "key" }, sample, name);
  }

  function isOnPaper() {
    return document.documentElement.classList.contains("printing");
  }

  function isInView(place) {
    const { top, bottom, height } = place.getBoundingClientRect();
    return bottom > 0 && top < window.innerHeight && (height > 0 || top > 0);
  }

  function split(items, holds) {
    const fine = items.map(holds);
    return [items.filter((_, index) => fine[index]), items.filter((_, index) => !fine[index])];
  }

  /** The step whose time is nearest. */
  function nearest(times, time) {
    return times.reduce((best, one, step) => (Math.abs(one - time) < Math.abs(times[best] - time) ? step : best), 0);
  }

  /** A span of at least two steps; all of them are none. */
  function spanOf(case_, first, last) {
    const end = case_.time.at.length - 1;
    const from = Math.min(first, Math.max(0, last - 1));
    const until = Math.max(last, Math.min(end, from + 1));
    return from === 0 && until === end ? null : [from, until];
  }

  /** The name and the y axis of a chart on the board: they stay when the board scrolls. */
  function scale(feature, range, { label, height, edges, reading }) {
    const [low, high] = range;
    const place = (value) => edges.t + ((high - value) / (high - low)) * (height - edges.t - edges.b);
    return el("div", {
      class: "board-label", "aria-hidden": "true", style: { width: `${label}px`, height: `${height}px` },
    },
      el("span", { class: "feature" }, feature.name), el("span", { class: "unit" }, ifonly.unitBeside(feature)), reading,
      ifonly.roundValues(range, LEVELS).map((value) =>
        el("span", { class: "level", style: { top: `${place(value)}px` } }, ifonly.trimmed(value))));
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

  Object.assign(ifonly, { Timeline, printing });
})((window.ifonly = window.ifonly || {}));
