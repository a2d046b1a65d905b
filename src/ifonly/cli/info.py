"""The command that describes a folder or file: `info`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import ifonly
from ifonly.cli.details import show_evidence
from ifonly.cli.frame import ExitCode, Output
from ifonly.cli.learning import member_lines_of
from ifonly.cli.options import argument
from ifonly.cli.solve import results_from, show_results
from ifonly.errors import StoreError
from ifonly.text.catalogue import say


def info(
    path: Annotated[
        Path, argument("PATH", "A cohort, model, behaviour model, run, study, result or cross-validation table.")
    ],
) -> ExitCode:
    """Describe a folder or file: a cohort, a model, a run, a study, results of `solve`, a table of `crossval`.

    For models, runs and results it also says, as far as that is known, how far they can be believed.

    Examples:
    ifonly info data/sepsis
    ifonly info models/sepsis --json
    ifonly info result.json
    ifonly info runs/k3
    ifonly info behaviour/sepsis
    """
    if not path.exists():
        raise StoreError(f"{path} does not exist.")
    described = next((tell for file, tell in FOLDERS.items() if (path / file).exists()), _describe_cohort)
    (_describe_file if path.is_file() else described)(path, Output())
    return ExitCode.DONE


def _describe_cohort(folder: Path, output: Output) -> None:
    from ifonly.data.store import load_metadata
    from ifonly.report.overview import Overview

    metadata = load_metadata(folder)
    cohort = ifonly.load(folder)
    summary = Overview.of(cohort)
    output.tell(
        {
            "holds": "cohort",
            "ifonly": metadata["ifonly"],
            "summary": asdict(summary),
            "first_episodes": list(cohort.ids[:5]),
            "provenance": metadata["provenance"],
            "schema_fingerprint": cohort.schema.fingerprint,
            "schema": cohort.schema.to_dict(),
        },
        say("info.cohort", version=metadata["ifonly"]),
        str(summary),
        f"episodes: {', '.join(cohort.ids[:5])}{', ...' if len(cohort) > 5 else ''}",
        f"actions: {_actions(cohort.schema)}",
        f"schema: {cohort.schema.fingerprint}",
        f"provenance: {_inline(metadata['provenance'])}",
    )


def _describe_model(folder: Path, output: Output) -> None:
    from ifonly.models.base import TrainableModel
    from ifonly.models.checkpoint import read_metadata
    from ifonly.text.evidence import model_message

    metadata = read_metadata(folder)
    model = ifonly.load_model(folder)
    norms = _exact_norms(model)
    report = model.fit_report if isinstance(model, TrainableModel) else None
    output.tell(
        {
            "holds": "model",
            "ifonly": metadata["ifonly"],
            "kind": model.kind,
            "settings": model.settings(),
            "exact_norms": norms,
            "fingerprint": model.fingerprint(),
            "fit_report": model.describe_fit() if isinstance(model, TrainableModel) else None,
            "model_check": None if model.standing is None else asdict(model.standing),
            "provenance": metadata["provenance"],
            "schema_fingerprint": model.schema.fingerprint,
            "schema": model.schema.to_dict(),
        },
        say("info.model", kind=model.kind, version=metadata["ifonly"]),
        f"settings: {_inline(_with_members_counted(model.settings()))}",
        say("info.norms", norms=_inline(norms) or "none"),
        say("info.not trained") if report is None else str(report),
        *member_lines_of(model),
        str(model_message(model.standing)),
        f"features: {', '.join(feature.name for feature in model.schema.dynamic)}; "
        f"context: {', '.join(feature.name for feature in model.schema.context) or 'none'}",
        f"actions: {_actions(model.schema)}",
        f"schema: {model.schema.fingerprint}; model: {model.fingerprint()}",
        f"provenance: {_inline(metadata['provenance'])}",
    )


def _with_members_counted(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without those of each member of another kind: a line of its own tells the kinds, --json all of it."""
    return {
        name: len(value) if name == "members" and isinstance(value, list) else value for name, value in settings.items()
    }


