// Elements, numbers and sentences: what every page has in common.
(function (ifonly) {
  "use strict";

  const MINUS = "\u2212";
  const NONE = "\u2013";

  /** An element with attributes, event listeners ({on: {click}}) and children; text is never read as markup. */
  function el(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
      else if (name === "style") for (const [key, item] of Object.entries(value)) made.style.setProperty(key, item);
      else made.setAttribute(name, value === true ? "" : String(value));
    }
    made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
    return made;
  }

  /** A number as people read it: about three figures, a true minus, a dash for what is not known. */
  function number(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
    const size = Math.abs(value);
    let text;
    if (size >= 1e7) {
      const [digits, power] = size.toExponential(1).split("e+");
      text = unit(`${digits} × 10^${power}`);
    } else if (size >= 1000) text = Math.round(size).toLocaleString("en-US").replaceAll(",", "\u202f");
    else if (size >= 100) text = size.toFixed(0);
    else if (size >= 10) text = size.toFixed(1);
    else if (size >= 1) text = size.toFixed(2);
    else text = size === 0 ? "0" : String(Number(size.toPrecision(2)));
    return (value < 0 && Number(text) !== 0 ? MINUS : "") + text;
  }

  /** An outcome, always to one decimal, so that two of them can be compared. */
  function outcome(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
    if (Math.abs(value) >= 10000 || (value !== 0 && Math.abs(value) < 1)) return number(value);
    return (value < -0.05 ? MINUS : "") + Math.abs(value).toFixed(1);
  }

  /** Rounded to as many digits as are shown, upwards or downwards. */
  function towards(round, value, most) {
    const size = Math.abs(value) || 1;
    const decimals = size >= 1 && size < 1e7 ? most : 1 - Math.floor(Math.log10(size));
    return round(value * 10 ** decimals) / 10 ** decimals;
  }

  /** The best outcome that is still possible, rounded so that it claims less, not more. */
  function bestPossible({ best_possible: value, proven }, question) {
    if (proven || value === null || value === undefined) return outcome(value);
    const round = question.lower_is_better ? Math.floor : Math.ceil;
    return outcome(towards(round, value, Math.abs(value) < 10000 ? 1 : 0));
  }

  /** A gap, rounded up. */
  function gapWords(value) {
    if (value === null || value === undefined) return NONE;
    return number(towards(Math.ceil, value, value < 10 ? 2 : value < 100 ? 1 : 0));
  }

  /** A share in whole percent, below ten in tenths. */
  function percent(share) {
    if (share === null || share === undefined || !Number.isFinite(share)) return NONE;
    const size = Math.abs(100 * share);
    const text = size < 9.95 && size !== 0 ? size.toFixed(1) : size.toFixed(0);
    return `${share < 0 && Number(text) !== 0 ? MINUS : ""}${text} %`;
  }

  /** A share in tenths of a percent, for columns. */
  function tenths(share) {
    if (share === null || share === undefined || !Number.isFinite(share)) return NONE;
    const text = Math.abs(100 * share).toFixed(1);
    return `${share < 0 && Number(text) !== 0 ? MINUS : ""}${text} %`;
  }

  /** How an improvement moves the outcome: "−21 %" where lower is better, "+21 %" where higher is. */
  function moved(improvement, question) {
    if (improvement === null || improvement === undefined) return "";
    const rises = improvement < 0 === question.lower_is_better;
    const text = percent(Math.abs(improvement));
    return Number.parseFloat(text) === 0 ? "0 %" : `${rises ? "+" : MINUS}${text}`;
  }

  function capital(text) {
    return text.charAt(0).toUpperCase() + text.slice(1);
  }

  function uncapital(text) {
    return text.charAt(0).toLowerCase() + text.slice(1);
  }

  function plural(count, noun) {
    return `${count === 0 ? "no" : count} ${noun}${count === 1 ? "" : "s"}`;
  }

  function isHours(case_) {
    return /^h(ours?)?$/i.test(case_.time.unit || "");
  }

  /** A moment in words: "hour 8", or "step 3" where steps have no known length. */
  function moment(case_, step) {
    const at = case_.time.at[step];
    if (isHours(case_)) return `hour ${trimmed(at)}`;
    return case_.time.unit ? `${case_.time.unit} ${trimmed(at)}` : `step ${step + 1}`;
  }

  function timeTitle(case_) {
    return isHours(case_) ? "Hour" : capital(case_.time.unit || "step");
  }

  function trimmed(value) {
    return (value < 0 ? MINUS : "") + String(Math.abs(Number(value.toFixed(Math.abs(value) < 0.1 ? 4 : 2))));
  }

  /** "age 63 years", "female: no": a fact, whose unit may say what 1 stands for. */
  function fact(item) {
    const coded = /^1\s*=\s*(.+)$/.exec(item.unit || "");
    if (coded && (item.value === 0 || item.value === 1)) {
      return `${coded[1] === "yes" ? item.name : coded[1]}: ${item.value === 1 ? "yes" : "no"}`;
    }
    return `${item.name} ${number(item.value).replace(/\.0+$/, "")}${item.unit ? ` ${unit(item.unit)}` : ""}`;
  }

  /** A unit for the eye: "10^9/L" with a raised nine. */
  function unit(text) {
    const raised = { 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹", "-": "⁻" };
    return (text || "").replace(/\^(-?\d+)/g, (_, digits) => [...digits].map((digit) => raised[digit]).join(""));
  }

  /** Words of the server about doses, with true arrows, raised figures, and units that stay with their number. */
  function pretty(case_, text) {
    const fixed = (words) => words.replaceAll(" ", "\u00a0");
    const units = case_.treatments.axes.map((axis) => axis.unit).filter(Boolean);
    const tied = units.reduce((words, one) => words.replaceAll(` ${one}`, fixed(` ${one}`)), text);
    return unit(tied).replaceAll(" -> ", " \u2192 ");
  }

  /** The question of a cohort, as a question. */
  function askedWords({ max_changes: most, lower_is_better: lower, objective, judged_by: judges }) {
    const allowed = most === null ? "any number of changes" : `at most ${plural(most, "change")}`;
    return `with ${allowed} of treatment, how much ${lower ? "lower" : "higher"} could ${objective} have been` +
      `${judges ? `, by ${judges} of the model` : ""}?`;
  }

  /** The whole case in one sentence; `course` is the one shown, or null where none is known. */
  function headline(case_, course, allowed) {
    const question = case_.question;
    const recorded = `${capital(question.objective)} ${outcome(case_.observed.outcome)} as recorded`;
    if (course === null) return `${recorded}.`;
    if (course.changes.length === 0) {
      return allowed > 0 ? `${recorded}; nothing better found with at most ${plural(allowed, "change")}.` : `${recorded}.`;
    }
    const shift = moved(course.improvement, question);
    return (
      `${recorded}; ${outcome(course.outcome)} with ${plural(course.changes.length, "change")}` +
      `${shift ? ` (${shift})` : ""}.`
    );
  }

  /** What is claimed about the budget shown: the server's own sentence. */
  function certificate(case_, budget) {
    if (case_.answer === null) return "Whether another treatment would have done better is not known yet.";
    if (budget === null) return case_.answer.statement;
    return budget.max_changes === 0 && budget.course ? "This is the course as it was recorded." : budget.statement;
  }

  /** Text that is announced only when it changes; an empty place is hidden. */
  function setText(place, text) {
    if (place.textContent !== text) place.textContent = text;
    place.hidden = !text;
  }

  /** The JSON that the page was sent with. */
  function embedded(id) {
    const found = document.getElementById(id);
    return found ? JSON.parse(found.textContent) : null;
  }

  Object.assign(ifonly, {
    el, number, outcome, bestPossible, gapWords, percent, tenths, moved, capital, uncapital, plural, moment, timeTitle, isHours, trimmed, fact, unit, pretty,
    askedWords, headline,
    certificate, embedded, setText,
  });
})((window.ifonly = window.ifonly || {}));
