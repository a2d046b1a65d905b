"""All experiments by name, in the order of the paper, and the page of those that a folder holds."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from ifonly.errors import InputError, StoreError
from ifonly.files import atomic_file, write_text_atomically
from paper.efficiency import AnchorStrategies, EfficiencyByChanges, EfficiencyByLipschitz, EfficiencyBySamples
from paper.experiment import RECORD, TABLE, AnyExperiment, Outcome, Record, stored
from paper.improvement import Baselines, ImprovementByBudget
from paper.laboratory import MADE_BY, Conditions, Settings
from paper.likelihood import LikelihoodLoss
from paper.retrospect import ImprovementDistribution, InterestingCase
from paper.warning_study import WarningStudy

EXPERIMENTS: dict[str, AnyExperiment] = {
    experiment.name: experiment
    for experiment in (
        EfficiencyByLipschitz(),
        EfficiencyBySamples(),
        EfficiencyByChanges(),
        ImprovementByBudget(),
        ImprovementDistribution(),
        InterestingCase(),
        AnchorStrategies(),
        LikelihoodLoss(),
        Baselines(),
        WarningStudy(),
    )
}
ALL = "all"

IMAGES = "images"
WIDTH = 120

INTRODUCTION = """\
# Results: the paper's experiments

Every figure of the paper, made by `python -m paper reproduce` ([how](experiments.md)). Means over patients, ± half the
95 % interval; shares of patients with their 95 % interval in brackets. *EBF* is the effective branching factor; *ours*
is branch and bound with the bound that leads it by default. `≥`: some searches reached the time limit, so that the mean
is a lower bound.
"""

OPTIONS = {
    "stays": "--stays",
    "horizon": "--horizon",
    "feature": "--minimize",
    "epochs": "--epochs",
    "seed": "--seed",
    "patients": "--patients",
    "astar_patients": "--astar-patients",
    "astar_seconds": "--astar-seconds",
    "distribution": "--distribution",
    "seconds": "--seconds",
    "device": "--device",
    "location": "--location",
    "scale": "--scale",
    "folds": "--folds",
}
"""By which options of the command conditions and settings are set."""


def chosen(names: Sequence[str]) -> list[AnyExperiment]:
    """The experiments of these names, each once; "all" stands for every one."""
    unknown = [name for name in names if name not in EXPERIMENTS and name != ALL]
    if unknown:
        raise InputError(f"no experiment is called {unknown[0]!r}; choose from {', '.join(EXPERIMENTS)}, or {ALL}.")
    wanted = list(EXPERIMENTS) if ALL in names else list(dict.fromkeys(names))
    return [EXPERIMENTS[name] for name in wanted]


def write_page(outcomes: Sequence[Outcome], header: Mapping[str, Any], page: Path) -> None:
    """Write `page` (Markdown) and, in a folder `images` beside it, the figures.

    Of a page that is there the sections of these experiments are replaced, and nothing else: others may be of another
    folder, and what people wrote between them is theirs. A section tells its conditions where the page's head does not.
    """
    text, own = page.read_text(encoding="utf-8") if page.exists() else "", _conditions(header)
    text = text or f"{INTRODUCTION}\n{own}"
    for outcome in outcomes:
        images = []
        for figure in outcome.figures:
            image = Path(IMAGES) / figure.name.replace("figure", f"results-{outcome.experiment.name}")
            with stored(page.parent / image), atomic_file(page.parent / image) as scratch:
                shutil.copyfile(figure, scratch)
            images.append(image)
        conditions = "" if own in text.partition("\n## ")[0] else own
        text = _with_section(text, outcome.experiment.name, section(outcome, header, images, conditions))
    with stored(page):
        write_text_atomically(page, text.rstrip("\n") + "\n")


def _with_section(text: str, name: str, words: str) -> str:
    """The page with the section of an experiment replaced or, where there is none, put in its place in the order."""
    section_of = "^## {}: .*?(?=^##|\\Z)"
    found = re.search(section_of.format(name), text, re.DOTALL | re.MULTILINE)
    if found is not None:
        return text[: found.start()] + words + text[found.end() :]
    order = list(EXPERIMENTS)
    later = "|".join(order[order.index(name) + 1 :]) or "$^"
    following = re.search(section_of.format(f"(?:{later})"), text, re.DOTALL | re.MULTILINE)
    at = len(text) if following is None else following.start()
    before = text[:at].rstrip("\n")
    return f"{before}\n\n{words}{text[at:]}"


def finished_outcomes(folder: Path) -> list[Outcome]:
    """The experiments of a folder that have a table of their present settings, in the paper's order."""
    begun = [experiment for name, experiment in EXPERIMENTS.items() if (folder / name / RECORD).exists()]
    return [
        Outcome.load(experiment, folder)
        for experiment in begun
        if Record.read(folder / experiment.name, experiment).cells.wanted
        and (folder / experiment.name / TABLE).exists()
    ]


