import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.data import ActionSpace, Axis, Cohort, Feature, Schema
from ifonly.errors import InputError, StoreError
from ifonly.intervals import mean_interval
from ifonly.report.card import Masks, data_card
from ifonly.report.card_plots import card_figures, plot_measured, plot_severity
from ifonly.report.folders import write_card
from ifonly.report.overview import Discretion, values_of
from ifonly.report.recorded import Outcome
from ifonly.simulate import simulate_cohort
from ifonly.text.cards import card_lines, card_warning

SEPSIS = simulate_cohort(120, seed=2, horizon=(6, 9))
TWO = ActionSpace.product(Axis("water", "L", (0, 2)), Axis("vents", "%", (0, 50)))


def made_cohort(subjects=60, *, actions=TWO, taken=None, odd=0.0, length=4, seed=0):
    """One episode per subject: heat and a constant; `taken` actions in turn; `odd` is added to one subject's heat."""
    rng = np.random.default_rng(seed)
    schema = Schema(
        (
            Feature("size", "static", unit="m"),
            Feature("heat", "dynamic", unit="C", plausible=(-50, 50)),
            Feature("flat", "dynamic"),
        ),
        actions,
        step_length=2,
        step_unit="h",
    )
    rows = subjects * length
    heat = rng.normal(0, 1, rows)
    heat[:length] += odd
    taken = range(len(actions)) if taken is None else taken
    return Cohort(
        schema=schema,
        ids=tuple(f"e{i}" for i in range(subjects)),
        offsets=np.arange(0, rows + 1, length),
        states=np.stack([heat, np.full(rows, 3.0)], axis=1),
        context=np.repeat(rng.normal(5, 1, subjects), length)[:, None],
        actions=np.resize(np.array(taken), rows),
    )


def replace_origins(cohort, origins):
    parts = (cohort.schema, cohort.ids, cohort.offsets, cohort.states, cohort.context, cohort.actions)
    return Cohort(*parts, origins=origins)


def made_grid(cohort, **masks):
    frame = pl.DataFrame(
        {
            "stay": np.repeat(np.array(cohort.ids), cohort.lengths),
            "step": np.concatenate([np.arange(length) for length in cohort.lengths]),
        }
    )
    return frame.with_columns(**{name: pl.Series(values) for name, values in masks.items()})


def kinds(card):
    return {warning.code for warning in card.warnings}


def test_counts_and_figures_are_those_of_the_cohort():
    card = data_card(SEPSIS, smallest_cell=1)
    assert (card.episodes, card.steps) == (len(SEPSIS), len(SEPSIS.actions))
    assert (card.subjects, card.transitions) == (len(set(SEPSIS.subjects)), len(SEPSIS.transitions()))
    assert card.actions.counts == SEPSIS.summary().action_counts
    sofa = SEPSIS.states[:, SEPSIS.schema.dynamic_index("SOFA")]
    found = {feature.name: feature for feature in card.features}["SOFA"]
    for share, value in found.quantiles.items():
        assert value == np.quantile(sofa, float(share) / 100)
    assert sum(found.histogram.counts) == round((1 - found.histogram.outside) * len(sofa))
    lengths = np.bincount(SEPSIS.lengths)[6:]
    assert card.horizons.histogram.counts == tuple(lengths)


@pytest.mark.filterwarnings("ignore:cohort of 60 episodes")
def test_values_that_have_no_deviation_are_refused():
    with np.errstate(over="ignore"), pytest.raises(InputError, match=r"heat: values beyond 1e\+100 have no deviation"):
        data_card(made_cohort(odd=1e308))


def test_static_features_count_once_per_episode():
    card = data_card(SEPSIS, smallest_cell=1)
    age = {feature.name: feature for feature in card.features}["age"]
    first = SEPSIS.context[SEPSIS.offsets[:-1], [f.name for f in SEPSIS.schema.context].index("age")]
    assert age.mean == pytest.approx(first.mean())
    assert sum(age.histogram.counts) <= len(SEPSIS)


def test_severity_is_the_change_of_each_quarter():
    card = data_card(SEPSIS, outcome=Outcome("died", {id: i % 3 == 0 for i, id in enumerate(SEPSIS.ids)}))
    sofa = SEPSIS.states[:, SEPSIS.schema.dynamic_index("SOFA")]
    first, last = sofa[SEPSIS.offsets[:-1]], sofa[SEPSIS.offsets[1:] - 1]
    lowest = first < np.quantile(first, 0.25)
    group = card.severity.groups[0]
    assert group.episodes == lowest.sum()
    assert group.change == pytest.approx((last - first)[lowest].mean())
    low, high = mean_interval((last - first)[lowest])
    assert group.half_interval == pytest.approx((high - low) / 2)
    assert group.outcome == pytest.approx(np.mean([i % 3 == 0 for i in np.flatnonzero(lowest)]))
    assert sum(group.episodes for group in card.severity.groups) == len(SEPSIS)


