import math
import re
import warnings

import numpy as np
import polars as pl
import pytest
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from made_logs import DOSES, workshop

from ifonly.data import Feature, Schema, load_schema, read_table
from ifonly.data.doses import plausible_doses
from ifonly.data.drafts import Hints, draft_text, guess_schema
from ifonly.data.drafts.actions import guess_actions
from ifonly.data.drafts.guesses import guess_unit
from ifonly.data.drafts.readings import read_column
from ifonly.data.store import load_schema_and_columns, read_frame
from ifonly.errors import InputError, PlausibilityWarning

LOG = workshop()
HINTS = Hints(actions=DOSES)


def filled_in(text, unit="u"):
    return text.replace('unit: "?"', f"unit: {unit}")


def as_csv(frame, folder):
    frame.write_csv(folder / "log.csv")
    return read_frame(folder / "log.csv")


def features(draft):
    return {guess.feature.name: guess.feature for guess in draft.features}


def change(frame, column, row, value):
    """The table with one other cell."""
    values = frame[column].to_list()
    values[row] = value
    return frame.with_columns(pl.Series(column, values, strict=False))


@pytest.mark.parametrize("raw", [False, True], ids=["typed", "text"])
def test_roles_and_features_of_a_log(tmp_path, raw):
    draft = guess_schema(as_csv(LOG, tmp_path) if raw else LOG, HINTS)
    columns = draft.columns
    assert (columns.episode, columns.step, columns.subject, columns.spacing) == ("run", "hour", "machine", 2.0)
    assert [dose.column for dose in columns.doses] == list(DOSES)
    assert {name: feature.kind for name, feature in features(draft).items()} == {
        "age_years": "static",
        "ambient": "contextual",
        "heat": "dynamic",
        "wear": "dynamic",
        "alarm": "contextual",
    }
    assert {name: feature.scaling for name, feature in features(draft).items()} == {
        "age_years": "linear",
        "ambient": "linear",
        "heat": "linear",
        "wear": "log",
        "alarm": "none",
    }
    assert features(draft)["age_years"].unit == "years"
    assert features(draft)["heat"].unit == "?"
    assert set(draft.left_out) == {"note", "shop", "failed"}
    assert (draft.rows, draft.episodes, draft.subjects) == (LOG.height, 40, 12)
    assert (draft.schema.step_length, draft.schema.step_unit) == (2.0, "h")
    assert draft.problems == ()


@pytest.mark.parametrize("seed", range(5))
def test_ids_and_steps_are_found_by_values_alone(seed):
    """With names that tell nothing, and columns in any order."""
    names = {"run": "q1", "hour": "q2", "machine": "q3", "age_years": "q4", "heat": "q5", "wear": "q6"}
    order = list(np.random.default_rng(seed).permutation(LOG.columns))
    frame = LOG.select(order).rename(names)
    draft = guess_schema(frame, HINTS)
    assert (draft.columns.episode, draft.columns.step) == ("q1", "q2")


@pytest.mark.parametrize("name", ["season", "when", "lot"])
def test_what_parts_a_subjects_rows_into_whole_runs_is_their_episode(name):
    """A field's seasons are no episode with gaps between them, though nothing in the name says so."""
    part, week = np.repeat(np.arange(40), 6), np.tile(np.arange(6), 40)
    frame = pl.DataFrame(
        {
            "field": [f"f{index % 10}" for index in part],
            name: [f"s{index}" for index in part],
            "date": pl.datetime_range(pl.datetime(2031, 1, 1), pl.datetime(2039, 1, 1), "1w", eager=True).gather(
                part // 10 * 52 + week
            ),
            "dose": np.random.default_rng(0).integers(0, 3, 240),
            "soil": np.random.default_rng(1).normal(size=240),
        }
    )
    draft = guess_schema(frame)
    assert (draft.columns.episode, draft.columns.step, draft.columns.subject) == (name, "date", "field")
    assert not draft.problems
    alone = guess_schema(frame.drop(name))
    assert alone.columns.episode == "field"
    assert any(problem.kind == "gaps in steps" for problem in alone.problems)


def test_ids_are_no_steps():
    """Of a table of single rows, whose ids of episodes happen to be equally far apart within subjects."""
    count = np.arange(60)
    frame = pl.DataFrame(
        {"patient_id": count % 30 + 1, "admission_id": count + 500, "dose": count**2 % 7, "heat": np.sin(count)}
    )
    with pytest.raises(InputError, match="no two columns look like"):
        guess_schema(frame.sort("patient_id", "admission_id"))


@pytest.mark.parametrize(("name", "codes"), [("action", True), ("Action_id", True), ("dose", False)])
def test_numbers_that_count_many_actions_are_codes(tmp_path, name, codes):
    """In bins it would be lost which action was taken; a dose may well be 0, 1, 2, ..."""
    numbers = np.arange(LOG.height) * 7 % 25
    frame = as_csv(LOG.drop(DOSES).with_columns(pl.Series(name, numbers)), tmp_path)
    draft = guess_schema(frame)
    assert (len(draft.schema.actions), bool(draft.columns.doses)) == ((25, False) if codes else (4, True))
    (tmp_path / "schema.yaml").write_text(filled_in(draft_text(draft, "log.csv")))
    actions = np.concatenate([one.actions for one in read_table(tmp_path / "log.csv", tmp_path / "schema.yaml")])
    assert (actions == numbers).all() == codes


