"""Everything that ifonly raises on purpose; each message says what, where, why and what to do."""

import re

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Signs that no one reads, and that terminals obey: they move, hide, colour or turn what is around them."""


def visible(text: str) -> str:
    r"""The text with signs that terminals obey written out: much of what is shown comes from files of others.

    >>> visible("unit \x1b[2J")
    'unit \\x1b[2J'
    """
    return _UNSEEN.sub(lambda sign: ascii(sign[0])[1:-1], text)


_HALF = 1_900
"""Letters at either end of a message; a value that it quotes may be as long as the file that it is from."""


class IfonlyError(Exception):
    """Base of all errors that ifonly raises on purpose."""

    def __str__(self) -> str:
        text = visible(super().__str__())
        return text if len(text) <= 2 * _HALF else f"{text[:_HALF]} ... {text[-_HALF:]}"


class InputError(IfonlyError, ValueError):
    """A value handed to ifonly is wrong: its shape, its range, its kind."""


class SettingError(InputError):
    """A setting has a wrong value; whoever calls it by another name, as an option, finds it in parts."""

    def __init__(self, setting: str, value: object, why: str) -> None:
        super().__init__(f"{setting}={value!r}: {why}")
        self.setting, self.value, self.why = setting, value, why

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.setting, self.value, self.why)


class SchemaMismatchError(InputError):
    """Two things that must speak of the same features and actions do not."""


class FailedModelError(InputError):
    """A model that failed its check is asked without permission; `findings` are the kinds of what was found."""

    def __init__(self, message: str, findings: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class StoreError(IfonlyError):
    """A file is missing, cut off, of another version, or in the way."""


class FitError(IfonlyError):
    """Training broke down, so that there is no model to return."""


class ReplayError(IfonlyError):
    """Replaying the observed actions does not give the observed states back."""


class VerificationError(IfonlyError):
    """A result does not hold under independent re-derivation."""


class PlausibilityWarning(UserWarning):
    """Values lie outside a feature's plausible range: counted, kept, reported."""
