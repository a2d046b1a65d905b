"""Lay out the pages of the site and build it, strictly: a warning is an error, and no page fetches anything.

    python tools/site_pages.py [--pages-only]

Pages are README (the front page), the other documents beside it, docs/ with its notebooks, and a reference that is made
of docstrings.
Links that lead out of the documents become names of files, and are checked by the tests where they stand.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES, SITE = ROOT / "build" / "site-pages", ROOT / "build" / "site"
BESIDE = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
NOTEBOOK = re.compile(r"([\w-]+)\.ipynb(?=\))")
PICTURE = re.compile(r"(!\[[^\]]*\]\()docs/")
FETCHES = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^"'\s>]+""")
ROOMS = {
    "data": "Data",
    "models": "Models",
    "evidence": "Evidence",
    "rewards": "Goals and rewards",
    "query": "Questions",
    "constraints": "Questions",
    "problem": "Questions",
    "bounds": "Searches",
    "search": "Searches",
    "proofs": "Searches",
    "result": "Answers",
    "runs": "Runs and reports",
    "report": "Runs and reports",
    "simulate": "The simulated world",
    "errors": "Errors",
}
"""The headings of the reference, in order, by the room that a name is at home in."""
MODULES = ("rewards", "simulate", "errors")
"""Public names that are modules, with names of their own."""


def public_names() -> dict[str, list[str]]:
    """The public names with their homes, by the heading that they stand under."""
    found: dict[str, list[str]] = defaultdict(list)
    stub = ast.parse((ROOT / "src/ifonly/__init__.pyi").read_text(encoding="utf-8"))
    for node in stub.body:
        if isinstance(node, ast.ImportFrom) and node.module == "ifonly":
            for room in [alias.name for alias in node.names if alias.name in MODULES]:
                found[ROOMS[room]] += [f"ifonly.{room}.{name}" for name in names_of(room)]
        elif isinstance(node, ast.ImportFrom):
            room = str(node.module).split(".")[1]
            if room in ROOMS:
                found[ROOMS[room]] += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def names_of(module: str) -> list[str]:
    """What a module that is itself a public name offers: what it lists, or else its classes."""
    place = ROOT / "src/ifonly" / module
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    body = ast.parse(source.read_text(encoding="utf-8")).body
    listed = [node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    return ast.literal_eval(listed[0]) if listed else [node.name for node in body if isinstance(node, ast.ClassDef)]


def reference() -> str:
    """The page of the API, for mkdocstrings to fill in."""
    where = "Everything is imported as `ifonly.<name>`, or as the heading says; what is not here may change."
    lines = ["# API reference", "", where, ""]
    found = public_names()
    for heading in dict.fromkeys(ROOMS.values()):
        names = found[heading]
        (room, *_) = [room for room, one in ROOMS.items() if one == heading]
        lines += [f"## {heading}" + (f": `ifonly.{room}`" if room in MODULES else ""), ""]
        for name in names:
            lines += [f"::: {name}", "    options: {heading_level: 3}", ""]
    return "\n".join(lines)


def with_links(text: str, *, in_docs: bool) -> str:
    """The text with links as the site has them."""

    def moved(link: re.Match[str]) -> str:
        words, target = link[1], link[2]
        if re.match(r"https?://|mailto:|#", target):
            return link[0]
        file, _, anchor = target.partition("#")
        file = file.removeprefix("../") if in_docs else file
        if (in_docs and file == target.partition("#")[0]) or file.startswith("docs/"):
            place = "contents.md" if file.removeprefix("docs/") == "index.md" else file.removeprefix("docs/")
            place = re.sub(r"\.ipynb$", ".md", place)
        elif file == "README.md":
            place = "index.md"
        elif file in BESIDE:
            place = file
        else:
            return f"{words} (`{file}`)" if words.strip("`") != file else f"`{file}`"
        return f"[{words}]({place}{'#' + anchor if anchor else ''})"

    return PICTURE.sub(r"\1", LINK.sub(moved, text))


def notebook_page(notebook: Path) -> str:
    """A notebook's words and code as a page; notebooks are kept without outputs."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    texts = [("".join(cell["source"]), cell["cell_type"] == "code") for cell in cells]
    (title, _), *rest = texts
    own = f"*To run it, get the notebook: [{notebook.name}]({notebook.name}).*"
    pages = [f"```python\n{text}\n```" if is_code else NOTEBOOK.sub(r"\1.md", text) for text, is_code in rest]
    return "\n\n".join([NOTEBOOK.sub(r"\1.md", title), own, *pages]) + "\n"


def lay_out() -> None:
    """Write all pages to the folder that is built."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    (PAGES / "index.md").rename(PAGES / "contents.md")
    for notebook in (PAGES / "notebooks").glob("*.ipynb"):
        notebook.with_suffix(".md").write_text(notebook_page(notebook), encoding="utf-8")
    for page in PAGES.glob("*.md"):
        page.write_text(with_links(page.read_text(encoding="utf-8"), in_docs=True), encoding="utf-8")
    for source, name in (("README.md", "index.md"), *((name, name) for name in BESIDE)):
        text = (ROOT / source).read_text(encoding="utf-8")
        (PAGES / name).write_text(with_links(text, in_docs=False), encoding="utf-8")
    (PAGES / "reference.md").write_text(reference(), encoding="utf-8")


def fetched() -> list[str]:
    """What pages of the built site would fetch from elsewhere."""
    found = []
    for page in sorted(SITE.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        found += [f"{page.relative_to(SITE)}: {match}" for match in FETCHES.findall(text)]
    return found


def main() -> int:
    """Lay out, build, and look for what would be fetched."""
    lay_out()
    if "--pages-only" in sys.argv[1:]:
        return 0
    # Not --quiet: what is not said is not counted, and a strict build would pass with warnings.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, env=quiet)
    if done.returncode:
        print(done.stdout, done.stderr)
        return done.returncode
    if elsewhere := fetched():
        print("pages fetch from elsewhere:", *elsewhere[:20], sep="\n  ")
        return 1
    print(f"{sum(1 for _ in SITE.rglob('*.html'))} pages in {SITE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
