"""The list against a plain reckoning of the same rows."""

from pathlib import Path
from typing import Any

import pytest
from effort import some
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ifonly
from ifonly.records import to_plain
from ifonly.web.listing import ORDERS, STATUSES, Listing, ListQuery
from ifonly.web.notes import Note, Notes
from ifonly.web.review import Review


@pytest.fixture(scope="module")
def review(place: Any) -> Review:
    return Review.load(place.settings(Path("unused")))


@pytest.fixture(scope="module")
def notes(review: Review, tmp_path_factory: pytest.TempPathFactory) -> Notes:
    kept = Notes(tmp_path_factory.mktemp("notes") / "n.sqlite", cohort="c", model="m")
    for episode, verdict in zip(review.cohort.ids[2:9], ["plausible", "unsure", None, "implausible"] * 2, strict=False):
        kept.save(Note(episode, verdict))
    for episode, verdict in zip(review.cohort.ids[2:6], ["plausible", "plausible", "unsure", None], strict=True):
        kept.save(Note(episode, verdict, reviewer="B"))
    return kept


def page_of(listing: Listing, notes: Notes, **query: Any) -> dict[str, Any]:
    return to_plain(listing.page(ListQuery(**query), notes))


def rows_of(listing: Listing, notes: Notes, **query: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = page_of(listing, notes, **query)["rows"]
    return rows


def everything(listing: Listing, notes: Notes) -> list[dict[str, Any]]:
    return rows_of(listing, notes, order="episode", size=200)


def test_rows_say_what_the_run_found(review: Review, notes: Notes, place: Any) -> None:
    run = ifonly.load_run(place.run)
    table = {row["episode"]: row for row in run.table().to_dicts()}
    rows = everything(review.listing, notes)
    assert [row["episode"] for row in rows] == sorted(place.cohort.ids)
    for row in rows:
        episode = place.cohort[row["episode"]]
        sofa = float(episode.states[:, place.cohort.schema.dynamic_index("SOFA")].sum())
        assert row["steps"] == len(episode)
        assert row["subject"] == episode.subject
        assert row["observed"] == pytest.approx(sofa, rel=1e-9)
        answer = table.get(row["episode"])
        assert row["status"] == ("unsolved" if answer is None else answer["status"])
        assert row["proven"] is (answer is not None)
        if answer is None:
            assert (row["best"], row["improvement"], row["changes"]) == (None, None, None)
        else:
            assert (row["observed"], row["best"]) == (-answer["observed_clipped_outcome"], -answer["clipped_outcome"])
            assert row["improvement"] == answer["improvement"] == (row["observed"] - row["best"]) / row["observed"]
        said = notes.reviews().get(row["episode"], ())
        given = [note.verdict for note in said if note.verdict]
        assert (row["noted"], row["verdict"]) == (bool(said), given[-1] if given else None)
        assert (row["reviewers"], row["differ"]) == (len(given), len(set(given)) > 1)


def test_the_list_agrees_with_the_cases(review: Review, notes: Notes) -> None:
    for row in everything(review.listing, notes):
        case = review.case(row["episode"])
        assert row["observed"] == pytest.approx(case.observed.outcome)
        if case.answer is not None:
            best = case.answer.best
            assert (row["best"], row["improvement"]) == pytest.approx((best.outcome, best.improvement))
            assert row["changes"] == len(best.changes)
            assert row["proven"] == case.answer.claim.proven
            badge = case.answer.badge
            assert row["badge"] == badge.level
            assert [f"badge.{code}" for code in row["doubts"]] == [p.said.code for p in badge.parts if not p.holds]
        else:
            assert (row["badge"], row["doubts"]) == (None, None)


def test_patterns_lead_to_their_cases_and_cases_back(review: Review, notes: Notes, place: Any) -> None:
    rows = everything(review.listing, notes)
    named = {one for row in rows for one in row["patterns"] or ()}
    assert named
    for pattern in sorted(named):
        wanted = [row["episode"] for row in rows if pattern in (row["patterns"] or ())]
        assert [row["episode"] for row in rows_of(review.listing, notes, pattern=pattern, order="episode")] == wanted
        assert all(pattern in review.listing.patterns_of(episode) for episode in wanted)
    shown = review.patterns.patterns
    assert {one.pattern for one in shown} <= named
    assert all(one.subjects >= review.patterns.smallest_cell for one in shown)
    for row in rows:
        assert [one.pattern for one in review.patterns.among(row["patterns"] or [])] == [
            one.pattern for one in shown if one.pattern in (row["patterns"] or ())
        ]
    assert review.listing.patterns_of("nobody") == []


queries = st.builds(
    ListQuery,
    search=st.sampled_from(["", "PATIENT-0001", "subject", "01", "nobody", ".*", "000\n"]),
    status=st.none() | st.sampled_from(STATUSES),
    verdict=st.none() | st.sampled_from(["plausible", "implausible", "unsure", "none"]),
    warnings=st.none() | st.sampled_from(["none", "some"]),
    at_least=st.none() | st.floats(-0.1, 0.5),
    reviews=st.none() | st.sampled_from(["open", "done", "differ"]),
    order=st.none() | st.sampled_from([order for order in ORDERS if order != "queue"]),
    descending=st.booleans(),
    page=st.integers(1, 6),
    size=st.integers(1, 30),
)


@settings(max_examples=some(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(queries)
def test_queries_do_what_they_say(review: Review, notes: Notes, query: ListQuery) -> None:
    def fits(row: dict[str, Any]) -> bool:
        text = (query.search or "").strip().lower()
        return (
            (text in row["episode"].lower() or text in row["subject"].lower())
            and query.status in (None, row["status"])
            and (query.verdict is None or (row["verdict"] or "none") == query.verdict)
            and (query.warnings is None or (row["warnings"], query.warnings) in ((0, "none"), (1, "some")))
            and (query.reviews is None or waits(row)[query.reviews])
            and (query.at_least is None or (row["improvement"] is not None and row["improvement"] >= query.at_least))
        )

    def waits(row: dict[str, Any]) -> dict[str, bool]:
        answered = row["improvement"] is not None and row["improvement"] > 0 and row["badge"] != "bad"
        reviewers = row["reviewers"]
        return {"open": answered and reviewers < 2, "done": reviewers > 1, "differ": row["differ"]}

    wanted = [row for row in everything(review.listing, notes) if fits(row)]
    page = to_plain(review.listing.page(query, notes))
    assert page["total"] == len(wanted)
    whole = rows_of(review.listing, notes, **{**query.model_dump(), "page": 1, "size": 200})
    by_id = {row["episode"]: row for row in wanted}
    assert {row["episode"]: row for row in whole} == by_id
    assert len(whole) == len(wanted)
    assert page["rows"] == whole[(query.page - 1) * query.size : query.page * query.size]
    order, descending = (query.order, query.descending) if query.order else ("improvement", True)
    place = {"good": 0, "reserved": 1, "bad": 2}
    known = [place[row[order]] if order == "badge" else row[order] for row in whole if row[order] is not None]
    assert known == sorted(known, reverse=descending)
    assert all(row[order] is None for row in whole[len(known) :])


def test_the_queue_begins_with_what_one_reviewer_has_judged(review: Review, notes: Notes) -> None:
    rows = rows_of(review.listing, notes, reviews="open", order="queue", size=200)
    assert 0 < sum(row["reviewers"] == 1 for row in rows) < len(rows)
    keys = [(row["reviewers"] == 1, row["improvement"]) for row in rows]
    assert keys == sorted(keys, reverse=True)
    judged = {
        episode
        for episode, said in notes.reviews().items()
        if any(note.verdict and note.reviewer == "" for note in said)
    }
    left = {row["episode"] for row in rows_of(review.listing, notes, reviews="open", reviewer="", size=200)}
    assert left == {row["episode"] for row in rows} - judged
    assert left < {row["episode"] for row in rows}


def test_without_a_run_everything_is_unsolved_and_in_the_cohorts_order(place: Any, notes: Notes) -> None:
    query = ifonly.Query(ifonly.minus("SOFA"))
    review = Review.load(place.settings(Path("unused"), run=None, query=query))
    rows = rows_of(review.listing, notes, size=200)
    assert [row["episode"] for row in rows] == list(place.cohort.ids)
    assert {row["status"] for row in rows} == {"unsolved"}
    assert review.case(place.cohort.ids[0]).answer is None


def test_a_cost_of_changes_is_no_part_of_what_is_shown(place: Any, notes: Notes, tmp_path: Path) -> None:
    ids = place.cohort.ids[:3]
    settings = ifonly.RunSettings(episodes=ids, workers=1)
    model = ifonly.load_model(place.model)
    query = ifonly.Query(ifonly.minus("SOFA"), 1, change_cost=0.05)
    run = ifonly.solve_cohort(place.cohort, model, query, out=tmp_path / "run", settings=settings)
    review = Review.load(place.settings(Path("unused"), run=run.folder))
    rows = {row["episode"]: row for row in everything(review.listing, notes)}
    assert any(rows[episode]["changes"] for episode in ids)
    for episode in ids:
        assert rows[episode]["best"] == pytest.approx(review.case(episode).answer.best.outcome)  # type: ignore[union-attr]


def test_failed_episodes_are_listed(place: Any, notes: Notes, tmp_path: Path) -> None:
    rules = ifonly.Constraints(locked=[6])  # some episodes are shorter
    settings = ifonly.RunSettings(episodes=place.cohort.ids[:8], workers=1)
    model = ifonly.load_model(place.model)
    query = ifonly.Query(ifonly.minus("SOFA"), 1, constraints=rules)
    run = ifonly.solve_cohort(place.cohort, model, query, out=tmp_path / "run", settings=settings)
    assert 0 < run.counts["failed"] < 8
    review = Review.load(place.settings(Path("unused"), run=run.folder))
    page = page_of(review.listing, notes, status="failed")
    assert page["total"] == run.counts["failed"]
    assert all(row["best"] is None and not row["proven"] for row in page["rows"])
    case = review.case(page["rows"][0]["episode"])  # the record can be looked at, though the rules do not fit it
    assert case.answer is None
    assert "solving it failed" in str(case.cautions[0])
