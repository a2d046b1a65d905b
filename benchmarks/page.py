"""Benchmark figures as tables: on the terminal, and as a page of the documentation.

    python benchmarks/page.py runs/bench/solvers.json [more.json ...] --out docs/benchmarks.md

Several files, for instance of a machine with a GPU, make one page. `solvers.py --page` does the same for its own run.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from measuring import ANCHORS, NEW, Content
from rich.table import Table


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
    parts = [INTRODUCTION]
    for content in contents:
        parts.append(f"## {machine_in_words(content)}")
        parts.append(settings_in_words(content))
        parts.extend(section.as_markdown() for section in sections(content))
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """# Benchmarks

Figures of `make bench`, each of one run on a machine that is named in general terms. Seconds do not travel between
machines, ratios mostly do.

- Seconds are those of one `solve` of one stay, bounds included: everything after the problem is built. Every solver
  runs in a fresh process for each row; one throw-away solve of another, small problem comes first, because what torch
  loads on first use belongs to no stay.
- Every solve has a time limit. `> 60` means that it ended there without a proof; *proven* counts those that did not.
- Memory is the largest that the process ever had, in brackets what the solves added to what it had before them.
- The ratio is the time of a solver over that of branch and bound on the same stay: the median, and in brackets the
  lowest. Solves that reached the limit count with the time they took, hence `>` (the other solver was stopped), `<`
  (branch and bound was) or `~` (both were).
- Wherever two exact solvers finished, their outcomes are equal up to 1e-9 of their size, and no solver found more than
  another's upper bound; otherwise there would be no page, but an error."""


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
    return (
        f"{machine['system']}, Python {machine['python']}, torch {machine['torch']} with {machine['threads']} "
        f"thread{'' if machine['threads'] == 1 else 's'}. Networks of 200 units, fitted to {settings['training']:,} "
        f"simulated stays for {settings['epochs']} epochs, with Lipschitz limits (1.0, 0.1) or without; asked about "
        f"other stays. Time limit {settings['seconds']:g} s, anchors from {settings['samples']:,} sequences."
    )


def _solvers(content: Content) -> Section:
    rows = []
    agreeing = 0
    for case in content.get("solvers", ()):
        agreeing += case["agreeing"]
        for name, run in case["runs"].items():
            rows.append((*_case_cells(case), name, *_run_cells(name, run, case["runs"][NEW])))
    columns = ("model, stays", "T", "k", "solver", "proven", "median s", "worst s", "nodes", "model steps", "peak MiB")
    compared = f"{agreeing:,} pairs of proven outcomes were compared; all are equal." if agreeing else ""
    notes = (f"Nodes and model steps: medians. {compared}".strip(),)
    return Section("Solvers side by side", (*columns, "ratio"), tuple(rows), notes)


def _case_cells(case: Content) -> tuple[str, ...]:
    return f"{case['model']}, {case['stays']}", case["horizon"], _budget(case["changes"])


def _budget(changes: int | None) -> str:
    return "no limit" if changes is None else str(changes)


def _run_cells(name: str, run: Content, new: Content) -> tuple[str, ...]:
    if "episodes" not in run:
        return ("not run", run["not_run"], "", "", "", "", "")
    episodes = run["episodes"]
    return (
        *_timing_cells(episodes),
        f"{_median(episodes, 'expanded'):,.0f}",
        f"{_median(episodes, 'model_steps'):,.0f}",
        _memory_cell(run),
        "" if name == NEW else _ratio_cell(episodes, new["episodes"]),
    )


def _timing_cells(episodes: list[Content]) -> tuple[str, str, str]:
    proven = sum(episode["proven"] for episode in episodes)
    return f"{proven} of {len(episodes)}", _typical(episodes), _worst(episodes)


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
    columns = ("grows", "model", "value", "proven", "median s", "worst s", "nodes", "model steps")
    notes = (
        "Branch and bound with one size growing, the others fixed: T = 12 steps, k = 2 changes, A = 25 actions, "
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


def main() -> None:
    """Write the page from files of figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="what `solvers.py --json` wrote")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in options.files]
    options.out.write_text(page(contents), encoding="utf-8")


if __name__ == "__main__":
    main()
