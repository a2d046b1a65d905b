"""How far to trust answers: what command lines ask about that, and of the sequences that they consider."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ifonly.errors import InputError

if TYPE_CHECKING:
    from ifonly.data.schema import Schema
    from ifonly.evidence import Examination
    from ifonly.models.base import TransitionModel
    from ifonly.problem import Support
    from ifonly.result import Result
    from ifonly.search.base import Solver


@dataclass(frozen=True)
class TrustChoice:
    """What a command line says: whom to ask, what changes must have behind them, and what to tell of every answer."""

    objective: str | None = None
    each_refit: bool = False
    behaviour: Path | None = None
    min_support: float | None = None
    sensitivity: bool = False
    allow_failed_model: bool = False

    def __post_init__(self) -> None:
        if self.min_support is not None and self.behaviour is None:
            raise typer.BadParameter("--min-support needs --behaviour, which says how likely actions are.")
        if self.min_support is not None and not 0 < self.min_support <= 1:
            raise typer.BadParameter(f"--min-support {self.min_support:g}: give a probability, above 0 and up to 1.")
        if isinstance(self.goal, float) and not 0 < self.goal < 1:
            raise typer.BadParameter(f"--objective {self.objective}: a quantile's level lies between 0 and 1.")

    @property
    def goal(self) -> str | float | None:
        """The objective as the library knows it; None where one model is asked."""
        if self.objective is None or self.objective in ("mean", "worst"):
            return self.objective
        try:
            return float(self.objective)
        except ValueError:
            raise typer.BadParameter(
                f"--objective {self.objective}: choose mean, worst, or the level of a lower quantile such as 0.1."
            ) from None

    def examination(self, schema: Schema) -> Examination:
        """What to tell of every answer."""
        from ifonly.evidence import Examination
        from ifonly.evidence.behaviour import load_behaviour

        learned = None if self.behaviour is None else load_behaviour(self.behaviour, schema=schema)
        return Examination(learned, self.each_refit, self.sensitivity)

    def support(self, model: TransitionModel, examination: Examination) -> Support | None:
        """What changes must have behind them; `model` is the copy that is searched."""
        if examination.behaviour is None or self.min_support is None:
            return None
        return examination.behaviour.with_threshold(self.min_support, model)

    def check(self, model: TransitionModel, solver: Solver, examination: Examination) -> None:
        """Refuse, before anything is solved, a model that failed its check, or that cannot be asked so."""
        from ifonly.problem import checked_standing, members_of

        checked_standing(model.standing, allow_failed_model=self.allow_failed_model)
        if self.objective is not None:
            members_of(model)
        examination.check(model, solver)


def support_for(result: Result, behaviour: Path | None, model: TransitionModel) -> Support | None:
    """The support that a stored result speaks of, from the behaviour model that is said to be behind it."""
    asked: Any = result.support
    if asked is None or asked.get("kind") != "behaviour":
        return None
    if behaviour is None:
        raise InputError(
            f"the result for episode {result.episode_id!r} has only changes with a probability of at least "
            f"{asked['min_support']:g} (--min-support); to check it, name the behaviour model that says so: "
            "--behaviour FOLDER."
        )
    from ifonly.evidence.behaviour import load_behaviour

    return load_behaviour(behaviour, schema=model.schema).with_threshold(asked["min_support"], model)
