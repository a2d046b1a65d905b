"""`solve` and `verify`."""

import json
from pathlib import Path

import numpy as np
import pytest

import ifonly
from ifonly.cli.frame import ExitCode
from ifonly.cli.search import Question, ask
from ifonly.episodes.store import load_cohort
from ifonly.progress import silent


@pytest.fixture
def solve(run, cohort_folder: Path, model_folder: Path):
    """`ifonly solve` for one episode, with a small anchor set unless another solver is asked for."""

    def invoke(*options: object, episode: str = "patient-00001"):
        return run("solve", "--episodes", cohort_folder, "--model", model_folder, "--episode", episode, *options)

    return invoke


def read(result) -> ifonly.Result:
    return ifonly.Result.from_json(result.stdout)


def test_the_answer_is_the_library_s(solve, cohort_folder: Path, model_folder: Path) -> None:
    shown = solve("-k", 2, "--samples", 50, "--json")
    assert shown.exit_code == 0, shown.output
    assert shown.stderr == ""
    episode, model = load_cohort(cohort_folder)["patient-00001"], ifonly.load_model(model_folder)
    problem = ifonly.Problem.from_episode(episode, model, ifonly.minus("SOFA"), 2)
    expected = ifonly.solve(problem, ifonly.Exhaustive())
    assert read(shown).status is ifonly.Status.OPTIMAL
    assert read(shown).outcome == pytest.approx(expected.outcome, abs=1e-9)


def test_the_answer_in_words(solve) -> None:
    result, document = solve("-k", 2, "--samples", 50), read(solve("-k", 2, "--samples", 50, "--json"))
    assert "patient-00001: optimal | 2 changes (at most 2) | SOFA" in result.stdout
    assert document.status.sentence in result.stdout
    for change in document.changes:
        assert f"step {change.step}: {change.words}" in result.stdout


@pytest.mark.parametrize("name", ["exhaustive", "greedy", "beam", "top", "random"])
def test_every_solver(solve, name: str) -> None:
    optimum = read(solve("-k", 2, "--samples", 50, "--json")).outcome
    result = solve("-k", 2, "--solver", name, "--json")
    assert result.exit_code == 0
    assert read(result).observed_outcome <= read(result).outcome <= optimum + 1e-9
    assert read(result).status is (ifonly.Status.OPTIMAL if name == "exhaustive" else ifonly.Status.HEURISTIC)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["--samples", 40], "MonteCarlo(samples=40, size=None, weighting='lipschitz')"),
        (["--anchors", 90], "MonteCarlo(samples=None, size=90, weighting='lipschitz')"),
        (["--samples", 40, "--anchor-strategy", "uniform"], "MonteCarlo(samples=40, size=None, weighting='uniform')"),
        (["--anchor-strategy", "facility", "--anchors", 30], "FacilityLocation(size=30, pool=[240 states])"),
    ],
)
def test_anchor_strategies(solve, options: list[object], settings: str) -> None:
    result = solve("-k", 1, *options, "--json")
    assert result.exit_code == 0, result.output
    assert read(result).solver["anchors"] == settings
    assert read(result).outcome == pytest.approx(read(solve("-k", 1, "--solver", "exhaustive", "--json")).outcome)


def test_shared_anchors_and_seed(solve) -> None:
    solver = read(solve("-k", 1, "--samples", 10, "--shared-anchors", "--seed", 5, "--json")).solver
    assert (solver["shared"], solver["seed"]) == (True, 5)


def test_features_to_improve(solve) -> None:
    lowest = read(solve("-k", 1, "--solver", "exhaustive", "--minimize", "MAP", "--json"))
    highest = read(solve("-k", 1, "--solver", "exhaustive", "--maximize", "MAP", "--json"))
    assert lowest.shown[1].value <= lowest.shown[0].value <= highest.shown[1].value
    assert [lowest.shown[1].label, highest.shown[1].label] == ["MAP", "MAP"]


def test_locked_steps_stay(solve) -> None:
    free = read(solve("-k", 6, "--solver", "greedy", "--json"))
    changed = [change.step for change in free.changes]
    locks = [option for step in changed[:2] for option in ("--lock", step)]
    locked = read(solve("-k", 6, "--solver", "greedy", *locks, "--json"))
    assert len(changed) > 2
    assert not {change.step for change in locked.changes} & set(changed[:2])
    assert locked.outcome < free.outcome


def test_the_last_action_is_fixed(solve) -> None:
    result = read(solve("-k", 1, "--solver", "greedy", "--fix-last-action", "--json"))
    assert result.allowed is not None
    assert result.allowed[-1] == (result.observed_actions[-1],)


@pytest.mark.parametrize(("limit", "status"), [(["--nodes", 1], "node limit"), (["--seconds", 0], "time limit")])
def test_a_limit_gives_a_bracket_and_code_4(solve, tmp_path: Path, limit: list[object], status: str) -> None:
    result = solve("-k", 2, "--samples", 1, *limit, "--out", tmp_path / "r.json", "--json")
    assert result.exit_code == ExitCode.LIMIT_REACHED
    assert read(result).status.value == status
    optimum = read(solve("-k", 2, "--solver", "exhaustive", "--json")).outcome
    assert read(result).outcome <= optimum <= read(result).upper_bound
    assert json.loads((tmp_path / "r.json").read_text()) == json.loads(result.stdout)


