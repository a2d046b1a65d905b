"""Write what the documents' blocks print now into the `output` blocks that follow them: `make docs`, or name pages.

A line with `...` in it stays as it is where what is printed still fits it. Blocks that leave out whole lines are not
written: what they would have to be is shown.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from test_docs import DOCUMENTS, Runner, blocks, same_output  # noqa: E402


def main(names: list[str]) -> None:
    """Go through the documents named, or all that have code."""
    for path in DOCUMENTS:
        if not names or path.relative_to(ROOT).as_posix() in names:
            changed = regenerate(path)
            print(f"{path.relative_to(ROOT)}: {changed} output block(s) changed", flush=True)


def regenerate(path: Path) -> int:
    """Run the blocks of a document and rewrite what no longer holds; the number of blocks that changed."""
    lines, changed = path.read_text(encoding="utf-8").splitlines(), []
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            runner = Runner(path, Path(folder))
            for block in blocks(path):
                if block.run and block.language == "output" and not same_output(block.text, runner.printed):
                    if "..." in map(str.strip, block.text.splitlines()):
                        print(f"{path.relative_to(ROOT)}, line {block.line}, by hand:\n{runner.printed}")
                    else:
                        changed.append((block, kept_gaps(block.text, runner.printed)))
                elif block.run:
                    runner.run(block)
        finally:
            os.chdir(before)
    for block, text in reversed(changed):
        first = block.line - 1
        lines[first : first + block.text.count("\n")] = text
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(changed)


def kept_gaps(expected: str, printed: str) -> list[str]:
    """The lines printed, those that fit an expected line with gaps as that line has them."""
    gaps = {
        re.compile(re.escape(line).replace(r"\.\.\.", ".*")): line for line in expected.splitlines() if "..." in line
    }
    return [
        next((line for pattern, line in gaps.items() if pattern.fullmatch(shown)), shown.rstrip())
        for shown in printed.rstrip("\n").splitlines()
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
