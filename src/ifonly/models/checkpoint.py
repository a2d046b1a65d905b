"""Models on disk: a folder with `model.safetensors` (weights), `model.json` (everything else) and a card for people."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ifonly.data.parsing import parse_json
from ifonly.data.plain import json_text, read_document
from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.errors import InputError, StoreError
from ifonly.files import MOST_BYTES, atomic_folder, file_reason, require_ordinary, sha256_of
from ifonly.models.additive import Additive
from ifonly.models.analytic import LinearModel, PartitionModel
from ifonly.models.base import TrainableModel, TransitionModel, class_of, register, registered_kinds
from ifonly.models.card import model_card
from ifonly.models.effects import SubjectEffectModel
from ifonly.models.ensemble import Ensemble
from ifonly.models.flow import MonotoneFlow
from ifonly.models.location_scale import LocationScale
from ifonly.models.post_nonlinear import PostNonlinear
from ifonly.models.standing import HiddenSigns, Standing
from ifonly.version import __version__

__all__ = ["load_model", "read_metadata", "register", "registered_kinds", "save_model"]

FORMAT = "ifonly.model"
VERSION = 1
WEIGHTS = "model.safetensors"
METADATA = "model.json"
CARD = "README.md"
CHECK = "check.json"
"""What a check of the model found (`ifonly.evidence.check`), kept in the same folder."""

MOST_BYTES_OF_TENSORS = 2**32
"""Of a file of tensors: a file of holes can be larger than any disk, and takes hours to be checked."""
MOST_BYTES_OF_NAMES = 2**22
"""Of what such a file says of its tensors, some 50,000 of them; one by one they take minutes."""
LONGEST_REASON = 1000
"""Letters; torch names every tensor that is missing or too many."""
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def save_model(
    model: TransitionModel,
    path: str | Path,
    *,
    provenance: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write the model as the folder `path`, with a model card (README.md), completely or not at all.

    `provenance` (seed, settings of the fit, name of the cohort, ...) is kept as it is; it must be JSON.
    """
    if class_of(model.kind) is not type(model):
        raise InputError(
            f"{type(model).__name__} is not registered for checkpoints; give it a `kind` and call "
            "ifonly.models.register on the class."
        )
    weights = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise InputError(f"save_model: {name} has entries that are not finite; the model is of no use.")
    # A check is about the weights that are replaced: it goes with them, and stays when they do.
    with atomic_folder(path, overwrite=overwrite, outdated={CHECK}) as folder:
        write_tensors(weights, folder / WEIGHTS)
        content = {
            "format": FORMAT,
            "version": VERSION,
            "ifonly": __version__,
            "kind": model.kind,
            "settings": model.settings(),
            "dtype": _dtype_of(weights),
            "schema": model.schema.to_dict(),
            "scaling": model.scaler.to_dict(),
            "fingerprint": model.fingerprint(),
            "sha256": sha256_of(folder / WEIGHTS),
            "provenance": {"schema": model.schema.fingerprint, **(provenance or {})},
            "fit_report": model.describe_fit() if isinstance(model, TrainableModel) else None,
        }
        (folder / METADATA).write_text(json_text(content, what="save_model"), encoding="utf-8")
        (folder / CARD).write_text(model_card(content, model.schema), encoding="utf-8")


