"""A model check as a folder: check.json, check.txt and the figures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ifonly.errors import StoreError
from ifonly.evidence.check.model_check import FORMAT, ModelCheck
from ifonly.files import atomic_folder
from ifonly.report.check_plots import check_figures
from ifonly.report.plots import save_figure

CHECK_FILE, TEXT_FILE = "check.json", "check.txt"
FIGURES = ("likelihood", "noise", "coverage", "ahead", "parts")
FILES = (CHECK_FILE, TEXT_FILE, *(f"{name}.png" for name in FIGURES))


@dataclass(frozen=True)
class CheckFolder:
    """What was written."""

    path: Path
    files: tuple[str, ...]


def check_check_folder(path: str | Path) -> None:
    """Refuse a folder that holds anything else than an earlier check, which writing would replace."""
    folder = Path(path)
    names = {item.name for item in folder.iterdir()} if folder.is_dir() else set()
    strangers = sorted(names - set(FILES) if _holds_check(folder) else names)
    if strangers:
        raise StoreError(
            f"{folder} holds {strangers[:5]}, which no earlier check wrote there; move them away, or choose an empty "
            "or a new folder."
        )


def write_check(check: ModelCheck, path: str | Path) -> CheckFolder:
    """Write a folder with check.json, check.txt (all findings in words) and the figures as PNG.

    An earlier check there is replaced as a whole; the folder is afterwards either what it was or complete.
    """
    check_check_folder(path)
    target = Path(path)
    with atomic_folder(target, overwrite=True) as scratch:
        check.save(scratch / CHECK_FILE)
        (scratch / TEXT_FILE).write_text(check.details() + "\n", encoding="utf-8", newline="\n")
        for name, figure in check_figures(check).items():
            save_figure(figure, scratch / f"{name}.png")
        files = tuple(sorted(item.name for item in scratch.iterdir()))
        # What an earlier check had and this one has not would count as somebody else's.
        for name in set(FILES) - set(files):
            (target / name).unlink(missing_ok=True)
    return CheckFolder(target, files)


def _holds_check(folder: Path) -> bool:
    try:
        content = json.loads((folder / CHECK_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT
