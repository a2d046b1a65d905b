"""First files for people to fill in: a query, a study. Every entry with what it means; most of them are comments."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
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
#   window: [2, 5]              # changes only at these steps, first and last
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


STUDY = """\
# A study: from the data to a report. `ifonly run {name}` does what is not done yet, stage by stage, each in a folder
# beside this file: data, card, split, fit, check, behaviour, cohort, summary, report. Killed anywhere, it goes on from
# there. `ifonly run {name} --dry-run` shows what it would do.
format: ifonly.study
version: 1

{data}

# Subjects that the model does not see: it is checked on them, and they are asked about.
split:
  test: {test}
  seed: 0

# The causal model. Refits, fitted to bootstrap samples of subjects, show how far answers depend on who was in the data.
fit:
  kind: location-scale          # or additive, post-nonlinear, monotone-flow
  # lipschitz: [1.0, 0.1]       # a limit for each function of the model; null for a free one
  hidden: [200]
  # prior: gaussian             # of the noise; or independent, laplace
  refits: {refits}
  epochs: {epochs}
  # batch_size: 256
  # learning_rate: 0.001
  # validation: 0.1             # share of subjects that choose the best epoch
  # device: cpu
  seed: 0

# Does the model explain what it has not seen? If it fails, the study stops here and says why.
check:
  seed: 0
  # by: {{age: [50, 70]}}         # groups to look at: a feature cut at edges, or at quartiles (null)
  # thresholds: thresholds.yaml

# What is asked about every episode. `ifonly query FILE` lists all that can be said here; or name such a file.
query:
  minimize: {feature}
  max_changes: {changes}
  limits: {{seconds: {seconds}}}          # for each episode
  # min_support: 0.01           # never change to what clinicians hardly ever do
  # allow_failed_model: true    # ask although the check failed; every answer says so

# What is told of every answer, beside the check of the model and what its refits say.
evidence:
  behaviour: true               # how usual changes are; false, or settings: {{epochs: 40, keep_states: true}}
  sensitivity: true             # how large an unrecorded influence would undo the gain
  each_refit: false             # solve the question for each refit, too

# Which episodes are asked about.
cohort:
  episodes: test                # or all, or a list of ids
  {first}
  # workers: 2                  # processes; one per core unless said

outputs:
  threshold: 0.15               # episodes that improve by at least this are interesting cases
  cases: {cases}                     # in the report
  # by: {{age: [50, 70]}}         # groups that the summary compares
"""

SIMULATED = """\
# Where the data come from: the simulated world, whose causal model is known. Or:
#   table: log.csv              # a row per step, with schema: schema.yaml below
#   mimic: FOLDER               # MIMIC-III or MIMIC-IV as PhysioNet ships it
#   cohort: FOLDER              # a cohort that is stored already
data:
  simulate: {{patients: {patients}, seed: 0, horizon: {horizon}}}"""

TABLE = """\
# Where the data come from: a table with a row per step. Check the schema, and fill in its units, before you run this.
data:
  table: {table}
schema: {schema}"""

MIMIC = """\
# Where the data come from: MIMIC's tables.
data:
  mimic:
    source: {source}
    cohort: sepsis3             # or all-adults
    horizon: 10-20              # fewest and most steps of four hours
    levels: learned             # of doses; or paper, or a file with levels
    # min_uses: 0               # merge levels that fewer training steps use
    # memory: 4GB
    # threads: 4
    # work: FOLDER              # keep what was read, for other cohorts from the same tables"""

STORED = """\
# Where the data come from: a cohort that is stored already.
data:
  cohort: {folder}"""


@dataclass(frozen=True)
class Sizes:
    """How large a first study is."""

    test: float = 0.2
    refits: int = 20
    epochs: int = 100
    changes: int = 3
    seconds: int = 60
    first: int | None = None
    cases: int = 20


def simulated_text(patients: int, horizon: str) -> str:
    """The section of simulated data."""
    return SIMULATED.format(patients=patients, horizon=horizon)


def study_text(
    data: str, *, name: str = "study.yaml", feature: str = DEFAULT_FEATURE, sizes: Sizes | None = None
) -> str:
    """A first study file about these data (`simulated_text` and the like)."""
    chosen = sizes or Sizes()
    first = "# first: 50                   # only so many of them" if chosen.first is None else f"first: {chosen.first}"
    values = asdict(chosen) | {"first": first}
    return STUDY.format(data=data, name=name, feature=_plain(feature), **values)


def source_text(source: Path, folder: Path, *, schema: str | None = None) -> str:
    """The section of data of a table (with its schema's file), a stored cohort or a folder of MIMIC's tables."""
    place = _plain(relative_place(source, folder))
    if schema is not None:
        return TABLE.format(table=place, schema=_plain(schema))
    return (STORED if (source / "metadata.json").is_file() else MIMIC).format(source=place, folder=place)


def relative_place(path: Path, folder: Path) -> str:
    """How a file in `folder` names a path: so that both may be moved together."""
    try:
        return os.path.relpath(path.resolve(), folder.resolve())
    except ValueError:  # another drive
        return str(path.resolve())


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
