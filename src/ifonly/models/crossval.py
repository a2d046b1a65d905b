"""Cross-validation over Lipschitz limits: how much goodness of fit does each limit cost? (the paper's figure 5)"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ifonly.data.cohort import Cohort
from ifonly.data.plain import check_mapping, check_version, check_whole
from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.errors import FitError, InputError, StoreError
from ifonly.files import make_folders
from ifonly.journal import Journal, line_of
from ifonly.models.base import TrainableModel
from ifonly.models.fit import DataCounts, FitSettings, evaluate, fit
from ifonly.models.location_scale import LocationScale
from ifonly.progress import Progress, Tick, silent
from ifonly.records import KnownNumber, from_plain, to_plain
from ifonly.version import __version__

FORMAT, VERSION = "ifonly.cross-validation", 1
JOURNAL_FORMAT, JOURNAL_VERSION = "ifonly.cross-validation-journal", 2
KIND = "cross-validation journal"
ADVICE = "choose another file name, or start again without it (`ifonly crossval --force` does)"
STAGE = "cross-validation"

LipschitzLimits = float | tuple[float | None, ...]
"""What a model's `lipschitz` takes: for `LocationScale` a pair (L_h, L_phi)."""
ModelFactory = Callable[[Any], TrainableModel]
"""From limits, or None for an unconstrained model, to a model."""

DEFAULT_GRID: tuple[LipschitzLimits, ...] = tuple(itertools.product((0.5, 1.0, 2.0), (0.01, 0.1, 1.0)))


@dataclass(frozen=True)
class CrossValidationPlan:
    """What to compare, and how."""

    grid: Sequence[LipschitzLimits | None] = DEFAULT_GRID
    """The limits to try; the unconstrained model (None) is always tried too."""
    folds: int = 5
    seed: int = 0
    """Decides the folds; fold number i is trained with seed + i, whatever the limits."""
    fit: FitSettings = field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        for name, least in (("folds", 2), ("seed", 0)):
            check_whole(f"cross-validation: {name}", getattr(self, name), least=least)
        limits = [_as_limits(item) for item in self.grid if item is not None]
        # A dictionary keeps the order and drops what is listed twice.
        object.__setattr__(self, "grid", tuple(dict.fromkeys(limits)))

    @property
    def configurations(self) -> tuple[LipschitzLimits | None, ...]:
        """Everything that is fitted, the unconstrained model first."""
        return (None, *self.grid)


@dataclass(frozen=True)
class CrossValidationRow:
    """How well one configuration predicts subjects it was not trained on."""

    limits: LipschitzLimits | None
    """None: the unconstrained model."""
    log_likelihoods: tuple[KnownNumber, ...]
    """Mean log-likelihood per held-out transition, one per fold, in nats."""
    mean: KnownNumber
    standard_error: KnownNumber
    decrease: KnownNumber
    """100 (LL_unconstrained - LL) / |LL_unconstrained| of the means: positive where the limits cost fit."""
    decrease_error: KnownNumber
    """Standard error of `decrease`, from the differences fold by fold."""

    @classmethod
    def of(
        cls, limits: LipschitzLimits | None, log_likelihoods: Sequence[float], unconstrained: Sequence[float]
    ) -> CrossValidationRow:
        """The row of these values, compared with those of the unconstrained model on the same folds."""
        values, reference = np.array(log_likelihoods), np.array(unconstrained)
        percent = 100 / abs(float(reference.mean())) if reference.mean() else math.nan
        return cls(
            limits=limits,
            log_likelihoods=tuple(values.tolist()),
            mean=float(values.mean()),
            standard_error=_standard_error(values),
            decrease=float((reference.mean() - values.mean()) * percent),
            decrease_error=_standard_error(reference - values) * percent,
        )


