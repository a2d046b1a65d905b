"""The JSON API: what every page is made of. Requests are checked as they are described, answers are records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StrictInt
from starlette.responses import Response

from ifonly.constraints import Constraints
from ifonly.data.field_words import FieldWords
from ifonly.errors import InputError
from ifonly.query import BRANCH_AND_BOUND
from ifonly.report.cases.case import Case, CaseQuestion, FeatureKind, ModelAbout, Treatments, TriedCourse
from ifonly.report.deidentify import Deidentifier
from ifonly.text.catalogue import say
from ifonly.version import __version__
from ifonly.web.agreement import ReviewerAgreement, agreement_of
from ifonly.web.exports import MEDIA_TYPES, Kind, exported, file_name
from ifonly.web.guard import ErrorAnswer, RefusalError, json_response
from ifonly.web.jobs import JobAnswer, JobDesk
from ifonly.web.listing import LONGEST_ID, STATUSES, ListPage, ListQuery
from ifonly.web.notes import (
    LONGEST_NOTE,
    LONGEST_REMARK,
    LONGEST_REVIEWER,
    ConflictError,
    Judgement,
    Note,
    Notes,
    Remark,
)
from ifonly.web.recurring import Patterns
from ifonly.web.review import Review
from ifonly.web.turns import Turns
from ifonly.web.worker import Work

MOST_ALTERNATIVES = 20
MOST_STEPS = 10_000
MOST_REMARKS = 50
TEXT = r"^[^\x00-\x08\x0B\x0C\x0E-\x1F\x7F]*$"
"""Without signs that nobody can see; lines may end."""

_ALWAYS = (401, 403, 421, 422, 500)
_WRITING = (*_ALWAYS, 400, 404, 408, 413, 415)


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorAnswer, "description": say(f"status.{status}")} for status in sorted(statuses)}


# What requests may hold


EpisodeId = Annotated[str, Field(min_length=1, max_length=LONGEST_ID, description="The id of an episode.")]
Episode = Annotated[EpisodeId, Query()]
JobId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{16}$", description="As given when the search was asked for.")]
Action = Annotated[int, Field(strict=True, ge=0, le=100_000, description="The number of a treatment.")]
Step = Annotated[int, Field(strict=True, ge=0, lt=MOST_STEPS)]
Named = Annotated[int, Field(strict=True, ge=0, le=100_000)] | Annotated[str, Field(max_length=LONGEST_ID)]
Coded = Annotated[bool, Query(description="For people outside: codes in place of ids. Needs a key on the server.")]
StepKey = Annotated[str, Field(pattern=r"^[0-9]{1,4}$")]
StepOrEvery = Annotated[str, Field(pattern=r"^([0-9]{1,4}|every)$")]
Levels = Annotated[int, Field(strict=True, ge=0, le=1000)]


class Body(BaseModel):
    """Nothing that is not known is taken: a misspelt rule would silently be none."""

    model_config = ConfigDict(extra="forbid")


class CourseRequest(Body):
    """Try a sequence of treatments."""

    episode: EpisodeId
    actions: Annotated[list[Action], Field(min_length=1, max_length=MOST_STEPS, description="One per step.")]


class RuleSet(BaseModel):
    """Which sequences may be considered; actions by number or label, steps by number, as text where they are keys.

    Rules of other kinds are those of `Constraints`, which refuses what it does not know.
    """

    model_config = ConfigDict(extra="allow")

    locked: Annotated[list[Step], Field(max_length=MOST_STEPS)] = []
    forbidden: dict[StepOrEvery, Annotated[list[Named], Field(max_length=1000)]] = {}
    required: dict[StepKey, Named] = {}
    choices: dict[StepKey, Annotated[list[Named], Field(max_length=1000)]] = {}
    max_shift: Levels | dict[str, Levels] | None = None
    max_jump: Levels | dict[str, Levels] | None = None


class JobRequest(Body):
    """Find the best under these rules."""

    episode: EpisodeId
    max_changes: Annotated[int, Field(strict=True, ge=0, le=MOST_STEPS)]
    constraints: Annotated[RuleSet | None, Field(description="Null: the rules of the query itself.")] = None
    alternatives: Annotated[int, Field(strict=True, ge=1, le=MOST_ALTERNATIVES)] = 5
    apart: Annotated[
        int | None,
        Field(strict=True, ge=1, le=MOST_STEPS, description="In how many steps they differ; null: as the query says."),
    ] = None
    seconds: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = 60.0


class RemarkRequest(Body):
    """What is said of one step."""

    step: Step
    text: Annotated[str, Field(min_length=1, max_length=LONGEST_REMARK, pattern=TEXT)]


class NoteRequest(Body):
    """A reviewer's note; `revision` is that of this reviewer's note that was read before."""

    episode: EpisodeId
    verdict: Judgement | None = None
    note: Annotated[str, Field(max_length=LONGEST_NOTE, pattern=TEXT)] = ""
    reviewer: Annotated[str, Field(max_length=LONGEST_REVIEWER, pattern=TEXT)] = ""
    revision: Annotated[StrictInt, Field(ge=0, le=1_000_000_000)]
    steps: Annotated[list[RemarkRequest], Field(max_length=MOST_REMARKS)] = []

    def note_of(self) -> Note:
        """The same as a note, with remarks in the order of their steps."""
        remarks = sorted((Remark(one.step, one.text) for one in self.steps), key=lambda one: one.step)
        return Note(self.episode, self.verdict, self.note, self.reviewer, revision=self.revision, steps=tuple(remarks))


# What this server shows


@dataclass(frozen=True)
class CohortSize:
    """The size of the cohort."""

    episodes: int
    subjects: int
    steps: int
    shortest: int
    longest: int
    fingerprint: str


@dataclass(frozen=True)
class RunAbout:
    """The run whose answers are shown."""

    episodes: int
    finished: bool
    counts: dict[str, int]
    examined: bool


@dataclass(frozen=True)
class ServerLimits:
    """How much may be asked."""

    max_changes: int
    seconds: float
    alternatives: int
    jobs: int
    jobs_per_client: int
    note: int
    reviewer: int


@dataclass(frozen=True)
class About:
    """What this server shows."""

    ifonly: str
    question: CaseQuestion
    model: ModelAbout
    cohort: CohortSize
    features: tuple[FeatureKind, ...]
    treatments: Treatments
    words: FieldWords
    time_unit: str
    step: float
    run: RunAbout | None
    statuses: tuple[str, ...]
    limits: ServerLimits
    signs_in: bool
    sample: bool
    """Whether everything is made up."""


@dataclass(frozen=True)
class Reviews:
    """What all reviewers say about one episode, the latest last."""

    episode: str
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class Desk:
    """Everything that answers are made from."""

    review: Review
    notes: Notes
    jobs: JobDesk
    seconds: float
    signs_in: bool
    turns: Turns
    """For what takes time: lists, cases and courses; not for files, whose pictures take seconds."""
    sample: bool = False
    codes: Deidentifier | None = None

    def codes_if(self, coded: bool) -> Deidentifier | None:
        """What replaces ids in an export, where that is asked for."""
        if coded and self.codes is None:
            raise RefusalError(422, "no key")
        return self.codes if coded else None

    def about(self) -> About:
        """What this server shows."""
        review, example = self.review, self.review.example
        lengths = review.cohort.lengths
        run = None if review.opened is None else review.opened.run
        return About(
            ifonly=__version__,
            question=replace(example.question, max_changes=review.query.max_changes, query=review.query.to_dict()),
            model=example.model,
            cohort=CohortSize(
                episodes=len(review.cohort),
                subjects=len(set(review.cohort.subjects)),
                steps=int(lengths.sum()),
                shortest=int(lengths.min()),
                longest=int(lengths.max()),
                fingerprint=review.fingerprint,
            ),
            features=tuple(
                FeatureKind(one.name, one.unit, one.label, one.kind, one.plausible) for one in example.features
            ),
            treatments=example.treatments,
            words=example.words,
            time_unit=example.time.unit,
            step=example.time.step,
            run=None
            if run is None
            else RunAbout(sum(run.counts.values()), run.is_finished, run.counts, review.listing.examined),
            statuses=STATUSES,
            limits=ServerLimits(
                max_changes=int(lengths.max()),
                seconds=self.seconds,
                alternatives=MOST_ALTERNATIVES,
                jobs=self.jobs.limits.workers,
                jobs_per_client=self.jobs.limits.per_client,
                note=LONGEST_NOTE,
                reviewer=LONGEST_REVIEWER,
            ),
            signs_in=self.signs_in,
            sample=self.sample,
        )

    def note(self, episode: str, reviewer: str | None = None) -> Note:
        """The latest note on an episode: of everybody's, or of one reviewer's."""
        self.review.require(episode)
        return self.notes.get(episode, reviewer)

    def reviews(self, episode: str) -> Reviews:
        """The latest note of every reviewer of an episode."""
        self.review.require(episode)
        return Reviews(episode, self.notes.reviews().get(episode, ()))

    def work(self, body: JobRequest) -> Work:
        """The search that a request asks for; rules that cannot be kept are refused."""
        rules = self.review.query.constraints if body.constraints is None else _constraints(body.constraints)
        query = self.review.ruled(body.episode, body.max_changes, rules)
        return Work(
            self.review.cohort[body.episode],
            replace(
                query,
                solver=_exact(query.solver) | {"alternatives": body.alternatives} | _apart(body.apart),
                limits=replace(query.limits, seconds=min(body.seconds, self.seconds)),
            ),
        )


def _exact(solver: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a query's solver where that is branch and bound, which live searches use."""
    return dict(solver) if solver["name"] == BRANCH_AND_BOUND else {"name": BRANCH_AND_BOUND}


