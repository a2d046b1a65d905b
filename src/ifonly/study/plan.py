"""A study file: where the data come from, how a model is fitted and checked, what is asked, and what is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, ValidationError

from ifonly.data.cohort import Cohort
from ifonly.data.plain import check_keys, read_plain
from ifonly.data.schema import Schema
from ifonly.errors import InputError, SettingError
from ifonly.evidence.behaviour import BehaviourSettings
from ifonly.files import available_cores
from ifonly.models import Additive, LocationScale, MonotoneFlow, PostNonlinear
from ifonly.models.base import TrainableModel, TransitionModel
from ifonly.models.effect_choice import SubjectEffect
from ifonly.models.fit import FitSettings
from ifonly.models.networks import Residual
from ifonly.models.recipes import FALLBACK, RECIPES, Recipe, find_recipe
from ifonly.query import Query, read_query_file
from ifonly.records import adapter, first_fault

FORMAT, VERSION = "ifonly.study", 1

Section = TypeVar("Section")

MODELS: dict[str, tuple[type[TrainableModel], tuple[float, ...]]] = {
    "location-scale": (LocationScale, (1.0, 0.1)),
    "additive": (Additive, (1.0,)),
    "post-nonlinear": (PostNonlinear, (1.0,)),
    "monotone-flow": (MonotoneFlow, (1.0, 0.1, 0.1, 0.1)),
}
"""The classes that can be fitted, each with a Lipschitz limit for each function that it is made of."""

PRIORS = ("gaussian", "independent", "laplace")


def _steps(value: Any) -> Any:
    """ "10-20", 12 or [10, 20] as the shortest and the longest."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value, value
    if isinstance(value, str) and (parts := value.split("-")) and all(part.strip().isdecimal() for part in parts):
        return int(parts[0]), int(parts[-1])
    return value


Horizon = Annotated[tuple[int, int], BeforeValidator(_steps)]
"""The shortest and the longest number of steps."""


@dataclass(frozen=True)
class SimulatedData:
    """Stays in the simulated world."""

    patients: int = 1000
    seed: int = 0
    horizon: Horizon = (10, 20)


@dataclass(frozen=True)
class TableData:
    """A long table with a row per step, and a schema file that says what its columns mean."""

    table: Path
    schema: Path


@dataclass(frozen=True)
class ClinicalData:
    """A folder - MIMIC or eICU as PhysioNet ships it, or a MEDS dataset -, or a file: the AI Clinician's table."""

    source: Path
    cohort: str = "sepsis3"
    """Or all-adults."""
    horizon: Horizon = (10, 20)
    levels: str = "learned"
    """Levels of doses: "learned", "paper", or the name of a file."""
    codes: Path | None = None
    """The code map of a MEDS dataset, or what to read of MIMIC or eICU besides the packaged lists."""
    min_uses: int = 0
    """Merge levels that fewer training steps use."""
    test: float | None = None
    seed: int = 0
    """Share and seed of the split on whose training part levels are learned; None: those of the study's split."""
    memory: str = "4GB"
    threads: int | None = None
    work: Path | None = None
    """Folder for what was read, for other cohorts from the same tables."""


@dataclass(frozen=True)
class StoredData:
    """A cohort that was stored before."""

    folder: Path


Data = SimulatedData | TableData | ClinicalData | StoredData


@dataclass(frozen=True)
class SplitPlan:
    """Which share of subjects the model does not see."""

    test: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.test < 1:
            raise SettingError("test", self.test, "must lie strictly between 0 and 1.")


def parameters_of(model: TransitionModel) -> int:
    """The size of a model."""
    return sum(weights.numel() for weights in model.parameters())


AUTO, OWN_RECIPE, PAPER, KINDS = "auto", "own", "paper", "kinds"
OWN = ("kind", "lipschitz", "residual", "prior", "curvature")
"""Entries of a `FitPlan` that a recipe would say."""


def _members(value: Any) -> Any:
    """ "none" as 0; another word than "kinds" is refused."""
    if isinstance(value, str) and value not in (KINDS, "none"):
        raise ValueError(f"{value!r} must be {KINDS}, none or a number of members")
    return 0 if value == "none" else value


