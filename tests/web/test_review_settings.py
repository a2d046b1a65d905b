"""What a server is told, and what it refuses to start with."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ifonly
from ifonly.errors import InputError, StoreError
from ifonly.web.app import create_app
from ifonly.web.settings import ReviewSettings, check_address, is_loopback, read_token

QUERY = ifonly.Query(ifonly.minus("SOFA"))


def test_either_a_run_or_a_query(place: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="either a run"):
        place.settings(tmp_path / "n", query=QUERY)
    with pytest.raises(InputError, match="either a run"):
        place.settings(tmp_path / "n", run=None)


@pytest.mark.parametrize(("field", "value"), [("jobs", 0), ("jobs", True), ("seconds", 0), ("seconds", float("inf"))])
def test_limits_must_make_sense(place: Any, tmp_path: Path, field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        place.settings(tmp_path / "n", **{field: value})


def test_the_token_is_not_shown(place: Any, tmp_path: Path) -> None:
    assert "nobody-guesses" not in repr(place.settings(tmp_path / "n", token="a-token-that-nobody-guesses"))


def test_addresses_of_other_machines_need_a_token() -> None:
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        assert is_loopback(host)
        check_address(host, None)
    for host in ("0.0.0.0", "::", "192.168.1.7", "review.example", ""):
        with pytest.raises(InputError, match="token"):
            check_address(host, None)
        check_address(host, "a-token-that-nobody-guesses")


def test_token_files(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("  a-token-that-nobody-guesses\n")
    file.chmod(0o600)
    assert read_token(file) == "a-token-that-nobody-guesses"
    for mode in (0o640, 0o604, 0o666):
        file.chmod(mode)
        with pytest.raises(InputError, match="chmod 600"):
            read_token(file)
    file.chmod(0o600)
    for text in ("", "short", "with a space between words", "not-plain-\u00e9-letters-here"):
        file.write_text(text)
        with pytest.raises(InputError, match="at least 16") as caught:
            read_token(file)
        assert not text or text not in str(caught.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_token(tmp_path / "missing")


def test_a_run_of_another_model_or_cohort_is_refused(place: Any, settings: ReviewSettings, tmp_path: Path) -> None:
    cohort = place.cohort
    other = ifonly.fit(ifonly.LocationScale(cohort.schema, hidden=(12,)), cohort, epochs=1, seed=1)
    ifonly.save_model(other, tmp_path / "model")
    with pytest.raises((InputError, StoreError), match="model"):
        create_app(replace(settings, model=tmp_path / "model"))
    ifonly.save_cohort(ifonly.simulate.simulate_cohort(24, seed=6, horizon=(5, 8)), tmp_path / "cohort")
    with pytest.raises((InputError, StoreError), match="episodes"):
        create_app(replace(settings, episodes=tmp_path / "cohort"))


def test_a_model_of_other_features_is_refused(settings: ReviewSettings, tmp_path: Path) -> None:
    from ifonly.testing.instances import random_problem

    problem = random_problem(1, model_kind="linear", horizon=4)
    ifonly.save_model(problem.model, tmp_path / "model")
    with pytest.raises(InputError, match="the model"):
        create_app(replace(settings, model=tmp_path / "model"))