def test_a_gap_that_is_reached_is_success(solve) -> None:
    result = solve("-k", 3, "--samples", 20, "--gap", 1000, "--json")
    assert result.exit_code == 0
    assert read(result).status in (ifonly.Status.GAP_REACHED, ifonly.Status.OPTIMAL)


def test_several_episodes_are_a_list_and_a_table(run, answers: Path) -> None:
    content = json.loads(answers.read_text())
    assert [ifonly.Result.from_dict(item).episode_id for item in content] == ["patient-00001", "patient-00002"]
    table = run("info", answers).stdout
    assert "patient-00001" in table
    assert "patient-00002" in table
    assert json.loads(run("info", answers, "--json").stdout) == {"holds": "results", "results": content}


def test_plots(run, solve, cohort_folder: Path, model_folder: Path, tmp_path: Path) -> None:
    plot = tmp_path / "plots" / "course.png"
    assert solve("-k", 1, "--solver", "greedy", "--plot", plot).exit_code == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert solve("-k", 1, "--solver", "greedy", "--plot", plot).exit_code == 3
    assert solve("-k", 1, "--solver", "greedy", "--plot", plot, "--force").exit_code == 0
    both = ("--episode", "patient-00001", "--episode", "patient-00002", "--solver", "greedy")
    result = run("solve", "--episodes", cohort_folder, "--model", model_folder, *both, "--plot", plot)
    assert result.exit_code == 0
    assert sorted(p.name for p in plot.parent.iterdir()) == [
        "course-patient-00001.png",
        "course-patient-00002.png",
        "course.png",
    ]


def test_interrupted_between_episodes_keeps_what_is_known(cohort_folder: Path, model_folder: Path) -> None:
    cohort, model = load_cohort(cohort_folder), ifonly.load_model(model_folder).for_search()
    question = Question(ifonly.minus("SOFA"), 1, (), False, ifonly.Limits(), "cpu")

    class Impatient:
        """Bars that are interrupted when the second episode begins."""

        def about(self, subject: str):
            if subject == "patient-00002":
                raise KeyboardInterrupt
            return silent

    episodes = [cohort["patient-00001"], cohort["patient-00002"], cohort["patient-00003"]]
    found = ask(question, episodes, model, ifonly.Greedy(), bars=Impatient())  # type: ignore[arg-type]
    assert [result.episode_id for result in found.results] == ["patient-00001"]
    assert found.exit_code == ExitCode.INTERRUPTED


def test_verify(run, answers: Path, cohort_folder: Path, model_folder: Path) -> None:
    command = ("verify", answers, "--episodes", cohort_folder, "--model", model_folder)
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "episode patient-00001: verified" in result.stdout
    content = json.loads(run(*command, "--json").stdout)
    assert [(item["episode"], item["verified"]) for item in content] == [
        ("patient-00001", True),
        ("patient-00002", True),
    ]
    assert all(check["holds"] for item in content for check in item["checks"])


def test_verify_finds_a_false_claim(
    run, answers: Path, cohort_folder: Path, model_folder: Path, tmp_path: Path
) -> None:
    content = json.loads(answers.read_text())
    content[1]["outcome"] += 0.5
    content[1]["upper_bound"] += 0.5
    (tmp_path / "forged.json").write_text(json.dumps(content))
    command = ("verify", tmp_path / "forged.json", "--episodes", cohort_folder, "--model", model_folder)
    result = run(*command)
    assert result.exit_code == ExitCode.NOT_VERIFIED
    assert "patient-00001: verified" in result.stdout
    assert "does not hold" in result.stdout
    assert [item["verified"] for item in json.loads(run(*command, "--json").stdout)] == [True, False]


def test_the_default_reward_needs_a_severity_score(run, tmp_path: Path) -> None:
    schema = ifonly.Schema(
        (ifonly.Feature("pain", "dynamic"), ifonly.Feature("mood", "dynamic")),
        ifonly.ActionSpace.categories(["wait", "treat"]),
    )
    states = np.random.default_rng(0).normal(size=(3, 4, 2))
    episodes = [ifonly.Episode(f"e{i}", schema, states=states[i], actions=[0, 1, 0, 1]) for i in range(3)]
    ifonly.save_cohort(ifonly.Cohort.from_episodes(episodes), tmp_path / "c")
    assert (
        run("fit", "--episodes", tmp_path / "c", "--out", tmp_path / "m", "--epochs", 1, "--hidden", 2).exit_code == 0
    )
    command = ("solve", "--episodes", tmp_path / "c", "--model", tmp_path / "m", "--episode", "e1")
    result = run(*command)
    assert result.exit_code == 2
    assert "pain, mood" in " ".join(result.stderr.replace("│", "").split())
    assert run(*command, "--minimize", "pain").exit_code == 0
