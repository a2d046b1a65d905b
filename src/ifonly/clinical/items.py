"""Which items of MIMIC's dictionaries are read, and what they stand for."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

INTUBATED_VERBAL = ("1.0 ET/Trach", "No Response-ETT")
"""The verbal responses that CareVue and MetaVision chart for intubated patients."""


@cache
def mimic_items() -> Mapping[str, Any]:
    """The packaged list: item ids by purpose with their labels, tonicity factors, antibiotics and routes.

    >>> mimic_items()["charted"]["mean_bp"]["220052"]
    'Arterial Blood Pressure mean'
    """
    text = resources.files("ifonly.clinical").joinpath("mimic_items.json").read_text(encoding="utf-8")
    items: dict[str, Any] = json.loads(text)
    return items


def ids_of(*groups: Mapping[str, Any]) -> list[int]:
    """The item ids of mappings from id to label, sorted, each once."""
    return sorted({int(item) for group in groups for item in group})


def charted_items() -> list[int]:
    """Every item that is read from the table of charted values."""
    items = mimic_items()
    return ids_of(
        *items["charted"].values(),
        *items["gcs"].values(),
        *items["weight"].values(),
        items["ventilation"],
        items["ventilation_text"],
        items["off_ventilation"],
    )


def lab_items() -> list[int]:
    """Every item that is read from the table of laboratory values."""
    items = mimic_items()
    return ids_of(*items["labs"].values(), items["blood_gas_specimen"])


def urine_items() -> list[int]:
    """Every item that is read from the table of outputs, the irrigant that went in among them."""
    items = mimic_items()
    return ids_of(items["urine"], items["irrigant_in"])


def input_items() -> list[int]:
    """Every vasopressor and every fluid."""
    items = mimic_items()
    return ids_of(*items["vasopressors"].values(), items["fluids"])


def procedure_items() -> list[int]:
    """The procedures that end mechanical ventilation."""
    return ids_of(mimic_items()["extubation_procedures"])


def labels(*, laboratory: bool) -> dict[int, str]:
    """The expected label of each item, of D_LABITEMS (`laboratory`) or of D_ITEMS."""
    items = mimic_items()
    if laboratory:
        groups = [*items["labs"].values(), items["blood_gas_specimen"]]
        return {int(item): label for group in groups for item, label in group.items()}
    return {item: label for group in _described_groups(items) for item, label in group}


def _described_groups(items: Mapping[str, Any]) -> Iterator[Iterator[tuple[int, str]]]:
    plain = [
        *items["charted"].values(),
        *items["gcs"].values(),
        *items["weight"].values(),
        *items["vasopressors"].values(),
        *(items[name] for name in ("ventilation", "extubation_procedures", "urine", "irrigant_in")),
    ]
    for group in plain:
        yield ((int(item), label) for item, label in group.items())
    for name in ("ventilation_text", "off_ventilation", "fluids"):
        yield ((int(item), entry["label"]) for item, entry in items[name].items())


def differing_labels(found: Mapping[int, str], *, laboratory: bool) -> list[int]:
    """Items that a release's own dictionary `found` describes in other words than expected (blanks and case aside).

    >>> differing_labels({220052: "arterial blood  pressure MEAN", 220181: "Heart rate"}, laboratory=False)
    [220181]
    """

    def plain(label: str) -> str:
        return " ".join(label.split()).casefold()

    expected = labels(laboratory=laboratory)
    return sorted(item for item, label in found.items() if item in expected and plain(label) != plain(expected[item]))
