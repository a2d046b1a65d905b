"""Steps given as times: on a grid, with and without zones, in text and in the types of Parquet."""

import datetime
import json
import re

import numpy as np
import polars as pl
import pytest
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from made_logs import DOSES, workshop

from ifonly.data import ActionSpace, Feature, Schema, read_table
from ifonly.data.columns import TableColumns
from ifonly.data.drafts import Hints, draft_text, guess_schema
from ifonly.data.tables import cohort_and_first_step
from ifonly.data.times import Duration, seconds_of
from ifonly.errors import InputError

SCHEMA = Schema((Feature("x", "dynamic"),), ActionSpace.categories(["no", "yes"]), step_length=4, step_unit="h")
BEGIN = datetime.datetime(2031, 3, 29, 20, 0)


def log(times, episodes=None):
    count = len(times)
    columns = {"episode": episodes or ["a"] * count, "step": times, "x": np.arange(float(count)), "action": [0] * count}
    return pl.DataFrame(columns)


def read(frame, spacing="4 h", within=None):
    return cohort_and_first_step(frame, SCHEMA, TableColumns(spacing=spacing, within=within))


ON_GRID = [BEGIN + datetime.timedelta(hours=4 * step) for step in range(4)]
WRITTEN = {
    "iso": [f"{time:%Y-%m-%d %H:%M}" for time in ON_GRID],
    "with T": [f"{time:%Y-%m-%dT%H:%M:%S}" for time in ON_GRID],
    "day first": [f"{time:%d.%m.%Y %H:%M}" for time in ON_GRID],
    "year, slashes": [f"{time:%Y/%m/%d %H:%M}" for time in ON_GRID],
    "month, slashes, halves": [f"{time:%m/%d/%Y %I:%M %p}" for time in ON_GRID],
    "day, slashes": [f"{time.day}/{time.month}/{time.year} {time.hour}:{time:%M}" for time in ON_GRID],
    "universal": [f"{time:%Y-%m-%dT%H:%M:%S.000}Z" for time in ON_GRID],
    "universal, in a word": [f"{time:%Y-%m-%d %H:%M:%S} UTC" for time in ON_GRID],
    "month's name": [f"{time:%d-%b-%Y %H:%M}" for time in ON_GRID],
    "month's name, joined": [f"{time:%d%b%Y:%H:%M:%S}".upper() for time in ON_GRID],
    "offset": [f"{time:%Y-%m-%d %H:%M}-0530" for time in ON_GRID],
    "typed": ON_GRID,
    "typed with zone": pl.Series(ON_GRID).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin"),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_every_way_to_write_times_counts_the_same_steps(form):
    cohort, first = read(log(WRITTEN[form]))
    assert (cohort.lengths.tolist(), first) == ([4], 0)


def test_every_episode_has_a_grid_of_its_own():
    times = [time + datetime.timedelta(minutes=17 * (number >= 4)) for number, time in enumerate(ON_GRID * 2)]
    cohort, _ = read(log(times, ["a"] * 4 + ["b"] * 4))
    assert cohort.lengths.tolist() == [4, 4]


def test_days_are_times_too():
    schema = Schema(SCHEMA.features, SCHEMA.actions, step_length=1, step_unit="d")
    days = [datetime.date(2031, 2, 27) + datetime.timedelta(days=step) for step in range(4)]
    for column in (days, [str(day) for day in days]):
        assert cohort_and_first_step(log(column), schema, TableColumns(spacing="1 day"))[0].lengths.tolist() == [4]


def test_a_change_of_the_clock_is_no_gap_where_there_is_a_zone():
    """In Berlin the night to 30 March 2031 has an hour less."""
    berlin = ["2031-03-29T20:00+01:00", "2031-03-30T00:00+01:00", "2031-03-30T05:00+02:00", "2031-03-30T09:00+02:00"]
    assert read(log(berlin))[0].lengths.tolist() == [4]
    with pytest.raises(InputError, match=r"row 3: the time is not a multiple of 4 h .*clock was changed for summer"):
        read(log([time[:16] for time in berlin]))


def test_days_of_a_zone_are_to_be_dates():
    """In Berlin 30 March 2031 has 23 hours."""
    schema = Schema(SCHEMA.features, SCHEMA.actions, step_length=1, step_unit="d")
    days = pl.Series([datetime.datetime(2031, 3, day) for day in range(28, 32)] + [datetime.datetime(2031, 4, 1)])
    zoned = days.dt.replace_time_zone("Europe/Berlin")
    for column in (zoned.to_list(), zoned.dt.to_string("%Y-%m-%dT%H:%M%:z").to_list()):
        with pytest.raises(InputError, match=r"row 4: the time is not a multiple of 1 d .* give dates without a time"):
            cohort_and_first_step(log(column), schema, TableColumns(spacing="1 day"))


@given(st.lists(st.integers(-9 * 60, 9 * 60), min_size=1, max_size=6))
@settings(deadline=None, derandomize=True, max_examples=some(40))
def test_times_may_be_off_the_grid_as_far_as_is_said(seconds):
    times = [BEGIN] + [BEGIN + datetime.timedelta(hours=4 * step, seconds=off) for step, off in enumerate(seconds, 1)]
    texts = [time.isoformat() for time in times]
    assert read(log(texts), within="9 min")[0].lengths.tolist() == [len(times)]
    if any(seconds):
        with pytest.raises(InputError, match="not a multiple of 4 h"):
            read(log(texts))


@given(st.datetimes(datetime.datetime(1905, 1, 1), datetime.datetime(2199, 1, 1)), st.integers(-14 * 4, 14 * 4))
@settings(deadline=None, derandomize=True, max_examples=some(100))
def test_seconds_are_those_of_the_standard_library(moment, quarters):
    zone = datetime.timezone(datetime.timedelta(minutes=15 * quarters))
    zoned = moment.replace(tzinfo=zone)
    plain = moment.replace(tzinfo=datetime.UTC)
    found = [seconds_of(pl.Series([text]))[0] for text in (zoned.isoformat(" "), moment.isoformat())]
    np.testing.assert_allclose(found, [zoned.timestamp(), plain.timestamp()], rtol=0, atol=2e-6)


@given(st.datetimes(datetime.datetime(1905, 1, 1), datetime.datetime(2199, 1, 1)), st.booleans())
@settings(deadline=None, derandomize=True, max_examples=some(100))
def test_slashes_and_halves_of_days_are_read_as_the_column_shows(moment, day_first):
    """A second row, with a day after the twelfth, shows which number is the month."""
    rows = [moment, moment.replace(day=13), moment.replace(hour=0), moment.replace(hour=12)]
    form = "%d/%m/%Y" if day_first else "%m/%d/%Y"
    expected = [row.replace(microsecond=0, tzinfo=datetime.UTC).timestamp() for row in rows]
    for clock in (" %H:%M:%S", " %I:%M:%S %p", ", %I:%M:%S p.m.X"):
        texts = [f"{row:{form}{clock}}".replace("p.m.X", "pm" if row.hour >= 12 else "am") for row in rows]
        assert seconds_of(pl.Series(texts)).to_list() == expected
        without_zeros = [re.sub(r"(?<![:\d])0(?=\d[/:])", "", text) for text in texts]
        assert seconds_of(pl.Series(without_zeros)).to_list() == expected


@pytest.mark.parametrize(
    "texts",
    [
        ["03/04/2031 04:00", "03/04/2031 08:00"],  # nothing shows it
        ["13/04/2031 04:00", "04/13/2031 08:00"],  # rows disagree
    ],
)
def test_what_could_be_a_day_or_a_month_is_refused_as_such(texts):
    with pytest.raises(InputError, match="it cannot be told which number is the month"):
        read(log(texts))
    frame = workshop_with_times(0).drop("ambient").with_columns(pl.Series("time", texts * 120))
    for hints in (Hints(actions=DOSES), Hints(episode="run", step="time", actions=DOSES)):
        with pytest.raises(InputError, match=r"column 'time': .* it cannot be told which number is the month"):
            guess_schema(frame, hints)


@pytest.mark.parametrize("text", ["01/31/2031 13:00 PM", "01/31/2031 0:30 AM", "02/30/2031 04:00"])
def test_no_such_time_with_slashes(text):
    assert seconds_of(pl.Series([text, "02/28/2031 04:00"])).is_null().to_list() == [True, False]


def late(row, hours):
    times = [time + datetime.timedelta(hours=hours * (number >= row)) for number, time in enumerate(ON_GRID)]
    return [time.isoformat() for time in times]


@pytest.mark.parametrize(
    ("times", "within", "expected"),
    [
        (
            late(2, 1),
            None,
            r"column 'step', row 3: the time is not a multiple of 4 h after its episode's first, in row 1;",
        ),
        (late(2, 1), "10 min", "row 3: .*, nor within 10 min of one"),
        (late(2, 4), None, "row 3, step 3: step 2 is missing before it"),
        (late(2, -4), None, "row 3, step 1: occurs twice in a row"),
        (
            [*late(9, 0)[:2], "03/30/2031 04:00", ""],
            None,
            r"row 3: the time cannot be read; write it as 2031-01-31 14:00",
        ),
        ([*late(9, 0)[:2], "", late(9, 0)[3]], None, r"row 3: the time is missing"),
        ([*late(9, 0)[:2], "2031-02-30 04:00", late(9, 0)[3]], None, r"row 3: the time cannot be read"),
        ([*late(9, 0)[:3], f"{late(9, 0)[3]}Z"], None, r"row 4: some times have a zone and some have none"),
        ([0, 1, 2, 3], None, "column 'step': holds Int64; times such as"),
    ],
)
def test_wrong_times_are_refused_by_row_with_a_remedy(times, within, expected):
    with pytest.raises(InputError, match=expected) as caught:
        read(log(times), within=within)
    assert "03-30" not in str(caught.value), "no cell is quoted"


def test_times_need_a_grid_that_is_the_step_of_the_schema():
    with pytest.raises(InputError, match=r"holds times; say in the schema file .* `spacing: 4 h`"):
        read(log(WRITTEN["iso"]), spacing=None)
    with pytest.raises(InputError, match="steps are 120 min apart, while the schema says that a step is 4 h"):
        read(log(WRITTEN["iso"]), spacing="120 min")
    read(log(WRITTEN["iso"]), spacing="240 minutes")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"spacing": "4 parsecs"}, "no length of time; write a number and s, min, h, d, weeks"),
        ({"spacing": "-4 h"}, "must be positive"),
        ({"spacing": "4 h", "within": "2 h"}, "within 2 h must be less than half the spacing"),
        ({"spacing": 4, "within": "2 h"}, "within goes with times"),
        ({"spacing": "4 h", "within": 10}, "within goes with times"),
    ],
)
def test_impossible_grids_are_refused(settings, expected):
    with pytest.raises(InputError, match=expected):
        TableColumns(**settings)


