"""Benchmark figures as tables: on the terminal, and as a page of the documentation.

    python benchmarks/page.py                      # docs/benchmarks.md, of the figures in benchmarks/measured
    python benchmarks/page.py runs/bench/solvers.json [more.json ...] --out runs/bench/benchmarks.md

Each file is one run of `solvers.py --json`, `gpu_cohort.py --json` or `profile_parts.py --json`; several make one page.
`solvers.py --page` does the same for its own run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from measuring import ANCHORS, NEW, Content
from rich.table import Table

MEASURED = Path(__file__).parent / "measured"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Section:
    """A table with what needs to be said about it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def as_rich(self) -> Table:
        """For the terminal."""
        table = Table(title=self.title, caption="\n".join(self.notes), caption_justify="left")
        for number, name in enumerate(self.columns):
            table.add_column(name, justify="left" if number == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        return table

    def as_markdown(self) -> str:
        """For a page."""
        lines = [
            " | ".join(self.columns),
            "|".join("---" if number == 0 else "---:" for number in range(len(self.columns))),
            *(" | ".join(row) for row in self.rows),
        ]
        table = "\n".join(f"| {line} |" if number != 1 else f"|{line}|" for number, line in enumerate(lines))
        return "\n\n".join([f"### {self.title}", table, *self.notes])


def sections(content: Content) -> list[Section]:
    """The tables of one run, those that have rows."""
    made = (_solvers(content), _anchors(content), _growth(content), _batch(content))
    return [section for section in made if section.rows]


def page(contents: Iterable[Content]) -> str:
    """The documentation page."""
    parts, runs = [INTRODUCTION], []
    for content in contents:
        if "stages" in content:
            runs.append(content)
            continue
        if "parts" in content:
            parts.extend(["## Where the time of a solve goes", words_of_parts(content)])
            parts.append(parts_of_solves(content).as_markdown())
            continue
        parts.append(f"## {machine_in_words(content)}")
        parts.append(settings_in_words(content))
        parts.extend(section.as_markdown() for section in sections(content))
    if runs:
        parts.extend(["## Whole cohort runs", RUNS, cohort_runs(runs).as_markdown()])
    return "\n\n".join([*parts, WHAT_LIMITS]) + "\n"


INTRODUCTION = """# Benchmarks

Figures of `make bench`, each of one run on a machine that is named in general terms. Seconds do not travel between
machines, ratios mostly do. The page is made of the figures in `benchmarks/measured` by `python benchmarks/page.py`.

- Seconds are those of one `solve` of one stay, bounds included: everything after the problem is built. Every solver
  runs in a fresh process for each row; one throw-away solve of another, small problem comes first, because what torch
  loads on first use belongs to no stay.
- Every solve has a time limit. `> 60` means that it ended there without a proof; *proven* counts those that did not,
  and *bracket* is how far the proven upper bound lies above the best sequence found, in percent of the outcome: the
  median, 0 where all are proven.
- Memory is the largest that the process ever had, in brackets what the solves added to what it had before them.
- The ratio is the time of a solver over that of branch and bound on the same stay: the median, and in brackets the
  lowest. Solves that reached the limit count with the time they took, hence `>` (the other solver was stopped), `<`
  (branch and bound was) or `~` (both were).
- Wherever two exact solvers finished, their outcomes are equal up to 1e-9 of their size, and no solver found more than
  another's upper bound; otherwise there would be no page, but an error."""

RUNS = """`python benchmarks/gpu_cohort.py`, from episodes to stored results with their evidence, in seconds of one run;
[cohort runs](cohort-runs.md#a-gpu) say how it is done."""

WHAT_LIMITS = """## What limits it

With Lipschitz limits or a curvature penalty and up to three changes nearly nothing is left of the search: making the
bound - derivatives of `T A` steps, and remainders of `T^2 / 2` pieces of the recorded path - takes two fifths of the
[time](#where-the-time-of-a-solve-goes), and then the pairs of changes that one exact step excludes a fifth. Both grow
with the square of T. With 32 features two thirds are expansions of the recorded policy, to third order.

The remainders of the [Taylor bound](theory.md#the-taylor-bound) grow with the third power of how far changes move the
state, and add up over changes: [beyond two changes ahead](theory.md#when-it-gets-loose) of a state that is known the
bound says little, so that every further change costs some tens of times as much as the one before, and with five and
more the tree has no useful upper bound before the search is nearly done. What there is comes from the [states that
many changes reach](theory.md#many-changes); the brackets above are older than that, `benchmarks/hard_questions.py` has
[present ones](choosing-a-solver.md#measured). A curvature penalty keeps remainders
small without a limit on slopes; networks without either, whose third derivatives are ten times larger, gain little over
enumeration. Networks with ReLU units and post-nonlinear models with their splines have kinks, where no third
derivative exists: anchors or enumeration lead there.

What made the difference for real stays, whose noise lies up to some tens of deviations out: bounds on the scale for
each feature by itself, with its own noise, and along the directions in which changes move the state, instead of the
largest noise times norms over all features (at T = 20 and k = 3 four to eight times less time with the default
recipe's models). For constrained models: limits of displacements instead of derivatives over balls (these feed back
into each other over the steps, and at a distance of one scaled unit are five hundred times the truth), forms that
know directions instead of norms, and a norm in which the effects of changes look alike. Tried without success: boxes
carried from step to step (their radii multiply), quadratic forms and directions of states in place of single units in
the bounds on many changes, and alternating sums over subsets of changes. What a GPU
does for this bound are many small operations, and starting them takes most of the time."""


def machine_in_words(content: Content) -> str:
    """A heading."""
    machine = content["machine"]
    accelerator = f", {machine['accelerator']}" if machine["accelerator"] else ""
    memory = f", {machine['memory_gib']:.0f} GiB" if machine["memory_gib"] else ""
    cores = f"{machine['cores']} core{'' if machine['cores'] == 1 else 's'}"
    return f"{cores}{memory}{accelerator}"


def settings_in_words(content: Content) -> str:
    """How the figures came about."""
    machine, settings = content["machine"], content["settings"]
    jobs = "" if settings["jobs"] == 1 else f", {settings['jobs']} processes side by side"
    clock = " Seconds are the processor's: others were at work." if settings["processor"] else ""
    where = (
        f"{machine['system']}, Python {machine['python']}, torch {machine['torch']}, {_threads(machine)} each{jobs}."
    )
    how = f"{where}{clock} {settings['about']}".strip()
    if not settings["models"]:
        return f"{how} Time limit {settings['seconds']:g} s."
    return (
        f"{how} Networks of 200 units, fitted to {settings['training']:,} simulated stays for {settings['epochs']} "
        "epochs: *constrained* with Lipschitz limits (1.0, 0.1); *penalised* as the default recipe has it for 1,000 "
        "such stays (`residual-tails`, curvature penalty 0.03); *unconstrained* with neither. Asked about other stays. "
        f"Time limit {settings['seconds']:g} s, anchors from {settings['samples']:,} sequences."
    )


def _threads(machine: Content) -> str:
    return f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}"