Refits = Annotated[int | Literal["kinds"] | None, BeforeValidator(_members)]
"""How many members are fitted to bootstrap samples; or "kinds"; "none" is 0."""


@dataclass(frozen=True)
class FitPlan:
    """Which model is fitted, and how."""

    recipe: str = AUTO
    """"auto": the one that suits the cohort; one of `RECIPES`; "own": what kind, lipschitz, residual, prior and
    curvature say, as soon as one of them is given."""
    kind: str = "location-scale"
    lipschitz: tuple[float | None, ...] | None = None
    """A limit for each function of the model, None for a free one; None: those of `MODELS`."""
    hidden: tuple[int, ...] = (200,)
    residual: Residual = "none"
    prior: str = "gaussian"
    curvature: float = 0.0
    refits: Refits = None
    """"kinds": members of different kinds (`fit_recipe`); a number: so many fitted to bootstrap samples of subjects; 0:
    one model only; None: kinds where all recipes are compared, else 0."""
    subject_effect: SubjectEffect | None = None
    """Whether each subject has an effect of its own on each dynamic feature (`fit_with_effects`); "auto": where that
    pays on subjects held out; None: auto where all recipes are compared, else no."""
    epochs: int = 100
    batch_size: int | None = None
    learning_rate: float | None = None
    """None: as the data ask for (`FitSettings.thorough`); the paper's for its recipe and for models of your own."""
    validation: float = 0.1
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        given = [name for name in OWN if getattr(self, name) != FitPlan.__dataclass_fields__[name].default]
        if given and self.recipe == AUTO:
            object.__setattr__(self, "recipe", OWN_RECIPE)
        if self.recipe not in (AUTO, OWN_RECIPE):
            find_recipe(self.recipe, also=(AUTO,))
            if given:
                raise InputError(f"recipe {self.recipe!r} says what {given[0]} is; leave one of them out.")
        if self.kind not in MODELS:
            raise InputError(f"kind {self.kind!r} is unknown; choose from {', '.join(MODELS)}.")
        if self.prior not in PRIORS:
            raise InputError(f"prior {self.prior!r} is unknown; choose from {', '.join(PRIORS)}.")
        wanted = len(MODELS[self.kind][1])
        if self.lipschitz is not None and len(self.lipschitz) != wanted:
            raise InputError(f"lipschitz: a {self.kind} model takes {wanted} limit{'s' if wanted > 1 else ''}.")
        object.__setattr__(self, "refits", self._chosen_members())
        if self.subject_effect is None:
            object.__setattr__(self, "subject_effect", AUTO if self.recipe == AUTO else False)

    def _chosen_members(self) -> int | str:
        """How many refits there are, or "kinds"; refused where there are no kinds."""
        if self.refits is None:
            return KINDS if self.recipe == AUTO else 0
        if self.refits == KINDS and self.recipe == OWN_RECIPE:
            raise SettingError("refits", KINDS, "goes with a recipe, not with a model of your own; give a number.")
        if isinstance(self.refits, int) and self.refits < 0:
            raise SettingError("refits", self.refits, "must not be negative.")
        return self.refits

    def untrained(self, schema: Schema) -> TrainableModel:
        """The model before training; of the usual size where the cohort is yet to choose a recipe."""
        if self.recipe != OWN_RECIPE:
            return RECIPES.get(self.recipe, FALLBACK).untrained(schema, self.hidden)
        kind, usual = MODELS[self.kind]
        limits: Any = usual if self.lipschitz is None else self.lipschitz
        if all(limit is None for limit in limits):
            limits = None
        elif len(usual) == 1:
            limits = limits[0]
        return kind(  # type: ignore[call-arg]
            schema, hidden=self.hidden, residual=self.residual, prior=self.prior, lipschitz=limits
        )

    @property
    def recipes(self) -> list[Recipe]:
        """Those that are compared."""
        return list(RECIPES.values()) if self.recipe == AUTO else [find_recipe(self.recipe)]

    def size(self, schema: Schema) -> int:
        """The number of its parameters, which the data must support."""
        return parameters_of(self.untrained(schema))

    def settings(self, cohort: Cohort) -> FitSettings:
        """How it is trained; refits side by side, as many as there are cores."""
        given = {"batch_size": self.batch_size, "learning_rate": self.learning_rate}
        said = {name: value for name, value in given.items() if value is not None}
        plain = self.recipe in (OWN_RECIPE, PAPER)
        make: Callable[..., FitSettings] = FitSettings if plain else partial(FitSettings.thorough, cohort)
        return make(
            **said,
            epochs=self.epochs,
            validation=self.validation,
            curvature=self.curvature,
            device=self.device,
            threads=available_cores() if self.refits else 1,
        )


