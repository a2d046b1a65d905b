"""Cells and the folder they are kept in: nothing is lost, done twice, mixed up or hidden."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from effort import long
from paper.bench import JOURNAL, Bench, FinishedCells
from paper.catalogue import EXPERIMENTS, finished_outcomes
from paper.experiment import NothingToDrawError, Record, carry_out, draw_again
from paper.laboratory import Laboratory
from paper.solves import OURS, SolveCell
from polars.testing import assert_frame_equal
from small_experiments import TINY, forbid_work, small

from ifonly.errors import InputError, ReplayError, StoreError

FIG2C = EXPERIMENTS["fig2c"]
CLOCKS = ["seconds", "seconds_bounds"]
MakeBench = Callable[..., Bench]


class StoppedError(Exception):
    """The power fails."""


def stop_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let so many cells be measured, then stop in the middle of one."""
    measure = SolveCell.measure
    left = [count]

    def measured(cell: SolveCell, laboratory: Laboratory) -> dict[str, object]:
        if not left[0]:
            raise StoppedError
        left[0] -= 1
        return measure(cell, laboratory)

    monkeypatch.setattr(SolveCell, "measure", measured)


def lines(laboratory: Laboratory) -> list[str]:
    return (laboratory.folder / JOURNAL).read_text().splitlines()


def test_a_stopped_run_goes_on_where_it_was(
    make_bench: MakeBench, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(5, patch)
        with pytest.raises(StoppedError):
            carry_out(FIG2C, small("fig2c"), make_bench())
    assert len(lines(laboratory)) == 1 + 5
    journal = laboratory.folder / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-20])  # the last one was being written
    stop_after(12 - 4, monkeypatch)
    done = carry_out(FIG2C, small("fig2c"), make_bench())
    assert (done.record.cells.wanted, done.record.cells.finished) == (12, 12)
    cells = [json.loads(line)["cell"] for line in lines(laboratory)[1:]]
    assert len(cells) == len(set(cells)) == 12


