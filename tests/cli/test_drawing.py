import io

from rich.console import Console

from ifonly.cli.drawing import progress_bars
from ifonly.progress import Tick


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
