"""Cross-validation: equal footing for every configuration, signs that mean what they say, journals that resume."""

import json
import math

import numpy as np
import pytest
from effort import long
from hypothesis import given, settings
from hypothesis import strategies as st
from wavy_cohorts import SCHEMA, wavy_cohort

import ifonly.models.crossval as crossval
from ifonly import Additive, Cohort, Feature, LocationScale, Scaler, Schema
from ifonly.errors import FitError, InputError, SchemaMismatchError, StoreError
from ifonly.models.crossval import (
    CrossValidation,
    CrossValidationPlan,
    CrossValidationRow,
    cross_validate,
    goes_on_from,
)
from ifonly.models.fit import FitSettings, evaluate, fit
from ifonly.progress import Tick

GRID = [(2.0, 0.5), (0.1, 0.1)]


def factory(limits) -> LocationScale:
    return LocationScale(SCHEMA, hidden=(8,), lipschitz=limits)


def plan(**changes) -> CrossValidationPlan:
    quick = FitSettings(epochs=3, learning_rate=1e-2, batch_size=64, validation=0.2)
    return CrossValidationPlan(**{"grid": GRID, "folds": 3, "seed": 4, "fit": quick} | changes)


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return wavy_cohort(subjects=12, seed=0)


@pytest.fixture(scope="module")
def table(cohort) -> CrossValidation:
    return cross_validate(factory, cohort, plan())


# --- what is computed


def test_every_cell_is_a_fit_on_the_other_folds_evaluated_on_its_own(cohort, table):
    folds = cohort.folds(3, seed=4)
    coordinates = Scaler.fit(cohort)
    for row in table.rows:
        for fold, (train, held_out) in enumerate(folds):
            model = fit(factory(row.limits), train, settings=plan().fit, seed=4 + fold)
            assert row.log_likelihoods[fold] == pytest.approx(evaluate(model, held_out, coordinates=coordinates))


def test_configurations_of_a_fold_share_subjects_scaling_and_seed(cohort, monkeypatch):
    seen = []

    def watched(model, train, *, settings, seed, progress):
        fitted = fit(model, train, settings=settings, seed=seed, progress=progress)
        seen.append((model.settings()["lipschitz"], train, fitted.scaler.to_dict(), seed))
        return fitted

    held = []

    def watching(model, held_out, *, coordinates):
        held.append((set(held_out.subjects), coordinates.to_dict()))
        return evaluate(model, held_out, coordinates=coordinates)

    monkeypatch.setattr(crossval, "fit", watched)
    monkeypatch.setattr(crossval, "evaluate", watching)
    cross_validate(factory, cohort, plan())
    assert [limits for limits, *_ in seen] == [None] * 3 + [[2.0, 0.5]] * 3 + [[0.1, 0.1]] * 3
    for fold in range(3):
        (_, train, scaling, seed), *others = seen[fold::3]
        for _, other_train, other_scaling, other_seed in others:
            assert (other_train.ids, other_scaling, other_seed) == (train.ids, scaling, seed)
        assert not set(train.subjects) & held[fold][0]
        assert set(train.subjects) | held[fold][0] == set(cohort.subjects)
    assert len({seed for *_, seed in seen}) == 3
    assert all(coordinates == Scaler.fit(cohort).to_dict() for _, coordinates in held)
    assert sorted(subject for part, _ in held[:3] for subject in part) == sorted(set(cohort.subjects))


@long
def test_strong_limits_cost_fit_on_wavy_data():
    cohort = wavy_cohort(subjects=40, seed=1)
    training = FitSettings(epochs=40, learning_rate=1e-2, batch_size=64)
    found = cross_validate(
        lambda limits: LocationScale(SCHEMA, hidden=(24,), lipschitz=limits),
        cohort,
        CrossValidationPlan(grid=[(0.1, 0.1)], folds=2, fit=training),
    )
    strict = found.row((0.1, 0.1))
    assert strict.mean < found.unconstrained.mean - 0.2
    assert strict.decrease > 3 * strict.decrease_error > 0
    with pytest.raises(InputError, match="was not tried"):
        found.row((5.0, 5.0))


