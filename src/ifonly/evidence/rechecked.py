"""Words about an answer that are older than what is known of the model's check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ifonly.evidence.trusted import CHECK_KIND, CHECKED, Trust
from ifonly.models.standing import Standing


def with_check(row: Mapping[str, Any], standing: Standing | None) -> dict[str, Any]:
    """`trust`, `warnings` and `warning_kinds` of a row (`Trust.to_row`), with what is known now of the model's check.

    A check may come after the answer. Where nothing is known, or was told of the answer, the words stay as they are.
    """
    words = {name: row.get(name) for name in ("trust", "warnings", "warning_kinds")}
    if standing is None or words["trust"] is None:
        return words
    known = Trust(changed_steps=(), model_check=standing)
    rest = [part for part in words["trust"].split("; ") if part not in CHECKED.values()]
    told = zip(words["warnings"] or (), words["warning_kinds"] or (), strict=True)
    older = [(warning, kind) for warning, kind in told if kind != CHECK_KIND]
    said = [] if standing.verdict == "pass" and rest else [CHECKED[standing.verdict]]
    return {
        "trust": "; ".join([*said, *rest]),
        "warnings": [*known.warnings, *(warning for warning, _ in older)],
        "warning_kinds": [*known.warning_kinds, *(kind for _, kind in older)],
    }
