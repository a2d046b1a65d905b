"""`solve` and `verify`."""

import json
from pathlib import Path

import numpy as np
import pytest
from ifonly.cli.answers import Answers, ask
from ifonly.cli.questions import Question, action_number

import ifonly
from ifonly.cli import search
from ifonly.cli.frame import ExitCode
from ifonly.data import Episode
from ifonly.data.store import load_cohort
from ifonly.errors import InputError, ReplayError
from ifonly.problem import Problem
from ifonly.progress import silent
from ifonly.rewards import ActionCost, Linear


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
    problem = ifonly.Problem.from_episode(episode, model, ifonly.Query(ifonly.minus("SOFA"), 2))
    expected = ifonly.solve(problem, ifonly.Exhaustive())
    assert read(shown).status is ifonly.Status.OPTIMAL
    assert read(shown).outcome == pytest.approx(expected.outcome, abs=1e-9)


def test_the_answer_in_words(solve) -> None:
    result, document = solve("-k", 2, "--samples", 50), read(solve("-k", 2, "--samples", 50, "--json"))
    assert "patient-00001: optimal | 2 changes (at most 2) | cumulative SOFA" in result.stdout
    assert document.status.sentence in result.stdout
    for change in document.changes:
        assert f"step {change.step} (hour {4 * change.step}): {change.words}" in result.stdout


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
        (["--anchor-strategy", "facility", "--anchors", 30], "FacilityLocation(size=30, pool=[240 states, "),
    ],
)
def test_anchor_strategies(solve, options: list[object], settings: str) -> None:
    result = solve("-k", 1, *options, "--json")
    assert result.exit_code == 0, result.output
    assert read(result).solver["anchors"].startswith(settings)
    assert read(result).outcome == pytest.approx(read(solve("-k", 1, "--solver", "exhaustive", "--json")).outcome)


def test_shared_anchors_and_seed(solve) -> None:
    solver = read(solve("-k", 1, "--samples", 10, "--shared-anchors", "--seed", 5, "--json")).solver
    assert (solver["shared"], solver["seed"]) == (True, 5)


def test_features_to_improve(solve) -> None:
    lowest = read(solve("-k", 1, "--solver", "exhaustive", "--minimize", "MAP", "--json"))
    highest = read(solve("-k", 1, "--solver", "exhaustive", "--maximize", "MAP", "--json"))
    assert lowest.shown[1].value <= lowest.shown[0].value <= highest.shown[1].value
    assert [lowest.shown[1].label, highest.shown[1].label] == ["cumulative MAP", "cumulative MAP"]


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
    question = Question(ifonly.minus("SOFA"), 1, None, ifonly.Limits(), "cpu")

    class Impatient:
        """Bars that are interrupted when the second episode begins."""

        def about(self, subject: str):
            if subject == "patient-00002":
                raise KeyboardInterrupt
            return silent

    episodes = [cohort["patient-00001"], cohort["patient-00002"], cohort["patient-00003"]]
    found = ask(question, episodes, model, ifonly.Greedy(), shown=Impatient())
    assert [result.episode_id for result in found.results] == ["patient-00001"]
    assert found.missing == ("patient-00002", "patient-00003")
    assert found.exit_code == ExitCode.INTERRUPTED


