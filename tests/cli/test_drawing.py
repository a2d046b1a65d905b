import io

import pytest
from rich.console import Console

from ifonly.cli import drawing
from ifonly.cli.drawing import progress_bars, study_progress
from ifonly.progress import Tick
from ifonly.study import StudyTick


def drawn(*ticks: Tick, terminal: bool = True, about: str | None = None, width: int = 160) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=width, _environ={"TERM": "xterm"})
    with progress_bars(console) as bars:
        draw = bars if about is None else bars.about(about)
        for tick in ticks:
            draw(tick)
    return file.getvalue()


def test_bars_say_stage_count_and_figures() -> None:
    text = drawn(Tick("fit", 3, 7, {"training loss": 5.25, "gap": float("inf")}))
    assert "Fitting" in text
    assert "3/7" in text
    assert "training loss 5.25" in text
    assert "gap" not in text


def test_bars_say_what_they_are_about() -> None:
    assert "Searching [bold]ward 3" in drawn(Tick("search", 40), about="[bold]ward 3")


def test_a_stage_that_begins_again() -> None:
    text = drawn(Tick("bounds", 9, 9), Tick("search", 500), Tick("bounds", 2, 12), Tick("own stage", 1, 2))
    assert "2/12" in text
    assert "500/?" in text
    assert "own stage" in text


def test_nothing_is_drawn_elsewhere() -> None:
    assert drawn(Tick("fit", 3, 7), terminal=False) == ""


def test_the_bar_stays_on_a_narrow_terminal() -> None:
    text = drawn(Tick("search", 123456, None, {"bound": -51.25, "gap": 0.5}), about="patient-00054", width=80)
    assert text.count("━") >= 16
    assert "123456/?" in text
    assert "gap 0.5" in text


def test_a_study_without_a_terminal_says_which_stage_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of hours of work is not empty until the end, and not a line for each of its reports."""
    file = io.StringIO()
    with study_progress(Console(file=file, force_terminal=False, width=160)) as watch:
        watch(StudyTick("fit", 4, 9, None, 0.0, None))
        for done in range(50):
            watch(StudyTick("fit", 4, 9, Tick("fit", done, 50), 0.1, 60.0))
        monkeypatch.setattr(drawing, "LINES_APART", 0.0)
        watch(StudyTick("fit", 4, 9, Tick("fit", 50, 50), 0.4, 754.0))
        watch(StudyTick("check", 5, 9, None, 0.5, 60.0))
    assert file.getvalue().splitlines() == [
        "fit: stage 4 of 9",
        "fit: stage 4 of 9, 50 of 50, 0:12:34 left",
        "check: stage 5 of 9, 0:01:00 left",
    ]
