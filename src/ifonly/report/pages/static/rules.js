// Rules that a reviewer sets: kept as small lists, said in words, and translated for the search.
//   ["lock", step]  ["forbid", step or null, axis or null, level]  ["require", step, action]
//   ["jump", axis, most]  ["shift", axis, most]
// `axis` is a number; null stands for treatments without doses, where `level` is the treatment's number.
(function (ifonly) {
  "use strict";

  /** Two rules of which the later replaces the earlier have the same key. */
  function keyOf([kind, ...rest]) {
    if (kind === "lock" || kind === "require") return `step/${rest[0]}`;
    return kind === "forbid" ? `forbid/${rest.join("/")}` : `${kind}/${rest[0]}`;
  }

  function withRule(rules, rule) {
    return [...without(rules, rule), rule];
  }

  function without(rules, rule) {
    return rules.filter((one) => keyOf(one) !== keyOf(rule));
  }

  function doseWords(case_, axis, level) {
    if (axis === null) return case_.treatments.actions[level].label;
    const { name, unit, shown } = case_.treatments.axes[axis];
    return ifonly.say("dose.one", { name, dose: shown[level], unit: ifonly.spaced(unit) });
  }

  function levels(count) {
    return count === 0 ? ifonly.say("own rule.no levels") : ifonly.say("own rule.levels", { count });
  }

  function ruleWords(case_, [kind, first, second, third]) {
    const when = (step) => (step === null ? ifonly.say("own rule.every step") : ifonly.capital(ifonly.moment(case_, step)));
    if (kind === "lock") return ifonly.say("own rule.lock", { when: when(first) });
    if (kind === "forbid") return ifonly.say("own rule.forbid", { when: when(first), dose: doseWords(case_, second, third) });
    if (kind === "require") {
      return ifonly.say("own rule.require", { when: when(first), treatment: ifonly.treatment(case_, second) });
    }
    return ifonly.say(`own rule.${kind}`, { axis: ifonly.capital(case_.treatments.axes[first].name), levels: levels(second) });
  }

  /** A word for the column of every step that has a rule of its own. */
  function ruleMarks(rules) {
    const marks = {};
    for (const [kind, step] of rules) {
      if (step === null) continue;
      if (kind === "lock" || kind === "require" || (kind === "forbid" && !marks[step])) {
        marks[step] = ifonly.say(`own rule.mark.${kind}`);
      }
    }
    return marks;
  }

  function forbiddenActions(case_, step, axis, level) {
    const named = axis === null
      ? [level]
      : case_.treatments.actions.filter((action) => action.levels[axis] === level).map((action) => action.number);
    // What was recorded stays possible at its own step: keeping it is no change.
    return step === null ? named : named.filter((action) => action !== case_.observed.actions[step]);
  }

  function limitPerAxis(case_, given) {
    if (given === null || given === undefined) return {};
    if (typeof given === "object") return { ...given };
    return Object.fromEntries(case_.treatments.axes.map((axis) => [axis.name, given]));
  }

  /** The rules of the question together with the reviewer's own, in the form that the search reads. */
  function toConstraints(case_, rules) {
    const given = case_.question.query.constraints;
    const locked = new Set(given.locked || []);
    const forbidden = Object.fromEntries(Object.entries(given.forbidden || {}).map(([step, actions]) => [step, new Set(actions)]));
    const required = { ...(given.required || {}) };
    const limits = { max_jump: limitPerAxis(case_, given.max_jump), max_shift: limitPerAxis(case_, given.max_shift) };
    for (const [kind, first, second, third] of rules) {
      if (kind === "lock") locked.add(first);
      else if (kind === "require") required[String(first)] = second;
      else if (kind === "forbid") {
        const step = first === null ? "every" : String(first);
        forbidden[step] = new Set([...(forbidden[step] || []), ...forbiddenActions(case_, first, second, third)]);
      } else {
        const name = case_.treatments.axes[first].name;
        const most = limits[`max_${kind}`];
        most[name] = Math.min(second, most[name] ?? Infinity);
      }
    }
    const limit = (values) => (Object.keys(values).length ? values : null);
    return {
      locked: [...locked].sort((a, b) => a - b),
      forbidden: Object.fromEntries(Object.entries(forbidden).map(([step, actions]) => [step, [...actions]])),
      required, max_jump: limit(limits.max_jump), max_shift: limit(limits.max_shift),
      choices: given.choices || {}, last_action_fixed: Boolean(given.last_action_fixed),
    };
  }

  /** Rules from a link; whatever does not fit the case is left out. */
  function rulesFromText(case_, text) {
    const { axes, actions } = case_.treatments;
    const whole = (value, end) => Number.isInteger(value) && value >= 0 && value < end;
    const step = (value) => whole(value, case_.time.at.length);
    const dose = (axis, level) => {
      if (axis === null) return !axes.length && whole(level, actions.length);
      return whole(axis, axes.length) && whole(level, axes[axis].levels.length);
    };
    const fits = {
      lock: ([at]) => step(at),
      require: ([at, action]) => step(at) && whole(action, actions.length),
      forbid: ([at, axis, level]) => (at === null || step(at)) && dose(axis, level),
      jump: ([axis, most]) => whole(axis, axes.length) && whole(most, axes[axis].levels.length),
      shift: ([axis, most]) => whole(axis, axes.length) && whole(most, axes[axis].levels.length),
    };
    let read;
    try {
      read = JSON.parse(text);
    } catch {
      return [];
    }
    if (!Array.isArray(read)) return [];
    return read.filter((rule) => Array.isArray(rule) && Object.hasOwn(fits, rule[0]) && fits[rule[0]](rule.slice(1)))
      .reduce((rules, rule) => withRule(rules, rule), []);
  }

  Object.assign(ifonly, { withRule, without, ruleWords, ruleMarks, toConstraints, rulesFromText, doseWords });
})((window.ifonly = window.ifonly || {}));
