"""The query of `solve`, `cohort` and `serve`, from one set of options and a query file; the command `query`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ifonly
from ifonly.cli import options
from ifonly.cli.frame import ExitCode, Output, require_free
from ifonly.cli.options import argument, flag, option
from ifonly.errors import InputError, SettingError
from ifonly.files import write_text_atomically
from ifonly.text.catalogue import say

if TYPE_CHECKING:
    from ifonly.rewards import Reward

DEFAULT_FEATURE = "SOFA"
"""What is minimised by default: the paper's reward."""


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """The options of every command that asks about episodes."""

    episodes: options.Episodes
    model: options.ModelFolder
    max_changes: Annotated[
        str | None, option("N", "At most this many changes; none: no limit.", "--max-changes", "-k", default="3")
    ] = None
    minimize: Annotated[
        str | None,
        option("FEATURE", "Make this feature's sum small.", default=f"{DEFAULT_FEATURE}, where there is one"),
    ] = None
    maximize: Annotated[str | None, option("FEATURE", "Make this feature's sum large.")] = None
    query: Annotated[
        Path | None,
        option(
            "FILE",
            "A file with everything else one can ask: goals, rules, costs, support, evidence, solver and limits. "
            "`ifonly query` writes a first one; options on the command line override it.",
        ),
    ] = None
    behaviour: options.Behaviour = None
    seconds: options.Seconds = None
    gap: options.Gap = None
    allow_failed_model: Annotated[
        bool, flag("--allow-failed-model", "Use a model that failed its check; every answer then says so.")
    ] = False

    def __post_init__(self) -> None:
        if self.minimize is not None and self.maximize is not None:
            raise typer.BadParameter("--minimize and --maximize exclude each other.")
        if self.max_changes is not None:
            options.changes_limit(self.max_changes)

    @property
    def is_silent(self) -> bool:
        """Whether no option says what is asked."""
        return all(value is None for value in (self.max_changes, self.minimize, self.maximize, self.query))

    def build(self, schema: "ifonly.Schema") -> "ifonly.Query":
        """The query: that of the file, where there is one, overridden by the options."""
        from ifonly.query import read_query_file

        content = {} if self.query is None else read_query_file(self.query)
        reward = self._reward(schema, content)
        try:
            query = ifonly.Query.from_dict(content, reward=reward)
        except SettingError as error:  # as the file names it
            raise InputError(f"{self.query}: {error.setting}: {error.value}: {error.why}") from None
        except InputError as error:
            raise InputError(f"{self.query}: {error}" if self.query else str(error)) from None
        changes: dict[str, Any] = {}
        if self.max_changes is not None:
            changes["max_changes"] = options.changes_limit(self.max_changes)
        limits: dict[str, Any] = {"seconds": self.seconds, "gap": self.gap}
        if given := {name: value for name, value in limits.items() if value is not None}:
            changes["limits"] = replace(query.limits, **given)
        if self.allow_failed_model:
            changes["allow_failed_model"] = True
        if self.behaviour is not None:  # then a verdict is possible, which also needs these
            changes |= {name: True for name in ("honest", "sensitivity") if name not in content}
        query = query.with_changes(**changes)
        if query.min_support is not None and self.behaviour is None:
            raise InputError(
                f"min_support in the query file: {query.min_support:g} needs --behaviour FOLDER, the model that says "
                "how likely actions are."
            )
        return query

    def _reward(self, schema: "ifonly.Schema", content: dict[str, Any]) -> "Reward | None":
        """The reward of the options, or the default one; None where the file has it."""
        from ifonly.rewards import Linear
        from ifonly.rewards.stated import REWARDS

        if self.minimize is not None or self.maximize is not None:
            return Linear({self.minimize: -1.0} if self.minimize is not None else {str(self.maximize): 1.0})
        if any(content.get(name) is not None for name in REWARDS):
            return None
        names = [feature.name for feature in schema.dynamic]
        if DEFAULT_FEATURE not in names and content:
            return None  # the file's own entry, perhaps misspelt, is refused with its name
        if DEFAULT_FEATURE not in names:
            raise typer.BadParameter(f"say what to improve: --minimize or --maximize one of {', '.join(names)}.")
        return Linear({DEFAULT_FEATURE: -1.0})


def query(
    file: Annotated[Path, argument("FILE", "Where to write it, .yaml.")],
    episodes: Annotated[
        Path | None,
        option("FOLDER", "Fill in the features and actions of this cohort, and minimize one of its features."),
    ] = None,
    force: options.Force = False,
) -> ExitCode:
    """Write a first query file with every entry explained, for `solve`, `cohort`, `serve` and study files.

    Entries that are commented out show what else can be set. Without a cohort, you fill in yourself what counts as
    better.

    Examples:
    ifonly query query.yaml
    ifonly query query.yaml --episodes data/sepsis --force
    """
    require_free(file, force=force)
    from ifonly.study.templates import query_text

    write_text_atomically(file, query_text(None if episodes is None else schema_of(episodes)))
    next_step = say("next.solve" if episodes is not None else "next.fill in", query=file)
    Output().tell({"file": str(file)}, say("written", place=file), next_step)
    return ExitCode.DONE


def schema_of(episodes: Path) -> "ifonly.Schema":
    """The schema of a stored cohort, without its episodes."""
    from ifonly.data.store import load_metadata

    return ifonly.Schema.from_dict(load_metadata(episodes)["schema"])
