"""Doing a study: what is up to date stays, the rest is made, and whatever stops it, it goes on from there."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ifonly.data.plain import did_you_mean, read_plain
from ifonly.errors import InputError, StoreError
from ifonly.files import is_left_over, sha256_of, write_text_atomically
from ifonly.journal import Journal, alone
from ifonly.models.checkpoint import CHECK, load_model
from ifonly.progress import Tick
from ifonly.study.plan import Study
from ifonly.study.stages import NAMES, STAGES, Stage, refuse_unanswerable
from ifonly.text.catalogue import say
from ifonly.version import __version__

RECORD = "stage.json"
FORMAT, VERSION = "ifonly.stage", 1
LOG = "study.log.jsonl"
"""One line for each stage that was done."""


@dataclass(frozen=True)
class Planned:
    """What is to be done about a stage."""

    stage: str
    needs: tuple[str, ...]
    state: str
    """"up to date", "will run", or "may run": it depends on what comes out of a stage before it."""
    why: str
    seconds: float | None = None
    """How long it took when it was done last."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self)


@dataclass(frozen=True)
class StudyTick:
    """How far a study is: the stage at work, its own report, and the whole."""

    stage: str
    number: int
    """Of the stages to be done, from 1."""
    of: int
    tick: Tick | None
    """What the stage reports of itself; None when it begins."""
    share: float
    """Of the whole, between 0 and 1, by what stages usually take."""
    seconds_left: float | None


Watch = Callable[[StudyTick], None]


@dataclass(frozen=True)
class StudyRun:
    """What a study has done."""

    folder: Path
    done: tuple[str, ...]
    """Stages that were made now; the others were up to date."""
    seconds: Mapping[str, float]
    stopped: str | None = None
    """The stage before which it stopped, since the model failed its check; None: it did all that was asked."""


def plan(study: Study, *, until: str | None = None) -> list[Planned]:
    """What is up to date and what is to be done, in order, without doing anything."""
    planned: list[Planned] = []
    open_: set[str] = set()
    for stage in _stages(study, until):
        record = _record(stage, study)
        why = _why(stage, study, record)
        waiting = [name for name in stage.needs if name in open_]
        state = "will run" if why is not None else "may run" if waiting else "up to date"
        if state != "up to date":
            open_.add(stage.name)
        reason = why or (say("stage.waits", stage=waiting[0]) if waiting else state)
        planned.append(Planned(stage.name, stage.needs, state, reason, record.get("seconds")))
    return planned


def run_study(study: Study, *, until: str | None = None, watch: Watch = lambda tick: None) -> StudyRun:
    """Do all stages that are not up to date, up to `until`; one that was stopped is gone on with.

    Stops before the cohort is asked where the model fails its check, unless the query allows a failed model.
    """
    stages = _stages(study, until)
    study.folder.mkdir(parents=True, exist_ok=True)
    with alone(study.folder / LOG, work="this study"):
        _log(study).cut_unended()
        clock = _Clock(study, stages, plan(study, until=until), watch)
        seconds: dict[str, float] = {}
        for stage in stages:
            if stage.name == "cohort" and _has_failed(study):
                return StudyRun(study.folder, tuple(seconds), seconds, stopped=stage.name)
            why = _why(stage, study, _record(stage, study))
            if why is not None:
                if stage.name == "fit":
                    refuse_unanswerable(study)
                seconds[stage.name] = _do(stage, study, why, clock)
            clock.finished(stage)
    return StudyRun(study.folder, tuple(seconds), seconds)


def _has_failed(study: Study) -> bool:
    """Whether the model failed its check and nobody allowed to ask it all the same."""
    standing = load_model(study.folder / "fit").standing
    return standing is not None and standing.failed and not study.query.allow_failed_model


def _stages(study: Study, until: str | None) -> list[Stage]:
    if until is not None and until not in NAMES:
        hint = did_you_mean(until, NAMES)
        raise InputError(say("stage.unknown", stage=repr(until), names=", ".join(NAMES), hint=hint))
    last = len(STAGES) if until is None else NAMES.index(until) + 1
    return [stage for stage in STAGES[:last] if stage.wanted(study)]


def _do(stage: Stage, study: Study, why: str, clock: _Clock) -> float:
    """Make a stage's products, then say what they were made of: in between it counts as not done."""
    started = time.monotonic()
    # Only the record: a model keeps the check that it failed until another one takes its place.
    (stage.folder(study) / RECORD).unlink(missing_ok=True)
    inputs = _inputs(stage, study)
    clock.report(stage)
    stage.work(study, lambda tick: clock.report(stage, tick))
    seconds = round(time.monotonic() - started, 3)
    record = {
        "format": FORMAT,
        "version": VERSION,
        "ifonly": __version__,
        "stage": stage.name,
        "inputs": inputs,
        "outputs": {name: sha256_of(study.folder / name) for name in _written(stage, study)},
        "seconds": seconds,
    }
    line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "stage": stage.name, "why": why}
    # Before the record: killed in between, a stage is done twice and the log says so, rather than done without a line.
    _log(study).append([json.dumps({**line, "seconds": seconds})])
    write_text_atomically(stage.folder(study) / RECORD, json.dumps(record, indent=2) + "\n")
    return seconds


