"""Measure the source tree: size per room, functions, options, names with several owners, modules with one importer.

    python tools/house.py [TREE] [--against REV ...] [--write PAGE]

TREE is the root of a checkout (default: this one). With --against, the commit REV is exported with `git archive` to a
temporary folder, measured too, and shown beside it. With --write the figures replace the table of a page, but for the
options of single commands. Only the standard library is used; the options of the command line are counted by asking its
typer app in a subprocess, and left out where that cannot be imported.

Definitions:

- The wheel is src/ifonly, stubs included. A room is a folder directly in it; its top-level modules together are the
  room "(top)".
- A code line is a line of Python that is neither blank, nor only a comment, nor part of a docstring. A docstring is
  any statement that is nothing but a string, so strings below constants and fields count as well.
- The length of a function is the code lines of its body: neither decorators nor signature, which for a command is
  mostly help texts, nor docstring.
- An owner of a public name is a module that defines it at its top level. Conventional names (`__all__`, `main`) do not
  count. Two modules that define the same name own it twice, also within one room.
- The importers of a module are the other modules of the wheel that import it or a name from it, also inside functions
  and for type checking. Files named `__init__`, `__main__` and `base` are not listed, nor counted among the file names
  that occur three times or more.
- The options of a command are those its help page lists, `--help` left out; arguments are not options.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "ifonly"
PYTHON = {".py", ".pyi"}
OTHERS = {".js": "JavaScript", ".css": "CSS", ".html": "HTML", ".sql": "SQL", ".yaml": "YAML", ".json": "JSON"}
UNKNOWN = "-"
NOW = "now"
UNCOUNTED_NAMES = {"main"}
UNCOUNTED_MODULES = {"__init__", "__main__", "base"}

ASK_FOR_OPTIONS = f"""
import json, typer
from {PACKAGE}.cli import app

def pages(command, path):
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from pages(child, [*path, name])
    else:
        shown = [p for p in command.params if p.param_type_name == "option" and not p.hidden and p.name != "help"]
        yield " ".join(path), len(shown)

print(json.dumps(dict(pages(typer.main.get_command(app), []))))
"""


@dataclass(frozen=True)
class Module:
    """One file of Python, counted."""

    name: str
    """Dotted, from the package on."""
    stem: str
    """The file's name without its ending."""
    room: str
    code: int
    docstring: int
    comment: int
    functions: tuple[int, ...]
    """The length of each function and method."""
    classes: tuple[str, ...]
    """Public classes defined at the top level."""
    callables: tuple[str, ...]
    """Public functions defined at the top level."""
    imports: frozenset[str]
    """Dotted names that are imported: modules, and names in modules."""


@dataclass(frozen=True)
class House:
    """A measured tree."""

    modules: tuple[Module, ...]
    pages: Mapping[str, int]
    """Non-blank lines per language that is not Python: of the browser, of queries, of tables and words."""
    options: Mapping[str, int]
    """Options per command; empty where the command line cannot be imported."""
    outside: Mapping[str, int] = field(default_factory=dict)
    """Code lines of the folders beside the wheel."""

    @property
    def code(self) -> int:
        """Code lines of the wheel."""
        return sum(module.code for module in self.modules)

    def rooms(self) -> Counter[str]:
        """Code lines per room."""
        lines: Counter[str] = Counter()
        for module in self.modules:
            lines[module.room] += module.code
        return lines

    def function_lengths(self) -> tuple[int, int, int]:
        """Median, 90 % quantile and maximum."""
        lengths = sorted(length for module in self.modules for length in module.functions)
        if not lengths:
            return 0, 0, 0
        return int(statistics.median(lengths)), lengths[int(0.9 * (len(lengths) - 1))], lengths[-1]

    def owned_twice(self, kind: str) -> dict[str, list[str]]:
        """Public names of a kind ("classes" or "callables") with the modules that define them, where several do."""
        owners = defaultdict(list)
        for module in self.modules:
            for name in sorted(set(getattr(module, kind))):  # once, also where it has overloads
                owners[name].append(module.name)
        return {name: homes for name, homes in sorted(owners.items()) if len(homes) > 1}

    def with_one_importer(self) -> dict[str, str]:
        """Modules that exactly one other module imports, with that one."""
        importers = defaultdict(set)
        known = {module.name for module in self.modules}
        for module in self.modules:
            for target in module.imports:
                home = target if target in known else target.rpartition(".")[0]
                if home in known and home != module.name:
                    importers[home].add(module.name)
        return {
            module.name: next(iter(importers[module.name]))
            for module in self.modules
            if len(importers[module.name]) == 1 and module.stem not in UNCOUNTED_MODULES
        }

    def frequent_module_names(self) -> dict[str, int]:
        """File names that three modules or more share, with how many do."""
        names = Counter(module.stem for module in self.modules if module.stem not in UNCOUNTED_MODULES)
        return {name: count for name, count in sorted(names.items()) if count >= 3}

    def share(self, what: str) -> float:
        """Lines of docstrings (`docstring`) or own-line comments (`comment`) per code line."""
        return sum(getattr(module, what) for module in self.modules) / max(self.code, 1)