def test_a_dose_is_not_told_with_its_unit_twice():
    """Headings such as "water (L)" give the unit, which every dose is shown with; where names would clash they stay."""
    frame = LOG.rename({"coolant dose": "coolant dose (mL)", "grease": "grease [g]"})
    space = guess_schema(frame, Hints(actions=("coolant dose (mL)", "grease [g]"))).schema.actions
    assert [(axis.name, axis.unit) for axis in space.axes] == [("coolant dose", "mL"), ("grease [g]", "")]
    clash = LOG.rename({"coolant dose": "dose (mL)"}).with_columns((2 * pl.col("dose (mL)")).alias("dose (g)"))
    space = guess_schema(clash, Hints(actions=("dose (mL)", "dose (g)"))).schema.actions
    assert [axis.name for axis in space.axes] == ["dose (mL)", "dose (g)"]


def test_a_column_that_speaks_of_an_action_and_is_none_is_told():
    frame = LOG.with_columns(
        action=pl.when(pl.col("heat") > pl.col("heat").mean()).then(pl.lit("a")).otherwise(pl.lit("b"))
    )
    draft = guess_schema(frame)
    assert draft.columns.action == "action"
    (why,) = [guess.kind_reason for guess in draft.features if guess.feature.name == "coolant dose"]
    assert "its name speaks of an action" in why
    assert "--column action=NAME" in why


def test_what_is_named_is_not_guessed():
    frame = LOG.with_columns(episode=pl.col("run").str.slice(1).cast(pl.Int64), other=pl.col("machine"))
    named = guess_schema(frame, Hints(episode="run", step="hour", subject="other", actions=("grease",)))
    assert (named.columns.episode, named.columns.subject) == ("run", "other")
    assert named.schema.actions.axes[0].levels == (0.0, 1.0)
    assert guess_schema(frame, HINTS).columns.episode == "episode"


def test_steps_that_count_need_no_spacing():
    frame = LOG.with_columns(step=(pl.col("hour") - 8) // 2 + 1).drop("hour")
    draft = guess_schema(frame, HINTS)
    assert (draft.columns.step, draft.columns.spacing, draft.schema.step_unit) == ("step", None, "step")


def test_amounts_that_are_never_negative_cannot_become_so():
    """A queue that comes near zero gets a scale that ends there; a temperature may be below zero all the same."""
    rng = np.random.default_rng(5)
    steps = np.cumsum(rng.integers(-1, 2, size=LOG.height))
    queue = np.abs(steps - steps.min() % 7).astype(float)
    columns = {"queue": queue, "temperature of the queue": queue, "pressure": 1000 + queue}
    found = features(guess_schema(LOG.with_columns(**{name: pl.Series(v) for name, v in columns.items()}), HINTS))
    assert found["queue"].scaling == "log"
    assert found["queue"].log_offset > 0
    assert found["temperature of the queue"].scaling == "linear"
    assert found["pressure"].scaling == "linear"


def test_values_between_missing_ones_have_no_changes_to_learn_from():
    spill = [float(n % 50 == 7) if n % 2 else None for n in range(LOG.height)]
    found = features(guess_schema(LOG.with_columns(spill=pl.Series(spill, dtype=pl.Float64)), HINTS))
    assert found["spill"].scaling in ("linear", "log", "none")


def test_zeros_and_skew_make_a_logarithm_with_an_offset():
    rng = np.random.default_rng(1)
    spill = np.where(rng.random(LOG.height) < 0.1, 0.0, rng.lognormal(3, 1.2, LOG.height))
    guess = features(guess_schema(LOG.with_columns(spill=pl.Series(spill)), HINTS))["spill"]
    assert guess.scaling == "log"
    assert 0 < guess.log_offset < np.median(spill)


def test_plausible_ranges_are_wide_and_not_the_extremes():
    for feature in features(guess_schema(LOG, HINTS)).values():
        low, high = feature.plausible
        values = LOG[feature.name]
        assert low <= values.min() < values.max() <= high
        if feature.name in ("heat", "wear", "ambient"):
            assert high != values.max()
            assert low != values.min()


def test_labels_are_categories_and_none_is_one_of_them(tmp_path):
    frame = LOG.with_columns(
        action=pl.when(pl.col("grease") == 1).then(pl.lit("grease it")).otherwise(pl.lit("none"))
    ).drop(DOSES)
    draft = guess_schema(as_csv(frame, tmp_path))
    assert draft.schema.actions.labels == ("grease it", "none")
    assert draft.actions.counts.tolist() == [int(LOG["grease"].sum()), LOG.height - int(LOG["grease"].sum())]
    assert draft.columns.action == "action"


doses = st.lists(
    st.one_of(st.just(0.0), st.floats(0, 1e6, width=32), st.integers(0, 30).map(float)), min_size=5, max_size=200
)


@given(doses)
@settings(deadline=None, derandomize=True, max_examples=some(80))
def test_levels_of_doses_fit_their_bins(values):
    """Every dose has a level, every level is used, the bins fit the axis, and they are quarters where values differ."""
    if len(set(values)) < 2:
        return
    guess = guess_actions([read_column(pl.Series("dose", values))])
    (axis,), (dose,) = guess.space.axes, guess.doses
    dose.require_fit(axis)
    levels = dose.levels_of(np.array(values), axis)
    assert set(levels) == set(range(len(axis.levels)))
    low, high = plausible_doses(axis)
    possible = (low <= np.array(values)) & (np.array(values) <= high)
    assert guess.counts.tolist() == np.bincount(levels[possible], minlength=len(axis.levels)).tolist()
    assert sum(guess.beyond.values()) == (~possible).sum()
    assert all(axis.levels[level] <= max(values) * 1.01 for level in levels)


def test_bins_are_zero_and_quarters_of_the_rest():
    rng = np.random.default_rng(0)
    values = np.concatenate([np.zeros(300), rng.gamma(2, 3, 400)])
    guess = guess_actions([read_column(pl.Series("dose", values))])
    assert guess.counts.tolist() == [300, 100, 100, 100, 100]
    assert guess.doses[0].edges[0] == 0
    positive = np.sort(values[values > 0])
    assert np.allclose(guess.space.axes[0].levels[1:], np.median(positive.reshape(4, 100), axis=1), rtol=0.01)


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("oxygen_mg_L", "mg/L"),
        ("lactate_mmol_l", "mmol/L"),
        ("glucose mg dL", "mg/dL"),
        ("feed_mL_h", "mL/h"),
        ("load_kg_m2", "kg/m2"),
        ("area_m2", "m2"),
        ("nitrogen_kg_ha", "kg/ha"),
        ("yield_t_ha", "t/ha"),
        ("area_ha", "ha"),
        ("start_t", "?"),
        ("volume_L", "L"),
        ("L", "?"),
        ("power [kW/m2]", "kW/m2"),
        ("share_pct", "%"),
    ],
)
def test_a_unit_in_a_name_may_be_divided_by_another(column, unit):
    """An amount per volume or time that is taken for a volume or a time would stand in every report."""
    assert guess_unit(read_column(pl.Series(column, [0.5, 1.5, 2.25, 3.0])))[0] == unit


