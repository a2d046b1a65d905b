"""Mutate files that ifonly reads, by their structure, and read them: nothing but an error of ours may come of it.

Every mutation takes one file of `tests/corpus`, changes entries, cells, lines or bytes of it, puts right the checksums
that stand for it elsewhere (half of the time, so that what lies behind them is reached), and has it read.
A traceback, more than two seconds, more than a gigabyte, an endless message or a changed folder is a finding: its
files are kept, and its seed says all about it. `make fuzz-readers` tries 100,000; `tests/test_fuzz_readers.py` some.
"""

import argparse
import copy
import gzip
import hashlib
import io
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import category

import polars as pl
import yaml
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

from reader_corpus import write_corpus  # noqa: E402

import ifonly  # noqa: E402
from ifonly.cli import app  # noqa: E402
from ifonly.clinical.code_map import read_code_map  # noqa: E402
from ifonly.errors import IfonlyError  # noqa: E402
from ifonly.evidence.behaviour import load_behaviour  # noqa: E402
from ifonly.evidence.check.thresholds import load_thresholds  # noqa: E402
from ifonly.journal import line_of  # noqa: E402
from ifonly.proofs.question import Record  # noqa: E402
from ifonly.query import read_query_file  # noqa: E402
from ifonly.report.deidentify import Deidentifier  # noqa: E402
from ifonly.runs.folder import frame_of, rows_of  # noqa: E402
from ifonly.study import load_study, plan  # noqa: E402
from ifonly.text.goals import goal_messages  # noqa: E402
from ifonly.web.notes import Note, Notes  # noqa: E402

CORPUS = ROOT / "tests" / "corpus"
SECONDS, MOST_MEMORY, LONGEST_MESSAGE = 2.0, 2**30, 4000
Mutate = Callable[[random.Random, bytes], bytes]


@dataclass(frozen=True)
class Reader:
    """What is read, as a command reads it, and the files of it that are mutated."""

    name: str
    files: tuple[str, ...]
    read: Callable[[Path], object]
    sums: tuple[tuple[str, str, str], ...] = ()
    """Checksums to be put right: a file, the document that tells its checksum, and the place there."""


def _read_run(folder: Path) -> None:
    run = ifonly.load_run(folder / "run")
    table = run.table()
    _ = run.query, run.provenance, run.check, run.damaged_lines, str(run)
    for episode in table["episode"].drop_nulls().to_list()[:2]:
        str(run.result(episode))


def _read_begun(folder: Path) -> None:
    """A run without its table: its rows are read."""
    manifest = folder / "run" / "run.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"finished"', b'"running"'))
    _read_run(folder)


def _read_notes(folder: Path) -> None:
    notes = Notes(folder / "notes.sqlite", cohort="c", model="m")
    try:
        notes.get("e1")
        notes.to_csv()
    finally:
        notes.close()


def _read_goals(folder: Path) -> None:
    """A query with goals of every kind, put to a schema."""
    schema = ifonly.load_schema(folder / "schema.yaml")
    query = ifonly.Query.from_dict(read_query_file(folder / "goals.yaml"))
    bound = query.reward.bind(schema, ifonly.data.Scaler.identity(schema))
    bound.over(4)
    str(query), query.fingerprint, goal_messages(query.reward)


def _read_packed(folder: Path) -> None:
    ifonly.read_table(folder / "table.csv.gz", folder / "schema.yaml")


CODES = [f"{code}//{number}" for code in ("ICU_IN", "ICU_OUT", "LAB", "URINE", "NOR") for number in range(20)]
"""Of a dataset of MEDS."""

