// Terms of art: explained where they stand, when they are pointed at, focused or touched, and all of them at the end.
(function (ifonly) {
  "use strict";
  const { el } = ifonly;

  const TERM = "term.";
  const EDGE = 8; // pixels between an explanation and the window's edge
  let tip = null;

  /** Words with an explanation: a button, so that keyboard and fingers reach it. */
  function told(words, explanation, extra) {
    return el("button", { type: "button", class: `told ${extra || ""}`.trim(), "data-means": explanation }, words);
  }

  function forms() {
    return ifonly.codesOf(TERM).flatMap((code) =>
      ifonly.say(code).split("|").map((form) => ({ form, name: code.slice(TERM.length) })));
  }

  /** A text whose terms are explained, each where it first stands. */
  function withTerms(text) {
    const all = forms().sort((a, b) => b.form.length - a.form.length);
    const found = new RegExp(`(?<![\\w-])(${all.map(({ form }) => form).join("|")})(?![\\w-])`, "gi");
    const explained = new Set();
    const parts = [];
    let after = 0;
    for (const match of text.matchAll(found)) {
      const { name } = all.find(({ form }) => form.toLowerCase() === match[0].toLowerCase());
      if (explained.has(name)) continue;
      explained.add(name);
      parts.push(text.slice(after, match.index), told(match[0], ifonly.say(`means.${name}`), "term"));
      after = match.index + match[0].length;
    }
    return [...parts, text.slice(after)];
  }

  /** All terms, folded. */
  function glossary() {
    const entries = ifonly.codesOf(TERM).map((code) => [
      ifonly.say(code).split("|").at(-1), ifonly.say(`means.${code.slice(TERM.length)}`),
    ]).sort(([a], [b]) => (a < b ? -1 : 1));
    return el("details", { class: "glossary" }, el("summary", {}, ifonly.say("tip.glossary")),
      el("dl", {}, entries.flatMap(([term, means]) => [el("dt", {}, ifonly.capital(term)), el("dd", {}, means)])));
  }

  function show(target) {
    if (!tip) {
      tip = el("div", { class: "tip", id: "tip", role: "tooltip", hidden: true });
      document.body.append(tip);
    }
    hide();
    tip.textContent = target.dataset.means;
    tip.hidden = false;
    target.setAttribute("aria-describedby", "tip");
    tip.about = target;
    place();
  }

  /** The explanation stands at its term, within the window. */
  function place() {
    const box = tip.about.getBoundingClientRect();
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.max(EDGE, Math.min(box.left, document.documentElement.clientWidth - width - EDGE));
    const below = box.bottom + EDGE + height <= window.innerHeight;
    tip.style.setProperty("left", `${left}px`);
    tip.style.setProperty("top", `${below ? box.bottom + EDGE / 2 : Math.max(0, box.top - height - EDGE / 2)}px`);
  }

  /** It goes with its term: a window also scrolls to bring a term into view that was just focused or touched. */
  function follow() {
    if (!tip || tip.hidden) return;
    const box = tip.about.getBoundingClientRect();
    if (box.bottom < 0 || box.top > window.innerHeight) hide();
    else place();
  }

  function hide() {
    if (!tip || tip.hidden) return;
    tip.hidden = true;
    tip.about?.removeAttribute("aria-describedby");
  }

  const termOf = (event) => (event.target.closest ? event.target.closest("[data-means]") : null);
  for (const name of ["mouseover", "focusin", "click"]) {
    document.addEventListener(name, (event) => { if (termOf(event)) show(termOf(event)); });
  }
  for (const name of ["mouseout", "focusout"]) document.addEventListener(name, (event) => { if (termOf(event)) hide(); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("scroll", follow, { passive: true, capture: true });

  Object.assign(ifonly, { told, withTerms, glossary });
})((window.ifonly = window.ifonly || {}));
