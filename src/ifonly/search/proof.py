"""A log of a search from which its proof can be checked (`ifonly.proofs`): the question, and what was searched.

A search tells the log three things, in any order: that nodes were expanded, that leaves were replayed, and that
subtrees were cut, with their bounds and the cutoffs of that moment. docs/file-formats.md describes the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ifonly.errors import InputError
from ifonly.files import atomic_file
from ifonly.models.additive import Additive
from ifonly.models.analytic import LinearModel
from ifonly.models.base import TransitionModel
from ifonly.models.effects import SubjectEffectModel
from ifonly.models.ensemble import Ensemble
from ifonly.models.location_scale import LocationScale
from ifonly.models.networks import NetworkModel
from ifonly.problem import BaseProblem, Problem
from ifonly.problem.batch import changed
from ifonly.proofs.question import DECODER, FORMAT, VERSION, Record, digest
from ifonly.result import Result
from ifonly.rewards.bound import BoundGoals, BoundHinges, BoundLinear, BoundReward, BoundTable, BoundTotal
from ifonly.version import __version__

if TYPE_CHECKING:
    from ifonly.search.tree import ExpandedNodes

Arrays = dict[str, Any]


KINDS = {"expanded": ("outcomes",), "leaves": ("outcomes",), "cuts": ("bounds", "thresholds")}
"""What a tree is made of, and the numbers that belong to each row."""


class ProofLog:
    """What a search of one problem tells; `write` makes a file of it when the search has ended.

    A file has one tree for every budget, as the search has: each row belongs to the budget that was being proven.
    """

    def __init__(self, problem: BaseProblem) -> None:
        """Refuses questions that the checker cannot replay."""
        self._header, self._arrays = question_of(problem)
        self._observed = problem.observed_actions
        self._batch = problem.as_batch
        self._rows: dict[str, list[dict[str, Tensor]]] = {kind: [] for kind in KINDS}
        self.complete = False
        """Whether the search came to its end."""

    def expanded(self, budget: int, sequences: Tensor, outcomes: Tensor) -> None:
        """Nodes [N, T] were replayed, and their children are bounded next."""
        self._add("expanded", budget, sequences, outcomes=outcomes)

    def replayed(self, budget: int, sequences: Tensor, outcomes: Tensor) -> None:
        """Leaves [N, T] were replayed to the end."""
        self._add("leaves", budget, sequences, outcomes=outcomes)

    def cut(self, budget: int, sequences: Tensor, bounds: Tensor, cutoffs: Tensor) -> None:
        """Subtrees below sequences [N, T] were cut, with bounds [N] and the cutoffs [N] that these did not exceed."""
        self._add("cuts", budget, sequences, bounds=bounds, thresholds=cutoffs)

    def cut_changes(self, nodes: ExpandedNodes, where: Tensor, bounds: Tensor, cutoffs: Tensor) -> None:
        """Changes `where` [N, T, A] of expanded nodes were cut, with bounds [N, T, A] and cutoffs [N]."""
        parent, step, action = where.nonzero(as_tuple=True)
        sequences = changed(nodes.sequences[parent], step, action)
        self.cut(nodes.budget, sequences, bounds[parent, step, action], cutoffs[parent])

    def idle(self, nodes: ExpandedNodes, where: Tensor, cost: float) -> None:
        """Actions `where` [N, A] of the last step were left out: they change nothing but the number of changes."""
        parent, action = where.nonzero(as_tuple=True)
        step = torch.full_like(parent, nodes.sequences.shape[1] - 1)
        sequences = changed(nodes.sequences[parent], step, action)
        self.replayed(nodes.budget, sequences, nodes.paths.outcomes[parent] - cost)

    def _add(self, kind: str, budget: int, sequences: Tensor, **values: Tensor) -> None:
        """Keep rows below which the rules leave something within the budget."""
        changes, first = sequences != self._observed, torch.zeros_like(sequences[:, 0], dtype=torch.int64)
        after = (changes * torch.arange(1, sequences.shape[1] + 1, device=sequences.device)).amax(1)
        positions = self._batch.positions(first, sequences).gather(1, after.unsqueeze(1)).squeeze(1)
        rows = (changes.sum(1) + self._batch.changes_needed(after, first, positions) <= budget).nonzero().squeeze(-1)
        if len(rows):
            budgets = torch.full_like(rows, budget, dtype=torch.int16)
            kept = {"": sequences[rows].to(torch.int16), "/budgets": budgets}
            kept |= {f"/{name}": one[rows].to(torch.float64) for name, one in values.items()}
            self._rows[kind].append({name: one.cpu() for name, one in kept.items()})

    def write(self, path: str | Path, result: Result) -> None:
        """The whole log with what the search concluded; the file is written whole or not at all."""
        arrays = self._arrays | self._trees()
        observed = self._observed.cpu().numpy()
        frontier = result.frontier
        arrays |= {
            "best": np.array([observed if b.actions is None else b.actions for b in frontier], dtype=np.int16),
            "best/outcomes": np.array([-np.inf if b.outcome is None else b.outcome for b in frontier]),
            "best/bounds": np.array([b.upper_bound for b in frontier]),
        }
        header = self._header | {
            "complete": self.complete,
            "tolerance": result.certificate.tolerance,
            "bound": result.certificate.method,
        }
        header["sha256"] = digest(header, arrays)
        arrays["header"] = np.frombuffer(json.dumps(header, allow_nan=False).encode(), dtype=np.uint8)
        with atomic_file(path) as scratch, scratch.open("wb") as file:
            np.savez_compressed(file, **arrays)

    def _trees(self) -> Arrays:
        """The rows of every kind, one after the other."""
        found: Arrays = {}
        for kind, names in KINDS.items():
            none = {"": torch.empty(0, len(self._observed), dtype=torch.int16), "/budgets": torch.empty(0).short()}
            none |= {f"/{name}": torch.empty(0, dtype=torch.float64) for name in names}
            parts = [none, *self._rows[kind]]
            found |= {f"{kind}{name}": torch.cat([part[name] for part in parts]).numpy() for name in none}
        return found


def question_of(problem: BaseProblem) -> tuple[dict[str, Any], Arrays]:
    """The question as a header of plain types and arrays; refused where the checker could not replay it."""
    if not isinstance(problem, Problem):
        raise _refused("an ensemble is asked, and a log is one model's; ask one of its members")
    if problem.support is not None:
        raise _refused("changes must be supported, which only the behaviour model can judge; leave min_support out")
    kind, model = _model(problem.model)
    reward, parts = _reward(problem.bound_reward)
    arrays = {
        "first_state": problem.observed_states[0],
        "context": problem.context,
        "noise": problem.noise,
        "observed": problem.observed_actions.to(torch.int16),
        "symbols": torch.from_numpy(problem.automaton.symbols).to(torch.int32),
        "after": torch.from_numpy(problem.automaton.after).to(torch.int32),
        **model,
        **parts,
        **{f"decoder/{name}": getattr(problem.bound_reward.decoder, name) for name in DECODER},
    }
    header = {
        "format": FORMAT,
        "version": VERSION,
        "ifonly": __version__,
        "episode": problem.episode.id,
        "fingerprint": problem.fingerprint(),
        "max_changes": problem.max_changes,
        "change_cost": problem.change_cost,
        "reward": reward,
        **kind,
    }
    return header, {name: values.detach().cpu().numpy() for name, values in arrays.items()}


def question_differences(log: Record, problem: BaseProblem) -> list[str]:
    """In what the question of a log differs from a problem's, by the names of its entries."""
    header, arrays = question_of(problem)
    asked = [name for name in header if name != "ifonly" and log.header.get(name) != header[name]]
    for name, values in arrays.items():
        told = log.arrays.get(name)
        # Noise that was abducted on another machine may differ in its last digits.
        if told is None or told.shape != values.shape or not np.allclose(told, values, rtol=1e-9, atol=1e-9):
            asked.append(name)
    return asked + [name for name in log.arrays if name.startswith("reward/") and name not in arrays]