def test_episodes_without_a_result_are_named(
    run, cohort_folder: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(question, episodes, model, solver, *, shown):
        answers = ask(question, episodes[:1], model, solver, shown=shown)
        return Answers(answers.results, {}, True, tuple(episode.id for episode in episodes[1:]))

    monkeypatch.setattr(search, "ask", interrupted)
    ids = [part for number in (1, 7, 8) for part in ("--episode", f"patient-0000{number}")]
    command = ("solve", "--episodes", cohort_folder, "--model", model_folder, *ids, "--solver", "greedy", "--json")
    result = run(*command)
    assert result.exit_code == ExitCode.INTERRUPTED
    assert result.stderr == "interrupted: not solved: patient-00007, patient-00008\n"
    assert [item["episode"] for item in json.loads(result.stdout)] == ["patient-00001"]


def test_weights_and_costs(solve, cohort_folder: Path, model_folder: Path) -> None:
    cohort, model = load_cohort(cohort_folder), ifonly.load_model(model_folder)
    label = cohort.schema.actions.labels[2]
    options = ("--weight", "SOFA=-1", "--weight", "MAP=0.05", "--cost", f"{label}=0.5", "--cost", "24=1e3")
    found = read(solve("-k", 1, "--solver", "exhaustive", *options, "--json"))
    reward = Linear({"SOFA": -1.0, "MAP": 0.05}) + ActionCost({2: 0.5, 24: 1000.0})
    problem = ifonly.Problem.from_episode(cohort["patient-00001"], model, ifonly.Query(reward, 1))
    assert found.outcome == pytest.approx(ifonly.solve(problem, ifonly.Exhaustive()).outcome)
    assert found.reward == reward.to_dict()
    assert read(solve("-k", 1, "--solver", "greedy", "--weight", "MAP=1", "--json")).shown[0].feature == "MAP"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--weight", "SOFA"], 2, "give FEATURE=NUMBER"),
        (["--weight", "SOFA=much"], 2, "give FEATURE=NUMBER"),
        (["--weight", "SOFA=inf"], 2, "give FEATURE=NUMBER"),
        (["--weight", "SOFA=1", "--weight", "SOFA=2"], 2, "given twice"),
        (["--weight", "age=1"], 3, "not a dynamic feature"),
        (["--cost", "25=1"], 3, "no action '25'"),
        (["--cost", "aspirin=1"], 3, "no action 'aspirin'"),
        (["--minimize", ""], 3, "not a dynamic feature"),
    ],
)
def test_wrong_weights_and_costs(solve, options: list[str], code: int, message: str) -> None:
    result = solve(*options)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.stderr.replace("│", "").split())


def test_rules(solve, cohort_folder: Path, model_folder: Path) -> None:
    cohort = load_cohort(cohort_folder)
    episode, labels = cohort["patient-00001"], cohort.schema.actions.labels
    pinned = int(episode.actions[2] + 1) % len(labels)
    options = (
        "--require",
        f"2={labels[pinned]}",
        "--forbid",
        24,
        "--forbid",
        f"0:{labels[(episode.actions[0] + 5) % 25]}",
    )
    options += ("--max-shift", "fluids=3", "--max-jump", 3, "--change-cost", 0.25, "--lock", 4, "--fix-last-action")
    found = read(solve("-k", 2, "--solver", "exhaustive", *options, "--json"))
    rules = ifonly.Constraints(
        locked=[4],
        forbidden={None: [24], 0: [int(episode.actions[0] + 5) % 25]},
        required={2: pinned},
        max_shift={"fluids": 3},
        max_jump=3,
        last_action_fixed=True,
    )
    assert found.constraints == rules.to_dict()
    assert found.change_cost == 0.25
    problem = ifonly.Problem.from_episode(
        episode,
        ifonly.load_model(model_folder),
        ifonly.Query(ifonly.minus("SOFA"), 2, constraints=rules, change_cost=0.25),
    )
    assert found.outcome == pytest.approx(ifonly.solve(problem, ifonly.Exhaustive()).outcome)
    assert found.actions[2] == pinned


def test_no_limit_on_changes(solve) -> None:
    result = read(solve("-k", "none", "--solver", "greedy", "--json"))
    assert result.max_changes == len(result.actions)
    assert (result.constraints, result.change_cost) == (None, 0.0)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["-k", "-1"], 2, "give a whole number from 0, or none"),
        (["-k", "few"], 2, "give a whole number from 0, or none"),
        (["--require", "7"], 2, "give STEP=ACTION"),
        (["--require", "last=7"], 2, "give STEP=ACTION"),
        (["--require", "2=7", "--require", "2=8"], 2, "step 2 is given twice"),
        (["--require", "2=aspirin"], 3, "--require: no action 'aspirin'"),
        (["--require", "9=7"], 3, "there is no step 9"),
        (["--require", "2=7", "--lock", "2"], 3, "step 2 is locked and has a required action"),
        (["--forbid", "aspirin"], 3, "--forbid: no action 'aspirin'"),
        (["--forbid", "2:aspirin"], 3, "--forbid: no action 'aspirin'"),
        (["--lock", "6"], 3, "numbered 0 to 5"),
        (["--max-shift", "much"], 2, "--max-shift 'much': give N"),
        (["--max-shift", "-1"], 2, "give N"),
        (["--max-jump", "1", "--max-jump", "2"], 2, "every axis is given twice"),
        (["--max-jump", "1", "--max-jump", "fluids=2"], 2, "not both"),
        (["--max-jump", "oxygen=2"], 3, "there is no axis 'oxygen'"),
        (["--max-jump", "1", "--solver", "anchor-astar"], 3, "anchor-astar cannot keep"),
        (["--change-cost", "-1"], 2, "change-cost"),
    ],
)
def test_wrong_rules(solve, options: list[str], code: int, message: str) -> None:
    result = solve(*options)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.stderr.replace("│", "").split())


