"""An invented log of a workshop: machines that run hot and are cooled and greased, hour by hour."""

import numpy as np
import polars as pl


def workshop(runs=40, length=6, seed=0):
    """Columns with names of their own: run, hour (every two), machine, and what was measured and done."""
    rng = np.random.default_rng(seed)
    rows = []
    for run in range(runs):
        heat, wear, age = rng.normal(60, 6), rng.lognormal(0, 1), float(rng.integers(1, 9))
        for turn in range(length):
            coolant = 0.0 if rng.random() < 0.4 else round(rng.gamma(3, 1), 3)
            grease = float(rng.random() < 0.45)
            rows.append(
                {
                    "run": f"r{run}",
                    "machine": f"machine {run % 12}",
                    "hour": 2 * turn + 8,
                    "age_years": age,
                    "ambient": 18 + 2 * np.sin(run) + turn,
                    "heat": heat,
                    "wear": wear,
                    "alarm": float(heat > 66),
                    "coolant dose": coolant,
                    "grease": grease,
                    "note": "fine",
                    "shop": 7,
                    "failed": run % 2,
                }
            )
            heat = heat + rng.normal(1.5, 1.0) - 1.2 * coolant
            wear = wear * np.exp(rng.normal(0.05, 0.1) - 0.2 * grease)
    return pl.DataFrame(rows)


DOSES = ("coolant dose", "grease")
