"""Behaviour models on disk: `behaviour.json`, `behaviour.safetensors` and, if kept, `states.safetensors`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ifonly.data.records import json_text, read_document
from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.errors import InputError, StoreError
from ifonly.evidence.behaviour.behaviour import BehaviourModel, ChoiceNetwork
from ifonly.evidence.behaviour.neighbours import Neighbours
from ifonly.evidence.behaviour.report import BehaviourReport
from ifonly.files import atomic_folder, sha256_of
from ifonly.models.checkpoint import read_tensors
from ifonly.version import __version__

FORMAT, VERSION = "ifonly.behaviour", 1
METADATA, WEIGHTS, STATES = "behaviour.json", "behaviour.safetensors", "states.safetensors"

PRIVACY = "scaled states of patients, without ids: patient data, to be kept and shared as such"


def save_behaviour(
    behaviour: BehaviourModel,
    path: str | Path,
    *,
    with_states: bool = True,
    provenance: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write the folder `path`, completely or not at all.

    Recorded states, by which distances are measured, are patients' data: without ids, but each row is somebody's.
    `with_states=False` leaves them out; the probabilities are the same. `provenance` is kept as it is, as JSON.
    """
    neighbours = behaviour.neighbours if with_states else None
    with atomic_folder(path, overwrite=overwrite) as folder:
        save_file(
            {name: tensor.contiguous() for name, tensor in behaviour.network.state_dict().items()}, folder / WEIGHTS
        )
        states = None
        if neighbours is not None:
            columns = {"states": neighbours.states.contiguous(), "distances": neighbours.distances.contiguous()}
            save_file(columns, folder / STATES, metadata={"contains": PRIVACY})
            states = {"k": neighbours.k, "sha256": sha256_of(folder / STATES), "contains": PRIVACY}
        content = {
            "format": FORMAT,
            "version": VERSION,
            "ifonly": __version__,
            "schema": behaviour.schema.to_dict(),
            "scaling": behaviour.scaler.to_dict(),
            "hidden": list(behaviour.hidden),
            "longest": behaviour.network.longest,
            "temperature": behaviour.temperature,
            "fingerprint": behaviour.fingerprint,
            "sha256": sha256_of(folder / WEIGHTS),
            "states": states,
            "report": behaviour.report.to_dict(),
            "provenance": dict(provenance or {}),
        }
        (folder / METADATA).write_text(json_text(content, what="save_behaviour"), encoding="utf-8")


def load_behaviour(path: str | Path, *, schema: Schema | None = None) -> BehaviourModel:
    """Read what `save_behaviour` wrote; with `schema`, only if it was made for these features and actions."""
    folder = Path(path)
    expected = "expected what `ifonly behaviour` wrote"
    content = read_document(folder / METADATA, FORMAT, VERSION, kind="behaviour model", expected=expected)
    try:
        stored = Schema.from_dict(content["schema"])
        hidden = tuple(int(width) for width in content["hidden"])
        sizes = (len(stored.dynamic), len(stored.context), len(stored.actions))
        network = ChoiceNetwork(sizes, hidden, int(content["longest"])).double()
        network.load_state_dict(_read(folder / WEIGHTS, content["sha256"]))
        behaviour = BehaviourModel(
            schema=stored,
            scaler=Scaler.from_dict(stored, content["scaling"]),
            network=network.eval().requires_grad_(False),
            hidden=hidden,
            temperature=float(content["temperature"]),
            report=BehaviourReport.from_dict(content["report"]),
            neighbours=_read_states(folder, content["states"], sizes[0]),
        )
        fingerprint = content["fingerprint"]
    except (InputError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StoreError(f"{folder}: broken or incomplete ({type(error).__name__}: {error}).") from None
    if schema is not None:
        schema.require_same(stored, here="the episodes", there=f"the behaviour model in {folder}")
    if behaviour.fingerprint != fingerprint:
        raise StoreError(f"{folder}: {METADATA} was altered, or comes from another folder; its fingerprint differs.")
    return behaviour


def _read_states(folder: Path, content: Mapping[str, Any] | None, size: int) -> Neighbours | None:
    if content is None:
        return None
    columns = _read(folder / STATES, content["sha256"])
    states, distances = columns["states"], columns["distances"]
    if states.shape != (len(distances), size):
        raise InputError(f"{STATES}: {list(states.shape)} states for {size} features and {len(distances)} distances")
    return Neighbours(states, distances, int(content["k"]))


def _read(file: Path, checksum: str) -> dict[str, Tensor]:
    columns = read_tensors(file, checksum)
    if not all(torch.isfinite(tensor).all() for tensor in columns.values() if tensor.is_floating_point()):
        raise StoreError(f"{file}: has entries that are not finite.")
    return columns
