import made_worlds as worlds
import pytest

from ifonly.errors import StoreError
from ifonly.evidence.check.check import check_model
from ifonly.evidence.check.model_check import ModelCheck
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
    assert set(written.files) == {"check.json", "check.txt", *(f"{name}.png" for name in CHECK_FIGURES)}
    assert ModelCheck.load(folder / "check.json") == checked("right")
    assert "pass" in (folder / "check.txt").read_text()
    write_check(check_model(worlds.model(), worlds.record(2, seed=0)), folder)
    assert {item.name for item in folder.iterdir()} == {"check.json", "check.txt"}
    (folder / "mine.txt").write_text("")
    with pytest.raises(StoreError, match=r"mine\.txt"):
        write_check(checked("right"), folder)
    other = tmp_path / "other"
    other.mkdir()
    (other / "noise.png").write_text("")
    with pytest.raises(StoreError, match=r"noise\.png"):
        write_check(checked("right"), other)
