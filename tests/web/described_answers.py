"""A client that compares every answer of the API with what the API says of it."""

import re
import warnings
from typing import Any

import jsonschema_rs
from fastapi import FastAPI

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have another client library than the one that is installed
    from starlette.testclient import TestClient

JSON = "application/json"


class DescribedClient(TestClient):
    """Every answer under /api has a status that is described, and exactly the content that is described for it."""

    def __init__(self, app: FastAPI, **more: Any) -> None:
        super().__init__(app, **more)
        self._description = _strict(app.openapi())
        self._known: dict[tuple[str, str, int], jsonschema_rs.Validator] = {}

    def request(self, method: str, url: Any, **more: Any) -> Any:
        """Ask, and compare."""
        answer = super().request(method, url, **more)
        path = re.sub(r"^/api/jobs/[^/]+", "/api/jobs/{job}", answer.request.url.path)
        operation = self._description["paths"].get(path, {}).get(method.lower())
        if operation is not None:
            self._check(operation, (method, path, answer.status_code), answer)
        elif path.startswith("/api/"):  # there is no such address, or not for this method
            assert answer.status_code in (401, 403, 404, 405, 415, 421), answer.text
            assert set(answer.json()["error"]) == {"what", "do"}
        return answer

    def _check(self, operation: dict[str, Any], key: tuple[str, str, int], answer: Any) -> None:
        described = operation["responses"].get(str(answer.status_code))
        assert described is not None, f"{key}: this status is not described"
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind in described["content"], f"{key}: {kind} is not described"
        if kind == JSON and described["content"][JSON].get("schema"):
            if key not in self._known:
                schema = {**described["content"][JSON]["schema"], "components": self._description["components"]}
                self._known[key] = jsonschema_rs.validator_for(schema)
            self._known[key].validate(answer.json())


def _strict(description: dict[str, Any]) -> dict[str, Any]:
    """The description with objects that hold nothing but what is described."""
    schemas = description["components"]["schemas"]
    closed = {
        name: {**schema, "additionalProperties": False} if "properties" in schema else schema
        for name, schema in schemas.items()
    }
    return {**description, "components": {**description["components"], "schemas": closed}}
