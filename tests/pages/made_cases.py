"""Cases without a model: plain data of the shape that pages are given."""

from typing import Any

AXES = [
    {"name": "vasopressors", "unit": "mcg/kg/min", "levels": [0, 0.04, 0.8], "shown": ["0", "0.04", "0.8"]},
    {"name": "fluids", "unit": "mL/4 h", "levels": [0, 500], "shown": ["0", "500"]},
]


def course(actions: list[int], recorded: list[int], outcome: float, shift: float = 0.0) -> dict[str, Any]:
    steps = [step for step, (new, old) in enumerate(zip(actions, recorded, strict=True)) if new != old]
    return {
        "actions": actions,
        "states": [[8.0 + step % 3 - shift, 70.0 + step + shift] for step in range(len(actions))],
        "outcome": outcome,
        "improvement": (40.0 - outcome) / 40.0,
        "changes": [
            {
                "step": step,
                "at": 4.0 * step,
                "from": recorded[step],
                "to": actions[step],
                "words": "vasopressors 0 -> 0.8 mcg/kg/min",
                "directions": {"vasopressors": "up", "fluids": "same"},
            }
            for step in steps
        ],
        "implausible": [],
        "admissible": True,
    }


def treatments(*, ordered: bool) -> dict[str, Any]:
    if not ordered:
        labels = ["watch", "operate", "transfer to <another> ward", "discharge"]
        return {
            "axes": [],
            "actions": [{"number": n, "label": label, "levels": []} for n, label in enumerate(labels)],
        }
    actions = [
        {
            "number": 2 * first + second,
            "label": f"vasopressors {AXES[0]['shown'][first]} mcg/kg/min, fluids {AXES[1]['shown'][second]} mL/4 h",
            "levels": [first, second],
        }
        for first in range(3)
        for second in range(2)
    ]
    return {"axes": AXES, "actions": actions}


def made_case(
    episode: str = "stay-1", *, steps: int = 6, ordered: bool = True, answered: bool = True, proven: bool = True
) -> dict[str, Any]:
    """A case of `steps` steps with answers for up to two changes, or none."""
    recorded = [step % 2 for step in range(steps)]
    one, two = list(recorded), list(recorded)
    one[1] = two[1] = 3
    two[2] = 2
    observed, better, best = (
        course(recorded, recorded, 40.0),
        course(one, recorded, 36.0, 0.5),
        course(two, recorded, 34.0, 1),
    )
    said = "No sequence with at most 2 changes does better under this model: searched exactly, gap 0."
    if not proven:
        said = "Not proven: the search was stopped by hand. Another sequence may be better by no more than 4."
    budgets = [
        {
            "max_changes": k,
            "course": item,
            "best_possible": item["outcome"],
            "proven": True,
            "statement": f"Said of {k}.",
        }
        for k, item in enumerate((observed, better, best))
    ]
    budgets[2] |= {"proven": proven, "statement": said, "best_possible": 34.0 if proven else 30.0}
    answer = {
        "status": "optimal" if proven else "interrupted",
        "proven": proven,
        "statement": said,
        "best": best,
        "best_possible": budgets[2]["best_possible"],
        "gap": 0.0 if proven else 4.0,
        "budgets": budgets,
        "alternatives": [best, better],
        "alternatives_proven": proven,
        "contributions": [
            {"step": step, "at": 4.0 * step, "words": "a -> b", "alone": 3.0, "lost_without": -0.5, "share": 3.0}
            for step in (1, 2)
        ],
        "work": {"nodes": 12, "seconds": 0.1, "method": "exact search"},
    }
    return {
        "format": "ifonly.case",
        "version": 1,
        "ifonly": "0.1.0",
        "episode": episode,
        "subject": "somebody",
        "time": {"unit": "hour", "step": 4.0, "at": [4.0 * step for step in range(steps)]},
        "facts": [
            {"name": "age", "unit": "years", "value": 63.0},
            {"name": "gender", "unit": "1 = female", "value": 1.0},
        ],
        "features": [
            {
                "name": name,
                "unit": unit,
                "label": f"{name} ({unit})",
                "kind": kind,
                "plausible": plausible,
                "observed": values,
            }
            for name, unit, kind, plausible, values in (
                ("SOFA", "points", "dynamic", [0, 24], [row[0] for row in observed["states"]]),
                ("MAP", "mmHg", "dynamic", [25, 170], [row[1] for row in observed["states"]]),
                ("ventilation", "1 = yes", "contextual", [0, 1], [0.0] * steps),
            )
        ],
        "treatments": treatments(ordered=ordered),
        "question": {
            "max_changes": 2,
            "objective": "cumulative SOFA",
            "lower_is_better": True,
            "rules": [],
            "constraints": None,
            "change_cost": 0.0,
        },
        "observed": observed,
        "answer": answer if answered else None,
        "assumptions": ["Courses under other treatments come from a model."],
        "cautions": [] if proven else ["The answer is not proven to be the best."],
        "model": {"kind": "location-scale", "fingerprint": "0123456789abcdef"},
    }


def made_summary(cases: list[dict[str, Any]], others: int = 3) -> dict[str, Any]:
    rows = [
        {
            "episode": id,
            "steps": 6,
            "observed": 40.0,
            "best": 34.0,
            "improvement": 0.15 - 0.01 * place,
            "changes": 2,
            "status": "optimal" if place % 2 == 0 else "time limit",
            "proven": place % 2 == 0,
        }
        for place, id in enumerate([*(case["episode"] for case in cases), *(f"other-{n}" for n in range(others))])
    ]
    return {
        "title": "Case review",
        "threshold": 0.1,
        "question": cases[0]["question"],
        "counts": [{"label": "episodes", "value": len(rows), "note": "in all"}],
        "improvements": [row["improvement"] for row in rows],
        "by_changes": [
            {"max_changes": k, "mean": 0.05 * k, "low": None, "high": None, "median": 0.04 * k} for k in range(3)
        ],
        "rows": rows,
        "notes": ["Nothing is proven about patients."],
    }
