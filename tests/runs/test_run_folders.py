"""A run's folder: begun again by force, damaged by hand, and on disk when it says so."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_runs import QUERY, small_cohort, small_model, solve_small, without_seconds

import ifonly
from ifonly.errors import InputError, StoreError
from ifonly.journal import Journal, line_of
from ifonly.progress import Tick
from ifonly.query import Limits
from ifonly.runs import RunSettings, load_run
from ifonly.search.heuristics import Greedy

COHORT = small_cohort(3)
MODEL = small_model(COHORT)
OTHER = QUERY.with_changes(change_cost=0.25)
"""Another query."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ifonly.Run]:
    """The old query and the new one, answered without trouble; not to be altered."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        "old": solve_small(COHORT, MODEL, folder / "old"),
        "new": solve_small(COHORT, MODEL, folder / "new", query=OTHER),
    }


@pytest.fixture
def out(runs, tmp_path: Path) -> Path:
    """A copy of the finished old run, to be altered at will, with something beside it."""
    folder = Path(shutil.copytree(runs["old"].folder, tmp_path / "run"))
    (folder / "summary").mkdir()
    (folder / "summary" / "summary.json").write_text("{}")
    return folder


def unfinished(folder: Path) -> Path:
    manifest = json.loads((folder / "run.json").read_text())
    kept = {key: value for key, value in manifest.items() if key not in ("counts", "table")}
    (folder / "run.json").write_text(json.dumps(kept | {"state": "running"}))
    (folder / "results.parquet").unlink()
    return folder


def alter_row(folder: Path, number: int, **values: object) -> None:
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    rows[number] |= values
    for row in rows:
        del row["checksum"]
    (folder / "rows.jsonl").write_bytes(b"".join(line_of(json.dumps(row)) for row in rows))


def test_force_starts_again_whatever_lies_beside_the_run(runs, out: Path) -> None:
    with pytest.raises(StoreError, match="holds another run"):
        solve_small(COHORT, MODEL, out, query=OTHER)
    run = solve_small(COHORT, MODEL, out, query=OTHER, force=True)
    assert without_seconds(run).equals(without_seconds(runs["new"]))
    assert run.manifest["query"]["change_cost"] == 0.25
    assert (out / "summary" / "summary.json").read_text() == "{}"
    assert (out / "rows.jsonl").read_text().count("\n") == 3, "rows of the old run are left"


def test_force_does_nothing_before_the_query_is_checked(out: Path) -> None:
    before = (out / "results.parquet").read_bytes()
    with pytest.raises(InputError, match="'pain' is not a dynamic feature"):
        solve_small(COHORT, MODEL, out, query=QUERY.with_changes(reward=ifonly.minus("pain")), force=True)
    assert (out / "results.parquet").read_bytes() == before


@dataclass
class Killed:
    """Stands for a method; raises instead of, or after, its first call."""

    method: Callable
    after: bool
    calls: int = 0

    def __call__(self, *args: object, **more: object) -> object:
        self.calls += 1
        if self.calls > 1:
            return self.method(*args, **more)
        if self.after:
            self.method(*args, **more)
        raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "name"), [(Path, "unlink"), (Journal, "cut"), (Path, "replace")])
def test_killed_while_starting_again(
    runs, out: Path, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, after: bool
) -> None:
    """Each step of starting again may be the last: the folder is that of a run, and no rows are of another query."""
    killed = Killed(getattr(kind, name), after)
    with monkeypatch.context() as patched:
        patched.setattr(kind, name, lambda *args, **more: killed(*args, **more))
        with pytest.raises(KeyboardInterrupt):
            solve_small(COHORT, MODEL, out, query=OTHER, force=True)
    assert killed.calls >= 1
    copy = Path(shutil.copytree(out, out.parent / "copy"))
    asked = load_run(out).manifest["query"]["change_cost"]
    there = {0.0: (QUERY, "old"), 0.25: (OTHER, "new")}[asked]
    assert without_seconds(solve_small(COHORT, MODEL, copy, query=there[0])).equals(without_seconds(runs[there[1]]))
    assert without_seconds(solve_small(COHORT, MODEL, out, query=OTHER, force=True)).equals(
        without_seconds(runs["new"])
    )


def delete_rows(out: Path) -> None:
    (out / "rows.jsonl").unlink()


def replace_rows(out: Path) -> None:
    """As an editor saves."""
    shutil.copy(out / "rows.jsonl", out / "rows.jsonl~")
    (out / "rows.jsonl~").replace(out / "rows.jsonl")


def move_away(out: Path) -> None:
    out.rename(out.with_name("elsewhere"))
    out.mkdir()


def put_back(out: Path) -> None:
    out.rmdir()
    out.with_name("elsewhere").rename(out)


@pytest.mark.parametrize(
    ("change", "mend"),
    [(delete_rows, None), (replace_rows, None), (move_away, put_back)],
    ids=lambda one: one and one.__name__,
)
def test_rows_that_are_taken_away_meanwhile_are_missed(
    runs, tmp_path: Path, change: Callable, mend: Callable | None
) -> None:
    """Else a run would be called finished whose table lacks what was solved before."""
    out, changed = tmp_path / "run", []

    def interfere(tick: Tick) -> None:
        if tick.done == 2 and not changed:
            change(out)
            changed.append(tick)

    settings = RunSettings(workers=1, chunk=1)
    with pytest.raises(StoreError, match=r"rows\.jsonl: was deleted, moved or replaced while this run was under way"):
        solve_small(COHORT, MODEL, out, settings, progress=interfere)
    if mend is not None:
        assert list(out.iterdir()) == []
        mend(out)
    assert without_seconds(solve_small(COHORT, MODEL, out, settings)).equals(without_seconds(runs["old"]))


@pytest.mark.parametrize("damaged", ["", "{", '{"format": "ifonly.run", "version": 99}', '{"format": "ifonly.run"}'])
def test_a_damaged_manifest_can_be_replaced_by_force(runs, out: Path, damaged: str) -> None:
    (out / "run.json").write_text(damaged)
    with pytest.raises(StoreError, match=r"run\.json"):
        solve_small(COHORT, MODEL, out)
    assert without_seconds(solve_small(COHORT, MODEL, out, force=True)).equals(without_seconds(runs["old"]))


@pytest.mark.parametrize("place", ["/dev/zero", "pipe"])
def test_a_manifest_without_end_can_be_replaced_by_force(runs, out: Path, tmp_path: Path, place: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (out / "run.json").unlink()
    (out / "run.json").symlink_to(tmp_path / place)
    with pytest.raises(StoreError, match=r"run\.json: cannot be read, for it is no ordinary file"):
        solve_small(COHORT, MODEL, out)
    assert without_seconds(solve_small(COHORT, MODEL, out, force=True)).equals(without_seconds(runs["old"]))
    assert not (out / "run.json").is_symlink()


@pytest.mark.parametrize("content", ['{"format": "somebody.else"}', "[]", "{"])
def test_the_manifest_of_somebody_else_is_kept(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(StoreError, match="not the manifest of a run, and is kept"):
        solve_small(COHORT, MODEL, tmp_path, force=True)
    assert {item.name: item.read_text() for item in tmp_path.iterdir()} == {"run.json": content}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("state", None),
        ("counts", None),
        ("support", None),
        ("query", 3),
        ("query.reward", None),
        ("cohort.episodes", "3"),
    ],
    ids=str,
)
def test_a_manifest_that_lacks_something_is_said_so(out: Path, path: str, value: object) -> None:
    manifest = json.loads((out / "run.json").read_text())
    *parents, name = path.split(".")
    place = manifest
    for parent in parents:
        place = place[parent]
    if value is None:
        del place[name]
    else:
        place[name] = value
    (out / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=rf"run\.json: '{path}' is missing or of a wrong kind.*--force"):
        load_run(out)


def test_missing_rows_are_said_so_and_solved_again(runs, out: Path) -> None:
    (unfinished(out) / "rows.jsonl").unlink()
    with pytest.raises(StoreError, match=r"rows\.jsonl: missing.*run the same again"):
        load_run(out)
    assert without_seconds(solve_small(COHORT, MODEL, out)).equals(without_seconds(runs["old"]))


@pytest.mark.parametrize(
    "values",
    [
        {"position": "1"},
        {"position": 1.0},
        {"position": True},
        {"position": 10**30},
        {"status": ["optimal"]},
    ],
    ids=str,
)
def test_a_row_of_the_wrong_kind_is_named(out: Path, values: dict[str, object]) -> None:
    alter_row(unfinished(out), 1, **values)
    with pytest.raises(StoreError, match=r"rows\.jsonl, line 2: not a line of a run"):
        load_run(out)
    with pytest.raises(StoreError, match=r"rows\.jsonl, line 2: not a line of a run"):
        solve_small(COHORT, MODEL, out)


@pytest.mark.parametrize("values", [{"outcome": "much"}, {"changes": 10**30}], ids=str)
def test_a_value_of_the_wrong_kind_is_named(out: Path, values: dict[str, object]) -> None:
    alter_row(unfinished(out), 2, **values)
    with pytest.raises(StoreError, match=r"rows\.jsonl, line 3: not a line of a run"):
        load_run(out)


def test_what_takes_its_name_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are flushed before they are renamed, their folder after: else a power cut may leave an empty table."""
    events: list[tuple[str, int]] = []
    flush, rename = os.fsync, Path.replace

    def spy_flush(descriptor: int) -> None:
        events.append(("flushed", os.fstat(descriptor).st_ino))
        flush(descriptor)

    def spy_rename(path: Path, target: Path) -> Path:
        events.append((f"renamed to {target.name}", path.stat().st_ino))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", spy_flush)
    monkeypatch.setattr(Path, "replace", spy_rename)
    solve_small(COHORT, MODEL, tmp_path)
    renamed = [number for number, (what, _) in enumerate(events) if what.startswith("renamed")]
    assert [events[number][0] for number in renamed] == [
        "renamed to run.json",
        "renamed to results.parquet",
        "renamed to run.json",
    ]
    for number in renamed:
        assert events[number - 1] == ("flushed", events[number][1])
        assert events[number + 1] == ("flushed", tmp_path.stat().st_ino)