def test_allowed_actions(solve, tmp_path: Path, cohort_folder: Path) -> None:
    episode = load_cohort(cohort_folder)["patient-00001"]
    labels = episode.schema.actions.labels
    file = tmp_path / "allowed.json"
    file.write_text(json.dumps({"0": [3, labels[4], "5"], "2": [], "4": [0]}))
    result = read(solve("-k", 1, "--solver", "greedy", "--allowed", file, "--lock", 4, "--json"))
    assert result.allowed is not None
    every = set(range(len(labels)))
    wanted = [{3, 4, 5}, every, set(), every, set(), every]
    assert [set(step) for step in result.allowed] == [
        actions | {int(taken)} for actions, taken in zip(wanted, episode.actions, strict=True)
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "expected a mapping from steps to lists of actions"),
        ('{"3": 1}', "step '3': expected a list of actions"),
        ('{"3": [true]}', "step '3': expected a list of actions"),
        ('{"last": [1]}', "step 'last': steps are whole numbers"),
        ('{"3": [1], "03": [2]}', "each given once"),
        ('{"3": ["aspirin"]}', "step '3': no action 'aspirin'"),
        ('{"3": [-1]}', "step '3': no action -1"),
        ('{"6": [1]}', "numbered 0 to 5"),
        ("{", "not valid JSON"),
    ],
)
def test_wrong_allowed_actions(solve, tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "allowed.json"
    file.write_text(content)
    result = solve("--allowed", file)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert message in result.stderr


def test_a_label_that_reads_like_another_action_s_number_is_ambiguous() -> None:
    schema = ifonly.Schema((ifonly.Feature("x", "dynamic"),), ifonly.ActionSpace.categories(["1", "0", "9", "3"]))
    assert [action_number(schema, name, "here") for name in ("9", "3", 2)] == [2, 3, 2]
    with pytest.raises(InputError, match="here: '1' is the label of action 0 and the number of another"):
        action_number(schema, "1", "here")


def test_verify(run, answers: Path, cohort_folder: Path, model_folder: Path) -> None:
    command = ("verify", answers, "--episodes", cohort_folder, "--model", model_folder)
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "episode patient-00001: optimum verified" in result.stdout
    content = json.loads(run(*command, "--json").stdout)
    assert [(item["episode"], item["verified"]) for item in content] == [
        ("patient-00001", True),
        ("patient-00002", True),
    ]
    for item in content:
        assert {check["claim"] for check in item["checks"]} >= {"episode", "outcome", "changes"}
        assert all(check.keys() == {"claim", "holds", "finding"} and check["holds"] for check in item["checks"])


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
    assert "patient-00001: optimum verified" in result.stdout
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


def test_an_episode_that_fails_costs_no_other(
    run, cohort_folder: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = load_cohort(cohort_folder).ids[:3]
    whole = Problem.from_episode

    def failing(episode: Episode, *args: object, **options: object) -> Problem:
        if episode.id == ids[1]:
            raise ReplayError(f"episode {episode.id!r}: cannot be replayed.")
        return whole(episode, *args, **options)

    monkeypatch.setattr(Problem, "from_episode", failing)
    out = tmp_path / "results.json"
    wanted = [part for id in ids for part in ("--episode", id)]
    sources = ["--episodes", cohort_folder, "--model", model_folder]
    result = run("solve", *sources, *wanted, "--solver", "greedy", "--out", out)
    assert result.exit_code == 3
    assert "cannot be replayed" in result.stderr
    assert [item["episode"] for item in json.loads(out.read_text())] == [ids[0], ids[2]]
    result = run("solve", *sources, "--episode", ids[1], "--solver", "greedy")
    assert result.exit_code == 3
    assert "cannot be replayed" in result.stderr


def test_verify_says_whether_the_proof_was_repeated(run, solve, cohort_folder: Path, model_folder: Path) -> None:
    out = cohort_folder.parent / "proof.json"
    assert solve("-k", 1, "--out", out, "--force").exit_code == 0
    sources = ["--episodes", cohort_folder, "--model", model_folder, "--json"]
    for options, repeated in (([], True), (["--enumerate-up-to", 1], False)):
        result = run("verify", out, *sources, *options)
        assert result.exit_code == 0
        assert json.loads(result.stdout)[0]["proof_repeated"] is repeated
