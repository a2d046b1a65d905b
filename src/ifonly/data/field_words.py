"""What a field calls those it is about, and those who decide: a schema may name them, so that pages speak its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ifonly.data.plain import check_keys, check_name


@dataclass(frozen=True)
class FieldWords:
    """The words; the unit of time is that of the steps.

    >>> FieldWords(subject="bay", subjects="bays", deciders="growers").to_dict()
    {'subject': 'bay', 'subjects': 'bays', 'deciders': 'growers'}
    """

    subject: str = "subject"
    """Who or what one episode is about."""
    subjects: str = "subjects"
    deciders: str = "decision makers"
    """Who chooses actions, more than one of them."""

    def __post_init__(self) -> None:
        for name, word in asdict(self).items():
            check_name("schema: words", name, word)

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FieldWords:
        """Read what `to_dict` wrote; what is left out is neutral."""
        check_keys("schema: words", content, required=set(), optional={"subject", "subjects", "deciders"})
        return cls(**content)


NEUTRAL = FieldWords()
CLINICAL = FieldWords("patient", "patients", "clinicians")