def _refused(why: str) -> InputError:
    return InputError(f"no log of this search can be written for a check of its proof: {why}.")


def _model(model: TransitionModel) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What replays need of a model, where its step is one of those that the checker knows."""
    while type(model).step in (SubjectEffectModel.step, Ensemble.step):  # which hand over to another model
        assert isinstance(model, SubjectEffectModel | Ensemble)
        model = model.second if isinstance(model, SubjectEffectModel) else model.centre
    own = type(model).step
    if own is LinearModel.step:
        assert isinstance(model, LinearModel)
        names = ("state_matrices", "offsets", "context_matrix", "noise_scale")
        return {"model": "linear"}, {f"model/{name}": getattr(model, name) for name in names}
    if own not in (LocationScale.step, Additive.step):
        raise _refused(
            f"the checker replays linear, additive and location-scale models, not {model.kind or type(model).__name__}"
        )
    assert isinstance(model, NetworkModel)
    arrays = {"model/diagonal": model.skip.diagonal(model.action_vectors)}
    for name in ("location", "scale") if own is LocationScale.step else ("location",):
        network = getattr(model, name)
        arrays |= {
            f"model/{name}/state": network.state.weight(),
            f"model/{name}/context": network.context.weight(),
            f"model/{name}/actions": model.action_vectors @ network.action.weight().mT + network.biases[0],
            **{f"model/{name}/matrix {n}": layer.weight() for n, layer in enumerate(network.layers)},
            **{f"model/{name}/bias {n}": network.biases[n + 1] for n in range(len(network.layers))},
        }
    kind = "location-scale" if own is LocationScale.step else "additive"
    return {"model": kind, "activation": model.activation}, arrays


def _reward(reward: BoundReward) -> tuple[list[str], dict[str, Tensor]]:
    """The parts of a reward: their kinds and numbers."""
    kinds: list[str] = []
    arrays: dict[str, Tensor] = {}
    for number, part in enumerate(reward.parts if isinstance(reward, BoundTotal | BoundGoals) else [reward]):
        name = f"reward/{number}"
        if isinstance(reward, BoundGoals):
            arrays[f"{name}/steps"] = reward.step_weights[number]
        if isinstance(part, BoundTable):
            kinds.append("table")
            arrays[f"{name}/table"] = part.table
        elif isinstance(part, BoundLinear | BoundHinges):
            forms = part.form if isinstance(part, BoundLinear) else part.forms
            kinds.append("linear" if isinstance(part, BoundLinear) else "hinges")
            arrays |= {f"{name}/weights": forms.weights, f"{name}/constants": forms.constants}
            if isinstance(part, BoundHinges):
                arrays[f"{name}/factors"] = part.factors
        else:
            raise _refused("the reward is code, which a log cannot hold; use sums of features, penalties, action costs")
    return kinds, arrays
