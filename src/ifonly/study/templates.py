"""First files for people to fill in: a query, a study. Every entry with what it means; most of them are comments."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from ifonly.data.schema import Schema

DEFAULT_FEATURE = "SOFA"

QUERY = """\
# A query: what is asked about every episode. `ifonly solve`, `cohort` and `serve` take it with --query; a study has
# it as its `query:`. What is left out, or stands behind a #, has its default.{about}

# What counts as better: minimize or maximize the sum of one feature over all steps ...
minimize: {feature}
# maximize: {feature}
# ... or make the sum of features times weights large, in original units:
# weights: {{{feature}: -1.0}}
# Subtract so much for each step with this action, by its number or label:
# costs: {{24: 0.5}}
# Subtract so much for each changed step:
# change_cost: 0.0

# At most this many steps may differ from what was done; none: any number.
max_changes: 3

# Which sequences may be considered. Steps count from 0; actions are numbers or labels.
# constraints:
#   locked: [0]                 # steps whose recorded action stays
#   forbidden: {{every: [24]}}    # actions never changed to, at every step or at some: {{3: [24]}}
#   required: {{3: 7}}            # actions that are taken
#   choices: {{3: [0, 5]}}        # the only actions allowed at a step, beside the recorded one
#   max_shift: 2                # levels away from the dose recorded, on every axis or on some: {{fluids: 2}}
#   max_jump: 1                 # levels away from the dose of the step before
#   last_action_fixed: true     # the last action, such as a discharge, stays

# Whom to ask of an ensemble: its centre alone (no objective), the mean over its refits, the worst of them, or a lower
# quantile such as 0.1.
# objective: worst
# Never change to an action less likely than this at the state then reached; needs a behaviour model.
# min_support: 0.01
# support_share: 1.0            # with an objective: the share of refits at whose states it must be so

# What to tell of every answer.
# each_refit: true              # solve the question for each refit, too: how many change the same steps?
# sensitivity: true             # how large would an unrecorded influence have to be to undo the gain?

# When a search stops early; the answer is then a bracket.
# limits:
#   seconds: 60
#   nodes: 1000000
#   gap: 0.0                    # in the outcome's units
#   memory: 4096                # MiB; beyond, branch and bound goes on depth first

# Who answers: branch-and-bound, anchor-astar and exhaustive prove that nothing better exists; greedy, beam, top and
# random do not.
# solver:
#   name: branch-and-bound      # its settings: alternatives (the N best sequences), within (all as close as this)
#   alternatives: 5
#   within: 0.5
# solver: {{name: anchor-astar, samples: 2000, strategy: lipschitz, shared: false, seed: 0}}   # or anchors: 500

# Ask a model although it failed its check; every answer then says so.
# allow_failed_model: true
"""


def query_text(schema: Schema | None = None) -> str:
    """A first query file; with a schema, its features and actions are named."""
    if schema is None:
        return QUERY.format(feature=DEFAULT_FEATURE, about="")
    features = [feature.name for feature in schema.dynamic]
    feature = DEFAULT_FEATURE if DEFAULT_FEATURE in features else features[0]
    labels = schema.actions.labels
    about = [f"Features: {', '.join(features)}.", f"Actions: {_listed(labels)}."]
    return QUERY.format(feature=_plain(feature), about="".join(f"\n# {line}" for line in about))


def _listed(labels: Iterable[str]) -> str:
    named = [f"{number} {label}" for number, label in enumerate(labels)]
    shown = named if len(named) <= 6 else [*named[:3], "...", named[-1]]
    return "; ".join(shown).replace("\n", " ")


def _plain(text: str | Path) -> str:
    """Text as YAML writes it on one line."""
    return yaml.safe_dump(str(text), default_flow_style=True, width=10_000, allow_unicode=True).split("\n")[0]