def test_rows_that_are_dropped_are_gone_from_disk_first(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut could bring rows of the old query back under the new manifest."""
    events: list[object] = []
    flush, rename = os.fsync, Path.replace
    rows = (out / "rows.jsonl").stat().st_ino

    def spy_flush(descriptor: int) -> None:
        status = os.fstat(descriptor)
        events.append("rows dropped" if (status.st_ino, status.st_size) == (rows, 0) else None)
        flush(descriptor)

    def spy_rename(path: Path, target: Path) -> Path:
        events.append(target.name)
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", spy_flush)
    monkeypatch.setattr(Path, "replace", spy_rename)
    solve_small(COHORT, MODEL, out, query=OTHER, force=True)
    assert events.index("rows dropped") < events.index("run.json")


def test_rows_that_are_a_link_are_neither_dropped_nor_added_to(out: Path, tmp_path: Path) -> None:
    """A run from somebody else may have a link in the place of its rows, to any file of whoever goes on with it."""
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    unfinished(out)
    (out / "rows.jsonl").unlink()
    (out / "rows.jsonl").symlink_to("../precious")
    for force in (False, True):
        with pytest.raises(StoreError, match=r"rows\.jsonl: is a link"):
            solve_small(COHORT, MODEL, out, force=force)
    assert precious.read_text() == "mine\n"


@dataclass(frozen=True)
class Endless(Greedy):
    """A solver with a setting that JSON does not know."""

    patience: float = float("inf")


def test_what_the_manifest_cannot_hold_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not finite"):
        solve_small(COHORT, MODEL, tmp_path / "run", solver=Endless())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["seconds", "nodes", "gap", "memory"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1])
def test_limits_are_finite(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name}={value!r}: must be zero or positive, and finite; leave it out"):
        Limits(**{name: value})


def test_pools_of_equal_size_are_different_queries(tmp_path: Path) -> None:
    pools = [COHORT.states, COHORT.states + 1.0]
    solvers = [ifonly.AnchorAStar(anchors=ifonly.FacilityLocation(size=2, pool=pool)) for pool in pools]
    query = QUERY.with_changes(limits=Limits(nodes=1))
    assert repr(ifonly.FacilityLocation(size=2, pool=pools[0].copy(order="F"))) == repr(solvers[0].anchors)
    solve_small(COHORT, MODEL, tmp_path, query=query, solver=solvers[0])
    with pytest.raises(StoreError, match=r"another run \(solver\.anchors"):
        solve_small(COHORT, MODEL, tmp_path, query=query, solver=solvers[1])
