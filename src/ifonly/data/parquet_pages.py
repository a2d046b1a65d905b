"""What a Parquet file unfolds to, told by the headers of its pages before anything is unfolded.

The footer says where the pages of each column lie, in Thrift's compact protocol; the header of a page, how large it is
once decompressed. What the footer says of sizes is not relied on: nobody decompresses by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAGIC = b"PAR1"
_DEEPEST = 16
"""How far structures and lists of a header may be nested; those of Parquet are less than ten."""
_REPEATING = 7
"""The encoding in which a text begins as the one before it: every value may be as long as the page."""
# Numbers of fields, as parquet.thrift gives them: of the footer, a row group, a column's chunk in it, and a page.
_GROUPS = 4
_CHUNKS, _ROWS = 1, 3
_ABOUT_CHUNK, _PATH, _VALUES, _CHUNK_SIZE, _PLACE, _DICTIONARY_PLACE = 3, 3, 5, 7, 9, 11
_PAGE_UNFOLDS, _PAGE_SIZE, _PAGE, _NEWER_PAGE = 2, 3, 5, 8
_PAGE_VALUES, _PAGE_ENCODING, _NEWER_PAGE_ENCODING = 1, 2, 4

Fields = dict[int, Any]


@dataclass(frozen=True)
class Unfolded:
    """By column: how many cells it has, entries of lists among them, and how many bytes its pages unfold to."""

    cells: Counter[str]
    sizes: Counter[str]


def unfolded(data: bytes) -> Unfolded:
    """Of the content of a Parquet file; errors of many kinds where it is none."""
    end = len(data) - 8
    begin = end - int.from_bytes(data[end : end + 4], "little")
    if begin < len(MAGIC) or not data.startswith(MAGIC) or data[-4:] != MAGIC:
        raise ValueError("no Parquet file")
    leaves, sizes, left = Counter[tuple[str, ...]](), Counter[str](), len(data)
    for group in _Reader(data, begin).fields().get(_GROUPS, []):
        for chunk in group[_CHUNKS]:
            about = chunk[_ABOUT_CHUNK]
            path, small = tuple(name.decode() for name in about[_PATH]), about[_CHUNK_SIZE]
            left -= small
            if small < 0 or left < 0:
                raise ValueError("columns that overlap")
            values, size = _pages(data, about.get(_DICTIONARY_PLACE) or about[_PLACE], small)
            leaves[path] += max(values, about[_VALUES], group[_ROWS])
            sizes[path[0]] += size
    cells = Counter[str]()
    for path, count in leaves.items():  # parts of a record are one cell
        cells[path[0]] = max(cells[path[0]], count)
    return Unfolded(cells, sizes)


def _pages(data: bytes, place: int, size: int) -> tuple[int, int]:
    """How many values the pages in a range of bytes hold, and how many bytes they unfold to."""
    end, values, unfolds = place + size, 0, 0
    if place < 0:
        raise ValueError("a page before the file")
    while place < end:
        reader = _Reader(data, place)
        header = reader.fields()
        large, small = header[_PAGE_UNFOLDS], header[_PAGE_SIZE]
        if large < 0 or small < 0:
            raise ValueError("a page of negative size")
        older, newer = header.get(_PAGE, {}), header.get(_NEWER_PAGE, {})
        count = (older or newer).get(_PAGE_VALUES, 0)
        repeats = _REPEATING in (older.get(_PAGE_ENCODING), newer.get(_NEWER_PAGE_ENCODING))
        values += count
        unfolds += large * max(1, count) if repeats else large
        place = reader.place + small
    return values, unfolds


class _Reader:
    """Thrift's compact protocol: structures become mappings of field numbers to values."""

    def __init__(self, data: bytes, place: int) -> None:
        self.data, self.place, self.depth = data, place, 0

    def fields(self) -> Fields:
        """The next structure."""
        found: Fields = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._whole()
            kind = head & 15
            found[number] = kind == 1 if kind in (1, 2) else self._value(kind)
        return found

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2 | 3:  # true or false, where it is in a list
                return self._byte()
            case 4 | 5 | 6:
                return self._whole()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._natural())
            case 9:
                return self._deeper(self._list)
            case 12:
                return self._deeper(self.fields)
        raise ValueError(f"no kind of value: {kind}")

    def _deeper(self, read: Callable[[], Any]) -> Any:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ValueError("nested without end")
        found = read()
        self.depth -= 1
        return found

    def _byte(self) -> int:
        self.place += 1
        return self.data[self.place - 1]

    def _natural(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number without end")
        return value | byte << shift

    def _whole(self) -> int:
        value = self._natural()
        return value >> 1 ^ -(value & 1)

    def _bytes(self, count: int) -> bytes:
        self.place += count
        if self.place > len(self.data):
            raise IndexError("cut off")
        return self.data[self.place - count : self.place]

    def _list(self) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._natural()
        if count > len(self.data) - self.place:
            raise IndexError("cut off")
        return [self._value(head & 15) for _ in range(count)]
