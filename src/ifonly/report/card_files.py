"""A data card as a folder: card.html, card.json and the figures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ifonly.errors import StoreError
from ifonly.files import atomic_folder
from ifonly.report.card import FORMAT, Card
from ifonly.report.card_page import card_page
from ifonly.report.card_plots import card_figures
from ifonly.report.plots import save_figure

CARD_FILE, PAGE_FILE = "card.json", "card.html"


@dataclass(frozen=True)
class CardFolder:
    """What was written."""

    path: Path
    files: tuple[str, ...]


def check_card_folder(path: str | Path) -> None:
    """Refuse a folder that holds anything else than an earlier card, which writing would replace."""
    folder = Path(path)
    names = {item.name for item in folder.iterdir()} if folder.is_dir() else set()
    strangers = sorted(names - set(_files_of(folder)))
    if strangers:
        raise StoreError(
            f"{folder} holds {strangers[:5]}, which no earlier data card wrote there; move them away, or choose an "
            "empty or a new folder."
        )


def write_card(card: Card, path: str | Path, *, title: str = "cohort") -> CardFolder:
    """Write a folder with card.html (complete in itself), card.json and the figures as PNG.

    An earlier card there is replaced as a whole; the folder is afterwards either what it was or complete.
    """
    check_card_folder(path)
    target = Path(path)
    # What an earlier card had and this one has not would count as somebody else's.
    with atomic_folder(target, overwrite=True, outdated=_files_of(target)) as scratch:
        figures = card_figures(card)
        for name, figure in figures.items():
            save_figure(figure, scratch / f"{name}.png")
        images = {name: (scratch / f"{name}.png").read_bytes() for name in figures}
        (scratch / PAGE_FILE).write_text(card_page(card, title, images), encoding="utf-8", newline="\n")
        files = tuple(sorted([*(f"{name}.png" for name in figures), PAGE_FILE, CARD_FILE]))
        content = card.to_dict() | {"title": title, "files": files}
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        (scratch / CARD_FILE).write_text(text, encoding="utf-8", newline="\n")
    return CardFolder(target, files)


def _files_of(folder: Path) -> list[str]:
    """The names that an earlier card wrote into this folder."""
    try:
        content = json.loads((folder / CARD_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return []
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("files"), list):
        return []
    return [name for name in content["files"] if isinstance(name, str) and Path(name).name == name]
