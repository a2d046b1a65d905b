"""A log of a search from which its proof can be checked (`ifonly.proofs`): the question, and the tree that was searched.

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
from ifonly.models.location_scale import LocationScale
from ifonly.models.networks import NetworkModel
from ifonly.problem import BaseProblem, Problem
from ifonly.problem.batch import changed
from ifonly.proofs.question import DECODER, FORMAT, VERSION, digest
from ifonly.result import Result
from ifonly.rewards.bound import BoundHinges, BoundLinear, BoundReward, BoundTable, BoundTotal
from ifonly.version import __version__

if TYPE_CHECKING:
    from ifonly.search.tree import ExpandedNodes

Arrays = dict[str, Any]


class ProofLog:
    """What a search of one problem tells; `write` makes a file of it when the search has ended."""

    def __init__(self, problem: BaseProblem) -> None:
        """Refuses questions that the checker cannot replay."""
        self._header, self._arrays = question_of(problem)
        self._observed, self._budget = problem.observed_actions, problem.max_changes
        self._to_go = problem.changes_to_go if problem.is_restricted else None
        self._rows: dict[str, list[Tensor]] = {"expanded": [], "leaves": [], "cuts": []}
        self._values: dict[str, list[Tensor]] = {name: [] for name in ("expanded", "leaves", "cuts", "threshold")}
        self._thresholds: list[Tensor] = []
        self.complete = False
        """Whether the search came to its end."""

    def expanded(self, sequences: Tensor, outcomes: Tensor) -> None:
        """Nodes [N, T] were replayed, and their children are bounded next."""
        self._add("expanded", sequences, outcomes)

    def replayed(self, sequences: Tensor, outcomes: Tensor) -> None:
        """Leaves [N, T] were replayed to the end."""
        self._add("leaves", sequences, outcomes)

    def cut(self, sequences: Tensor, bounds: Tensor, cutoffs: Tensor) -> None:
        """Subtrees below sequences [N, T] were cut: bounds [N, budgets] of the largest budgets, cutoffs [K+1]."""
        if not len(sequences):
            return
        if not self._thresholds or not torch.equal(self._thresholds[-1], cutoffs):
            self._thresholds.append(cutoffs.clone())
        missing = self._budget + 1 - bounds.shape[1]
        self._add("cuts", sequences, torch.nn.functional.pad(bounds, (missing, 0), value=-torch.inf))
        self._values["threshold"].append(torch.full((len(sequences),), len(self._thresholds) - 1))

    def cut_changes(self, nodes: ExpandedNodes, where: Tensor, bounds: Tensor, cutoffs: Tensor) -> None:
        """Changes `where` [N, T, A] of expanded nodes were cut, with bounds [N, budgets, T, A]."""
        if self._to_go is not None:  # below these nothing is admissible
            where = where & (nodes.depth + 1 + self._to_go <= self._budget)
        parent, step, action = where.nonzero(as_tuple=True)
        found = bounds.permute(0, 2, 3, 1)[parent, step, action]
        self.cut(changed(nodes.sequences[parent], step, action), found, cutoffs)

    def idle(self, nodes: ExpandedNodes, where: Tensor, cost: float) -> None:
        """Actions `where` [N, A] of the last step were left out: they change nothing but the number of changes."""
        parent, action = where.nonzero(as_tuple=True)
        step = torch.full_like(parent, nodes.sequences.shape[1] - 1)
        self.replayed(changed(nodes.sequences[parent], step, action), nodes.paths.outcomes[parent] - cost)

    def _add(self, name: str, sequences: Tensor, values: Tensor) -> None:
        self._rows[name].append(sequences.to(torch.int16).cpu())
        self._values[name].append(values.to(torch.float64).cpu())

    def write(self, path: str | Path, result: Result, *, slack: float) -> None:
        """The whole log with what the search concluded; the file is written whole or not at all."""
        horizon, budgets = len(self._observed), self._budget + 1
        none = torch.empty(0, horizon, dtype=torch.int16)
        arrays = self._arrays | {name: torch.cat([none, *rows]).numpy() for name, rows in self._rows.items()}
        empty = {"expanded": (0,), "leaves": (0,), "cuts": (0, budgets)}
        names = {"expanded": "expanded_outcomes", "leaves": "leaves_outcomes", "cuts": "cut_bounds"}
        for name, target in names.items():
            arrays[target] = torch.cat([torch.empty(empty[name], dtype=torch.float64), *self._values[name]]).numpy()
        which = torch.cat([torch.empty(0, dtype=torch.int64), *self._values["threshold"]])
        arrays["cut_thresholds"] = which.to(torch.int32).numpy()
        levels = torch.empty(0, budgets, dtype=torch.float64)
        arrays["thresholds"] = torch.cat([levels, *(row.cpu().unsqueeze(0) for row in self._thresholds)]).numpy()
        observed = self._observed.cpu().numpy()
        best = [observed if one.actions is None else one.actions for one in result.frontier]
        found = [-np.inf if one.outcome is None else one.outcome for one in result.frontier]
        arrays |= {"best": np.array(best, dtype=np.int16), "best_outcomes": np.array(found)}
        header = self._header | {
            "complete": self.complete,
            "status": result.status.value,
            "tolerance": result.certificate.tolerance,
            "slack": max(slack, result.certificate.tolerance),
            "bound": result.certificate.method,
        }
        header["sha256"] = digest(header, arrays)
        arrays["header"] = np.frombuffer(json.dumps(header, allow_nan=False).encode(), dtype=np.uint8)
        with atomic_file(path) as scratch, scratch.open("wb") as file:
            np.savez_compressed(file, **arrays)


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
        "allowed": problem.allowed,
        **({} if problem.links is None else {"links": problem.links}),
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


def _refused(why: str) -> InputError:
    return InputError(f"no log of this search can be written for a check of its proof: {why}.")


def _model(model: TransitionModel) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What replays need of a model, where its step is one of those that the checker knows."""
    while isinstance(model, SubjectEffectModel) and type(model).step is SubjectEffectModel.step:
        model = model.second
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
    for number, part in enumerate(reward.parts if isinstance(reward, BoundTotal) else [reward]):
        name = f"reward/{number}"
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
