"""Times of day and date as numbers, and lengths of time as people write them: 4 h, 30 min.

Times with a zone are compared in universal time, so that a change of the clock neither opens a gap nor doubles an hour.
Times without one are taken as read from a clock that is never changed. Of 03/04/2031 the column must tell which number
is the month: by a day after the twelfth, in any of its rows.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import polars as pl

from ifonly.data.episode import IntArray
from ifonly.data.plain import as_number
from ifonly.errors import InputError

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "weeks": 604800.0}
"""Units of time, as ifonly writes them."""

_OTHER_WORDS = {
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("w", "week"), "weeks"),
}

_DURATION = re.compile(r"\s*([0-9.eE+-]+)\s*([A-Za-z]+)\s*")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY = (
    r"\d{4}-\d{2}-\d{2}|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}\.\d{1,2}\.\d{4}|"
    rf"\d{{1,2}}[- ]?(?i:{'|'.join(_MONTHS)})[- ]?\d{{4}}"
)
_SLASHED = r"(\d{1,2})/(\d{1,2})/\d{4}"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?"
_HALF = r"[AaPp]\.?[Mm]\.?"
_ZONE = r"Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?"
_TIME = rf"(?:[T ,:]\s*({_CLOCK})\s*({_HALF})?\s*({_ZONE})?)?"
TIMESTAMP = rf"^\s*({_DAY}){_TIME}\s*$"
"""ISO 8601, such as 2031-01-31 14:00, 2031-01-31T14:00:05.25+01:00, or a date alone; or 31.01.2031 or
31-Jan-2031 for the day."""
SLASHED = rf"^\s*({_SLASHED.replace('(', '(?:')}){_TIME}\s*$"
"""01/31/2031 2:00 PM, or 31/01/2031 14:00: a column has either all its days so, or none."""

NEARLY_WHOLE = 1e-6
"""Times that miss a multiple of the spacing by no more than this share of it are that multiple."""

EXAMPLES = "2031-01-31 14:00, or with its zone 2031-01-31T14:00+01:00"


@dataclass(frozen=True)
class Duration:
    """A length of time.

    >>> Duration.of("spacing", "4 hours"), str(Duration.of("spacing", "30min"))
    (Duration(length=4.0, unit='h'), '30 min')
    """

    length: float
    unit: str

    @classmethod
    def of(cls, where: str, text: str) -> Duration:
        """Read a number with a unit of time."""
        found = _DURATION.fullmatch(text)
        unit = None if found is None else _OTHER_WORDS.get(found[2].lower(), found[2].lower())
        if found is None or unit not in SECONDS:
            raise InputError(f"{where}: {text!r} is no length of time; write a number and {', '.join(SECONDS)}: 4 h.")
        length = as_number(where, found[1])
        if length <= 0:
            raise InputError(f"{where}: {text!r} must be positive.")
        return cls(length, unit)

    @classmethod
    def of_seconds(cls, seconds: float) -> Duration:
        """In the largest unit, up to days, of which it is a whole number; else in seconds."""
        units = [unit for unit in ("d", "h", "min") if seconds % SECONDS[unit] == 0]
        unit = units[0] if units else "s"
        return cls(seconds / SECONDS[unit], unit)

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return self.length * SECONDS[self.unit]

    def __str__(self) -> str:
        return f"{self.length:g} {self.unit}"


def as_spacing(where: str, value: object) -> float | Duration:
    """A positive number, or a length of time where text is one."""
    if isinstance(value, Duration):
        return value
    if isinstance(value, str) and re.search("[a-df-zA-DF-Z]", value):  # not 1e-3
        return Duration.of(where, value)
    number = as_number(where, value)
    if number <= 0:
        raise InputError(f"{where} {number} must be positive.")
    return number


def require_same_step(spacing: float | Duration | None, length: float, unit: str) -> None:
    """Refuse a grid of times that is another than the step of the schema, where that has a unit of time."""
    known = _OTHER_WORDS.get(unit, unit)
    if not isinstance(spacing, Duration) or known not in SECONDS:
        return
    if not math.isclose(length * SECONDS[known], spacing.seconds):
        raise InputError(
            f"table: steps are {spacing} apart, while the schema says that a step is {length:g} {unit}; correct one."
        )


def holds_times(column: pl.Series) -> bool:
    """Whether a column holds times rather than numbers: by its type, or by most of its texts."""
    if column.dtype in (pl.Datetime, pl.Date):
        return True
    if column.dtype != pl.String:
        return False
    filled = column.filter(column.str.strip_chars().fill_null("") != "")
    return len(filled) > 0 and bool(2 * filled.str.contains(_form(filled)).sum() >= len(filled))


def _form(column: pl.Series) -> str:
    """How most of a column's times are written."""
    return max((TIMESTAMP, SLASHED), key=lambda form: int(column.str.contains(form).sum()))


