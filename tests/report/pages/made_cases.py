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


NOT_EXAMINED = {
    "statement": "The model was not checked. This answer was not examined any further.",
    "examined": False,
    "warnings": [],
    "refits": None,
    "support": None,
    "sensitivity": None,
}
NOT_CHECKED = {"check": None, "said": "The model was not checked.", "caution": None}
FAILED_CHECK = {
    "check": {
        "verdict": "fail",
        "summary": "fail: of 9 checks 2 failed",
        "episodes": 400,
        "cohort": "0123456789abcdef",
        "used_although_failed": True,
    },
    "said": "Model check: fail.",
    "caution": "The model failed its check (fail: of 9 checks 2 failed). It was asked all the same.",
}


def made_trust() -> dict[str, Any]:
    """All there can be to say of the case's changes at hours 4 and 8."""
    return {
        "statement": "The model failed its check; 4 of 5 refits agree; one step goes beyond what the data supports.",
        "examined": True,
        "warnings": ["One step goes beyond what the data supports."],
        "refits": {
            "summary": "4 of 5 refits agree.",
            "refits": 5,
            "helping": 4,
            "improvements": [6.0, 5.5, -1.0, 7.25, 6.0],
            "own": 6.0,
            "median": 6.0,
            "low": -1.0,
            "high": 7.25,
            "between": "all",
            "steps": [
                {"step": step, "at": 4.0 * step, "words": "a -> b", "same_step": 0.8, "same_action": 0.6}
                for step in (1, 2)
            ],
            "unsolved": 1,
            "notes": ["only 7 subjects"],
        },
        "support": {
            "summary": "One step goes beyond what the data supports.",
            "steps": [
                {
                    "step": 1,
                    "at": 4.0,
                    "changed": True,
                    "beyond": False,
                    "words": ["At hour 4 this action was chosen in about 1 of 3 comparable situations."],
                },
                {
                    "step": 2,
                    "at": 8.0,
                    "changed": True,
                    "beyond": True,
                    "words": ["At hour 8 this action is one that nobody in the data ever chose."],
                },
            ],
        },
        "sensitivity": {
            "summary": "An unrecorded influence at hour 8 would be enough to undo the gain.",
            "details": ["A steady push of platelets would be enough with 6.15, about -341 10^9/L a step."],
        },
    }


def made_case(
    episode: str = "stay-1",
    *,
    steps: int = 6,
    ordered: bool = True,
    answered: bool = True,
    proven: bool = True,
    examined: bool = False,
) -> dict[str, Any]:
    """A case of `steps` steps with answers for up to two changes, or none; one that is examined has a failed model."""
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
        "version": 2,
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
            "judged_by": None,
        },
        "observed": observed,
        "answer": answer if answered else None,
        "trust": made_trust() if examined else NOT_EXAMINED,
        "assumptions": ["Courses under other treatments come from a model."],
        "cautions": [] if proven else ["The answer is not proven to be the best."],
        "model": {"kind": "location-scale", "fingerprint": "0123456789abcdef", "refits": None}
        | (FAILED_CHECK if examined else NOT_CHECKED),
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
            "refits_agree": 0.8 if place < 4 else None,
            "refits": 5 if place < 4 else None,
            "warnings": place % 2 if place < 4 else None,
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
        "model": cases[0]["model"],
        "trust": {
            "examined": 4,
            "without_warnings": 2,
            "median_agreement": 0.8,
            "groups": [
                {
                    "standing": "all answers",
                    "episodes": len(rows),
                    "median": 0.1,
                    "lower_quartile": 0.05,
                    "upper_quartile": None,
                    "cases": 3,
                }
            ],
            "warnings": [{"warning": "refits disagree", "episodes": 2, "share": 0.5}],
            "agreement": [{"low": 0.8, "high": 0.9, "episodes": 4}],
        },
    }