@pytest.mark.usefixtures("unpainted")
def test_what_the_cohort_itself_says_was_measured(tmp_path):
    cohort = made_cohort()
    origins = np.zeros(cohort.states.shape, dtype=np.uint8)
    origins[::2, 0], origins[1::4, 0] = 1, 2
    card = data_card(replace_origins(cohort, origins))
    found = {feature.name: feature.measured for feature in card.features}
    first, second = (found[feature.name] for feature in cohort.schema.dynamic[:2])
    rows = len(origins)
    assert first.measured == pytest.approx((origins[:, 0] == 0).sum() / rows)
    assert (first.held, first.missing_after) == pytest.approx(
        ((origins[:, 0] == 1).mean(), (origins[:, 0] == 2).mean())
    )
    assert (second.measured, second.held, second.missing_after) == (1.0, 0.0, 0.0)
    assert card.masks is Masks.ORIGINS
    assert "measured" in card_figures(card)
    write_card(card, tmp_path / "card")
    page = (tmp_path / "card" / "card.html").read_text()
    assert "<th>carried forward</th><th>assumed</th>" in page
    assert "missing before holds" not in page
    assert "hardly measured" not in kinds(card)
    nothing_known = data_card(replace_origins(cohort, np.zeros_like(origins)))
    assert nothing_known.masks is Masks.NO_GRID


def test_measured_before_and_after_holds():
    cohort = made_cohort()
    rows = len(cohort.actions)
    measured = np.arange(rows) % 4 == 0
    known = np.arange(rows) % 4 < 3
    card = data_card(cohort, grid=made_grid(cohort, measured_heat=measured, known_heat=known, measured_flat=measured))
    heat, flat = (feature.measured for feature in card.features[1:])
    assert (heat.measured, heat.held, heat.missing_after, heat.missing_before) == (0.25, 0.5, 0.25, 0.75)
    assert (flat.measured, flat.held, flat.missing_after) == (0.25, None, None)
    assert card.features[0].measured is None
    assert "measured" in card_figures(card)


def test_only_the_cohorts_steps_count():
    """Rows of other stays and of later steps are in the grid, too."""
    cohort = made_cohort()
    grid = made_grid(cohort, measured_heat=[True] * len(cohort.actions))
    more = grid.with_columns(step=pl.col("step") + 4, measured_heat=pl.lit(False))
    others = grid.with_columns(stay=pl.lit("other"), measured_heat=pl.lit(False))
    card = data_card(cohort, grid=pl.concat([others, grid, more]).sample(fraction=1, shuffle=True, seed=0))
    assert card.features[1].measured.measured == 1.0


def test_without_a_grid_the_card_says_so():
    card = data_card(made_cohort())
    assert card.masks == "no grid"
    assert any("no record" in line for line in card_lines(card))
    assert "measured" not in card_figures(card)
    with pytest.raises(InputError, match="no record"):
        plot_measured(card)


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (pl.DataFrame({"step": [0]}), "'episode' or 'stay'"),
        (pl.DataFrame({"stay": ["e0"]}), "no column 'step'"),
        (pl.DataFrame({"stay": ["other"], "step": [0]}), "none of the cohort's episodes"),
    ],
)
def test_grids_of_another_kind_are_refused(grid, expected):
    with pytest.raises(InputError, match=expected):
        data_card(made_cohort(), grid=grid)


