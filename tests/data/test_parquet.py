"""Small Parquet files that would fill the memory are refused before they do; all others are read as they were."""

import io
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest

import ifonly
from ifonly.data.parquet import parse_parquet
from ifonly.data.parquet_pages import _pages, unfolded
from ifonly.data.store import read_frame
from ifonly.errors import IfonlyError, StoreError

CORPUS = Path(__file__).parents[1] / "corpus"
LONG = "y" * 4_000_000
ROWS = 320
"""With that text in each, 1.3 GB."""


def most_memory(work: Callable[[], object]) -> int:
    """How many bytes more this process holds meanwhile, at most."""
    Path("/proc/self/clear_refs").write_text("5")  # the most so far begins anew
    before = held("VmRSS")
    work()
    return held("VmHWM") - before


def held(what: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return 1024 * int(line.split()[1])


def of_dictionaries(folder: Path) -> bytes:
    """Lists and records whose texts are those of a dictionary, as other programs write them."""
    asked = f"select [repeat('y', {len(LONG)}) for i in range(5)] as x, {{'t': [repeat('z', 9)]}} as r from range(8)"
    duckdb.sql(f"copy ({asked}) to '{folder}/made.parquet' (format parquet, compression zstd)")
    return (folder / "made.parquet").read_bytes()


def written(frame: pl.DataFrame, **options) -> bytes:
    file = io.BytesIO()
    frame.write_parquet(file, **options)
    return file.getvalue()


zeros = pl.Series([0.0]).new_from_index(0, 12_000_000)
texts = pl.Series("x", [LONG]).new_from_index(0, ROWS)
BOMBS = {
    "texts": lambda _: written(pl.DataFrame({"x": texts})),
    "texts in many groups": lambda _: written(pl.DataFrame({"x": texts}), row_group_size=16),
    "texts in columns": lambda _: written(pl.DataFrame({f"x{n}": texts[:5] for n in range(30)})),
    "categories": lambda _: written(pl.DataFrame({"x": texts[:40].cast(pl.Categorical)})),
    "bytes": lambda _: written(pl.DataFrame({"x": texts[:40].cast(pl.Binary)})),
    "texts in lists": lambda _: written(pl.DataFrame({"x": [[LONG] * 20] * 2})),
    "texts in lists, by a dictionary": of_dictionaries,
    "texts in records": lambda _: written(pl.DataFrame({"x": [{"a": [{"b": LONG}] * 5}] * 8})),
    "numbers in a list": lambda _: written(pl.DataFrame({"x": zeros.implode()})),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_unfolds_is_refused_in_little_time_and_memory(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.parquet").write_bytes(BOMBS[name](tmp_path))
    assert (tmp_path / "t.parquet").stat().st_size < 200_000
    began = time.process_time()

    def refused() -> None:
        with pytest.raises(
            StoreError, match=r"t.parquet: .* no recorded data.* column 'x\d*' has the most: leave it out"
        ):
            read_frame(tmp_path / "t.parquet")

    assert most_memory(refused) < 3e8
    assert time.process_time() - began < 2


@pytest.mark.parametrize("length", [10**5, 4 * 10**6])
def test_long_ids_of_a_table_take_neither_time_nor_memory(tmp_path: Path, length: int) -> None:
    table = pl.concat([pl.read_parquet(CORPUS / "table.parquet")] * 20)
    ids = pl.Series(["y" * length]).new_from_index(0, table.height)
    table.with_columns(episode=ids).write_parquet(tmp_path / "t.parquet")
    began = time.process_time()

    def refused() -> None:
        with pytest.raises(IfonlyError) as caught:
            ifonly.read_table(tmp_path / "t.parquet", CORPUS / "schema.yaml")
        assert len(str(caught.value)) < 1000

    assert most_memory(refused) < 3e8
    assert time.process_time() - began < 2


def mixed(rows: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "number": [0.1 * row for row in range(rows)],
            "id": [f"patient-{row // 20}" for row in range(rows)],
            "same": ["x"] * rows,
            "none": pl.Series([None] * rows, dtype=pl.Int64),
            "list": [[row, 2] for row in range(rows)],
            "record": [{"a": 1.5, "b": ["t", None]}] * rows,
            "category": pl.Series(["a", "b"] * (rows // 2), dtype=pl.Categorical),
        }
    )


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "brotli", "lz4", "zstd"])
@pytest.mark.parametrize("group", [None, 300])
def test_every_cell_is_counted_whatever_the_codec(codec, group: int | None) -> None:
    frame = mixed(1000)
    data = written(frame, compression=codec, row_group_size=group, data_page_size=500)
    cells = dict.fromkeys(frame.columns, 1000) | {"list": 2000, "record": 2000}
    assert dict(unfolded(data).cells) == cells
    assert parse_parquet(Path("t.parquet"), data).equals(frame)
    if codec == "uncompressed":
        assert 0.5 * len(data) < unfolded(data).sizes.total() < len(data)


@pytest.mark.parametrize("version", ["V1", "V2"])
@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "zstd", "lz4_raw", "brotli"])
def test_files_of_another_program_are_read(tmp_path: Path, codec: str, version: str) -> None:
    frame = mixed(600).drop("category")
    frame.write_parquet(tmp_path / "ours.parquet")
    place, options = tmp_path / "theirs.parquet", f"(format parquet, codec {codec}, parquet_version {version})"
    duckdb.sql(f"copy (select * from '{tmp_path}/ours.parquet') to '{place}' {options}")
    assert unfolded(place.read_bytes()).cells["list"] == 1200
    assert read_frame(place).equals(frame)


