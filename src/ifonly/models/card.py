"""A model card: what a stored model is, for people who find its folder; a `README.md` such as hubs show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ifonly.data.schema import Schema

TEMPLATE = """---
library_name: ifonly
tags: [causal-inference, counterfactuals, {kind}]
---

# A causal model of kind {kind}

Learned by ifonly {version}. For one recorded episode it tells which unrecorded circumstances explain what was seen, and
what would have been seen under other actions. Load it with `ifonly.load_model("FOLDER")`; its fingerprint is
`{fingerprint}`.

## What it is about

{actions}; a step is {step}.

| feature | kind | unit |
|---|---|---|
{features}

## What it was learned from

{data}

## How far to trust it

What this model says is right as far as it explains episodes that it has not seen, nothing that matters is hidden, and
actions are not far from those recorded. `ifonly check` says the first, and keeps `check.json` in this folder; without
that file nobody has looked. It is no advice about what to do, in medicine least of all.
"""


def model_card(content: Mapping[str, Any], schema: Schema) -> str:
    """The card of a model with this `model.json`: counts of what it was learned from, never a value of anybody."""
    report = content["fit_report"] or {}
    report = report.get("centre") or report
    training = report.get("training") if isinstance(report, Mapping) else None
    return TEMPLATE.format(
        kind=content["kind"],
        version=content["ifonly"],
        fingerprint=content["fingerprint"],
        step=f"{schema.step_length:g} {_plain(schema.step_unit)}".rstrip(),
        actions=_actions(schema),
        features="\n".join(
            f"| {_plain(one.name)} | {one.kind} | {_plain(one.unit) or '-'} |" for one in schema.features
        ),
        data=_data(training),
    )


def _actions(schema: Schema) -> str:
    axes = [f"{_plain(axis.name)} ({len(axis.levels)} levels)" for axis in schema.actions.axes]
    return f"{len(schema.actions)} actions" + (f": {', '.join(axes)}" if axes else "")


def _data(training: Mapping[str, Any] | None) -> str:
    if training is None:
        return "Not known: its weights were made elsewhere, or written down."
    return "{episodes:,} episodes of {subjects:,} subjects, {transitions:,} transitions.".format(**training)


def _plain(words: str) -> str:
    """Words that stay one cell of a table, and are no markup: whoever reads the card would fetch its pictures."""
    return re.sub(r"[\\`*\[\]!&<>|:]", lambda sign: f"&#{ord(sign[0])};", words)
