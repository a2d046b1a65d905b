"""The house rules of ARCHITECTURE.md, checked against the source itself."""

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import ifonly

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ifonly"

LAYERS = (
    ("errors", "version"),
    ("progress", "files", "intervals", "markup", "records"),
    ("journal",),
    ("data", "proofs"),
    ("automaton",),
    ("models", "constraints", "clinical"),
    ("simulate", "rewards", "objective"),
    ("query",),
    ("text",),
    ("problem",),
    ("bounds",),
    ("result",),
    ("search",),
    ("evidence",),
    ("runs",),
    ("report",),
    ("study", "web", "testing"),
    ("cli",),
    ("__main__",),
)
"""Rooms from left to right: a room imports only from rooms in layers to its left (and from itself)."""

MOST_LINES = 450


@dataclass(frozen=True)
class Arrow:
    """One import of one module of the package by another."""

    source: str  # dotted, without "ifonly."
    target: str
    line: int

    def __str__(self) -> str:
        return f"{self.source} (line {self.line}) imports {self.target}"


def room(module: str) -> str:
    return module.split(".")[0]


def module_name(path: Path) -> str:
    """'models.base' for src/ifonly/models/base.py, 'models' for the room's __init__, '' for the package's."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def sources() -> dict[str, Path]:
    return {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(sources()[module].read_text(encoding="utf-8"))


def imports(nodes: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Every import that runs, wherever it stands; what is under `if TYPE_CHECKING:` never does."""
    pending: list[ast.AST] = [nodes]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        pending.extend(ast.iter_child_nodes(node))


def imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Absolute dotted names; `from a import b` counts as a.b, which may be a module or a name in one."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"relative import in line {node.lineno}; write the whole name"
    return [f"{node.module}.{alias.name}" for alias in node.names]


def arrows_of(module: str, nodes: ast.Module, known: set[str]) -> list[Arrow]:
    """Imports within the package, each aimed at the longest module name that exists."""
    found = []
    for node in imports(nodes):
        for name in imported_names(node):
            if name.split(".")[0] != "ifonly":
                continue
            target = name.removeprefix("ifonly").removeprefix(".")
            while target and target not in known:
                target = target.rpartition(".")[0]
            found.append(Arrow(module, target, node.lineno))
    return found


@cache
def arrows() -> tuple[Arrow, ...]:
    known = set(sources())
    return tuple(arrow for module in known for arrow in arrows_of(module, tree(module), known))


def layer(name: str) -> int:
    for index, rooms in enumerate(LAYERS):
        if name in rooms:
            return index
    raise AssertionError(f"room {name!r} has no place in LAYERS; give it one here and in ARCHITECTURE.md")


def points_back(arrow: Arrow) -> bool:
    source, target = room(arrow.source), room(arrow.target)
    if source == "":  # the public names: anything but what stands outside the library
        return target in ("cli", "testing")
    if target == "":  # through the front door: only those who use ifonly as a user would
        return source not in ("cli", "testing")
    if source == target:
        return False
    return layer(target) >= layer(source)


def test_no_arrow_points_back() -> None:
    assert len(arrows()) > 50, "the source was not found"
    wrong = [str(arrow) for arrow in arrows() if points_back(arrow)]
    assert not wrong, "\n".join(wrong)


def test_every_room_has_a_place_and_every_place_a_room() -> None:
    rooms = {room(module) for module in sources()} - {""}
    assert rooms == {name for names in LAYERS for name in names}


@pytest.mark.parametrize(
    ("module", "code", "wrong"),
    [
        ("models.fit", "from ifonly.problem import Problem", True),
        ("models.fit", "def f():\n    from ifonly.search.solve import solve", True),
        (
            "models.fit",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ifonly.search import solve",
            False,
        ),
        ("models.fit", "from ifonly.data.cohort import Cohort", False),
        ("models.fit", "import ifonly", True),
        ("simulate.patients", "from ifonly.search import solve", True),
        ("simulate.patients", "from ifonly import problem", True),
        ("report.plots", "from ifonly.web.api import api_router", True),
        ("report.plots", "from ifonly.result import Result", False),
        ("search.astar", "from ifonly.testing import check_solver", True),
        ("", "from ifonly.cli import main", True),
    ],
)
def test_the_rule_notices(module: str, code: str, wrong: bool) -> None:
    found = arrows_of(module, ast.parse(code), set(sources()))
    assert any(points_back(arrow) for arrow in found) is wrong