@dataclass(frozen=True)
class CheckPlan:
    """How the model is checked, on the subjects that it has not seen."""

    by: Mapping[str, tuple[float, ...] | None] = field(default_factory=dict)
    """Groups to look at: a feature's value at the first step, cut at edges or, None, at quartiles."""
    thresholds: Path | None = None
    seed: int = 0


@dataclass(frozen=True)
class BehaviourPlan:
    """How it is learned what clinicians do."""

    hidden: tuple[int, ...] = (64,)
    epochs: int = 40
    keep_states: bool = True
    seed: int = 0

    @property
    def settings(self) -> BehaviourSettings:
        """The same for `fit_behaviour`."""
        return BehaviourSettings(hidden=self.hidden, epochs=self.epochs, keep_states=self.keep_states)


@dataclass(frozen=True)
class EvidencePlan:
    """What is told of every answer, beside the model's check and its refits."""

    behaviour: BehaviourPlan | None = field(default_factory=BehaviourPlan)
    """None: nothing is learned about what clinicians do."""
    each_refit: bool = False
    honest: bool = True
    sensitivity: bool = True


@dataclass(frozen=True)
class CohortPlan:
    """Which episodes are asked about, and who does the work."""

    episodes: str | tuple[str, ...] = "test"
    """"test", those of subjects that the model has not seen; "all"; or ids."""
    first: int | None = None
    """Only so many of them."""
    workers: int | None = None
    """Processes; None: one per core."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        if isinstance(self.episodes, str) and self.episodes not in ("test", "all"):
            raise InputError(f"episodes {self.episodes!r}: say test, all, or a list of ids.")
        if self.first is not None and self.first < 1:
            raise SettingError("first", self.first, "must be at least 1.")


@dataclass(frozen=True)
class OutputsPlan:
    """What card, summary and report show."""

    severity: str | None = None
    """The card compares episodes by this feature; None: SOFA, where there is one."""
    smallest_cell: int = 5
    """The card hides figures that rest on fewer subjects."""
    threshold: float = 0.15
    """Episodes that improve by at least this are interesting cases."""
    by: Mapping[str, tuple[float, ...] | None] = field(default_factory=dict)
    """Groups that the summary compares."""
    cases: int = 20
    """The report shows so many of the most improved episodes."""


PARTS: dict[str, Any] = {
    "split": SplitPlan,
    "fit": FitPlan,
    "check": CheckPlan,
    "cohort": CohortPlan,
    "outputs": OutputsPlan,
}
"""The sections of a study file that are read as they stand."""


@dataclass(frozen=True)
class Study:
    """From a table to a report; checked when built. Stages are folders beside the study's file."""

    folder: Path
    data: Data
    query: Query
    split: SplitPlan = field(default_factory=SplitPlan)
    fit: FitPlan = field(default_factory=FitPlan)
    check: CheckPlan = field(default_factory=CheckPlan)
    evidence: EvidencePlan = field(default_factory=EvidencePlan)
    cohort: CohortPlan = field(default_factory=CohortPlan)
    outputs: OutputsPlan = field(default_factory=OutputsPlan)

    @property
    def asked(self) -> Query:
        """The query with what the study's evidence adds."""
        return self.query.with_changes(
            each_refit=self.query.each_refit or self.evidence.each_refit,
            honest=self.query.honest or self.evidence.honest,
            sensitivity=self.query.sensitivity or self.evidence.sensitivity,
        )

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], folder: Path) -> Study:
        """Read what a study file says; its paths are relative to `folder`, where the file lies."""
        optional = {"schema", "evidence", *PARTS}
        check_keys("study", content, required={"format", "version", "data", "query"}, optional=optional)
        if content["format"] != FORMAT or content["version"] != VERSION:
            found = f"{content['format']!r}, version {content['version']!r}"
            raise InputError(f"study: expected format {FORMAT!r}, version {VERSION}; found {found}.")
        given: dict[str, Any] = {
            name: _section(kind, content.get(name) or {}, name, folder) for name, kind in PARTS.items()
        }
        data = _data(content, folder)
        if isinstance(data, ClinicalData) and data.test is None:
            data = replace(data, test=given["split"].test, seed=given["split"].seed)
        return cls(
            folder=folder,
            data=data,
            query=_query(content["query"], folder),
            evidence=_evidence(content.get("evidence") or {}, folder),
            **given,
        )