@dataclass(frozen=True)
class CrossValidation:
    """The table of a cross-validation.

    All likelihoods are measured in the same coordinates, the whole cohort standardised, so that folds and
    configurations compare on an equal footing. Percentages depend on that choice (a log-likelihood has no natural
    zero); differences between means do not.
    """

    plan: CrossValidationPlan
    rows: tuple[CrossValidationRow, ...]
    """The unconstrained model first, then the grid in its order."""
    counts: DataCounts
    provenance: Mapping[str, Any]
    """Version of ifonly, fingerprints of schema and cohort, kind and settings of the unconstrained model."""

    @property
    def unconstrained(self) -> CrossValidationRow:
        """The row to which the others are compared."""
        return self.rows[0]

    def row(self, limits: LipschitzLimits | None) -> CrossValidationRow:
        """The row of these limits."""
        for row in self.rows:
            if row.limits == limits:
                return row
        raise InputError(f"cross-validation: {limits} was not tried; rows are {[row.limits for row in self.rows]}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; `from_dict` gives the table back."""
        content: dict[str, Any] = to_plain(self)
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> CrossValidation:
        """Read what `to_dict` wrote, or the file of `ifonly crossval`, which adds format and version."""
        check_mapping("cross-validation", content)
        head = {"format": FORMAT, "version": VERSION}
        check_version("cross-validation", head | dict(content), FORMAT, VERSION, kind="cross-validation")
        return from_plain(cls, {key: content[key] for key in content if key not in head}, what="cross-validation")

    def __str__(self) -> str:
        lines = [
            f"{self.plan.folds}-fold cross-validation by subject: {self.counts}",
            "mean log-likelihood per held-out transition, +- standard error over folds",
            f"unconstrained {self.unconstrained.mean:.4f} +- {self.unconstrained.standard_error:.4f}",
        ]
        if len(self.rows) > 1:
            lines.append("change against the unconstrained model, in % of its absolute value (negative: fits worse)")
            lines += _grid_lines(self.rows[1:]) if _are_pairs(self.rows[1:]) else _list_lines(self.rows[1:])
        return "\n".join(lines)


def cross_validate(
    model: Schema | TrainableModel | ModelFactory,
    cohort: Cohort,
    plan: CrossValidationPlan | None = None,
    *,
    journal: str | Path | None = None,
    progress: Progress = silent,
) -> CrossValidation:
    """Fit every configuration of `plan` on every training fold of `cohort` and evaluate it on the fold held out.

    `model` is a function from limits (or None) to a model, such as `lambda limits: Additive(schema, lipschitz=limits)`;
    a schema stands for `LocationScale` on it, and a model for others like it but for their limits. Folds are by
    subject, and they, the subjects held out to choose the best epoch and the seeds are the same for every
    configuration: only the limits differ.

    With a `journal` (a file of JSON lines) every finished (configuration, fold) is written down at once, and a run
    that was interrupted goes on where it stopped. A journal of another model, data or settings is refused; a larger
    grid may go on in the journal of a smaller one.

    >>> from ifonly import simulate
    >>> cohort = simulate.simulate_cohort(20, seed=0)
    >>> plan = CrossValidationPlan(grid=[(1.0, 0.1)], folds=2, fit=FitSettings(epochs=2))
    >>> [row.limits for row in cross_validate(cohort.schema, cohort, plan).rows]
    [None, (1.0, 0.1)]
    """
    plan = plan or CrossValidationPlan()
    # Every model is built before hours of work begin, so that wrong limits show now.
    cells = _cells(_factory(model), plan)
    provenance = _provenance(cells[0].model, cohort)
    record = CellJournal(None if journal is None else Path(journal), _common(plan, provenance))
    folds = cohort.folds(plan.folds, seed=plan.seed)
    coordinates = Scaler.fit(cohort)
    meter = _Meter(progress, plan.fit.epochs, len(cells), sum(cell.name in record.finished for cell in cells))
    meter.show(0, {})
    for cell in cells:
        if cell.name not in record.finished:
            record.add(cell.name, _log_likelihood(cell, folds[cell.fold], plan, coordinates, meter.epoch_of_cell))
            meter.finish_cell(record.finished[cell.name])
    values: dict[LipschitzLimits | None, list[float]] = {limits: [] for limits in plan.configurations}
    for cell in cells:
        values[cell.limits].append(record.finished[cell.name])
    rows = tuple(CrossValidationRow.of(limits, found, values[None]) for limits, found in values.items())
    return CrossValidation(plan, rows, DataCounts.of(cohort), provenance)


def goes_on_from(
    earlier: CrossValidation, model: Schema | TrainableModel | ModelFactory, cohort: Cohort, plan: CrossValidationPlan
) -> bool:
    """Whether `cross_validate` with these arguments gives every row of an `earlier` table again, and perhaps more.

    That is so if data, model and settings are the same and the plan's grid contains that of the table.
    """
    wanted = _common(plan, _provenance(_factory(model)(None), cohort))
    return _common(earlier.plan, earlier.provenance) == wanted and set(earlier.plan.grid) <= set(plan.grid)


def _common(plan: CrossValidationPlan, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """What everything that may be compared has in common, as JSON has it."""
    settings = {**provenance, "folds": plan.folds, "seed": plan.seed, "fit": plan.fit}
    content: dict[str, Any] = to_plain(settings)
    return content


def _provenance(unconstrained: TrainableModel, cohort: Cohort) -> dict[str, Any]:
    unconstrained.schema.require_same(cohort.schema, here="the model", there="the cohort")
    kind = unconstrained.kind or type(unconstrained).__qualname__
    return {
        "ifonly": __version__,
        "schema": cohort.schema.fingerprint,
        "cohort": cohort.fingerprint(),
        "model": {"kind": kind, "settings": unconstrained.settings()},
    }


def _factory(model: Schema | TrainableModel | ModelFactory) -> ModelFactory:
    if isinstance(model, Schema):
        return lambda limits: LocationScale(model, lipschitz=limits)
    if isinstance(model, TrainableModel):
        if "lipschitz" not in model.settings():
            raise InputError(
                f"cross-validation: {type(model).__name__} has no setting 'lipschitz' to vary; pass a function from "
                "limits to a model."
            )
        return partial(_with_limits, model)
    if isinstance(model, type) or not callable(model):
        raise InputError(
            f"cross-validation: expected a schema, a model, or a function from limits to a model; found {model!r}."
        )
    return model


class _Cell(NamedTuple):
    """One fit: a configuration on a fold. Cells do not depend on each other."""

    limits: LipschitzLimits | None
    fold: int
    model: TrainableModel
    name: str
    """Tells apart whatever may differ between cells of one journal."""


def _cells(factory: ModelFactory, plan: CrossValidationPlan) -> list[_Cell]:
    cells = []
    for limits in plan.configurations:
        model = factory(limits)
        for fold in range(plan.folds):
            name = json.dumps([limits, type(model).__qualname__, model.settings(), fold], sort_keys=True)
            cells.append(_Cell(limits, fold, model, name))
    return cells


def _log_likelihood(
    cell: _Cell, parts: tuple[Cohort, Cohort], plan: CrossValidationPlan, coordinates: Scaler, progress: Progress
) -> float:
    """The mean log-likelihood of the fold held out, under the model fitted to the others."""
    train, held_out = parts
    where = f"cross-validation, limits {cell.limits}, fold {cell.fold}"
    try:
        fitted = fit(cell.model, train, settings=plan.fit, seed=plan.seed + cell.fold, progress=progress)
    except FitError as error:
        raise FitError(f"{where}: {error}") from error
    value = evaluate(fitted, held_out, coordinates=coordinates)
    if not math.isfinite(value):
        raise FitError(f"{where}: the log-likelihood of the subjects held out is {value}; look for extreme values.")
    return value


class _Meter:
    """Progress in epochs over all cells, so that one bar moves steadily."""

    def __init__(self, progress: Progress, epochs: int, cells: int, done: int) -> None:
        self.progress, self.epochs, self.cells, self.done = progress, epochs, cells, done

    def show(self, epochs: int, figures: Mapping[str, float]) -> None:
        """Report that so many epochs of the current cell are done."""
        self.progress(Tick(STAGE, self.done * self.epochs + epochs, self.cells * self.epochs, figures))

    def epoch_of_cell(self, tick: Tick) -> None:
        """Pass on the progress of a fit; its last epoch is reported by `finish_cell`."""
        if tick.done < self.epochs:
            self.show(tick.done, tick.figures)

    def finish_cell(self, log_likelihood: float) -> None:
        """Report a finished cell."""
        self.done += 1
        self.show(0, {"log-likelihood": log_likelihood})


def _with_limits(template: TrainableModel, limits: Any) -> TrainableModel:
    settings = {**template.settings(), "lipschitz": limits}
    return type(template).from_settings(template.schema, settings, Scaler.identity(template.schema))


def _standard_error(values: Any) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def _as_limits(limits: Any) -> LipschitzLimits:
    """Plain floats, so that 1, 1.0 and a numpy 1.0 are the same limit."""
    try:
        if isinstance(limits, Sequence):
            return tuple(None if limit is None else float(limit) for limit in limits)
        return float(limits)
    except (TypeError, ValueError):
        raise InputError(f"cross-validation: limits {limits!r} are not a number or a tuple of numbers.") from None


def _are_pairs(rows: Sequence[CrossValidationRow]) -> bool:
    return all(isinstance(row.limits, tuple) and len(row.limits) == 2 for row in rows)


def _grid_lines(rows: Sequence[CrossValidationRow]) -> list[str]:
    """A table with a line per L_h and a column per L_phi."""
    pairs: dict[Any, CrossValidationRow] = {row.limits: row for row in rows}
    first, second = (_sorted_limits({pair[i] for pair in pairs}) for i in (0, 1))
    head = "L_h \\ L_phi".rjust(12) + "".join(f"{_show(limit):>18}" for limit in second)
    body = [
        f"{_show(one):>12}" + "".join(f"{_show_change(pairs.get((one, two))):>18}" for two in second) for one in first
    ]
    return [head, *body]


def _list_lines(rows: Sequence[CrossValidationRow]) -> list[str]:
    return [f"  limits {row.limits}: {_show_change(row)}" for row in rows]


def _sorted_limits(limits: set[float | None]) -> list[float | None]:
    return sorted(limits, key=lambda limit: math.inf if limit is None else limit)


def _show(limit: float | None) -> str:
    return "none" if limit is None else f"{limit:g}"


def _show_change(row: CrossValidationRow | None) -> str:
    """A decrease of 6 is shown as a change of -6.00."""
    return "" if row is None else f"{0.0 - row.decrease:+.2f} +- {row.decrease_error:.2f}"


class CellJournal:
    """Finished cells by name; with a path, kept in a file to which each is appended as one line.

    The first line says what all cells have in common (`settings`); a journal of other settings is refused.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.finished: dict[str, float] = {}
        self._file = None if path is None else Journal(path, KIND, ADVICE)
        if self._file is not None:
            self._open(self._file, json.dumps({"format": JOURNAL_FORMAT, "version": JOURNAL_VERSION, **settings}))

    def add(self, name: str, log_likelihood: float) -> None:
        """Note a finished cell."""
        self.finished[name] = log_likelihood
        if self._file is not None:
            self._file.append([json.dumps({"cell": name, "log_likelihood": log_likelihood})])

    def _open(self, file: Journal, header: str) -> None:
        if file.path.is_dir():
            raise StoreError(
                f"{file.path} is a folder, and a journal is to be written there; choose another file name."
            )
        if _is_only_a_beginning(file.path, header):
            make_folders(file.path.parent)
            file.cut(0)
            file.append([header])
            return
        lines = list(file.lines())
        if not lines or lines[0].number != 1:
            raise file.broken(1)
        _check_header(file, file.checked(lines[0], {"format"}), header)
        for line in lines[1:]:
            entry = file.checked(line, {"cell", "log_likelihood"})
            if not (isinstance(entry["cell"], str) and isinstance(entry["log_likelihood"], int | float)):
                raise file.broken(line.number)
            self.finished[entry["cell"]] = float(entry["log_likelihood"])
        file.cut_unended()


def _is_only_a_beginning(path: Path, header: str) -> bool:
    """Whether there is nothing yet, or a file that was cut off while its first line was written."""
    whole = line_of(header)
    if not path.exists():
        return True
    with path.open("rb") as file:
        return whole.startswith(file.read(len(whole) + 1))


def _check_header(file: Journal, found: Mapping[str, Any], expected: str) -> None:
    wanted = json.loads(expected)
    differing = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    if differing:
        details = "; ".join(f"{key}: {found.get(key)} there, {wanted.get(key)} now" for key in differing)
        raise StoreError(
            f"{file.path} is the journal of another cross-validation ({details}). Go on with the same data and "
            f"settings, {ADVICE}."
        )