def seconds_of(column: pl.Series) -> pl.Series:
    """Seconds [N] since 1970, in universal time where there is a zone; null where a cell holds no time."""
    if column.dtype in (pl.Datetime, pl.Date):
        moments = column.cast(pl.Datetime("us")) if column.dtype == pl.Date else column
        return moments.dt.epoch("us").cast(pl.Float64) / 1e6
    if column.dtype != pl.String:
        raise InputError(f"column {column.name!r}: holds {column.dtype}; times such as {EXAMPLES} are needed.")
    seconds = _minutes(_day_first(column)) + _half_offset() + _seconds() - _zone_offset()
    return _parts(column).select(seconds.alias(column.name)).to_series()


def _parts(column: pl.Series) -> pl.DataFrame:
    form = _form(column)
    return pl.DataFrame(
        {name: column.str.extract(form, group) for group, name in enumerate(("day", "clock", "half", "zone"), 1)}
    )


def _day_first(column: pl.Series) -> bool | None:
    """Of days written with slashes, whether the first number is the day; None where no row tells, or rows disagree."""
    beyond = [column.str.extract(rf"^\s*{_SLASHED}", place).cast(pl.Int64) > 12 for place in (1, 2)]
    first, second = (bool(found.any()) for found in beyond)
    return None if first == second else first


def _minutes(day_first: bool | None) -> pl.Expr:
    """Seconds up to the full minute; null where there is no such day or hour, or nothing tells day from month."""
    day = pl.col("day").str.replace(r"^(\d{1,2})\.(\d{1,2})\.(\d{4})$", "$3-$2-$1")
    if day_first is not None:
        day = day.str.replace(r"^(\d{1,2})/(\d{1,2})/(\d{4})$", "$3-$2-$1" if day_first else "$3-$1-$2")
    for number, month in enumerate(_MONTHS, 1):
        day = day.str.replace(rf"(?i)^(\d{{1,2}})[- ]?{month}[- ]?(\d{{4}})$", f"$2-{number}-$1")
    day = day.str.replace(r"^(\d{4})/(\d{1,2})/(\d{1,2})$", "$1-$2-$3")
    clock = pl.col("clock").fill_null("00:00").str.extract(r"^(\d+:\d\d)").str.pad_start(5, "0")
    text = day + " " + clock
    return text.str.to_datetime("%Y-%m-%d %H:%M", strict=False).dt.epoch("s").cast(pl.Float64)


def _half_offset() -> pl.Expr:
    """From the twelve hours of AM and PM to those of the day; null for hours that such a clock does not show."""
    hour = pl.col("clock").str.extract(r"^(\d+)").cast(pl.Int64)
    hours = pl.when(hour == 12).then(-12).otherwise(0) + pl.when(pl.col("half").str.contains("^[Pp]")).then(
        12
    ).otherwise(0)
    return pl.when(pl.col("half").is_null()).then(0).when(hour.is_between(1, 12)).then(hours * 3600).cast(pl.Float64)


