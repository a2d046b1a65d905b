// Which courses a view of a case shows, what they are called, and their values: no drawing here.
// A view: {k (changes allowed), alternative (number or null), own (a course or null), span ([first, last] step or null)}.
(function (ifonly) {
  "use strict";

  /** The budget that a view shows; the last one where alternatives are paged through. */
  function budgetOf(case_, view) {
    const budgets = case_.answer ? case_.answer.budgets : [];
    return budgets[Math.min(view.k, budgets.length - 1)] || null;
  }

  /** The counterfactual course that a view shows, or null. */
  function courseOf(case_, view) {
    if (!case_.answer) return null;
    if (view.alternative !== null && case_.answer.alternatives[view.alternative]) {
      return case_.answer.alternatives[view.alternative];
    }
    const budget = budgetOf(case_, view);
    return budget ? budget.course : case_.answer.best;
  }

  function firstView(case_) {
    const budgets = case_.answer ? case_.answer.budgets : [];
    // A page that was exported holds the version that was tried.
    return { k: Math.max(0, budgets.length - 1), alternative: null, own: case_.edited || null, span: null };
  }

  /** What the shown course is called, in lanes, legends and charts; "best" alone only where that is proven. */
  function courseName(case_, view) {
    const course = courseOf(case_, view);
    if (view.alternative !== null) return ifonly.say("view.alternative", { number: view.alternative + 1 });
    const changes = ifonly.plural(course.changes.length, "change");
    return ifonly.say(isProven(case_, view) ? "view.best" : "view.best found", { changes });
  }

  /** Whether a view shows the answer itself, which the badge is about, and no other budget or alternative. */
  function isAnswer(case_, view) {
    return Boolean(case_.answer) && view.alternative === null && view.k >= case_.answer.budgets.length - 1;
  }

  function isProven(case_, view) {
    const budget = budgetOf(case_, view);
    return Boolean(budget ? budget.claim.proven : case_.answer && case_.answer.claim.proven);
  }

  /** The same name in full, for the outcome. */
  function outcomeName(case_, view, row) {
    if (row.kind !== "best" || view.alternative !== null) return ifonly.capital(row.name);
    const budget = budgetOf(case_, view);
    const most = budget ? budget.max_changes : case_.question.max_changes;
    const allowed = ifonly.say("view.with at most", { changes: ifonly.plural(most, "change") });
    return ifonly.say(isProven(case_, view) ? "view.best with" : "view.best found with", { allowed });
  }

  /** Whether a course is the best one, which has its cautions at the top of the page. */
  function isBest(case_, course) {
    const best = case_.answer?.best;
    return Boolean(best && course) && best.actions.join() === course.actions.join();
  }

  /** The courses to compare: recorded, shown, and the reviewer's own. */
  function rowsOf(case_, view) {
    const course = courseOf(case_, view);
    return [
      { kind: "observed", name: ifonly.say("view.recorded"), course: case_.observed },
      course && { kind: "best", name: courseName(case_, view), course },
      view.own && { kind: "own", name: ifonly.say("view.own"), course: view.own },
    ].filter(Boolean).map((row) => ({ ...row, actions: row.course.actions }));
  }

  /** The measurements that the outcome is made of: those that its name mentions, else the first. A name may have spaces,
   * brackets and signs, and another one in it: the longest count first. */
  function primaryFeatures(case_) {
    const dynamic = case_.features.filter((feature) => feature.kind === "dynamic");
    let words = case_.question.outcome.toLowerCase();
    const named = [...dynamic].sort((one, other) => other.name.length - one.name.length).filter((feature) => {
      const name = feature.name.toLowerCase().replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
      const before = words;
      words = words.replace(new RegExp(`(?<![\\p{L}\\p{N}_.])${name}(?![\\p{L}\\p{N}_]|\\.[\\p{L}\\p{N}_])`, "gu"), " ");
      return words !== before;
    });
    return named.length ? dynamic.filter((feature) => named.includes(feature)) : dynamic.slice(0, 1);
  }

  /** Values of one feature along a course, which has only the dynamic ones. */
  function valuesAlong(case_, feature, course) {
    if (course === case_.observed || feature.kind !== "dynamic") return feature.observed;
    const index = case_.features.filter((one) => one.kind === "dynamic").indexOf(feature);
    return course.states.map((state) => state[index]);
  }

  /** The values of a score along a course as its organs make it, or null. */
  function organValues(feature, course) {
    const score = course.scores.find((one) => one.feature === feature.name);
    return score ? score.values : null;
  }

  /** What a feature's chart shows: every course, and thin the score that its organs make. */
  function seriesOf(case_, feature, rows) {
    // What no treatment changes is drawn once.
    return (feature.kind === "dynamic" ? rows : rows.slice(0, 1)).flatMap(({ kind, name, course, number }) => {
      const organs = organValues(feature, course);
      const origins = kind === "observed" ? feature.origins : null;
      return [
        { kind, name, number, values: valuesAlong(case_, feature, course), origins },
        organs && { kind, name: ifonly.say("view.by organs", { course: name }), values: organs, thin: true },
      ].filter(Boolean);
    });
  }

  /** The band of a feature under every refit, where the shown course is the one that it is about, or null. */
  function bandOf(case_, feature, course) {
    return (isBest(case_, course) && case_.answer.bands.find((band) => band.feature === feature.name)) || null;
  }

  /** Every course that can be shown. */
  function allCourses({ observed, answer }, more) {
    return [
      observed, ...more,
      ...(answer ? [answer.best, ...answer.alternatives, ...answer.budgets.map((budget) => budget.course)] : []),
    ].filter(Boolean);
  }

  /** Everything that a feature's axis must hold, whichever course is shown. */
  function within(case_, feature, more) {
    const band = case_.answer && bandOf(case_, feature, case_.answer.best);
    return allCourses(case_, more).flatMap(
      (course) => [...valuesAlong(case_, feature, course), ...(organValues(feature, course) || [])],
    ).concat(band ? [...band.low, ...band.high] : []);
  }

  /** The steps that a view shows: all of them, or those within its span. */
  function stepsOf(case_, view) {
    const all = case_.time.at.map((_, step) => step);
    return view.span ? all.slice(view.span[0], view.span[1] + 1) : all;
  }

  Object.assign(ifonly, {
    budgetOf, courseOf, firstView, courseName, isAnswer, isProven, outcomeName, isBest, rowsOf, primaryFeatures,
    valuesAlong, seriesOf, bandOf, allCourses, within, stepsOf,
  });
})((window.ifonly = window.ifonly || {}));
