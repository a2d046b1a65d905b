// The dialog of one dose: try another one, or set a rule for its step.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  /** The treatment that has `level` on one axis and is otherwise like `action`. */
  function withLevel(case_, action, axis, level) {
    if (axis === null) return level;
    const wanted = case_.treatments.actions[action].levels.map((own, index) => (index === axis ? level : own));
    return case_.treatments.actions.findIndex((one) => one.levels.every((own, index) => own === wanted[index]));
  }

  /**
   * Ask. `at`: {case, step, axis, current (action now), courses: [{name, actions}], locked, remark (of the reviewer on the
   * step), onDose(action), onRule(rule), onUnrule(rule), onRemark(text)}.
   */
  function openDoseDialog(at) {
    const { case: case_, step, axis } = at;
    const lane = ifonly.lanesOf(case_).find((one) => one.index === axis);
    const unit = ifonly.spaced(lane.unit);
    const now = lane.level(at.current);
    const dialog = el("dialog", { "aria-labelledby": "dose-title" });
    let chosen = now;
    const close = (then) => () => {
      dialog.close();
      if (then) then();
    };
    const shown = (level) => (axis === null ? case_.treatments.actions[level].label : case_.treatments.axes[axis].shown[level]);
    const choices = Array.from(
      { length: lane.levels }, (_, index) => (axis === null ? index : lane.levels - 1 - index),
    ).map((level) => {
      const tags = at.courses.filter((course) => lane.level(course.actions[step]) === level).map((course) => course.name);
      return el("label", { class: "choice" },
        el(
          "input",
          {
            type: "radio", name: "dose", value: level, checked: level === now, autofocus: level === now,
            on: { change: () => choose(level) },
          },
        ),
        el("span", {}, `${shown(level)}${unit}`), tags.length ? el("span", { class: "tags" }, tags.join(", ")) : null);
    });
    const rules = el("div", { class: "dialog-rules" });
    function rule(words, one, off) {
      return el(
        "button", { type: "button", class: "link", disabled: off, on: { click: close(() => at.onRule(one)) } }, words,
      );
    }
    function choose(level) {
      chosen = level;
      const action = withLevel(case_, at.current, axis, level);
      const when = ifonly.moment(case_, step);
      const recorded = lane.level(case_.observed.actions[step]) === level;
      const dose = ifonly.doseWords(case_, axis, level);
      rules.replaceChildren(
        el("p", { class: "label" }, ifonly.say("dialog.rule")),
        at.locked
          ? el(
            "button", { type: "button", class: "link", on: { click: close(() => at.onUnrule(["lock", step])) } },
            ifonly.say("dialog.unlock", { when }),
          )
          : rule(ifonly.say("dialog.lock", { when }), ["lock", step]),
        rule(
          ifonly.say("dialog.require", { when, treatment: ifonly.treatment(case_, action) }),
          ["require", step, action],
        ),
        recorded
          ? el(
            "span", { class: "note" }, ifonly.say("dialog.recorded", { dose: ifonly.capital(dose), when }),
          )
          : rule(ifonly.say("dialog.forbid", { dose, when }), ["forbid", step, axis, level]),
        rule(ifonly.say("dialog.forbid ever", { dose }), ["forbid", null, axis, level]));
    }
    const remark = el("input", { type: "text", id: "remark", maxlength: 500, value: at.remark, autocomplete: "off" });
    const keep = el("button", { type: "button", on: { click: close(() => at.onRemark(remark.value.trim())) } }, ifonly.say("dialog.keep remark"));
    remark.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault(); // it is not meant for the dose
      keep.click();
    });
    choose(now);
    const form = el("form", { method: "dialog", on: { submit: (event) => {
      event.preventDefault();
      dialog.close();
      if (chosen !== now) at.onDose(withLevel(case_, at.current, axis, chosen));
    } } },
      el("h2", { id: "dose-title" }, ifonly.say("dialog.title", { lane: lane.name, when: ifonly.moment(case_, step) })),
      el("fieldset", {}, el("legend", { class: "unseen" }, ifonly.say("dialog.dose")), el("div", { class: "doses" }, choices)),
      el("div", { class: "row" }, el("button", { type: "submit", class: "main" }, ifonly.say("dialog.try")),
        el("button", { type: "button", on: { click: close() } }, ifonly.say("page.cancel"))),
      rules, el("div", { class: "field dialog-remark" },
        el("label", { for: "remark" }, ifonly.say("dialog.remark", { when: ifonly.moment(case_, step) })),
        el("div", { class: "row" }, remark, keep)));
    dialog.append(form);
    dialog.addEventListener("close", () => dialog.remove());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    document.body.append(dialog);
    dialog.showModal();
  }

  Object.assign(ifonly, { openDoseDialog });
})((window.ifonly = window.ifonly || {}));
