"""Stand-ins for the stages that draw: what they draw is tested elsewhere, and takes most of a small study's time."""

import dataclasses
from pathlib import Path

import pytest

from ifonly.progress import Progress
from ifonly.study import run as running
from ifonly.study import stages
from ifonly.study.plan import Study


def _drawn(name: str):
    def draw(study: Study, progress: Progress) -> None:
        folder = study.folder / name
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.txt").write_text("drawn")

    return draw


def _written(found, path: Path) -> None:
    path.mkdir(exist_ok=True)
    found.save(path / "check.json")


def without_drawing(patch: pytest.MonkeyPatch) -> None:
    """Let card, summary and report write a line each, and checks no figures."""
    drawn = [
        dataclasses.replace(stage, work=_drawn(stage.name)) if stage.name in ("card", "summary", "report") else stage
        for stage in stages.STAGES
    ]
    patch.setattr(running, "STAGES", tuple(drawn))
    patch.setattr("ifonly.report.folders.write_check", _written)
