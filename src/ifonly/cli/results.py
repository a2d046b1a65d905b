"""Results as the command line reads, shows and checks them; the command `verify`."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output
from ifonly.cli.trust import support_for
from ifonly.errors import StoreError, VerificationError

if TYPE_CHECKING:
    from ifonly.data.episode import Episode
    from ifonly.models.base import TransitionModel
    from ifonly.problem import Support
    from ifonly.progress import Progress
    from ifonly.result import Result


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json_format.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: cannot be read ({error}).") from None
    except json_format.JSONDecodeError as error:
        raise StoreError(f"{path}: not valid JSON ({error}); the file may be cut off.") from None


def results_from(path: Path, content: Any) -> list[Result]:
    """The results that the content of a file describes: one, or a list of them."""
    from ifonly.result import Result

    items = content if isinstance(content, list) else [content]
    if not items or not all(isinstance(item, dict) for item in items):
        raise StoreError(f"{path}: holds no result; expected what `ifonly solve --out` writes.")
    try:
        return [Result.from_dict(item) for item in items]
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from None


def show_results(results: Sequence[Result], output: Output) -> None:
    """One result in words; several as a table."""
    if len(results) == 1:
        output.show(f"{results[0].episode_id}: {results[0]}", results[0].statement)
    else:
        from ifonly.report.tables import results_table

        output.show(results_table(results))


def check_plot_name(path: Path | None) -> None:
    """Refuse a name that no figure can have before hours of work end in it."""
    if path is not None:
        from ifonly.report.plots import FORMATS

        if path.suffix.lower().removeprefix(".") not in FORMATS:
            raise typer.BadParameter(
                f"--plot {path}: the name must end in {', '.join('.' + kind for kind in FORMATS)}."
            )


def draw_course(result: Result, path: Path) -> None:
    """Plot one result."""
    from ifonly.report.plots import plot_episode, save_figure

    save_figure(plot_episode(result), path)


def file_name(id: str) -> str:
    """An episode's id as part of a file name.

    >>> file_name("ward 3/bed 1")
    'ward%203%2Fbed%201'
    """
    return quote(id, safe="")


VERIFY_EXAMPLES = ("ifonly verify result.json --episodes data/sepsis --model models/sepsis",)


def verify(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="A file that `ifonly solve --out` wrote.")],
    episodes: options.Episodes,
    model: options.ModelFolder,
    enumerate_up_to: Annotated[
        int,
        typer.Option(
            "--enumerate-up-to", metavar="N", min=0, help="Try every sequence where there are at most this many."
        ),
    ] = 5_000_000,
    behaviour: Annotated[
        Path | None,
        typer.Option(
            "--behaviour", metavar="FOLDER", help="For results with --min-support: the same folder as was solved with."
        ),
    ] = None,
    json: options.Json = False,
) -> ExitCode:
    """Check results again, from the model and the episodes alone.

    Sequences are replayed and bounds attacked by other searches, by enumerating every sequence where that is feasible;
    only then is the proof repeated, and the answer says which it was.
    """
    from ifonly.data.store import load_cohort
    from ifonly.models.checkpoint import load_model

    results = results_from(result, read_json(result))
    cohort = load_cohort(episodes)
    learned = load_model(model, schema=cohort.schema).for_search()
    output = Output(json)
    with progress_bars() as bars:
        documents = [
            _verified(
                item,
                cohort[item.episode_id],
                learned,
                enumerate_up_to,
                support_for(item, behaviour, learned),
                bars.about(item.episode_id),
            )
            for item in results
        ]
    output.document(documents)
    for document in documents:
        output.show(document["statement"])
    return ExitCode.DONE if all(document["verified"] for document in documents) else ExitCode.NOT_VERIFIED


def _verified(
    result: Result,
    episode: Episode,
    model: TransitionModel,
    enumerate_up_to: int,
    support: Support | None,
    progress: Progress,
) -> dict[str, Any]:
    """What came of verifying one result."""
    from ifonly.search.verify import verify as verify_result

    try:
        found = verify_result(
            result, episode, model, support=support, exhaustive_up_to=enumerate_up_to, progress=progress
        )
    except VerificationError as error:
        return {"episode": result.episode_id, "verified": False, "statement": str(error), "checks": []}
    return {
        "episode": result.episode_id,
        "verified": True,
        "proof_repeated": found.proof_repeated,
        "statement": str(found),
        "checks": [asdict(check) for check in found.checks],
    }
