"""Solve random small problems of every kind in every exact way, compare with enumeration, and check logs of searches.

python tools/fuzz.py --count 10000 --workers 4 --json fuzz.json    seeds 0 to 9,999, in four processes
python tools/fuzz.py --count 2500 --seed 2500                      one shard of them: seeds 2,500 to 4,999
python tools/fuzz.py --count 1 --seed 1234                         one problem again
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ifonly.cli.drawing import progress_bars
from ifonly.files import write_text_atomically
from ifonly.progress import Tick
from ifonly.version import __version__

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]

from trials import Trial, trial  # noqa: E402


def main(arguments: list[str]) -> int:
    """Whether anything was wrong: 0 or 1; each finding is told as it comes up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, metavar="N", help="how many seeds")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes that share the seeds")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="begin nothing after this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was tried and found")
    asked = parser.parse_args(arguments)
    seeds = range(asked.seed, asked.seed + asked.count)
    began, trials = time.monotonic(), []
    with progress_bars() as bars:
        for one in tried(seeds, asked.workers):
            trials.append(one)
            if one.findings:
                bars.say(f"seed {one.seed}: " + "; ".join(one.findings))
            bars(Tick("problems", len(trials), len(seeds), {"failed": sum(bool(t.findings) for t in trials)}))
            if time.monotonic() - began > asked.seconds:
                break
    found = summary(trials, time.monotonic() - began) | {"first_seed": asked.seed, "workers": asked.workers}
    if asked.json is not None:
        write_text_atomically(asked.json, json.dumps(found, indent=2) + "\n")
    failed = [one["seed"] for one in found["failed"]]
    print(
        f"{found['problems']:,} problems of {found['seeds']:,} seeds, {found['logs_checked']:,} logs checked, "
        f"{len(failed):,} failed, {found['seconds']:.0f} s: {failed}"
    )
    return int(bool(failed))


def tried(seeds: range, workers: int) -> Iterator[Trial]:
    """Trials as they are finished, in any order."""
    processes = multiprocessing.get_context("spawn")  # torch and forks do not go together
    with processes.Pool(workers, initializer=one_thread) if workers > 1 else nullcontext() as pool:
        one_thread()
        yield from map(trial, seeds) if pool is None else pool.imap_unordered(trial, seeds, chunksize=8)


def one_thread() -> None:
    """Small problems gain nothing from more."""
    torch.set_num_threads(1)


def summary(trials: list[Trial], seconds: float) -> dict[str, Any]:
    """How many problems of which kind were tried, and what failed."""
    problems = [one for one in trials if one.drawn]
    names = sorted({name for one in problems for name in one.drawn})
    return {
        "ifonly": __version__,
        "torch": torch.__version__,
        "seeds": len(trials),
        "problems": len(problems),
        "logs_checked": sum(one.logged for one in trials),
        "seconds": round(seconds, 1),
        "kinds": {name: dict(sorted(Counter(one.drawn[name] for one in problems).items())) for name in names},
        "failed": sorted((asdict(one) for one in trials if one.findings), key=lambda one: int(one["seed"])),
    }


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
