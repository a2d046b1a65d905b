"""The study of verdicts: its cells, the rule and its judgement by worlds left out, tables and the command."""

import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from paper import evidence_study
from paper.evidence_archive import add_to_archive, lean, read_archive
from paper.evidence_page import BEGIN, END, all_tables, fill_page, findings, risk_curve, tells_harm
from paper.evidence_study import Answer, Cell, CellSettings, carry_out, cells_of, in_order, measure, read_cells
from paper.evidence_tables import (
    RULE,
    RULE_AND_CHECK,
    answers_table,
    as_the_package,
    auc,
    best_half,
    by_the_package,
    caught,
    caught_by_cell,
    cost_table,
    interval_table,
    probability_table,
    signal_table,
    truth_table,
    world_table,
)
from paper.verdicts import (
    BELIEVABLE,
    CLEAR,
    HEADER,
    RULE_SEEDS,
    SUPPORTED,
    Judged,
    enough_harm,
    final_rule,
    fit_rule,
    left_out,
    probabilities,
    write_rule,
)
from paper.worlds import PLAIN, WORLDS

from ifonly import Evidence, Verdict
from ifonly.errors import InputError, StoreError
from ifonly.evidence.check.thresholds import default_thresholds
from ifonly.models.recipes import RECIPES
from ifonly.records import to_plain
from ifonly.result.evidence import WarningCode
from ifonly.result.verdict import SIGNALS, Rule, Signal

ROOT = Path(__file__).parents[2]
SMALL = {"episodes": 30, "asked": 2, "epochs": 1, "max_changes": 1, "seconds": 1.0}


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    """Little of everything that settings do not say."""
    few = {"paper": RECIPES["paper"]}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"HELD_OUT": 20, "HIDDEN": (4,), "STRENGTHS": (0.01,), "RECIPES": few}.items():
            patch.setattr(evidence_study, name, value)
        patch.setattr(evidence_study, "CHOICES", replace(evidence_study.CHOICES, hidden=(), epochs=1))
        yield


@pytest.fixture(scope="module")
def cell(small: None) -> Cell:
    return measure(CellSettings("tumour", PLAIN, **SMALL))


