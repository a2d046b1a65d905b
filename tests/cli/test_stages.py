import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ifonly.cli.stages import RECORD, Stages

from ifonly.cli import stages
from ifonly.errors import StoreError


def writer(path: Path, text: str, log: list[str]) -> Callable[[], None]:
    def work() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        log.append(text)

    return work


def test_made_once_for_the_same_settings(tmp_path: Path) -> None:
    log: list[str] = []
    made = [
        Stages(tmp_path).make("a", {"n": (1, 2)}, ["a.txt"], writer(tmp_path / "a.txt", "a", log)) for _ in range(2)
    ]
    assert [product.reused for product in made] == [False, True]
    assert made[0].digest == made[1].digest
    assert log == ["a"]


@pytest.mark.parametrize("change", ["settings", "version", "altered file", "missing file", "broken record"])
def test_made_again_when_something_differs(tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    file = tmp_path / "a.txt"
    Stages(tmp_path).make("a", {"n": 1}, ["a.txt"], writer(file, "a", log))
    settings = {"n": 2 if change == "settings" else 1}
    if change == "version":
        monkeypatch.setattr(stages, "__version__", "99")
    elif change == "altered file":
        file.write_text("b")
    elif change == "missing file":
        file.unlink()
    elif change == "broken record":
        (tmp_path / RECORD).write_text('{"stages": [')
    product = Stages(tmp_path).make("a", settings, ["a.txt"], writer(file, "a", log))
    assert not product.reused
    assert log == ["a", "a"]


def test_the_digest_follows_settings_and_files(tmp_path: Path) -> None:
    digests = {
        Stages(tmp_path).make("a", {"n": n}, ["a.txt"], writer(tmp_path / "a.txt", text, [])).digest
        for n, text in ((1, "x"), (2, "x"), (3, "y"))
    }
    assert len(digests) == 3


def test_an_interrupted_first_stage_can_be_tried_again(tmp_path: Path) -> None:
    def interrupted() -> None:
        (tmp_path / "half.txt").write_text("ha")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Stages(tmp_path).make("a", {}, ["half.txt"], interrupted)
    log: list[str] = []
    product = Stages(tmp_path).make("a", {}, ["half.txt"], writer(tmp_path / "half.txt", "half", log))
    assert (product.reused, log) == (False, ["half"])


def test_discarding_spares_what_people_changed(tmp_path: Path) -> None:
    first = Stages(tmp_path)
    for name in ("a", "b", "c"):
        first.make(name, {}, [f"{name}.txt"], writer(tmp_path / f"{name}.txt", name, []))
    (tmp_path / "b.txt").write_text("my notes")
    second = Stages(tmp_path)
    second.make("a", {}, ["a.txt"], writer(tmp_path / "a.txt", "a", []))
    second.discard_others()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt", RECORD]
    assert set(json.loads((tmp_path / RECORD).read_text())["stages"]) == {"a"}


def test_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    with pytest.raises(StoreError, match="choose an empty or a new folder"):
        Stages(tmp_path)
