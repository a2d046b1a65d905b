"""Solve random small problems of every kind and compare with enumeration: `make fuzz`, or one shard of many.

python tools/fuzz.py --count 10000 --shard 0/4    seeds 0, 4, 8, ... below 10,000
python tools/fuzz.py --seed 1234                  one problem again
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

from ifonly.cli.drawing import progress_bars
from ifonly.progress import Tick
from ifonly.testing.fuzz import disagreements, drawn_problem


def main(arguments: list[str]) -> int:
    """The number of seeds at which something disagreed, at most 1; each is told as it comes up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="seeds in all shards together")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="the seeds that are I modulo N")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, help="this seed alone")
    asked = parser.parse_args(arguments)
    shard, shards = (int(part) for part in asked.shard.split("/"))
    seeds = range(asked.first + shard, asked.first + asked.count, shards) if asked.seed is None else [asked.seed]
    tried, empty, failed, began = 0, 0, [], time.monotonic()
    with progress_bars() as bars:
        for place, seed in enumerate(seeds):
            if time.monotonic() - began > asked.seconds:
                break
            try:
                problem = drawn_problem(seed)
                found = [] if problem is None else disagreements(problem, seed)
            except Exception as error:  # a crash is a finding like any other
                problem, found = None, [f"{type(error).__name__}: {error}"]
            tried, empty = tried + 1, empty + (problem is None and not found)
            if found:
                failed.append(seed)
                bars.say(f"seed {seed}: " + "; ".join(found))
            bars(Tick("problems", place + 1, len(seeds), {"failed": len(failed)}))
    seconds = time.monotonic() - began
    print(f"{tried:,} seeds, {empty:,} of them without a problem, {len(failed):,} failed, {seconds:.0f} s: {failed}")
    return int(bool(failed))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1:]))
