"""Requests made up from the API's own description: no server error, and answers as described."""

from typing import Any

import httpx
import pytest
import schemathesis
from effort import some
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
OPERATIONS = [
    "GET /api/about",
    "GET /api/episodes",
    "GET /api/patterns",
    "GET /api/case",
    "POST /api/course",
    "POST /api/jobs",
    "GET /api/jobs/{job}",
    "POST /api/jobs/{job}/stop",
    "GET /api/notes",
    "PUT /api/notes",
    "GET /api/notes.csv",
    "GET /api/reviews",
    "GET /api/agreement",
    "GET /api/export",
]
NOTHING_TO_GET_WRONG = ("GET /api/about", "GET /api/patterns", "GET /api/notes.csv", "GET /api/agreement")
REQUEST = {
    "method": "method",
    "url": "url",
    "headers": "headers",
    "params": "params",
    "json": "json",
    "data": "content",
}
"""Arguments of one client library, and what another calls them."""
EXAMPLES = some(24)
ADDRESS = "http://127.0.0.1:8377"


@pytest.fixture(scope="module")
def described(client: Any) -> dict[str, Any]:
    """The operations of the API by name."""
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    operations = [found.ok() for found in schema.get_all_operations()]
    return {operation.label: operation for operation in operations}


def test_every_operation_is_tried(described: dict[str, Any]) -> None:
    assert sorted(described) == sorted(OPERATIONS)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("label", OPERATIONS)
def test_made_up_requests(client: Any, place: Any, described: dict[str, Any], label: str, mode: Any) -> None:
    operation, episode = described[label], place.cohort.ids[0]
    if mode is GenerationMode.NEGATIVE and label in NOTHING_TO_GET_WRONG:
        return

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],  # to look for a smaller example takes long, and says little more
        suppress_health_check=[*HealthCheck],
    )
    @given(case=operation.as_strategy(mode), known=st.booleans())
    def ask(case: Any, known: bool) -> None:
        if known:  # requests about nobody would all end with 404
            name_episode(case, episode)
        arguments = case.as_transport_kwargs(base_url=ADDRESS)
        try:
            answer = client.request(**{REQUEST[name]: value for name, value in arguments.items() if name in REQUEST})
        except httpx.InvalidURL:  # too long for the client itself: nothing was asked
            reject()
        case.validate_response(answer, checks=CHECKS)

    ask()


def name_episode(case: Any, episode: str) -> None:
    """Let a made-up request speak of an episode that exists."""
    if isinstance(case.query, dict) and "episode" in case.query:
        case.query["episode"] = episode
    if isinstance(case.body, dict) and "episode" in case.body:
        case.body["episode"] = episode