def test_what_is_finished_can_be_drawn(
    make_bench: MakeBench, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(6, patch)
        with pytest.raises(StoppedError):
            carry_out(FIG2C, small("fig2c"), make_bench())
    forbid_work(monkeypatch)
    before = lines(laboratory)
    drawn = draw_again(FIG2C, make_bench(finished_only=True))
    assert (drawn.record.cells.wanted, drawn.record.cells.finished) == (12, 6)
    assert drawn.table["episode"].n_unique() == 1, "patient by patient, so that what is there is balanced"
    assert drawn.figure.exists()
    assert lines(laboratory) == before


def test_nothing_to_draw_is_an_error(make_bench: MakeBench, laboratory: Laboratory) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        make_bench(finished_only=True)
    make_bench()
    with pytest.raises(StoreError, match="was not run here yet"):
        draw_again(FIG2C, make_bench(finished_only=True))


def test_a_cohort_run_that_was_not_begun_is_nothing_to_draw(make_bench: MakeBench, laboratory: Laboratory) -> None:
    make_bench()
    for name in ("fig3b", "fig3c"):
        Record(small(name)).write(laboratory.folder / name, name)
        with pytest.raises(NothingToDrawError, match=f"no figure of {name} \\(0 of 5 cells finished, 0 failed\\)"):
            draw_again(EXPERIMENTS[name], make_bench(finished_only=True))


def test_without_any_change_heuristics_are_not_compared(make_bench: MakeBench) -> None:
    with pytest.raises(NothingToDrawError, match="nothing to compare"):
        carry_out(EXPERIMENTS["baselines"], small("baselines", max_changes=(0,)), make_bench())


def test_two_processes_do_not_measure_into_one_folder(make_bench: MakeBench, laboratory: Laboratory) -> None:
    bench = make_bench()
    before = lines(laboratory)
    with pytest.raises(StoreError, match="another process works on these experiments"):
        Bench(laboratory)
    assert lines(laboratory) == before
    bench.close()
    with pytest.raises(StoreError, match="other conditions"):
        Bench(replace(laboratory, conditions=replace(TINY, seed=1)))
    with Bench(laboratory), pytest.raises(StoreError, match="another process"):
        Bench(laboratory)


def test_drawing_leaves_alone_what_another_process_is_writing(
    make_bench: MakeBench, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out(FIG2C, small("fig2c"), make_bench())
    journal = laboratory.folder / JOURNAL
    at_work = make_bench()
    read = FinishedCells._read
    written = [b'{"cell": "one that', b'{"cell": "one that another process measured", "row": {}}\n{"cell": "and']

    def read_slowly(cells: FinishedCells, wanted: Mapping[str, object]) -> int:
        """Meanwhile the other process goes on."""
        end = read(cells, wanted)
        with journal.open("ab") as file:
            file.write(written.pop())
        return end

    monkeypatch.setattr(FinishedCells, "_read", read_slowly)
    for _ in range(2):
        before = journal.read_bytes()
        drawn = draw_again(FIG2C, Bench(laboratory, finished_only=True))
        assert drawn.record.cells.finished == 12
        assert journal.read_bytes().startswith(before)
        assert len(journal.read_bytes()) > len(before)
    at_work.close()


def test_an_old_table_is_never_shown_under_new_settings(
    make_bench: MakeBench, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = carry_out(FIG2C, small("fig2c", max_changes=(0, 1)), make_bench())
    assert [one.record for one in finished_outcomes(laboratory.folder)] == [first.record]
    stop_after(1, monkeypatch)
    with pytest.raises(StoppedError):
        carry_out(FIG2C, small("fig2c"), make_bench(), force=True)
    assert finished_outcomes(laboratory.folder) == []
    assert not first.figure.exists()
    drawn = draw_again(FIG2C, make_bench(finished_only=True))
    assert drawn.record.settings == small("fig2c")
    assert (drawn.record.cells.wanted, drawn.record.cells.finished) == (12, 9)
    (shown,) = finished_outcomes(laboratory.folder)
    assert shown.record == drawn.record
    # A record without a table of its own, as earlier versions could leave it beside an old one.
    Record(small("fig2c")).write(laboratory.folder / "fig2c", "fig2c")
    assert finished_outcomes(laboratory.folder) == []


def test_going_on_with_the_same_settings_keeps_what_was_shown(
    make_bench: MakeBench, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(6, patch)
        with pytest.raises(StoppedError):
            carry_out(FIG2C, small("fig2c"), make_bench())
    drawn = draw_again(FIG2C, make_bench(finished_only=True))
    stop_after(1, monkeypatch)
    with pytest.raises(StoppedError):
        carry_out(FIG2C, small("fig2c"), make_bench())
    (shown,) = finished_outcomes(laboratory.folder)
    assert (shown.record, shown.record.cells.finished) == (drawn.record, 6)
    assert_frame_equal(shown.table, drawn.table)


@pytest.mark.parametrize(
    ("writer", "name"),
    [("polars.DataFrame.write_parquet", "table.parquet"), ("paper.experiment.save_figure", "figure.png")],
)
@pytest.mark.parametrize("error", [pl.exceptions.ComputeError("File too large"), OSError(27, "File too large")])
def test_a_full_disk_is_told_with_the_file(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch, writer: str, name: str, error: Exception
) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    bench = make_bench()
    with monkeypatch.context() as patch:
        patch.setattr(writer, full)
        with pytest.raises(StoreError, match=rf"fig2c/{name}: cannot be written \(File too large\)\. .*is kept"):
            carry_out(FIG2C, small("fig2c", patients=1, max_changes=(0,)), bench)
    forbid_work(monkeypatch)
    assert carry_out(FIG2C, small("fig2c", patients=1, max_changes=(0,)), bench).figure.exists()


def test_interrupting_by_hand_leaves_no_half_measured_cell(
    make_bench: MakeBench, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    # A search that is interrupted returns its bracket; as a measurement that would be wrong.
    monkeypatch.setattr("ifonly.search.branch_and_bound.greedy_warm_start", interrupted)
    monkeypatch.setattr("paper.asking.warm_up", lambda device: None)
    episode = laboratory.cohort().ids[0]
    with pytest.raises(KeyboardInterrupt):
        make_bench().measure([SolveCell(episode, OURS, (1.0, 0.1), 1)], "test")
    assert len(lines(laboratory)) == 1


def test_a_cell_that_fails_is_counted_and_costs_no_other(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = SolveCell.measure
    bad = make_bench().laboratory.patients(1)[0]

    def measured(cell: SolveCell, laboratory: Laboratory) -> dict[str, object]:
        if cell.episode == bad and cell.max_changes == 1 and cell.solver == OURS:
            raise ReplayError("the model does not explain this")
        return measure(cell, laboratory)

    monkeypatch.setattr(SolveCell, "measure", measured)
    bench = make_bench()
    done = carry_out(EXPERIMENTS["fig3a"], small("fig3a"), bench)
    assert (done.record.cells.finished, done.record.cells.failed, len(done.table)) == (12, 1, 5)
    # Another experiment of the same command does not try again; the command, given again, does.
    count = len(lines(bench.laboratory))
    carry_out(EXPERIMENTS["fig3a"], small("fig3a"), bench)
    assert len(lines(bench.laboratory)) == count
    drawn = draw_again(EXPERIMENTS["fig3a"], make_bench(finished_only=True))
    assert drawn.record.cells.failed == 1
    monkeypatch.setattr(SolveCell, "measure", measure)
    again = carry_out(EXPERIMENTS["fig3a"], small("fig3a"), make_bench())
    assert (again.record.cells.finished, again.record.cells.failed, len(again.table)) == (12, 0, 6)
    assert len(lines(bench.laboratory)) == count + 1
    forbid_work(monkeypatch)
    assert len(carry_out(EXPERIMENTS["fig3a"], small("fig3a"), make_bench()).table) == 6


def test_other_conditions_are_refused(make_bench: MakeBench, laboratory: Laboratory) -> None:
    make_bench().close()
    before = lines(laboratory)
    for conditions in (replace(TINY, epochs=2), replace(TINY, seed=1), replace(TINY, horizon=5)):
        with pytest.raises(StoreError, match=r"other conditions \((epochs|seed|horizon)"):
            Bench(replace(laboratory, conditions=conditions))
    with pytest.raises(StoreError, match=r"other conditions.*cohort"):
        Bench(replace(laboratory, episodes=None))
    assert lines(laboratory) == before


def test_other_settings_are_refused_unless_forced(make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    first = carry_out(FIG2C, small("fig2c"), make_bench())
    fewer = small("fig2c", patients=1)
    with pytest.raises(StoreError, match="patients: 2 there, 1 now"):
        carry_out(FIG2C, fewer, make_bench())
    forbid_work(monkeypatch)
    forced = carry_out(FIG2C, fewer, make_bench(), force=True)
    assert_frame_equal(forced.table, first.table.filter(pl.col("episode") == first.table["episode"][0]))


def test_a_file_that_is_no_journal_is_left_alone(laboratory: Laboratory) -> None:
    laboratory.folder.mkdir()
    stranger = laboratory.folder / JOURNAL
    stranger.write_text("my diary\n")
    with pytest.raises(StoreError, match="not a line"):
        Bench(laboratory)
    assert stranger.read_text() == "my diary\n"


@long
def test_workers_measure_the_same(laboratory: Laboratory, tmp_path: Path) -> None:
    elsewhere = replace(laboratory, folder=tmp_path / "others")
    with Bench(laboratory) as here, Bench(elsewhere, workers=2) as there:
        alone, many = (carry_out(FIG2C, small("fig2c"), bench) for bench in (here, there))
    assert_frame_equal(many.table.drop(CLOCKS), alone.table.drop(CLOCKS))


def test_simulated_stays_are_kept(tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path, replace(TINY, stays=3))
    Bench(laboratory).close()
    assert len(laboratory.cohort()) == 3
    with pytest.raises(StoreError, match=r"cohort: {'simulated': 3} there, {'simulated': 4} now"):
        Bench(Laboratory(tmp_path, replace(TINY, stays=4)))


def test_a_horizon_without_patients(stays: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exactly 9 steps"):
        Laboratory(tmp_path, replace(TINY, horizon=9), stays).patients(1)


def test_a_given_model_is_used(make_bench: MakeBench, laboratory: Laboratory, tmp_path: Path) -> None:
    make_bench().fit_models([(1.0, 0.1)])
    given = replace(laboratory, folder=tmp_path / "given", model=laboratory.model_folder((1.0, 0.1)))
    assert given.standard is None
    with Bench(given) as bench:
        done = carry_out(EXPERIMENTS["fig3a"], small("fig3a"), bench)
    assert not (given.folder / "models").exists()
    same = carry_out(EXPERIMENTS["fig3a"], small("fig3a"), make_bench())
    assert_frame_equal(done.table.drop(CLOCKS), same.table.drop(CLOCKS))


def test_keys_tell_cells_apart() -> None:
    cell = SolveCell("a", OURS, (1.0, 0.1), 2)
    others = [replace(cell, **change) for change in ({"max_changes": 3}, {"limits": None}, {"seconds": 1.0})]
    assert len({one.key for one in [cell, *others]}) == 4
    assert cell.key == replace(cell).key
