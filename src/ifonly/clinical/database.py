"""DuckDB with bounded memory, temporary files that are removed, progress, and errors without patient values."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ifonly.clinical.sources import Table, truncated
from ifonly.errors import IfonlyError, InputError, StoreError

if TYPE_CHECKING:
    import duckdb

POLL_SECONDS = 0.25
MEMORY = re.compile(r"\d+(\.\d+)? ?([KMGT]i?B)", flags=re.IGNORECASE)

Row = tuple[Any, ...]


def quoted(text: str | Path) -> str:
    """A string as SQL writes it."""
    return "'" + str(text).replace("'", "''") + "'"


def quoted_name(name: str) -> str:
    """A column's name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def csv_relation(table: Table) -> str:
    """The rows of a table's file, every column as text: dialect and columns are given, not inferred."""
    columns = ", ".join(f"{quoted(column)}: 'VARCHAR'" for column in table.columns)
    compression = "gzip" if table.compressed else "none"
    return (
        f"read_csv({quoted(_literal(table.path))}, columns = {{{columns}}}, auto_detect = false, header = true, "
        f"delim = ',', quote = '\"', escape = '\"', compression = '{compression}')"
    )


def parquet_relation(path: Path) -> str:
    """The rows of a Parquet file."""
    return f"read_parquet({quoted(_literal(path))})"


def parquet_relations(paths: Iterable[Path]) -> str:
    """The rows of several Parquet files that have the same columns."""
    return f"read_parquet([{', '.join(quoted(_literal(path)) for path in paths)}], union_by_name = true)"


def _literal(path: Path) -> str:
    """A path that stands for itself, though DuckDB would take * ? [ as a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


@dataclass
class Database:
    """A connection to DuckDB."""

    connection: duckdb.DuckDBPyConnection

    def rows(self, sql: str, *, reading: Table | None = None) -> list[Row]:
        """The answer to a query, for answers that are small; `reading` is the file to name when it goes wrong."""
        with _plain_errors(reading):
            return self.connection.execute(sql).fetchall()

    def view(self, name: str, sql: str) -> None:
        """Give a query a name."""
        with _plain_errors(None):
            self.connection.execute(f"CREATE OR REPLACE VIEW {name} AS {sql}")

    def write(
        self, sql: str, path: Path, *, reading: Table | None = None, report: Callable[[float], None] | None = None
    ) -> int:
        """Write the answer to a query as Parquet, and return how many rows were scanned for it.

        `reading` is the file to name when something goes wrong. `report` gets the fraction done, in the calling
        thread; an interruption there (Ctrl-C) stops the query.
        """
        command = f"COPY ({sql}) TO {quoted(path)} (FORMAT parquet, COMPRESSION zstd)"
        with _plain_errors(reading), ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.connection.execute, command)
            try:
                while not wait([running], timeout=POLL_SECONDS).done:
                    percent = self.connection.query_progress()
                    if report is not None and percent > 0:
                        report(percent / 100)
            except BaseException:
                # In a loop: an interrupt before the query has started has no effect.
                while not wait([running], timeout=POLL_SECONDS / 10).done:
                    self.connection.interrupt()
                raise
            running.result()
        profile = json.loads(self.connection.get_profiling_information(format="json"))
        return int(profile["query"]["total_rows_scanned"])


def check_limits(*, memory: str, threads: int | None) -> None:
    """Refuse malformed limits before anything is made."""
    if not MEMORY.fullmatch(memory):
        raise InputError(f"memory: {memory!r} is no amount of memory; write it as 4GB or 800MB.")
    if threads is not None and threads < 1:
        raise InputError(f"threads: {threads} is too few; at least one is needed.")


@contextmanager
def open_database(scratch: Path, *, memory: str, threads: int | None) -> Iterator[Database]:
    """A database in memory that spills into the folder `scratch`, which is removed afterwards."""
    check_limits(memory=memory, threads=threads)
    try:
        import duckdb
    except ImportError:
        raise IfonlyError(
            "reading clinical tables needs DuckDB, which is not installed; install ifonly[clinical]."
        ) from None
    settings: dict[str, Any] = {
        "memory_limit": memory,
        "temp_directory": str(scratch),
        # Order is asked for where it counts; keeping it everywhere costs memory.
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    if threads is not None:
        settings["threads"] = threads
    connection = duckdb.connect(":memory:", config=settings)
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        connection.execute("SET enable_profiling = 'no_output'")
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")
        yield Database(connection)
    finally:
        connection.close()
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _plain_errors(reading: Table | None) -> Iterator[None]:
    """DuckDB's errors reworded: its own messages quote rows of data."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except duckdb.OutOfMemoryException:
        raise InputError(
            "the memory limit is too small for these tables; allow more memory, or use fewer threads."
        ) from None
    except duckdb.Error as error:
        raise _in_words(error, reading) from None


def _in_words(error: Exception, reading: Table | None) -> IfonlyError:
    text = str(error)
    if "No space left" in text or "max_temp_directory_size" in text:
        return StoreError("the disk is full; make room in the working folder, or choose another one.")
    if reading is None:
        return IfonlyError(f"DuckDB could not finish a query ({type(error).__name__}).")
    line = re.search(r"Line: (\d+)", text)
    if line is not None:
        return InputError(
            f"{reading.path}, line {line[1]}: not a row of {len(reading.columns)} values separated by commas (one too "
            "few or too many, an open quotation mark, or not UTF-8). Read the file as it was shipped."
        )
    if "gzip" in text.casefold():
        return truncated(reading.path)
    return StoreError(f"{reading.path} could not be read ({type(error).__name__}); is it the file as it was shipped?")
