"""Hold the pages against the accessibility rules of axe-core, in a real browser, light and dark, wide and narrow.

    python tools/axe.py build/axe/package/axe.min.js     # what `make axe` does, after it has fetched axe-core

The pages are a report with cases of every kind, a data card and the page of a check if they are given, and the server's
pages if it runs: `--page FILE|ADDRESS`, as often as you like. Exit code 1 where anything is violated.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "report" / "pages"))

SIZES = ((1440, 900), (320, 700))
OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
}


def made_report(folder: Path) -> Iterator[str]:
    """The addresses of a report's summary and of its cases."""
    from made_cases import made_case, made_summary, with_organs

    from ifonly.records import to_plain
    from ifonly.report import pages

    cases = [
        made_case("long", steps=60, examined=True),
        made_case("unordered", ordered=False),
        with_organs(made_case("open", proven=False)),
        made_case("bare", answered=False),
    ]
    text = pages.render("report.html", summary=made_summary(cases), cases=[to_plain(case) for case in cases])
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    yield path.as_uri()
    yield from (f"{path.as_uri()}#case={case.episode}" for case in cases)


def violations(page: Any, script: str) -> list[str]:
    """What is wrong with a page that is open: the rule, how grave it is, where."""
    page.evaluate(OPEN)
    page.wait_for_timeout(500)
    page.evaluate(script)
    found = page.evaluate("(rules) => axe.run(document, rules)", RULES)
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {node['html'][:160]}"
        for one in found["violations"]
        for node in one["nodes"][:3]
    ]


def main() -> int:
    """Look at every page, print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("axe", type=Path, help="axe.min.js, of the npm package axe-core")
    parser.add_argument("--page", action="append", default=[], help="a file or an address to look at, too")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    script, bad, looked = arguments.axe.read_text(encoding="utf-8"), 0, 0
    others = [one if "://" in one else Path(one).resolve().as_uri() for one in arguments.page]
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for address in [*made_report(Path(scratch)), *others]:
            for scheme in ("light", "dark"):
                for width, height in SIZES:
                    page = browser.new_page(
                        viewport={"width": width, "height": height}, color_scheme=scheme, bypass_csp=True
                    )
                    page.goto(address)
                    page.wait_for_timeout(1000)
                    for text in violations(page, script):
                        print(f"{address.rpartition('/')[2]}, {scheme}, {width}: {text}")
                        bad += 1
                    looked += 1
                    page.close()
        browser.close()
    print(f"{looked} views, {bad} violations")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