def _seconds() -> pl.Expr:
    """Of the minute; null from 60 on."""
    text = pl.col("clock").str.replace(",", ".", literal=True).str.extract(r"^\d+:\d\d:(.*)$")
    number = text.cast(pl.Float64, strict=False).fill_null(0.0)
    return pl.when(number < 60).then(number)


def _zone_offset() -> pl.Expr:
    """How far the zone is ahead of universal time; 0 where there is none."""
    digits = pl.col("zone").str.extract(r"^[+-](.*)$").str.replace(":", "", literal=True).str.pad_end(4, "0")
    size = digits.str.slice(0, 2).cast(pl.Float64) * 3600 + digits.str.slice(2, 2).cast(pl.Float64) * 60
    return pl.when(pl.col("zone").str.starts_with("-")).then(-size).otherwise(size).fill_null(0.0)


def require_one_kind(column: pl.Series) -> None:
    """Refuse what leaves the order of times open: days or months, and times with a zone beside times without."""
    if column.dtype != pl.String:
        return
    parts = _parts(column)
    if _form(column) == SLASHED and parts["day"].is_not_null().any() and _day_first(column) is None:
        raise InputError(
            f"column {column.name!r}: of days such as 03/04/2031 it cannot be told which number is the month: no day "
            f"after the twelfth shows it, or days and months change places; write them as {EXAMPLES}."
        )
    zoned, plain = parts["zone"].is_not_null(), parts["zone"].is_null() & parts["day"].is_not_null()
    if zoned.any() and plain.any():
        row = max(int(zoned.arg_true()[0]), int(plain.arg_true()[0]))  # the first that is unlike those before it
        raise InputError(
            f"column {column.name!r}, row {row + 1}: some times have a zone and some have none; give all of them "
            "one, or none."
        )


def require_known_form(column: pl.Series, *, is_time: bool) -> None:
    """Refuse what is a time, or looks like one that is not read: 5/1/31 8:00, 2031-05-01 8:00 CET or 04:00:00."""
    alike = column.str.contains(r"\d[:/]\d|^\s*\d{4}-\d\d\s*$|^\s*\d{8}[T ]\d{4}").sum()
    if is_time or 2 * alike > len(column):
        raise InputError(
            f"column {column.name!r}: seems to hold times or lengths of time in a form that is not read; write times "
            f"as {EXAMPLES}, and lengths of time as numbers, such as hours since the start."
        )


def _has_zone(column: pl.Series) -> bool:
    if isinstance(column.dtype, pl.Datetime):
        return column.dtype.time_zone is not None
    return column.dtype == pl.String and bool(_parts(column)["zone"].is_not_null().any())


def count_times(column: pl.Series, begins: IntArray, spacing: Duration, within: Duration | None) -> pl.Series:
    """Numbers of steps [N], from times on a grid that begins with each episode's first row `begins` [N]."""
    require_one_kind(column)
    times = seconds_of(column)
    if (unread := times.is_null()).any():
        row = int(unread.arg_true()[0])
        wrong = "is missing" if column[row] is None or not str(column[row]).strip() else "cannot be read"
        raise InputError(f"column {column.name!r}, row {row + 1}: the time {wrong}; write it as {EXAMPLES}.")
    counted = (times - times.gather(begins)) / spacing.seconds
    allowed = NEARLY_WHOLE + (0.0 if within is None else within.seconds / spacing.seconds)
    if (off := (counted - counted.round()).abs() > allowed).any():
        row = int(off.arg_true()[0])
        near = "" if within is None else f", nor within {within} of one"
        clock = "If a clock was changed for summer, give times with their zone."
        if _has_zone(column):
            clock = "If days are meant, some of which a change of the clock makes longer, give dates without a time."
        raise InputError(
            f"column {column.name!r}, row {row + 1}: the time is not a multiple of {spacing} after its episode's "
            f"first, in row {int(begins[row]) + 1}{near}; put the table on that grid, or say in the schema file how "
            f"far times may be off it, such as `within: 10 min` under `table`. {clock}"
        )
    return counted.round()
