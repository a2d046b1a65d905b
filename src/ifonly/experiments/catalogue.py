"""All experiments by name, in the order of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from ifonly.errors import InputError
from ifonly.experiments.base import Experiment
from ifonly.experiments.baselines import Baselines
from ifonly.experiments.fig2a import EfficiencyByLipschitz
from ifonly.experiments.fig2b import EfficiencyBySamples
from ifonly.experiments.fig2c import EfficiencyByChanges
from ifonly.experiments.fig3a import ImprovementByBudget
from ifonly.experiments.fig3b import ImprovementDistribution
from ifonly.experiments.fig3c import InterestingCase
from ifonly.experiments.fig4 import AnchorStrategies
from ifonly.experiments.fig5 import LikelihoodLoss
from ifonly.experiments.warning_study import WarningStudy

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
