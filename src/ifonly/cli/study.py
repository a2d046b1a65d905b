"""Commands about studies, from a table to a report: `init`, `run` and `demo`."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ifonly
from ifonly.cli import options
from ifonly.cli.details import show_evidence
from ifonly.cli.drawing import study_progress
from ifonly.cli.frame import ExitCode, Output, alarm, name_damaged, note, require_free
from ifonly.cli.options import argument, flag, option
from ifonly.errors import InputError, StoreError
from ifonly.files import check_writable, names_in, write_text_atomically
from ifonly.journal import damaged_lines
from ifonly.text.catalogue import say

if TYPE_CHECKING:
    from rich.table import Table
    from rich.tree import Tree

    from ifonly.data.drafts import Draft
    from ifonly.study import Planned, Study

STUDY_FILE, SCHEMA_FILE, CODES_FILE = "study.yaml", "schema.yaml", "codes.yaml"
MOST_SHOWN = 10
"""Answers listed at the end of a study; if there are more, the summary is enough."""
ROLES = ("episode", "step", "subject", "action")


def init(
    sources: Annotated[
        list[Path],
        argument(
            "TABLE...|FOLDER",
            "A long CSV or Parquet table, one row per step, and further tables to join to it; or a folder with "
            "MIMIC, eICU, a MEDS dataset or a stored cohort.",
        ),
    ],
    out: Annotated[Path, option("FILE", "The study file, .yaml.")] = Path(STUDY_FILE),
    column: Annotated[
        list[str] | None,
        option(
            "ROLE=NAME",
            f"The role of a column, instead of a guess: {', '.join(ROLES)}; action once for each dose.",
        ),
    ] = None,
    force: options.Force = False,
) -> ExitCode:
    """Write a first study file for you to check and complete.

    For a table it also writes a first schema, and lists the table's problems; for a MEDS dataset, a first code map.
    Roles of columns, kinds of features, scaling, plausible ranges and dose levels are guessed from names and values;
    the schema gives the reason for every guess. Units that the column names do not tell are "?"; fill them in, then:
    ifonly run study.yaml

    Examples:
    ifonly init log.csv --out studies/mine/study.yaml
    ifonly init visits.csv.gz patients.csv --out studies/joined/study.yaml
    ifonly init log.parquet --column episode=run --column step=hour --column action=water --column action=vents
    ifonly init mimic-iii-clinical-database-1.4 --out studies/sepsis/study.yaml
    """
    if out.suffix.lower() not in (".yaml", ".yml"):
        raise typer.BadParameter(f"--out {out}: a study is written as YAML, with comments; end it in .yaml.")
    hints = _hints(column)
    source, *others = sources
    if missing := [path for path in sources if not path.exists()]:
        raise StoreError(f"{missing[0]} does not exist.")
    if others and source.is_dir():
        raise typer.BadParameter(f"{others[0]}: further tables are joined to a table, not to a folder.")
    schema = out.with_name(SCHEMA_FILE) if source.is_file() else None
    require_free(out, force=force)
    if schema is not None:
        check_writable(schema)
    from ifonly.data.drafts import draft_text
    from ifonly.evidence.check.thresholds import default_thresholds
    from ifonly.study.templates import (
        DEFAULT_FEATURE,
        Sizes,
        relative_place,
        share_to_set_aside,
        source_text,
        study_text,
    )

    document: dict[str, object] = {"study": str(out)}
    feature, sizes = DEFAULT_FEATURE, Sizes()
    if schema is not None:
        draft = _draft(source, others, hints, schema.parent)
        names = [one.name for one in draft.schema.dynamic]
        feature = feature if feature in names else names[0]
        sizes = Sizes(test=share_to_set_aside(draft.subjects, least=default_thresholds().subjects.judge))
        _write_draft(schema, draft_text(draft, source.name), force=force)
        document |= {"file": str(schema), "table": str(source), **draft.to_dict()}
    clinical, codes = None, None
    if source.is_dir() and not (source / "metadata.json").is_file():
        clinical = _clinical_kind(source)
    if clinical == "meds":
        from ifonly.study.first_codes import first_code_map

        codes = out.with_name(CODES_FILE)
        _write_draft(codes, first_code_map(source, relative_place(source, out.parent)), force=force)
        document["codes"] = str(codes)
    beside = {"schema": None if schema is None else schema.name, "codes": None if codes is None else codes.name}
    data = source_text(source, out.parent, clinical=clinical, **beside)
    write_text_atomically(out, study_text(data, name=out.name, feature=feature, sizes=sizes))
    output = Output()
    output.document(document)
    if schema is not None:
        _show_draft(draft, output)
        output.show(say("draft.written", file=schema))
    if codes is not None:
        output.show(say("codes.written", file=codes))
    output.show(say("study.written", file=out), f"  ifonly run {out}")
    return ExitCode.DONE


def _clinical_kind(folder: Path) -> str:
    """The name that studies have for the clinical tables in a folder; others are refused with what is missing."""
    from ifonly.clinical.meds import meds_files
    from ifonly.clinical.sources import find_source

    if meds_files(folder):
        return "meds"
    return "eicu" if find_source(folder).release == "eICU" else "mimic"


def _hints(texts: Sequence[str] | None) -> dict[str, list[str]]:
    """The columns given for each role."""
    found: dict[str, list[str]] = {}
    for text in texts or ():
        role, separator, name = (part.strip() for part in text.partition("="))
        if not separator or not name or role not in ROLES:
            raise typer.BadParameter(f"--column {text!r}: give ROLE=NAME; roles are {', '.join(ROLES)}.")
        if role in found and role != "action":
            raise typer.BadParameter(f"--column {text!r}: {role} is given twice.")
        found.setdefault(role, []).append(name)
    return found


def _draft(table: Path, others: Sequence[Path], hints: dict[str, list[str]], folder: Path) -> Draft:
    """A first schema, to be written into `folder`, for a table and the tables joined to it."""
    from ifonly.data.drafts import Hints, guess_schema
    from ifonly.data.joins import guess_join, join_tables
    from ifonly.data.store import read_frame, read_frame_and_form
    from ifonly.study.templates import relative_place

    named = {role: names[0] for role, names in hints.items() if role != "action"}
    (frame, form), joins = read_frame_and_form(table), []
    if form is not None and not form.is_usual:
        note("note", f"{table.name} was read as {form}.")
    for other in others:
        content = read_frame(other)
        try:
            joins.append(guess_join(frame, content, relative_place(other, folder)))
        except InputError as error:
            raise InputError(f"{other}: {error}") from None
        frame = join_tables(frame, joins[-1:], folder, lambda _, content=content: content)  # type: ignore[misc]
    try:
        draft = guess_schema(frame, Hints(**named, actions=tuple(hints.get("action", ()))))
        return replace(draft, columns=replace(draft.columns, join=tuple(joins)))
    except InputError as error:
        raise InputError(f"{table}: {error}") from None


def _write_draft(schema: Path, text: str, *, force: bool) -> None:
    """Write a first schema or code map, unless an interrupted `init` has written the same one already."""
    if not schema.is_file() or schema.read_bytes() != text.encode():
        require_free(schema, force=force)
        write_text_atomically(schema, text)


def _show_draft(draft: Draft, output: Output) -> None:
    counts = {name: f"{getattr(draft, name):,}" for name in ("rows", "episodes", "subjects")}
    found = [f"  {'!' if problem.refused else '-'} {problem}" for problem in draft.problems]
    heading = say("draft.problems" if found else "draft.no problems")
    output.show(say("draft.size", **counts), _columns(draft), heading, *found, "")


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
    spacing = f"{columns.spacing:g}" if isinstance(columns.spacing, float) else columns.spacing
    add(columns.step, "step", draft.schema.step_unit, f"{spacing} apart" if spacing else "")
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


def run(
    file: Annotated[Path, argument("STUDY", "A study file; `ifonly init` writes a first one.")],
    until: Annotated[
        str | None,
        option(
            "STAGE",
            "Stop after this stage: data, card, split, fit, check, behaviour, cohort, summary or report.",
            default="report",
        ),
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would be done, and why.")] = False,
) -> ExitCode:
    """Run a study, from its data to its report, stage by stage.

    Each stage is a folder beside the study file. Stages that are up to date are skipped; a study that was stopped, no
    matter how, resumes. If the model fails its check the study stops before the cohort (exit code 6), unless the query
    allows a failed model.

    Examples:
    ifonly run study.yaml
    ifonly run study.yaml --dry-run
    ifonly run study.yaml --until check --json
    """
    from ifonly.study import load_study, plan
    from ifonly.study.stages import refuse_unanswerable

    study, output = load_study(file), Output()
    if dry_run:
        planned = plan(study, until=until)
        if planned[0].state == "up to date":
            refuse_unanswerable(study)
        output.tell({"study": str(file), "stages": [step.to_dict() for step in planned]}, _tree(planned, str(file)))
        return ExitCode.DONE
    return _run(study, file, until, output)


def _tree(planned: Sequence[Planned], title: str) -> Tree:
    """The stages as a tree, each below a stage that it depends on."""
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
"""Stages after which there are answers to show."""


def _run(study: Study, file: Path, until: str | None, output: Output) -> ExitCode:
    """Run the stages that are due and show what came out, above all if the model failed its check."""
    from ifonly.study import plan, run_study
    from ifonly.study.run import LOG
    from ifonly.study.stages import recipes_journal

    for journal in (study.folder / LOG, recipes_journal(study.folder / "fit")):
        name_damaged(journal, damaged_lines(journal))
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
        note(name, say("stage.done", seconds=f"{done.seconds[name]:.1f}"), style="bold green")
    if not done.done:
        note("note", say("study.up to date"), style="bold green")
    if done.stopped is not None or until in ("check", "behaviour"):
        failed = _failed_check(study)
        if failed is not None:
            alarm("stopped", failed)
            return ExitCode.NOT_PASSED
    if until in (None, *AFTER_CHECK) and (study.folder / "cohort").is_dir():
        _show_answers(study, output)
    return ExitCode.DONE


def _failed_check(study: Study) -> str | None:
    """A message that the model failed its check, and what to do about it; None where it did not."""
    from ifonly.text.checks import concern_messages

    standing = ifonly.load_model(study.folder / "fit").standing
    if standing is None or not standing.failed:
        return None
    file = study.folder / "check" / "check.txt"
    return say("study.stopped", reasons=concern_messages(standing.findings), file=file)


def _show_answers(study: Study, output: Output) -> None:
    """Show the answers with their evidence, or their verdicts alone if there are many."""
    from ifonly.report.tables import results_table
    from ifonly.result.table import FAILED
    from ifonly.runs.folder import ROWS

    found = ifonly.load_run(study.folder / "cohort")
    name_damaged(found.folder / ROWS, found.damaged_lines)
    table = found.table()
    answered = table.filter(table["status"] != FAILED)["episode"].to_list()
    if len(answered) <= MOST_SHOWN:
        results = [found.result(id) for id in answered]
        output.show("", results_table(results), "")
        for result in results:
            show_evidence(result, output, full=False)
    else:
        counts = table["verdict"].value_counts(sort=True).iter_rows()
        verdicts = ", ".join(f"{count:,} {name}" for name, count in counts)
        output.show(say("study.answers", count=f"{len(answered):,}", verdicts=verdicts))
    for place in (study.folder / "summary", study.folder / "report" / "report.html"):
        if place.exists():
            output.show(say("written", place=place))


def demo(
    out: Annotated[Path, option("FOLDER", "Where everything goes.")] = Path("demo"),
) -> ExitCode:
    """Show the whole idea: simulate a cohort, learn a causal model of it, check it, solve a few episodes with proof.

    Takes a few minutes. The demo is an ordinary study: OUT/study.yaml says what is done and may be edited; running it
    again redoes only what is out of date.

    Examples:
    ifonly demo
    ifonly demo --out elsewhere
    """
    file = out / STUDY_FILE
    if not file.exists():
        if out.is_file() or names_in(out):
            raise StoreError(f"{out} holds other things, and no {STUDY_FILE}; choose an empty or a new folder.")
        _write_demo(file)
    from ifonly.study import load_study

    output = Output()
    code = _run(load_study(file), file, None, output)
    if code is ExitCode.DONE:
        output.show("", _closing_words(out, _save_first(out)))
    return code


def _write_demo(file: Path) -> None:
    """Write the demo's study, which takes a few minutes on two cores."""
    from ifonly.study.templates import Sizes, simulated_text, study_text

    sizes = Sizes(test=0.1, recipe="residual", refits="kinds", epochs=60, seconds=40, first=5, cases=5)
    write_text_atomically(file, study_text(simulated_text(1000, "10"), sizes=sizes))


