"""Everything that ifonly raises on purpose; each message says what, where, why and what to do."""


class IfonlyError(Exception):
    """Base of all errors that ifonly raises on purpose."""


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