def test_a_schema_stands_for_location_scale_models(cohort):
    quick = plan(grid=[(1.0, 0.1)], folds=2, fit=FitSettings(epochs=1))
    by_schema = cross_validate(SCHEMA, cohort, quick)
    assert by_schema == cross_validate(lambda limits: LocationScale(SCHEMA, lipschitz=limits), cohort, quick)


def test_a_model_stands_for_others_with_other_limits(cohort, table):
    assert cross_validate(LocationScale(SCHEMA, hidden=(8,), lipschitz=(5.0, 5.0)), cohort, plan()) == table


def test_what_is_no_schema_model_or_function_is_refused(cohort):
    class Rigid(LocationScale):
        def settings(self):
            return {}

    with pytest.raises(InputError, match="no setting 'lipschitz'"):
        cross_validate(Rigid(SCHEMA, hidden=(4,)), cohort, plan())
    for wrong in (LocationScale, "location-scale", None):
        with pytest.raises(InputError, match="expected a schema, a model, or a function"):
            cross_validate(wrong, cohort, plan())


def test_progress_is_one_steady_bar(cohort):
    ticks: list[Tick] = []
    table = cross_validate(factory, cohort, plan(), progress=ticks.append)
    assert {(tick.stage, tick.total) for tick in ticks} == {("cross-validation", 9 * 3)}
    assert [tick.done for tick in ticks] == list(range(9 * 3 + 1))
    finished = [tick.figures["log-likelihood"] for tick in ticks if "log-likelihood" in tick.figures]
    assert finished == [value for row in table.rows for value in row.log_likelihoods]


# --- the figures of a row

folds_of_values = st.integers(2, 6).flatmap(
    lambda n: st.tuples(*[st.lists(st.floats(-50, 50), min_size=n, max_size=n)] * 2)
)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(folds_of_values)
def test_a_decrease_is_positive_exactly_where_the_fit_is_worse_whatever_the_signs(values):
    constrained, free = values
    row = CrossValidationRow.of((1.0, 0.1), constrained, free)
    mean, reference = np.mean(constrained), np.mean(free)
    assert row.mean == mean
    assert row.standard_error == pytest.approx(np.std(constrained, ddof=1) / math.sqrt(len(constrained)))
    if abs(reference) > 1e-6:
        assert row.decrease == pytest.approx(100 * (reference - mean) / abs(reference), abs=1e-6, rel=1e-9)
        assert (row.decrease > 0) == (mean < reference)
        assert row.decrease_error >= 0


def test_six_percent_lower_whether_likelihoods_are_negative_or_positive():
    assert CrossValidationRow.of((1.0, 0.1), [-10.6, -10.6], [-10, -10]).decrease == pytest.approx(6)
    assert CrossValidationRow.of((1.0, 0.1), [9.4, 9.4], [10, 10]).decrease == pytest.approx(6)
    better = CrossValidationRow.of((1.0, 0.1), [-9.4, -9.4], [-10, -10])
    assert better.decrease == pytest.approx(-6)


def test_the_error_of_a_decrease_ignores_what_folds_have_in_common():
    row = CrossValidationRow.of((1.0, 0.1), [-1.1, -11.1, -21.1], [-1.0, -11.0, -21.0])
    assert row.standard_error > 5
    assert row.decrease_error == pytest.approx(0, abs=1e-9)


def test_the_unconstrained_row_comes_first_and_has_no_decrease(table):
    assert table.unconstrained is table.rows[0]
    assert table.unconstrained.limits is None
    assert (table.unconstrained.decrease, table.unconstrained.decrease_error) == (0, 0)
    assert [row.limits for row in table.rows] == [None, *GRID]


# --- the table


