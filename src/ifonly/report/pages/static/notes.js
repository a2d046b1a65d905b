// The reviewer's judgement of a case: verdict, note, remarks on steps, name; saved on the server, never silently lost.
// Several reviewers judge the same case; what others say is shown to those who have given their own verdict.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  const VERDICTS = ["plausible", "implausible", "unsure"];
  const NAME = "ifonly.reviewer";
  const NOTHING = { verdict: null, note: "", reviewer: "", updated: null, revision: 0, steps: [] };

  function remembered() {
    try {
      return localStorage.getItem(NAME) || "";
    } catch {
      return "";
    }
  }

  function remember(name) {
    try {
      localStorage.setItem(NAME, name);
    } catch {
      // Without storage the name is typed again; nothing else is lost.
    }
  }

  function verdictWords(verdict) {
    return ifonly.capital(ifonly.say(`verdict.${verdict}`));
  }

  /** A note in a line: its verdict, and what is written. */
  function saidOf({ verdict: given, note: written }) {
    const verdict = given ? verdictWords(given) : ifonly.say("note.no verdict");
    return written ? ifonly.say("note.both", { verdict, note: ifonly.say("note.quoted", { note: written }) }) : verdict;
  }

  class NoteCard {
    /** `reviews`: the latest note of every reviewer; `limits`: the most that the server takes; `onRemarks()`: they differ. */
    constructor(place, case_, reviews, limits, onRemarks) {
      this.case = case_;
      this.episode = case_.episode;
      this.reviews = reviews;
      this.onRemarks = onRemarks;
      this.remarks = [];
      this.saved = NOTHING;
      this.radios = VERDICTS.map((value) =>
        el("label", { class: "choice" }, el("input", { type: "radio", name: "verdict", value, on: { change: () => this.tell() } }), verdictWords(value)));
      this.note = el("textarea", { id: "note", rows: 5, maxlength: limits.note, on: { input: () => this.tell() } });
      this.reviewer = el(
        "input",
        {
          type: "text", id: "reviewer", maxlength: limits.reviewer, autocomplete: "name",
          on: { input: () => this.tell(), change: () => this.rename() },
        },
      );
      this.list = el("ul", { class: "remarks" });
      this.others = el("div", { class: "others" });
      this.next = el("p", { class: "next" });
      this.state = el("p", { class: "saved", role: "status" });
      this.button = el("button", { type: "submit", class: "main" }, ifonly.say("note.save"));
      this.trouble = el("div", {});
      place.append(el("section", { class: "card", "data-tour": "judge", "aria-labelledby": "note-title" },
        el("h2", { id: "note-title" }, ifonly.say("note.title")),
        el("form", { class: "card-form", on: { submit: (event) => { event.preventDefault(); this.save(); } } },
          el(
            "fieldset", {}, el("legend", {}, ifonly.say("note.question")),
            el("div", { class: "verdicts" }, this.radios),
          ),
          el("div", { class: "field" }, el("label", { for: "note" }, ifonly.say("note.note")), this.note),
          this.list,
          el("div", { class: "field" }, el("label", { for: "reviewer" }, ifonly.say("note.reviewer")), this.reviewer),
          this.trouble, el("div", { class: "row" }, this.button, this.state)), this.others, this.next));
      this.fill(this.noteOf(remembered()));
      window.addEventListener("beforeunload", (event) => {
        if (this.unsaved()) event.preventDefault();
      });
    }

    noteOf(reviewer) {
      return this.reviews.find((one) => one.reviewer === reviewer) || { ...NOTHING, reviewer };
    }

    /** Under another name stands what was saved under it, unless something was typed already. */
    rename() {
      const theirs = this.noteOf(this.reviewer.value.trim());
      const typed = this.verdict() !== this.saved.verdict || this.note.value.trim() !== this.saved.note.trim() || this.remarked();
      if (typed) this.saved = { ...NOTHING, reviewer: theirs.reviewer }; // what they saved before is shown as a conflict
      else this.fill(theirs);
      this.tell();
    }

    remarked() {
      return JSON.stringify(this.remarks) !== JSON.stringify(this.saved.steps);
    }

    fill(note) {
      this.saved = note;
      this.remarks = note.steps.map((one) => ({ ...one }));
      for (const radio of this.radios) radio.firstChild.checked = radio.firstChild.value === note.verdict;
      this.note.value = note.note || "";
      this.reviewer.value = note.reviewer || remembered();
      this.drawRemarks();
      this.drawOthers();
      this.tell();
    }

    /** Say something of a step, or with nothing take it back; kept with the next save. */
    remark(step, text) {
      const others = this.remarks.filter((one) => one.step !== step);
      this.remarks = (text ? [...others, { step, text }] : others).sort((a, b) => a.step - b.step);
      this.drawRemarks();
      this.tell();
      this.onRemarks();
    }

    remarkOn(step) {
      return this.remarks.find((one) => one.step === step)?.text || "";
    }

    /** A word for the column of every step that somebody whose words are shown has remarked on. */
    marks() {
      const shown = [...this.remarks, ...(this.isJudged() ? this.othersNotes().flatMap((one) => one.steps) : [])];
      return Object.fromEntries(shown.map(({ step }) => [step, ifonly.say("note.mark")]));
    }

    drawRemarks() {
      this.list.hidden = !this.remarks.length;
      this.list.replaceChildren(...this.remarks.map(({ step, text }) => el("li", {}, el("span", {}, this.remarkWords({ step, text })),
        el("button", {
          type: "button", class: "link", "aria-label": ifonly.say("note.remove remark", { when: ifonly.moment(this.case, step) }),
          on: { click: () => { this.remark(step, ""); this.note.focus(); } },
        }, ifonly.say("search.remove")))));
    }

    remarkWords({ step, text }) {
      return ifonly.say("note.remark", { when: ifonly.capital(ifonly.moment(this.case, step)), text });
    }

    isJudged() {
      return this.saved.verdict !== null && this.saved.revision > 0;
    }

    othersNotes() {
      return this.reviews.filter((one) => one.reviewer !== this.saved.reviewer);
    }

    /** What others say, once one has given one's own verdict; that there are others, before. */
    drawOthers() {
      const others = this.othersNotes();
      const judged = others.filter((one) => one.verdict !== null).length;
      if (!this.isJudged()) {
        this.others.replaceChildren(...(judged ? [el("p", { class: "note" }, ifonly.say("note.others wait", { count: judged }))] : []));
        return;
      }
      this.others.replaceChildren(...others.map((one) => el("div", { class: "other" },
        el("p", {}, ifonly.say("note.other", { reviewer: one.reviewer || ifonly.say("note.somebody"), said: saidOf(one) })),
        one.steps.length > 0 && el("ul", {}, one.steps.map((remark) => el("li", {}, this.remarkWords(remark)))))));
    }

    /** The next case that waits for this reviewer. */
    async drawNext() {
      const parameters = { reviews: "open", order: "queue", reviewer: this.saved.reviewer, size: 2 };
      const found = await ifonly.ask(`/api/episodes?${ifonly.query(parameters)}`).catch(() => null);
      const row = found && found.rows.find((one) => one.episode !== this.episode);
      this.next.replaceChildren(...(row ? [el("a", {
        href: `/case?${ifonly.query({ episode: row.episode })}`,
      }, ifonly.say("note.next", { count: found.total }))] : []));
    }

    verdict() {
      const chosen = this.radios.find((radio) => radio.firstChild.checked);
      return chosen ? chosen.firstChild.value : null;
    }

    unsaved() {
      const { saved } = this;
      return this.verdict() !== (saved.verdict || null) || this.note.value.trim() !== (saved.note || "").trim() || this.remarked();
    }

    tell() {
      const unsaved = this.unsaved();
      this.button.disabled = !unsaved;
      this.state.classList.toggle("unsaved", unsaved);
      const { updated, reviewer } = this.saved;
      const when = updated ? new Date(updated) : null;
      const shown = when && when.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
      const code = unsaved ? "unsaved" : !when ? "nothing" : reviewer ? "saved by" : "saved";
      ifonly.setText(this.state, ifonly.say(`note.${code}`, { when: shown, reviewer }));
    }

    async save(over) {
      this.trouble.replaceChildren();
      this.button.disabled = true;
      ifonly.setText(this.state, ifonly.say("note.saving"));
      const name = this.reviewer.value.trim();
      remember(name);
      if (name !== this.saved.reviewer) this.saved = { ...NOTHING, reviewer: name };
      try {
        const saved = await ifonly.ask("/api/notes", { method: "PUT", body: {
          episode: this.episode, verdict: this.verdict(), note: this.note.value.trim(), reviewer: name,
          revision: over === undefined ? this.saved.revision : over, steps: this.remarks,
        } });
        const { notes } = await ifonly.ask(`/api/reviews?${ifonly.query({ episode: this.episode })}`).catch(() => ({ notes: [saved] }));
        this.reviews = notes;
        this.fill(saved);
        this.onRemarks();
        await this.drawNext();
      } catch (problem) {
        this.tell();
        if (problem.status === 409) await this.conflict();
        else this.trouble.replaceChildren(ifonly.problemBox(problem));
      }
    }

    /** Somebody of the same name saved meanwhile: show theirs, keep what was typed, let the reviewer decide. */
    async conflict() {
      const reviewer = this.reviewer.value.trim();
      const theirs = await ifonly.ask(`/api/notes?episode=${encodeURIComponent(this.episode)}&reviewer=${encodeURIComponent(reviewer)}`)
        .catch(() => null);
      if (!theirs) {
        this.trouble.replaceChildren(el(
          "p", { class: "problem", role: "alert" },
          ifonly.say("note.conflict unknown"),
        ));
        return;
      }
      const said = saidOf(theirs);
      this.trouble.replaceChildren(el("div", { class: "problem", role: "alert" },
        el("p", {}, ifonly.say("note.conflict", { reviewer: theirs.reviewer || ifonly.say("note.somebody"), said })),
        el("div", { class: "row" },
          el(
            "button",
            { type: "button", on: { click: () => { this.trouble.replaceChildren(); this.save(theirs.revision); } } },
            ifonly.say("note.over"),
          ),
          el("button", { type: "button", on: { click: () => { this.trouble.replaceChildren(); this.fill(theirs); } } }, ifonly.say("note.theirs")))));
    }
  }

  Object.assign(ifonly, { NoteCard });
})((window.ifonly = window.ifonly || {}));