def _apart(steps: int | None) -> dict[str, Any]:
    """The setting of the solver by which alternatives differ; sequences within a distance are then not asked for."""
    return {} if steps is None else {"apart": steps} | ({"within": 0.0} if steps > 1 else {})


def _constraints(rules: RuleSet) -> Constraints:
    try:
        return Constraints.from_dict(rules.model_dump())
    except InputError as error:
        raise RefusalError(422, "wrong rules", reason=error) from None


# Routes


def api_router(desk: Desk) -> APIRouter:
    """The routes under /api."""
    router = APIRouter(prefix="/api")
    about = desk.about()

    @router.get("/about", response_model=About, responses=_errors(*_ALWAYS))
    def show_about() -> Response:
        """What is asked, of which model and cohort, and how much may be asked of this server."""
        return json_response(about)

    @router.get("/episodes", response_model=ListPage, responses=_errors(*_ALWAYS, 503))
    def list_episodes(query: Annotated[ListQuery, Query()]) -> Response:
        """A page of the list of cases, searched, filtered and sorted."""
        with desk.turns:
            return json_response(desk.review.listing.page(query, desk.notes))

    @router.get("/patterns", response_model=Patterns, responses=_errors(*_ALWAYS))
    def list_patterns() -> Response:
        """The changes that recur over the answers of the run, in whom, and how often evidence supports them."""
        return json_response(desk.review.patterns)

    @router.get("/case", response_model=Case, responses=_errors(*_ALWAYS, 404))
    def show_case(episode: Episode) -> Response:
        """One case, with the run's answer where there is one."""
        with desk.turns:
            return json_response(desk.review.case(episode))

    @router.post("/course", response_model=TriedCourse, responses=_errors(*_WRITING))
    def try_course(body: CourseRequest) -> Response:
        """How an episode would have gone under other treatments, and whether the data supports them."""
        with desk.turns:
            return json_response(desk.review.course(body.episode, body.actions))

    _add_jobs(router, desk)
    _add_notes(router, desk)
    _add_export(router, desk)
    return router