def test_tables_survive_json(table):
    assert all(type(row.decrease_error) is float for row in table.rows)
    content = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert CrossValidation.from_dict(content) == table
    assert content["provenance"].keys() == {"ifonly", "schema", "cohort", "model"}
    assert content["provenance"]["model"] == {"kind": "location-scale", "settings": factory(None).settings()}
    del content["counts"]
    with pytest.raises(StoreError, match="counts"):
        CrossValidation.from_dict(content)


def test_tables_print_a_grid_of_location_by_scale_limits():
    rows = [CrossValidationRow.of(None, [-10.0, -10.0], [-10.0, -10.0])]
    rows += [
        CrossValidationRow.of(limits, [value, value], [-10.0, -10.0])
        for limits, value in {(1.0, 0.1): -10.6, (0.5, 0.1): -12.0, (1.0, None): -9.9}.items()
    ]
    plan = CrossValidationPlan(grid=[row.limits for row in rows], folds=2)
    table = CrossValidation(plan, tuple(rows), crossval.DataCounts(4, 3, 20), {})
    lines = str(table).splitlines()
    assert lines[0] == "2-fold cross-validation by subject: 4 episodes of 3 subjects, 20 transitions"
    assert "unconstrained -10.0000 +- 0.0000" in lines[2]
    assert [line.split() for line in lines[-3:]] == [
        ["L_h", "\\", "L_phi", "0.1", "none"],
        ["0.5", "-20.00", "+-", "0.00"],
        ["1", "-6.00", "+-", "0.00", "+1.00", "+-", "0.00"],
    ]
    assert "negative: fits worse" in lines[3]
    assert len({len(line) for line in (lines[-3], lines[-1])}) == 1  # columns line up


def test_models_with_another_kind_of_limits_print_a_list(cohort):
    additive = pytest.importorskip("ifonly.models.additive")
    quick = plan(grid=[0.5, 1], folds=2, fit=FitSettings(epochs=1))
    table = cross_validate(lambda limits: additive.Additive(SCHEMA, hidden=(8,), lipschitz=limits), cohort, quick)
    assert [row.limits for row in table.rows] == [None, 0.5, 1.0]
    assert "limits 0.5: " in str(table)
    assert CrossValidation.from_dict(json.loads(json.dumps(table.to_dict()))) == table


# --- plans and their errors


def test_plans_drop_what_is_listed_twice_and_the_unconstrained_model():
    assert CrossValidationPlan(grid=[[1, 0.1], None, (1.0, np.float64(0.1)), 2]).grid == ((1.0, 0.1), 2.0)
    assert CrossValidationPlan(grid=[]).configurations == (None,)
    assert len(set(CrossValidationPlan().grid)) == 9


@pytest.mark.parametrize(
    "wrong", [{"folds": 1}, {"folds": 2.0}, {"seed": -1}, {"grid": ["ab"]}, {"grid": [{}]}], ids=str
)
def test_wrong_plans_are_refused(wrong):
    with pytest.raises(InputError, match="limits" if "grid" in wrong else next(iter(wrong))):
        CrossValidationPlan(**wrong)


def test_wrong_limits_and_schemas_are_refused_before_any_fit(cohort, monkeypatch):
    monkeypatch.setattr(crossval, "fit", None)
    with pytest.raises(InputError, match="positive"):
        cross_validate(factory, cohort, plan(grid=[(1.0, 0.1), (-1.0, 0.1)]))
    other = Schema((Feature("x", "dynamic"),), SCHEMA.actions)
    with pytest.raises(SchemaMismatchError):
        cross_validate(other, cohort, plan())
    with pytest.raises(InputError, match="folds"):
        cross_validate(factory, cohort, plan(folds=13))


def test_a_fit_that_breaks_down_names_its_cell(cohort):
    hasty = FitSettings(epochs=30, learning_rate=1e30)
    with pytest.raises(FitError, match=r"limits None, fold 0: .*no longer finite"):
        cross_validate(factory, cohort, plan(fit=hasty))


# --- the journal


class StopError(Exception):
    pass


