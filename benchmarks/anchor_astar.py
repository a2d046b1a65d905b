"""The paper's A* against exhaustive search, side by side in one run, on the simulated cohort.

Run `make bench`, or `python benchmarks/anchor_astar.py --help` for other sizes. Prints, for each episode, the seconds
for bounds and for search, visited and queued nodes, the effective branching factor, the seconds that exhaustive search
takes and their ratio; both must find the same outcome. Peak memory is read after the A* runs and before the others.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

import ifonly
from ifonly.search.result import Result


def main() -> None:
    """Fit, solve with both, print a table."""
    options = _options()
    console = Console(width=140)  # wide enough for the table, also in a file
    with console.status("simulating and fitting"):
        train = ifonly.simulate.simulate_cohort(options.training, seed=0)
        start = ifonly.LocationScale(train.schema, lipschitz=(options.location, options.scale))
        model = ifonly.fit(start, train, epochs=options.epochs, seed=0).for_search()
    episodes = list(ifonly.simulate.simulate_cohort(options.episodes, seed=1, horizon=options.horizon))
    problems = [
        ifonly.Problem.from_episode(episode, model, ifonly.minus("SOFA"), options.changes) for episode in episodes
    ]
    with console.status("A*") as status:
        solver = ifonly.AnchorAStar(ifonly.MonteCarlo(samples=options.samples))
        found = []
        for number, problem in enumerate(problems, start=1):
            status.update(f"A*, episode {number} of {len(problems)}")
            found.append(ifonly.solve(problem, solver))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    with console.status("exhaustive search"):
        exact = [ifonly.solve(problem, ifonly.Exhaustive()) for problem in problems]
    console.print(_table(options, found, exact, memory))
    if options.json:
        rows = [_row(a, b) for a, b in zip(found, exact, strict=True)]
        content = {"settings": {**vars(options), "json": None}, "peak_memory_gib": memory, "episodes": rows}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _row(found: Result, exact: Result) -> dict[str, float | str]:
    if abs(found.outcome - exact.outcome) > 1e-8:
        raise SystemExit(f"{found.episode_id}: A* found {found.outcome!r}, exhaustive search {exact.outcome!r}")
    return {
        "episode": found.episode_id,
        "status": found.status.value,
        "bounds_seconds": found.stats.seconds_bounds,
        "search_seconds": found.stats.seconds_search,
        "visited": found.stats.nodes_visited or 0,
        "expanded": found.stats.nodes_expanded,
        "generated": found.stats.nodes_generated,
        "branching": found.stats.effective_branching_factor or 1.0,
        "model_steps": found.stats.model_steps,
        "exhaustive_seconds": exact.stats.seconds,
        "exhaustive_steps": exact.stats.model_steps,
        "ratio": exact.stats.seconds / found.stats.seconds,
    }


COLUMNS = {
    "bounds_seconds": ("bounds s", "{:.1f}"),
    "search_seconds": ("search s", "{:.1f}"),
    "visited": ("visited", "{:,.0f}"),
    "expanded": ("expanded", "{:,.0f}"),
    "generated": ("generated", "{:,.0f}"),
    "branching": ("EBF", "{:.2f}"),
    "model_steps": ("steps", "{:,.0f}"),
    "exhaustive_seconds": ("exhaustive s", "{:.1f}"),
    "exhaustive_steps": ("its steps", "{:,.0f}"),
    "ratio": ("ratio", "{:.2f}"),
}


def _table(options: argparse.Namespace, found: list[Result], exact: list[Result], memory: float) -> Table:
    rows = [_row(a, b) for a, b in zip(found, exact, strict=True)]
    table = Table(
        title=f"T={options.horizon}, k={options.changes}, M={options.samples}, 25 actions, 200 hidden units; "
        f"peak memory of A* {memory:.2f} GiB",
        caption="ratio: time of exhaustive search over time of A*, bounds included",
    )
    for name in ("episode", "status"):
        table.add_column(name)
    for name, _ in COLUMNS.values():
        table.add_column(name, justify="right")
    for row in rows:
        cells = [pattern.format(row[key]) for key, (_, pattern) in COLUMNS.items()]
        table.add_row(str(row["episode"]), str(row["status"]), *cells)
    medians = [
        pattern.format(statistics.median(float(row[key]) for row in rows)) for key, (_, pattern) in COLUMNS.items()
    ]
    table.add_section()
    table.add_row("median", "", *medians)
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--horizon", type=int, default=12)
    parser.add_argument("--changes", type=int, default=3)
    parser.add_argument("--samples", type=int, default=2000, help="Monte Carlo sequences for the anchors (M)")
    parser.add_argument("--training", type=int, default=2000, help="simulated episodes to fit on")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--location", type=float, default=1.0, help="Lipschitz limit of the location network")
    parser.add_argument("--scale", type=float, default=0.1, help="Lipschitz limit of the scale network")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