def _solvers(content: Content) -> Section:
    rows = []
    agreeing = 0
    for case in content.get("solvers", ()):
        agreeing += case["agreeing"]
        for name, run in case["runs"].items():
            rows.append((*_case_cells(case), name, *_run_cells(name, run, case["runs"][NEW])))
    columns = ("model, stays", "T", "k", "solver", "proven", "bracket %", "median s", "worst s", "nodes", "model steps")
    compared = f"{agreeing:,} pairs of proven outcomes were compared; all are equal." if agreeing else ""
    notes = (f"Nodes and model steps: medians. {compared}".strip(),)
    return Section("Solvers side by side", (*columns, "peak MiB", "ratio"), tuple(rows), notes)


def _case_cells(case: Content) -> tuple[str, ...]:
    return f"{case['model']}, {case['stays']}", case["horizon"], _budget(case["changes"])


def _budget(changes: int | None) -> str:
    return "no limit" if changes is None else str(changes)


def _run_cells(name: str, run: Content, new: Content) -> tuple[str, ...]:
    if "episodes" not in run:
        return ("not run", "", run["not_run"], *[""] * 5)
    episodes = run["episodes"]
    return (
        *_timing_cells(episodes),
        f"{_median(episodes, 'expanded'):,.0f}",
        f"{_median(episodes, 'model_steps'):,.0f}",
        _memory_cell(run),
        "" if name == NEW else _ratio_cell(episodes, new["episodes"]),
    )


