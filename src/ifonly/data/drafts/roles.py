"""Which columns hold ids of episodes and subjects, steps and actions: by their names and by their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl

from ifonly.data.drafts.clocks import NEAR, round_distance
from ifonly.data.drafts.names import (
    ACTION_WORDS,
    EPISODE_NAMES,
    NO_TREATMENT_NAMES,
    STEP_NAMES,
    SUBJECT_NAMES,
    SUMMARIES,
    TREATMENT_NAMES,
)
from ifonly.data.drafts.readings import Reading
from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.plain import did_you_mean
from ifonly.data.times import EXAMPLES, require_known_form, require_one_kind
from ifonly.errors import InputError

SHARE_OF_ZEROS = 0.05
"""From this share on, a dose of zero is a level of its own."""

FEW_NEGATIVE = 0.05
"""Among doses with zeros, negative ones up to this share are taken for mistakes."""

MOST_CANDIDATES = 8
"""Columns tried as episodes or as steps, those with telling names first."""

MOST_CHOICES = 12
"""What somebody chooses has few different values."""

ROWS_TRIED = 50_000
"""Rows in which pairs of columns are tried; a table has the same layout throughout."""

EXACTLY = 1e-6
"""Distances that differ by no more than this share of them are equal."""

FEW_WRONG = 0.05
"""Share of cells that may be missing or wrong in a column of ids or steps: such mistakes are listed."""

DAYS = r"^(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(\d{4}|\d{6})?$"
"""Days and times without signs between their parts: as numbers they would be uneven at the ends of months and days."""

REGULAR = 0.5
"""Share of steps that must be equally far apart for a pair of columns to be taken unasked."""


@dataclass(frozen=True)
class Hints:
    """Columns named by the user; None and () leave them to be guessed."""

    episode: str | None = None
    step: str | None = None
    subject: str | None = None
    actions: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Steps:
    """How the rows of a table belong to episodes, after sorting them by episode and step."""

    order: IntArray
    """Rows [N] in sorted order."""
    first: IntArray
    """Where episodes begin in that order [E]."""
    differences: pl.Series
    """From one step to the next within an episode, in sorted order [N - E]; null where a step is no number."""
    begins: pl.Series
    """The number of each episode's first step [E]."""
    is_clock: bool
    """Whether they are times, which may be off their grid."""

    @classmethod
    def of(cls, episodes: pl.Series, step: Reading) -> Steps:
        """Sort the ids [N] and the numbers or times of the steps [N]."""
        frame = pl.DataFrame({"episode": episodes, "step": step.numbers}).with_row_index("row")
        # Episodes keep the order in which they first come up.
        ranks = frame.with_columns(pl.col("row").min().over("episode").alias("rank")).sort("rank", "step", "row")
        new = ranks["rank"].ne_missing(ranks["rank"].shift(1))
        return cls(
            order=ranks["row"].to_numpy().astype(np.int64),
            first=np.flatnonzero(new.to_numpy()),
            differences=ranks["step"].diff().filter(~new),
            begins=ranks["step"].filter(new),
            is_clock=step.is_date,
        )

    @cached_property
    def spacing(self) -> float | None:
        """The usual distance of two steps: the most frequent one; None where there is none or it is not positive.

        Of times that are hardly ever equally far apart, the round length that they come near.
        """
        usual = self.differences.drop_nulls().round(9).mode(maintain_order=True)
        found = float(usual.min()) if len(usual) and usual.min() > 0 else None  # type: ignore[arg-type, operator]
        if self.is_clock and (found is None or self._share_near(found, EXACTLY) < REGULAR):
            return round_distance(self.differences)
        return found

    @cached_property
    def wobbles(self) -> bool:
        """Whether steps are times that are mostly off their grid."""
        return self.is_clock and self.spacing is not None and self._share_near(self.spacing, EXACTLY) < REGULAR

    @property
    def is_uneven(self) -> pl.Series:
        """Which distances are not the usual one [N - E]; where times are off their grid, not even nearly."""
        assert self.spacing is not None, "there is a usual one"
        return (self.differences - self.spacing).abs() > (NEAR if self.wobbles else EXACTLY) * self.spacing

    @property
    def regularity(self) -> float:
        """Share of distances that are the usual one."""
        if self.spacing is None or not len(self.differences):
            return 0.0
        return 1.0 - float(self.is_uneven.fill_null(True).mean() or 0.0)  # type: ignore[arg-type]

    def _share_near(self, spacing: float, share: float) -> float:
        near = (self.differences - spacing).abs() <= share * spacing
        return float(near.fill_null(False).mean() or 0.0)  # type: ignore[arg-type]

    @property
    def in_order(self) -> bool:
        """Whether the table has its rows in this order already."""
        return bool((np.diff(self.order) > 0).all())

    @property
    def begin_alike(self) -> bool:
        """Whether all episodes begin with the same number."""
        return self.begins.n_unique() == 1


