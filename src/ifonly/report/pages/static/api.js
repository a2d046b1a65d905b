// Questions to the server. Everything stays on the address that the page came from.
(function (ifonly) {
  "use strict";

  /** What went wrong, and what to do about it. */
  class Problem extends Error {
    constructor(status, what, advice) {
      super(what);
      this.status = status;
      this.advice = advice;
    }
  }

  async function ask(path, { method = "GET", body, keepalive = false, signal } = {}) {
    let answer;
    try {
      answer = await fetch(path, {
        method, keepalive, signal, credentials: "same-origin",
        headers: { Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, ifonly.say("server.silent"), ifonly.say("server.silent.do"));
    }
    const content = await answer.json().catch(() => null);
    if (answer.ok) return content;
    const told = content && content.error;
    throw new Problem(
      answer.status, (told && told.what) || ifonly.say("server.failed"),
      (told && told.do) || ifonly.say(answer.status === 401 ? "server.no token.do" : "server.failed.do"),
    );
  }

  /** A box that says what went wrong; announced at once. */
  function problemBox(problem) {
    return ifonly.el(
      "p", { class: "problem", role: "alert" }, `${problem.message}${problem.advice ? ` ${problem.advice}` : ""}`,
    );
  }

  function query(parameters) {
    const known = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
    return new URLSearchParams(known.map(([name, value]) => [name, String(value)])).toString();
  }

  /** Where the list last seen is kept, for the way back from a case. */
  const LIST = "ifonly.list";

  Object.assign(ifonly, { LIST, ask, problemBox, query, Problem });
})((window.ifonly = window.ifonly || {}));
