"""Figures: what is drawn, that nothing overlaps, and that files are whole or absent."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from made_results import DOSES, WORDS, made_result, without_bound
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from ifonly.data.schema import ActionSpace, Axis
from ifonly.errors import InputError
from ifonly.models.fit import DataCounts, FitReport, FitSettings
from ifonly.report.plots import plot_episode, plot_fit, save_figure
from ifonly.rewards import ActionCost, Hinge, Linear, NotStored, PiecewiseLinear, Reward
from ifonly.text.results import statement

BUSY = {3: (4, 22), 4: (24, 1), 5: (7, 18), 6: (0, 24), 19: (1, 9)}


def texts(panel: Axes) -> list[str]:
    return [text.get_text() for text in panel.texts if text.get_text()]


def arrows(panel: Axes) -> dict[float, bool]:
    """Time and direction (true: up) of each arrow."""
    found = [item for item in panel.texts if isinstance(item, Annotation) and item.arrow_patch is not None]
    return {float(arrow.xy[0]): bool(arrow.xy[1] > arrow.xyann[1]) for arrow in found}


def test_the_course_shows_both_sequences_over_time() -> None:
    result = made_result({2: (0, 12)})
    course = plot_episode(result).axes[0]
    observed, found = course.lines[:2]
    assert np.array_equal(observed.get_xdata(), np.arange(12) * 4.0)
    assert np.array_equal(observed.get_ydata(), result.observed_states[:, 1])
    assert np.array_equal(found.get_ydata(), result.states[:, 1])
    assert (observed.get_linestyle(), found.get_linestyle()) == ("-", "--")
    assert course.get_ylabel() == "SOFA (points)"
    assert [text.get_text() for text in course.get_legend().get_texts()] == [
        "observed",
        "counterfactual",
        "action changed",
    ]
    changed = course.lines[2]
    assert list(changed.get_xdata()) == [8.0]


def test_the_headline_and_the_axes_speak_in_units() -> None:
    result = made_result({2: (0, 12)})
    figure = plot_episode(result)
    title = figure.axes[0].get_title(loc="left")
    assert title.startswith(
        f"patient-00017: cumulative SOFA {result.shown[0].value:.1f} → {result.shown[1].value:.1f} (-"
    )
    assert title.endswith("1 change")
    assert statement(result) in texts(figure.axes[0])
    assert figure.axes[-1].get_xlabel() == "time (h)"
    steps = plot_episode(made_result({}, step_unit="step", step_length=1))
    assert steps.axes[-1].get_xlabel() == "step"
    assert steps.axes[0].get_title(loc="left").endswith("no change")


def test_each_dose_axis_has_a_strip_with_arrows_up_and_down() -> None:
    # 0 -> 0.113 vasopressors and 0 -> 80 fluids at step 2; 850 -> 30 fluids alone at step 5
    figure = plot_episode(made_result({2: (0, 12), 5: (4, 1)}))
    _, vasopressors, fluids = figure.axes
    assert arrows(vasopressors) == {8.0: True}
    assert arrows(fluids) == {8.0: True, 20.0: False}
    assert vasopressors.get_ylabel() == "V: vasopressors\n(mcg/kg/min)"
    assert fluids.get_ylabel() == "F: fluids\n(mL/4 h)"
    assert sorted(texts(vasopressors)) == ["0", "0.113", "V"]
    assert sorted(texts(fluids)) == ["0", "30", "80", "850", "F", "F"]


def test_axes_with_the_same_initial_are_told_apart() -> None:
    axes = ActionSpace.product(Axis("vasopressin", "", (0, 1)), Axis("volume", "mL", (0, 1)))
    figure = plot_episode(made_result({1: (0, 3)}, actions=axes))
    assert [panel.get_ylabel() for panel in figure.axes[1:]] == ["V1: vasopressin", "V2: volume\n(mL)"]


def test_categories_are_told_in_words() -> None:
    figure = plot_episode(made_result({0: (0, 2), 11: (2, 1)}, actions=WORDS))
    _, strip = figure.axes
    assert texts(strip) == ["wait → operate", "operate → talk it over with the family"]
    assert [line.get_xdata()[0] for line in strip.lines if line.get_marker() == "D"] == [0.0, 44.0]


def test_without_changes_there_are_no_strips() -> None:
    assert len(plot_episode(made_result({})).axes) == 1


@pytest.mark.parametrize(
    ("reward", "feature"),
    [
        (Linear({"SOFA": -2.0}, 1.0), "SOFA"),
        (ActionCost({0: 1.0}) + Linear({"SOFA": 1.0}), "SOFA"),
        (PiecewiseLinear((Hinge(1.0, {"SOFA": 1.0}, 0.0),)), "SOFA"),
        (NotStored({"kind": "custom", "name": "mine"}), "MAP"),
        (Linear({"MAP": 1.0}), "MAP"),
    ],
)
def test_the_feature_is_the_one_that_the_reward_names(reward: Reward, feature: str) -> None:
    assert plot_episode(made_result({1: (0, 1)}, reward=reward)).axes[0].get_ylabel().startswith(feature)


def test_any_dynamic_feature_can_be_chosen() -> None:
    result = made_result({1: (0, 1)})
    assert plot_episode(result, "MAP").axes[0].get_ylabel() == "MAP (mmHg)"
    with pytest.raises(InputError, match="'age' is not a dynamic feature"):
        plot_episode(result, "age")


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes meet, and texts that leave the figure (paired with '')."""
    figure.draw_without_rendering()
    boxes = [
        (text.get_text(), text.get_window_extent())
        for text in figure.findobj(Text)
        if text.get_text() and text.get_visible() and text.axes is not None
    ]
    shared = [
        (one, two)
        for (one, a), (two, b) in itertools.combinations(boxes, 2)
        if one != two and min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]
    inside = figure.bbox
    outside = [
        (text, "")
        for text, box in boxes
        if box.x0 < inside.x0 - 1 or box.x1 > inside.x1 + 1 or box.y0 < inside.y0 - 1 or box.y1 > inside.y1 + 1
    ]
    return shared + outside