@pytest.mark.parametrize("raw", [False, True], ids=["typed", "text"])
def test_the_file_is_the_draft_once_units_are_filled_in(tmp_path, raw):
    draft = guess_schema(as_csv(LOG, tmp_path) if raw else LOG, HINTS)
    path = tmp_path / "schema.yaml"
    path.write_text(draft_text(draft, "log.csv"))
    with pytest.raises(InputError, match=r"unit of feature 'ambient', .* axis 'coolant dose'.* still to be filled in"):
        load_schema(path)
    path.write_text(filled_in(path.read_text(), "?u"))
    schema, columns = load_schema_and_columns(path)
    assert columns == draft.columns
    assert repr(schema).replace("?u", "?") == repr(draft.schema)


@given(st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=3, unique=True), st.text(min_size=1, max_size=8))
@settings(deadline=None, derandomize=True, max_examples=some(80))
def test_any_name_and_label_survives_the_file(tmp_path_factory, names, label):
    """Whatever columns and labels are called, the file is valid YAML and says the same."""
    reserved = {"run", "hour", "do", "heat", "x"}
    frame = LOG.select(
        "run", "hour", "heat", do=pl.when(pl.col("grease") > 0).then(pl.lit("x")).otherwise(pl.lit(label))
    )
    for name in names:
        if name not in reserved:
            frame = frame.with_columns((LOG["wear"] + len(name)).alias(name))
    try:
        draft = guess_schema(frame, Hints("run", "hour", None, ("do",)))
    except InputError:
        assert not label.strip() or not label.strip().isprintable() or label.strip() == "x" or _is_number(label)
        return
    path = tmp_path_factory.mktemp("names") / "schema.yaml"
    path.write_text(filled_in(draft_text(draft, "log.csv"), "?u"), encoding="utf-8", newline="\n")
    schema, columns = load_schema_and_columns(path)
    assert [feature.name for feature in schema.features] == [guess.feature.name for guess in draft.features]
    assert schema.actions.labels == draft.schema.actions.labels
    assert columns == draft.columns


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def _with_share(frame):
    """With a fraction, which is modelled on a bounded scale."""
    return frame.with_columns(share=np.random.default_rng(0).uniform(0, 1, frame.height).round(3))


