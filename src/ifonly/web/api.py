"""The JSON API: what every page is made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from ifonly.constraints import Constraints
from ifonly.errors import InputError
from ifonly.version import __version__
from ifonly.web import answers
from ifonly.web.exports import exported
from ifonly.web.jobs import JobDesk
from ifonly.web.listing import STATUSES
from ifonly.web.messages import (
    MOST_ALTERNATIVES,
    CourseRequest,
    EpisodeId,
    JobRequest,
    ListParameters,
    NoteRequest,
    RuleSet,
)
from ifonly.web.notes import LONGEST_NOTE, LONGEST_REVIEWER, ConflictError, Note, Notes
from ifonly.web.refusals import RefusalError, json_response
from ifonly.web.review import Plain, Review
from ifonly.web.worker import Work

_ERRORS = {
    400: "The request cannot be read.",
    401: "A token is asked for, and was not given.",
    403: "The request comes from a page of another site.",
    404: "There is no such episode or search.",
    408: "The request did not arrive in time.",
    409: "Somebody else has saved a note in the meantime.",
    413: "The request is too large.",
    415: "The content of the request is not JSON.",
    421: "The server is not known by this name.",
    422: "The request does not fit: a value, an episode's length, rules that contradict each other.",
    429: "Too many searches, or pictures, are waiting or under way.",
    500: "Something unexpected went wrong.",
    503: "The notes cannot be read or written at the moment.",
}
_ALWAYS = (401, 403, 421, 422, 500)
_WRITING = (*_ALWAYS, 400, 404, 408, 413, 415)


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": answers.ErrorAnswer, "description": _ERRORS[status]} for status in sorted(statuses)}


JobId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{16}$", description="As given when the search was asked for.")]
Episode = Annotated[EpisodeId, Query()]


@dataclass(frozen=True)
class Desk:
    """Everything that answers are made from."""

    review: Review
    notes: Notes
    jobs: JobDesk
    seconds: float
    signs_in: bool

    def about(self) -> Plain:
        """What this server shows, in plain types."""
        review, example = self.review, self.review.example
        question, lengths = review.question, review.cohort.lengths
        run = review.run
        return {
            "ifonly": __version__,
            "question": {**example["question"], "max_changes": question.max_changes},
            "model": example["model"],
            "cohort": {
                "episodes": len(review.cohort),
                "subjects": len(set(review.cohort.subjects)),
                "steps": int(lengths.sum()),
                "shortest": int(lengths.min()),
                "longest": int(lengths.max()),
                "fingerprint": review.fingerprint,
            },
            "features": [
                {name: value for name, value in feature.items() if name != "observed"}
                for feature in example["features"]
            ],
            "treatments": example["treatments"],
            "time_unit": example["time"]["unit"],
            "step": example["time"]["step"],
            "run": None
            if run is None
            else {
                "episodes": sum(run.counts.values()),
                "finished": run.is_finished,
                "counts": run.counts,
                "examined": review.listing.examined,
            },
            "statuses": list(STATUSES),
            "limits": {
                "max_changes": int(lengths.max()),
                "seconds": self.seconds,
                "alternatives": MOST_ALTERNATIVES,
                "jobs": self.jobs.limits.workers,
                "jobs_per_client": self.jobs.limits.per_client,
                "note": LONGEST_NOTE,
                "reviewer": LONGEST_REVIEWER,
            },
            "signs_in": self.signs_in,
        }

    def note(self, episode: str) -> Plain:
        """The latest note on an episode."""
        self.review.require(episode)
        return self.notes.get(episode).to_dict()


def api_router(desk: Desk) -> APIRouter:
    """The routes under /api."""
    router = APIRouter(prefix="/api")
    about = desk.about()

    @router.get("/about", response_model=answers.About, responses=_errors(*_ALWAYS))
    def show_about() -> Response:
        """What is asked, of which model and cohort, and how much may be asked of this server."""
        return json_response(about)

    @router.get("/episodes", response_model=answers.ListPage, responses=_errors(*_ALWAYS, 503))
    def list_episodes(parameters: Annotated[ListParameters, Query()]) -> Response:
        """A page of the list of cases, searched, filtered and sorted."""
        return json_response(desk.review.listing.page(parameters.query(), desk.notes))

    @router.get("/case", response_model=answers.Case, responses=_errors(*_ALWAYS, 404))
    def show_case(episode: Episode) -> Response:
        """One case, with the run's answer where there is one."""
        return json_response(desk.review.case(episode))

    @router.post("/course", response_model=answers.TriedCourse, responses=_errors(*_WRITING))
    def try_course(body: CourseRequest) -> Response:
        """How an episode would have gone under other treatments, and whether the data supports them."""
        return json_response(desk.review.course(body.episode, body.actions))

    _add_jobs(router, desk)
    _add_notes(router, desk)
    _add_export(router, desk)
    return router


