"""Interactive figures: what is drawn, what the menu shows, and that the page fetches nothing and runs nothing."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_results import WORDS, made_result

from ifonly.data.schema import Axis
from ifonly.errors import InputError
from ifonly.models import LocationScale
from ifonly.query import Limits, Query
from ifonly.report.interactive import interactive_budgets, interactive_episode, interactive_run
from ifonly.report.summary import summarize
from ifonly.result import Budget
from ifonly.rewards import minus
from ifonly.runs import RunSettings, solve_cohort
from ifonly.simulate import simulate_cohort


def test_the_rewarded_feature_is_shown_first_and_the_menu_shows_the_others() -> None:
    result = made_result({2: (0, 12), 5: (7, 18)})
    figure = interactive_episode(result)
    courses, strips = figure.data[:4], figure.data[4:]
    assert [trace.visible for trace in courses] == [False, False, True, True]
    assert np.array_equal(courses[2].x, np.arange(12) * 4.0)
    assert np.array_equal(courses[2].y, result.observed_states[:, 1])
    assert np.array_equal(courses[3].y, result.states[:, 1])
    assert (courses[2].line.dash, courses[3].line.dash) == ("solid", "dash")
    assert figure.layout.yaxis.title.text == "SOFA (points)"
    assert {shape.x0 for shape in figure.layout.shapes} == {8.0, 20.0}

    (menu,) = figure.layout.updatemenus
    assert ([button.label for button in menu.buttons], menu.active) == (["MAP", "SOFA"], 1)
    shown, title = menu.buttons[0].args
    assert shown["visible"] == [True, True, False, False, *[True] * len(strips)]
    assert title == {"yaxis.title.text": "MAP (mmHg)"}


def test_doses_stand_below_as_recorded_and_as_changed() -> None:
    result = made_result({2: (0, 12)})
    vectors = np.array(result.schema.actions.vectors)
    strips = interactive_episode(result, "MAP").data[4:]
    for place in range(2):
        observed, found = strips[2 * place : 2 * place + 2]
        assert np.array_equal(observed.y, vectors[result.observed_actions, place])
        assert np.array_equal(found.y, vectors[result.actions, place])
        assert observed.line.shape == "hv"


def test_actions_without_doses_stand_by_their_words() -> None:
    result = made_result({2: (0, 2)}, actions=WORDS)
    figure = interactive_episode(result)
    assert np.array_equal(figure.data[4].y, result.observed_actions)
    assert list(figure.layout.yaxis2.ticktext) == list(WORDS.labels)
    assert figure.layout.yaxis2.title.text == "action"


def test_an_unknown_feature_is_refused() -> None:
    with pytest.raises(InputError, match="lactate"):
        interactive_episode(made_result({}), "lactate")


def test_every_budget_is_a_point_with_its_changes_and_what_a_bound_leaves() -> None:
    result = made_result({2: (0, 12)}, max_changes=1)
    unchanged = Budget(0, -80.0, -80.0, result.observed_actions, -80.0)
    budgets = (unchanged, Budget(1, -70.0, -70.0, result.actions, -65.0))
    (frontier,) = interactive_budgets(replace(result, frontier=budgets)).data
    assert (list(frontier.x), list(frontier.y)) == ([0, 1], [80.0, 70.0])
    assert list(frontier.error_y.arrayminus) == [0.0, 5.0], "lower is better, so the bar goes down"
    assert frontier.customdata[0].endswith("→ 80.0<br>none")
    assert "<br>step 2: " in frontier.customdata[1]
    with pytest.raises(InputError, match="no frontier"):
        interactive_budgets(replace(result, frontier=()))


def test_a_run_is_a_point_per_episode_best_first(tmp_path: Path) -> None:
    cohort = simulate_cohort(5, seed=0, horizon=4)
    model = LocationScale(cohort.schema, hidden=(4,))
    query = Query(minus("SOFA"), 2, limits=Limits(nodes=1))
    run = solve_cohort(cohort, model, query, out=tmp_path / "run", settings=RunSettings(workers=1))
    summary = summarize(run.table(), run.query, schema=run.provenance.schema)
    wanted = summary.episodes.sort("improvement", descending=True, maintain_order=True)
    points = interactive_run(run).data
    found = {
        words.partition("<br>")[0]: (x, y)
        for one in points
        for x, y, words in zip(one.x, one.y, one.customdata, strict=True)
    }
    assert {name: place for name, (place, _) in found.items()} == {
        name: place for place, name in enumerate(wanted["episode"], 1)
    }
    for row in wanted.to_dicts():
        assert found[row["episode"]][1] == pytest.approx(100 * row["improvement"])
    rooms = [room for one in points for room in one.error_y.array]
    assert sum(rooms) == pytest.approx(100 * (wanted["upper_improvement"] - wanted["improvement"]).sum(), abs=1e-6)


def test_a_notebook_shows_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel of its own, as Jupyter starts it, a figure displays itself."""
    pytest.importorskip("nbformat", reason="the extra `notebooks` is not installed")
    pytest.importorskip("ipykernel", reason="the extra `notebooks` is not installed")
    from jupyter_client.manager import KernelManager

    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)  # paths of sockets must be short
    manager = KernelManager(transport="ipc", ip="kernel")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        figure = interactive_episode(made_result({2: (0, 12)}))
        client.execute(f"import plotly.io\nplotly.io.from_json({figure.to_json()!r})")
        shown = []
        while (message := client.get_iopub_msg(timeout=60))["content"].get("execution_state") != "idle":
            assert message["msg_type"] != "error", message["content"]
            shown += message["content"].get("data", ())
        assert "application/vnd.plotly.v1+json" in shown
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_page_of_it_fetches_nothing_and_names_are_escaped(tmp_path: Path) -> None:
    result = made_result({2: (0, 1)})
    axes = (Axis("<script>alert(1)</script>", "mL", (0, 30)),)
    hostile = replace(result.schema, actions=type(result.schema.actions).product(*axes))
    bounded = {"actions": np.minimum(result.actions, 1), "observed_actions": np.minimum(result.observed_actions, 1)}
    figure = interactive_episode(replace(result, provenance=replace(result.provenance, schema=hostile), **bounded))
    assert figure.layout.yaxis2.title.text == "&lt;script&gt;alert(1)&lt;/script&gt;<br>(mL)"
    page = tmp_path / "page.html"
    figure.write_html(page, include_plotlyjs=True)
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"""<(?:script|link|img)\b[^>]*(?:src|href)=["']?(?:https?:)?//""", text)
