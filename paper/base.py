"""What an experiment is: settings, work that gives a table, and a figure drawn from the table alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import polars as pl
from matplotlib.figure import Figure

from ifonly.errors import StoreError

if TYPE_CHECKING:
    from paper.runner import Bench


@dataclass(frozen=True)
class Settings:
    """What can be set of an experiment: subclasses hold numbers, words and tuples of them."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        try:
            return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in content.items()})
        except TypeError as error:
            raise StoreError(f"settings of an experiment: an entry is missing or unknown ({error}).") from None


@dataclass(frozen=True)
class SolveSettings(Settings):
    """Of experiments that solve for single patients; those that vary something add to it."""

    patients: int = 200
    """How many, at most."""
    seconds: float | None = 60.0
    """Limit of every single solve; None: no limit."""
    device: str = "cpu"


class Experiment(ABC):
    """One figure of the paper, or one question beside them."""

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    """What the paper found, in a sentence or two."""
    settings_class: ClassVar[type[Settings]]

    @abstractmethod
    def settings(self, *, quick: bool) -> Settings:
        """The paper's settings, or little of everything."""

    @abstractmethod
    def run(self, bench: Bench, settings: Settings) -> pl.DataFrame:
        """Do what is not done yet; the table of all."""

    @abstractmethod
    def plot(self, table: pl.DataFrame) -> Figure:
        """The figure."""

    def more_figures(self, table: pl.DataFrame) -> Mapping[str, Figure]:
        """Further ones by name, where one does not show all."""
        return {}

    @abstractmethod
    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """The few numbers that the figure shows, for people to read."""

    @abstractmethod
    def findings(self, table: pl.DataFrame) -> Sequence[str]:
        """What was found here beside what the paper found, in sentences computed from the table."""