def test_each_warning_has_its_reason():
    fine = made_cohort(subjects=400)
    assert kinds(data_card(fine)) == {"constant features"}
    never = data_card(made_cohort(subjects=400, taken=[0, 1, 2]))
    assert [w.values["actions"] for w in never.warnings if w.code == "actions never taken"] == [[TWO.labels[3]]]
    rare = data_card(made_cohort(subjects=400, taken=[0, 1, 2] * 66 + [3]))
    assert [w.values["actions"] for w in rare.warnings if w.code == "actions rarely taken"] == [[TWO.labels[3]]]
    assert "few subjects" in kinds(data_card(made_cohort(subjects=49)))
    assert "few subjects" not in kinds(data_card(made_cohort(subjects=50)))
    values = (len(fine.actions) - len(fine)) * 2
    assert "model too large" in kinds(data_card(fine, model_size=values // 10 + 1))
    assert "model too large" not in kinds(data_card(fine, model_size=values // 10))
    hardly = np.arange(len(fine.actions)) % 25 == 0
    assert "hardly measured" in kinds(data_card(fine, grid=made_grid(fine, measured_heat=hardly)))
    often = np.arange(len(fine.actions)) % 20 == 0
    assert "hardly measured" not in kinds(data_card(fine, grid=made_grid(fine, measured_heat=often)))


@pytest.mark.filterwarnings("ignore::ifonly.errors.PlausibilityWarning")
def test_implausible_values_and_dominant_subjects_are_warned_about():
    assert "implausible values" in kinds(data_card(made_cohort(subjects=60, odd=1000)))
    assert "implausible values" not in kinds(data_card(made_cohort(subjects=400, odd=1000)))
    cohort = made_cohort(subjects=100)
    owned = Cohort(
        cohort.schema,
        cohort.ids,
        cohort.offsets,
        cohort.states,
        cohort.context,
        cohort.actions,
        subjects=tuple("one" if i < 12 else f"s{i}" for i in range(100)),
    )
    assert "dominant subject" in kinds(data_card(owned))
    assert "dominant subject" not in kinds(data_card(cohort))


@pytest.mark.filterwarnings("ignore::ifonly.errors.PlausibilityWarning")
def test_warnings_are_said_in_sentences():
    few = made_cohort(subjects=20, taken=[0, 1, 2] * 25 + [0, 0, 0, 0, 3], odd=1000)
    hardly = np.arange(len(few.actions)) % 40 == 0
    card = data_card(few, grid=made_grid(few, measured_heat=hardly), model_size=1_234)
    assert [card_warning(warning) for warning in card.warnings] == [
        "Only 20 subjects (fewer than 50): what is held out to test a model is a handful, and its figures say little.",
        "Too few data for a model of 1,234 parameters: 120 recorded next values, 0.097 per parameter, fewer than 10. "
        "Take a smaller model, which should have at most 12 parameters, or more data.",
        f"1 of 4 actions were taken fewer than 10 times: {TWO.labels[3]}. Hardly anything can be learned about them; "
        "forbid them, or merge levels.",
        "Measured in fewer than 5 % of steps: heat (2.5 %). Most of their values are held or defaults, and their "
        "changes are not those of the subject.",
        "Constant: flat. Nothing can be learned from them; leave them out of the schema.",
        "More than 1 % of the values are outside the plausible range: heat (5.0 %). Look for mistakes and codes for "
        "missing values, or correct the range.",
    ]
    names = [f"label {number}" for number in range(60)]
    never = data_card(made_cohort(subjects=60, actions=ActionSpace.categories(names), taken=range(50)))
    words = next(card_warning(warning) for warning in never.warnings if warning.code == "actions never taken")
    assert words.startswith(
        "10 of 60 actions were never taken: label 50; label 51; label 52; label 53; label 54; label"
    )
    assert "label 55; and 4 more. What they would have done is extrapolated" in words


def test_the_stored_card_holds_codes_and_no_sentence():
    content = data_card(made_cohort(subjects=20), model_size=1_234).to_dict()
    assert content["warnings"][0] == {"code": "few subjects", "values": {"subjects": 20, "limit": 50}}
    assert not [text for text in texts_in(content) if text.endswith(".")]


def texts_in(content):
    """Every text of a JSON document."""
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list | tuple):
        return [text for item in content for text in texts_in(item)]
    return [content] if isinstance(content, str) else []


def numbers_in(content):
    """Every number of a JSON document."""
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list | tuple):
        return [number for item in content for number in numbers_in(item)]
    return [content] if isinstance(content, int | float) and not isinstance(content, bool) else []


@pytest.mark.filterwarnings("ignore::ifonly.errors.PlausibilityWarning")
@pytest.mark.parametrize("smallest", [1, 5])
def test_extremes_of_single_subjects_are_not_shown(smallest):
    """One hot subject among 60 has more than 1 % of the steps: the 99th percentile would give it away."""
    card = data_card(made_cohort(subjects=60, odd=40.0), smallest_cell=smallest)
    heat = card.to_dict()["features"][1]
    shown = max(numbers_in([heat["quantiles"], heat["histogram"]["edges"]]))
    assert (shown > 20) is (smallest == 1)


def test_rarely_shared_cells_are_hidden():
    cohort = made_cohort(subjects=60, taken=[0] * 236 + [3] * 4)  # the last subject alone takes action 3
    assert data_card(cohort).actions.counts == (236, 0, 0, None)
    assert data_card(cohort, smallest_cell=1).actions.counts == (236, 0, 0, 4)
    died = Outcome("died", {id: i < 3 for i, id in enumerate(cohort.ids)})
    groups = data_card(cohort, severity="heat", outcome=died).severity.groups
    assert all(group.outcome is None for group in groups)


def severity_panel(card):
    """The bars and the words of the share with the outcome."""
    _, panel = card_figures(card)["severity"].axes
    return panel, [text.get_text() for text in panel.texts]


@pytest.mark.usefixtures("unpainted")
def test_a_hidden_outcome_does_not_look_like_none(tmp_path):
    cohort = made_cohort(subjects=80)
    heat = cohort.states[cohort.offsets[:-1], 0]
    died = Outcome("died", {id: bool(h > 0 and i % 2) for i, (id, h) in enumerate(zip(cohort.ids, heat, strict=True))})
    card = data_card(cohort, severity="heat", outcome=died)
    hidden = [group.outcome is None for group in card.severity.groups]
    assert 0 < sum(hidden) < len(hidden)
    panel, words = severity_panel(card)
    assert words == ["< 5\nsubj."] * sum(hidden)
    assert [text.get_position()[0] for text in panel.texts] == np.flatnonzero(hidden).tolist()
    write_card(card, tmp_path / "card")
    assert "&lt; 5 subj.: so few had died" in (tmp_path / "card" / "card.html").read_text()
    everything = data_card(cohort, severity="heat", outcome=died, smallest_cell=1)
    assert everything.severity.groups[0].outcome == 0.0
    assert severity_panel(everything)[1] == []


def test_an_outcome_that_nobody_knows_is_called_unknown():
    cohort = made_cohort(subjects=80)
    heat = cohort.states[cohort.offsets[:-1], 0]
    known = {id: bool(i % 2) for i, (id, h) in enumerate(zip(cohort.ids, heat, strict=True)) if h > 0}
    card = data_card(cohort, severity="heat", outcome=Outcome("died", known), smallest_cell=1)
    assert card.severity.groups[0].outcome is None
    assert severity_panel(card)[1][0] == "un-\nknown"


def test_what_histograms_leave_out_is_said(tmp_path):
    card = data_card(SEPSIS)
    panels = card_figures(card)["features"].axes
    shares = {}
    for feature, panel in zip(card.features, panels, strict=False):
        values = values_of(SEPSIS, feature_named(feature.name))
        edges = feature.histogram.edges
        shares[feature.name] = np.mean((values < edges[0]) | (values >= edges[-1]))
        label = panel.get_xlabel()
        if shares[feature.name] == 0:
            assert label == ""
        elif label != "< 1 % beyond":
            assert float(label.removesuffix(" % beyond")) == pytest.approx(100 * shares[feature.name], abs=0.5)
        else:
            assert shares[feature.name] < 0.005
    assert min(shares.values()) == 0 < max(shares.values())


def feature_named(name):
    return next(feature for feature in SEPSIS.schema.features if feature.name == name)


@pytest.mark.usefixtures("unpainted")
def test_horizons_that_are_not_shown_are_mentioned(tmp_path):
    lengths = [4] * 40 + [5] * 40 + [30] * 2
    few = made_cohort(subjects=80)
    rows = sum(lengths)
    cohort = Cohort(
        few.schema,
        tuple(f"e{i}" for i in range(len(lengths))),
        np.cumsum([0, *lengths]),
        np.zeros((rows, 2)),
        np.zeros((rows, 1)),
        np.zeros(rows, dtype=int),
    )
    for smallest, words in ((5, "2 % beyond"), (1, "")):
        card = data_card(cohort, smallest_cell=smallest)
        (panel,) = card_figures(card)["horizons"].axes
        assert panel.get_xlabel() == (f"Number of steps ({words})" if words else "Number of steps")
        write_card(card, tmp_path / "card")
        assert ("steps, 2 % beyond those shown." in (tmp_path / "card" / "card.html").read_text()) is bool(words)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 3)), min_size=1, max_size=60), st.integers(1, 4))
