"""Invented rows of the AI Clinician's table."""

from typing import Any

import numpy as np
import polars as pl


def rows_of(stay: int, blocs: list[int], **constant: float) -> pl.DataFrame:
    random = np.random.default_rng(stay)
    count = len(blocs)
    columns: dict[str, Any] = {
        "bloc": blocs,
        "icustayid": [stay] * count,
        "charttime": 4_000_000_000 + 14400 * np.arange(count),
        "gender": [stay % 2] * count,
        "age": [20_000.5 + stay] * count,
        "re_admission": [0] * count,
        "died_within_48h_of_out_time": [0] * count,
        "SOFA": random.integers(2, 15, count),
        "GCS": random.integers(3, 16, count),
        "MeanBP": random.uniform(50, 100, count),
        "FiO2_1": random.uniform(0.21, 1, count),
        "Creatinine": random.uniform(0.5, 5, count),
        "Total_bili": random.uniform(0.2, 9, count),
        "Platelets_count": random.uniform(20, 400, count),
        "paO2": random.uniform(50, 200, count),
        "mechvent": random.integers(0, 2, count),
        "max_dose_vaso": random.choice([0.0, 0.05, 0.1, 0.4, 0.9], count),
        "input_4hourly": random.choice([0.0, 20.0, 90.0, 300.0, 900.0], count),
        "output_4hourly": random.uniform(0, 900, count),
    }
    return pl.DataFrame(columns | {name: [value] * count for name, value in constant.items()})