def measure(tree: Path) -> House:
    """Measure the checkout at `tree`."""
    package = tree / "src" / PACKAGE
    modules = tuple(measure_module(path, package) for path in sorted(package.rglob("*.py*")) if path.suffix in PYTHON)
    pages: Counter[str] = Counter()
    for path in package.rglob("*"):
        if path.suffix in OTHERS:
            pages[OTHERS[path.suffix]] += sum(bool(line.strip()) for line in path.read_text("utf-8").splitlines())
    beside = {
        folder: sum(len(code_lines(path.read_text("utf-8"))) for path in (tree / folder).rglob("*.py"))
        for folder in ("paper", "benchmarks", "tools", "tests")
        if (tree / folder).is_dir()
    }
    return House(modules, pages, options_of(tree), beside)


def measure_module(path: Path, package: Path) -> Module:
    """Count one file of the package."""
    text = path.read_text("utf-8")
    syntax = ast.parse(text)
    comments, strings = comment_lines(text), docstring_lines(syntax)
    code = code_lines(text)
    inside = path.relative_to(package)
    parts = [package.name, *inside.with_suffix("").parts]
    public = [
        node
        for node in syntax.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and node.name not in UNCOUNTED_NAMES
    ]
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(
        name=name,
        stem=path.stem,
        room=inside.parts[0] if len(inside.parts) > 1 else "(top)",
        code=len(code),
        docstring=len(strings),
        comment=len(comments),
        functions=tuple(
            sum(node.body[0].lineno <= line <= (node.end_lineno or 0) for line in code)
            for node in ast.walk(syntax)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        classes=tuple(node.name for node in public if isinstance(node, ast.ClassDef)),
        callables=tuple(node.name for node in public if not isinstance(node, ast.ClassDef)),
        imports=frozenset(imported(syntax, parts[:-1])),
    )


def code_lines(text: str) -> set[int]:
    """The numbers of the lines that are neither blank, nor only a comment, nor part of a docstring."""
    lines = {number for number, line in enumerate(text.splitlines(), start=1) if line.strip()}
    return lines - comment_lines(text) - docstring_lines(ast.parse(text))


def comment_lines(text: str) -> set[int]:
    """The numbers of the lines that hold only a comment."""
    lines = text.splitlines()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {
        token.start[0]
        for token in tokens
        if token.type == tokenize.COMMENT and lines[token.start[0] - 1].lstrip().startswith("#")
    }


def docstring_lines(syntax: ast.Module) -> set[int]:
    """The numbers of the lines of statements that are nothing but a string."""
    return {
        line
        for node in ast.walk(syntax)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def imported(syntax: ast.Module, folder: list[str]) -> Iterator[str]:
    """Every dotted name that a module in the package `folder` imports."""
    for node in ast.walk(syntax):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = folder[: len(folder) - node.level + 1] if node.level else []
            home = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{home}.{alias.name}" for alias in node.names)


def options_of(tree: Path) -> dict[str, int]:
    """Options per command, asked of the command line itself; nothing where it cannot be imported."""
    paths = [str(tree / "src"), str(tree)]
    asked = subprocess.run(
        [sys.executable, "-c", ASK_FOR_OPTIONS],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    return dict(json.loads(asked.stdout)) if asked.returncode == 0 else {}


def measure_revision(tree: Path, revision: str) -> House:
    """Measure a commit of the repository at `tree`."""
    archive = subprocess.run(["git", "-C", tree, "archive", revision], capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        return measure(Path(folder))


def has_revision(tree: Path, revision: str) -> bool:
    """Whether the repository at `tree` holds the commit; a shallow clone may not."""
    try:
        asked = subprocess.run(["git", "-C", tree, "cat-file", "-e", f"{revision}^{{commit}}"], capture_output=True)
    except OSError:
        return False
    return asked.returncode == 0


def figures(house: House) -> Iterator[tuple[str, str]]:
    """The rows of the table: what is measured, each once, and how much it is."""
    median, p90, longest = house.function_lengths()
    yield "Python code lines in the wheel", f"{house.code}"
    for room, lines in sorted(house.rooms().items()):
        yield f"  {room} (room)", f"{lines}"
    for language, lines in sorted(house.pages.items()):
        yield f"{language} lines", f"{lines}"
    for folder, lines in house.outside.items():
        yield f"Python code lines in {folder}/ (not in the wheel)", f"{lines}"
    yield "Python files", f"{len(house.modules)}"
    yield "functions", f"{sum(len(module.functions) for module in house.modules)}"
    yield "function lines: median / p90 / max", f"{median} / {p90} / {longest}"
    yield "docstring lines per code line", f"{house.share('docstring'):.2f}"
    yield "own-line comments per code line", f"{house.share('comment'):.1%}"
    yield "commands", f"{len(house.options) or UNKNOWN}"
    yield "options of all commands", f"{sum(house.options.values()) or UNKNOWN}"
    for command, count in house.options.items():
        yield f"  {PACKAGE} {command}", f"{count}"
    yield "public class names with two owners", f"{len(house.owned_twice('classes'))}"
    yield "public function names with two owners", f"{len(house.owned_twice('callables'))}"
    yield "modules with one importer", f"{len(house.with_one_importer())}"
    yield "module names that occur three times", f"{len(house.frequent_module_names())}"


def details(house: House) -> Iterator[str]:
    """The names behind the counts, for the tree itself."""
    for kind, title in (("classes", "Classes"), ("callables", "Functions")):
        yield f"\n{title} with several owners:"
        yield from (f"  {name}: {', '.join(homes)}" for name, homes in house.owned_twice(kind).items())
    yield "\nModule names that occur three times or more:"
    yield from (f"  {name}: {count}" for name, count in house.frequent_module_names().items())
    yield "\nModules with one importer:"
    yield from (f"  {name} ({by})" for name, by in house.with_one_importer().items())


def table(houses: Mapping[str, House]) -> Iterator[str]:
    """The figures of the houses side by side; a dash where one has no such line."""
    columns = {name: dict(figures(house)) for name, house in houses.items()}
    rows = merged([list(column) for column in columns.values()])
    width = max(map(len, rows))
    yield " " * width + "".join(f"{name:>16}" for name in columns)
    for row in rows:
        yield f"{row:<{width}}" + "".join(f"{column.get(row, UNKNOWN):>16}" for column in columns.values())


def markdown(houses: Mapping[str, House]) -> str:
    """The same as a table of a page, without options of single commands."""
    columns = {name: dict(figures(house)) for name, house in houses.items()}
    rows = [row for row in merged([list(column) for column in columns.values()]) if f"  {PACKAGE} " not in row]
    lines = [["", *columns], ["---", *["---:"] * len(columns)]]
    lines += [[row.strip(), *(column.get(row, UNKNOWN) for column in columns.values())] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def with_table(page: str, written: str) -> str:
    """A page with its only table replaced."""
    found = re.findall(r"(?m)(?:^\|.*\n)+", page)
    if len(found) != 1:
        raise SystemExit(f"the page has {len(found)} tables; expected one.")
    return page.replace(found[0], written + "\n")


def merged(lists: list[list[str]]) -> list[str]:
    """All entries in order: those of a later list stand behind the entry that they follow there."""
    rows = list(lists[0])
    for entries in lists[1:]:
        position = 0
        for entry in entries:
            if entry in rows:
                position = rows.index(entry) + 1
            else:
                rows.insert(position, entry)
                position += 1
    return rows


def main() -> None:
    """Print the table and the names behind it."""
    parser = argparse.ArgumentParser(description="Measure the source tree.")
    parser.add_argument("tree", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument(
        "--against",
        metavar="REV",
        action="append",
        default=[],
        help="a commit to compare with; left out where it is not available",
    )
    parser.add_argument("--write", metavar="PAGE", type=Path, help="a page whose table is replaced")
    asked = parser.parse_args()
    houses = {}
    for revision in asked.against:
        if has_revision(asked.tree, revision):
            houses[revision] = measure_revision(asked.tree, revision)
        elif asked.write:
            raise SystemExit(f"{revision} is not available here; the page stays as it is.")
        else:
            print(f"{revision} is not available here; it is left out.\n")
    houses[NOW] = measure(asked.tree)
    if asked.write:
        asked.write.write_text(with_table(asked.write.read_text("utf-8"), markdown(houses)), "utf-8")
    print("\n".join([*table(houses), *details(houses[NOW])]))


if __name__ == "__main__":
    main()
