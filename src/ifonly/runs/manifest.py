"""The manifest of a run: what is asked, and the state of the run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ifonly.data.plain import read_plain
from ifonly.errors import InputError, StoreError
from ifonly.files import atomic_file, file_reason
from ifonly.version import __version__

FORMAT = "ifonly.run"
VERSION = 5
MANIFEST = "run.json"
RUNNING, FINISHED = "running", "finished"
SOURCES = "sources"
"""Paths of the run's episodes and models, relative to its folder; they may have been moved since."""
MODEL_CHECK = "model_check"
"""The conclusion of the model's check; the model may be checked again later."""
DAMAGED_LINES = "damaged_lines"
"""Lines of the journal that were damaged or altered; their episodes were solved again."""
NOT_ASKED = {"state", "counts", "table", SOURCES, MODEL_CHECK, DAMAGED_LINES}
"""Entries about the state of the run and its surroundings; all others say what is asked."""
REQUIRED: dict[str, Any] = {
    "ifonly": str,
    "state": str,
    "query": {"reward": dict},
    "solver": dict,
    "model": dict,
    "model_fingerprint": str,
    "schema": dict,
    "examination": dict,
    "cohort": {"episodes": int, "fingerprint": str},
}
"""Entries that readers of a manifest rely on, with their types."""
DAMAGED = "it was altered; start again in its place (force=True, --force), or choose another folder"


def plain_manifest(description: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a task, in the plain types in which it is read back."""
    described = {"format": FORMAT, "version": VERSION, "ifonly": __version__, **description}
    try:
        content: dict[str, Any] = json.loads(json.dumps(described, allow_nan=False))
    except ValueError:
        raise InputError("the query, its limits or the solver have a number that is not finite.") from None
    return content


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest, atomically."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    replace_file(folder / MANIFEST, lambda file: file.write_text(text, encoding="utf-8"))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run, its format and version checked."""
    source = folder / MANIFEST
    if not source.exists():
        lacking = f"holds no {MANIFEST}, so it is no run" if folder.exists() else "does not exist; expected a run"
        raise StoreError(f"{folder} {lacking} that `ifonly cohort` wrote.")
    content = read_plain(source, expected=DAMAGED, folder=folder)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise StoreError(f"{source}: is not the manifest of a run.")
    if content.get("version") != VERSION:
        raise StoreError(f"{source}: version {content.get('version')!r}; ifonly {__version__} reads version {VERSION}.")
    required = REQUIRED | ({"counts": dict} if content.get("state") == FINISHED else {})
    missing = _missing(content, required) or ("support" if "support" not in content else None)  # which may be null
    counts = content.get("counts", {})
    if not isinstance(counts, dict) or not all(type(count) is int for count in counts.values()):
        missing = "counts"
    if missing:
        raise StoreError(f"{source}: {missing!r} is missing or of a wrong kind; {DAMAGED}.")
    return content


def _missing(content: Mapping[str, Any], required: Mapping[str, Any]) -> str | None:
    """The first entry that is missing or of a wrong type, or None."""
    for name, kind in required.items():
        value = content.get(name)
        if not isinstance(value, dict if isinstance(kind, dict) else kind):
            return name
        if isinstance(kind, dict) and (inner := _missing(value, kind)):
            return f"{name}.{inner}"
    return None


def agreed_manifest(folder: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """The stored manifest, which must ask the same; sources and checks known now replace its own."""
    found = read_manifest(folder)
    differing = list(_differences(_asked(found), _asked(wanted)))
    if differing:
        shown = "; ".join(differing[:5]) + ("; ..." if len(differing) > 5 else "")
        raise StoreError(
            f"{folder} holds another run ({shown}). Ask the same as there to go on with it, or choose another folder."
        )
    return found | {key: wanted[key] for key in (SOURCES, MODEL_CHECK) if wanted.get(key)}


def _asked(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in manifest.items() if key not in NOT_ASKED}


def relative_sources(folder: Path, sources: Mapping[str, str | Path]) -> dict[str, str]:
    """Paths relative to a run's folder, so that a tree of folders can be moved as a whole."""
    return {name: _seen_from(folder, place) for name, place in sources.items()}


def source_of(folder: Path, manifest: Mapping[str, Any], name: str) -> Path | None:
    """The path of a run's "episodes", "model" or "behaviour"; None if the manifest does not have it."""
    sources = manifest.get(SOURCES)
    place = sources.get(name) if isinstance(sources, dict) else None
    return Path(os.path.normpath(folder / place)) if isinstance(place, str) else None


def _seen_from(folder: Path, place: str | Path) -> str:
    whole = os.path.realpath(place)
    try:
        return Path(os.path.relpath(whole, os.path.realpath(folder))).as_posix()
    except ValueError:  # on another drive
        return whole


def _differences(found: Any, wanted: Any, where: str = "") -> Iterator[str]:
    """The entries in which two manifests differ, in words."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in dict.fromkeys([*found, *wanted]):
            yield from _differences(found.get(key), wanted.get(key), f"{where}.{key}" if where else key)
    elif found != wanted:
        yield f"{where}: {_short(found)} there, {_short(wanted)} now"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` write a file that takes its name only when it is complete and on disk."""
    try:
        with atomic_file(path) as scratch:
            write(scratch)
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be written ({file_reason(error)}). Every row is kept; make room and run the same again."
        ) from error
