"""How quickly a case page shows what a reader changes: from the change to the frame that is painted.

    python benchmarks/redraw.py                # a case of a cohort of 200, in Debian's chromium
    python benchmarks/redraw.py --turns 100

Starts `ifonly serve` as `review_load.py` does, opens a case, and changes the budget with the slider, then goes back
and forth between a dose that was tried and none, then tries a new dose every time, which the server works out. A change
ends with the second animation frame after it was drawn, by when the browser has painted it: up to two frames, 33 ms at
60 Hz, are the wait for the screen. Other processes share the processor: the load is printed, and what the page's own
process took of the processor until everything, also below the fold, was drawn and painted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright
from review_load import make_data, server

MEASURE = """async ([change, turns]) => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const apply = eval(change);
    const times = [];
    for (let turn = 0; turn < turns; turn += 1) {
        await new Promise((done) => setTimeout(done, 150)); // what was left from before is drawn
        const began = performance.now();
        await apply(turn);
        await frame();
        await frame();
        times.push(performance.now() - began);
    }
    return times;
}"""
CHANGES = {
    "slider": """(turn) => {
        const range = document.querySelector('.budget input');
        range.value = turn % 2 ? 2 : 1;
        range.dispatchEvent(new Event('input'));
    }""",
    "dose, known": """(turn) => {
        const { review } = ifonly;
        const known = [...review.courses.keys()][0].split(',').map(Number);
        review.change({ actions: turn % 2 ? known : null });
    }""",
    "dose, new": """async (turn) => {
        const { review } = ifonly;
        const [steps, doses] = [review.recorded.time.at.length, review.recorded.treatments.actions.length];
        const actions = [...review.recorded.observed.actions];
        actions[turn % steps] = (actions[turn % steps] + 1 + Math.floor(turn / steps)) % doses;
        review.change({ actions });
        while (!review.courses.has(actions.join(','))) await new Promise((done) => setTimeout(done, 1));
    }""",
}
"""In this order: what is known was new once."""
FIRST = """() => {
    const { review } = ifonly;
    review.change({ actions: review.recorded.observed.actions.map((one, step) => (step ? one : one ? 0 : 1)) });
}"""


def measure(page: Any, turns: int) -> dict[str, tuple[list[float], float]]:
    """Milliseconds of every kind of change on the case page that is open, and the processor's for one of them."""
    page.evaluate(FIRST)
    page.wait_for_function("ifonly.review.courses.size > 0")
    page.wait_for_timeout(1000)
    session, found = page.context.new_cdp_session(page), {}
    session.send("Performance.enable")

    def used() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(1e3 * one["value"] for one in metrics if one["name"] == "ProcessTime")

    for name, change in CHANGES.items():
        before = used()
        times = page.evaluate(MEASURE, [change, turns])
        found[name] = times, (used() - before) / turns
    return found


def main() -> None:
    """Make the data, start server and browser, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=60, help="changes of each kind")
    parser.add_argument("--keep", type=Path, help="a folder for the data, used again when it is there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        folder = arguments.keep or Path(scratch)
        if not (folder / "run" / "results.parquet").exists():
            make_data(folder, 200)
        with server(folder) as (port, _):
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1440, "height": 900}, bypass_csp=True)
            page.goto(f"http://127.0.0.1:{port}/")
            page.locator("#cohort tbody a").first.click()
            page.wait_for_function("window.ifonly?.review?.view.timeline")
            page.wait_for_timeout(3000)
            found = measure(page, arguments.turns)
            browser.close()
    print(f"{arguments.turns} changes of each kind; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"{'ms':<16}{'p50':>9}{'p95':>9}{'max':>9}{'processor':>11}")
    for name, (times, used) in found.items():
        quantiles = "".join(f"{np.quantile(times, level):>9.0f}" for level in (0.5, 0.95, 1.0))
        print(f"{name:<16}{quantiles}{used:>11.0f}")


if __name__ == "__main__":
    main()
