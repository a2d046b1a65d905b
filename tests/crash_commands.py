"""The commands that write, each on a small world of its own, and what their products say whatever the clock says."""

import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from clinical.mimic_tables import invented_patients
from typer.testing import CliRunner

from ifonly.cli import app
from ifonly.data.tables import cohort_to_frame
from ifonly.report.deidentify import Deidentifier
from ifonly.simulate import simulate_cohort

Arguments = Callable[[Path], list[Any]]
ALREADY_DONE = "exists already"
"""What a command says that was killed after its very last write."""
STUDY = {
    "format": "ifonly.study",
    "version": 1,
    "data": {"cohort": "whole"},
    "split": {"test": 0.3},
    "fit": {"recipe": "paper", "hidden": [2], "epochs": 1, "refits": 1},
    "query": {"minimize": "SOFA", "max_changes": 1, "allow_failed_model": True},
    "evidence": {"behaviour": {"hidden": [2], "epochs": 1}},
    "cohort": {"first": 2, "workers": 1},
    "outputs": {"cases": 1},
}


@dataclass(frozen=True)
class Command:
    """One command line, and what it needs of the world before it."""

    name: str
    needs: tuple[str, ...]
    """Folders and files of the world."""
    arguments: Arguments
    moments: int
    """To be tried in the ordinary run; 0: only in the long one."""


COMMANDS = (
    Command("simulate", (), lambda f: ["simulate", "--patients", 3, "--horizon", 3, "--out", f / "made"], 1),
    Command("query", ("whole",), lambda f: ["query", "--episodes", f / "whole", f / "asked.yaml"], 1),
    Command("pool", ("old",), lambda f: ["pool", f / "old" / "train", f / "old" / "test", f / "pooled"], 1),
    Command("build", ("mimic",), lambda f: ["build", *_BUILD, "--source", f / "mimic", "--out", f / "built"], 1),
    Command("init", ("table.csv",), lambda f: ["init", f / "table.csv", "--out", f / "out" / "study.yaml"], 3),
    Command(
        "import",
        ("table.csv", "schema.yaml"),
        lambda f: ["import", f / "table.csv", "--schema", f / "schema.yaml", "--out", f / "cohort"],
        6,
    ),
    Command("split", ("whole",), lambda f: ["split", "--episodes", f / "whole", "--out", f / "parts"], 6),
    Command(
        "split --force",
        ("whole", "old"),
        lambda f: ["split", "--episodes", f / "whole", "--out", f / "old", "--force"],
        8,
    ),
    Command("fit", ("whole",), lambda f: ["fit", *_FIT, "--episodes", f / "whole", "--out", f / "model"], 5),
    Command(
        "fit --force",
        ("whole", "fitted"),
        lambda f: ["fit", *_FIT, "--episodes", f / "whole", "--out", f / "fitted", "--force", "--seed", 1],
        5,
    ),
    Command(
        "check",
        ("whole", "fitted"),
        lambda f: ["check", "--episodes", f / "whole", "--model", f / "fitted", "--out", f / "check"],
        1,
    ),
    Command(
        "fit kinds",
        ("many",),
        lambda f: ["fit", *_SMALL, "--ensemble", "kinds", "--episodes", f / "many" / "train", "--out", f / "kinds"],
        0,
    ),
    Command("check --try", ("many", "poor"), lambda f: _try_remedies(f), 0),
    Command(
        "crossval",
        ("whole",),
        lambda f: ["crossval", *_FOLDS, "--episodes", f / "whole", "--out", f / "limits.json"],
        1,
    ),
    Command("cohort", ("whole", "fitted"), lambda f: _cohort(f, "asked"), 5),
    Command("cohort --force", ("whole", "fitted", "run"), lambda f: [*_cohort(f, "run"), "--force"], 2),
    Command("summarize", ("whole", "fitted", "run"), lambda f: ["summarize", f / "run"], 1),
    Command("summarize --out", ("run",), lambda f: ["summarize", f / "run", "--out", f / "summary"], 1),
    Command("report", ("whole", "fitted", "run"), lambda f: ["report", f / "run", "--cases", 1], 1),
    Command(
        "deidentify",
        ("whole", "fitted", "run", "key"),
        lambda f: ["deidentify", f / "run", f / "key", f / "coded"],
        0,
    ),
    Command(
        "behaviour",
        ("whole",),
        lambda f: ["behaviour", "--episodes", f / "whole", "--epochs", 1, "--out", f / "usual"],
        2,
    ),
    Command("card", ("whole",), lambda f: ["card", "--episodes", f / "whole", "--out", f / "card"], 0),
    Command(
        "solve",
        ("whole", "fitted"),
        lambda f: [*_ask(f, "solve"), "--only", "patient-00001", "--out", f / "one.json"],
        2,
    ),
    Command("run --until split", ("whole", "study.yaml"), lambda f: ["run", f / "study.yaml", "--until", "split"], 3),
    Command("run", ("whole", "study.yaml"), lambda f: ["run", f / "study.yaml"], 0),
)
_SMALL = ["--hidden", 2, "--epochs", 1]
_FIT = ["--recipe", "paper", *_SMALL, "--ensemble", 1]
_FOLDS = [*_SMALL, "--location", "1.0,1.2", "--scale", "0.1", "--set", "folds=2"]
_BUILD = ["--cohort", "all-adults", "--set", "threads=1", "--set", "min_uses=1", "--set", "test=0.4"]


