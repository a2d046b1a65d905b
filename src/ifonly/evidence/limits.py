"""Where a signal becomes a warning, and why there; docs/warnings-study.md has what each limit catches."""

UNLIKELY = 0.01
"""A changed action is flagged where it is less likely than this: a choice that clinicians hardly ever made."""

FAR = 99.0
"""A state is flagged where it lies farther from the data than this share of recorded states, in percent: of recorded
states themselves, one of a hundred does.
"""

AGREEING = 0.9
"""The share of refits that must agree that the changes help: those that do not are then as rare as what a 90 % interval
leaves out.
"""

SAME_STEP = 0.5
"""The share of refits solved on their own that must change a step too: below it, most of them would act at other times.
"""

INFLUENCE = 0.33
"""Standard deviations that an influence at one step must have to undo the gain. One of them, which sounds natural,
would warn of most right answers: a few changes gain little against what chance does in a whole stay.
"""


def in_force() -> dict[str, float]:
    """All of them by name, to be kept beside what was judged by them."""
    return {"unlikely": UNLIKELY, "far": FAR, "agreeing": AGREEING, "same_step": SAME_STEP, "influence": INFLUENCE}