def stop_after(cells: int):
    """A progress callback that breaks the run off once so many cells are finished."""
    finished = 0

    def progress(tick: Tick) -> None:
        nonlocal finished
        finished += "log-likelihood" in tick.figures
        if finished == cells:
            raise StopError

    return progress


@pytest.fixture
def fits(monkeypatch) -> list[int]:
    """The seeds of the fits that are really done."""
    done: list[int] = []

    def counted(*arguments, seed, **more):
        done.append(seed)
        return fit(*arguments, seed=seed, **more)

    monkeypatch.setattr(crossval, "fit", counted)
    return done


@pytest.mark.parametrize("cells", [1, 4, 9])
def test_an_interrupted_run_goes_on_where_it_stopped(cohort, table, tmp_path, fits, cells):
    journal = tmp_path / "runs" / "journal.jsonl"
    with pytest.raises(StopError):
        cross_validate(factory, cohort, plan(), journal=journal, progress=stop_after(cells))
    assert len(fits) == cells
    assert len(journal.read_text().splitlines()) == 1 + cells
    fits.clear()
    ticks: list[Tick] = []
    resumed = cross_validate(factory, cohort, plan(), journal=journal, progress=ticks.append)
    assert resumed == table
    assert len(fits) == 9 - cells
    assert ticks[0].done == cells * 3
    fits.clear()
    assert cross_validate(factory, cohort, plan(), journal=journal) == table
    assert fits == []


def test_a_cut_off_journal_loses_only_its_last_line(cohort, table, tmp_path, fits):
    journal = tmp_path / "journal.jsonl"
    cross_validate(factory, cohort, plan(), journal=journal)
    complete = journal.read_bytes()
    start_of_last = complete.rstrip(b"\n").rfind(b"\n") + 1
    first_line = complete.index(b"\n") + 1
    for size, missing in [(start_of_last + 1, 1), (len(complete) - 1, 1), (first_line, 9), (first_line - 1, 9), (0, 9)]:
        fits.clear()
        journal.write_bytes(complete[:size])
        assert cross_validate(factory, cohort, plan(), journal=journal) == table
        assert len(fits) == missing
        assert journal.read_bytes() == complete


def test_a_larger_grid_goes_on_in_the_journal_of_a_smaller_one(cohort, table, tmp_path, fits):
    journal = tmp_path / "journal.jsonl"
    cross_validate(factory, cohort, plan(grid=GRID[1:]), journal=journal)
    fits.clear()
    assert cross_validate(factory, cohort, plan(), journal=journal) == table
    assert len(fits) == 3


@pytest.mark.parametrize(
    "other",
    [
        LocationScale(SCHEMA, hidden=(4,)),
        LocationScale(SCHEMA, hidden=(8,), activation="relu"),
        LocationScale(SCHEMA, hidden=(8,), prior="laplace"),
        Additive(SCHEMA, hidden=(8,)),
    ],
    ids=lambda model: f"{model.kind} {model.settings()}",
)
def test_a_journal_of_another_model_is_refused(cohort, tmp_path, fits, other):
    journal = tmp_path / "journal.jsonl"
    cross_validate(factory, cohort, plan(grid=[]), journal=journal)
    before = journal.read_bytes()
    fits.clear()
    with pytest.raises(StoreError, match=r"journal of another cross-validation \(model: .*--force"):
        cross_validate(other, cohort, plan(grid=[]), journal=journal)
    assert (fits, journal.read_bytes()) == ([], before)


