"""What a causal model of transitions is: `step`, its exact inverse `abduct`, and Lipschitz constants.

Shapes. All tensors broadcast over leading dimensions: states [..., D], context [..., C], actions [...] (whole
numbers), noise [..., D]. Everything is in the scaled coordinates of `model.scaler`.
"""

from __future__ import annotations

import copy
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ifonly.data.cohort import Cohort
from ifonly.data.episode import Episode, FloatArray
from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.errors import InputError
from ifonly.models.fit_report import FitReport
from ifonly.models.noise import NoisePrior
from ifonly.models.standing import Standing

if TYPE_CHECKING:
    from ifonly.models.smooth import SmoothStep


class TransitionModel(nn.Module, ABC):
    """A bijective structural causal model of transitions: next state = step(state, context, action, noise).

    Subclasses give `step`, `abduct` and `lipschitz`. A subclass that is saved in checkpoints also has a `kind`
    and says in `settings` how to construct it again. `ifonly.testing.check_transition_model` tests all that is
    promised here.
    """

    kind: ClassVar[str] = ""
    """The name under which checkpoints know this class."""
    elementwise: ClassVar[bool] = True
    """Whether feature i of the next state depends on noise i alone: then counterfactuals are identifiable."""

    standing: Standing | None = None
    """What `ifonly.check_model` concluded about this model, as it is; None for one that was not checked."""

    action_vectors: Tensor

    def __init__(self, schema: Schema, scaler: Scaler | None = None) -> None:
        super().__init__()
        self.schema = schema
        self.register_buffer("action_vectors", torch.empty(0), persistent=False)
        self.set_scaler(scaler or Scaler.identity(schema))

    def set_scaler(self, scaler: Scaler) -> None:
        """Take over the coordinates that `scaler` defines."""
        self.scaler = scaler
        vectors = scaler.actions.encode(np.array(self.schema.actions.vectors))
        # Kept in float64 until `to` says otherwise, so that exact work sees exact doses.
        dtype = next((p.dtype for p in self.parameters()), torch.float64)
        self.action_vectors = torch.as_tensor(vectors, dtype=dtype, device=self.action_vectors.device)

    @property
    def state_size(self) -> int:
        """Number of dynamic features, D; the noise has as many entries."""
        return len(self.schema.dynamic)

    @property
    def context_size(self) -> int:
        """Number of columns of the context, C: the static and contextual features, and what a model adds to them."""
        return len(self.schema.context)

    def encode_context(self, record: Episode | Cohort) -> FloatArray:
        """The context [T, C] of every recorded step, in scaled coordinates.

        It begins with the columns of `schema.context`. A model may add what it infers from the recorded steps, the same
        at every step of an episode: as part of the context it stays what it is in every counterfactual.
        """
        return self.scaler.context.encode(record.context)

    @property
    def action_count(self) -> int:
        """Number of actions, A."""
        return len(self.schema.actions)

    @abstractmethod
    def step(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The next states [..., D]: the transition mechanism g_S (eq:scm_trans)."""

    @abstractmethod
    def abduct(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> Tensor:
        """The noise [..., D] under which `step` leads to `next_states`, exactly (def:invertible)."""

    @abstractmethod
    def lipschitz(self, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """Constants K [...] with |step(x) - step(y)| <= K |x - y| for all states x, y (def:lipschitz_scm).

        They must hold for the weights as they are, not as training meant them to be. float64.
        """

    def smooth(self) -> SmoothStep | None:
        """How `step` depends on the state, for bounds that need its derivatives; call it on a `for_search` copy.

        None (the default) where the step has kinks or nothing is known: then the Lipschitz constants must do. A
        subclass that changes `step` must change this too.
        """
        return None

    def noise_slopes(self, states: Tensor, context: Tensor, actions: Tensor) -> Tensor | None:
        """How far each feature of the next states can move per unit of its own noise [..., D], at most.

        None (the default) where nobody knows. A formula must hold for the very `step` of this class: a subclass that
        changes `step` gets None until it gives its own (see `LocationScale`).
        """
        return None

    def settings(self) -> dict[str, Any]:
        """Constructor arguments beside schema and scaler, as plain types."""
        return {}

    @classmethod
    def from_settings(cls, schema: Schema, settings: Mapping[str, Any], scaler: Scaler) -> Self:
        """The model that `settings` described, before its weights are loaded."""
        return cls(schema, scaler=scaler, **settings)

    def bake_(self) -> None:
        """Compute once what depends on the weights alone, so that evaluation is cheap.

        Keep it in buffers with `persistent=False`: the `state_dict`, and with it the fingerprint, must stay.
        """

    def is_baked(self) -> bool:
        """Whether there is nothing to gain from `bake_`."""
        return True

    def for_search(self, device: torch.device | str = "cpu") -> Self:
        """A frozen float64 copy on `device`: what searches and proofs work with."""
        shared = {id(frozen): frozen for frozen in (self.schema, self.scaler)}  # never modified, so never copied
        model = copy.deepcopy(self, shared).to(device=device, dtype=torch.float64)
        model.set_scaler(self.scaler)
        model.bake_()
        return model.eval().requires_grad_(False)

    def is_for_search(self, device: torch.device | str) -> bool:
        """Whether this is such a copy already."""
        wanted = torch.device(device)
        tensors = [*self.parameters(), *self.buffers()]
        return (
            not self.training
            and self.is_baked()
            and all(t.dtype == torch.float64 for t in tensors if t.is_floating_point())
            # "cuda" means any GPU, "cuda:1" that one.
            and all(t.device.type == wanted.type and wanted.index in (None, t.device.index) for t in tensors)
            and not any(p.requires_grad for p in self.parameters())
        )

    def fingerprint(self) -> str:
        """A hash of kind, settings, schema, scaling and every weight: what a result was computed with.

        The weights are hashed as they are stored, not as a normalisation turns them out: its last bits differ from
        one processor to the next. A float32 model and its `for_search` copy have the same fingerprint.
        """
        head = [self.kind or type(self).__qualname__, self.schema.fingerprint, self.scaler.to_dict(), self.settings()]
        digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
        for name, tensor in sorted(self.state_dict().items()):
            values = tensor.detach().cpu()
            values = values.double() if values.is_floating_point() else values
            digest.update(f"{name} {list(values.shape)}".encode())
            digest.update(values.numpy().tobytes())
        return digest.hexdigest()[:16]


class TrainableModel(TransitionModel):
    """A model with a noise prior, a density and samples; subclasses give `invert` instead of `abduct`."""

    prior: NoisePrior
    fit_report: FitReport | None = None
    """How training went; None for a model that was not trained here."""

    def describe_fit(self) -> dict[str, Any] | None:
        """How training went, as plain types for a checkpoint; None for a model that was not trained here."""
        return None if self.fit_report is None else self.fit_report.to_dict()

    def recall_fit(self, content: Mapping[str, Any]) -> None:
        """Take over what `describe_fit` gave."""
        self.fit_report = FitReport.from_dict(content)

    @abstractmethod
    def initialize(self, generator: torch.Generator) -> None:
        """Draw fresh initial parameters from `generator`."""

    @abstractmethod
    def invert(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> tuple[Tensor, Tensor]:
        """The abducted noise [..., D] and log |d noise_i / d next_state_i| [..., D].

        The sum of the latter is the log determinant; a model that is not `elementwise` may spread it as it likes.
        """

    def curvature(self) -> Tensor:
        """What a curvature penalty multiplies: a differentiable measure of how strongly `step` bends."""
        raise InputError(f"{type(self).__name__} does not say how strongly it bends; fit it with curvature=0.")

    def abduct(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> Tensor:
        """The noise [..., D] that explains `next_states`."""
        return self.invert(states, context, actions, next_states)[0]

    def log_prob(
        self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor, measured: Tensor | None = None
    ) -> Tensor:
        """Log density [...] of `next_states`, in scaled coordinates; of its `measured` entries [..., D] alone if given.

        Each entry has noise of its own, so the density of some entries is that of their noise.
        """
        noise, log_slopes = self.invert(states, context, actions, next_states)
        if measured is None:
            return self.prior.log_prob(noise) + log_slopes.sum(-1)
        return self.prior.marginal_log_prob(noise, measured) + (log_slopes * measured).sum(-1)

    def entry_log_prob(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> Tensor:
        """Log densities [..., D] of the entries of `next_states`, each on its own, in scaled coordinates.

        All that a counterfactual of an element-wise model depends on: which noise explains a value does not depend on
        how the noise of other features goes with it.
        """
        noise, log_slopes = self.invert(states, context, actions, next_states)
        return self.prior.entry_log_prob(noise) + log_slopes

    def sample(self, states: Tensor, context: Tensor, actions: Tensor, *, generator: torch.Generator) -> Tensor:
        """Next states [..., D] under noise drawn from the prior."""
        shape = np.broadcast_shapes(states.shape[:-1], context.shape[:-1], actions.shape)
        return self.step(states, context, actions, self.prior.sample(shape, generator=generator))


_KINDS: dict[str, type[TransitionModel]] = {}
"""The classes of models that checkpoints know, by their `kind`."""

ModelClass = TypeVar("ModelClass", bound=type[TransitionModel])


def register(model_class: ModelClass) -> ModelClass:
    """Let checkpoints hold models of this class, under its `kind`; usable as a class decorator."""
    kind = model_class.kind
    if not kind:
        raise InputError(f"{model_class.__name__}: give the class a `kind`, the name it has in checkpoints.")
    known = _KINDS.setdefault(kind, model_class)
    # A class that is defined anew (a reloaded module, a notebook cell) takes the place of its older self.
    if known.__qualname__ != model_class.__qualname__:
        raise InputError(f"{model_class.__name__}: the kind {kind!r} already belongs to {known.__name__}.")
    _KINDS[kind] = model_class
    return model_class


def registered_kinds() -> tuple[str, ...]:
    """The kinds of model that can be saved and loaded."""
    return tuple(sorted(_KINDS))


def class_of(kind: str) -> type[TransitionModel] | None:
    """The class registered under this name; None if there is none."""
    return _KINDS.get(kind) if isinstance(kind, str) else None