def section(outcome: Outcome, header: Mapping[str, Any], images: Sequence[Path], conditions: str = "") -> str:
    """One experiment as Markdown; `conditions`, in words, come first."""
    experiment = outcome.experiment
    return "\n".join(
        [
            f"## {experiment.name}: {experiment.title}",
            "",
            *([conditions] if conditions else []),
            *(line for image in images for line in (f"![{experiment.title}]({image.as_posix()})", "")),
            f"`{command(experiment, outcome.record.settings, header)}`",
            "",
            f"{outcome.progress()}; {outcome.record.machine}.",
            "",
            markdown_table(experiment.summary(outcome.table)),
            "",
            _item(f"The paper: {experiment.paper}"),
            *(_item(f"Here: {sentence}") for sentence in experiment.findings(outcome.table)),
            "",
            "",
        ]
    )


def command(experiment: AnyExperiment, settings: Settings, header: Mapping[str, Any]) -> str:
    """The command line that gives these settings."""
    quick = bool(header["quick"])
    words = [MADE_BY, experiment.name, *(["--quick"] if quick else [])]
    if header["model"] is not None:
        words.append("--model FOLDER")
    if "sha256" in header["cohort"]:
        words.append("--episodes FOLDER")
    usual = (Conditions.few() if quick else Conditions()).to_dict() | experiment.settings(quick=quick).to_dict()
    now = dict(header) | settings.to_dict()
    for name, option in OPTIONS.items():
        if name in usual and now[name] != usual[name]:
            words.append(f"{option} {_option_value(now[name])}")
    return " ".join(words)


def _option_value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(f"{number:g}" for number in value)
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _conditions(header: Mapping[str, Any]) -> str:
    simulated = header["cohort"].get("simulated")
    cohort = "a cohort that was given" if simulated is None else f"{simulated:,} simulated stays of 10 to 20 steps"
    widths = ", ".join(str(width) for width in header["hidden"])
    model = (
        "the model that was given"
        if header["model"] is not None
        else "L_h = {:g} and L_phi = {:g}".format(*header["lipschitz"])
    )
    quick = " **A quick run, to see that it works: nothing is to be concluded from it.**" if header["quick"] else ""
    words = (
        f"Cohort: {cohort}. Models: location-scale networks ({widths} hidden units, at most {header['epochs']} epochs) "
        f"fitted to the whole cohort; {model}, unless limits are varied. Solves for single patients are about stays of "
        f"{header['horizon']} steps, and {header['feature']} should be low. Seed {header['seed']}.{quick}"
    )
    return textwrap.fill(words, WIDTH) + "\n"


def _item(words: str) -> str:
    return textwrap.fill(f"- {words}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def markdown_table(frame: pl.DataFrame) -> str:
    """A table of text columns."""
    lines = [" | ".join(frame.columns), "|".join("---:" for _ in frame.columns)]
    lines += [" | ".join(str(value).replace("|", "\\|") for value in row) for row in frame.iter_rows()]
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def fill_between(page: Path, begin: str, end: str, content: str) -> None:
    """Write `content` into a page, between its lines `begin` and `end`; the rest of it stays."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise StoreError(f"{page}: no lines {begin!r} and {end!r} to write the tables between.")
    write_text_atomically(page, f"{before}{begin}\n\n{content}\n{end}{after}")