def _timing_cells(episodes: list[Content]) -> tuple[str, ...]:
    proven = sum(episode["proven"] for episode in episodes)
    return f"{proven} of {len(episodes)}", _bracket(episodes), _typical(episodes), _worst(episodes)


def _bracket(episodes: list[Content]) -> str:
    """How far upper bounds lie above what was found, in percent of the outcome: the median over episodes."""
    middle = statistics.median(_width(episode) for episode in episodes)
    if not math.isfinite(middle):
        return "none"
    return "0" if middle == 0 else f"{middle:,.0f}" if middle >= 10 else f"{middle:.2g}"


def _width(episode: Content) -> float:
    if episode["proven"]:
        return 0.0
    if episode["upper_bound"] is None:
        return math.inf
    return 100 * (episode["upper_bound"] - episode["outcome"]) / max(1.0, abs(episode["outcome"]))


def _typical(episodes: list[Content]) -> str:
    """The median, those without a proof counted as the slowest."""
    ordered = sorted(episodes, key=lambda episode: (not episode["proven"], episode["seconds"]))
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    stopped = not all(episode["proven"] for episode in middle)
    return _seconds(statistics.fmean(episode["seconds"] for episode in middle), stopped)


def _worst(episodes: list[Content]) -> str:
    stopped = not all(episode["proven"] for episode in episodes)
    return _seconds(max(episode["seconds"] for episode in episodes), stopped)


def _seconds(seconds: float, stopped: bool) -> str:
    return f"> {seconds:.0f}" if stopped else f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"


def _median(episodes: list[Content], name: str) -> float:
    return statistics.median(episode[name] for episode in episodes)


def _memory_cell(run: Content) -> str:
    if run["peak_mib"] is None:
        return "unknown"
    return f"{run['peak_mib']:,.0f} (+{run['peak_mib'] - run['start_mib']:,.0f})"


def _ratio_cell(episodes: list[Content], new: list[Content]) -> str:
    pairs = list(zip(episodes, new, strict=False))
    ratios = [other["seconds"] / ours["seconds"] for other, ours in pairs]
    other_stopped = not all(other["proven"] for other, _ in pairs)
    new_stopped = not all(ours["proven"] for _, ours in pairs)
    sign = {(False, False): "", (True, False): "> ", (False, True): "< ", (True, True): "~ "}
    return f"{sign[other_stopped, new_stopped]}{_short(statistics.median(ratios))} ({_short(min(ratios))})"