def _add_jobs(router: APIRouter, desk: Desk) -> None:
    @router.post("/jobs", status_code=202, response_model=JobAnswer, responses=_errors(*_WRITING, 429))
    def start_job(body: JobRequest, request: Request) -> Response:
        """Search for the best under these rules; the answer comes at /api/jobs/{job}."""
        client = request.client.host if request.client is not None else ""
        return json_response(desk.jobs.submit(client, desk.work(body)), status=202)

    @router.get("/jobs/{job}", response_model=JobAnswer, responses=_errors(*_ALWAYS, 404))
    def show_job(job: JobId) -> Response:
        """How far a search is, and its case once it has ended."""
        return json_response(desk.jobs.look(job))

    @router.post("/jobs/{job}/stop", response_model=JobAnswer, responses=_errors(*_WRITING))
    def stop_job(job: JobId) -> Response:
        """Stop a search; it ends soon after, with what is known by then."""
        return json_response(desk.jobs.stop(job))


def _add_notes(router: APIRouter, desk: Desk) -> None:
    @router.get("/notes", response_model=Note, responses=_errors(*_ALWAYS, 404, 503))
    def show_note(
        episode: Episode,
        reviewer: Annotated[str | None, Query(max_length=LONGEST_REVIEWER, description="Theirs alone.")] = None,
    ) -> Response:
        """The latest note on a case: of everybody's, or of one reviewer's."""
        return json_response(desk.note(episode, reviewer))

    @router.get("/reviews", response_model=Reviews, responses=_errors(*_ALWAYS, 404, 503))
    def show_reviews(episode: Episode) -> Response:
        """The latest note of every reviewer of a case."""
        return json_response(desk.reviews(episode))

    @router.get("/agreement", response_model=ReviewerAgreement, responses=_errors(*_ALWAYS, 503))
    def show_agreement() -> Response:
        """How far reviewers agree, beyond chance, over the cases that two of them have judged."""
        return json_response(agreement_of(desk.notes.reviews()))

    @router.put("/notes", response_model=Note, responses=_errors(*_WRITING, 409, 503))
    def save_note(body: NoteRequest) -> Response:
        """Save a note; refused when one of the same reviewer was saved since `revision` was read."""
        desk.review.require(body.episode)
        try:
            return json_response(desk.notes.save(body.note_of()))
        except ConflictError:
            raise RefusalError(409, "conflict") from None

    @router.get("/notes.csv", response_class=Response, responses=_errors(*_ALWAYS, 503) | _file("text/csv"))
    def export_notes(coded: Coded = False) -> Response:
        """The latest note of every reviewer on every case, with what is known of the answer, as a table."""
        table = desk.notes.to_csv(desk.review.listing.answers, desk.codes_if(coded))
        return _download(table.encode(), "text/csv; charset=utf-8", "notes.csv")


