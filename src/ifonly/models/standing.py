"""What a check of a model concluded: models carry it, so that every answer can say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ifonly.errors import InputError

FAILED = "fail"
VERDICTS = ("pass", "warn", FAILED, "not judged")


@dataclass(frozen=True)
class Standing:
    """The verdict of `ifonly.check_model`, and what it rests on."""

    verdict: str
    """"pass", "warn", "fail" or "not judged"."""
    summary: str
    """The verdict in a sentence."""
    episodes: int
    """How many the model was checked on."""
    cohort: str
    """Their fingerprint."""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise InputError(f"verdict {self.verdict!r} of a model's check: must be one of {', '.join(VERDICTS)}.")

    @property
    def failed(self) -> bool:
        """Whether answers of the model need permission."""
        return self.verdict == FAILED

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; whoever used a failed model said so."""
        return {**asdict(self), "used_although_failed": self.failed}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Standing:
        """Read what `to_dict` wrote."""
        return cls(
            verdict=str(content["verdict"]),
            summary=str(content["summary"]),
            episodes=int(content["episodes"]),
            cohort=str(content["cohort"]),
        )


def worst_of(standings: list[Standing | None]) -> Standing | None:
    """The worst standing of several models: fail, warn, not judged, pass; None where none was checked."""
    order = (FAILED, "warn", "not judged", "pass")
    known = [standing for standing in standings if standing is not None]
    return min(known, key=lambda standing: order.index(standing.verdict), default=None)
