"""What the server refuses, and how it says so: one JSON shape for the API, a readable page elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_core import to_json
from starlette.responses import HTMLResponse, Response

from ifonly.errors import IfonlyError
from ifonly.report import pages

API = "/api/"
DESCRIPTION = "/openapi.json"

WORDS = {
    400: ("The request cannot be read.", "Send JSON, in UTF-8."),
    404: ("There is nothing at this address.", "Go back to the list of cases."),
    405: ("This address does not take requests of this kind.", "See /openapi.json for what it takes."),
}
"""What is said where no more is known than the status."""


class RefusalError(IfonlyError):
    """A request that is not answered: the HTTP status, what is wrong, and what to do about it."""

    def __init__(self, status: int, what: str, do: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(what)
        self.status, self.what, self.do = status, what, do
        self.headers = dict(headers or {})

    @classmethod
    def of_status(cls, status: int, headers: Mapping[str, str] | None = None) -> RefusalError:
        """A refusal in the words that belong to the status."""
        what, do = WORDS.get(status, ("The request cannot be answered.", "See /openapi.json for what can be asked."))
        return cls(status, what, do, headers=headers)


def unknown_episode() -> RefusalError:
    """There is no such episode; its name is not repeated."""
    return RefusalError(404, "There is no such episode in this cohort.", "Choose one from the list of cases.")


def unknown_job() -> RefusalError:
    """There is no such job, or it is long over."""
    return RefusalError(404, "There is no such search, or it was let go some time ago.", "Start it again.")


def unusable_rules(error: IfonlyError, max_changes: int) -> RefusalError:
    """Rules that leave no sequence, or do not fit the episode; what the library says of them comes last."""
    changes = f"{max_changes} change{'' if max_changes == 1 else 's'}"
    return RefusalError(
        422,
        f"These rules cannot all be kept in this episode with at most {changes}.",
        f"Remove or change a rule, or allow more changes. (In detail: {error})",
    )


def is_api(path: str) -> bool:
    """Whether answers at this path are for programs."""
    return path.startswith(API) or path == DESCRIPTION


def refusal_response(path: str, refusal: RefusalError) -> Response:
    """The refusal as JSON for the API, as a page for people."""
    if is_api(path):
        content = {"error": {"what": refusal.what, "do": refusal.do}}
        return json_response(content, status=refusal.status, headers=refusal.headers)
    page = pages.render("error.html", status=refusal.status, what=refusal.what, do=refusal.do)
    return HTMLResponse(page, status_code=refusal.status, headers=refusal.headers)


def json_response(content: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Plain types as JSON; quicker than the framework's way, which checks and copies everything first."""
    return Response(to_json(content), status, dict(headers or {}), "application/json")