def write_tensors(tensors: Mapping[str, Tensor], file: Path, *, metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file; what the disk says against it is an `OSError`."""
    try:
        save_file(dict(tensors), file, metadata=None if metadata is None else dict(metadata))
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error)) from None


def load_model(path: str | Path, *, schema: Schema | None = None) -> TransitionModel:
    """Read what `save_model` wrote, bit by bit the same model.

    With `schema`, that of the episodes at hand, the model is refused unless it was made for these features and actions.
    """
    folder = Path(path)
    content = read_metadata(folder)
    try:
        stored = Schema.from_dict(content["schema"])
        kind, settings, dtype = content["kind"], dict(content["settings"]), _DTYPES[content["dtype"]]
        scaler = Scaler.from_dict(stored, content["scaling"])
        expected, checksum, report = content["fingerprint"], content["sha256"], content["fit_report"]
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{folder / METADATA}: broken or incomplete ({type(error).__name__}: {error}).") from None
    if schema is not None:
        schema.require_same(stored, here="the episodes", there=f"the model in {folder}")
    model_class = class_of(kind)
    if model_class is None:
        raise StoreError(
            f"{folder}: holds a model of kind {kind!r}, which is unknown here (known are "
            f"{', '.join(registered_kinds())}); import the module that registers it first."
        )
    weights = read_tensors(folder / WEIGHTS, checksum)
    try:
        model = model_class.from_settings(stored, settings, scaler).to(dtype)
        model.set_scaler(model.scaler)
        model.load_state_dict(weights)
        if report is not None and isinstance(model, TrainableModel):
            model.recall_fit(report)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, StoreError) as error:
        told = str(error)[:LONGEST_REASON]
        raise StoreError(f"{folder}: settings and weights do not make a model of kind {kind!r} ({told}).") from None
    if model.fingerprint() != expected:
        raise StoreError(
            f"{folder}: the model read has fingerprint {model.fingerprint()}, the one saved had {expected}; "
            f"{METADATA} was altered, or comes from another checkpoint."
        )
    model.standing = _stored_standing(folder, expected)
    return model.eval()


def _stored_standing(folder: Path, fingerprint: str) -> Standing | None:
    """What a check of these weights concluded, if one is kept in the folder."""
    file = folder / CHECK
    if not file.exists():
        return None
    require_ordinary(file, most=MOST_BYTES, folder=folder)
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
        levels = [(finding["kind"], finding["level"]) for finding in content["findings"]]
        hidden = HiddenSigns.of_figures(content["figures"])
        found = Standing.of_findings(
            content["verdict"], levels, int(content["episodes"]), str(content["cohort"]), hidden
        )
        return found if content["model"] == fingerprint else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise StoreError(
            f"{file}: this check of the model cannot be read ({type(error).__name__}: {error}); delete the file, and "
            "check the model again (ifonly check)."
        ) from None


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint's `model.json`, its format and version checked."""
    expected = "expected a folder that `ifonly fit` or save_model wrote"
    return read_document(Path(path) / METADATA, FORMAT, VERSION, kind="model", expected=expected)


def read_tensors(file: Path, checksum: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file, all finite, whose checksum must be the recorded one."""
    require_ordinary(file, most=MOST_BYTES_OF_TENSORS, folder=file.parent)
    try:
        found = sha256_of(file)
        if found != checksum:
            raise StoreError(f"{file}: its checksum is not the recorded one; the file was cut off or altered.")
        with file.open("rb") as content:
            names = int.from_bytes(content.read(8), "little")
        if names > MOST_BYTES_OF_NAMES:
            raise StoreError(f"{file}: names and shapes of its tensors take {names:,} bytes, as those of no model do.")
        weights: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise StoreError(f"{file}: cannot be read ({file_reason(error)}).") from None
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise StoreError(f"{file}: {name} has entries that are not finite; the model is of no use.")
    return weights


def _dtype_of(weights: Mapping[str, Tensor]) -> str:
    """The precision of the weights; float64 for a model without any."""
    found = {str(tensor.dtype).removeprefix("torch.") for tensor in weights.values() if tensor.is_floating_point()}
    if len(found) > 1 or not found <= set(_DTYPES):
        raise InputError(f"save_model: weights of type {sorted(found)}; all must be float32 or all float64.")
    return found.pop() if found else "float64"


for _model_class in (
    LocationScale,
    Additive,
    PostNonlinear,
    MonotoneFlow,
    Ensemble,
    SubjectEffectModel,
    LinearModel,
    PartitionModel,
):
    register(_model_class)