SAMPLE = Path("ifonly-sample")
"""The folder of the made-up records that `serve` shows by default."""


def make_sample() -> None:
    """Make the sample, or what is missing of it: a small study of simulated records, solved up to its cohort run."""
    from ifonly.study import load_study, run_study

    file = SAMPLE / STUDY_FILE
    if not file.exists():
        if SAMPLE.is_file() or names_in(SAMPLE):
            raise StoreError(f"{SAMPLE} holds other things, and no {STUDY_FILE}; move it away, or serve elsewhere.")
        _write_sample(file)
    if not (SAMPLE / "cohort" / "results.parquet").is_file():
        note("note", say("sample.making", folder=SAMPLE), style="bold green")
    with study_progress() as watch:
        done = run_study(load_study(file), until="cohort", watch=watch)
    if done.stopped is not None:
        raise InputError(_failed_check(load_study(file)) or say("study.up to date"))


def _write_sample(file: Path) -> None:
    """Write the sample's study, which takes a minute on one core."""
    from ifonly.study.templates import Sizes, simulated_text, study_text

    sizes = Sizes(test=0.1, recipe="residual", refits="kinds", epochs=12, seconds=20, first=8)
    write_text_atomically(file, study_text(simulated_text(240, "10"), sizes=sizes))


def _save_first(folder: Path) -> ifonly.Result:
    """Store the first answer in a file for `ifonly verify` and `ifonly info`, and return it."""
    found, file = ifonly.load_run(folder / "cohort"), folder / "answer.json"
    first = found.result(found.table()["episode"][0])
    if not file.exists() or file.read_text(encoding="utf-8") != first.to_json() + "\n":
        first.save(file, overwrite=True)
    return first


def _closing_words(folder: Path, first: ifonly.Result) -> str:
    place = shlex.quote(str(folder))
    sources = f"--episodes {place}/split/test --model {place}/fit"
    episode = shlex.quote(first.episode)
    return say("demo.closing", folder=folder, place=place, command=_command(), sources=sources, episode=episode)


def _command() -> str:
    """How the user can call this program: by name if the shell finds it, otherwise as it was called."""
    called = Path(sys.argv[0])
    return shlex.quote(str(called)) if called.name == "ifonly" and shutil.which("ifonly") is None else "ifonly"
