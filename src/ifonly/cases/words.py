"""What a case says in sentences: the claim, the rules, the assumptions, the cautions. None says more than is known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ifonly.cases.courses import Course, action_levels
from ifonly.constraints import Constraints, Limit
from ifonly.data.schema import Feature, Schema, unit_of_time
from ifonly.problem import BaseProblem, EnsembleProblem
from ifonly.result import Status
from ifonly.rewards import declared_constants

STOPPED = {
    Status.OPTIMAL: "the search ended without a proof",
    Status.GAP_REACHED: "the search stopped at the accuracy asked for",
    Status.TIME_LIMIT: "the search stopped at its time limit",
    Status.NODE_LIMIT: "the search stopped at its limit of work",
    Status.INTERRUPTED: "the search was stopped by hand",
    Status.HEURISTIC: "a quick method was used, which proves nothing",
}
"""Why an answer is not proven."""

METHODS = {
    "taylor": "exact search, bounded by expansions of the model",
    "Lipschitz anchors": "exact search, bounded by how fast the model can change",
    "enumeration": "exact search, sequence by sequence",
    "exhaustive enumeration": "exact search, sequence by sequence",
}
"""How bounds were found, by the certificate's name for it."""


@dataclass(frozen=True)
class Claim:
    """What a search may say about its answer."""

    status: Status
    proven: bool
    """Whether nothing admissible is better, up to rounding."""
    gap: float
    """How much better another sequence could be, at most; infinite where that is not known."""
    differs: bool
    """Whether the answer changes anything."""


def statement(problem: BaseProblem, claim: Claim, max_changes: int | None = None) -> str:
    """The certificate in one sentence, never stronger than it; `max_changes` where fewer are allowed than asked."""
    most = problem.max_changes if max_changes is None else max_changes
    which = f"{_changes_allowed(problem, most)}{' that keeps the rules' if has_rules(problem) else ''}"
    costs = f", each change counted as a loss of {problem.change_cost:g}" if problem.change_cost else ""
    relying = " and as long as the declared limits of the outcome measure hold" if declared(problem) else ""
    if claim.proven:
        than = "" if claim.differs else " than what was done"
        return f"No sequence {which} does better{than} {judged(problem)}{relying}{costs}: searched exactly, gap 0."
    stopped = STOPPED[claim.status]
    if math.isinf(claim.gap):
        return f"Not proven: {stopped}. Other sequences {which} may be better, and it is not known by how much."
    return (
        f"Not proven: {stopped}. Another sequence {which} may be better, but {judged(problem)}{relying} by no more "
        f"than {rounded_up(claim.gap)}{costs}."
    )


def judged(problem: BaseProblem) -> str:
    """By whom outcomes are judged: the model alone, or its refits together."""
    if not isinstance(problem, EnsembleProblem):
        return "under this model"
    return f"for {refits_together(problem)} of this model"


def refits_together(problem: EnsembleProblem) -> str:
    """What counts of the outcomes of a panel's members, such as "the mean over 20 refits"."""
    return problem.objective.words(len(problem.models)).replace("members", "refits")


def no_sequence(problem: BaseProblem, max_changes: int) -> str:
    """What is said of a budget for which there is no sequence."""
    return f"No sequence {_changes_allowed(problem, max_changes)} that keeps the rules was found."


def _changes_allowed(problem: BaseProblem, most: int) -> str:
    if most >= problem.horizon:
        return "with any number of changes"
    return f"with at most {most} change{'' if most == 1 else 's'}"


def declared(problem: BaseProblem) -> bool:
    """Whether a proof may rest on constants that somebody declared."""
    return bool(declared_constants(problem.reward))


def has_rules(problem: BaseProblem) -> bool:
    """Whether anything but the number of changes decides which sequences may be considered."""
    return problem.is_restricted or problem.support is not None or not bool(problem.allowed.all())


def rounded_up(value: float) -> str:
    """A number that is not below `value`, with three digits.

    >>> rounded_up(0.12345), rounded_up(12.0), rounded_up(0.0)
    ('0.124', '12', '0')
    """
    if value <= 0:
        return "0"
    size = 10.0 ** (math.floor(math.log10(value)) - 2)
    for steps in range(math.floor(value / size), math.ceil(value / size) + 3):
        text = f"{steps * size:.4g}"
        if float(text) >= value:
            return text
    return repr(value)


def times(schema: Schema, steps: Iterable[int]) -> str:
    """The times of some steps, such as "hours 0, 8 and 16 to 28"."""
    unit, given = unit_of_time(schema), list(steps)
    shown = [
        " to ".join(f"{step * schema.step_length:g}" for step in dict.fromkeys(ends)) for ends in _stretches(given)
    ]
    if len(given) == 1:
        return f"{unit} {shown[0]}"
    return f"{unit if unit.endswith('s') else f'{unit}s'} {_listed(shown)}"