@dataclass(frozen=True)
class Roles:
    """The columns that are no features."""

    episode: str
    step: str
    subject: str | None
    actions: tuple[str, ...]
    same_doses: Mapping[str, str] = field(default_factory=dict)
    """Columns with another summary of the doses in a column that is an action, and that column."""


def find_roles(readings: Mapping[str, Reading], hints: Hints) -> Roles:
    """The columns of ids, steps and actions; an error says which to name where none can be found."""
    named = [hints.episode, hints.step, hints.subject, *hints.actions]
    for column in named:
        if column is not None and column not in readings:
            raise InputError(
                f"table: has no column {column!r}; found {list(readings)[:30]}.{did_you_mean(column, readings)}"
            )
    if hints.step and readings[hints.step].is_date:
        require_one_kind(readings[hints.step].texts)
    if hints.step and not readings[hints.step].values.size:
        raise InputError(
            f"table: column {hints.step!r} holds neither numbers nor times such as {EXAMPLES}, so that it cannot tell "
            "the order of steps."
        )
    if hints.episode and readings[hints.episode].distinct == len(readings[hints.episode].texts):
        raise InputError(
            f"table: every row has another id in column {hints.episode!r}; a table holds a row per step of an episode."
        )
    taken = {column for column in named if column is not None}
    episode, step = _episode_and_step(readings, hints, taken)
    if readings[step].is_date:
        require_one_kind(readings[step].texts)
    if readings[step].texts.drop_nulls().str.contains(DAYS).all():
        raise InputError(f"table: column {step!r} seems to hold days such as 20310131; write them as {EXAMPLES}.")
    taken |= {episode, step}
    subject = hints.subject or _subject(readings, episode, taken)
    taken |= {subject} if subject else set()
    free = {name: reading for name, reading in readings.items() if name not in taken}
    actions = hints.actions or _actions(free, readings[episode].texts, list(readings))
    return Roles(episode, step, subject, actions, _same_doses(free, actions))


def _episode_and_step(readings: Mapping[str, Reading], hints: Hints, taken: set[str]) -> tuple[str, str]:
    if hints.episode and hints.step:
        return hints.episode, hints.step
    free = [reading for name, reading in readings.items() if name not in taken]
    episodes = [readings[hints.episode]] if hints.episode else _ranked(filter(_may_be_episode, free), EPISODE_NAMES)
    steps = [readings[hints.step]] if hints.step else _ranked(filter(_may_be_step, free), STEP_NAMES)
    scores = {
        (one.name, two.name): _score(one, two, hints) for one in episodes for two in steps if one.name != two.name
    }
    best = max((pair for pair in scores if scores[pair] > 0), key=lambda pair: scores[pair], default=None)
    for reading in [reading for reading in free if not reading.values.size]:
        # Whose steps cannot be read: another column would only look like steps by chance.
        if _rank(reading.name, STEP_NAMES) > (_rank(best[1], STEP_NAMES) if best else 0.0):
            require_one_kind(reading.texts)
            require_known_form(reading.texts.rename(reading.name), is_time=reading.is_date)
    for reading in [] if hints.episode else free:
        once = not reading.is_complete and 2 <= reading.texts.count() == reading.distinct
        if once and _rank(reading.name, EPISODE_NAMES) > (_rank(best[0], EPISODE_NAMES) if best else 0.0):
            raise InputError(
                f"table: column {reading.name!r} seems to hold the ids of episodes, and not in every row; repeat them "
                "in each, or name another column: --column episode=NAME."
            )
    if best is None:
        for one, two in [(one, two) for one in episodes for two in steps if one.name != two.name]:
            if _rank(one.name, EPISODE_NAMES) and _rank(two.name, STEP_NAMES):
                raise InputError(
                    f"table: the steps of episodes in column {one.name!r} seem to be in {two.name!r}, but hardly any "
                    "two are equally far apart; put the table on a grid, a row for every 4 hours or whatever suits, or "
                    "number the steps 0, 1, 2, ... in a column and name it, --column step=NAME."
                )
        raise InputError(
            "table: no two columns look like the id of an episode and the number of its steps; name them with "
            f"--column episode=NAME and --column step=NAME (found {list(readings)[:30]}). A table holds one row per "
            "step, and steps count 0, 1, 2, ... within each episode, or are hours or times at equal distances; where "
            "one long log has no episodes, add a column that cuts it into some, such as the day."
        )
    return best if hints.episode else (_without_gaps(readings[best[0]], readings[best[1]], episodes), best[1])