def load_study(path: str | Path) -> Study:
    """The study that a YAML file describes."""
    file = Path(path)
    content = read_plain(file)
    try:
        if not isinstance(content, dict):
            raise InputError("study: expected a mapping; `ifonly init` writes a first study file.")
        return Study.from_dict(content, file.parent)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _section(kind: type[Section], content: Any, name: str, folder: Path) -> Section:
    """One part of a study; paths become relative to its folder."""
    where = f"study: {name}"
    known = fields(kind)  # type: ignore[arg-type]
    required = {one.name for one in known if one.default is MISSING and one.default_factory is MISSING}
    check_keys(where, content, required=required, optional={one.name for one in known})
    try:
        built = adapter(kind).validate_python(dict(content))
    except ValidationError as error:
        raise InputError(": ".join(filter(None, (where, *first_fault(error))))) from None
    for one in known:
        value = getattr(built, one.name)
        if isinstance(value, Path):
            object.__setattr__(built, one.name, folder / value)
    return built


def _data(content: Mapping[str, Any], folder: Path) -> Data:
    given, schema = content["data"], content.get("schema")
    clinical_kinds = ("mimic", "eicu", "meds")
    kinds = ("simulate", "table", *clinical_kinds, "cohort")
    check_keys("study: data", given, required=set(), optional=set(kinds))
    named = [name for name in kinds if given.get(name) is not None]
    if len(named) != 1:
        raise InputError(f"study: data: name one source: {', '.join(kinds)}.")
    if schema is not None and named[0] != "table":
        raise InputError(f"study: schema: goes with a table; {named[0]} brings its own.")
    value = given[named[0]]
    if named[0] == "simulate":
        return _section(SimulatedData, value if isinstance(value, Mapping) else {}, "data: simulate", folder)
    if named[0] in clinical_kinds:
        given = {"source": value} if isinstance(value, str) else value
        clinical = _section(ClinicalData, given, f"data: {named[0]}", folder)
        beside = folder / clinical.levels
        return replace(clinical, levels=str(beside)) if beside.is_file() else clinical
    if not isinstance(value, str):
        raise InputError(f"study: data: {named[0]} {value!r} must be the name of a file or folder.")
    if named[0] == "cohort":
        return StoredData(folder / value)
    if not isinstance(schema, str):
        raise InputError("study: schema: name the file that says what the table's columns mean.")
    return TableData(folder / value, folder / schema)


def _query(content: Any, folder: Path) -> Query:
    """A mapping as in a query file, or the name of one."""
    if isinstance(content, str):
        return Query.from_dict(read_query_file(folder / content))
    if not isinstance(content, Mapping):
        raise InputError("study: query: expected a mapping such as `minimize: SOFA`, or the name of a query file.")
    return Query.from_dict(content)


def _evidence(content: Any, folder: Path) -> EvidencePlan:
    check_keys("study: evidence", content, required=set(), optional={one.name for one in fields(EvidencePlan)})
    values = dict(content)
    behaviour = values.get("behaviour", True)
    if isinstance(behaviour, bool):
        values["behaviour"] = BehaviourPlan() if behaviour else None
    elif behaviour is not None:
        values["behaviour"] = _section(BehaviourPlan, behaviour, "evidence: behaviour", folder)
    return _section(EvidencePlan, values, "evidence", folder)
