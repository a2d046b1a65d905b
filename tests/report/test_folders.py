"""Summaries on disk: complete, readable, replaced as a whole, and never at somebody else's cost."""

import io
import json
import os
from pathlib import Path

import polars as pl
import pytest
from made_tables import budget, made_row, made_table, realistic_table
from rich.console import Console

from ifonly.errors import InputError, StoreError
from ifonly.query import Query
from ifonly.report import folders
from ifonly.report.card import data_card
from ifonly.report.folders import write_summary
from ifonly.report.summary import RunSummary, summarize
from ifonly.report.tables import summary_tables
from ifonly.rewards import minus
from ifonly.simulate import simulate_cohort
from ifonly.text import catalogue
from ifonly.text.cards import card_lines

TABLES = {
    "episodes.csv",
    "cases.csv",
    "histogram.csv",
    "by_examination.csv",
    "warnings.csv",
    "agreement.csv",
    "by_horizon.csv",
    "by_budget.csv",
    "by_group.csv",
    "changes_used.csv",
    "change_times.csv",
    "failures.csv",
    "patterns.csv",
}
FIGURES = {
    "improvement_distribution.png",
    "improvement_by_budget.png",
    "improvement_by_horizon.png",
    "change_times.png",
}


@pytest.fixture(scope="module")
def summary() -> RunSummary:
    return summarize(realistic_table(60), Query(minus("SOFA")))


@pytest.fixture(scope="module")
def grouped() -> RunSummary:
    return summarize(realistic_table(60), by=["status", "horizon"])


def names(folder: Path) -> set[str]:
    return {item.name for item in folder.iterdir()}


def test_everything_is_there_and_can_be_read(summary: RunSummary, tmp_path: Path) -> None:
    written = write_summary(summary, tmp_path / "deep" / "summary")
    assert names(written.path) == set(written.files) == TABLES | FIGURES | {"summary.json"}
    content = json.loads((written.path / "summary.json").read_text())
    assert content == summary.to_dict() | {"files": list(written.files)}
    for name, frame in summary.frames().items():
        again = pl.read_csv(written.path / f"{name}.csv", schema=frame.schema)
        assert again.equals(frame, null_equal=True) or frame.is_empty()
    assert written.not_drawn == {}
    stored = (written.path / "summary.json").read_text()
    assert "statement" not in stored  # numbers and codes, from which words are made anew
    assert summary.statement not in stored


def test_other_words_change_nothing_that_is_stored(summary: RunSummary, monkeypatch: pytest.MonkeyPatch) -> None:
    card = data_card(simulate_cohort(20, seed=0, horizon=4), model_size=1000)
    stored, said = (summary.to_json(), card.to_dict()), (str(summary), card_lines(card))
    words = {code: f"another way to say {sentence}" for code, sentence in catalogue.catalogue().items()}
    monkeypatch.setattr(catalogue, "catalogue", lambda: words)
    assert (str(summary), card_lines(card)) != said
    assert (summary.to_json(), card.to_dict()) == stored


@pytest.mark.usefixtures("unpainted")
def test_a_later_summary_replaces_the_earlier_one(summary: RunSummary, grouped: RunSummary, tmp_path: Path) -> None:
    folder = tmp_path / "summary"
    write_summary(grouped, folder, figures=("png", "pdf"))
    assert {"group_status.pdf", "group_horizon.png"} <= names(folder)
    written = write_summary(summary, folder)
    assert names(folder) == set(written.files) == TABLES | FIGURES | {"summary.json"}
    assert names(tmp_path) == {"summary"}


@pytest.mark.usefixtures("unpainted")
def test_other_peoples_files_are_safe(summary: RunSummary, grouped: RunSummary, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match=r"thesis\.tex.*no earlier summary"):
        write_summary(summary, tmp_path)
    folder = tmp_path / "summary"
    write_summary(grouped, folder)
    (folder / "notes.txt").write_text("mine")
    before = names(folder)
    with pytest.raises(StoreError, match=r"notes\.txt"):
        write_summary(summary, folder)
    assert (folder / "notes.txt").read_text() == "mine"
    assert names(folder) == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "summary.json").write_text('{"format": "somebody else\'s", "files": ["summary.json"]}')
    with pytest.raises(StoreError, match=r"summary\.json"):
        write_summary(summary, tmp_path / "other")