@pytest.mark.parametrize("frame", [pl.DataFrame(), pl.DataFrame({"a": []}), pl.DataFrame({"a": [[]]})])
def test_nothing_is_read_as_nothing(frame: pl.DataFrame) -> None:
    assert parse_parquet(Path("t.parquet"), written(frame)).height == frame.height


def test_a_table_of_long_notes_is_read(tmp_path: Path) -> None:
    """As people record them: some hundred letters, in each row others."""
    frame = pl.DataFrame({"note": [f"{row} " * 60 for row in range(20_000)], "ward": ["surgery"] * 20_000})
    frame.write_parquet(tmp_path / "t.parquet")
    assert read_frame(tmp_path / "t.parquet").height == 20_000


def number(value: int) -> bytes:
    """As Thrift's compact protocol writes one."""
    value, parts = value << 1, []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


@pytest.mark.parametrize(("encoding", "unfolds"), [(0, 5000), (7, 5000 * 300)])
def test_values_that_repeat_the_one_before_count_as_long_as_their_page(encoding: int, unfolds: int) -> None:
    about = b"\x15" + number(300) + b"\x15" + number(encoding) + b"\x15\x06\x15\x06\x00"
    header = b"\x15\x00\x15" + number(5000) + b"\x15" + number(10) + b"\x2c" + about + b"\x00"
    page = header + bytes(10)
    assert _pages(b"PAR1" + 2 * page, 4, 2 * len(page)) == (600, 2 * unfolds)


@pytest.mark.parametrize("groups", [1, 9])
def test_pages_are_those_of_one_column(groups: int) -> None:
    """Else a few of them could stand for any number of columns."""
    page = b"\x15\x00\x15" + number(50) + b"\x15" + number(100) + b"\x00" + bytes(100)
    chunk = b"\x39\x18\x01x\x26" + number(7) + b"\x26" + number(len(page)) + b"\x26" + number(4) + b"\x00\x00"
    group = b"\x19\x1c\x3c" + chunk + b"\x26" + number(5) + b"\x00"
    footer = b"\x49" + bytes([groups << 4 | 12]) + groups * group + b"\x00"
    data = b"PAR1" + page + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    assert (groups * len(page) > len(data)) == (groups == 9)
    if groups == 9:
        with pytest.raises(ValueError, match="overlap"):
            unfolded(data)
    else:
        assert unfolded(data).cells["x"] == 7 * groups
        assert unfolded(data).sizes["x"] == 50 * groups


def test_cut_off_anywhere_a_file_is_refused() -> None:
    data = written(mixed(40))
    for end in range(0, len(data), 37):
        with pytest.raises(StoreError, match="is not a complete Parquet file"):
            parse_parquet(Path("t.parquet"), data[:end])


@pytest.mark.parametrize("inner", [b"\x19", b"\x1c"], ids=["lists", "structures"])
def test_headers_nested_without_end_are_refused(inner: bytes) -> None:
    footer = inner * 100_000
    data = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(StoreError, match="is not a complete Parquet file"):
        parse_parquet(Path("t.parquet"), data)
