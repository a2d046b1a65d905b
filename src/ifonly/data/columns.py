"""Which columns of a user's table hold ids, steps, and actions as labels or as doses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.joins import JoinedTable
from ifonly.data.labels import LabelColumn, labels_from_dict, labels_to_dict
from ifonly.data.plain import as_list, as_numbers, check_keys, check_name, repeated
from ifonly.data.schema import ActionSpace, Axis
from ifonly.data.times import Duration, as_spacing
from ifonly.errors import InputError
from ifonly.records import to_plain

SAME_DOSE = 1e-9
"""Doses that differ from a level by no more than this, relative to the largest level, are that level."""

AUTO = "auto"
"""In a schema file: what was measured is guessed from exact repeats."""

UNKNOWN_LEVEL = -1
"""Stands for a dose that is none of the levels."""


@dataclass(frozen=True)
class DoseColumn:
    """The column with the doses of one axis, and how they become its levels.

    Without `edges` every dose must be one of the levels. With edges, one fewer than levels, level i stands for doses
    above edge i - 1, up to and including edge i: edges (0, 3) with levels (0, 2, 5) make 0 out of 0 and anything
    below, 2 out of doses up to 3, and 5 out of all above.
    """

    axis: str
    column: str
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        where = f"table: doses of {self.axis!r}"
        check_name("table: doses", "axis", self.axis)
        check_name(where, "column", self.column)
        object.__setattr__(self, "edges", as_numbers(f"{where}: edges", self.edges))

    def require_fit(self, axis: Axis) -> None:
        """Refuse edges that do not make exactly the axis' levels out of doses."""
        if not self.edges:
            return
        where = f"table: doses of {self.axis!r}: edges {list(self.edges)}"
        if len(self.edges) != len(axis.levels) - 1:
            raise InputError(f"{where}: {len(axis.levels)} levels need {len(axis.levels) - 1} edges between them.")
        if any(high <= low for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise InputError(f"{where}: must increase.")
        strangers = [axis.show(level) for index, level in enumerate(axis.levels) if self._bin(level) != index]
        if strangers:
            raise InputError(f"{where}: level(s) {', '.join(strangers)} of the axis lie outside their own bin.")

    def levels_of(self, doses: FloatArray, axis: Axis) -> IntArray:
        """The index of each dose's level [N]; `UNKNOWN_LEVEL` for a dose that is none and where there are no edges."""
        if self.edges:
            return np.searchsorted(np.array(self.edges), doses, side="left").astype(np.int64)
        levels = np.array(axis.levels)
        nearest = np.abs(doses[:, None] - levels).argmin(axis=1)
        close = np.abs(doses - levels[nearest]) <= SAME_DOSE * np.abs(levels).max()
        return np.where(close, nearest, UNKNOWN_LEVEL).astype(np.int64)

    def _bin(self, dose: float) -> int:
        return int(np.searchsorted(np.array(self.edges), dose, side="left"))


@dataclass(frozen=True)
class TableColumns:
    """Names of the columns of a long table that are not features; by default those that ifonly writes itself."""

    episode: str = "episode"
    step: str = "step"
    subject: str | None = None
    """None: the column 'subject', where there is one."""
    action: str = "action"
    doses: tuple[DoseColumn, ...] = ()
    """Instead of `action`: a column per dose axis."""
    spacing: float | Duration | None = None
    """How far steps are apart: a number, such as 4 where `step` holds hours, or a length of time where it holds times,
    in text "4 h"; every episode then begins where it begins. None: steps are numbered 0, 1, 2, ... or 1, 2, 3, ..."""
    within: Duration | None = None
    """How far a time may lie from its place on the grid; None: nowhere."""
    measured: tuple[tuple[str, str], ...] = ()
    """Dynamic features and the column of each that says, by 1 or 0, whether it was measured in this step."""
    repeats_are_carried: bool = False
    """Where no column says it: whether a value that repeats the one before exactly counts as carried forward."""
    labels: tuple[LabelColumn, ...] = ()
    """Columns of words, which become features of 0 and 1."""
    join: tuple[JoinedTable, ...] = ()
    """Further tables that bring columns."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "doses", tuple(self.doses))
        object.__setattr__(self, "measured", tuple((feature, column) for feature, column in self.measured))
        for feature, column in self.measured:
            check_name("table: measured", f"the column of {feature!r}", column)
        if self.measured and self.repeats_are_carried:
            raise InputError("table: measured comes from columns or is guessed from repeats ('auto'), not both.")
        for role, column in self._roles():
            check_name("table", role, column)
        if twice := repeated([column for _, column in self._roles()]):
            raise InputError(
                f"table: column(s) {twice} cannot have two of these roles: episode, step, subject, action."
            )
        if self.spacing is not None:
            object.__setattr__(self, "spacing", as_spacing("table: spacing", self.spacing))
        if self.within is not None:
            self._check_within()

    def _check_within(self) -> None:
        within = as_spacing("table: within", self.within)
        object.__setattr__(self, "within", within)
        if not isinstance(within, Duration) or not isinstance(self.spacing, Duration):
            raise InputError("table: within goes with times: write both as lengths of time, `spacing: 4 h` and so on.")
        if 2 * within.seconds >= self.spacing.seconds:
            raise InputError(f"table: within {within} must be less than half the spacing, {self.spacing}.")

    @property
    def subject_column(self) -> str:
        """The column of subjects, whether it was named or not."""
        return self.subject or "subject"

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns that a table must have, besides its features."""
        return tuple(column for _, column in self._roles())

    def _roles(self) -> Iterator[tuple[str, str]]:
        yield "episode", self.episode
        if self.subject is not None:
            yield "subject", self.subject
        yield "step", self.step
        if self.doses:
            yield from ((f"doses of {dose.axis!r}", dose.column) for dose in self.doses)
        else:
            yield "action", self.action

    def require_fit(self, actions: ActionSpace) -> None:
        """Refuse dose columns that are not exactly one for each axis of the schema's actions."""
        if not self.doses:
            return
        given, wanted = [dose.axis for dose in self.doses], [axis.name for axis in actions.axes]
        if sorted(given) != sorted(wanted):
            raise InputError(
                f"table: doses are given for {given}, while the actions have the axes {wanted or 'none'}; name one "
                "column for each axis, or an action column."
            )
        for axis in actions.axes:
            self.doses_of(axis).require_fit(axis)

    def doses_of(self, axis: Axis) -> DoseColumn:
        """The column of one axis."""
        return next(dose for dose in self.doses if dose.axis == axis.name)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, as the key `table` of a schema file holds them."""
        content = {key: value for key, value in to_plain(self).items() if value is not None}
        del content["action" if self.doses else "doses"]
        content |= {
            name: str(getattr(self, name))
            for name in ("spacing", "within")
            if isinstance(getattr(self, name), Duration)
        }
        content["labels"], content["join"] = labels_to_dict(self.labels), [one.to_dict() for one in self.join]
        content["measured"] = AUTO if content.pop("repeats_are_carried") else dict(self.measured)
        for name in ("measured", "labels", "join"):
            if not content[name]:
                del content[name]
        for dose in content.get("doses", []):
            if not dose["edges"]:
                del dose["edges"]
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> TableColumns:
        """Read what `to_dict` wrote, or what a person wrote; what is left out has its usual name."""
        optional = {"episode", "step", "spacing", "subject", "action", "doses", "measured", "within", "labels", "join"}
        check_keys("table", content, required=set(), optional=optional)
        if "action" in content and "doses" in content:
            raise InputError("table: has both action and doses; an action comes from one column or from its doses.")
        said = content.get("measured", {})
        measured = {} if said == AUTO else said
        if not isinstance(measured, Mapping):
            raise InputError(
                f"table: measured must be a mapping from features to columns of 0 and 1, or {AUTO!r}: values that "
                "repeat exactly were carried forward."
            )
        rest = {key: value for key, value in content.items() if key not in ("doses", "measured", "labels", "join")}
        rest["labels"] = labels_from_dict(content.get("labels", {}))
        rest["join"] = tuple(JoinedTable.from_dict(one) for one in as_list("table", "join", content.get("join", [])))
        doses = tuple(_dose_from_dict(item) for item in as_list("table", "doses", content.get("doses", [])))
        return cls(**rest, doses=doses, measured=tuple(measured.items()), repeats_are_carried=said == AUTO)


def _dose_from_dict(content: Mapping[str, Any]) -> DoseColumn:
    check_keys("table: doses", content, required={"axis", "column"}, optional={"edges"})
    edges = as_list(f"table: doses of {content['axis']!r}", "edges", content.get("edges", []))
    return DoseColumn(content["axis"], content["column"], tuple(edges))