@pytest.mark.usefixtures("unpainted")
def test_a_record_that_names_files_elsewhere_deletes_nothing_there(summary: RunSummary, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    folder = tmp_path / "summary"
    write_summary(summary, folder)
    content = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(content | {"files": [*content["files"], "../precious.txt", 3]}))
    write_summary(summary, folder)
    assert (tmp_path / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "error", [OSError(27, "File too large"), OSError("no room"), pl.exceptions.ComputeError("no room")]
)
@pytest.mark.usefixtures("unpainted")
def test_a_failure_leaves_the_earlier_summary(
    summary: RunSummary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    folder = tmp_path / "summary"
    write_summary(summary, folder)
    before = {name: (folder / name).read_bytes() for name in names(folder)}

    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(folders, "save_figure", full)
    with pytest.raises(StoreError, match=r"summary: the summary cannot be written \((File too large|no room)\)"):
        write_summary(summary, folder)
    assert {name: (folder / name).read_bytes() for name in names(folder)} == before
    assert names(tmp_path) == {"summary"}


@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize("content", [None, 3, "deep", "link", "pipe"])
def test_a_record_that_cannot_be_read_makes_a_folder_somebody_elses(
    summary: RunSummary, tmp_path: Path, content: object
) -> None:
    """It is neither waited for nor read without end, and nothing is replaced."""
    (tmp_path / "s").mkdir()
    record = tmp_path / "s" / "summary.json"
    if content == "link":
        record.symlink_to("/dev/zero")
    elif content == "pipe":
        os.mkfifo(record)
    elif content == "deep":
        record.write_text("[" * 100_000)
    else:
        record.write_text(json.dumps({"format": "ifonly.summary", "files": content}))
    with pytest.raises(StoreError, match=r"holds \['summary.json'\], which no earlier summary wrote"):
        write_summary(summary, tmp_path / "s")


def test_ids_are_no_formulas(tmp_path: Path) -> None:
    ids = ["=1+1", "+1", "-1", "@x", "\t=1", "patient-1", "a=b"]
    summary = summarize(made_table(*(made_row(n, episode=id) for n, id in enumerate(ids))))
    written = write_summary(summary, tmp_path / "summary").path
    found = pl.read_csv(written / "episodes.csv", infer_schema=False)["episode"].to_list()
    assert found == ["'=1+1", "'+1", "'-1", "'@x", "'\t=1", "patient-1", "a=b"]
    assert summary.episodes["episode"].to_list() == ids


@pytest.mark.usefixtures("unpainted")
def test_figures_that_cannot_be_drawn_are_named(tmp_path: Path) -> None:
    zero = summarize(made_table(made_row(0, observed_clipped_outcome=0.0)))
    written = write_summary(zero, tmp_path / "summary")
    assert set(written.not_drawn) == {name.removesuffix(".png") for name in FIGURES} - {"change_times"}
    assert "change_times.png" in written.files


def test_unknown_formats_are_refused(summary: RunSummary, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="jpeg"):
        write_summary(summary, tmp_path / "summary", figures=("jpeg",))
    assert names(tmp_path) == set()


@pytest.mark.usefixtures("unpainted")
def test_names_of_groups_become_safe_file_names(tmp_path: Path) -> None:
    values = pl.DataFrame({"episode": ["patient-00000"], "a/b [x]": [1]})
    summary = summarize(made_table(made_row(0)), by="a/b [x]", values=values)
    assert "group_a%2Fb%20%5Bx%5D.png" in write_summary(summary, tmp_path / "summary").files


def shown(summary: RunSummary) -> str:
    console = Console(width=100, file=io.StringIO(), color_system=None)
    for table in summary_tables(summary):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_tables_for_the_terminal() -> None:
    frontier = [budget(0, -100.0, -100.0), budget(1, -80.0, -80.0)]
    rows = [made_row(n, episode=f"[b]{n}", clipped_outcome=-80.0, frontier=frontier) for n in range(12)]
    text = shown(summarize(made_table(*rows), Query(minus("SOFA")), by={"horizon": (6,)}))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "1 12 20.0 % 20.0 % to 20.0 % 20.0 %" in lines
    assert "< 6 12 20.0 % 20.0 % to 20.0 % 20.0 %" in lines
    assert ">= 6 0 - - -" in lines
    assert "[b]9 100.0 -> 80.0 20.0 % 1 optimal" in lines
    assert "and 2 more" in lines
    assert "cumulative SOFA" in text


def test_averages_that_are_lower_bounds_are_marked() -> None:
    frontier = [budget(0, -100.0, -100.0), budget(1, -90.0, -90.0), budget(2, -80.0, -75.0)]
    limited = {"status": "time limit", "frontier": frontier, "clipped_outcome": -80.0, "outcome": -80.0}
    rows = [made_row(0, **limited, upper_bound=-75.0), made_row(1, **limited, upper_bound=None, horizon=7)]
    rows += [made_row(n, horizon=9, frontier=[]) for n in (2, 3)]
    text = shown(summarize(made_table(*rows), by="horizon"))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "1 2 10.0 % 10.0 % to 10.0 % 10.0 %" in lines
    assert "2 2 ≥ 20.0 % 20.0 % to 20.0 % ≥ 20.0 %" in lines
    assert "5 1 ≥ 20.0 % - ≥ 20.0 %" in lines
    assert "7 1 ≥ 20.0 % - ≥ 20.0 %" in lines
    assert "9 2 10.0 % 10.0 % to 10.0 % 10.0 %" in lines
    assert lines.count("≥ at least: some answers are not proven optimal") == 2


def test_no_tables_where_there_is_nothing() -> None:
    assert shown(summarize(made_table(made_row(0)))) == ""