@settings(deadline=None, derandomize=True)
def test_counts_rest_on_enough_subjects(rows, smallest):
    subjects, cells = (np.array(column) for column in zip(*rows, strict=True))
    found = Discretion(subjects, smallest).counts(cells, 4)
    for cell, count in enumerate(found):
        people = {s for s, c in rows if c == cell}
        assert count == (None if 0 < len(people) < smallest else sum(c == cell for _, c in rows))


@pytest.mark.usefixtures("unpainted")
def test_tiny_cohorts_have_a_card_all_the_same(tmp_path):
    card = data_card(made_cohort(subjects=3), severity="heat")
    assert card.features[1].histogram.counts == ()
    assert all(value is None for value in card.features[1].quantiles.values())
    assert (card.features[1].mean, card.features[1].deviation, card.horizons.mean) == (None, None, None)
    with pytest.raises(InputError, match="no groups"):
        plot_severity(card)
    assert "severity.png" not in write_card(card, tmp_path / "card").files


@pytest.mark.parametrize(
    "actions",
    [
        ActionSpace.categories(["wait", "act"]),
        ActionSpace.product(Axis("a", "", (0, 1)), Axis("b", "", (0, 1)), Axis("c", "", (0, 1))),
        ActionSpace.categories([f"label {i}" for i in range(60)]),
    ],
    ids=["labels", "three axes", "many"],
)
def test_other_actions_are_drawn_too(actions):
    figure = card_figures(data_card(made_cohort(actions=actions)))["actions"]
    (panel,) = figure.axes
    assert panel.get_xlabel()


