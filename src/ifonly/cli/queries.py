"""What `solve`, `cohort` and `serve` ask: one set of options and a query file; the command `query`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ifonly.cli import options
from ifonly.cli.frame import ExitCode, Output, require_free
from ifonly.errors import InputError

if TYPE_CHECKING:
    from ifonly.data.schema import Schema
    from ifonly.evidence.behaviour import BehaviourModel
    from ifonly.query import Query
    from ifonly.rewards import Reward

DEFAULT_FEATURE = "SOFA"
"""What is minimised unless something else is said: the paper's reward."""


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """The options of every command that asks about episodes."""

    episodes: options.Episodes
    model: options.ModelFolder
    max_changes: Annotated[
        str | None,
        typer.Option(
            "--max-changes", "-k", metavar="N", help="At most this many changes; none: no limit.", show_default="3"
        ),
    ] = None
    minimize: Annotated[
        str | None,
        typer.Option(
            "--minimize",
            metavar="FEATURE",
            help="Make the sum of this feature small.",
            show_default=f"{DEFAULT_FEATURE}, where there is one",
        ),
    ] = None
    maximize: Annotated[
        str | None, typer.Option("--maximize", metavar="FEATURE", help="Make the sum of this feature large.")
    ] = None
    query: Annotated[
        Path | None,
        typer.Option(
            "--query",
            metavar="FILE",
            help="All else that can be asked: rules, weights, costs, support, evidence, solver, limits. `ifonly query` "
            "writes a first one; options given here count before it.",
        ),
    ] = None
    behaviour: options.Behaviour = None
    seconds: options.Seconds = None
    allow_failed_model: Annotated[
        bool,
        typer.Option(
            "--allow-failed-model", help="Ask a model although it failed its check; every answer then says so."
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.minimize is not None and self.maximize is not None:
            raise typer.BadParameter("--minimize and --maximize exclude each other.")
        if self.max_changes is not None:
            options.changes_limit(self.max_changes)

    @property
    def is_silent(self) -> bool:
        """Whether nothing is said about what is asked."""
        return all(value is None for value in (self.max_changes, self.minimize, self.maximize, self.query))

    def build(self, schema: "Schema") -> "Query":
        """The query file, where there is one, with what the options say in place of what it says."""
        from ifonly.query import Query, read_query_file

        content = {} if self.query is None else read_query_file(self.query)
        reward = self._reward(schema, content)
        try:
            query = Query.from_dict(content, reward=reward)
        except InputError as error:
            raise InputError(f"{self.query}: {error}" if self.query else str(error)) from None
        changes: dict[str, Any] = {}
        if self.max_changes is not None:
            changes["max_changes"] = options.changes_limit(self.max_changes)
        if self.seconds is not None:
            changes["limits"] = replace(query.limits, seconds=self.seconds)
        if self.allow_failed_model:
            changes["allow_failed_model"] = True
        query = query.with_changes(**changes)
        if query.min_support is not None and self.behaviour is None:
            raise InputError(
                f"min_support in the query file: {query.min_support:g} needs --behaviour FOLDER, which says how likely "
                "actions are."
            )
        return query

    def _reward(self, schema: "Schema", content: dict[str, Any]) -> "Reward | None":
        """What the options, or nobody, say counts as better; None where the file says it."""
        from ifonly.query import REWARDS
        from ifonly.rewards import Linear

        if self.minimize is not None or self.maximize is not None:
            return Linear({self.minimize: -1.0} if self.minimize is not None else {str(self.maximize): 1.0})
        if any(content.get(name) is not None for name in REWARDS):
            return None
        names = [feature.name for feature in schema.dynamic]
        if DEFAULT_FEATURE not in names:
            raise typer.BadParameter(f"say what to improve: --minimize or --maximize one of {', '.join(names)}.")
        return Linear({DEFAULT_FEATURE: -1.0})

    def learned_behaviour(self, schema: "Schema") -> "BehaviourModel | None":
        """What clinicians do, as far as that was learned."""
        if self.behaviour is None:
            return None
        from ifonly.evidence.behaviour import load_behaviour

        return load_behaviour(self.behaviour, schema=schema)


QUERY_EXAMPLES = (
    "ifonly query query.yaml",
    "ifonly query query.yaml --episodes data/sepsis --force",
)


def query(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it, .yaml.", show_default=False)],
    episodes: Annotated[
        Path | None,
        typer.Option("--episodes", metavar="FOLDER", help="Name this cohort's features and actions in comments."),
    ] = None,
    force: options.Force = False,
) -> ExitCode:
    """Write a first query file, with every entry and what it means, for `solve`, `cohort`, `serve` and study files.

    All entries but the first are comments: what is left out has its default.
    """
    require_free(file, force=force)
    from ifonly.files import write_text_atomically
    from ifonly.study.templates import query_text

    schema = None
    if episodes is not None:
        from ifonly.data.schema import Schema
        from ifonly.data.store import load_metadata

        schema = Schema.from_dict(load_metadata(episodes)["schema"])
    write_text_atomically(file, query_text(schema))
    output = Output()
    output.document({"file": str(file)})
    output.show(f"written: {file}", f"next: ifonly solve --query {file} ...")
    return ExitCode.DONE