def _short(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def _anchors(content: Content) -> Section:
    """What the paper measures of its search."""
    rows = []
    for case in content.get("solvers", ()):
        episodes = [e for e in case["runs"].get(ANCHORS, {}).get("episodes", ()) if e["proven"]]
        if episodes:
            search = statistics.median(e["seconds"] - e["bounds_seconds"] for e in episodes)
            counts = (_median(episodes, name) for name in ("visited", "expanded", "generated"))
            branching = statistics.median(e["branching"] or 1.0 for e in episodes)
            rows.append(
                (
                    *_case_cells(case),
                    f"{_median(episodes, 'bounds_seconds'):.2f}",
                    f"{search:.2f}",
                    *(f"{count:,.0f}" for count in counts),
                    f"{branching:.2f}",
                )
            )
    columns = ("model, stays", "T", "k", "bounds s", "search s", "visited", "expanded", "generated", "branching factor")
    notes = ("Medians over the stays that it proved.",)
    return Section("The paper's A* in detail", columns, tuple(rows), notes)


def _growth(content: Content) -> Section:
    rows = tuple(
        (
            line["axis"],
            line["model"],
            str(line["value"]),
            *_timing_cells(line["episodes"]),
            f"{_median(line['episodes'], 'expanded'):,.0f}",
            f"{_median(line['episodes'], 'model_steps'):,.0f}",
        )
        for line in content.get("growth", ())
    )
    columns = ("grows", "model", "value", "proven", "bracket %", "median s", "worst s", "nodes", "model steps")
    notes = (
        "Branch and bound with one size growing, the others fixed: T = 12 steps, k = 3 changes, A = 25 actions, "
        "D = 9 features, 200 units. Fewer actions are a restriction of `allowed`; models of other widths are fitted "
        "briefly, models of other D have random weights. A series ends where nothing is proven in time.",
    )
    return Section("How time grows", columns, rows, notes)


def _batch(content: Content) -> Section:
    rows = tuple(
        (
            line["model"],
            line["device"],
            f"{line['episodes']:,}",
            f"{line['proven']:,}",
            f"{line['seconds']:.1f}",
            f"{line['episodes'] / line['seconds']:.1f}",
            f"{line['seconds_to_build']:.1f}",
            _memory_cell(line),
        )
        for line in content.get("batch", ())
    )
    columns = ("model", "device", "stays", "proven", "s", "stays per s", "s to build", "peak MiB")
    notes = ("`solve_batch` on simulated stays of 10 to 20 steps, k = 3. Building the problems is not counted.",)
    return Section("Many stays in one call", columns, rows, notes)


def words_of_parts(content: Content) -> str:
    """How the parts were measured."""
    machine, settings = content["machine"], content["settings"]
    where = f"{machine['system']}, Python {machine['python']}, torch {machine['torch']}, {_threads(machine)}"
    fitted = f"fitted to {settings['training']:,} simulated stays for {settings['epochs']} epochs"
    command = f"python benchmarks/profile_parts.py --count {settings['count']} --batch {settings['batch']}"
    return (
        f"`{command}`: {machine_in_words(content)}, {where}. {settings['about']}".strip()
        + f" Milliseconds of the processor for each stay, k = 3; networks of 200 units, {fitted}, and one with random "
        "weights. *First sequences* are replays of all single changes and a local search; *values*, *changes* and "
        "*tables* make the bound: expansions of the recorded policy, of every change, and what is looked up. Then "
        "nodes' *children* are bounded, taken one step ahead (*look ahead*) or replayed."
    )


def parts_of_solves(content: Content) -> Section:
    """Processor time of the parts of solves, side by side in one run."""
    names = list(dict.fromkeys(name for row in content["parts"] for name in row["parts"]))
    rows = tuple(
        (
            row["model"] + (", in one call" if row["together"] else ""),
            row["horizon"],
            str(row["stays"]),
            f"{row['problem']:.2g}",
            f"{row['milliseconds']:,.0f}",
            *(f"{100 * row['parts'].get(name, 0.0) / sum(row['parts'].values()):.0f} %" for name in names),
        )
        for row in content["parts"]
    )
    columns = ("model", "T", "stays", "ms to build the problem", "ms to solve it", *names)
    notes = ("Medians over the stays, or means of those in one call; shares are of the solve.",)
    return Section("Parts of a solve", columns, rows, notes)


def cohort_runs(runs: Sequence[Content]) -> Section:
    """What whole runs took, and their stages."""
    rows = tuple(
        (
            one["device"] if one["workers"] == 1 else f"{one['device']}, {one['workers']} workers",
            one["model"],
            f"{one['stays']:,}",
            f"{one['steps'][0]} to {one['steps'][1]}",
            str(one["changes"]),
            f"{one['status'].get('optimal', 0):,}",
            f"{one['seconds']:.1f}",
            f"{one['milliseconds_per_stay']:.2f}",
            ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in one["stages"].items()),
        )
        for one in runs
    )
    columns = ("device", "model", "stays", "T", "k", "proven", "s", "ms per stay", "s of stages")
    return Section("From episodes to stored results", columns, rows)


def main() -> None:
    """Write the page from files of figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", help="figures; those in benchmarks/measured unless given")
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    files = options.files or sorted(MEASURED.glob("*.json"))
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    options.out.write_text(page(contents), encoding="utf-8")


if __name__ == "__main__":
    main()