SECRET = 91357.0
PROBLEMS = {
    "missing": (lambda f: change(f, "heat", 7, None), "heat", 1, True),
    "no number": (lambda f: change(f.cast({"heat": pl.String}), "heat", 7, "warm91357"), "heat", 1, True),
    "not finite": (lambda f: change(f, "heat", 7, float("inf")), "heat", 1, True),
    "out of range": (lambda f: change(f, "heat", 7, SECRET), "heat", 1, False),
    "impossible": (
        lambda f: change(change(_with_share(f), "share", 7, -91357.0), "share", 9, -91357.0),
        "share",
        2,
        True,
    ),
    "duplicate rows": (lambda f: pl.concat([f[:3], f[2:]]), None, 1, True),
    "doubled steps": (lambda f: change(f, "hour", 7, 8), "hour", 1, True),
    "gaps in steps": (lambda f: pl.concat([f[:2], f[3:]]), "hour", 1, True),
    "single step": (lambda f: pl.concat([f[:1], f[6:]]), None, 1, True),
    "not sorted": (lambda f: pl.concat([f[6:12], f[:6], f[12:]])[[0, 2, 1, *range(3, 240)]], None, 2, True),
    "rare actions": (lambda f: change(change(f, "grease", 0, 5.0), "grease", 1, 5.0), None, 5, False),
    "negative doses": (lambda f: change(f, "coolant dose", 7, -91357.0), "coolant dose", 1, True),
    "impossible doses": (lambda f: change(f, "coolant dose", 7, SECRET), "coolant dose", 1, True),
    "repeats": (
        lambda f: f.with_columns(pl.col("heat").gather_every(4).repeat_by(4).explode().alias("heat")),
        None,
        1,
        False,
    ),
    "unbalanced actions": (
        lambda f: change(f.with_columns(**dict.fromkeys(DOSES, pl.lit(0.0))), "grease", 0, 1.0).with_columns(
            pl.Series("coolant dose", [1.0] + [0.0] * 239)
        ),
        None,
        239,
        False,
    ),
}


def test_a_row_of_units_is_no_episode(tmp_path):
    units = pl.DataFrame(
        {name: [None if name == "run" else "u"] for name in LOG.columns}, schema_overrides={"run": pl.String}
    )
    draft = guess_schema(as_csv(pl.concat([units.cast(pl.String), LOG.cast(pl.String)]), tmp_path), HINTS)
    assert draft.episodes == 40
    assert "row 1 holds texts above numbers" in str(draft.problems[0])


def test_a_site_is_no_subject_of_episodes_that_are_patients():
    renamed = LOG.rename({"run": "patient", "machine": "site"})
    draft = guess_schema(renamed, HINTS)
    assert (draft.columns.episode, draft.columns.subject, draft.subjects) == ("patient", None, 40)
    assert guess_schema(renamed, Hints(subject="site", actions=DOSES)).columns.subject == "site"


@pytest.mark.parametrize("step", ["visit", "month", "cycle", "number of it"])
def test_visits_of_patients_are_steps_and_no_episodes(step):
    patients, visits = np.repeat(np.arange(1000, 1040), 6), np.tile(np.arange(1, 7), 40)
    load = np.random.default_rng(0).normal(size=240)
    frame = pl.DataFrame({"patient_id": patients, step: visits, "load": load, "dose": (load > 0).astype(int)})
    columns = guess_schema(frame).columns
    assert (columns.episode, columns.step) == ("patient_id", step)


@pytest.mark.parametrize(
    ("step", "unit"), [("time_s", "s"), ("elapsed (sec)", "s"), ("time_h", "h"), ("steps", "step")]
)
def test_the_unit_of_steps_may_stand_in_their_name(step, unit):
    times = np.tile(np.arange(8) * 0.5, 20)
    frame = pl.DataFrame(
        {
            "run": np.repeat(np.arange(20), 8),
            step: times,
            "dose": times % 1 * 2,
            "angle": np.random.default_rng(0).normal(size=160),
        }
    )
    schema = guess_schema(frame, Hints(step=step)).schema
    assert (schema.step_length, schema.step_unit) == ((0.5 if unit != "step" else 1.0), unit)


def test_a_table_of_single_rows_is_refused():
    with pytest.raises(InputError, match="every row has another id in column 'run'"):
        guess_schema(LOG.unique("run", maintain_order=True), Hints(episode="run", actions=DOSES))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (["1'204", "20'331"], "signs that are not read; to use it"),
        (["1\u00a0204", "-20\u202f331,5"], "signs that are not read; to use it"),
        (["\u22123.5", "\u22122.5", "2.5"], "signs that are not read; to use it"),
        ([[1.0], [2.0]], "lists or the like: no number"),
    ],
)
def test_why_a_column_is_left_out(column, reason):
    draft = guess_schema(LOG.with_columns(other=pl.Series((column * 240)[:240])), HINTS)
    assert reason in draft.left_out["other"]


@pytest.mark.parametrize(("words", "base"), [(("yes", "no"), "no"), (("TRUE", "FALSE"), "FALSE"), (("b", "a"), "b")])
def test_a_switch_in_words_is_about_its_yes(words, base):
    """Most rows say the first word."""
    draft = guess_schema(LOG.with_columns(other=pl.Series([words[0], words[1], words[0]] * 80)), HINTS)
    (labels,) = draft.columns.labels
    assert labels.labels == (base, *(word for word in words if word != base))


def first_rows_only(column):
    """As spreadsheets with merged cells export it."""
    return pl.when(pl.int_range(LOG.height) % 6 == 0).then(column).otherwise(None)