def test_modules_do_not_import_in_circles() -> None:
    graph: dict[str, set[str]] = {module: set() for module in sources()}
    for arrow in arrows():
        # A room's __init__ gathers the names of its modules: those may be imported through it from outside only.
        if arrow.target != arrow.source:
            graph[arrow.source].add(arrow.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_private_names_stay_in_their_module() -> None:
    wrong = [
        f"{module} (line {node.lineno}) imports {name}"
        for module in sources()
        for node in imports(tree(module))
        for name in imported_names(node)
        if name.startswith("ifonly.")
        and any(part.startswith("_") and part != "__version__" for part in name.split("."))
    ]
    assert not wrong, "\n".join(wrong)


def test_public_names_are_imported_when_used_and_known_to_type_checkers() -> None:
    """The stub re-exports every public name from a room inside the library; the package gives it out when asked."""
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    aliases = [(node, alias) for node in imports(stub) for alias in node.names]
    assert all(alias.asname == alias.name for _, alias in aliases), "type checkers take `import x as x` as public"
    assert {alias.name for _, alias in aliases} == set(ifonly.__all__)
    assert len(aliases) == len(ifonly.__all__) > 70
    assert not [name for name in ifonly.__all__ if not hasattr(ifonly, name)]
    assert not [arrow for arrow in arrows_of("", stub, set(sources())) if points_back(arrow)]
    assert "torch" not in {name.split(".")[0] for node in imports(tree("")) for name in imported_names(node)}


def test_modules_stay_small() -> None:
    long = {
        path.name: lines for path in sources().values() if (lines := len(path.read_text().splitlines())) > MOST_LINES
    }
    assert not long


def calls(nodes: ast.Module) -> Iterator[str]:
    """The dotted names of everything that is called."""
    return (ast.unparse(node.func) for node in ast.walk(nodes) if isinstance(node, ast.Call))


def speaks(nodes: ast.Module) -> bool:
    """Whether the module prints or installs a log handler."""
    names = {name for node in imports(nodes) for name in imported_names(node)}
    return "print" in calls(nodes) or any(name.split(".")[0] == "logging" for name in names)


def pickles(nodes: ast.Module) -> bool:
    """Whether the module reads or writes files that run code when they are opened."""
    names = {name for node in imports(nodes) for name in imported_names(node)}
    unsafe = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    return (
        any(name.split(".")[0] in unsafe or name in ("torch.load", "torch.save") for name in names)
        or any(name in ("torch.load", "torch.save") for name in calls(nodes))
        or any(isinstance(node, ast.keyword) and node.arg == "allow_pickle" for node in ast.walk(nodes))
    )


BETWEEN_PROCESSES = "runs.parcels"
"""Sends work from process to process, as `multiprocessing` itself does; it opens and writes no file."""


@pytest.mark.parametrize("rule", [speaks, pickles])
def test_library_code_keeps(rule: Callable[[ast.Module], bool]) -> None:
    broken = [module for module in sources() if room(module) != "cli" and rule(tree(module))]
    assert broken == ([BETWEEN_PROCESSES] if rule is pickles else [])


def test_what_is_sent_between_processes_never_becomes_a_file() -> None:
    assert not {"open", "Path"} & {name.split(".")[-1] for name in calls(tree(BETWEEN_PROCESSES))}


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (speaks, "def f():\n    print('hello')"),
        (speaks, "import logging"),
        (pickles, "import pickle"),
        (pickles, "from torch import save"),
        (pickles, "import torch\ntorch.load('model.pt')"),
        (pickles, "np.load('a.npy', allow_pickle=True)"),
    ],
)
def test_each_rule_notices(rule: Callable[[ast.Module], bool], code: str) -> None:
    assert rule(ast.parse(code))
    assert not rule(ast.parse("import numpy\nnumpy.zeros(3)"))


MACHINE_PATH = re.compile(
    r"(?<![\w.])/(?:home|root|Users|work|mnt|tmp|private)/\w|\b[A-Z]:\\\w"  # somebody's disk
    r"|--(?:extra-)?index-url|/simple/?\b"  # somebody's package registry
)


def texts() -> Iterator[Path]:
    """What is handed to others."""
    for folder in ("src", "tests", "docs", "paper", "benchmarks", ".ci"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and not path.match("*.egg-info/*"):
                yield path
    yield from (path for path in sorted(ROOT.iterdir()) if path.suffix in (".md", ".toml", ".txt"))
    yield ROOT / "Makefile"


def test_nothing_names_a_machine() -> None:
    paths = list(texts())
    assert Path(__file__) in paths
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        if path.suffix not in (".png", ".parquet", ".safetensors") and path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", ["open('/home/ann/data.csv')", "cd /mnt/data", "C:\\data", "pip --index-url x"])
def test_a_machine_is_recognised(text: str) -> None:
    assert MACHINE_PATH.search(text)
    assert not MACHINE_PATH.search("tests/mnt/x.py and src/home/y, https://example.org/home/page")


def test_licence_and_metadata_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (licence,) = project["license-files"]
    text = (ROOT / licence).read_text(encoding="utf-8")
    assert project["license"] == "MIT"
    assert text.startswith("MIT License\n")
    assert "Copyright (c) 2026 the ifonly authors" in text
    assert (ROOT / project["readme"]).is_file()
    assert (PACKAGE / "py.typed").is_file()


def test_every_file_of_the_package_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packed = {path for pattern in settings["package-data"]["ifonly"] for path in PACKAGE.glob(pattern)}
    others = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert others == {path for path in packed if path.is_file()}


def test_architecture_document_lists_the_rooms_in_order() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", text, flags=re.MULTILINE)
    assert [layer(name) for name in listed] == sorted(layer(name) for name in listed), "rooms are listed left to right"
    assert sorted(listed) == sorted(name for names in LAYERS for name in names)