def _add_export(router: APIRouter, desk: Desk) -> None:
    kinds = _file(*(media_type.partition(";")[0] for media_type in dict.fromkeys(MEDIA_TYPES.values())))

    @router.get("/export", response_class=Response, responses=_errors(*_ALWAYS, 404, 429) | kinds)
    def export_case(
        episode: Episode,
        kind: Annotated[Kind, Query(description="What kind of file.")],
        actions: Annotated[
            str | None,
            Query(max_length=8000, pattern=r"^([0-9]{1,5}(,[0-9]{1,5})*)?$", description="A sequence that was tried."),
        ] = None,
        job: Annotated[
            str | None,
            Query(pattern=r"^[A-Za-z0-9_-]{0,16}$", description="A search, for its answer instead of the run's."),
        ] = None,
        coded: Coded = False,
    ) -> Response:
        """A case as a file: a page that needs no server, a document, a slide, a picture, or data."""
        codes = desk.codes_if(coded)
        case = _case_of_job(desk, episode, job) if job else desk.review.case(episode)
        if actions:
            edited = desk.review.course(episode, [int(number) for number in actions.split(",")])
            case = replace(case, edited=edited)
        case = case if codes is None else codes.case(case)
        return _download(exported(case, kind), MEDIA_TYPES[kind], file_name(case, kind))


def _case_of_job(desk: Desk, episode: str, job: str) -> Case:
    desk.review.require(episode)
    found = desk.jobs.look(job)
    if found.case is None or found.episode != episode:
        raise RefusalError(422, "no answer")
    return found.case


def _file(*kinds: str) -> dict[int | str, dict[str, Any]]:
    content = {kind: {"schema": {} if kind == "application/json" else {"type": "string"}} for kind in kinds}
    return {200: {"description": "The file.", "content": content}}


def _download(content: bytes, media_type: str, name: str) -> Response:
    return Response(content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})