def test_the_heat_map_shows_every_count():
    card = data_card(SEPSIS, smallest_cell=1)
    (panel,) = card_figures(card)["actions"].axes
    shown = [text.get_text() for text in panel.texts]
    assert shown == [f"{count:,}" for count in card.actions.counts]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("fluids (mL/4 h)", "vasopressors (mcg/kg/min)")


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.images, self.words = [], [], []
        self.open = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "img":
            self.images.append(dict(attrs))
        elif tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_is_complete_in_itself(tmp_path):
    grid = made_grid(SEPSIS, measured_MAP=[True] * len(SEPSIS.actions))
    card = data_card(SEPSIS, grid=grid, model_size=10)
    written = write_card(card, tmp_path / "card", title="<b>sepsis & co</b>")
    text = (tmp_path / "card" / "card.html").read_text(encoding="utf-8")
    page = Page(text)
    assert "script" not in page.tags
    assert not re.search(r"https?://|//\w|@import|url\(", re.sub(r"base64,[\w+/=]+", "", text))
    assert len(page.images) == 5
    for image in page.images:
        assert len(image["alt"]) > 20
        assert base64.b64decode(image["src"].removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")
    assert "Data card: <b>sepsis & co</b>" in page.words
    assert set(written.files) == {item.name for item in (tmp_path / "card").iterdir()}
    content = json.loads((tmp_path / "card" / "card.json").read_text(encoding="utf-8"))
    assert (content["format"], content["version"], content["episodes"]) == ("ifonly.data-card", 2, len(SEPSIS))
    ids = set(SEPSIS.ids) | set(SEPSIS.subjects)
    assert not any(id in text or id in json.dumps(content) for id in ids)


@pytest.mark.usefixtures("unpainted")
def test_a_card_replaces_an_earlier_one_and_nothing_else(tmp_path):
    target = tmp_path / "card"
    write_card(data_card(SEPSIS), target)
    assert (target / "severity.png").exists()
    write_card(data_card(made_cohort()), target)
    assert not (target / "severity.png").exists()
    (target / "diary.txt").write_text("dear diary")
    with pytest.raises(StoreError, match=r"diary\.txt"):
        write_card(data_card(SEPSIS), target)
    assert not (target / "severity.png").exists()


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"stay": ["a", "b"], "died": [2, 0]}, "0 or 1"),
        ({"stay": ["a", "a"], "died": [1, 0]}, "differs between rows"),
        ({"stay": ["a"]}, "no column 'died'"),
        ({"died": [1]}, "'episode' or 'stay'"),
    ],
)
def test_bad_outcomes_are_refused(table, expected):
    with pytest.raises(InputError, match=expected):
        Outcome.from_table(pl.DataFrame(table), "died")


@pytest.mark.parametrize("values", [[True, False, None], [1, 0, None], ["1", "0", ""], ["Yes", "no", None]])
def test_outcomes_as_tables_have_them(values):
    found = Outcome.from_table(pl.DataFrame({"episode": ["a", "b", "c"], "died": values}), "died")
    assert found.of_episode == {"a": True, "b": False}


def test_wrong_settings_are_refused():
    with pytest.raises(InputError, match="at least 1"):
        data_card(SEPSIS, smallest_cell=0)
    with pytest.raises(InputError, match="not a dynamic feature"):
        data_card(SEPSIS, severity="age")
    with pytest.raises(InputError, match="none of the cohort's episodes"):
        data_card(SEPSIS, outcome=Outcome("died", {"stranger": True}))