def _add_jobs(router: APIRouter, desk: Desk) -> None:
    @router.post("/jobs", status_code=202, response_model=answers.JobAnswer, responses=_errors(*_WRITING, 429))
    def start_job(body: JobRequest, request: Request) -> Response:
        """Search for the best under these rules; the answer comes at /api/jobs/{job}."""
        rules = desk.review.question.constraints if body.constraints is None else _constraints(body.constraints)
        desk.review.check_rules(body.episode, body.max_changes, rules)
        work = Work(
            episode=desk.review.cohort[body.episode],
            max_changes=body.max_changes,
            constraints=rules,
            alternatives=body.alternatives,
            seconds=min(body.seconds, desk.seconds),
        )
        client = request.client.host if request.client is not None else ""
        return json_response(desk.jobs.submit(client, work), status=202)

    @router.get("/jobs/{job}", response_model=answers.JobAnswer, responses=_errors(*_ALWAYS, 404))
    def show_job(job: JobId) -> Response:
        """How far a search is, and its case once it has ended."""
        return json_response(desk.jobs.look(job))

    @router.post("/jobs/{job}/stop", response_model=answers.JobAnswer, responses=_errors(*_WRITING))
    def stop_job(job: JobId) -> Response:
        """Stop a search; it ends soon after, with what is known by then."""
        return json_response(desk.jobs.stop(job))


def _add_notes(router: APIRouter, desk: Desk) -> None:
    @router.get("/notes", response_model=answers.NoteAnswer, responses=_errors(*_ALWAYS, 404, 503))
    def show_note(episode: Episode) -> Response:
        """The latest note on a case."""
        return json_response(desk.note(episode))

    @router.put("/notes", response_model=answers.NoteAnswer, responses=_errors(*_WRITING, 409, 503))
    def save_note(body: NoteRequest) -> Response:
        """Save a note; refused when somebody else has saved one since `revision` was read."""
        desk.review.require(body.episode)
        try:
            return json_response(desk.notes.save(Note(**body.model_dump())).to_dict())
        except ConflictError:
            raise RefusalError(
                409,
                "Somebody else has saved a note on this case in the meantime.",
                "Read their note, and save yours again.",
            ) from None

    @router.get("/notes.csv", response_class=Response, responses=_errors(*_ALWAYS, 503) | _file("text/csv"))
    def export_notes() -> Response:
        """The latest note on every case that has one, as a table."""
        return _download(desk.notes.to_csv().encode(), "text/csv; charset=utf-8", "notes.csv")


def _add_export(router: APIRouter, desk: Desk) -> None:
    kinds = _file("text/html", "application/json", "image/png")

    @router.get("/export", response_class=Response, responses=_errors(*_ALWAYS, 404, 429) | kinds)
    def export_case(
        episode: Episode,
        kind: Annotated[Literal["html", "json", "png"], Query(description="What kind of file.")],
        actions: Annotated[
            str | None,
            Query(max_length=8000, pattern=r"^([0-9]{1,5}(,[0-9]{1,5})*)?$", description="A sequence that was tried."),
        ] = None,
        job: Annotated[
            str | None,
            Query(pattern=r"^[A-Za-z0-9_-]{0,16}$", description="A search, for its answer instead of the run's."),
        ] = None,
    ) -> Response:
        """A case as a file: a page that needs no server, data, or a picture."""
        case = _case_of_job(desk, episode, job) if job else desk.review.case(episode)
        edited = None
        if actions:
            edited = desk.review.course(episode, [int(number) for number in actions.split(",")])
        content, media_type = exported(case, kind, edited=edited)
        return _download(content, media_type, f"case-{_harmless_name(episode)}.{kind}")


def _case_of_job(desk: Desk, episode: str, job: str) -> Plain:
    desk.review.require(episode)
    found = desk.jobs.look(job)
    if found["case"] is None or found["episode"] != episode:
        raise RefusalError(
            422, "This search has no answer for this case.", "Wait until it has ended, and export again."
        )
    case: Plain = found["case"]
    return case


def _constraints(rules: RuleSet) -> Constraints:
    try:
        return Constraints.from_dict(rules.model_dump())
    except InputError as error:
        raise RefusalError(422, str(error), "Change the rules, and try again.") from None


def _file(*kinds: str) -> dict[int | str, dict[str, Any]]:
    content = {kind: {"schema": {} if kind == "application/json" else {"type": "string"}} for kind in kinds}
    return {200: {"description": "The file.", "content": content}}


def _download(content: bytes, media_type: str, name: str) -> Response:
    return Response(content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _harmless_name(episode: str) -> str:
    """Part of a file's name; ids may hold anything that can be printed."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", episode)[:80]
