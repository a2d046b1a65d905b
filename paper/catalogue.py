"""All experiments by name, in the order of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from ifonly.errors import InputError
from paper.base import Experiment
from paper.baselines import Baselines
from paper.fig2a import EfficiencyByLipschitz
from paper.fig2b import EfficiencyBySamples
from paper.fig2c import EfficiencyByChanges
from paper.fig3a import ImprovementByBudget
from paper.fig3b import ImprovementDistribution
from paper.fig3c import InterestingCase
from paper.fig4 import AnchorStrategies
from paper.fig5 import LikelihoodLoss
from paper.warning_study import WarningStudy

EXPERIMENTS: dict[str, Experiment] = {
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


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, each once; "all" stands for every one."""
    unknown = [name for name in names if name not in EXPERIMENTS and name != ALL]
    if unknown:
        raise InputError(f"no experiment is called {unknown[0]!r}; choose from {', '.join(EXPERIMENTS)}, or {ALL}.")
    wanted = list(EXPERIMENTS) if ALL in names else list(dict.fromkeys(names))
    return [EXPERIMENTS[name] for name in wanted]