READERS = (
    Reader("schema", ("schema.yaml", "schema.json"), lambda f: [ifonly.load_schema(p) for p in f.glob("schema.*")]),
    Reader("table", ("table.csv", "table.parquet", "schema.yaml"), lambda f: _tables(f)),
    Reader(
        "cohort",
        ("cohort/metadata.json", "cohort/episodes.parquet"),
        lambda f: ifonly.load(f / "cohort"),
        (("cohort/episodes.parquet", "cohort/metadata.json", "table"),),
    ),
    Reader(
        "model",
        ("model/model.json", "model/model.safetensors", "model/check.json"),
        lambda f: str(ifonly.load_model(f / "model")),
        (("model/model.safetensors", "model/model.json", ""),),
    ),
    Reader(
        "behaviour",
        ("behaviour/behaviour.json", "behaviour/behaviour.safetensors"),
        lambda f: load_behaviour(f / "behaviour"),
        (("behaviour/behaviour.safetensors", "behaviour/behaviour.json", ""),),
    ),
    Reader(
        "run",
        ("run/run.json", "run/results.parquet"),
        _read_run,
        (("run/results.parquet", "run/run.json", "table"),),
    ),
    Reader("journal", ("run/rows.jsonl", "run/run.json"), _read_begun),
    Reader("result", ("result.json",), lambda f: str(ifonly.Result.load(f / "result.json"))),
    Reader("query", ("query.yaml",), lambda f: read_query_file(f / "query.yaml")),
    Reader("study", ("study.yaml",), lambda f: plan(load_study(f / "study.yaml"))),
    Reader("goals", ("goals.yaml", "schema.yaml"), _read_goals),
    Reader("codes", ("codes.yaml",), lambda f: read_code_map(f / "codes.yaml").resolve(CODES)),
    Reader("limits", ("limits.yaml",), lambda f: load_thresholds(f / "limits.yaml")),
    Reader("key", ("key",), lambda f: Deidentifier.from_file(f / "key")),
    Reader("packed", ("table.csv.gz", "schema.yaml"), _read_packed),
    Reader("proof", ("proof.npz",), lambda f: Record.read(f / "proof.npz")),
    Reader("notes", ("notes.sqlite",), _read_notes),
)


def _tables(folder: Path) -> None:
    for name in ("table.csv", "table.parquet"):
        ifonly.read_table(folder / name, folder / "schema.yaml")


# --- what is changed ---

WORDS = (
    "last 9e9 steps",
    f"first {'9' * 400} hours",
    "a*" * 30,
    "",
    " ",
    "x",
    "SOFA",
    "a",
    "nan",
    "é\u0000",
    "=1+1",
    "../..",
    "\ud83d\ude00",
    "\x1b]0;a\x07\x9b2J\r",
    "\u202ea",
    "1e400",
    "0x10",
    "-",
    "x" * 3000,
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3.5, -0.0, 1e308, -1e308, 1e-320, 2**31, 2**63, -(2**64), 10**40),
    *WORDS,
    *([], {}, [[]], [None], {"": None}, [0] * 50, {"a": {"a": {"a": []}}}, float("nan"), float("inf")),
)


def changed_document(draw: random.Random, content: Any) -> Any:
    """A document with one to three entries changed, removed, doubled, renamed or exchanged."""
    found = copy.deepcopy(content)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places = list(_places(found))
        if not places:
            return draw.choice(VALUES)
        holder, key = draw.choice(places)
        match draw.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[draw.choice(WORDS)] = holder.pop(key)
            case 2:
                other, place = draw.choice(places)
                holder[key] = copy.deepcopy(other[place])
            case 3 if isinstance(holder[key], list):
                holder[key] = holder[key] * draw.choice((0, 2, 100))
            case 4 if isinstance(holder[key], int | float):
                holder[key] = draw.choice((-holder[key], holder[key] * 10**6, holder[key] + 0.5, str(holder[key])))
            case 5:
                holder[key] = [holder[key]]
            case _:
                holder[key] = copy.deepcopy(draw.choice(VALUES))
    return found


def _places(value: Any) -> Any:
    """Every entry of a document, as what holds it and its key there."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])


def changed_bytes(draw: random.Random, data: bytes) -> bytes:
    """Bytes flipped, cut off, cut out, repeated, zeroed or put in."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        start = draw.randrange(len(found) + 1)
        end = min(len(found), start + draw.choice((1, 1, 4, 30, 500)))
        match draw.randrange(7):
            case 0:
                del found[start:]
            case 1:
                del found[start:end]
            case 2:
                found[start:start] = found[start:end]
            case 3:
                found[start:end] = bytes(end - start)
            case 4:
                found[start:start] = draw.choice(
                    (b"\xff", b"\0", b"\n", b'"', b"[", b"{", b"\xef\xbb\xbf", b",", b"-" * 99)
                )
            case _:
                if start < len(found):
                    found[start] ^= 1 << draw.randrange(8)
    return bytes(found)


def changed_csv(draw: random.Random, data: bytes) -> bytes:
    """Cells, rows and columns changed."""
    rows = [line.split(",") for line in data.decode().splitlines()]
    for _ in range(draw.choice((1, 1, 2, 4))):
        row = draw.choice(rows)
        match draw.randrange(6):
            case 0:
                rows.remove(row)
                rows = rows or [[""]]
            case 1:
                rows.insert(draw.randrange(len(rows)), list(row))
            case 2 if row:
                row.pop()
            case 3:
                column = draw.randrange(max(map(len, rows)))
                rows = [[cell for place, cell in enumerate(cells) if place != column] for cells in rows] or [[""]]
            case _ if row:
                row[draw.randrange(len(row))] = draw.choice([str(value) for value in VALUES])
    return "\n".join(",".join(row) for row in rows).encode("utf-8", "replace")


