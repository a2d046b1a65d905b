"""Commands about studies, from a table to a report: `init`, `run`, and `demo`, the whole idea in one command."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ifonly.cli import options
from ifonly.cli.details import show_evidence
from ifonly.cli.drawing import study_progress
from ifonly.cli.frame import ExitCode, Output, note, require_free
from ifonly.errors import InputError, StoreError

if TYPE_CHECKING:
    from rich.table import Table
    from rich.tree import Tree

    from ifonly.data.drafts import Draft
    from ifonly.result import Result
    from ifonly.study import Planned, Study

STUDY_FILE, SCHEMA_FILE = "study.yaml", "schema.yaml"
MOST_SHOWN = 10
"""Answers in the table at the end of a study; of more, the summary says what there is to say."""
ROLES = ("episode", "step", "subject", "action")

INIT_EXAMPLES = (
    "ifonly init log.csv --out studies/mine/study.yaml",
    "ifonly init log.parquet --column episode=run --column step=hour --column action=water --column action=vents",
    "ifonly init mimic-iii-clinical-database-1.4 --out studies/sepsis/study.yaml",
)


def init(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE|FOLDER",
            help="A long CSV or Parquet table, one row per step; or a folder: MIMIC's tables, or a stored cohort.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The study file, .yaml.")] = Path(STUDY_FILE),
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="ROLE=NAME",
            help=f"What a column is, where that is not to be guessed: {', '.join(ROLES)}; an action for each dose.",
        ),
    ] = None,
    force: options.Force = False,
) -> ExitCode:
    """Write a first study file, for you to check and complete; of a table also a first schema, and its problems.

    What is not named is guessed: ids and steps by names and values, kinds, scaling, plausible ranges, levels of doses.
    Every guess stands in the schema with its reason. Units that the names of columns do not tell are "?" there; they
    are refused until you have filled them in. Then: ifonly run study.yaml
    """
    if out.suffix.lower() not in (".yaml", ".yml"):
        raise typer.BadParameter(f"--out {out}: a study is written as YAML, with comments; end it in .yaml.")
    hints = _hints(column)
    if not source.exists():
        raise StoreError(f"{source} does not exist.")
    schema = out.with_name(SCHEMA_FILE) if source.is_file() else None
    require_free(out, schema, force=force)
    from ifonly.files import write_text_atomically
    from ifonly.study.templates import DEFAULT_FEATURE, source_text, study_text

    document: dict[str, object] = {"study": str(out)}
    feature = DEFAULT_FEATURE
    if schema is not None:
        draft = _draft(source, hints)
        names = [one.name for one in draft.schema.dynamic]
        feature = feature if feature in names else names[0]
        _write_schema(draft, schema, source)
        document |= {"file": str(schema), "table": str(source), **draft.to_dict()}
    elif not (source / "metadata.json").is_file():
        from ifonly.clinical.sources import find_source

        find_source(source)  # refuses a folder that is not MIMIC's, and says what is missing
    data = source_text(source, out.parent, schema=None if schema is None else schema.name)
    write_text_atomically(out, study_text(data, name=out.name, feature=feature))
    output = Output()
    output.document(document)
    if schema is not None:
        _show_draft(draft, output)
        output.show(f"written: {schema}. Fill in the units, and check the rest.")
    output.show(f"written: {out}. Check what it says, and then:", f"  ifonly run {out}")
    return ExitCode.DONE


def _hints(texts: Sequence[str] | None) -> dict[str, list[str]]:
    """Columns by their role."""
    found: dict[str, list[str]] = {}
    for text in texts or ():
        role, separator, name = (part.strip() for part in text.partition("="))
        if not separator or not name or role not in ROLES:
            raise typer.BadParameter(f"--column {text!r}: give ROLE=NAME; roles are {', '.join(ROLES)}.")
        if role in found and role != "action":
            raise typer.BadParameter(f"--column {text!r}: {role} is given twice.")
        found.setdefault(role, []).append(name)
    return found


def _draft(table: Path, hints: dict[str, list[str]]) -> Draft:
    from ifonly.data.drafts import Hints, guess_schema
    from ifonly.data.store import read_frame

    named = {role: names[0] for role, names in hints.items() if role != "action"}
    try:
        return guess_schema(read_frame(table), Hints(**named, actions=tuple(hints.get("action", ()))))
    except InputError as error:
        raise InputError(f"{table}: {error}") from None


def _write_schema(draft: Draft, file: Path, table: Path) -> None:
    from ifonly.data.drafts import draft_text
    from ifonly.files import write_text_atomically

    write_text_atomically(file, draft_text(draft, table.name))


def _show_draft(draft: Draft, output: Output) -> None:
    output.show(f"{draft.rows:,} rows: {draft.episodes:,} episodes of {draft.subjects:,} subjects", _columns(draft))
    if not draft.problems:
        output.show("no problems found", "")
        return
    output.show("problems (! to be solved before the table can be imported):")
    output.show(*(f"  {'!' if problem.refused else '-'} {problem}" for problem in draft.problems), "")


def _columns(draft: Draft) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("column", "is", "unit", "why"):
        table.add_column(heading)

    def add(name: str, role: str, unit: str, why: str) -> None:
        table.add_row(Text(name), role, Text(unit), Text(why))

    columns = draft.columns
    add(columns.episode, "episode", "", "")
    add(columns.step, "step", draft.schema.step_unit, f"{columns.spacing:g} apart" if columns.spacing else "")
    if columns.subject is not None:
        add(columns.subject, "subject", "", "")
    units = {dose.column: axis.unit for dose, axis in zip(columns.doses, draft.schema.actions.axes, strict=False)}
    for name, why in draft.actions.reasons.items():
        add(name, "action", units.get(name, ""), why)
    for guess in draft.features:
        scaled = f", {guess.feature.scaling}" if guess.feature.scaling != "linear" else ""
        add(guess.feature.name, f"{guess.feature.kind}{scaled}", guess.feature.unit, guess.kind_reason)
    for name, why in draft.left_out.items():
        add(name, "left out", "", why)
    return table


RUN_EXAMPLES = (
    "ifonly run study.yaml",
    "ifonly run study.yaml --dry-run",
    "ifonly run study.yaml --until check --json",
)


def run(
    file: Annotated[
        Path,
        typer.Argument(metavar="STUDY", help="A study file; `ifonly init` writes a first one.", show_default=False),
    ],
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="STAGE",
            help="Stop after this stage: data, card, split, fit, check, behaviour, cohort, summary or report.",
            show_default="report",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done, and why.")] = False,
) -> ExitCode:
    """Do a study, from its data to its report: whatever is not up to date, stage by stage.

    Each stage is a folder beside the study file. One that is up to date is not done again; a study that was stopped,
    however, goes on where it was. It stops before the cohort where the model fails its check (exit code 6), unless
    its query allows a failed model.
    """
    from ifonly.study import load_study, plan

    study, output = load_study(file), Output()
    if dry_run:
        planned = plan(study, until=until)
        output.document({"study": str(file), "stages": [step.to_dict() for step in planned]})
        output.show(_tree(planned, str(file)))
        return ExitCode.DONE
    return _run(study, file, until, output)


def _tree(planned: Sequence[Planned], title: str) -> Tree:
    """The stages below those that they depend on."""
    from rich.text import Text
    from rich.tree import Tree

    styles = {"up to date": "green", "will run": "bold yellow", "may run": "yellow"}
    root = Tree(Text(title))
    branches: dict[str, Tree] = {}
    for step in planned:
        known = [branches[name] for name in step.needs if name in branches]
        words = step.why if step.state == "up to date" else f"{step.state}: {step.why}"
        took = "" if step.seconds is None else f" ({step.seconds:.1f} s)"
        label = Text.assemble(f"{step.stage}: ", (words, styles[step.state]), took)
        branches[step.stage] = (known[-1] if known else root).add(label)
    return root


AFTER_CHECK = ("cohort", "summary", "report")
"""Stages with answers to show."""


def _run(study: Study, file: Path, until: str | None, output: Output) -> ExitCode:
    """Do what is to be done, and show what came out."""
    from ifonly.study import plan, run_study

    with study_progress() as watch:
        done = run_study(study, until=until, watch=watch)
    output.document(
        {
            "study": str(file),
            "done": list(done.done),
            "seconds": dict(done.seconds),
            "stopped": done.stopped,
            "stages": [step.to_dict() for step in plan(study, until=until)],
        }
    )
    for name in done.done:
        note(name, f"done in {done.seconds[name]:.1f} s", style="bold green")
    if not done.done:
        note("note", "everything is up to date.", style="bold green")
    if done.stopped is not None or (until in ("check", "behaviour") and _has_failed(study)):
        return _say_failed(study)
    if until in (None, *AFTER_CHECK) and (study.folder / "cohort").is_dir():
        _show_answers(study, output)
    return ExitCode.DONE


def _has_failed(study: Study) -> bool:
    """Whether the model failed its check, which `--until` lets nobody overlook."""
    from ifonly.models.checkpoint import load_model

    standing = load_model(study.folder / "fit").standing
    return standing is not None and standing.failed


def _say_failed(study: Study) -> ExitCode:
    """That the model failed its check, and what to do about it."""
    from ifonly.models.checkpoint import load_model
    from ifonly.text.catalogue import say
    from ifonly.text.checks import concern_message

    standing = load_model(study.folder / "fit").standing
    assert standing is not None
    reasons = [concern_message(kind) for kind in dict.fromkeys(standing.findings)]
    note("stopped", say("study.stopped", reasons=reasons, file=study.folder / "check" / "check.txt"), style="bold red")
    return ExitCode.NOT_PASSED


def _show_answers(study: Study, output: Output) -> None:
    """The answers, as far as they fit, with what speaks for each and against it."""
    from ifonly.result.table import FAILED
    from ifonly.runs import load_run

    found = load_run(study.folder / "cohort")
    table = found.table()
    answered = table.filter(table["status"] != FAILED)["episode"].to_list()
    if len(answered) <= MOST_SHOWN:
        from ifonly.report.tables import results_table

        results = [found.result(id) for id in answered]
        output.show("", results_table(results), "")
        for result in results:
            show_evidence(result, output, full=False)
    else:
        verdicts = ", ".join(
            f"{count:,} {name}" for name, count in table["verdict"].value_counts(sort=True).iter_rows()
        )
        output.show(f"{len(answered):,} answers; evidence: {verdicts}")
    for place in (study.folder / "summary", study.folder / "report" / "report.html"):
        if place.exists():
            output.show(f"written: {place}")


DEMO_EXAMPLES = ("ifonly demo", "ifonly demo --out elsewhere")


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where everything goes.")] = Path("demo"),
) -> ExitCode:
    """Show the whole idea: simulate a cohort, learn a causal model of it, check it, solve a few episodes with proof.

    Takes about a minute. It is a study like any other: OUT/study.yaml says what is done, and may be changed; a second
    run does only what is not up to date.
    """
    file = out / STUDY_FILE
    if not file.exists():
        if out.is_file() or (out.is_dir() and any(out.iterdir())):
            raise StoreError(f"{out} holds other things, and no {STUDY_FILE}; choose an empty or a new folder.")
        _write_demo(file)
    from ifonly.study import load_study

    output = Output()
    code = _run(load_study(file), file, None, output)
    if code is ExitCode.DONE:
        _save_results(out)
        output.show("", _closing_words(out))
    return code


def _write_demo(file: Path) -> None:
    """The study of the demonstration: small enough for a minute on two cores."""
    from ifonly.files import write_text_atomically
    from ifonly.study.templates import Sizes, simulated_text, study_text

    sizes = Sizes(test=0.1, refits=5, epochs=60, seconds=40, first=5, cases=5)
    write_text_atomically(file, study_text(simulated_text(1000, "10"), sizes=sizes))


def _results(folder: Path) -> list[Result]:
    from ifonly.runs import load_run

    found = load_run(folder / "cohort")
    return [found.result(id) for id in found.table()["episode"]]


def _save_results(folder: Path) -> None:
    """One file for the first answer, which `ifonly verify` and `ifonly info` read."""
    first, file = _results(folder)[0], folder / "answer.json"
    if not file.exists() or file.read_text(encoding="utf-8") != first.to_json() + "\n":
        first.save(file, overwrite=True)


def _closing_words(folder: Path) -> str:
    place, command = shlex.quote(str(folder)), _command()
    id = shlex.quote(_results(folder)[0].episode)
    sources = f"--episodes {place}/split/test --model {place}/fit"
    return f"""\
The proof is about the learned model; how far that model is right is another question, which the evidence is about. Not
treatment advice.

In {folder}:
  report/report.html   the answers to look at, in any browser
  study.yaml           what was done; change it and run it again
  answer.json          the first answer with all that is known of it

Try next:
  {command} info {place}/answer.json
  {command} verify {place}/answer.json {sources}
  {command} solve {sources} --behaviour {place}/behaviour --only {id} -k 1
  {command} run {place}/study.yaml --dry-run

Question the answers yourself, in a page that this command (of ifonly[web]) serves:
  {command} serve {sources} --run {place}/cohort"""


def _command() -> str:
    """How the reader can call this program: by name where the shell finds it, else as it was called."""
    called = Path(sys.argv[0])
    return shlex.quote(str(called)) if called.name == "ifonly" and shutil.which("ifonly") is None else "ifonly"