def test_ids_in_first_rows_alone_are_no_reason_to_do_without():
    with pytest.raises(InputError, match="'run' seems to hold the ids of episodes, and not in every row; repeat them"):
        guess_schema(LOG.with_columns(run=first_rows_only(pl.col("run")), other=pl.int_range(LOG.height) // 6), HINTS)
    draft = guess_schema(LOG.with_columns(machine=first_rows_only(pl.col("machine"))), HINTS)
    assert draft.columns.subject == "machine"
    assert [(problem.column, problem.count) for problem in draft.problems if problem.refused] == [("machine", 200)]


def test_subjects_that_change_within_episodes_are_no_features():
    draft = guess_schema(LOG.with_columns(machine=pl.int_range(LOG.height) % 7), HINTS)
    assert draft.columns.subject is None
    assert "speaks of an id" in draft.left_out["machine"]


def test_slips_in_a_static_feature_are_told():
    draft = guess_schema(change(LOG, "age_years", 8, 40.0), HINTS)
    (reason,) = [guess.kind_reason for guess in draft.features if guess.feature.name == "age_years"]
    assert reason == "changes within 1 of 40 episodes alone: slips in a static one?"


def test_a_level_far_above_the_others_is_told():
    doses = pl.when(pl.int_range(LOG.height) % 20 == 0).then(2000.0).otherwise(pl.col("grease"))
    kinds = {problem.kind for problem in guess_schema(LOG.with_columns(grease=doses), HINTS).problems}
    assert "level far above" in kinds
    assert "level far above" not in {problem.kind for problem in guess_schema(LOG, HINTS).problems}


def test_words_are_told_by_what_they_are_compared_with():
    rows = pl.int_range(LOG.height)
    sex = pl.when(rows // 6 % 3 == 0).then(pl.lit("M")).otherwise(pl.lit("F"))
    drug = pl.when(rows % 2 == 0).then(pl.lit("A")).otherwise(pl.lit("B"))
    reasons = {
        guess.feature.name: guess.kind_reason
        for guess in guess_schema(LOG.with_columns(sex=sex, drug=drug), HINTS).features
    }
    assert reasons["sex = M"] == "a word per episode; compared with the most frequent of 2"
    assert "its name speaks of a treatment" in reasons["drug = B"]


@pytest.mark.parametrize("kind", PROBLEMS)
def test_problems_are_found_and_import_agrees(tmp_path, kind):
    """Each problem is named, counted and placed; import refuses the table exactly where the draft says so."""
    spoil, column, count, refused = PROBLEMS[kind]
    frame = spoil(LOG)
    draft = guess_schema(as_csv(frame, tmp_path), HINTS)
    found = [problem for problem in draft.problems if problem.kind == kind]
    assert [(problem.column, problem.count, problem.refused) for problem in found] == [(column, count, refused)]
    assert "91357" not in draft_text(draft, "log.csv") + str(draft.to_dict()) + str(found[0])
    assert any(str(found[0])[:40] in line for line in draft_text(draft, "log.csv").splitlines())
    (tmp_path / "schema.yaml").write_text(filled_in(draft_text(draft, "log.csv")))
    assert any(problem.refused for problem in draft.problems) == _refuses(tmp_path)


def _refuses(folder):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PlausibilityWarning)
            read_table(folder / "log.csv", folder / "schema.yaml")
    except InputError:
        return True
    return False


@pytest.mark.parametrize("column", ["run", "hour"])
def test_a_table_with_a_few_mistakes_is_understood_and_they_are_listed(column):
    """One id or step that is missing does not hide which columns are meant."""
    draft = guess_schema(change(LOG, column, 9, None), HINTS)
    assert (draft.columns.episode, draft.columns.step) == ("run", "hour")
    assert any(problem.column == column and "holds no value" in problem.text for problem in draft.problems)


@pytest.mark.parametrize("raw", [False, True], ids=["typed", "text"])
def test_ids_that_are_equal_as_floats_are_told_apart(tmp_path, raw):
    runs = pl.int_range(LOG.height) // 6
    frame = LOG.with_columns(run=runs + 2**60, machine=runs // 4 + 2**61, **{"no": pl.format("00{}", runs // 4)})
    assert frame["run"].cast(pl.Float64).n_unique() == 1
    draft = guess_schema(as_csv(frame, tmp_path) if raw else frame, HINTS)
    assert (draft.columns.episode, draft.episodes, draft.columns.subject, draft.subjects) == ("run", 40, "machine", 10)
    unknown = guess_schema(frame.rename({"machine": "who"}), HINTS)
    assert all("as ids do" in unknown.left_out[name] for name in ("who", "no"))


@pytest.mark.parametrize(("code", "share"), [(-999.0, 0.3), (-1.0, 0.1), (999.0, 0.1), (0.0, 0.05)])
def test_codes_for_missing_values_do_not_widen_what_is_plausible(tmp_path, code, share):
    at = pl.int_range(LOG.height) % round(1 / share) == 2
    frame = LOG.with_columns(heat=pl.when(at).then(code).otherwise("heat"))
    draft = guess_schema(frame, HINTS)
    kept = features(guess_schema(LOG.filter(~at), HINTS))["heat"]
    assert features(draft)["heat"] == kept
    (told,) = [problem for problem in draft.problems if problem.column == "heat"]
    assert (told.kind, told.count) == ("out of range", int(LOG.select(at).sum().item()))
    frame.write_csv(tmp_path / "log.csv")
    (tmp_path / "schema.yaml").write_text(filled_in(draft_text(draft, "log.csv")))
    with pytest.warns(PlausibilityWarning, match="heat"):
        read_table(tmp_path / "log.csv", tmp_path / "schema.yaml")


def test_codes_that_no_logarithm_takes_are_to_be_solved(tmp_path):
    """Placed by their first row, and no mere warning, since import refuses them."""
    amounts = np.random.default_rng(0).lognormal(0, 1, LOG.height).round(3)
    amounts[[5, 9]] = -999.0
    frame = LOG.with_columns(amount=amounts)
    draft = guess_schema(frame, HINTS)
    assert features(draft)["amount"].scaling == "log"
    (told,) = [problem for problem in draft.problems if problem.column == "amount"]
    assert (told.kind, told.count, told.refused) == ("impossible", 2, True)
    assert "the first in row 6" in told.text
    frame.write_csv(tmp_path / "log.csv")
    (tmp_path / "schema.yaml").write_text(filled_in(draft_text(draft, "log.csv")))
    assert _refuses(tmp_path)


def test_quantities_cut_at_an_end_are_told():
    """What lies beyond the end is hidden, however well the rest is explained."""
    draws = np.random.default_rng(0).normal(0, 1, LOG.height).round(3)
    frame = LOG.with_columns(stock=np.maximum(draws, 0.0), served=np.minimum(draws, 0.5), free=draws)
    told = [problem for problem in guess_schema(frame, HINTS).problems if problem.kind == "piled up"]
    assert [(problem.count, problem.refused) for problem in told] == [(2, False)]
    assert re.search(r"stock \(\d\d % at its lowest\), served \(\d\d % at its highest\)", told[0].text)
    assert "free" not in told[0].text


def test_values_that_recur_are_no_codes_for_missing_ones():
    """Of zeros as often as a pump rests, of a ceiling near other values, and of scores nothing is told."""
    rows = pl.int_range(LOG.height)
    for value in (
        pl.when(rows % 3 == 0).then(0.0).otherwise("heat"),
        pl.col("heat").clip(upper_bound=66),
        pl.when(rows % 20 == 0).then(15.0).otherwise(3.0 + rows % 2),
    ):
        problems = guess_schema(LOG.with_columns(heat=value), HINTS).problems
        assert "out of range" not in [problem.kind for problem in problems]


def test_two_values_and_few_whole_numbers_are_no_quantities_unasked(tmp_path):
    rows = pl.int_range(LOG.height)
    frame = LOG.with_columns(mode=2.0 + (rows * rows) % 3 % 2, rhythm=(rows * rows) % 5)
    draft = guess_schema(frame, HINTS)
    reasons = {guess.feature.name: (guess.feature.kind, guess.kind_reason) for guess in draft.features}
    assert reasons["mode"][0] == "contextual"
    assert reasons["rhythm"][0] == "dynamic"
    assert "if they are codes" in reasons["rhythm"][1]
    frame.write_csv(tmp_path / "log.csv")
    (tmp_path / "schema.yaml").write_text(filled_in(draft_text(draft, "log.csv")))
    assert len(read_table(tmp_path / "log.csv", tmp_path / "schema.yaml")) == 40


def test_an_action_that_was_not_recorded_is_told():
    last = pl.int_range(LOG.height) % 6 == 5
    frame = LOG.with_columns(action=pl.when(last).then(pl.lit("NA")).otherwise(pl.lit("none"))).drop(DOSES)
    found = {problem.kind: problem.count for problem in guess_schema(frame).problems}
    assert found["unknown actions"] == 40


def test_words_that_differ_in_capitals_alone_are_told():
    rows = pl.int_range(LOG.height)
    mixed = pl.when(rows % 3 == 0).then(pl.lit("oil")).when(rows % 3 == 1).then(pl.lit("Oil")).otherwise(pl.lit("no"))
    draft = guess_schema(LOG.with_columns(action=mixed, shift=mixed).drop(DOSES))
    assert [problem.count for problem in draft.problems if problem.kind == "labels alike"] == [1]
    reasons = [guess.kind_reason for guess in draft.features if guess.feature.name.startswith("shift")]
    assert all("differ in capitals or spaces alone" in reason for reason in reasons)


@pytest.mark.parametrize("parts", [1, 1000, 1_000_000])
def test_seconds_of_computers_have_a_unit(parts):
    draft = guess_schema(LOG.with_columns(hour=(1_900_000_000 + 3600 * pl.col("hour")) * parts).rename({"hour": "t"}))
    assert (draft.schema.step_length, draft.schema.step_unit) == (2.0, "h")
    assert draft.columns.spacing == 7200 * parts


@pytest.mark.parametrize("form", ["%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S"])
def test_days_without_signs_are_refused_as_steps(form):
    first = pl.datetime(2031, 1, 28) + pl.duration(hours=12 * pl.col("hour"))
    frame = LOG.with_columns(date=first.dt.strftime(form).cast(pl.Int64)).drop("hour")
    with pytest.raises(InputError, match="'date' seems to hold days such as 20310131; write"):
        guess_schema(frame, HINTS)


@pytest.mark.parametrize("form", ["%Y-%m", "%Y%m%dT%H%M%S"])
def test_times_in_other_forms_are_not_taken_for_episodes(form):
    months = pl.datetime(2031, 1, 1).dt.offset_by(pl.format("{}mo", pl.col("hour") // 2))
    frame = LOG.with_columns(time=months.dt.strftime(form), run=pl.int_range(LOG.height) // 6).drop("hour")
    with pytest.raises(InputError, match="'time': seems to hold times or lengths of time in a form that is not read"):
        guess_schema(frame, HINTS)


def test_times_without_a_grid_are_told_as_such():
    at = np.cumsum(np.random.default_rng(2).exponential(5, LOG.height))
    with pytest.raises(InputError, match=r"in column 'run' seem to be in 'hour', but hardly any two .* on a grid"):
        guess_schema(LOG.drop("ambient").with_columns(hour=pl.Series(at)), HINTS)


@pytest.mark.parametrize("every", ["mo", "y"])
def test_months_and_years_are_to_be_numbered(every):
    starts = pl.date(2031, 1, 1).dt.offset_by(pl.format("{}{}", pl.col("hour") // 2, pl.lit(every)))
    problems = guess_schema(LOG.with_columns(hour=starts).rename({"hour": "date"}), HINTS).problems
    (gaps,) = [problem.text for problem in problems if problem.kind == "gaps in steps"]
    assert "months and years have different lengths: number them" in gaps


def test_ids_and_outcomes_are_no_features_and_values_with_units_are_told():
    rows = pl.int_range(LOG.height)
    more = LOG.with_columns(
        hadm_id=(rows // 6) * 3 + 100,
        mrn=(rows // 12) * 7 + 5,
        **{
            "LOS days": (rows // 6) % 5 + 1.5,
            "SpO2": pl.format("{}%", 90 + rows % 7),
            "lab": pl.format("<{}", rows % 50),
        },
    )
    more = more.with_columns(grade=pl.lit(["1st", "2nd", "3rd"]).list.get(rows % 3))
    draft = guess_schema(more, HINTS)
    left_out = draft.left_out
    assert {"grade = 2nd", "grade = 3rd"} <= set(features(draft))
    assert "speaks of an id" in left_out["hadm_id"]
    assert "speaks of an id" in left_out["mrn"]
    assert "outcome" in left_out["LOS days"]
    assert "numbers with units" in left_out["SpO2"]
    assert "numbers with units" in left_out["lab"]
    assert guess_schema(more.drop("machine"), HINTS).columns.subject == "mrn"


def test_constant_columns_and_row_numbers_are_left_out():
    frame = LOG.with_columns(nothing=pl.lit(None, dtype=pl.Float64)).with_row_index("n")
    left_out = guess_schema(frame, HINTS).left_out
    assert re.search("constant", left_out["shop"])
    assert re.search("counts the rows", left_out["n"])
    assert re.search("no value", left_out["nothing"])
    assert re.search("outcome", left_out["failed"])


@pytest.mark.parametrize(
    ("frame", "hints", "expected"),
    [
        (pl.DataFrame({"a": ["1"]}), Hints(), "single column.*commas"),
        (LOG[:0], HINTS, "no rows"),
        (LOG, Hints(episode="Run"), "no column 'Run'; found"),
        (LOG.drop("run", "hour", "machine"), HINTS, "--column episode=NAME and --column step=NAME"),
        (LOG.drop("coolant dose"), Hints(), "--column action=NAME"),
        (LOG, Hints(actions=("note",)), "single value"),
        (LOG, Hints("run", "note", None, DOSES), "cannot tell the order"),
        (LOG, Hints("run", "run", None, DOSES), "cannot tell the order"),
        (LOG, Hints("run", "hour", None, ("hour",)), "two of these roles"),
        (LOG, Hints(actions=("machine", "grease")), "hold text"),
        (LOG, Hints(actions=("grease", "grease")), "more than once"),
        (LOG.select("run", "hour", "machine", "grease", "age_years"), Hints(actions=("grease",)), "dynamic feature"),
    ],
)
def test_hopeless_tables_are_refused_with_a_remedy(frame, hints, expected):
    with pytest.raises(InputError, match=expected) as caught:
        guess_schema(frame, hints)
    assert "r1" not in str(caught.value)


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_scales_do_not_matter(factor):
    ordinary, odd = guess_schema(LOG, HINTS), guess_schema(LOG.with_columns(pl.col("heat") * factor), HINTS)
    assert features(odd)["heat"].scaling == features(ordinary)["heat"].scaling
    assert odd.problems == ordinary.problems


@pytest.mark.parametrize("values", [[1e308, -1e308, 1.7e308], [1e308, 1.7e308, 1.5e308], [1e308, 5e-324, -1e200]])
def test_the_largest_numbers_have_a_range(values):
    frame = LOG.with_columns(heat=pl.Series([values[row % 3] for row in range(LOG.height)]))
    with np.errstate(over="ignore"):
        low, high = features(guess_schema(frame, HINTS))["heat"].plausible
    assert -math.inf < low <= min(values) < max(values) <= high < math.inf


def test_one_episode_alone_tells_nothing_about_steps():
    draft = guess_schema(LOG[:6], Hints("run", "hour", None, DOSES))
    assert features(draft)["heat"].kind == "dynamic"


def test_parquet_columns_of_other_types_are_no_features():
    frame = LOG.with_columns(
        listed=pl.concat_list("heat", "wear"),
        lasting=pl.duration(hours=pl.col("hour")),
        exact=pl.col("heat").cast(pl.Decimal(20, 3)),
    )
    draft = guess_schema(frame, HINTS)
    assert {"listed", "lasting"} <= set(draft.left_out)
    assert features(draft)["exact"].kind == "dynamic"


def test_dates_are_left_out_with_advice():
    frame = LOG.with_columns(when=pl.datetime(2031, 1, 1) + pl.duration(hours=pl.col("hour")))
    draft = guess_schema(frame, HINTS)
    assert "hours since the start" in draft.left_out["when"]


def test_a_draft_is_a_schema_of_its_features():
    draft = guess_schema(LOG, HINTS)
    assert isinstance(draft.schema, Schema)
    assert all(isinstance(guess.feature, Feature) and guess.kind_reason for guess in draft.features)
    content = draft.to_dict()
    assert set(content["reasons"]) == {feature.name for feature in draft.schema.features}
    assert sum(content["actions"]["counts"]) == LOG.height


def test_what_multiplies_has_a_longer_range_upwards():
    rng = np.random.default_rng(0)
    flow = np.exp(np.cumsum(rng.normal(scale=0.2, size=(60, 12)), axis=1) + 3).ravel()
    frame = pl.DataFrame(
        {
            "run": np.repeat(np.arange(60), 12),
            "hour": np.tile(np.arange(12), 60),
            "flow": flow,
            "head": 100 + np.cumsum(rng.normal(size=(60, 12)), axis=1).ravel(),
            "sand_fraction": np.repeat(rng.beta(3, 9, size=60), 12),
            "action": rng.integers(3, size=720),
        }
    )
    found = features(guess_schema(frame, Hints()))
    low, high = np.quantile(flow, (0.01, 0.99))
    assert found["flow"].scaling == "log"
    assert found["flow"].plausible[1] > high + 2 * (high - low) > flow.max()
    low, high = np.quantile(frame["head"].to_numpy(), (0.01, 0.99))
    assert found["head"].scaling == "linear"
    assert found["head"].plausible[1] < high + 2 * (high - low)
    assert (found["sand_fraction"].kind, found["sand_fraction"].plausible) == ("static", (0.0, 1.0))


def test_columns_with_few_values_are_named_where_no_name_speaks_of_an_action():
    frame = LOG.select("run", "hour", "heat").with_columns(
        pl.Series("valve", np.arange(LOG.height) % 3), pl.Series("lamp", np.arange(LOG.height) % 2)
    )
    with pytest.raises(InputError, match=re.escape("few values have ['lamp', 'valve'] (found")):
        guess_schema(frame, Hints())


def plant(rows=900, seed=0):
    """Episodes of ten steps with two independent quantities; what else a table may hold follows from them."""
    rng = np.random.default_rng(seed)
    depth, pressure = rng.normal(50, 8, size=rows).round(), rng.normal(80, 9, size=rows)
    frame = {"run": np.arange(rows) // 10, "hour": np.arange(rows) % 10, "depth": depth, "pressure": pressure}
    return pl.DataFrame(frame).with_columns(pl.Series("dose", rng.integers(4, size=rows) * 25.0)), rng


@pytest.mark.parametrize(
    ("name", "make", "others"),
    [
        ("deviation", lambda t, rng: (t["depth"] - 50).abs(), ["depth"]),
        ("harm", lambda t, rng: 0.2 * (t["depth"] - 50).abs() + (75 - t["pressure"]).clip(0), ["depth", "pressure"]),
        ("score", lambda t, rng: 1e9 + 1e6 * t["depth"] - 2e6 * t["pressure"], ["depth", "pressure"]),
        ("bill", lambda t, rng: 3.5 * t["dose"] + 40 * t["dose"].sign() + 0.1 * rng.normal(size=t.height), ["dose"]),
    ],
)
def test_columns_that_follow_from_others_of_their_row_are_told(name, make, others):
    frame, rng = plant()
    draft = guess_schema(frame.with_columns(make(frame, rng).alias(name)), Hints(actions=("dose",)))
    (found,) = [problem for problem in draft.problems if problem.kind == "made of others"]
    assert found.column == name
    assert not found.refused
    named = found.text.removeprefix("follows from ").split(" of the same row")[0]
    assert sorted(named.split(", ")) == others
    assert ("give the action away" in found.text) == ("dose" in others)


@pytest.mark.parametrize("seed", range(5))
def test_columns_that_go_together_do_not_follow_from_each_other(seed):
    """Not if a tenth of the deviation is their own, nor where all of them hardly vary or rows are few."""
    frame, rng = plant(rows=600, seed=seed)
    tenth = 0.1 * frame["depth"].std() * rng.normal(size=frame.height)
    frame = frame.with_columns((frame["depth"] + tenth).alias("gauge"), pl.Series("flat", [3.0] * 599 + [3.5]))
    for table in (frame, frame.head(40)):
        draft = guess_schema(table, Hints(actions=("dose",)))
        assert "made of others" not in {problem.kind for problem in draft.problems}