def changed_parquet(draw: random.Random, data: bytes) -> bytes:
    """A column of another kind, of long texts or lists, without some values, under another name, or not at all; rows
    gone or doubled."""
    frame = pl.read_parquet(io.BytesIO(data))
    name = draw.choice(frame.columns)
    match draw.randrange(9):
        case 0:
            frame = frame.drop(name)
        case 1:
            frame = frame.rename({name: f"{name}x"})
        case 2:
            frame = frame.with_columns(pl.lit(None).alias(name))
        case 3:
            frame = frame.with_columns(pl.col(name).shuffle(seed=draw.randrange(99)))
        case 4:
            frame = pl.concat([frame, frame[: draw.randrange(3)]])
        case 5:
            frame = frame[: draw.randrange(frame.height + 1)]
        case 6:
            frame = pl.concat([frame] * draw.choice((1, 30)))[:100]
            long = pl.Series(name, ["x" * draw.choice((300, 30_000, 3_000_000))])
            frame = frame.with_columns(long.new_from_index(0, frame.height))
        case 7:
            long = pl.Series([0.0]).new_from_index(0, draw.choice((30, 3_000, 3_000_000))).implode()
            frame = frame[:4].with_columns(long.new_from_index(0, min(4, frame.height)).alias(name))
        case _:
            value = draw.choice([value for value in VALUES if not isinstance(value, list | dict)])
            value = float(value) if isinstance(value, int) and abs(value) > 2**62 else value
            chosen = pl.int_range(pl.len()) == draw.randrange(max(1, frame.height))
            kind = frame.schema[name]
            try:
                frame = frame.with_columns(
                    pl.when(chosen).then(pl.lit(value).cast(kind)).otherwise(pl.col(name)).alias(name)
                )
            except pl.exceptions.PolarsError:
                frame = frame.with_columns(pl.lit(str(value)).alias(name))
    file = io.BytesIO()
    frame.write_parquet(file)
    return file.getvalue()


def changed_lines(draw: random.Random, data: bytes) -> bytes:
    """Entries of a journal, most of them with the right checksum."""
    lines = data.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    entry = json.loads(lines[at])
    entry.pop("checksum")
    content = changed_document(draw, entry)
    if isinstance(content, dict) and content:
        lines[at] = line_of(json.dumps(content))
    if draw.random() < 0.2:
        lines.insert(draw.randrange(len(lines)), draw.choice(lines))
    return b"".join(lines)


def changed_text(draw: random.Random, data: bytes, suffix: str) -> bytes:
    """A document of JSON or YAML with other entries."""
    if suffix == ".json":
        return json.dumps(changed_document(draw, json.loads(data))).encode()
    content = changed_document(draw, _yaml(data))
    return yaml.safe_dump(content, allow_unicode=True).encode("utf-8", "replace")


_yaml = cache(yaml.safe_load)
"""Of a file of the corpus: the same ones are mutated over and over."""


def mutated(draw: random.Random, name: str, data: bytes) -> bytes:
    """The content of a file, changed by its structure three times of four, else by its bytes."""
    suffix = Path(name).suffix
    if draw.random() < 0.25 or suffix in ("", ".safetensors", ".npz", ".sqlite", ".gz"):
        return changed_bytes(draw, data)
    by_kind: dict[str, Mutate] = {".csv": changed_csv, ".parquet": changed_parquet, ".jsonl": changed_lines}
    return by_kind[suffix](draw, data) if suffix in by_kind else changed_text(draw, data, suffix)


def put_right(reader: Reader, folder: Path) -> None:
    """Let documents tell the checksums that their files have now."""
    for file, document, place in reader.sums:
        try:
            content = json.loads((folder / document).read_bytes())
            data = (folder / file).read_bytes()
            (content[place] if place else content)["sha256"] = hashlib.sha256(data).hexdigest()
            if place:
                content[place]["bytes"] = len(data)
            (folder / document).write_text(json.dumps(content))
        except (ValueError, KeyError, TypeError):
            continue


# --- what comes of it ---


