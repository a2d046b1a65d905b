"""Every experiment end to end, with little of everything."""

import shlex
from pathlib import Path

import matplotlib.image
import pytest
from effort import long
from paper.bench import Bench, read_header
from paper.catalogue import EXPERIMENTS, chosen, command, finished_outcomes, write_page
from paper.commands import app
from paper.experiment import Outcome, carry_out, draw_again
from paper.laboratory import Laboratory
from polars.testing import assert_frame_equal
from small_experiments import SMALL, forbid_work, small
from typer.main import get_command

from ifonly.errors import InputError


def carried_out(name: str, laboratory: Laboratory) -> Outcome:
    with Bench(laboratory) as bench:
        return carry_out(EXPERIMENTS[name], small(name), bench)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=long) if name == "warnings" else name for name in EXPERIMENTS]
)
def test_cells_table_figure(name: str, common_laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = EXPERIMENTS[name]
    done = carried_out(name, common_laboratory)
    assert done.record.cells.wanted == done.record.cells.finished > 0
    assert done.record.cells.failed == 0
    assert matplotlib.image.imread(done.figure).std() > 0.01, "the figure is empty"
    assert len(experiment.summary(done.table))
    assert all(experiment.findings(done.table))
    assert_frame_equal(Outcome.load(experiment, common_laboratory.folder).table, done.table)

    forbid_work(monkeypatch)
    drawn = done.figure.read_bytes()
    done.figure.unlink()
    again = carried_out(name, common_laboratory)
    assert again.figure.read_bytes() == drawn
    assert_frame_equal(again.table, done.table)
    again.figure.unlink()
    redrawn = draw_again(experiment, Bench(common_laboratory, finished_only=True))
    assert redrawn.figure.read_bytes() == drawn


def test_the_table_above_is_complete() -> None:
    assert list(SMALL) == list(EXPERIMENTS)


def test_what_experiments_share_is_measured_once(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    carried_out("baselines", laboratory)
    forbid_work(monkeypatch)
    shared = carried_out("fig3a", laboratory)
    assert len(shared.table) == 6


def test_full_settings_are_the_papers() -> None:
    full = {name: experiment.settings(quick=False) for name, experiment in EXPERIMENTS.items()}
    assert {full[name].patients for name in ("fig2a", "fig2b", "fig2c", "fig3a", "fig4", "baselines")} == {200}
    assert full["fig2a"].location == (0.8, 0.9, 1.0, 1.1, 1.2, 1.3)
    assert (full["fig2a"].samples, full["fig2a"].max_changes) == ((2000,), (3,))
    assert full["fig2b"].samples == (500, 1000, 1500, 2000, 2500, 3000)
    assert full["fig2c"].max_changes == full["fig3a"].max_changes == full["baselines"].max_changes == tuple(range(7))
    assert (full["fig3b"].distribution, full["fig3b"].max_changes) == (None, 3)
    assert (min(full["fig4"].sizes), max(full["fig4"].sizes)) == (10_000, 30_000)
    assert full["fig5"].folds == 5


def test_settings_travel_through_json() -> None:
    for name, experiment in EXPERIMENTS.items():
        assert type(experiment.full).from_dict(small(name).to_dict()) == small(name)


def test_names() -> None:
    assert [one.name for one in chosen(["all"])] == list(EXPERIMENTS)
    assert [one.name for one in chosen(["fig4", "fig2a", "fig4"])] == ["fig4", "fig2a"]
    with pytest.raises(InputError, match=r"fig9.*fig2a.*baselines"):
        chosen(["fig9"])


def test_page_shows_what_is_finished(common_laboratory: Laboratory, tmp_path: Path) -> None:
    for name in ("fig2c", "fig5"):
        carried_out(name, common_laboratory)
    outcomes = finished_outcomes(common_laboratory.folder)
    header = read_header(common_laboratory.folder)
    page = tmp_path / "docs" / "results.md"
    write_page(outcomes, header, page)
    text = page.read_text()
    for outcome in outcomes:
        experiment = outcome.experiment
        assert f"## {experiment.name}: {experiment.title}" in text
        assert (page.parent / "images" / f"results-{experiment.name}.png").read_bytes() == outcome.figure.read_bytes()
        words = " ".join(text.split())
        assert f"The paper: {experiment.paper}" in words
        for sentence in experiment.findings(outcome.table):
            assert f"Here: {sentence}" in words
        for value in experiment.summary(outcome.table).row(0):
            assert f" {value} |" in text
    assert str(common_laboratory.folder) not in text
    assert "Cohort: " not in text.partition("\n## ")[2]  # the head says it
    prose = "\n## What people wrote\n\nAbout all of it.\n"
    changed = text.replace("\n## fig2c", f"{prose}\n## fig2c").replace("Here: EBF", "Once: EBF")
    page.write_text(changed.replace("Cohort: ", "Another cohort: ", 1))
    write_page(outcomes, header, page)
    again = page.read_text()
    assert prose in again
    assert "Once" not in again
    assert again.partition("\n## ")[2].count("Cohort: ") == len(outcomes)  # the head says something else now
    assert again.count("## fig5") == text.count("## fig5") == 1
    page.write_text(text.partition("## fig2c")[0] + "## fig5" + text.partition("## fig5")[2])
    write_page(outcomes, header, page)
    assert page.read_text() == text


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_command_on_the_page_gives_the_settings(name: str, quick: bool) -> None:
    header = {"quick": quick, "model": "abc", "cohort": {"simulated": 12}, "seed": 3, "stays": 12, "horizon": 7}
    header |= {"feature": "MAP", "epochs": 2}
    experiment = EXPERIMENTS[name]
    usual = experiment.settings(quick=quick)
    line = command(experiment, small(name, **({"seconds": 2.5} if hasattr(usual, "seconds") else {})), header)
    *program, reproduce = (words := shlex.split(line))[:4]
    assert (program, reproduce) == (["python", "-m", "paper"], "reproduce")
    said = get_command(app).commands["reproduce"].make_context("reproduce", words[4:]).params
    assert (said["quick"], said["seed"], said["stays"], said["horizon"]) == (quick, 3, 12, 7)
    assert (said["minimize"], said["epochs"], said["names"]) == ("MAP", 2, [name])
    if hasattr(usual, "seconds"):
        assert said["seconds"] == 2.5
    if hasattr(usual, "location"):
        assert said["location"] == {"fig2a": "0.8,1.2", "fig5": "0.5,1"}[name]
