import made_worlds as worlds
import numpy as np
import pytest

from ifonly import ActionSpace, Cohort, Feature, LinearModel, Schema
from ifonly.errors import StoreError
from ifonly.evidence.check.check import check_model
from ifonly.evidence.check.model_check import ModelCheck
from ifonly.report.check_page import write_check_page
from ifonly.report.check_plots import check_figures
from ifonly.report.folders import CHECK_FIGURES, write_check


def test_figures_show_what_was_found(checked) -> None:
    check = checked("too sure")
    figures = check_figures(check)
    assert tuple(figures) == CHECK_FIGURES
    points = {tuple(line.get_xydata()[0]) for line in figures["likelihood"].axes[0].lines if len(line.get_xdata()) == 1}
    assert {(gain.value, row) for row, gain in enumerate(check.figures.gains.values())} <= points
    bars = [patch.get_height() for patch in figures["noise"].axes[0].patches]
    assert bars == pytest.approx([20 * share for share in check.figures.features[0].ranks])
    ahead = {line.get_label(): line.get_ydata() for line in figures["ahead"].axes[0].lines}
    assert list(ahead["model"]) == [horizon.features[0].error for horizon in check.figures.ahead]
    labels = [label.get_text() for label in figures["parts"].axes[0].get_yticklabels()]
    assert sorted(labels) == ["treat", "treat more", "wait"]


def test_nothing_to_draw() -> None:
    assert check_figures(check_model(worlds.model(), worlds.record(2, seed=0))) == {}


def test_a_folder_is_replaced_and_strangers_are_left_alone(tmp_path, checked) -> None:
    folder = tmp_path / "check"
    written = write_check(checked("right"), folder)
    assert set(written.files) == {"check.json", "check.txt", "check.html", *(f"{name}.png" for name in CHECK_FIGURES)}
    assert ModelCheck.load(folder / "check.json") == checked("right")
    assert "pass" in (folder / "check.txt").read_text()
    write_check(check_model(worlds.model(), worlds.record(2, seed=0)), folder)
    assert {item.name for item in folder.iterdir()} == {"check.json", "check.txt", "check.html"}
    (folder / "mine.txt").write_text("")
    with pytest.raises(StoreError, match=r"mine\.txt"):
        write_check(checked("right"), folder)
    other = tmp_path / "other"
    other.mkdir()
    (other / "noise.png").write_text("")
    with pytest.raises(StoreError, match=r"noise\.png"):
        write_check(checked("right"), other)


def test_a_page_tells_findings_remedies_and_figures_and_needs_no_other_file(tmp_path, checked) -> None:
    page = tmp_path / "page.html"
    write_check_page(checked("heavy tails"), page)
    text = page.read_text(encoding="utf-8")
    assert "warn: of " in text
    assert "the noise is not distributed as its prior says" in text
    assert "ifonly fit --recipe plain-tails" in text
    assert text.count("data:image/png;base64,") == len(check_figures(checked("heavy tails")))
    assert "<script" not in text
    assert "http" not in text
    write_check_page(checked("right"), page)
    assert "Nothing speaks against the model" in page.read_text(encoding="utf-8")
    write_check_page(check_model(worlds.model(), worlds.carried(60, seed=1)), page)
    assert "Only measured values count: pressure" in page.read_text(encoding="utf-8")
    page.write_text("mine", encoding="utf-8")
    with pytest.raises(StoreError, match="no page of a check"):
        write_check_page(checked("right"), page)


def test_names_are_escaped_on_the_page(tmp_path) -> None:
    schema = Schema((Feature("<b>pain</b>", "dynamic"),), ActionSpace.categories(["wait"]))
    states = np.random.default_rng(0).normal(size=(480, 1))
    offsets, ids = np.arange(81) * 6, tuple(f"e{i}" for i in range(80))
    cohort = Cohort(schema, ids, offsets, states, np.empty((480, 0)), np.zeros(480, dtype=int))
    write_check_page(check_model(LinearModel(schema, [[[0.9]]]), cohort), tmp_path / "page.html")
    assert "&lt;b&gt;pain" in (tmp_path / "page.html").read_text()
    assert "<b>pain" not in (tmp_path / "page.html").read_text()