def test_grids_come_back_from_files(tmp_path):
    columns = TableColumns(spacing="4 h", within="90 s")
    assert TableColumns.from_dict(json.loads(json.dumps(columns.to_dict()))) == columns
    assert columns.spacing == Duration(4.0, "h")
    log(WRITTEN["iso"]).write_csv(tmp_path / "log.csv")
    schema = {"table": columns.to_dict(), **SCHEMA.to_dict()}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    assert read_table(tmp_path / "log.csv", tmp_path / "schema.json").lengths.tolist() == [4]


def workshop_with_times(seconds, seed=0):
    """The log of the workshop with times that miss their hour by up to so many seconds."""
    frame = workshop()
    off = np.random.default_rng(seed).integers(-seconds, seconds + 1, size=frame.height)
    days = np.arange(frame.height) // 6
    times = [
        datetime.datetime(2031, 3, 1) + datetime.timedelta(days=int(day), hours=int(hour), seconds=int(miss))
        for day, hour, miss in zip(days, frame["hour"], off, strict=True)
    ]
    return frame.drop("hour").with_columns(time=pl.Series([time.isoformat(" ") for time in times]))


@pytest.mark.parametrize(("seconds", "within"), [(0, None), (1, "2 s"), (100, "5 min"), (900, "30 min")])
def test_first_schemas_find_the_grid_of_times(tmp_path, seconds, within):
    frame = workshop_with_times(seconds)
    draft = guess_schema(frame, Hints(actions=DOSES))
    columns = draft.columns
    assert (columns.episode, columns.step, str(columns.spacing)) == ("run", "time", "2 h")
    assert (None if columns.within is None else str(columns.within)) == within
    assert (draft.schema.step_length, draft.schema.step_unit, draft.problems) == (2.0, "h", ())
    (tmp_path / "schema.yaml").write_text(draft_text(draft, "log.csv").replace('unit: "?"', "unit: u"))
    frame.write_csv(tmp_path / "log.csv")
    assert set(read_table(tmp_path / "log.csv", tmp_path / "schema.yaml").lengths) == {6}