def _without_gaps(found: Reading, step: Reading, others: Iterable[Reading]) -> str:
    """The column of episodes; where those found are subjects, and have gaps, one that parts them into whole ones.

    Fields have seasons, and machines runs: their rows stand together, and what lies between is no missing step.
    """
    if not names_subjects(found.name) or Steps.of(found.texts, step).regularity == 1:
        return found.name
    finer = (one for one in others if one.name not in (found.name, step.name))
    parts = (one for one in finer if is_constant_within(found.texts, one.texts))
    return next((one.name for one in parts if Steps.of(one.texts, step).regularity == 1), found.name)


def _may_be_episode(reading: Reading) -> bool:
    rows = len(reading.texts)
    return (
        reading.missing.sum() <= FEW_WRONG * rows
        and not reading.is_date
        and (not reading.is_numeric or reading.is_whole)
        and 2 <= reading.distinct <= rows / 2
    )


def _may_be_step(reading: Reading) -> bool:
    kind = reading.is_date or (reading.is_numeric and not _names_ids(reading))
    return kind and reading.numbers.null_count() <= FEW_WRONG * len(reading.texts) and reading.distinct >= 2


def _names_ids(reading: Reading) -> bool:
    """Whether a column's name says that it holds ids of episodes or subjects, and nothing of steps."""
    named = _rank(reading.name, EPISODE_NAMES) or _rank(reading.name, SUBJECT_NAMES)
    return named > 0 and not _rank(reading.name, STEP_NAMES)


def _score(episode: Reading, step: Reading, hints: Hints) -> float:
    """How well two columns number the steps of episodes; 0 for not at all."""
    steps = Steps.of(episode.texts.head(ROWS_TRIED), replace(step, numbers=step.numbers.head(ROWS_TRIED)))
    if steps.regularity < REGULAR:
        return 0.0
    # Where subjects have one episode each, their name is that of episodes.
    own = max(_rank(episode.name, EPISODE_NAMES), 0.5 * _rank(episode.name, SUBJECT_NAMES))
    names = own + _rank(step.name, STEP_NAMES)
    layout = 0.5 * steps.begin_alike + 0.5 * steps.in_order
    return steps.regularity + names + layout + (hints.episode is not None) + (hints.step is not None)


def _ranked(readings: Iterable[Reading], names: Sequence[str]) -> list[Reading]:
    """The likeliest candidates, by name, then in the order of the table."""
    return sorted(readings, key=lambda reading: -_rank(reading.name, names))[:MOST_CANDIDATES]


def _rank(name: str, names: Sequence[str]) -> float:
    """1 for the most telling name, less for others, 0 for an unknown one."""
    plain = re.sub(r"[\W_]+", "", name.casefold())
    candidates = [plain, plain.removesuffix("id"), plain.removesuffix("number")]
    ranks = [1 - 0.5 * names.index(candidate) / len(names) for candidate in candidates if candidate in names]
    return max(ranks, default=0.0)


def _subject(readings: Mapping[str, Reading], episode: str, taken: set[str]) -> str | None:
    """A column of subjects; none where episodes are subjects by their own name, such as patients beside sites."""
    ids, own = readings[episode].texts, _rank(episode, SUBJECT_NAMES)
    free = [r for name, r in readings.items() if name not in taken and _rank(name, SUBJECT_NAMES) > own]
    # One that stands in the first row of each episode alone is a problem of the table, and no reason to do without.
    known = [r for r in free if r.is_complete or ids.filter(~r.missing).n_unique() == ids.drop_nulls().n_unique()]
    constant = [reading for reading in known if not reading.is_date and is_constant_within(reading.texts, ids)]
    return _ranked(constant, SUBJECT_NAMES)[0].name if constant else None


def names_subjects(name: str) -> bool:
    """Whether a column's name says that it tells whom or what a row is about."""
    return _rank(name, SUBJECT_NAMES) > 0


def is_constant_within(values: pl.Series, episodes: pl.Series) -> bool:
    """Whether every episode has at most one value, missing ones aside."""
    return bool(is_constant_by(values, episodes).all())


