"""What a review server is told when it starts."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ifonly.errors import InputError, SettingError
from ifonly.files import require_private
from ifonly.query import Query

SHORTEST_TOKEN = 16
"""Characters; a token that can be guessed protects nothing."""


def report_to_nobody(_: str) -> None:
    """The default: unexpected errors are reported to nobody."""


@dataclass(frozen=True)
class ReviewSettings:
    """Where the data are, what is asked of them, and what users may ask of this machine."""

    episodes: Path
    """A stored cohort."""
    model: Path
    """A stored model."""
    notes: Path
    """The SQLite file of reviewers' notes; made where it is missing."""
    run: Path | None = None
    """A finished or unfinished run of the cohort, whose answers are shown; it also says what is asked."""
    query: Query | None = None
    """What is asked where there is no run."""
    behaviour: Path | None = None
    """A stored behaviour model, which says what the data supports; a run may say itself where its own lies."""
    allow_failed_model: bool = False
    """Whether a model that failed its check may be shown; every page then says so."""
    token: str | None = field(default=None, repr=False)
    """What users must know; None: anybody on this machine may look, and nobody else."""
    key: Path | None = None
    """The file with the key of codes under which people outside get cases and judgements; made where it is missing."""
    jobs: int = 2
    """Searches at the same time, each in a process of its own."""
    sample: bool = False
    """Whether everything is made up, which every page then says."""
    seconds: float = 60.0
    """The longest that a search may take."""
    report: Callable[[str], None] = report_to_nobody
    """Told of unexpected errors: their kind and their place in the source, never what was asked; and of a file of notes
    that cannot be read or written."""

    def __post_init__(self) -> None:
        if (self.run is None) == (self.query is None):
            raise InputError("review: pass either a run, which says what is asked, or a query.")
        if self.query is not None and self.query.min_support is not None and self.behaviour is None:
            raise InputError("review: what has support is said by a behaviour model; pass one (--behaviour).")
        if isinstance(self.jobs, bool) or not isinstance(self.jobs, int) or self.jobs < 1:
            raise SettingError("jobs", self.jobs, "must be a whole number of at least 1.")
        if not 0 < self.seconds < float("inf"):
            raise SettingError("seconds", self.seconds, "must be positive and finite.")
        if self.token is not None:
            check_token(self.token)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_address(host: str, token: str | None) -> None:
    """Refuse to open an address to other machines unless users must know a token."""
    if token is None and not is_loopback(host):
        raise InputError(
            f"address {host!r} can be reached from other machines, and the pages show patients' data: give a token "
            "(--token-file), or stay with 127.0.0.1."
        )


def read_token(path: Path) -> str:
    """The token in a file that nobody else may read."""
    try:
        require_private(path, what="token file")
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"token file {path}: cannot be read ({type(error).__name__}).") from None
    check_token(text, where=f"token file {path}")
    return text


def check_token(token: str, *, where: str = "token") -> None:
    """Refuse a token that could be guessed, or that could not travel in a header."""
    if len(token) < SHORTEST_TOKEN or not all("!" <= character <= "~" for character in token):
        raise InputError(
            f"{where}: a token has at least {SHORTEST_TOKEN} characters, all of them plain letters, digits or signs; "
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