def test_a_changed_clock_is_a_problem_and_not_allowed_for():
    """Where most times are exact, those after the change of the clock are no inexact ones: import refuses them."""
    frame = workshop_with_times(0)
    times = frame["time"].str.to_datetime().to_list()
    late = [*times[:3], *(time + datetime.timedelta(hours=1) for time in times[3:6]), *times[6:]]
    draft = guess_schema(frame.with_columns(time=pl.Series(late)), Hints(actions=DOSES))
    (problem,) = draft.problems
    assert (problem.kind, problem.refused, draft.columns.within) == ("gaps in steps", True, None)


@pytest.mark.parametrize(
    "form",
    ["{0.month}/{0.day}/31 {0.hour}:00", "{0:%Y-%m-%d %H:%M} CET", "{0.hour:02}:00:00", "0 days {0.hour:02}:00:00"],
)
def test_times_in_a_form_that_is_not_read_are_named(form):
    frame = workshop_with_times(0)
    times = [form.format(time) for time in frame["time"].str.to_datetime().to_list()]
    with pytest.raises(InputError, match="'time': seems to hold times or lengths of time in a form that is not read"):
        guess_schema(frame.with_columns(time=pl.Series(times)), Hints(actions=DOSES))


def test_first_schemas_tell_of_gaps_in_times():
    frame = workshop_with_times(100)
    draft = guess_schema(frame.filter(pl.int_range(pl.len()) != 3), Hints(actions=DOSES))
    (problem,) = draft.problems
    assert (problem.kind, problem.count) == ("gaps in steps", 1)
    assert "(usual: 2 h)" in problem.text


def test_times_without_a_usual_distance_are_refused():
    frame = workshop_with_times(0)
    times = np.random.default_rng(1).lognormal(8, 2, frame.height).cumsum()
    scattered = frame.with_columns(time=pl.from_epoch(pl.Series(times).cast(pl.Int64)))
    with pytest.raises(InputError, match="'time' holds times at no usual distance; put the table on a grid"):
        guess_schema(scattered, Hints(episode="run", step="time", actions=DOSES))
