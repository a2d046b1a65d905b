"""The documents are executed, so that they stay true.

In README.md and docs/*.md (and the other documents, where they have code) the fenced blocks of a file run from top to
bottom in one folder: `python` blocks in one namespace, `bash` blocks as shell commands. An `output` block must equal
what the block before it printed (`...` stands for anything). `json` and `yaml` blocks must parse. Blocks of `text` are
shown, not checked. A block runs unless `<!-- not run: reason -->` stands before it.
"""

import contextlib
import doctest
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from effort import long
from typer import Typer

import ifonly

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
EXPECTED = {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/index.md", "docs/theory.md"}
LONG_DOCUMENTS = {
    "docs/bring-your-own-data.md",
    "docs/choosing-a-solver.md",
    "docs/cohort-runs.md",
    "docs/data-cards.md",
    "docs/ensembles.md",
    "docs/evidence.md",
    "docs/experiments.md",
    "docs/model-checks.md",
    "docs/recipes.md",
    "docs/sensitivity.md",
    "docs/studies.md",
    "docs/summaries.md",
    "docs/support.md",
}
"""Those that fit many models or start many processes: run by `make test-long`, and by `make docs`."""
LANGUAGES = {"python", "bash", "output", "text", "json", "yaml", "csv", "bibtex"}
MOST_OPT_OUTS = 4

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*)[^\n`]*$")
OPT_OUT = re.compile(r"^\s*<!-- not run: \S.* -->\s*$")
STATIC = re.compile(r"^(make|pip install|git clone|cd|python3? -m (venv|pip install))\b")
"""Commands about getting and installing the package itself: their words are checked, they are not run."""
HERE = re.compile(
    r"""echo\ "(?P<text>[^"$`]*)"\ >\ (?P<file>[\w.-]+)
    | (?P<program>ifonly|python\ -m\ paper)\ (?P<words>[^|<>&;$*()`]*)(?P<code>\|\|\ echo\ "exit\ code\ \$\?")?""",
    re.VERBOSE,
)
"""Commands that need no shell, and so no process of their own: calls of our programs, and lines written to a file."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    language: str
    text: str
    line: int
    """Of its first line of content, counted from 1."""
    run: bool


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def written(path: Path) -> Any:
    """A document as a parameter of tests that run it."""
    return pytest.param(path, id=name_of(path), marks=[long] if name_of(path) in LONG_DOCUMENTS else [])


def blocks_in(text: str) -> list[Block]:
    """The fenced blocks; a fence that is never closed is an error."""
    found: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        number += 1
        if not opening:
            continue
        start, indent = number, len(opening["indent"])
        closing = re.compile(rf"^ *`{{{len(opening['ticks'])},}} *$")
        while not closing.match(lines[number]):
            number += 1  # an IndexError here: the fence of this block is never closed
        before = next((line for line in reversed(lines[: start - 1]) if line.strip()), "")
        content = "".join(line[indent:] + "\n" for line in lines[start:number])
        found.append(Block(opening["language"], content, start + 1, run=not OPT_OUT.match(before)))
        number += 1
    return found


@cache
def blocks(path: Path) -> list[Block]:
    return blocks_in(path.read_text(encoding="utf-8"))


def prose(path: Path) -> str:
    """The text outside fenced blocks."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for block in blocks(path):
        for number in range(block.line - 2, block.line + block.text.count("\n")):
            lines[number] = ""
    return "\n".join(lines)


class Runner:
    """Runs the blocks of one document in one folder and one namespace."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.module = ModuleType(f"document_{path.stem}".replace("-", "_"))
        self.printed = ""

    def run_all(self, listed: list[Block]) -> None:
        for block in listed:
            if block.run:
                self.run(block)

    def run(self, block: Block) -> None:
        where = f"{name_of(self.path)}, line {block.line}"
        if block.language == "python":
            self.printed = self._python(block)
        elif block.language == "bash":
            self.printed = self._bash(block, where)
        elif block.language == "output":
            assert same_output(block.text, self.printed), f"{where}: expected\n{block.text}\nprinted\n{self.printed}"
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "yaml":
            yaml.safe_load(block.text)

    def _python(self, block: Block) -> str:
        # Empty lines in front make a traceback point at the line of the document.
        code = compile("\n" * (block.line - 1) + block.text, str(self.path), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self.module.__dict__)
        return printed.getvalue()

    def _bash(self, block: Block, where: str) -> str:
        commands = [line for line in block.text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        if STATIC.match(commands[0]):
            for command in commands:
                check_command(command, where)
            return ""
        joined = [line for line in block.text.replace("\\\n", " ").splitlines() if shlex.split(line, comments=True)]
        if all(HERE.fullmatch(command) for command in joined):
            return "".join(run_here(command, where) for command in joined)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=self.folder,
            # One thread: tests share the machine, and threads that wait for each other's core wait long.
            env={**os.environ, "PATH": path, "MPLBACKEND": "Agg", "COLUMNS": "120", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{where}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def run_here(command: str, where: str) -> str:
    """What a command that matches `HERE`, as a shell would read it, prints on stdout."""
    from typer.testing import CliRunner

    said = HERE.fullmatch(command)
    assert said is not None
    if said["file"]:
        Path(said["file"]).write_text(said["text"] + "\n", encoding="utf-8")
        return ""
    words = shlex.split(said["words"], comments=True)
    done = CliRunner().invoke(programs()[said["program"]], words, env={"COLUMNS": "120"})
    if said["code"]:
        return f"{done.stdout}exit code {done.exit_code}\n" if done.exit_code else done.stdout
    assert done.exit_code == 0, f"{where}: exit code {done.exit_code}\n{done.output}\n{done.exception!r}"
    return done.stdout


def same_output(expected: str, printed: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected, printed, flags)


@cache
def make_targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


@cache
def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def check_command(command: str, where: str) -> None:
    """Check a command that is not run: targets of make exist, what pip installs is this package."""
    words = shlex.split(command, comments=True)
    assert STATIC.match(command), f"{where}: {command!r} is neither run nor checked; give it a block of its own"
    if words[0] == "make":
        targets = [word for word in words[1:] if "=" not in word]
        assert set(targets) <= make_targets(), f"{where}: {command!r}: the Makefile has {make_targets()}"
    if "install" in words and words[0] != "make":
        packages = [word for word in words[words.index("install") + 1 :] if not word.startswith("-")]
        for package in packages:
            match = re.fullmatch(r"\.(?:\[(\w+)\])?", package)
            assert match, f"{where}: {command!r}: install this package, as '.' or '.[extra]'"
            extras = project()["optional-dependencies"]
            assert isinstance(extras, dict)
            assert match[1] is None or match[1] in extras, f"{where}: {command!r}: extras are {list(extras)}"


@pytest.mark.parametrize("path", [written(path) for path in DOCUMENTS])
def test_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, runner.module.__name__, runner.module)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    runner.run_all(blocks(path))


def test_documents_exist() -> None:
    assert {name_of(path) for path in DOCUMENTS} >= EXPECTED


def test_blocks_name_their_language() -> None:
    wrong = [
        f"{name_of(p)}:{b.line} {b.language!r}" for p in DOCUMENTS for b in blocks(p) if b.language not in LANGUAGES
    ]
    assert not wrong


def test_few_blocks_opt_out() -> None:
    skipped = [f"{name_of(path)}:{block.line}" for path in DOCUMENTS for block in blocks(path) if not block.run]
    assert len(skipped) <= MOST_OPT_OUTS, skipped


def test_code_is_never_hidden_in_text_blocks() -> None:
    """A command in a `text` block would escape being run."""
    wrong = [
        f"{name_of(path)}:{block.line}"
        for path in DOCUMENTS
        for block in blocks(path)
        if block.language == "text" and re.search(r"^(\$ |>>> |import |from \w+ import )", block.text, re.MULTILINE)
    ]
    assert not wrong


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub forms it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", "")).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    text = prose(path)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)} | set(
        re.findall(r'<a id="([\w-]+)">', text)
    )


def broken_links(path: Path) -> Iterator[str]:
    yield from (f"{name_of(path)}: {cut} ends with its line" for cut in re.findall(r"\]\(([^)\s]+)\n", prose(path)))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"https?://|mailto:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        if not linked.exists() or (anchor and linked.suffix == ".md" and anchor not in anchors(linked)):
            yield f"{name_of(path)}: {target}"


def test_links_resolve() -> None:
    assert not [link for path in DOCUMENTS for link in broken_links(path)]


def test_every_page_is_linked_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [
        path.name for path in (ROOT / "docs").glob("*.md") if path.name != "index.md" and f"({path.name}" not in index
    ]
    assert not missing


@cache
def programs() -> dict[str, Typer]:
    """What people call, by the words they begin with."""
    from paper.commands import app as paper

    from ifonly.cli import app

    return {"ifonly": app, "python -m paper": paper}


@cache
def commands() -> dict[str, set[str]]:
    """The options of every command, by its words."""
    from typer.main import get_command

    return {
        f"{program} {name}": {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for program, app in programs().items()
        for name, command in get_command(app).commands.items()  # type: ignore[attr-defined]
    }


def mentioned_commands(text: str) -> Iterator[tuple[str, set[str]]]:
    """Every `ifonly command --option ...` and `python -m paper command ...` in code: the command and its options."""
    joined = text.replace("\\\n", " ")
    calls = r"(?:^|[`|;&(]|\$ )\s*(ifonly|python -m paper) ([a-z][\w-]*[^\n`|;&]*)"
    for program, call in re.findall(calls, joined, re.MULTILINE):
        words = call.split()
        yield f"{program} {words[0]}", {word.split("=")[0] for word in words[1:] if re.match(r"--[a-z]", word)}


def test_commands_mentioned_exist() -> None:
    assert len(commands()) >= 5
    seen = set()
    for path in DOCUMENTS:
        code = "\n".join(b.text for b in blocks(path) if b.language == "bash")
        for command, options in mentioned_commands(code + "\n" + "\n".join(re.findall(r"`[^`\n]+`", prose(path)))):
            assert command in commands(), f"{name_of(path)}: there is no `{command}`"
            unknown = options - commands()[command] - {"--help"}
            assert not unknown, f"{name_of(path)}: `{command}` has no {unknown}"
            seen.add(command)
    assert seen == set(commands()), "every command is shown somewhere"


def test_public_names_are_documented() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    names = [name for name in ifonly.__all__ if name != "__version__"]
    assert not [name for name in names if not (getattr(ifonly, name).__doc__ or "").strip()]
    assert not [name for name in names if f"`{name}`" not in index], "docs/index.md lists every public name"


def test_changelog_knows_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[?{re.escape(ifonly.__version__)}\]?\b", text, re.MULTILINE)


def test_makefile_targets_are_explained() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    assert {target for target in make_targets() if f"make {target}" not in text} == set()


SAMPLE = """
Some `ifonly solve --fast` text.

<!-- not run: needs a printer -->
```python
import printer
```

- a list
  ```python
  print(1 + 1)
  ```
  ```output
  2
  ```

```bash
ifonly fit cohort \\
  --epochs 3
```
"""


def test_the_parser_sees_what_there_is() -> None:
    skipped, code, output, shell = blocks_in(SAMPLE)
    assert (skipped.run, skipped.line, code.run, code.text) == (False, 6, True, "print(1 + 1)\n")
    assert (output.language, output.text, shell.language) == ("output", "2\n", "bash")
    assert list(mentioned_commands(shell.text)) == [("ifonly fit", {"--epochs"})]
    assert list(mentioned_commands("`ifonly solve --fast`")) == [("ifonly solve", {"--fast"})]
    with pytest.raises(IndexError):
        blocks_in("```python\nprint()\n")


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert 1 + 1 == 3\n```",
        "```python\nprint(2)\n```\n```output\n3\n```",
        "```bash\nifonly no-such-command\n```",
        "```bash\nmake coffee\n```",
        "```bash\npip install somebody-elses-package\n```",
        "```bash\nmake test\nrm -rf unchecked\n```",
        '```json\n{"a": }\n```',
    ],
)
def test_an_untrue_document_fails(text: str, tmp_path: Path) -> None:
    runner = Runner(ROOT / "sample.md", tmp_path)
    with pytest.raises((AssertionError, ValueError)):
        runner.run_all(blocks_in(text))