def test_a_table_is_gone_on_from_only_with_everything_it_holds(cohort, table):
    read_back = CrossValidation.from_dict(json.loads(json.dumps(table.to_dict())))
    assert goes_on_from(read_back, factory, cohort, plan())
    assert goes_on_from(read_back, factory, cohort, plan(grid=[*GRID, (3.0, 0.3)]))
    assert not goes_on_from(read_back, factory, cohort, plan(grid=GRID[1:]))
    assert not goes_on_from(read_back, factory, cohort, plan(seed=5))
    assert not goes_on_from(read_back, factory, cohort, plan(fit=FitSettings(epochs=2)))
    assert not goes_on_from(read_back, LocationScale(SCHEMA, hidden=(4,)), cohort, plan())
    assert not goes_on_from(read_back, factory, cohort[1:], plan())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 5}, "seed: 4 there, 5 now"),
        ({"folds": 2}, "folds: 3 there, 2 now"),
        ({"fit": FitSettings(epochs=2)}, "'epochs': 2"),
    ],
    ids=str,
)
def test_a_journal_of_other_settings_is_refused_and_left_alone(cohort, tmp_path, changes, named):
    journal = tmp_path / "journal.jsonl"
    with pytest.raises(StopError):
        cross_validate(factory, cohort, plan(), journal=journal, progress=stop_after(1))
    before = journal.read_bytes()
    with pytest.raises(StoreError, match=named):
        cross_validate(factory, cohort, plan(**changes), journal=journal)
    assert journal.read_bytes() == before


def test_a_journal_of_other_data_is_refused(cohort, tmp_path):
    journal = tmp_path / "journal.jsonl"
    with pytest.raises(StopError):
        cross_validate(factory, cohort, plan(), journal=journal, progress=stop_after(1))
    states = cohort.states.copy()
    states[3, 1] += 1e-9
    altered = Cohort(
        schema=SCHEMA,
        ids=cohort.ids,
        subjects=cohort.subjects,
        offsets=cohort.offsets,
        states=states,
        context=cohort.context,
        actions=cohort.actions,
    )
    with pytest.raises(StoreError, match="cohort: "):
        cross_validate(factory, altered, plan(), journal=journal)


@pytest.mark.parametrize("content", [b"my notes", b"my notes\nand more", b'{"a": 1}\n', b"\n", b"\xff\xfe\n"])
def test_a_file_that_is_no_journal_is_left_alone(cohort, tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"line 1: not a line of a cross-validation journal.*--force"):
        cross_validate(factory, cohort, plan(), journal=path)
    assert path.read_bytes() == content


def test_a_damaged_line_in_the_middle_is_done_again_and_a_folder_is_refused(cohort, tmp_path):
    journal = tmp_path / "journal.jsonl"
    with pytest.raises(StopError):
        cross_validate(factory, cohort, plan(), journal=journal, progress=stop_after(2))
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join([lines[0], lines[1][:-5], lines[2], ""]))
    done = []
    table = cross_validate(factory, cohort, plan(), journal=journal, progress=done.append)
    assert table.to_dict() == cross_validate(factory, cohort, plan()).to_dict()
    assert json.loads(lines[1])["cell"] in [json.loads(line)["cell"] for line in journal.read_text().splitlines()[3:]]
    with pytest.raises(StoreError, match="is a folder"):
        cross_validate(factory, cohort, plan(), journal=tmp_path)


def test_the_journal_holds_no_patient_rows(cohort, tmp_path):
    journal = tmp_path / "journal.jsonl"
    with pytest.raises(StopError):
        cross_validate(factory, cohort, plan(), journal=journal, progress=stop_after(2))
    header, *cells = (json.loads(line) for line in journal.read_text().splitlines())
    assert header.keys() == {
        "format",
        "version",
        "ifonly",
        "schema",
        "cohort",
        "model",
        "folds",
        "seed",
        "fit",
        "checksum",
    }
    assert all(cell.keys() == {"cell", "log_likelihood", "checksum"} for cell in cells)


def test_files_of_another_version_are_refused():
    rows = (CrossValidationRow.of(None, [-10.0, -10.0], [-10.0, -10.0]),)
    table = CrossValidation(CrossValidationPlan(grid=[], folds=2), rows, crossval.DataCounts(4, 3, 20), {})
    content = {"format": crossval.FORMAT, "version": crossval.VERSION, **table.to_dict()}
    assert CrossValidation.from_dict(content) == table
    with pytest.raises(StoreError, match=r"version 2 of ifonly\.cross-validation"):
        CrossValidation.from_dict({**content, "version": 2})
