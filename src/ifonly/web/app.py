"""The application: everything put together."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ifonly.errors import StoreError
from ifonly.report.deidentify import Deidentifier
from ifonly.version import __version__
from ifonly.web.api import Desk, api_router
from ifonly.web.guard import DESCRIPTION, Doorkeeper, Guard, RefusalError, is_api, refusal_response
from ifonly.web.jobs import JobDesk, JobLimits
from ifonly.web.notes import Notes
from ifonly.web.review import Review
from ifonly.web.settings import ReviewSettings
from ifonly.web.site import site_router
from ifonly.web.turns import Turns
from ifonly.web.worker import Setup

FIELD = re.compile(r"[a-z_]{1,20}")
"""Names of fields are such; what else stands in the place of one is not repeated."""
ABOUT = "Recorded episodes, what could have gone better, how sure that is, and what reviewers say about it."


def create_app(settings: ReviewSettings) -> FastAPI:
    """The application of `ifonly serve`; reads and checks everything first, starts workers when it is served.

    Serve it at an address of this machine only, unless `settings.token` is given.
    """
    torch.set_num_threads(1)  # requests are many and small; each is quickest on one core
    review = Review.load(settings)
    notes = Notes(settings.notes, cohort=review.fingerprint, model=review.model.fingerprint())
    setup = Setup(settings.model, review.model.fingerprint(), review.behaviour, review.model.standing)
    jobs = JobDesk(setup, JobLimits(workers=settings.jobs))
    doorkeeper = Doorkeeper(settings.token)
    is_open = doorkeeper.is_open
    codes = None if settings.key is None else Deidentifier.from_file(settings.key)
    desk = Desk(
        review,
        notes,
        jobs,
        settings.seconds,
        signs_in=not is_open,
        turns=Turns(),
        sample=settings.sample,
        codes=codes,
    )

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        jobs.open()
        desk.review.warm_up()
        try:
            yield
        finally:
            jobs.close()
            notes.close()

    app = FastAPI(
        title="ifonly case review",
        summary=ABOUT,
        version=__version__,
        docs_url=None,  # it would load scripts from elsewhere
        redoc_url=None,
        openapi_url=DESCRIPTION,
        lifespan=life,
        redirect_slashes=False,
    )
    app.add_middleware(Guard, doorkeeper=doorkeeper, report=settings.report)
    app.include_router(api_router(desk))
    app.include_router(site_router(desk, doorkeeper))
    _explain_errors(app, settings.report)
    return app


def _explain_errors(app: FastAPI, report: Callable[[str], None]) -> None:
    """Every refusal in the one shape; who runs the server is told of notes that cannot be stored."""

    async def refuse(request: Request, error: Exception) -> Response:
        if isinstance(error, StoreError):
            report(str(error))  # the file, and what SQLite says of it
        return refusal_response(request.url.path, _refusal(error, for_people=not is_api(request.url.path)))

    for kind in (RefusalError, HTTPException, RequestValidationError, StoreError):
        app.add_exception_handler(kind, refuse)


def _refusal(error: Exception, *, for_people: bool) -> RefusalError:
    """The refusal of an error; people who open a page are sent to the list, programs to the description of the API."""
    if isinstance(error, RefusalError):
        return error
    if isinstance(error, HTTPException):
        return RefusalError.of_status(error.status_code, error.headers)
    if isinstance(error, RequestValidationError):
        if for_people:
            return RefusalError(422, "no page")
        return RefusalError(422, "does not fit", problem=_first_problem(error))
    return RefusalError(503, "not stored")


def _first_problem(error: RequestValidationError) -> str:
    """Which field, and what is expected of it."""
    problem = error.errors()[0]
    where = [part for part in problem["loc"][1:2] if FIELD.fullmatch(str(part))]
    return f"{''.join(f'{part}: ' for part in where)}{problem['msg'].rstrip('.')}."