class TestCells:
    def test_a_cell_from_record_to_truth(self, cell: Cell) -> None:
        assert cell.verdict in ("pass", "warn", "fail", "not judged")
        assert set(cell.kinds) == {"paper", "narrow", "partial"}
        assert sum(cell.weights) == pytest.approx(1)
        assert len(cell.answers) + cell.unchanged == 2
        assert cell.answers
        assert cell.effect_error is None or cell.effect_error > 0
        for answer in cell.answers:
            # One change: the best one in the world is found exactly, and no answer beats it.
            assert answer.true <= answer.attainable + 1e-9
            assert answer.evidence.promised == pytest.approx(answer.promised)
            assert answer.evidence.judgement is not None
            assert answer.examined > 0

    def test_what_is_written_is_read_again(self, cell: Cell) -> None:
        written = json.dumps(cell.to_dict(), allow_nan=False)
        again = Cell.from_dict(json.loads(written))
        assert json.dumps(again.to_dict(), allow_nan=False) == written
        assert again.settings == cell.settings
        for one, other in zip(again.answers, cell.answers, strict=True):
            assert one.true == other.true
            assert to_plain(one.evidence.judgement) == to_plain(other.evidence.judgement)

    def test_kept_cells_are_not_measured_again(
        self, cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        measured = []

        def other_measure(settings: CellSettings, *, models: Path) -> Cell:
            measured.append(settings)
            return replace(cell, settings=settings)

        monkeypatch.setattr(evidence_study, "measure", other_measure)
        wanted = [cell.settings, replace(cell.settings, seed=1)]
        (tmp_path / wanted[0].file).write_text(json.dumps(cell.to_dict()))
        done = carry_out(wanted, tmp_path)
        assert measured == wanted[1:]
        assert [one.settings for one in done] == wanted
        carry_out(wanted, tmp_path)
        assert measured == wanted[1:]
        assert [one.settings.seed for one in read_cells(tmp_path)] == [0, 1]

    def test_a_kept_model_is_asked_anew(
        self, small: None, cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = measure(cell.settings, models=tmp_path)
        monkeypatch.setattr(evidence_study, "fit_recipe", None)  # a fit would fail
        again = measure(cell.settings, models=tmp_path)
        assert [one.promised for one in again.answers] == [one.promised for one in first.answers]
        assert [to_plain(one.evidence) for one in again.answers] == [to_plain(one.evidence) for one in first.answers]
        assert (again.recipe, again.effects, again.kinds) == (first.recipe, first.effects, first.kinds)

    def test_other_settings_are_refused(self, cell: Cell, tmp_path: Path) -> None:
        (tmp_path / cell.settings.file).write_text(json.dumps(cell.to_dict()))
        with pytest.raises(StoreError, match="other settings"):
            carry_out([replace(cell.settings, epochs=2)], tmp_path)
        (tmp_path / cell.settings.file).write_text("[]")
        with pytest.raises(StoreError, match="not a cell"):
            read_cells(tmp_path)

    def test_what_is_begun_first_is_of_all_worlds(self) -> None:
        cells = cells_of((), (), [1, 2], [150, 500])
        assert {cell.world for cell in cells[: len(WORLDS)]} == set(WORLDS)
        assert {cell.variant for cell in cells[: len(WORLDS)]} > {PLAIN, "column", "constant", "drift"}
        assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
        sizes = [cell.episodes for cell in cells if cell.seed == 1]
        assert sizes == sorted(sizes, reverse=True)

    def test_little_data_is_asked_of_plain_variants_alone(self) -> None:
        cells = cells_of((), (), [0, 1], [500, 150])
        assert len({cell.file for cell in cells}) == len(cells) == 2 * (len(WORLDS) * 4 + len(WORLDS))
        assert {cell.variant for cell in cells if cell.episodes == 150} == {PLAIN}
        for wrong in ((["sepsi"], ()), (["sepsis"], ["drift"]), ((), ["drit"])):
            with pytest.raises(InputError, match="choose from"):
                cells_of(*wrong, [0], [500])

    @pytest.mark.parametrize("wrong", [{"world": "glucos"}, {"variant": "plan"}, {"asked": 0}, {"max_changes": 0}])
    def test_what_does_not_exist_is_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(InputError):
            replace(CellSettings("glucose", PLAIN), **wrong)


WEIGHTS = np.array([0.5, 2.0, 1.0, 0.0, 0.6])
"""A known rule: its offset, and the weights of four signals."""


def drawn(count: int, worlds: int = 4, seed: int = 0) -> Judged:
    """Answers of two seeds whose signals tell by a known rule how likely they are to help, surplus normal."""
    rng = np.random.default_rng(seed)
    signals = rng.normal(size=(count, len(SIGNALS)))
    helps = rng.random(count) < probabilities(WEIGHTS, signals)
    world = np.array([f"w{number % worlds}" for number in range(count)])
    seeds, nobody = np.arange(count) // worlds % 2, np.zeros(count, dtype=bool)
    return Judged(signals, helps, world, np.full(count, PLAIN), seeds, rng.normal(size=count), nobody, nobody)


class TestRule:
    def test_a_known_rule_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shrunk = fit_rule(drawn(10_000))
        monkeypatch.setattr("paper.verdicts.RIDGE", 1e-6)
        np.testing.assert_allclose(fit_rule(drawn(10_000)), WEIGHTS, atol=0.1)
        # The penalty draws weights towards zero, and leaves what they say of each other.
        assert (shrunk[[1, 2, 4]] < WEIGHTS[[1, 2, 4]]).all()
        np.testing.assert_allclose(shrunk[1:] / shrunk[1], WEIGHTS[1:] / WEIGHTS[1], atol=0.06)

    def test_nothing_near_it_is_better(self) -> None:
        """The conditions of a minimum: no slope, or one towards negative weights where a weight is zero."""
        judged = drawn(300)
        centre, deviation = judged.signals.mean(0), judged.signals.std(0)
        found = fit_rule(judged)
        scaled = found[1:] * deviation
        errors = probabilities(found, judged.signals) - judged.helps
        shares = 1 / (4 * np.unique(judged.world, return_counts=True)[1][0])
        slopes = shares * errors @ ((judged.signals - centre) / deviation) + 0.02 * scaled
        assert shares * errors.sum() == pytest.approx(0, abs=1e-8)
        np.testing.assert_allclose(slopes[scaled > 0], 0, atol=1e-8)
        assert (slopes[scaled == 0] >= 0).all()

    def test_weights_are_never_negative(self) -> None:
        judged = drawn(1000)
        found = fit_rule(replace(judged, signals=judged.signals * [1, -1, 1, 1]))
        assert found[2] == 0
        assert (found[1:] >= 0).all()
        assert found[1] > 1

    def test_every_world_counts_the_same(self) -> None:
        judged = drawn(400, worlds=2)
        often = np.r_[np.arange(400), np.repeat(np.flatnonzero(judged.world == "w0"), 9)]
        repeated = Judged(*(values[often] for values in vars(judged).values()))
        scores = [probabilities(fit_rule(one), judged.signals) for one in (judged, repeated)]
        # Not the same to the last digit: the penalty goes by deviations over all answers.
        np.testing.assert_allclose(scores[0], scores[1], atol=0.02)

    def test_no_world_is_judged_by_itself(self) -> None:
        judged = drawn(400)
        own = judged.world == "w2"
        before, place = left_out(judged)
        poisoned = replace(
            judged,
            helps=np.where(own, ~judged.helps, judged.helps),
            surplus=np.where(own, 100 + judged.surplus, judged.surplus),
        )
        after, later = left_out(poisoned)
        np.testing.assert_array_equal(after[own], before[own])
        assert np.abs(after[~own] - before[~own]).max() > 0.01
        assert (place[own] == 0).mean() > 0.8
        assert (later[own] == 1).all()

    def test_intervals_hold_what_they_claim(self) -> None:
        _, place = left_out(drawn(3000, worlds=3))
        assert (place == 0).mean() == pytest.approx(0.9, abs=0.02)
        assert (place < 0).mean() == pytest.approx(0.05, abs=0.01)

    def test_the_rule_as_a_file(self, tmp_path: Path) -> None:
        judged = drawn(400, worlds=3)
        write_rule(tmp_path / "rule.yaml", judged)
        text = (tmp_path / "rule.yaml").read_text()
        assert yaml.safe_load(text) == final_rule(judged)
        assert list(vars(Rule.of(yaml.safe_load(text)))) == list(yaml.safe_load(text))
        assert text.startswith(HEADER)
        assert files("ifonly.result").joinpath("verdict.yaml").read_text(encoding="utf-8").startswith(HEADER)

    def test_it_is_fitted_to_its_seeds_and_judged_on_the_others(self) -> None:
        judged = drawn(800, worlds=4)
        fresh = ~np.isin(judged.seed, RULE_SEEDS)
        rule = Rule.of(final_rule(judged))
        fitted = fit_rule(judged.take(~fresh))
        np.testing.assert_allclose([rule.offset, *rule.weights.values()], fitted, atol=0.0006)
        supported = fresh & (probabilities(fitted, judged.signals) >= SUPPORTED)
        assert 0.9 < rule.helped == pytest.approx(judged.helps[supported].mean(), abs=0.0006)
        held = (judged.surplus >= rule.low) & (judged.surplus <= rule.high)
        assert rule.held == pytest.approx(held[fresh].mean(), abs=0.003)
        # Whatever becomes of the others, the rule is the same, and only its error rates are not.
        worse = replace(
            judged,
            helps=judged.helps & ~fresh,
            surplus=np.where(fresh, rule.high + 1 + judged.surplus**2, judged.surplus),
        )
        assert final_rule(worse) == {**final_rule(judged), "held": 0.0, "helped": 0.0}

    def test_what_is_contradicted_is_not_counted_as_supported(self) -> None:
        judged = drawn(400, worlds=3)
        harmful = replace(judged, contradicted=~judged.helps)
        assert final_rule(judged)["helped"] < 1
        assert final_rule(replace(judged, failed=~judged.helps))["helped"] == 1
        assert final_rule(harmful)["helped"] == 1
        assert final_rule(harmful)["weights"] == final_rule(judged)["weights"], "they are weighed as ever"

    def test_without_enough_harm_there_is_no_rule(self, tmp_path: Path) -> None:
        judged = drawn(400, worlds=3)
        few = {
            "hardly any harm": replace(judged, helps=np.ones_like(judged.helps)),
            "harm in two worlds": replace(judged, helps=judged.helps | (judged.world == "w0")),
            "harm on other seeds": replace(judged, helps=judged.helps | (judged.seed == 0)),
            "no cell of its seeds": replace(judged, seed=judged.seed + 1),
            "nothing": judged.take(np.zeros(400, dtype=bool)),
        }
        for name, answers in few.items():
            with pytest.raises(InputError, match="of seed 0, which rules are fitted to, fewer than 3 worlds have 10"):
                write_rule(tmp_path / name, answers)
            assert not (tmp_path / name).exists()

    def test_without_fresh_answers_that_are_supported_its_errors_are_not_known(self) -> None:
        judged = drawn(400, worlds=3)
        for answers in (replace(judged, seed=np.zeros_like(judged.seed)), replace(judged, failed=judged.seed == 1)):
            with pytest.raises(InputError, match="is not known: it supports no answer of other seeds"):
                final_rule(answers)

    def test_signs_are_clear_where_a_check_warns_of_them(self) -> None:
        limits = default_thresholds()
        assert {"choice": limits.choice_by_noise.warn, "earlier": limits.noise_by_earlier.warn} == CLEAR

    def test_the_rule_in_use_is_sound(self) -> None:
        own = yaml.safe_load(files("ifonly.result").joinpath("verdict.yaml").read_text(encoding="utf-8"))
        assert list(own) == list(final_rule(drawn(400)))
        assert list(own["weights"]) == list(own["usual"]) == [signal.value for signal in Signal]
        assert all(weight >= 0 for weight in own["weights"].values())
        assert any(weight > 0 for weight in own["weights"].values())
        assert (own["believable"], own["supported"], own["clear"]) == (BELIEVABLE, SUPPORTED, CLEAR)
        assert 0 < own["believable"] < own["supported"] < 1
        assert own["low"] < 0 < own["high"]
        assert 0 < own["held"] < 1
        assert own["supported"] <= own["helped"] <= 1

    def test_how_often_it_is_right_is_what_the_page_has_of_a_fresh_seed(self) -> None:
        own = yaml.safe_load(files("ifonly.result").joinpath("verdict.yaml").read_text(encoding="utf-8"))
        page = " ".join((ROOT / "docs/evidence-study.md").read_text(encoding="utf-8").split())
        helped, supported = 210, 216
        assert f"*The rule as it is.* **Of the supported answers {helped} of {supported}," in page
        assert own["helped"] == round(helped / supported, 3)
        assert (
            f"*The rule as it is.* **The 90 % interval of the gain holds {own['held']:.1%} of the true gains**" in page
        )


def spread(cell: Cell, world: str, variant: str, truths: list[float], verdict: str = "pass") -> Cell:
    """The cell as one of another world: its first answer with these true gains, the larger the more promised."""
    first = cell.answers[0]
    evidence = first.evidence
    answers = []
    for number, true in enumerate(truths):
        told = replace(
            evidence, promised=first.promised + true + 0.1 * number, check=replace(evidence.check, verdict=verdict)
        )
        answers.append(replace(first, episode=f"e{number}", true=true, evidence=told))
    settings = CellSettings(world, variant, episodes=30)
    return replace(cell, settings=settings, verdict=verdict, answers=tuple(answers))


@pytest.fixture
def cells(cell: Cell) -> list[Cell]:
    return [
        spread(cell, "tumour", PLAIN, [3.0, -1.0, 2.0, 4.0]),
        spread(cell, "glucose", PLAIN, [1.0, -2.0, 5.0, 3.0]),
        spread(cell, "glucose", "drift", [1.0, -2.0, -5.0, -3.0], "fail"),
    ]


@pytest.fixture
def many(cell: Cell) -> list[Cell]:
    """Cells of three worlds and two seeds with enough harm for rules, which the more promising answers do not do."""
    truths = [-1.0 - number / 10 for number in range(12)] + [3.0 + number for number in range(12)]
    found = []
    for world in ("battery", "glucose", "tumour"):
        one = spread(cell, world, PLAIN, truths)
        told = [replace(answer, evidence=unsuspicious(answer)) for answer in one.answers]
        settings = replace(one.settings, asked=24, seconds=2.0)
        found += [replace(one, answers=tuple(told), settings=replace(settings, seed=seed)) for seed in (0, 1)]
    return found


def unsuspicious(answer: Answer) -> Evidence:
    """The evidence, with nothing that alone keeps an answer from being supported."""
    evidence = answer.evidence
    support = replace(evidence.support, steps=tuple(replace(one, probability=0.5) for one in evidence.support.steps))
    hidden = replace(evidence.check.hidden, **dict.fromkeys(CLEAR, 0.0))
    return replace(evidence, support=support, check=replace(evidence.check, hidden=hidden))


class TestTables:
    def test_lines_are_those_of_the_rule_left_out(self, cells: list[Cell]) -> None:
        table = answers_table(cells)
        expected, place = left_out(Judged.of(cells))
        np.testing.assert_array_equal(table[RULE].to_numpy(), expected)
        np.testing.assert_array_equal(table["place"].to_numpy(), place)
        assert table["helps"].to_list() == [one.helps for cell in cells for one in cell.answers]
        failed = table.filter(pl.col("variant") == "drift")
        assert set(failed["verdict"]) == {Verdict.NOT_BELIEVABLE.value}

    def test_verdicts_are_those_of_the_package(self, cell: Cell) -> None:
        for answer in cell.answers:
            for verdict in ("pass", "warn", "fail"):
                told = replace(answer.evidence, check=replace(answer.evidence.check, verdict=verdict))
                assert told.verdict_at(told.judgement.probability) == told.verdict
            assert replace(answer.evidence, check=None).verdict_at(None) == Verdict.UNCERTAIN

    def test_the_package_is_judged_as_it_is_on_fresh_seeds(self, cells: list[Cell]) -> None:
        assert not len(by_the_package(answers_table(cells))), "seed 0 is what the rule was fitted to"
        fresh = [replace(cell, settings=replace(cell.settings, seed=1)) for cell in cells]
        told = by_the_package(answers_table([*cells, *fresh]))
        answers = [one for cell in fresh for one in cell.answers]
        assert told["verdict"].to_list() == [one.evidence.verdict.value for one in answers]
        assert told[RULE].to_list() == [one.evidence.judgement.probability for one in answers]
        estimates = [one.evidence.estimate for one in answers]
        pairs = list(zip(estimates, answers, strict=True))
        assert [place == 0 for place in told["place"]] == [found.low <= one.true <= found.high for found, one in pairs]
        assert [place < 0 for place in told["place"]] == [one.true < found.low for found, one in pairs]
        failed = [one.evidence.check.failed for one in answers]
        expected = [known - one for known, one in zip(told[RULE].to_list(), failed, strict=True)]
        np.testing.assert_allclose(told[RULE_AND_CHECK].to_numpy(), expected)
        texts = findings([*cells, *fresh], answers_table([*cells, *fresh]))
        assert sum(text.startswith("*The rule as it is.*") for text in texts) == 3

    def test_counts_and_shares(self, cells: list[Cell]) -> None:
        table = answers_table(cells)
        rows = truth_table(cells, table).to_dicts()
        assert [row["truly help"][:6] for row in rows] == ["3 of 4", "3 of 4", "1 of 4"]
        assert rows[2]["not believable"] == "100%"
        assert rows[2]["help, of the supported"] == "-"
        total = world_table(table).to_dicts()[-1]
        assert (total["answers"], total["truly help"][:7]) == ("12", "7 of 12")
        signals = {row["signal"]: row for row in signal_table(table).to_dicts()}
        assert signals["check failed"]["AUC"] == f"{(6 / 7 + 3 / 5) / 2:.2f}"
        assert cost_table(table).height == 3
        assert (
            sum(int(text.split()[2].rstrip(",")) for text in probability_table(table)["truly help"] if text != "-")
            == 12
        )

    def test_where_true_gains_lie_is_told_by_verdict(self) -> None:
        verdicts = [*["supported"] * 4, *["uncertain"] * 2, "not believable"]
        table = pl.DataFrame({"verdict": verdicts, "place": [0, 0, 0, 1, -1, 0, None]})
        rows = {row["verdict"]: row for row in interval_table(table).to_dicts()}
        assert list(rows) == ["supported", "uncertain", "all"]
        assert [*rows["supported"].values()] == ["supported", "4", "75%", "0%", "25%"]
        assert [*rows["uncertain"].values()] == ["uncertain", "2", "50%", "50%", "0%"]
        assert rows["all"]["answers"] == "6"

    def test_what_one_who_knows_the_cells_would_catch(self) -> None:
        helps = [*[True] * 5, *[False] * 5, *[True] * 14, False, *[False] * 2, *[True] * 1]
        table = pl.DataFrame({"cell": [*[0] * 10, *[1] * 15, *[2] * 3], "helps": helps})
        # A tenth of 20 are two false alarms: one in the worst cell, and a fifth of the next.
        assert caught_by_cell(table) == pytest.approx((2 + 5 * 1 / 5) / 8)
        blameless = pl.DataFrame({"cell": [0, 0, 1], "helps": [False, False, True]})
        assert caught_by_cell(blameless) == 1

    def test_one_world_has_no_verdicts(self, cell: Cell) -> None:
        cells = [spread(cell, "tumour", PLAIN, [3.0, -1.0])]
        table = answers_table(cells)
        assert table[RULE].null_count() == 2
        assert not findings(cells, table)
        assert truth_table(cells, table)["supported"].to_list() == ["-"]
        assert signal_table(table).height == probability_table(table).height == 0

    def test_measures_of_a_signal(self) -> None:
        scores = np.arange(40.0)
        helps = scores >= 20
        assert auc(scores, helps) == caught(scores, helps) == best_half(scores, helps) == 1
        assert auc(-scores, helps) == caught(-scores, helps) == best_half(-scores, helps) == 0
        same = np.zeros(40)
        assert (auc(same, helps), caught(same, helps), best_half(same, helps)) == (0.5, 0, 0.5)
        assert math.isnan(auc(scores, np.ones(40, dtype=bool)))
        # The two lowest of 20 that help may be suspected, and so may all harmful ones below the third.
        mixed = np.r_[np.arange(20.0), np.full(10, 1.5), np.full(10, 5.0)]
        assert caught(mixed, np.arange(40) < 20) == 0.5

    def test_risk_against_coverage(self) -> None:
        kept, harmful = risk_curve(np.array([0.2, 0.9, 0.5]), np.array([False, True, False]))
        np.testing.assert_allclose(kept, [1 / 3, 2 / 3, 1])
        np.testing.assert_allclose(harmful, [0, 1 / 2, 2 / 3])

    def test_rules_of_other_worlds_need_worlds_with_harm(self) -> None:
        table = pl.DataFrame({"world": [*"aaabbbccc"], "helps": [False] * 9})
        assert not tells_harm(table)
        often = pl.concat([table] * 4)
        assert tells_harm(often)
        assert enough_harm(often["world"].to_numpy(), often["helps"].to_numpy())
        assert not tells_harm(often.filter(pl.col("world") != "b"))
        assert not tells_harm(often.with_columns(helps=pl.col("world") == "c"))

    def test_answers_that_the_rule_was_made_of_have_no_verdict_by_it(self, cells: list[Cell]) -> None:
        fresh = [replace(cell, settings=replace(cell.settings, seed=1)) for cell in cells]
        both = [*cells, *fresh]
        table = answers_table(both)
        told = as_the_package(table)
        assert told.filter(pl.col("seed") == 0)["verdict"].null_count() == 12
        assert told.filter(pl.col("seed") == 1).equals(by_the_package(table))
        assert "The rule as it is, by seed" not in all_tables(both, table), "only one seed is fresh"
        third = [replace(cell, settings=replace(cell.settings, seed=2)) for cell in cells[:1]]
        seeds = all_tables([*both, *third], answers_table([*both, *third]))["The rule as it is, by seed"].to_dicts()
        assert [(row["seed"], row["answers"]) for row in seeds] == [("seed 1", "12"), ("seed 2", "4"), ("all", "16")]
        rows = all_tables(both, table, leaving_out=False)["Every cell"].to_dicts()
        assert [row["answers"] for row in rows] == ["4"] * 6
        assert [row["truly help"] for row in rows[:3]] == [row["truly help"] for row in rows[3:]]
        assert {row["not believable"] for row in rows[:3]} == {"-"}
        assert rows[5]["not believable"] == "100%"
        alone = all_tables(cells, answers_table(cells), leaving_out=False)
        assert list(alone) == ["Every cell", "Seconds for an answer (median)"]

    def test_the_page(self, cells: list[Cell], tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text(f"# Before\n{BEGIN}\nof other cells\n{END}\nafter\n")
        fresh = [replace(cell, settings=replace(cell.settings, seed=1)) for cell in cells]
        fill_page(page, fresh)
        text = page.read_text()
        assert text.startswith("# Before\n")
        assert text.endswith("after\n")
        assert "of other cells" not in text
        assert text.count("**Of the 5 harmful answers") == 1, (
            "by the package's rule: others have too little to learn from"
        )
        assert "by the world left out" not in text
        assert (tmp_path / "images" / "evidence-risk.png").stat().st_size > 1000


def kept_at(folder: Path, cells: list[Cell]) -> tuple[object, ...]:
    """Words of the command for these cells, which it finds in the folder."""
    folder.mkdir()
    for one in cells:
        (folder / one.settings.file).write_text(json.dumps(one.to_dict()))
    worlds = [word for name in dict.fromkeys(one.settings.world for one in cells) for word in ("--world", name)]
    return ("evidence", "--out", folder, *worlds, "--variant", PLAIN, "--episodes", 30, "--workers", 1)


class TestCommand:
    def test_kept_cells_become_tables_a_page_and_a_rule(self, run, many: list[Cell], tmp_path: Path) -> None:
        folder, rule = tmp_path / "cells", tmp_path / "rule.yaml"
        words = (*kept_at(folder, many), "--asked", 24)
        found = run(*words, "--seed", 0, "--seed", 1, "--json", "--rule", rule)
        assert found.exit_code == 0, found.output
        document = json.loads(found.stdout)
        assert document["rule"] == yaml.safe_load(rule.read_text()) == final_rule(Judged.of(many))
        assert document["cells"] == [cell.settings.file for cell in many]
        assert "72 of 144" in document["tables"]["Verdicts, by the world left out"][-1]["truly help"]
        shown = run(*words, "--seed", 0, "--seed", 1)
        assert "harmful answers" in shown.stdout
        assert run(*words, "--seconds", 3).exit_code == 3  # the same cells under other settings

    def test_with_little_harm_no_rule_is_told_and_none_is_written(self, run, cells: list[Cell], tmp_path: Path) -> None:
        folder, rule = tmp_path / "cells", tmp_path / "rule.yaml"
        kept = [replace(one, settings=replace(one.settings, asked=4, seconds=2.0)) for one in cells[:2]]
        words = (*kept_at(folder, kept), "--asked", 4)
        told = run(*words, "--json")
        assert told.exit_code == 0, told.output
        document = json.loads(told.stdout)
        assert document["rule"] is None
        assert document["cells"] == ["glucose-plain-30-0.json", "tumour-plain-30-0.json"]
        assert list(document["tables"]) == ["Every cell", "Seconds for an answer (median)"]
        assert "left out" not in run(*words).stdout
        refused = run(*words, "--rule", rule)
        assert refused.exit_code == 3
        assert "no rule can be fitted to these cells" in " ".join(refused.stderr.split())
        assert not rule.exists()

    def test_answers_none_of_which_is_supported_make_a_document(self, run, many: list[Cell], tmp_path: Path) -> None:
        failed = [
            replace(
                cell,
                answers=tuple(
                    replace(one, evidence=replace(one.evidence, check=replace(one.evidence.check, verdict="fail")))
                    for one in cell.answers
                ),
            )
            for cell in many
        ]
        words = (*kept_at(tmp_path / "cells", failed), "--asked", 24, "--seed", 0, "--seed", 1)
        told = run(*words, "--json")
        assert told.exit_code == 0, told.output
        document = json.loads(told.stdout)
        assert document["rule"] is None
        assert any("No answer is supported" in text for text in document["findings"])
        refused = run(*words, "--rule", tmp_path / "rule.yaml")
        assert refused.exit_code == 3
        assert "how often a rule of these cells is wrong is not known" in " ".join(refused.stderr.split())


class TestArchive:
    """What is kept for others gives the same tables and the same rule."""

    def test_nothing_that_is_read_is_lost(self, many: list[Cell], tmp_path: Path) -> None:
        cells = many
        archive = tmp_path / "new" / "cells.jsonl.gz"
        again = add_to_archive(archive, cells)
        assert [to_plain(one) for one in again] == [to_plain(one) for one in read_archive(archive)]
        whole, kept = answers_table(in_order(cells)), answers_table(read_archive(archive))
        assert kept.equals(whole)
        assert final_rule(Judged.of(again)) == final_rule(Judged.of(cells))
        assert [one.verdict for one in again] == [one.verdict for one in in_order(cells)]
        assert archive.stat().st_size < len(json.dumps([cell.to_dict() for cell in cells])) / 4

    def test_what_answers_warn_of_is_kept(self, cell: Cell) -> None:
        for whole, kept in zip(cell.answers, lean(cell).answers, strict=True):
            told = [
                {one.code for one in evidence.warnings} - {WarningCode.BEYOND_DATA}
                for evidence in (whole.evidence, kept.evidence)
            ]
            assert told[0] == told[1]
            assert whole.evidence.contradicted == kept.evidence.contradicted
            assert to_plain(whole.evidence.estimate) == to_plain(kept.evidence.estimate)

    def test_cells_are_added_and_replaced(self, cells: list[Cell], tmp_path: Path) -> None:
        archive = tmp_path / "cells.jsonl.gz"
        add_to_archive(archive, cells[:2])
        newer = replace(cells[0], unchanged=7)
        found = add_to_archive(archive, [newer, cells[2]])
        assert {cell.settings.file: cell.unchanged for cell in found} == {
            cell.settings.file: 7 if cell is cells[0] else cell.unchanged for cell in cells
        }
        first = archive.read_bytes()
        add_to_archive(archive, [])
        assert archive.read_bytes() == first, "what is the same is the same file"

    @pytest.mark.parametrize(
        "content", [b"", b"cells", gzip.compress(b"[]\n", mtime=0), gzip.compress(b'{"answers": 1}\n', mtime=0)]
    )
    def test_other_files_are_refused(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(StoreError, match="not an archive"):
            read_archive(tmp_path / "other")

    def test_the_page_says_what_the_repository_holds(self) -> None:
        cells = read_archive(ROOT / "paper/measured/evidence.jsonl.gz")
        table = answers_table(cells)
        assert table["seed"].min() > max(RULE_SEEDS), "fresh to the rule"
        page = " ".join((ROOT / "docs/evidence-study.md").read_text(encoding="utf-8").split())
        told = findings(cells, table, leaving_out=tells_harm(table))
        assert told
        for text in told:
            assert f"- {text} " in page

    @pytest.mark.parametrize("page", ["README.md", "docs/evidence.md"])
    def test_headlines_say_what_the_repository_holds(self, page: str) -> None:
        fresh = by_the_package(answers_table(read_archive(ROOT / "paper/measured/evidence.jsonl.gz")))
        supported = fresh.filter(pl.col("verdict") == Verdict.SUPPORTED.value)
        told = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert (
            f"Of the {len(fresh)} answers to such recordings that the repository keeps, {fresh['helps'].sum()} truly "
            f"help; of the {len(supported)} that the rule supports, {supported['helps'].sum()} do."
        ) in told

    def test_by_the_command(self, run, many: list[Cell], tmp_path: Path) -> None:
        archive, rule, page = tmp_path / "cells.jsonl.gz", tmp_path / "rule.yaml", tmp_path / "page.md"
        page.write_text(f"{BEGIN}\n{END}\n")
        add_to_archive(archive, many)
        found = run("evidence", "--archive", archive, "--rule", rule, "--page", page, "--json")
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout)["cells"] == [cell.settings.file for cell in in_order(many)]
        assert yaml.safe_load(rule.read_text()) == final_rule(Judged.of(many))
        assert "harmful answers" in page.read_text()
        assert run("evidence").exit_code == 3
        assert run("evidence", "--archive", tmp_path / "none").exit_code == 3
