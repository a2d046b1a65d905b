// Charts: the same three courses everywhere, told apart by dash and marker as well as by colour.
(function (ifonly) {
  "use strict";

  const FONT = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif';
  const CONFIG = { displayModeBar: false, doubleClick: false, responsive: false, scrollZoom: false, showTips: false };

  const NAMES = ["ink", "muted", "grid", "accent", "own", "ruled", "paper", "edge", "bars", "band"];
  const NEAR_ZERO = 0.5; // of the largest value: charts whose smallest lies below that begin at zero
  const FINE = matchMedia("(pointer: fine)"); // with a finger one scrolls
  const DARK = matchMedia("screen and (prefers-color-scheme: dark)");
  let known = {};

  /** Whether it is light, dark or paper, as a word that changes when that does. */
  function scheme() {
    return `${DARK.matches} ${document.documentElement.classList.contains("printing")}`;
  }

  /** The page's colours by name, read anew where light turns to dark or paper. */
  function colours() {
    const root = document.documentElement;
    const now = scheme();
    if (known.now !== now) {
      const style = getComputedStyle(root);
      known = { now, ...Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])) };
    }
    return known;
  }

  /** Have charts drawn again when light turns to dark, or back. */
  function onColours(draw) {
    DARK.addEventListener("change", draw);
  }

  const styles = () => ({
    observed: { line: { color: colours().ink, width: 2, dash: "solid" }, marker: { symbol: "circle", size: 6, color: colours().ink } },
    best: {
      line: { color: colours().accent, width: 2, dash: "6px,4px" },
      marker: { symbol: "circle-open", size: 8, color: colours().accent, line: { width: 1.6 } },
    },
    own: {
      line: { color: colours().own, width: 2, dash: "2px,3px" },
      marker: { symbol: "diamond-open", size: 9, color: colours().own, line: { width: 1.6 } },
    },
    ruled: {
      line: { color: colours().ruled, width: 2, dash: "9px,3px,2px,3px" },
      marker: { symbol: "square-open", size: 8, color: colours().ruled, line: { width: 1.6 } },
    },
  });

  // Recorded values by where they come from: filled where measured, hollow where carried forward, a cross where assumed.
  const marksOf = () => ({
    measured: { symbol: "circle", size: 6, color: colours().ink, width: 0 },
    carried: { symbol: "circle", size: 6, color: colours().paper, width: 1.3 },
    assumed: { symbol: "x-thin", size: 6, color: colours().ink, width: 1.3 },
  });

  function originMarker(origins) {
    const all = (name) => origins.map((origin) => marksOf()[origin][name]);
    return { symbol: all("symbol"), size: all("size"), color: all("color"), opacity: 1, line: { color: colours().ink, width: all("width") } };
  }

  /** How a course is drawn; `thin` for a score that is made of its organs, without markers. */
  function lookOf({ kind, thin, origins, number, values }, crowded) {
    if (kind === "alternative") return numbered(number, values.length);
    const style = styles()[kind];
    if (thin) return { mode: "lines", opacity: 0.8, line: { ...style.line, width: 1 } };
    return { mode: crowded ? "lines" : "lines+markers", ...style, ...(origins ? { marker: originMarker(origins) } : {}) };
  }

  /** Alternatives are thin and grey, and told apart by their numbers at the end. */
  function numbered(number, length) {
    return {
      mode: "lines+text", text: [...Array(length - 1).fill(""), String(number)], textposition: "middle right",
      textfont: { size: 11, color: colours().ink }, line: { color: colours().muted, width: 1.2, dash: "solid" }, cliponaxis: false,
    };
  }

  /** Two strokes at the foot of a y axis that does not reach zero. */
  function cutMarks([low, high]) {
    if (low <= 0 && high >= 0) return [];
    return [0, 4].map((up) => ({
      type: "line", xref: "paper", yref: "paper", xsizemode: "pixel", ysizemode: "pixel", xanchor: 0, yanchor: 0,
      x0: 1, x1: 9, y0: up + 1, y1: up + 5, name: "cut", line: { color: colours().muted, width: 1.4 },
    }));
  }

  function axis(extra) {
    return {
      fixedrange: true, showline: false, zeroline: false, gridcolor: colours().grid, tickcolor: colours().grid, ticks: "",
      tickfont: { size: 11, color: colours().muted }, automargin: false, ...extra,
    };
  }

  function layout(extra) {
    return {
      font: { family: FONT, size: 12, color: colours().ink }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      showlegend: false, dragmode: false, hovermode: "x unified",
      hoverlabel: { bgcolor: colours().paper, bordercolor: colours().edge, font: { family: FONT, size: 12, color: colours().ink } },
      ...extra,
    };
  }

  /** About as many ticks as fit, always on recorded moments. */
  function ticks(times, width) {
    const every = Math.max(1, Math.ceil(times.length / Math.max(2, Math.floor(width / 44))));
    return times.filter((_, index) => index % every === 0);
  }

  /** Room for every value, so that the axis stays where it is while courses change; from zero where that is not far. */
  function span(values) {
    const known = values.filter((value) => value !== null && Number.isFinite(value));
    if (!known.length) return [0, 1];
    const [least, most] = [Math.min(...known), Math.max(...known)];
    const low = least > 0 && least < NEAR_ZERO * most ? 0 : least;
    const high = most < 0 && most > NEAR_ZERO * least ? 0 : most;
    const room = high > low ? 0.08 * (high - low) : Math.max(1e-6, 0.1 * Math.abs(high) || 1);
    return [low - room, high + room];
  }

  /** Round values within a range, about `count` of them. */
  function roundValues([low, high], count) {
    const rough = (high - low) / count;
    const size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * size).find((value) => value >= rough) || rough;
    const values = [];
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) values.push(Number(value.toPrecision(12)));
    return values;
  }

  /**
   * One feature over time. `series`: [{kind, name, values, origins, thin}]; `within`: all values the axis must hold;
   * `band`: {low, high} under every refit, or null; `levels`: values of the y axis where labels of both axes stand outside
   * the chart; `changed`: moments at which the shown course acts differently; `limits`: the plausible range, drawn where it is near; `shown`: the first and the last
   * step that are; `onHover(time or null)`, `onZoom([from, to] or null)`.
   */
  function featureChart(place, {
    times, shown, series, band, within, changed, limits, width, height, margin, pad, unit, levels, momentWord, title, onHover, onZoom,
  }) {
    const edges = margin || { l: title ? 58 : 46, r: title ? 26 : 10, t: 6, b: 24 };
    const [from, until] = shown.map((step) => times[step]);
    const [low, high] = span(within);
    const step = times.length > 1 ? times[1] - times[0] : 1;
    const count = shown[1] - shown[0] + 1;
    const room = pad === undefined ? Math.max(0.35, 0.015 * count) : pad;
    const range = [from - room * step, until + room * step];
    const crowded = width < 10 * count; // dashes tell courses apart without markers, which would hide them
    const shapes = cutMarks([low, high]);
    for (const at of changed.filter((time) => time >= from && time <= until)) shapes.push({
      type: "line", xref: "x", yref: "paper", x0: at, x1: at, y0: 0, y1: 1, layer: "below",
      line: { color: colours().accent, width: 1, dash: "1px,3px" },
    });
    for (const limit of (limits || []).filter((value) => value > low && value < high)) {
      shapes.push({
        type: "line", xref: "paper", yref: "y", x0: 0, x1: 1, y0: limit, y1: limit, layer: "below",
        line: { color: colours().muted, width: 1, dash: "dot" },
      });
    }
    const ending = unit ? ` ${unit.replace(/[<>&]/g, "")}` : "";
    const traces = bandTraces(times, band).concat(series.map((one) => ({
      type: "scatter", name: one.name, x: times, y: one.values, ...lookOf(one, crowded),
      customdata: one.values.map((value, step) => `${ifonly.number(value)}${ending}${ifonly.originWords(one.origins?.[step])}`),
      hovertemplate: "%{customdata}",
    })));
    place.across = (time) => edges.l + ((time - range[0]) / (range[1] - range[0])) * (width - edges.l - edges.r);
    const drawn = Plotly.react(
      place,
      traces,
      layout({
        width, height, margin: edges, shapes, dragmode: onZoom && FINE.matches ? "zoom" : false,
        xaxis: axis({
          range, tickvals: ticks(times.slice(shown[0], shown[1] + 1), width), fixedrange: !onZoom || !FINE.matches,
          showgrid: false, showticklabels: !levels, unifiedhovertitle: { text: `${momentWord || ifonly.say("view.at")} %{x}` },
        }),
        yaxis: axis(levels ? {
          range: [low, high], tickvals: levels, showticklabels: false,
        } : { range: [low, high], nticks: 4, ...(title ? { title: axisTitle(title) } : {}) }),
      }),
      CONFIG,
    );
    listen(place, { onHover, onZoom });
    return drawn;
  }

  /** Between which values a course lies under every refit: filled, without a line, and nothing to point at. */
  function bandTraces(times, band) {
    if (!band) return [];
    const end = (values, more) => ({
      type: "scatter", mode: "lines", x: times, y: values, hoverinfo: "skip", line: { width: 0 }, name: "band", ...more,
    });
    return [end(band.low, {}), end(band.high, { fill: "tonexty", fillcolor: colours().band })];
  }

  function axisTitle(text) {
    return { text: text.replace(/[<>&]/g, ""), font: { size: 12, color: colours().muted }, standoff: 6 };
  }

  /** Tell of what is pointed at, and of a part that is drawn out with the pointer; twice clicked, all is shown again. */
  function listen(place, hooks) {
    const heard = place.hooks;
    place.hooks = hooks;
    if (heard) return;
    place.on("plotly_hover", ({ points }) => place.hooks.onHover?.(points[0].x));
    place.on("plotly_unhover", () => place.hooks.onHover?.(null));
    place.on("plotly_doubleclick", () => place.hooks.onZoom?.(null));
    place.on("plotly_relayout", (changed) => {
      const range = [changed["xaxis.range[0]"], changed["xaxis.range[1]"]];
      if (range.every(Number.isFinite)) place.hooks.onZoom?.(range);
    });
  }

  /** A bound that is far away would flatten everything else: its bar then leaves the chart. */
  function near(bound, values) {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const room = 2 * (high - low) || 0.1 * Math.abs(high) || 1;
    return Math.min(Math.max(bound, low - room), high + room);
  }

  /** The outcome against the number of changes allowed; a bar up to what is still possible where nothing is proven. */
  function frontierChart(place, { budgets, chosen, width, height, question }) {
    const known = budgets.filter((budget) => budget.course !== null);
    const open = known.filter(({ claim }) => !claim.proven && claim.best_possible !== null);
    const values = known.map((budget) => budget.course.outcome);
    const traces = [
      {
        type: "scatter", mode: "lines+markers", name: ifonly.say("view.best series"), x: known.map((budget) => budget.max_changes), y: values,
        line: styles().best.line,
        marker: {
          symbol: known.map((budget) => (budget.max_changes === chosen ? "circle" : "circle-open")),
          size: known.map((budget) => (budget.max_changes === chosen ? 11 : 9)), color: colours().accent, line: { width: 1.6 },
        },
        customdata: values.map((value) => ifonly.outcome(value, values)), hovertemplate: "%{customdata}",
      },
    ];
    const range = span([...values, ...open.map((budget) => near(budget.claim.best_possible, values))]);
    const shapes = open.map((budget) => ({
      type: "line", x0: budget.max_changes, x1: budget.max_changes, y0: budget.course.outcome, y1: budget.claim.best_possible,
      line: { color: colours().muted, width: 2 },
    })).concat(cutMarks(range));
    if (open.length) {
      traces.push({
        type: "scatter", mode: "markers", name: ifonly.say("view.best possible series"), x: open.map((budget) => budget.max_changes),
        y: open.map((budget) => budget.claim.best_possible),
        marker: { symbol: "line-ew", size: 16, line: { color: colours().muted, width: 2 } },
        customdata: open.map((budget) => ifonly.bestPossible(budget.claim, question)), hovertemplate: "%{customdata}",
      });
    }
    return Plotly.react(
      place,
      traces,
      layout({
        width, height, shapes, margin: { l: 52, r: 14, t: 8, b: 40 },
        xaxis: axis({
          range: [-0.4, budgets.length - 0.6], dtick: Math.max(1, Math.ceil(budgets.length / 12)), showgrid: false,
          title: { text: ifonly.say("view.budget axis"), font: { size: 12, color: colours().muted }, standoff: 8 },
        }),
        yaxis: axis({ range, nticks: 5 }),
      }),
      CONFIG,
    );
  }

  /** Marks side by side where there is room, above one another where there is none: [x, row] for each value. */
  function stacked(values, room) {
    const ends = [];
    return [...values].sort((a, b) => a - b).map((value) => {
      let row = ends.findIndex((end) => value - end >= room);
      if (row < 0) row = ends.length;
      ends[row] = value;
      return [value, row];
    });
  }

  /** The improvement under every refit: a circle each, a cross where it does not help, a diamond for the model itself. */
  function refitsChart(place, { improvements, own, median, low, high, width, title }) {
    const known = improvements.filter((value) => value !== null);
    const [start, end] = span([0, ...known, ...(own === null ? [] : [own])]);
    const points = stacked(known, ((end - start) * 11) / Math.max(100, width - 40));
    const top = Math.max(1, ...points.map(([, row]) => row));
    const marks = (name, chosen, marker) => ({
      type: "scatter", mode: "markers", name, x: chosen.map(([x]) => x), y: chosen.map(([, row]) => row), marker,
      customdata: chosen.map(([x]) => ifonly.number(x)), hovertemplate: "%{customdata}",
    });
    const bar = improvements.length > 1 && median !== null && low !== null;
    const line = (x0, x1, y0, y1, look) => ({ type: "line", x0, x1, y0, y1, layer: "below", line: look });
    const shapes = [line(0, 0, -2.4, top + 0.7, { color: colours().ink, width: 1.2, dash: "6px,4px" })];
    if (bar) {
      shapes.push(line(low, high, -1, -1, { color: colours().muted, width: 2 }));
      shapes.push(line(median, median, -1.35, -0.65, { color: colours().muted, width: 3 }));
    }
    const model = own === null ? [] : [marks(ifonly.say("evidence.series.counts"), [[own, -1.9]], { symbol: "diamond", size: 10, color: colours().ink })];
    return Plotly.react(
      place,
      [
        marks(ifonly.say("evidence.series.helps"), points.filter(([x]) => x > 0), styles().best.marker),
        marks(ifonly.say("evidence.series.does not help"), points.filter(([x]) => x <= 0), { symbol: "x-thin", size: 9, line: { color: colours().own, width: 2 } }),
        ...model,
      ],
      layout({
        width, height: 96 + 11 * (top + 1), shapes, hovermode: "closest", margin: { l: 14, r: 14, t: 4, b: 40 },
        xaxis: axis({ range: [start, end], nticks: 7, title: { text: title, font: { size: 12, color: colours().muted }, standoff: 8 } }),
        yaxis: axis({ range: [-2.5, top + 0.8], showticklabels: false, showgrid: false }),
      }),
      CONFIG,
    );
  }

  /** How improvements are spread, with a line at the threshold of interest. */
  function spreadChart(place, { improvements, threshold, width, height }) {
    const shares = improvements.filter((value) => value !== null).map((value) => 100 * value);
    const top = Math.max(10, ...shares, threshold === null ? 0 : 110 * threshold);
    const size = top > 60 ? 5 : top > 25 ? 2.5 : 1;
    const shapes = [];
    const annotations = [];
    if (threshold !== null) {
      const at = 100 * threshold;
      shapes.push({
        type: "line", xref: "x", yref: "paper", x0: at, x1: at, y0: 0, y1: 1,
        line: { color: colours().ink, width: 1.5, dash: "6px,4px" },
      });
      annotations.push({
        x: at, xref: "x", y: 1, yref: "paper", xanchor: at > 0.7 * top ? "right" : "left", yanchor: "bottom",
        showarrow: false, text: ifonly.say("report.threshold", { percent: ifonly.percent(threshold) }), font: { size: 11, color: colours().ink },
      });
    }
    return Plotly.react(
      place,
      [
        {
          type: "histogram", x: shares, xbins: {
            start: Math.min(0, Math.floor(Math.min(0, ...shares) / size) * size), size,
          },
          marker: { color: colours().bars, line: { color: colours().accent, width: 1 } }, hovertemplate: ifonly.say("report.spread hover", { y: "%{y}", x: "%{x}" }),
          name: "",
        },
      ],
      layout({
        width, height, shapes, annotations, hovermode: "closest", bargap: 0.04, margin: { l: 46, r: 14, t: 24, b: 44 },
        xaxis: axis({
          showgrid: false, ticksuffix: " %",
          title: { text: ifonly.say("report.spread x"), font: { size: 12, color: colours().muted }, standoff: 8 },
        }),
        yaxis: axis({ nticks: 5, rangemode: "tozero", title: { text: ifonly.say("report.spread y"), font: { size: 12, color: colours().muted } } }),
      }),
      CONFIG,
    );
  }

  /** Mean improvement against the number of changes allowed, with its interval and the median. */
  function budgetChart(place, { byChanges, width, height }) {
    const at = byChanges.map((item) => item.max_changes);
    const mean = byChanges.map((item) => (item.mean === null ? null : 100 * item.mean));
    const above = byChanges.map((item) => (item.high == null || item.mean === null ? 0 : 100 * (item.high - item.mean)));
    const below = byChanges.map((item) => (item.low == null || item.mean === null ? 0 : 100 * (item.mean - item.low)));
    const median = byChanges.map((item) => (item.median == null ? null : 100 * item.median));
    const top = Math.max(
      1, ...mean.map((value, index) => (value || 0) + above[index]), ...median.map((value) => value || 0),
    );
    const shown = (values) => values.map((value) => (value === null ? "–" : `${value.toFixed(1)} %`));
    return Plotly.react(
      place,
      [
        {
          type: "scatter", mode: "lines+markers", name: ifonly.say("report.mean"), x: at, y: mean, ...styles().observed,
          error_y: {
            type: "data", symmetric: false, array: above, arrayminus: below, color: colours().ink, thickness: 1.2, width: 4,
          },
          customdata: shown(mean), hovertemplate: "%{customdata}",
        },
        {
          type: "scatter", mode: "lines+markers", name: ifonly.say("report.median"), x: at, y: median, ...styles().best,
          customdata: shown(median), hovertemplate: "%{customdata}",
        },
      ],
      layout({
        width, height, margin: { l: 50, r: 14, t: 24, b: 44 },
        xaxis: axis({
          showgrid: false, dtick: Math.max(1, Math.ceil(at.length / 12)),
          title: { text: ifonly.say("view.budget axis"), font: { size: 12, color: colours().muted }, standoff: 8 },
        }),
        yaxis: axis({ ticksuffix: " %", nticks: 5, range: [-0.05 * top, 1.08 * top] }),
      }),
      CONFIG,
    );
  }

  /** A small sample of a course's line and marker, for legends and row labels. */
  function sample(kind, number) {
    if (kind === "alternative") return ifonly.el("span", { class: "sample-number", "aria-hidden": "true" }, String(number));
    const space = "http://www.w3.org/2000/svg";
    const picture = document.createElementNS(space, "svg");
    picture.setAttribute("class", `sample sample-${kind}`);
    picture.setAttribute("viewBox", "0 0 34 12");
    picture.setAttribute("aria-hidden", "true");
    picture.setAttribute("focusable", "false");
    const line = document.createElementNS(space, "path");
    line.setAttribute("d", "M1 6H33");
    const drawn = { own: "M17 1.5L21.5 6L17 10.5L12.5 6Z", ruled: "M13.5 2.5H20.5V9.5H13.5Z" }[kind];
    const mark = document.createElementNS(space, drawn ? "path" : "circle");
    if (drawn) mark.setAttribute("d", drawn);
    else for (const [name, value] of [
      ["cx", 17], ["cy", 6], ["r", kind === "best" ? 4 : 3.4],
    ]) mark.setAttribute(name, value);
    mark.setAttribute("class", "mark");
    picture.append(line, mark);
    return picture;
  }

  /** The same for a mark of recorded values. */
  function markSample(origin) {
    const space = "http://www.w3.org/2000/svg";
    const picture = document.createElementNS(space, "svg");
    for (const [name, value] of [
      ["class", `mark-sample mark-${origin}`], ["viewBox", "0 0 12 12"], ["aria-hidden", "true"], ["focusable", "false"],
    ]) picture.setAttribute(name, value);
    const mark = document.createElementNS(space, "path");
    mark.setAttribute("d", origin === "assumed" ? "M3 3L9 9M9 3L3 9" : "M2.6 6a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0");
    picture.append(mark);
    return picture;
  }

  /** The mark of an axis that does not reach zero. */
  function cutSample() {
    return ifonly.el("span", { class: "cut-sample", "aria-hidden": "true" });
  }

  Object.assign(ifonly, { onColours, scheme, cutSample, markSample, span, roundValues, featureChart, frontierChart, refitsChart, spreadChart, budgetChart, sample });
})((window.ifonly = window.ifonly || {}));
