"""The corpus of `fuzz_readers`: small files of every kind that is read, of an invented cohort."""

import random
import shutil
from pathlib import Path

import polars as pl
import torch
import yaml

import ifonly
from ifonly.data.tables import cohort_to_frame
from ifonly.evidence.behaviour import BehaviourSettings, fit_behaviour, save_behaviour
from ifonly.evidence.check.check import check_model
from ifonly.runs import RunSettings, solve_cohort

SCHEMA = """
features:
- {name: severity, unit: points, kind: dynamic, plausible: [0, 24], scaling: bounded}
- {name: lactate, unit: mmol/L, kind: dynamic, plausible: [0, 30], scaling: log, log_offset: 0.1}
- {name: age, unit: years, kind: static}
actions:
  axes: [{name: dose, unit: mg, levels: [0, 1, 2]}]
step: {length: 4, unit: hours}
"""


GOALS = """
goals:
- {minimize: severity, over: end, weight: 2}
- {keep: lactate, between: [0.5, 2], below: 2, over: last 8 hours}
- {time_in_range: severity, between: [0, 6], margin: 2, discount: 0.9}
- {weights: {severity: -1, lactate: -0.1}, step_weights: [0, 1, 1, 2]}
- costs: {1: 0.5}
dose_costs: {dose: 0.1}
max_changes: 2
constraints:
  locked: [0]
  forbidden: {every: [2]}
  choices: {1: [0, 1]}
  max_shift: {dose: 1}
"""
CODE_MAP = """
format: ifonly.codes
version: 1
stays: {start: "ICU_IN//*", end: "ICU_OUT//*"}
people: {birth: MEDS_BIRTH, female: SEX//F, male: SEX//M}
measurements:
  platelets: ["LAB//1"]
  creatinine: ["LAB//2", {code: "LAB//3*", factor: 0.0113}]
urine: ["URINE//*"]
vasopressors:
  norepinephrine: [{start: "NOR//1*", end: "NOR//2*", number: start, unit: mcg/kg/min}]
"""


def write_corpus(folder: Path) -> None:
    """Write the corpus anew."""
    draw, torch_draw = random.Random(0), torch.Generator().manual_seed(0)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "schema.yaml").write_text(SCHEMA.lstrip())
    schema = ifonly.load_schema(folder / "schema.yaml")
    ifonly.save_schema(schema, folder / "schema.json")
    rows = [
        {
            "episode": f"e{number}",
            "subject": f"s{number}",
            "step": step,
            "action": (number + step) % 3,
            "severity": draw.randint(2, 20),
            "lactate": round(draw.uniform(0.5, 9), 1),
            "age": 40 + number,
        }
        for number in range(4)
        for step in range(4)
    ]
    pl.DataFrame(rows).write_csv(folder / "table.csv")
    cohort = ifonly.read_table(folder / "table.csv", folder / "schema.yaml")
    cohort_to_frame(cohort).write_parquet(folder / "table.parquet")
    ifonly.save_cohort(cohort, folder / "cohort")
    model = ifonly.LocationScale(schema, hidden=(2,), scaler=ifonly.data.Scaler.fit(cohort))
    model.initialize(torch_draw)
    ifonly.save_model(model, folder / "model")
    check_model(model, cohort).save(folder / "model" / "check.json")
    learned = fit_behaviour(cohort, settings=BehaviourSettings(hidden=(), epochs=1), seed=0)
    save_behaviour(learned, folder / "behaviour")
    query = ifonly.Query(ifonly.minus("severity"), 1, allow_failed_model=True)
    query.save(folder / "query.yaml")
    run = solve_cohort(cohort, model, query, out=folder / "run", settings=RunSettings(workers=1))
    run.result("e1").save(folder / "result.json")
    (folder / "run" / "results.parquet").unlink()
    study = {
        "format": "ifonly.study",
        "version": 1,
        "data": {"table": "table.csv"},
        "schema": "schema.yaml",
        "fit": {"recipe": "paper", "hidden": [4], "epochs": 2, "refits": 2},
        "query": {"minimize": "severity", "max_changes": 1},
        "evidence": {"behaviour": {"hidden": [4], "epochs": 2}},
        "cohort": {"first": 3, "workers": 1},
        "outputs": {"threshold": 0.2, "cases": 2},
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    (folder / "goals.yaml").write_text(GOALS.lstrip())
    (folder / "codes.yaml").write_text(CODE_MAP.lstrip())
    (folder / "limits.yaml").write_text("distance: {warn: 0.1, fail: 0.2}\nsubjects: {judge: 10, enough: 20}\n")
