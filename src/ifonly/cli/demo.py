"""The whole idea in one command: `demo`."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ifonly.cli import options
from ifonly.cli.drawing import Bars, progress_bars
from ifonly.cli.frame import ExitCode, Output
from ifonly.cli.models import DEFAULT_LIMITS, Kind, cohort_origin, draw_losses
from ifonly.cli.results import draw_course, file_name
from ifonly.cli.stages import Product, Stages
from ifonly.errors import StoreError

if TYPE_CHECKING:
    from ifonly.cases.opening import OpenedRun
    from ifonly.data.cohort import Cohort
    from ifonly.models.base import TransitionModel
    from ifonly.result import Result

TEST_SHARE = 0.1
"""Share of subjects that the model does not see; the solved episodes are theirs."""

SECONDS = 40
"""Limit for each search, so that a slow machine shows a bracket rather than nothing."""

REPORT = "report.html"


@dataclass(frozen=True)
class DemoSettings:
    """How large the demonstration is."""

    seed: int
    patients: int
    horizon: int
    epochs: int
    hidden: int
    solved: int
    max_changes: int


DEMO_EXAMPLES = ("ifonly demo", "ifonly demo --out small --patients 300 --epochs 20 --horizon 8")


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where everything goes.")] = Path("demo"),
    seed: options.Seed = 0,
    patients: Annotated[int, typer.Option("--patients", metavar="N", min=20, help="Stays to simulate.")] = 1000,
    horizon: Annotated[int, typer.Option("--horizon", metavar="N", min=2, help="Steps of four hours per stay.")] = 10,
    epochs: options.Epochs = 60,
    hidden: Annotated[int, typer.Option("--hidden", metavar="N", min=1, help="Hidden units per network.")] = 200,
    solved: Annotated[int, typer.Option("--solve", metavar="N", min=1, help="Episodes to solve.")] = 5,
    max_changes: Annotated[int, typer.Option("--max-changes", "-k", metavar="N", min=0, help="At most.")] = 3,
) -> ExitCode:
    """Show the whole idea: simulate a cohort, learn a causal model of it, solve a handful of episodes with proof.

    Takes about half a minute, and ends with a report to read and the command that serves the review page. Every product
    is kept with the settings it was made from: a second run only shows the table again, and one that was interrupted
    goes on where it stopped.
    """
    settings = DemoSettings(seed, patients, horizon, epochs, hidden, solved, max_changes)
    with progress_bars() as bars:
        results = _Demo(out, settings, bars).run()
    from ifonly.report.tables import results_table

    Output().show("", results_table(results), "", _closing_words(out, results[0]))
    return ExitCode.DONE


class _Demo:
    """The stages, each of which reads what those before it wrote."""

    def __init__(self, folder: Path, settings: DemoSettings, bars: Bars) -> None:
        self.folder = folder
        self.settings = settings
        self.bars = bars
        self.stages = Stages(folder)

    def run(self) -> list[Result]:
        """Do what is not done yet; returns the results."""
        settings = self.settings
        cohort = self.stages.make(
            "cohort",
            {"patients": settings.patients, "seed": settings.seed, "horizon": settings.horizon},
            ["cohort/episodes.parquet", "cohort/metadata.json"],
            self._simulate,
        )
        self._tell("cohort", cohort)
        model = self.stages.make(
            "model",
            {"cohort": cohort.digest, "seed": settings.seed, "epochs": settings.epochs, "hidden": settings.hidden},
            ["model/model.safetensors", "model/model.json"],
            self._fit,
        )
        self._tell("model", model)
        self.stages.make("loss curve", {"model": model.digest}, ["loss.png"], self._draw_losses)
        ids = self._split()[1].ids[: settings.solved]
        run = self.stages.make(
            "run",
            {"model": model.digest, "episodes": ids, "max_changes": settings.max_changes, "seconds": SECONDS},
            ["run/run.json", "run/rows.jsonl", "run/results.parquet"],
            lambda: self._solve(ids),
        )
        self._tell("run", run)
        results = [self._result(id, run) for id in ids]
        self._tell("report", self.stages.make("report", {"run": run.digest}, [REPORT], self._report))
        self.stages.discard_others()
        return results

    def _result(self, id: str, run: Product) -> Result:
        from ifonly.result import Result

        name = file_name(id)
        file, plot = f"results/{name}.json", f"plots/{name}.png"
        found = self.stages.make(
            f"result of {id}",
            {"run": run.digest},
            [file],
            lambda: self._opened.result(id).save(self.folder / file, overwrite=True),
        )
        result = Result.load(self.folder / file)
        self.stages.make(
            f"plot of {id}", {"result": found.digest}, [plot], lambda: draw_course(result, self.folder / plot)
        )
        return result

    def _tell(self, what: str, product: Product) -> None:
        self.bars.say(f"{what}: {'kept from before' if product.reused else 'done'}")

    @cached_property
    def _cohort(self) -> Cohort:
        from ifonly.data.store import load_cohort

        return load_cohort(self.folder / "cohort")

    @cached_property
    def _model(self) -> TransitionModel:
        from ifonly.models.checkpoint import load_model

        return load_model(self.folder / "model", schema=self._cohort.schema)

    @cached_property
    def _opened(self) -> OpenedRun:
        from ifonly.cases.opening import open_run

        return open_run(self.folder / "run", episodes=self._cohort, model=self._model)

    def _split(self) -> tuple[Cohort, Cohort]:
        return self._cohort.split(by="subject", test=TEST_SHARE, seed=self.settings.seed)

    def _simulate(self) -> None:
        from ifonly.data.store import save_cohort
        from ifonly.simulate import simulate_cohort

        settings = self.settings
        cohort = simulate_cohort(settings.patients, seed=settings.seed, horizon=settings.horizon, progress=self.bars)
        provenance = {"made by": "ifonly demo", "settings": asdict(settings)}
        save_cohort(cohort, self.folder / "cohort", provenance=provenance, overwrite=True)

    def _fit(self) -> None:
        from ifonly.models import LocationScale
        from ifonly.models.checkpoint import save_model
        from ifonly.models.fit import fit

        location, scale = DEFAULT_LIMITS[Kind.LOCATION_SCALE]
        settings = self.settings
        untrained = LocationScale(self._cohort.schema, hidden=(settings.hidden,), lipschitz=(location, scale))
        model = fit(untrained, self._split()[0], epochs=settings.epochs, seed=settings.seed, progress=self.bars)
        provenance = {
            "made by": "ifonly demo",
            "cohort": cohort_origin(self.folder / "cohort"),
            "subjects left out": TEST_SHARE,
        }
        save_model(model, self.folder / "model", provenance=provenance, overwrite=True)

    def _draw_losses(self) -> None:
        from ifonly.models.base import TrainableModel

        assert isinstance(self._model, TrainableModel)
        assert self._model.fit_report is not None
        draw_losses(self._model.fit_report, self.folder / "loss.png")

    def _solve(self, ids: Sequence[str]) -> None:
        """Go on with a run that was interrupted; drop one that is about something else, or was damaged."""
        from ifonly.runs import load_run

        try:
            is_begun = (self.folder / "run").exists() and not load_run(self.folder / "run").is_finished
            self._solve_run(ids, force=not is_begun)
        except StoreError:
            self._solve_run(ids, force=True)

    def _solve_run(self, ids: Sequence[str], *, force: bool) -> None:
        from ifonly.query import Limits
        from ifonly.rewards import minus
        from ifonly.runs import RunSettings, solve_cohort

        settings = RunSettings(
            limits=Limits(seconds=SECONDS),
            episodes=ids,
            workers=1,
            sources={"episodes": self.folder / "cohort", "model": self.folder / "model"},
        )
        solve_cohort(
            self._cohort,
            self._model,
            minus("SOFA"),
            max_changes=self.settings.max_changes,
            out=self.folder / "run",
            settings=settings,
            force=force,
            progress=self.bars,
        )

    def _report(self) -> None:
        from ifonly.report.case_report import write_report

        write_report(self._opened, self.folder / REPORT, overwrite=True, progress=self.bars)


def _closing_words(folder: Path, result: Result) -> str:
    place = shlex.quote(str(folder))
    command = _command()
    id, file = shlex.quote(result.episode_id), shlex.quote(file_name(result.episode_id))
    return f"""\
The proof is about the learned model; how far that model is right is another question. Not treatment advice.

In {folder}:
  {REPORT}        the solved episodes to look at, in any browser
  cohort, model      the simulated stays, and the causal model learned from them
  run                the answers for the solved episodes, as `ifonly cohort` keeps them
  results, plots     for each solved episode its result, and its course observed and counterfactual
  loss.png           how the fit went

Try next:
  {command} info {place}/model
  {command} solve --episodes {place}/cohort --model {place}/model --episode {id} -k 1
  {command} verify {place}/results/{file}.json --episodes {place}/cohort --model {place}/model

Question the answers yourself, in a page that this command (of ifonly[web]) serves:
  {command} serve --episodes {place}/cohort --model {place}/model --run {place}/run"""


def _command() -> str:
    """How the reader can call this program: by name where the shell finds it, else as it was called."""
    called = Path(sys.argv[0])
    return shlex.quote(str(called)) if called.name == "ifonly" and shutil.which("ifonly") is None else "ifonly"
