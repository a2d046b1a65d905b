"""The study of objectives: what each chooses, how choices are compared, and the command."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper import objective_study
from paper.objective_command import BEGIN, END
from paper.objective_study import CENTRE, DEBIASED, OBJECTIVES, CellSettings, Choice, ObjectiveCell, measure
from paper.objective_tables import findings, gains, helping_share, objective_table, preferred, world_table
from paper.worlds import PLAIN

from ifonly.errors import InputError

SMALL = {"episodes": 30, "asked": 2, "epochs": 1, "max_changes": 1, "seconds": 5.0}


@pytest.fixture(scope="module")
def cell() -> Iterator[ObjectiveCell]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objective_study, "HIDDEN", (4,))
        patch.setattr(objective_study, "COMPARED", ("residual",))
        patch.setattr(objective_study, "CHOICES", replace(objective_study.CHOICES, hidden=(), epochs=1))
        yield measure(CellSettings("tumour", PLAIN, **SMALL))


def test_every_objective_chooses_for_every_episode(cell: ObjectiveCell) -> None:
    assert cell.members == 6
    episodes = {choice.episode for choice in cell.choices}
    assert len(episodes) == 2
    for objective in OBJECTIVES:
        found = cell.of(objective)
        assert {choice.episode for choice in found} == episodes
        assert all(choice.proven and choice.changes <= 1 for choice in found)
        # One change: the best one in the world is found exactly, and no choice beats it.
        assert np.mean([choice.true for choice in found]) <= cell.attainable + 1e-9
        assert all((choice.true == 0) or choice.changes for choice in found)
    for worst, mean in zip(cell.of("worst"), cell.of("mean"), strict=True):
        assert worst.promised <= mean.promised + 1e-9
    for within, free in zip(cell.of("centre with support"), cell.of(CENTRE), strict=True):
        assert within.promised <= free.promised + 1e-9
    assert all(choice.promised >= 0 for choice in cell.of(DEBIASED))


def test_what_is_written_is_read_again(cell: ObjectiveCell) -> None:
    assert ObjectiveCell.from_dict(json.loads(json.dumps(cell.to_dict(), allow_nan=False))) == cell


@pytest.mark.parametrize("wrong", [{"world": "glucos"}, {"variant": "plan"}, {"asked": 0}])
def test_what_does_not_exist_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        replace(CellSettings("glucose", PLAIN), **wrong)


def made(seed: int, **true: list[float]) -> ObjectiveCell:
    """A cell with these true gains of objectives, where 10 are attainable; others chose what the centre did."""
    choices = [
        Choice(objective, f"e{number}", int(gain != 0), 5.0, gain, True)
        for objective in OBJECTIVES
        for number, gain in enumerate(true.get(objective, true[CENTRE]))
    ]
    return ObjectiveCell(
        CellSettings("tumour", PLAIN, seed), 6, 10.0, tuple(choices), dict.fromkeys(OBJECTIVES, 1.0), 1.0
    )


class TestTables:
    def test_the_preferred_one_helps_most_among_those_that_gain_as_much(self) -> None:
        # "worst" never harms and gains too little; "mean" harms less than the centre and gains the same.
        cells = [
            made(0, centre=[6, -2], mean=[5, -1], worst=[1, 0.5]),
            made(1, centre=[4, -2], mean=[2, 1], worst=[0.5, 0.5]),
        ]
        assert helping_share(cells, "worst") == 1
        assert helping_share(cells, "mean") == 0.75
        np.testing.assert_allclose(gains(cells, CENTRE), [0.2, 0.1])
        assert preferred(cells) == "mean"
        assert preferred([made(seed, centre=[6, -2], mean=[1, 1]) for seed in (0, 1)]) == CENTRE
        told = findings(cells)
        assert told[0].startswith("**mean** is preferred")
        assert "*worst*: 100%" in told[1]

    def test_answers_that_change_nothing_count_for_gains_alone(self) -> None:
        cells = [made(0, centre=[6, -2], debiased=[6, 0]), made(1, centre=[6, -2], debiased=[6, 0])]
        assert helping_share(cells, DEBIASED) == 1
        np.testing.assert_allclose(gains(cells, DEBIASED), [0.3, 0.3])
        row = objective_table(cells).to_dicts()[OBJECTIVES.index(DEBIASED)]
        assert (row["answers"], row["truly gained"], row["lost by harm"]) == ("2", "30%", "0%")
        assert row["gained beyond the centre"] == "+10.0 ± 0.0"
        assert row["helping beyond the centre"] == "+50.0 ± 0.0"
        assert world_table(cells)[DEBIASED].to_list() == ["100%, 30%"] * 2


def test_kept_cells_become_tables_and_a_page(run, tmp_path: Path) -> None:
    folder, page = tmp_path / "cells", tmp_path / "page.md"
    folder.mkdir()
    kept = made(0, centre=[6, -2])
    (folder / kept.settings.file).write_text(json.dumps(kept.to_dict()))
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    words = ("objectives", "--out", folder, "--world", "tumour", "--variant", PLAIN, "--workers", 1)
    found = run(*words, "--json", "--page", page)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["cells"] == ["tumour-plain-0.json"]
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| centre |" in text
    assert "old" not in text
    assert "preferred" in run(*words).stdout
    assert run(*words, "--asked", 3).exit_code == 3  # the same cells under other settings