def _describe_run(folder: Path, output: Output) -> None:
    from ifonly.text.evidence import model_message

    run = ifonly.load_run(folder)
    manifest = run.manifest
    counts = ", ".join(f"{count:,} {status}" for status, count in run.counts.items()) or "none yet"
    output.tell(
        {"holds": "run", **manifest},
        say("info.run", version=manifest["ifonly"], state=manifest["state"]),
        say("info.answered", episodes=manifest["cohort"]["episodes"], counts=counts),
        f"query: {_essentials(run.query)}",
        f"solver: {manifest['solver']['name']}",
        f"model: {manifest['model_fingerprint']}; cohort: {manifest['cohort']['fingerprint']}",
        str(model_message(run.check)),
        say("next.summarize", run=folder) if run.is_finished else say("next.resume"),
    )


def _essentials(query: ifonly.Query) -> str:
    """What is asked, and the entries of the query that differ from the defaults; --json has all of it."""
    shown, most, usual = query.reward.show(0.0), query.max_changes, ifonly.Query(query.reward)
    goal = f"{'largest' if shown.higher_is_better else 'smallest'} {shown.label}"
    changes = "any number of changes" if most is None else f"at most {most} change{'' if most == 1 else 's'}"
    others = _unusual(query.to_dict(), usual.to_dict() | {"max_changes": most, "solver": dict(query.solver)})
    return ", ".join(part for part in (goal, changes, _inline(others)) if part)


def _unusual(content: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    """The entries that differ from the defaults, also within entries that are mappings themselves."""
    return {
        name: _unusual(value, usual[name]) if isinstance(value, dict) and isinstance(usual.get(name), dict) else value
        for name, value in content.items()
        if value != usual.get(name)
    }


def _describe_behaviour(folder: Path, output: Output) -> None:
    from ifonly.records import to_plain

    behaviour = ifonly.load_behaviour(folder)
    output.tell(
        {
            "holds": "behaviour model",
            "fingerprint": behaviour.fingerprint,
            "report": to_plain(behaviour.report),
            "schema_fingerprint": behaviour.schema.fingerprint,
            "schema": behaviour.schema.to_dict(),
        },
        str(behaviour),
        f"schema: {behaviour.schema.fingerprint}",
    )


def _exact_norms(model: ifonly.TransitionModel) -> dict[str, float]:
    """The networks' exact Lipschitz constants with respect to the state, from their weights."""
    from ifonly.models.effects import SubjectEffectModel
    from ifonly.models.layers import Network

    centre = model.centre if isinstance(model, ifonly.Ensemble) else model
    networks = (centre.second if isinstance(centre, SubjectEffectModel) else centre).for_search().named_children()
    return {name: float(network.state_lipschitz()) for name, network in networks if isinstance(network, Network)}


def _describe_study(place: Path, output: Output) -> None:
    from ifonly.study import load_study, plan

    planned = plan(load_study(place / "study.yaml" if place.is_dir() else place))
    document = {"holds": "study", "stages": [step.to_dict() for step in planned]}
    output.tell(document, *(f"{step.stage}: {step.why}" for step in planned))


def _describe_file(path: Path, output: Output) -> None:
    from ifonly.data.plain import read_plain
    from ifonly.models.crossval import FORMAT, CrossValidation

    if path.suffix in (".yaml", ".yml"):
        _describe_study(path, output)
        return
    content = read_plain(path, is_json=True)
    if isinstance(content, dict) and content.get("format") == FORMAT:
        table = CrossValidation.from_dict(content)
        output.tell({"holds": "cross-validation", **content}, str(table))
        return
    results = results_from(path, content)
    output.document({"holds": "results", "results": [result.to_dict() for result in results]})
    show_results(results, output)
    for result in results:
        show_evidence(result, output, full=len(results) == 1)


FOLDERS = {
    "model.json": _describe_model,
    "run.json": _describe_run,
    "behaviour.json": _describe_behaviour,
    "study.yaml": _describe_study,
}
"""The file that identifies each kind of folder; a folder without any of them is taken for a cohort."""


def _actions(schema: ifonly.Schema) -> str:
    axes = " x ".join(
        f"{axis.name} ({len(axis.levels)} levels{f', {axis.unit}' if axis.unit else ''})"
        for axis in schema.actions.axes
    )
    return f"{len(schema.actions)}{': ' + axes if axes else ''}"


def _inline(content: dict[str, Any]) -> str:
    """A small mapping in a line."""
    return ", ".join(f"{key} {_show(value)}" for key, value in content.items())


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return f"({_inline(value)})"
    return f"{value:.9g}" if isinstance(value, float) else str(value)
