"""The picture of a flow: every number of it, and nobody removed where nobody was."""

from pathlib import Path

from matplotlib.patches import FancyBboxPatch

from ifonly.clinical.inclusion import Flow, FlowStep
from ifonly.report.flow_picture import plot_flow, write_flow

FLOW = Flow(
    (
        FlowStep("stays in intensive care", 61_532, 46_476),
        FlowStep("adults (18 years or older)", 53_423, 38_597, 8_109, 7_879),
        FlowStep("something measured in these steps", 53_423, 38_597),
        FlowStep("SOFA of 2 or more in one of them", 20_000, 17_000, 33_423, 21_597),
    )
)


def test_every_rule_has_a_box_and_every_removal_one_at_its_side() -> None:
    (panel,) = plot_flow(FLOW).axes
    words = [text.get_text() for text in panel.texts if text.get_text()]
    assert words == [
        "stays in intensive care\n61,532 stays of 46,476 subjects",
        "adults (18 years or older)\n53,423 stays of 38,597 subjects",
        "8,109 removed",
        "something measured in these steps\n53,423 stays of 38,597 subjects",
        "SOFA of 2 or more in one of them\n20,000 stays of 17,000 subjects",
        "33,423 removed",
    ]
    assert len([patch for patch in panel.patches if isinstance(patch, FancyBboxPatch)]) == len(words)


def test_words_stay_within_their_boxes() -> None:
    figure = plot_flow(FLOW)
    figure.canvas.draw()
    (panel,) = figure.axes
    boxes = [patch.get_window_extent() for patch in panel.patches if isinstance(patch, FancyBboxPatch)]
    texts = [text.get_window_extent() for text in panel.texts if text.get_text()]
    for box, text in zip(boxes, texts, strict=True):
        assert box.x0 < text.x0 < text.x1 < box.x1
        assert box.y0 < text.y0 < text.y1 < box.y1
    assert max(box.x1 for box in boxes) < figure.bbox.x1


def test_the_file_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        write_flow(FLOW, tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