def is_constant_by(values: pl.Series, episodes: pl.Series) -> pl.Series:
    """Of each episode [E] whether it has at most one value, missing ones aside."""
    frame = pl.DataFrame({"value": values, "episode": episodes}).drop_nulls()
    return frame.group_by("episode").agg(pl.col("value").n_unique() == 1)["value"]


def _actions(readings: Mapping[str, Reading], episodes: pl.Series, found: Sequence[str]) -> tuple[str, ...]:
    """Columns whose names speak of actions: the first one with labels, or all with numbers and all that look given.

    Of several summaries of the same doses, such as their maximum and their median, only one is an action.
    """
    named = [
        reading
        for reading in readings.values()
        if reading.distinct > 1
        and not reading.is_date
        and (set(words(reading.name)) & set(ACTION_WORDS) or looks_like_dose(reading, episodes))
    ]
    exact = [reading for reading in named if reading.name.casefold().strip() == "action"]
    labels = [reading for reading in named if not reading.is_numeric]
    chosen = (exact or labels)[:1] or named
    if not chosen:
        raise InputError(
            "table: no column's name speaks of an action; name the column of labels or numbers with --column "
            f"action=NAME, or the columns of doses, one such option for each{_like_choices(readings, episodes)} (found "
            f"{list(found)[:30]})."
        )
    best: dict[tuple[str, ...], str] = {}
    for reading in sorted(chosen, key=lambda reading: _summary(reading.name)[1]):
        best.setdefault(_summary(reading.name)[0], reading.name)
    return tuple(reading.name for reading in chosen if reading.name in best.values())


def _like_choices(readings: Mapping[str, Reading], episodes: pl.Series) -> str:
    """Columns that change within episodes and take few values, as what somebody sets does; for a message."""
    few = [
        reading
        for reading in readings.values()
        if 2 <= reading.distinct <= MOST_CHOICES
        and not reading.is_date
        and not is_constant_within(reading.texts, episodes)
    ]
    names = [reading.name for reading in sorted(few, key=lambda reading: reading.distinct)]
    return f"; few values have {names[:MOST_CANDIDATES]}" if names else ""


def _same_doses(readings: Mapping[str, Reading], actions: Sequence[str]) -> dict[str, str]:
    """Columns that summarise the doses of an action's column in another way."""
    ours = {_summary(name)[0]: name for name in actions if _summary(name)[1] < len(SUMMARIES)}
    summaries = {name: _summary(name) for name, reading in readings.items() if reading.is_numeric}
    return {
        name: ours[drug]
        for name, (drug, place) in summaries.items()
        if name not in actions and drug in ours and place < len(SUMMARIES)
    }


def _summary(name: str) -> tuple[tuple[str, ...], int]:
    """A column's name without words for summaries, and which of `SUMMARIES` it has; their number for none."""
    parts = re.findall(r"[a-z0-9]+", name.casefold())
    kinds = [SUMMARIES.index(part) for part in parts if part in SUMMARIES]
    drug = tuple(part for part in parts if part not in SUMMARIES)
    return (drug, min(kinds)) if kinds and drug else (tuple(parts), len(SUMMARIES))


def looks_like_dose(reading: Reading, episodes: pl.Series) -> bool:
    """Whether a column is likely to hold what was given: its name, mostly nothing, and no running total."""
    names = set(words(reading.name))
    if not names & _words_of(TREATMENT_NAMES) or names & _words_of(NO_TREATMENT_NAMES) or not reading.is_numeric:
        return False
    values = without_slips(reading.values)
    if not values.size or values.min() < 0 or float((values == 0).mean()) < SHARE_OF_ZEROS:
        return False
    sizes, counts = np.unique(values, return_counts=True)
    falls = (reading.numbers.diff() < 0) & (episodes == episodes.shift(1))
    return float(sizes[counts.argmax()]) == 0 and bool(falls.fill_null(False).any())


def without_slips(values: FloatArray) -> FloatArray:
    """Doses without a few negative ones, where zeros say that there is no dose below them."""
    negative, rest = values < 0, values[values >= 0]
    few = 0 < negative.sum() <= FEW_NEGATIVE * values.size
    return rest if few and (rest == 0).mean() >= SHARE_OF_ZEROS and rest.max() > 0 else values


def _words_of(names: Sequence[str]) -> set[str]:
    """As `words` writes them."""
    return {word for name in names for word in words(name)}


def words(name: str) -> list[str]:
    """The words of a column's name, in small letters, without plural endings.

    >>> words("Vasopressor_doses (mcg)")
    ['vasopressor', 'dose', 'mcg']
    """
    return [word.removesuffix("s") if len(word) > 3 else word for word in re.findall(r"[a-z]+", name.casefold())]