def _try_remedies(folder: Path) -> list[Any]:
    parts = ["--episodes", folder / "many" / "test", "--try", folder / "many" / "train"]
    return ["check", *parts, "--model", folder / "poor", "--epochs", 1, "--out", folder / "check"]


def _cohort(folder: Path, out: str) -> list[Any]:
    asked = ["--only", "patient-00001", "--only", "patient-00003", "--only", "patient-00005"]
    return [*_ask(folder, "cohort"), *asked, "--workers", 1, "--out", folder / out]


def _ask(folder: Path, command: str) -> list[Any]:
    sources = ["--episodes", folder / "whole", "--model", folder / "fitted"]
    return [command, *sources, "-k", 1, "--allow-failed-model"]


def invoke(arguments: list[Any]) -> tuple[int, str]:
    """The exit code and the output of a command, in this process; bugs show their traceback."""
    done = CliRunner().invoke(app, [str(part) for part in arguments], catch_exceptions=False)
    return done.exit_code, done.output


def make_world(folder: Path) -> None:
    """All that the commands start from."""
    folder.mkdir(parents=True)
    cohort = simulate_cohort(8, seed=3, horizon=3)
    from ifonly.data.store import save_cohort, save_schema

    save_cohort(cohort, folder / "whole")
    save_schema(cohort.schema, folder / "schema.yaml")
    cohort_to_frame(cohort).write_csv(folder / "table.csv")
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))
    Deidentifier.from_file(folder / "key")
    invented_patients(3, hours=44).write(folder / "mimic")
    save_cohort(simulate_cohort(80, seed=3, horizon=4), folder / "more")
    made = [
        ["split", "--episodes", folder / "more", "--out", folder / "many"],
        ["fit", *_FIT[:-1], "none", "--episodes", folder / "many" / "train", "--out", folder / "poor"],
        ["split", "--episodes", folder / "whole", "--out", folder / "old", "--seed", 5],
        ["fit", *_FIT, "--episodes", folder / "whole", "--out", folder / "fitted"],
        ["check", "--episodes", folder / "whole", "--model", folder / "fitted"],
        _cohort(folder, "run"),
    ]
    for arguments in made:
        code, output = invoke(arguments)
        assert code in (0, 6), output


def start(command: Command, world: Path, folder: Path) -> None:
    """Copy what a command needs of the world."""
    folder.mkdir(parents=True)
    for name in command.needs:
        source = world / name
        shutil.copytree(source, folder / name) if source.is_dir() else shutil.copy(source, folder / name)


def products(folder: Path) -> dict[str, Any]:
    """What all files of a folder say, but for what the clock says, and the log, where work done twice stands twice."""
    return {
        path.relative_to(folder).as_posix(): _content(path, folder)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "study.log.jsonl"
    }


def _content(path: Path, folder: Path) -> Any:
    data = path.read_bytes()
    if path.suffix == ".json":
        return _timeless(json.loads(data), checksums=path.name == "stage.json")
    if path.suffix == ".jsonl":
        return [_timeless(json.loads(line)) for line in data.splitlines()]
    if path.suffix == ".parquet":
        return [_timeless(row) for row in pl.read_parquet(io.BytesIO(data)).to_dicts()]
    if path.suffix == ".html":
        return re.sub(r'"seconds\w*": ?[0-9.e-]+|[0-9.]+ s\b', "", data.decode())
    return data


_OF_THE_CLOCK = re.compile(r".*seconds.*|answers_per_second|checksum|bytes|sha256")
"""Entries that tell time, or are about files that do."""
_IN_TIME = "proven"
"""Where it is a share: of a recipe's questions, those that were proven in time."""


def _timeless(value: Any, *, checksums: bool = False) -> Any:
    """Without what the clock says; with `checksums`, without those of files in which the clock says something."""
    if isinstance(value, dict):
        return {
            key: _timeless(entry, checksums=checksums)
            for key, entry in value.items()
            if (not _OF_THE_CLOCK.fullmatch(str(key)) or isinstance(entry, dict | list))
            and not (key == _IN_TIME and isinstance(entry, float))
        }
    if isinstance(value, list):
        return [_timeless(entry, checksums=checksums) for entry in value]
    return "checksum" if checksums and re.fullmatch("[0-9a-f]{16,64}", str(value)) else value