def _log(study: Study) -> Journal:
    return Journal(study.folder / LOG, "study", "move it away")


def _written(stage: Stage, study: Study) -> list[str]:
    """The files of a stage, relative to the study's folder; the check that is kept with the model is not the fit's,
    and what a killed process was writing is nobody's.
    """
    folder = stage.folder(study)
    found = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != RECORD and not is_left_over(path)
    ]
    if stage.name == "fit":
        found = [path for path in found if path.name != CHECK]
    beside = [study.folder / name for name in stage.beside]
    return [path.relative_to(study.folder).as_posix() for path in (*found, *beside)]


def _record(stage: Stage, study: Study) -> dict[str, Any]:
    """How a stage was done; nothing where it was not, or where that cannot be read."""
    try:
        content = read_plain(stage.folder(study) / RECORD)
    except StoreError:
        return {}
    is_ours = isinstance(content, dict) and content.get("format") == FORMAT and content.get("version") == VERSION
    parts = is_ours and all(isinstance(content.get(name), dict) for name in ("inputs", "outputs"))
    return content if parts else {}


def _inputs(stage: Stage, study: Study) -> dict[str, Any]:
    """Fingerprints of all that a stage is made of: its settings, stages before it, files from elsewhere."""
    settings = json.loads(json.dumps(stage.settings(study), default=str))
    needed = {name: _products(name, study) for name in stage.needs if _by_name(name).wanted(study)}
    return {"settings": settings, **needed, **{f"file {name}": mark for name, mark in stage.files(study).items()}}


def _products(name: str, study: Study) -> str:
    """A hash of what a stage wrote, as its record says."""
    outputs = _record(_by_name(name), study).get("outputs", {})
    return hashlib.sha256(json.dumps(outputs, sort_keys=True).encode()).hexdigest()[:16]


def _by_name(name: str) -> Stage:
    return STAGES[NAMES.index(name)]


def _why(stage: Stage, study: Study, record: Mapping[str, Any]) -> str | None:
    """Why a stage has to be done; None where it is up to date."""
    if not record:
        return say("stage.not finished" if stage.folder(study).exists() else "stage.not done")
    if record.get("ifonly") != __version__:
        return say("stage.other version", version=record.get("ifonly"))
    inputs, before = _inputs(stage, study), record["inputs"]
    for name in {**inputs, **before}:
        if inputs.get(name) != before.get(name):
            changed = [name] if name != "settings" else _changed(before.get(name) or {}, inputs[name])
            return say("stage.changed", names=", ".join(changed), count=len(changed))
    for name, checksum in record["outputs"].items():
        path = study.folder / name
        if not path.is_file() or sha256_of(path) != checksum:
            return say("stage.altered" if path.is_file() else "stage.gone", name=name)
    return None


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [key for key in {**before, **now} if before.get(key) != now.get(key)]


class _Clock:
    """How far a study is, and how long it still takes: by what stages took before, or usually take."""

    def __init__(self, study: Study, stages: list[Stage], planned: list[Planned], watch: Watch) -> None:
        self._watch = watch
        open_ = {one.stage for one in planned if one.state != "up to date"}
        self._todo = [stage for stage in stages if stage.name in open_]
        known = {one.stage: one.seconds for one in planned}
        scale = _scale(self._todo, known)
        self._weights = {stage.name: known[stage.name] or stage.share * scale for stage in self._todo}
        self._finished: set[str] = set()
        self._started = time.monotonic()

    def finished(self, stage: Stage) -> None:
        self._finished.add(stage.name)

    def report(self, stage: Stage, tick: Tick | None = None) -> None:
        """What a stage says of itself; nothing yet when it begins."""
        total = sum(self._weights.values()) or 1.0
        done = sum(weight for name, weight in self._weights.items() if name in self._finished)
        part = tick.done / tick.total if tick is not None and tick.total else 0.0
        share = min(1.0, (done + min(part, 1.0) * self._weights.get(stage.name, 0.0)) / total)
        passed = time.monotonic() - self._started
        left = passed * (1 - share) / share if share > 0.02 else None
        number = 1 + [one.name for one in self._todo].index(stage.name) if stage in self._todo else len(self._todo)
        self._watch(StudyTick(stage.name, number, len(self._todo), tick, share, left))


def _scale(stages: list[Stage], known: Mapping[str, float | None]) -> float:
    """Seconds for one unit of a stage's share, by the stages whose time is known."""
    timed = [(stage.share, seconds) for stage in stages if (seconds := known[stage.name])]
    return sum(seconds for _, seconds in timed) / sum(share for share, _ in timed) if timed else 1.0
