"""Which items of MIMIC's dictionaries, and which labels and texts of eICU, are read, and what they stand for."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def mimic_items() -> Mapping[str, Any]:
    """The packaged list: item ids by purpose with their labels, tonicity factors, antibiotics and routes.

    >>> mimic_items()["charted"]["mean_bp"]["220052"]
    'Arterial Blood Pressure mean'
    """
    return _packaged("mimic_items.json")


@cache
def eicu_items() -> Mapping[str, Any]:
    """The packaged list of eICU: labels by purpose, and patterns for its free texts.

    >>> eicu_items()["labs"]["platelets x 1000"]
    'platelets'
    """
    return _packaged("eicu_items.json")


def _packaged(name: str) -> Mapping[str, Any]:
    items: dict[str, Any] = json.loads(resources.files("ifonly.clinical").joinpath(name).read_text(encoding="utf-8"))
    return items


def ids_of(*groups: Mapping[str, Any]) -> list[int]:
    """The item ids of mappings from id to label, sorted, each once."""
    return sorted({int(item) for group in groups for item in group})


def items_of(table: str, items: Mapping[str, Any] | None = None) -> dict[int, Any]:
    """Every item that is read from one of the tables charted, labs, outputs, inputs and procedures, by its id.

    The value is the item's label, or an entry with a `label`. `items` is the packaged list unless another is given.
    """
    items = mimic_items() if items is None else items
    groups = {
        "charted": (
            *(group for name in ("charted", "gcs", "weight") for group in items[name].values()),
            *(items[name] for name in ("ventilation", "ventilation_text", "off_ventilation")),
        ),
        "labs": (*items["labs"].values(), items["blood_gas_specimen"]),
        "outputs": (items["urine"], items["irrigant_in"]),
        "inputs": (*items["vasopressors"].values(), items["fluids"]),
        "procedures": (items["extubation_procedures"],),
    }
    return {int(item): entry for group in groups[table] for item, entry in group.items()}


def labels(*, laboratory: bool) -> dict[int, str]:
    """The expected label of each item, of D_LABITEMS (`laboratory`) or of D_ITEMS."""
    tables = ("labs",) if laboratory else ("charted", "outputs", "inputs", "procedures")
    entries = {item: entry for table in tables for item, entry in items_of(table).items()}
    return {item: entry if isinstance(entry, str) else entry["label"] for item, entry in entries.items()}


def differing_labels(found: Mapping[int, str], *, laboratory: bool) -> list[int]:
    """Items that a release's own dictionary `found` describes in other words than expected (blanks and case aside).

    >>> differing_labels({220052: "arterial blood  pressure MEAN", 220181: "Heart rate"}, laboratory=False)
    [220181]
    """

    def plain(label: str) -> str:
        return " ".join(label.split()).casefold()

    also = mimic_items()["other_labels"]
    own = labels(laboratory=laboratory)
    expected = {item: {plain(one) for one in (label, *also.get(str(item), ()))} for item, label in own.items()}
    return sorted(item for item, label in found.items() if item in expected and plain(label) not in expected[item])