def prepare(folder: Path) -> Path:
    """A copy of the corpus, with what is too large to be kept there."""
    shutil.copytree(CORPUS, folder)
    frame_of(rows_of(folder / "run")).write_parquet(folder / "run" / "results.parquet")
    put_right(next(reader for reader in READERS if reader.name == "run"), folder)
    asked = ["solve", "--episodes", folder / "cohort", "--model", folder / "model", "--query", folder / "query.yaml"]
    done = CliRunner().invoke(app, [str(part) for part in [*asked, "--only", "e1", "--proof", folder / "proof.npz"]])
    assert done.exit_code == 0, done.output
    Deidentifier.from_file(folder / "key")
    (folder / "table.csv.gz").write_bytes(gzip.compress((folder / "table.csv").read_bytes(), mtime=0))
    notes = Notes(folder / "notes.sqlite", cohort="c", model="m")
    notes.save(Note("e1", "plausible", "a note", "somebody"))
    notes.close()
    return folder


def try_one(seed: int, ready: Path, folder: Path) -> tuple[str, str | None]:
    """The reader that a seed stands for, and what is wrong with how it took its mutation; None: nothing.

    `folder` is a copy of `ready`, and is one again afterwards, unless something is wrong.
    """
    draw = random.Random(seed)
    reader = draw.choice(READERS)
    name = draw.choice(reader.files)
    (folder / name).write_bytes(mutated(draw, name, (folder / name).read_bytes()))
    if draw.random() < 0.5:
        put_right(reader, folder)
    before = _listed(folder)
    wrong = _wrong(reader, folder)
    if wrong is None and reader.name not in ("notes", "journal") and _listed(folder) != before:
        wrong = "the reader has changed the folder"
    if wrong is None:
        changed = {name, *(document for _, document, _ in reader.sums)}
        for file in changed | ({"run/run.json"} if reader.name == "journal" else set()):
            shutil.copyfile(ready / file, folder / file)
        for extra in folder.glob("notes.sqlite-*"):
            extra.unlink()
    return reader.name, None if wrong is None else f"{reader.name}, {name}, seed {seed}: {wrong}"


def _wrong(reader: Reader, folder: Path) -> str | None:
    began, memory = time.process_time(), _memory()
    try:
        reader.read(folder)
    except IfonlyError as error:
        if not 10 < len(str(error)) < LONGEST_MESSAGE:
            return f"a message of {len(str(error))} characters: {str(error)[:300]}"
        unseen = {sign for sign in str(error) if category(sign) in ("Cc", "Cs") or sign == "\u202e"} - {"\n", "\t"}
        if unseen:
            return f"a message that does something to a terminal, {unseen!r}: {str(error)[:300]!r}"
    except RecursionError as error:
        return f"{type(error).__name__}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}\n{traceback.format_exc(limit=-4)}"
    if (seconds := time.process_time() - began) > SECONDS:
        return f"{seconds:.1f} s"
    return f"{(_memory() - memory) / 2**20:.0f} MB" if _memory() - memory > MOST_MEMORY else None


def _memory() -> int:
    """The most that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _listed(folder: Path) -> list[tuple[str, int, int]]:
    found = [Path(place) / name for place, folders, files in os.walk(folder) for name in (*folders, *files)]
    return sorted((str(path), state.st_size, state.st_mtime_ns) for path in found for state in [path.stat()])


def main() -> int:
    """Try, and say how many mutations of which reader were taken as they should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first; each has its own, which follows")
    parser.add_argument("--seconds", type=float, help="begin no further one after this")
    parser.add_argument("--write", action="store_true", help="write the corpus anew, after a change of a format")
    options = parser.parse_args()
    if options.write:
        write_corpus(CORPUS)
        return 0
    kept = Path(tempfile.mkdtemp(prefix="ifonly-fuzz-"))
    tried, found, began = Counter[str](), 0, time.monotonic()
    ready = prepare(kept / "ready")
    shutil.copytree(ready, kept / "now")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    warnings.simplefilter("error", RuntimeWarning)  # of numbers that nobody has checked
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + 2 * MOST_MEMORY, hard))
    for seed in range(options.seed, options.seed + options.count):
        if options.seconds is not None and time.monotonic() - began > options.seconds:
            break
        name, wrong = try_one(seed, ready, kept / "now")
        tried[name] += 1
        if wrong is not None:
            found += 1
            print(wrong, file=sys.stderr, flush=True)
            (kept / "now").rename(kept / str(seed))
            shutil.copytree(ready, kept / "now")
    print(", ".join(f"{name} {count:,}" for name, count in sorted(tried.items())))
    print(f"in all: {sum(tried.values()):,} mutations, {found} findings{f', kept in {kept}' if found else ''}")
    if not found:
        shutil.rmtree(kept)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
