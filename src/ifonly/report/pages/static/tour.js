// Three steps for somebody who is here for the first time; nothing is in the way meanwhile, and it is not shown again.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  const SEEN = "ifonly.toured";
  const STEPS = ["claim", "board", "judge"]; // what each is about is marked data-tour="..." in the page

  function isSeen() {
    try {
      return localStorage.getItem(SEEN) !== null;
    } catch {
      return true; // it would come back on every page
    }
  }

  class Tour {
    constructor() {
      this.at = 0;
      this.opener = document.activeElement;
      this.title = el("p", { class: "label", id: "tour-title" });
      this.words = el("p", {});
      this.back = el("button", { type: "button", on: { click: () => this.go(this.at - 1) } }, ifonly.say("page.previous"));
      this.next = el("button", { type: "button", class: "main", on: { click: () => this.go(this.at + 1) } });
      const end = el("button", { type: "button", class: "link", on: { click: () => this.end() } }, ifonly.say("tour.end"));
      this.box = el("section", { class: "tour no-print", role: "region", "aria-labelledby": "tour-title" },
        el("div", { role: "status" }, this.title, this.words), el("div", { class: "row" }, this.back, this.next, end));
      this.box.addEventListener("keydown", (event) => { if (event.key === "Escape") this.end(); });
      document.body.append(this.box);
      this.go(0);
    }

    go(at) {
      if (at >= STEPS.length) {
        this.end();
        return;
      }
      this.at = at;
      const name = STEPS[at];
      this.title.textContent = ifonly.say("tour.at", { number: at + 1, count: STEPS.length });
      this.words.textContent = ifonly.say(`tour.${name}`);
      this.back.disabled = at === 0;
      this.next.textContent = ifonly.say(at === STEPS.length - 1 ? "tour.done" : "page.next");
      this.unmark();
      this.marked = document.querySelector(`[data-tour="${name}"]`);
      this.marked?.classList.add("toured");
      if (at > 0) this.marked?.scrollIntoView({ block: "nearest" });
    }

    unmark() {
      this.marked?.classList.remove("toured");
    }

    end() {
      this.unmark();
      this.box.remove();
      try {
        localStorage.setItem(SEEN, "1");
      } catch {
        // Without storage it was not shown by itself either.
      }
      this.opener?.focus?.();
    }
  }

  /** Show it to those who have not seen it, and to those who ask. */
  function tour() {
    const again = document.getElementById("tour-again");
    again?.addEventListener("click", () => { if (!document.querySelector(".tour")) new Tour(); });
    if (!isSeen()) new Tour();
  }

  Object.assign(ifonly, { tour });
})((window.ifonly = window.ifonly || {}));