def _stretches(steps: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of at least four steps in a row; the others one by one."""
    found: list[tuple[int, int]] = []
    for step in steps:
        if found and step == found[-1][1] + 1:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return [
        one
        for first, last in found
        for one in ([(first, last)] if last - first > 2 else [(step, step) for step in range(first, last + 1)])
    ]


def rules(problem: BaseProblem) -> list[str]:
    """The rules of the question, a sentence each."""
    given = problem.constraints
    found = [*_rules_about_steps(given, problem.episode.schema), *_rules_about_doses(given)]
    if given.choices:
        found.append("At some steps only some treatments were considered.")
    if problem.support is not None:
        found.append(_support_rule(problem.support.settings().get("min_support")))
    return found


def _support_rule(least: float | None) -> str:
    if least is None:
        return "Only changes to treatments that the data supports at the state then reached."
    return (
        f"Only changes to treatments that clinicians chose in at least {100 * least:.3g} % of situations comparable to "
        "the one then reached."
    )


def _rules_about_steps(given: Constraints, schema: Schema) -> Iterable[str]:
    labels = schema.actions.labels

    def named(actions: Sequence[int | str]) -> str:
        return "; ".join(action if isinstance(action, str) else labels[action] for action in actions)

    if given.locked:
        yield f"Left as it was: the treatment at {times(schema, given.locked)}."
    if given.last_action_fixed:
        yield "Left as it was: the last treatment."
    for step, actions in given.forbidden.items():
        where = "" if step is None else f" at {times(schema, [step])}"
        yield f"Not to be changed to{where}: {named(actions)}."
    for step, action in given.required.items():
        yield f"Required at {times(schema, [step])}: {named([action])}."


def _rules_about_doses(given: Constraints) -> Iterable[str]:
    for limit, what in (
        (given.max_shift, "what was given at that step"),
        (given.max_jump, "the step before, except where it was recorded so"),
    ):
        yield from (f"{axis}: at most {_levels(number)} away from {what}." for axis, number in _limits(limit).items())


def _limits(limit: Limit) -> Mapping[str, int]:
    if limit is None:
        return {}
    return limit if isinstance(limit, Mapping) else {"Every dose": limit}


def _levels(number: int) -> str:
    return f"{number} level{'' if number == 1 else 's'}"


def assumptions(problem: BaseProblem) -> list[str]:
    """What every counterfactual course takes for granted."""
    found = [
        "Courses under other treatments come from a model, not from observation. The model may be wrong: what is "
        "proven is proven about the model, not about the patient.",
        "Whatever was not recorded is taken to have been the same under other treatments.",
        "It is assumed that no unrecorded cause influenced both the treatment and how the patient did.",
        "This is hindsight: it uses the whole record, which nobody had at the bedside.",
        "It is meant for review by clinicians, and is no advice on treatment.",
    ]
    if isinstance(problem, EnsembleProblem):
        found[0] += f" It was refitted {len(problem.models)} times: {_panel_words(problem)}"
    kept = [feature.name for feature in problem.episode.schema.context if feature.kind == "contextual"]
    if kept:
        found.insert(2, f"These are kept as recorded, whatever the treatment: {_listed(kept)}.")
    return found


def _panel_words(problem: EnsembleProblem) -> str:
    outcomes = f"outcomes under other treatments are {refits_together(problem)}"
    if problem.objective.goal == "mean":
        return f"{outcomes}, and measurements are their mean."
    return f"{outcomes}, and measurements are those of the refit that counts."


def cautions(problem: BaseProblem, observed: Course, best: Course | None, claim: Claim | None) -> list[str]:
    """What to be careful with in this case."""
    schema = problem.episode.schema
    found = []
    if claim is not None and not claim.proven:
        found.append("The answer is not proven to be the best.")
    if observed.improvement is None:
        found.append("No relative improvement can be given, since the recorded outcome is zero.")
    found += [f"As recorded, {text}" for text in _outside(schema, observed)]
    if best is None or not best.changes:
        return found
    beyond = [f"Under the other treatment, {text}" for text in _outside(schema, best, but=observed)]
    if beyond:
        found += [*beyond, "The relative improvement counts such values only up to the limits of their ranges."]
    found += _large_jumps(schema, best)
    steps = [change.step for change in best.changes]
    if steps[0] == 0:
        found.append("A change falls on the first step: what came before it is not in the record.")
    if steps[-1] == problem.horizon - 1:
        found.append("A change falls on the last step: its effect on the patient is not in the record.")
    return found


def _outside(schema: Schema, course: Course, *, but: Course | None = None) -> Iterable[str]:
    """The features that leave their ranges, and when; steps at which those of `but` do so, too, are left out."""
    features = {feature.name: feature for feature in schema.dynamic}
    known = {one.feature: one.steps for one in but.implausible} if but else {}
    for one in course.implausible:
        steps = [step for step in one.steps if step not in known.get(one.feature, ())]
        if steps:
            yield f"{one.feature} {_range_left(features[one.feature])} at {times(schema, steps)}."


def _range_left(feature: Feature) -> str:
    if feature.plausible is None:
        return "has no finite value"
    low, high = feature.plausible
    return f"lies outside its plausible range, {low:g} to {high:g} {feature.unit}".rstrip()


def _large_jumps(schema: Schema, best: Course) -> Iterable[str]:
    """Doses that differ from what was given by more than half of their scale."""
    levels = action_levels(schema.actions)
    for number, axis in enumerate(schema.actions.axes):
        steps = [
            change.step
            for change in best.changes
            if abs(levels[change.after][number] - levels[change.before][number]) * 2 > max(2, len(axis.levels) - 1)
        ]
        if steps:
            yield f"{axis.name}: the dose differs by more than half of its scale at {times(schema, steps)}."


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
