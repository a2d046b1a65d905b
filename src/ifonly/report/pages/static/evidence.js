// How far an answer may be trusted: a sentence first, what it rests on when somebody asks.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  /** Whether proof, model, evidence and values all speak for an answer: one word, and beside it the four. */
  function badge({ level, parts }) {
    return el("div", { class: "badge", role: "group", "aria-label": ifonly.say("badge.title") },
      el("strong", { class: `seal ${level}` }, ifonly.say(`badge.${level}`)),
      parts.map(({ name, holds, said }) => ifonly.told(
        ifonly.say(said), ifonly.say(`badge.${name}.means`), `part part-${name}${holds ? " holds" : ""}`,
      )));
  }

  function list(messages, attributes) {
    return el("ul", attributes || {}, messages.map((message) => el("li", {}, ifonly.sentence(message))));
  }

  function paragraph(code, attributes) {
    return el("p", attributes || {}, ifonly.say(code));
  }

  /** What a check of the model concluded, and on how many episodes. */
  function modelPart({ said, check }) {
    if (!check) return [el("p", {}, ifonly.say("evidence.unchecked", { said }))];
    const findings = [...new Set(check.findings)].map((kind) => ({ code: `concern.${kind}`, values: {} }));
    const episodes = ifonly.plural(check.episodes, "recorded episode");
    return [
      el("p", {}, ifonly.say(findings.length ? "evidence.check found" : "evidence.checked", { said, episodes, findings })),
      paragraph("evidence.check means", { class: "note" }),
    ];
  }

  /** In units of the outcome; more is better. */
  function gain(value) {
    return value === null ? ifonly.say("evidence.not finite") : ifonly.number(value);
  }

  function head(codes) {
    return el("thead", {}, el("tr", {}, codes.map((code) => el("th", { scope: "col" }, ifonly.say(code)))));
  }

  function refitsTable({ improvements }) {
    return el("table", { class: "figures refits-table" },
      el("caption", { class: "unseen" }, ifonly.say("evidence.every refit")), head(["evidence.refit", "evidence.improvement"]),
      el("tbody", {}, improvements.map((value, index) => el("tr", {},
        el("th", { scope: "row" }, String(index + 1)), el("td", {}, gain(value))))));
  }

  /** At which steps the refits would act alike, each in its own best sequence. */
  function stepsTable(case_, steps) {
    const changes = new Map(case_.answer.best.changes.map((change) => [change.step, change]));
    const share = (count, of) => ifonly.percent(of ? count / of : null);
    return ifonly.wide(el("table", { class: "figures words" },
      head(["table.when", "table.change", "evidence.same step", "evidence.same action"]),
      el("tbody", {}, steps.map(({ step, same_step: step_, same_action: action, of }) => el("tr", {},
        el("th", { scope: "row" }, ifonly.capital(ifonly.moment(case_, step))),
        el("td", { class: "text" }, ifonly.changeWords(case_, changes.get(step))),
        el("td", {}, share(step_, of)), el("td", {}, share(action, of)))))));
  }

  /** Who the members are, by their labels: the model fitted again, or kinds fitted to halves of the subjects. */
  function membersOf({ result }) {
    const { refits } = result.evidence;
    return refits && refits.labels.some(({ half }) => half !== null) ? "kinds" : "refits";
  }

  function refitsPart(case_, { refits: messages, gains }) {
    if (!gains) return [paragraph("evidence.no refits")];
    const { refits } = case_.answer.result.evidence;
    const [spread, ...more] = messages;
    const text = ifonly.sentence(spread);
    const key = (sign, words) =>
      el("span", { class: "key" }, el("span", { class: "sign", "aria-hidden": "true" }, sign), words);
    const others = more.filter((message) => message.code !== "refits.step"); // the table has them
    const many = gains.improvements.length > 1;
    return [
      el("p", {}, text),
      el("p", { class: "legend" }, key("\u25CB", ifonly.say("evidence.helps")),
        refits.helping < gains.improvements.length && key("\u2715", ifonly.say("evidence.does not help")),
        key("\u25C6", case_.question.objective ? ifonly.say(case_.question.objective) : ifonly.say("evidence.own model")),
        many && key("\u2500", ifonly.say(gains.many ? "evidence.nine of ten" : "evidence.all"))),
      el("div", { class: "chart refits-chart", role: "img", "aria-label": ifonly.say("evidence.refit chart", { text }) }),
      el("details", {}, el("summary", {}, ifonly.say("evidence.refit table")), refitsTable(gains)),
      refits.steps ? stepsTable(case_, refits.steps) : paragraph("evidence.not searched", { class: "note" }),
      others.length > 0 && list(others, { class: "note" }),
    ];
  }

  /** Sentences about steps; those beyond the data are marked in words. */
  function supportList(support) {
    return el("ul", { class: "support" }, support.steps.map((step) => el("li", {},
      step.beyond && el("span", { class: "tag open" }, ifonly.say("evidence.beyond")), step.beyond && " ",
      step.messages.map(ifonly.sentence).join(" "))));
  }

  function supportPart({ evidence: { support }, words }) {
    if (!support) return [el("p", {}, ifonly.say("evidence.no support", words))];
    return [el("p", {}, ifonly.sentence(support.summary)), supportList(support)];
  }

  function sensitivityPart([summary, ...details]) {
    if (!summary) return [paragraph("evidence.no sensitivity")];
    return [el("p", {}, ifonly.sentence(summary)), details.length > 0 && list(details)];
  }

  /** A summary and its details: what is left of the promise, organs, comparable records, other luck. */
  function summaryPart([summary, ...details]) {
    return [el("p", {}, ifonly.sentence(summary)), details.length > 0 && list(details)];
  }

  /** The statement as sentences: the verdict, "" where there is none, and what the parts say together. */
  function statementParts({ statement }) {
    const { verdict, told } = statement.code === "evidence.judged" ? statement.values : { told: statement };
    return { verdict: verdict ? ifonly.sentence(verdict) : "", told: ifonly.sentence(told) };
  }

  /** Everything that the sentence rests on; charts are drawn when the parts are in the page. `heading` makes titles. */
  function fillEvidence(place, case_, heading) {
    const { evidence, model, question, answer } = case_;
    const { verdict, told } = statementParts(evidence);
    const part = (name, children) => el("section", {}, heading(ifonly.say(`evidence.${name}`)), children);
    place.replaceChildren(...[
      verdict && el("p", {}, told),
      evidence.warnings.length && part("warnings", [list(evidence.warnings)]),
      evidence.examined && !evidence.warnings.length && paragraph("evidence.no proof", { class: "note" }),
      part("model", modelPart(model)),
      evidence.gain.length && part("gain", summaryPart(evidence.gain)),
      answer && part(membersOf(answer), refitsPart(case_, evidence)),
      answer && part("support", supportPart(case_)),
      evidence.calibration.length && part("calibration", summaryPart(evidence.calibration)),
      answer && part("sensitivity", sensitivityPart(evidence.sensitivity)),
      evidence.coupling.length && part("coupling", summaryPart(evidence.coupling)),
      evidence.organs.length && part("organs", summaryPart(evidence.organs)),
    ].filter(Boolean));
    const chart = place.querySelector(".refits-chart");
    if (chart) {
      const title = ifonly.say("evidence.axis", { outcome: question.outcome });
      ifonly.refitsChart(chart, { ...evidence.gains, width: Math.min(chart.clientWidth, 720), title });
    }
  }

  /** What everybody must see of a model that failed. */
  function cautionBox(caution) {
    if (!caution) return null;
    return el("p", { class: "problem grave", role: "note" },
      el("strong", {}, ifonly.say("page.caution")), ` ${ifonly.say(caution)}`);
  }

  Object.assign(ifonly, { badge, fillEvidence, membersOf, statementParts, supportList, cautionBox });
})((window.ifonly = window.ifonly || {}));
