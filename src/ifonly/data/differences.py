"""In what two schemas differ, part by part, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ifonly.data.schema import Schema


def differences(one: Schema, two: Schema) -> list[tuple[str, str, str]]:
    """Every part that a model depends on and that is not the same: its name, and what it is in either."""
    left, right = _described(one), _described(two)
    names = [*left, *(name for name in right if name not in left)]
    pairs = [(name, left.get(name, "absent"), right.get(name, "absent")) for name in names]
    return [(name, mine, yours) for name, mine, yours in pairs if mine != yours]


def _described(schema: Schema) -> dict[str, str]:
    """Everything that the fingerprint depends on, part by part, in words."""
    parts = {}
    for feature in schema.to_dict()["features"]:
        unused = {"name"} if feature["scaling"] == "bounded" else {"name", "plausible"}
        content = {key: value for key, value in feature.items() if key not in unused}
        parts[f"feature {feature['name']!r}"] = ", ".join(f"{key} {value}" for key, value in content.items())
    parts["feature order"] = ", ".join(feature.name for feature in schema.features)
    parts["step"] = f"{schema.step_length} {schema.step_unit}"
    parts["number of actions"] = str(len(schema.actions))
    axes = [f"{axis.name} {list(axis.levels)} {axis.unit}".rstrip() for axis in schema.actions.axes]
    parts["action axes"] = " x ".join(axes) or "none"
    for index, (label, vector) in enumerate(zip(schema.actions.labels, schema.actions.vectors, strict=True)):
        parts[f"action {index}"] = f"{label!r} {list(vector)}"
    return parts
