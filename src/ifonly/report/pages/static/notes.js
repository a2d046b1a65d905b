// The reviewer's judgement of a case: verdict, note, name; saved on the server, never silently lost.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  const VERDICTS = ["plausible", "implausible", "unsure"];
  const NAME = "ifonly.reviewer";

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

  class NoteCard {
    /** `limits`: {note, reviewer}, the most characters that the server takes. */
    constructor(place, episode, note, limits) {
      this.episode = episode;
      this.saved = note;
      this.radios = VERDICTS.map((value) =>
        el("label", { class: "choice" }, el("input", { type: "radio", name: "verdict", value, on: { change: () => this.tell() } }), verdictWords(value)));
      this.note = el("textarea", { id: "note", rows: 5, maxlength: limits.note, on: { input: () => this.tell() } });
      this.reviewer = el(
        "input",
        {
          type: "text", id: "reviewer", maxlength: limits.reviewer, autocomplete: "name",
          on: { input: () => this.tell() },
        },
      );
      this.state = el("p", { class: "saved", role: "status" });
      this.button = el("button", { type: "submit", class: "main" }, ifonly.say("note.save"));
      this.trouble = el("div", {});
      place.append(el("section", { class: "card", "aria-labelledby": "note-title" },
        el("h2", { id: "note-title" }, ifonly.say("note.title")),
        el("form", { class: "card-form", on: { submit: (event) => { event.preventDefault(); this.save(); } } },
          el(
            "fieldset", {}, el("legend", {}, ifonly.say("note.question")),
            el("div", { class: "verdicts" }, this.radios),
          ),
          el("div", { class: "field" }, el("label", { for: "note" }, ifonly.say("note.note")), this.note),
          el("div", { class: "field" }, el("label", { for: "reviewer" }, ifonly.say("note.reviewer")), this.reviewer),
          this.trouble, el("div", { class: "row" }, this.button, this.state))));
      this.fill(note);
      window.addEventListener("beforeunload", (event) => {
        if (this.unsaved()) event.preventDefault();
      });
    }

    fill(note) {
      this.saved = note;
      for (const radio of this.radios) radio.firstChild.checked = radio.firstChild.value === note.verdict;
      this.note.value = note.note || "";
      this.reviewer.value = note.reviewer || remembered();
      this.tell();
    }

    verdict() {
      const chosen = this.radios.find((radio) => radio.firstChild.checked);
      return chosen ? chosen.firstChild.value : null;
    }

    unsaved() {
      const { saved } = this;
      const renamed = saved.revision && this.reviewer.value.trim() !== (saved.reviewer || "");
      return this.verdict() !== (saved.verdict || null) || this.note.value.trim() !== (saved.note || "").trim() || Boolean(renamed);
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
      try {
        const saved = await ifonly.ask("/api/notes", { method: "PUT", body: {
          episode: this.episode, verdict: this.verdict(), note: this.note.value.trim(), reviewer: name,
          revision: over === undefined ? this.saved.revision : over,
        } });
        this.saved = saved;
        this.note.value = saved.note || "";
        this.reviewer.value = saved.reviewer || "";
        this.tell();
      } catch (problem) {
        this.tell();
        if (problem.status === 409) await this.conflict();
        else this.trouble.replaceChildren(ifonly.problemBox(problem));
      }
    }

    /** Somebody else saved meanwhile: show theirs, keep what was typed, let the reviewer decide. */
    async conflict() {
      const theirs = await ifonly.ask(`/api/notes?${ifonly.query({ episode: this.episode })}`).catch(() => null);
      if (!theirs) {
        this.trouble.replaceChildren(el(
          "p", { class: "problem", role: "alert" },
          ifonly.say("note.conflict unknown"),
        ));
        return;
      }
      const verdict = theirs.verdict ? verdictWords(theirs.verdict) : ifonly.say("note.no verdict");
      const note = theirs.note && ifonly.say("note.quoted", { note: theirs.note });
      const said = note ? ifonly.say("note.both", { verdict, note }) : verdict;
      const reviewer = theirs.reviewer || ifonly.say("note.somebody");
      this.trouble.replaceChildren(el("div", { class: "problem", role: "alert" },
        el("p", {}, ifonly.say("note.conflict", { reviewer, said })),
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
