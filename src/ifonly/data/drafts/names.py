"""Words in names of columns, in small letters, that tell what the columns hold."""

EPISODE_NAMES = (
    *("episode", "stay", "icustay", "run", "trip", "session", "case", "visit", "batch", "cycle", "trajectory"),
    *("encounter", "admission", "hadm", "job", "day", "id"),
)
STEP_NAMES = (
    *("step", "bloc", "timestep", "t", "time", "timestamp", "datetime", "charttime", "hour", "hours", "h", "minute"),
    *("minutes", "day", "date", "week", "tick", "month", "visit", "cycle"),
)
SUBJECT_NAMES = (
    *("subject", "patient", "person", "customer", "client", "user", "student", "animal", "machine", "device", "engine"),
    *("unit", "asset", "vehicle", "house", "greenhouse", "field", "plot", "site", "plant"),
    *("participant", "resident", "mrn", "pid", "pat"),
)
ACTION_WORDS = ("action", "treatment", "decision", "intervention", "setting", "control", "dose")
TREATMENT_NAMES = (
    *("dose", "vaso", "vasopressor", "norepinephrine", "noradrenaline", "epinephrine", "adrenaline", "dopamine"),
    *("vasopressin", "phenylephrine", "insulin", "heparin", "propofol", "fluid", "iv", "input", "infusion", "infused"),
    *("bolus", "crystalloid", "colloid", "drug", "medication", "given", "administered", "rate"),
)
"""What is given, if it is often nothing: with other values, such as a heart rate, these are measurements."""
NO_TREATMENT_NAMES = (
    *("heart", "pulse", "respiratory", "respiration", "resp", "breathing", "error", "failure", "growth", "interest"),
    *("output", "balance", "sampling"),
)
SUMMARIES = ("max", "maximum", "total", "sum", "mean", "average", "avg", "median", "last", "first", "min", "minimum")
"""Words for what was made of the doses of a step; of several columns about one drug the first of these counts."""

ID_WORDS = ("id", "mrn", "pid", "uid", "guid", "zip")
"""Numbers that only name something: as features they would mean nothing, and tell who somebody is."""

OUTCOME_WORDS = (
    *("died", "death", "dead", "mortality", "outcome", "survived", "survival", "failed", "failure", "target"),
    *("expired", "deceased", "alive", "los", "disposition"),
    *("churned", "relapsed", "readmitted", "defaulted", "graduated"),
)
"""Known only afterwards: as features they would leak the outcome."""

OUTSIDE_WORDS = (
    *("weather", "sun", "rain", "wind", "outside", "outdoor", "ambient", "forecast", "price", "tariff", "demand"),
    *("weekday", "weekend", "month", "season", "hour", "shift", "holiday"),
)
"""What usually no action changes."""