@pytest.mark.parametrize(
    "result",
    [
        made_result(BUSY, steps=20, episode="a very long name of an episode, 2024-11-15 / ward 3"),
        made_result({0: (0, 24), 1: (24, 0)}, steps=2),
        without_bound({1: (0, 1), 10: (2, 0), 11: (2, 1)}, actions=WORDS),
        made_result({}),
    ],
    ids=["busy", "two steps", "words", "no change"],
)
def test_no_texts_overlap(result: object) -> None:
    assert overlaps(plot_episode(result)) == []  # type: ignore[arg-type]


def fit_report(validation: tuple[float, ...] = (3.0, 2.0, 2.5), epochs: int = 3) -> FitReport:
    counts = DataCounts(10, 10, 100)
    losses = tuple(4.0 / (1 + epoch) for epoch in range(epochs))
    return FitReport(FitSettings(epochs=epochs), 0, counts, counts if validation else None, losses, validation, 1.0)


def test_the_fit_marks_the_epoch_that_was_kept() -> None:
    figure = plot_fit(fit_report())
    training, validation, kept = figure.axes[0].lines[:3]
    assert list(training.get_ydata()) == [4.0, 2.0, 4.0 / 3]
    assert list(training.get_xdata()) == [1, 2, 3]
    assert list(validation.get_ydata()) == [3.0, 2.0, 2.5]
    assert (kept.get_xdata()[0], kept.get_ydata()[0]) == (2, 2.0)
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["training", "validation", "kept: epoch 2, loss 2"]
    assert overlaps(figure) == []


def test_a_fit_without_validation_and_of_one_epoch() -> None:
    figure = plot_fit(fit_report(validation=(), epochs=1))
    assert len(figure.axes[0].lines) == 1
    assert figure.axes[0].lines[0].get_marker() == "o"


@pytest.mark.parametrize(
    ("ending", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml"), ("PNG", b"\x89PNG")]
)
def test_saved_in_every_format_twice_the_same(tmp_path: Path, ending: str, start: bytes) -> None:
    result = made_result({2: (0, 12)})
    contents = []
    for name in ("one", "two"):
        path = tmp_path / "plots" / f"{name}.{ending}"
        save_figure(plot_episode(result), path)
        contents.append(path.read_bytes())
    assert contents[0].startswith(start)
    assert contents[0] == contents[1]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plot.png"
    path.write_bytes(b"old")
    figure = plot_episode(made_result({}))

    def failing(self: Figure, target: Path, **_: object) -> None:
        Path(target).write_bytes(b"half")
        raise OSError("no space")

    monkeypatch.setattr(Figure, "savefig", failing)
    with pytest.raises(OSError, match="no space"):
        save_figure(figure, path)
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["plot.png"]


@pytest.mark.parametrize("name", ["plot", "plot.jpeg"])
def test_unknown_formats_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"must end in one of \['.png', '.pdf', '.svg'\]"):
        save_figure(plot_episode(made_result({})), tmp_path / name)


def test_pyplot_is_not_touched() -> None:
    plot_episode(made_result({2: (0, 12)}))
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_the_actions_used_here_have_the_doses_that_the_tests_read() -> None:
    assert DOSES.vectors[12] == (0.113, 80.0)
    assert DOSES.vectors[4] == (0.0, 850.0)
