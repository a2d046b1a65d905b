// Elements, numbers, and sentences from the catalogue: what every page has in common.
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

  /** Put children into a place, leaving out what is not there. */
  function fill(place, ...children) {
    place.replaceChildren(...children.filter(Boolean));
  }

  /** A place for a table that may be wider than the page: who uses the keyboard can scroll it where it is. */
  function wide(...children) {
    const place = el("div", { class: "wide", role: "group", "aria-label": say("page.wide") }, ...children);
    new ResizeObserver(() => {
      if (place.scrollWidth > place.clientWidth) place.setAttribute("tabindex", "0");
      else place.removeAttribute("tabindex");
    }).observe(place);
    return place;
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

  const TELLING = 0.0005;
  const MOST_DECIMALS = 9;

  /** Decimals that tell outcomes from the first: the rule of `outcomes` of ifonly/text/numbers.py. */
  function decimalsOf(values) {
    const finite = values.filter(Number.isFinite);
    const largest = Math.max(0, ...finite.map(Math.abs));
    const small = finite.map((value) => Math.abs(value - finite[0])).filter((size) => size > 0 && size < 0.1 && size >= TELLING * largest);
    if (largest > 0 && largest < 1) small.push(largest);
    const decimals = small.length ? 1 - Math.floor(Math.log10(Math.min(...small))) : 1;
    return { decimals, digits: Math.max(1, decimals + Math.floor(Math.log10(largest || 1))) };
  }

  /** An outcome to as many decimals as tell it from those that stand beside it, the first of all first; one at usual sizes. */
  function outcome(value, beside = [value]) {
    if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
    const size = Math.abs(value);
    if (size >= 10000) return number(value);
    const { decimals, digits } = decimalsOf(beside);
    const text = decimals > MOST_DECIMALS ? size.toExponential(digits) : size.toFixed(decimals);
    return (value < 0 && Number(text) !== 0 ? MINUS : "") + text;
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

  /** How an improvement moves the outcome: "−21.0 %" where lower is better, "+21.0 %" where higher is; as in columns. */
  function moved(improvement, question) {
    if (improvement === null || improvement === undefined) return "";
    const rises = improvement < 0 === question.lower_is_better;
    const text = tenths(Math.abs(improvement));
    return Number.parseFloat(text) === 0 ? "0 %" : `${rises ? "+" : MINUS}${text}`;
  }

  function capital(text) {
    return text.charAt(0).toUpperCase() + text.slice(1);
  }

  /** Sentences by their codes, as the page brought them; reports hand theirs over. */
  let sentences = null;

  function useSentences(given) {
    sentences = given;
  }

  /**
   * The sentence of a code with its values, or of a message ({code, values}). {name} stands for a value, {name|one|many}
   * for "one" where the value is 1 and for "many" otherwise; values may be messages themselves, or lists of them.
   */
  function say(what, given) {
    const { code, values } = typeof what === "string" ? { code: what, values: given || {} } : what;
    if (!knows(code)) throw new Error(`no sentence for ${code}`);
    return sentences[code].replace(/\{(\w+)(?:\|([^|}]*)\|([^|}]*))?\}/g, (_, name, one, many) => {
      if (!Object.hasOwn(values, name)) throw new Error(`${code}: no value for ${name}`);
      return one === undefined ? shown(values[name]) : values[name] === 1 ? one : many;
    });
  }

  /** Whether there is a sentence for a code. */
  function knows(code) {
    sentences = sentences || embedded("sentences-data");
    return Object.hasOwn(sentences, code);
  }

  /** The codes that begin so. */
  function codesOf(beginning) {
    sentences = sentences || embedded("sentences-data");
    return Object.keys(sentences).filter((code) => code.startsWith(beginning));
  }

  function shown(value) {
    if (!Array.isArray(value)) return value !== null && typeof value === "object" ? say(value) : String(value);
    const words = value.map(shown);
    return words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}` : words.join("");
  }

  /** A message as a sentence of its own, with true minus signs and raised figures. */
  function sentence(message) {
    const text = unit(capital(say(message))).replace(/(^|\s)-(?=\d)/g, `$1${MINUS}`);
    return /[.!?]\)?$/.test(text) ? text : say("page.sentence", { text });
  }

  /** "no changes", "1 change", "2 changes"; of what is counted, `noun`, the catalogue has both forms. */
  function plural(count, noun) {
    return say(`count.${noun}`, { count, number: count === 0 ? say("count.none") : count });
  }

  function isHours(case_) {
    return /^h(ours?)?$/i.test(case_.time.unit || "");
  }

  /** A moment in words: "hour 8", or "step 3" where steps have no known length. */
  function moment(case_, step) {
    const time = trimmed(case_.time.at[step]);
    if (isHours(case_)) return say("moment.hour", { time });
    return case_.time.unit ? say("moment.unit", { unit: case_.time.unit, time }) : say("moment.step", { time: step + 1 });
  }

  function timeTitle(case_) {
    return isHours(case_) ? say("moment.title.hour") : capital(case_.time.unit || say("moment.title.step"));
  }

  function trimmed(value) {
    return (value < 0 ? MINUS : "") + String(Math.abs(Number(value.toFixed(Math.abs(value) < 0.1 ? 4 : 2))));
  }

  /** "age 63 years", "female: no": a fact, whose unit may say what 1 stands for. */
  function fact(item) {
    const coded = /^1\s*=\s*(.+)$/.exec(item.unit || "");
    if (coded && (item.value === 0 || item.value === 1)) {
      const name = coded[1] === say("page.yes") ? item.name : coded[1];
      return say("fact.coded", { name, answer: say(item.value === 1 ? "page.yes" : "page.no") });
    }
    const value = number(item.value).replace(/\.0+$/, "");
    return say("fact.value", { name: item.name, value, unit: spaced(item.unit) });
  }

  /** A measurement's unit beside its name, unless the name ends with it: "cost (EUR)". */
  function unitBeside(feature) {
    return feature.label === feature.name ? "" : unit(feature.unit);
  }

  /** A unit for the eye: "10^9/L" with a raised nine. */
  function unit(text) {
    const raised = { 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹", "-": "⁻" };
    return (text || "").replace(/\^(-?\d+)/g, (_, digits) => [...digits].map((digit) => raised[digit]).join(""));
  }

  /** The same after a number, to which it is tied. */
  function spaced(text) {
    return text ? `\u00a0${unit(text).replaceAll(" ", "\u00a0")}` : "";
  }

  /** The sentence for a dose that differs: raised or lowered, unless doses are words such as "no" and "given". */
  function wayCode(axis, before, after) {
    if (axis.shown.some((text) => Number.isNaN(Number(text)))) return "dose.change";
    return after > before ? "dose.up" : "dose.down";
  }

  /** The same as a line of its own, with the moment and the direction: "Hour 8: fluids lowered, 850 → 279 mL/4 h". */
  function changeLine(case_, change) {
    return capital(say("change.when", { when: moment(case_, change.step), change: changeWords(case_, change, wayCode, "; ") }));
  }

  /** The same without units, for tables: "Hour 8: fluids 850 → 279". */
  function changeBrief(case_, change) {
    const words = changeWords(case_, change, () => "dose.brief");
    return capital(say("change.when", { when: moment(case_, change.step), change: words }));
  }

  /** A change of treatment, naming only the doses that differ; `code` tells the sentence for each of them. */
  function changeWords(case_, { observed, counterfactual }, code = () => "dose.change", between = ", ") {
    const { axes, actions } = case_.treatments;
    const [old, now] = [actions[observed], actions[counterfactual]];
    if (!axes.length) return say("dose.other", { before: old.label, after: now.label });
    return axes.map((axis, index) => old.levels[index] !== now.levels[index] && say(code(axis, old.levels[index], now.levels[index]), {
      name: axis.name, before: axis.shown[old.levels[index]], after: axis.shown[now.levels[index]], unit: spaced(axis.unit),
    })).filter(Boolean).join(between);
  }

  /** A treatment's label, with units that stay with their number. */
  function treatment(case_, action) {
    const units = case_.treatments.axes.map((axis) => axis.unit).filter(Boolean);
    return units.reduce((text, one) => text.replaceAll(` ${one}`, spaced(one)), case_.treatments.actions[action].label);
  }

  /** The question of a cohort, as a question. */
  function askedWords({ max_changes: most, lower_is_better: lower, outcome: label, objective }) {
    return say("list.question", {
      allowed: most === null ? say("list.any number") : say("count.at most", { count: plural(most, "change") }),
      better: say(lower ? "list.lower" : "list.higher"), outcome: label,
      judged: objective ? say("list.judged", { objective }) : "",
    });
  }

  /** The whole case in one sentence; `course` is the one shown, or null where none is known. */
  function headline(case_, course, allowed) {
    const { question } = case_;
    const pair = [case_.observed.outcome, course && course.outcome];
    const values = { outcome: capital(question.outcome), recorded: outcome(pair[0], pair) };
    if (course === null || (!course.changes.length && allowed === 0)) return say("view.headline", values);
    if (!course.changes.length) return say("view.headline nothing", { ...values, changes: plural(allowed, "change") });
    return say("view.headline changed", {
      ...values, shown: outcome(pair[1], pair), changes: plural(course.changes.length, "change"),
      moved: movedWords(course.improvement, question),
    });
  }

  /** How an improvement moves the outcome, in brackets; nothing where that is not known. */
  function movedWords(improvement, question) {
    const text = moved(improvement, question);
    return text ? say("view.moved", { moved: text }) : "";
  }

  /** What is claimed about the budget shown, as a message. */
  function certificate(case_, budget) {
    if (case_.answer === null) return { code: "case.unanswered", values: {} };
    if (budget === null) return case_.answer.claim.statement;
    return budget.max_changes === 0 && budget.course ? { code: "case.recorded", values: {} } : budget.claim.statement;
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
    el, fill, wide, number, outcome, bestPossible, gapWords, percent, tenths, moved, movedWords, capital, plural, moment, timeTitle,
    isHours, trimmed, fact, unit, unitBeside, spaced, changeWords, changeLine, changeBrief, treatment, askedWords, headline, certificate, embedded, setText, say, knows, codesOf,
    sentence, useSentences,
  });
})((window.ifonly = window.ifonly || {}));
