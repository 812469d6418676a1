"""Equal tuning on runs of seconds: every arm tries as much, on validation alone, and its runs use the best."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import toys

from levelfield import __version__
from levelfield.cli.app import main
from levelfield.engine import member, tuning
from levelfield.engine.find import Source, choose, find_run, load_study
from levelfield.engine.training import Job
from levelfield.files import read_rows, write_json, write_rows
from levelfield.report.query import find_files
from levelfield.runs import store
from levelfield.runs.results import Results, StudyIndex
from levelfield.spec import UNTUNED, Protocol, Run, Search, Study, UserError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    toys.write(tmp_path / "toys.py", runs=2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
        raise SystemExit(0)
    return int(ended.value.code or 0)


def toy_study(trials: int = 4) -> Study:
    return Source("toys.py", trials=trials).load()


def written(study: Study, out: Path, scores: Sequence[float | None]) -> list[Run]:
    """Trials as if they had been done: of each arm the same scores; None is one that diverged."""
    runs = choose(tuning.trials(study), "smoke")
    for run, score in zip(runs, [*scores] * (len(runs) // len(scores)), strict=True):
        where = store.directory(out / tuning.FOLDER, run)
        row = {"status": "diverged"} if score is None else {"status": "ok", "value": score}
        row |= {"run": run.id, "split": "val", "metric": "accuracy", "unit": "fraction"}
        write_rows(where / "rows.jsonl", [row])
        write_json(where / "ledger.json", {"flops": 3.0, "wall_s": 2.0, "phases": [{}] * len(run.protocol.phases)})
        store.conclude(where, __version__)
    return runs


@pytest.mark.parametrize("trials", [2, 5, 8])
def test_factors_are_one_in_each_part_of_the_range_and_the_first_changes_nothing(trials: int) -> None:
    search = Search(trials, lr=(0.01, 100), weight_decay=(0.5, 2))
    (first, *others) = search.factors()
    assert first == (1.0, 1.0)
    for column, (low, high) in zip(zip(*others, strict=True), ((0.01, 100), (0.5, 2)), strict=True):
        parts = {int(trials * math.log(factor / low) / math.log(high / low)) for factor in column}
        (left,) = set(range(trials)) - parts
        step = math.log(high / low) / trials
        assert math.log(low) + left * step <= 1e-9 <= math.log(low) + (left + 1) * step + 2e-9


def test_factors_of_a_range_of_ten_both_ways() -> None:
    assert [lr for lr, _ in Search(5).factors()] == pytest.approx([1, 10**-0.8, 10**-0.4, 10**0.4, 10**0.8])


@pytest.mark.parametrize(
    "wrong",
    [
        {"trials": 1},
        {"trials": 3, "lr": (0, 1)},
        {"trials": 3, "lr": (2, 1)},
        {"trials": 3, "lr": (1, 1)},
        {"trials": 2, "share": 0},
        {"trials": 2, "share": 1.5},
    ],
)
def test_a_search_that_tries_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError):
        Search(**wrong)  # type: ignore[arg-type]


def test_every_arm_tries_the_same_multiples_of_its_own_recipe(folder: Path) -> None:
    study = toy_study()
    base = {run.model: run for run in study.runs("smoke")}
    by_arm: dict[object, list[float]] = {}
    for run in tuning.trials(study).runs("smoke"):
        (phase,) = run.protocol.phases
        own = base[run.model].protocol.phases[0].recipe
        assert run.seed == tuning.SEED
        assert phase.recipe == replace(own, lr=phase.recipe.lr, tuning_trials=4)
        by_arm.setdefault(run.model, []).append(phase.recipe.lr / own.lr)
    for factors in by_arm.values():
        assert factors == pytest.approx([lr for lr, _ in Search(4).factors()])


def test_trials_of_a_share_train_for_less_and_the_runs_for_the_whole(folder: Path) -> None:
    study = replace(toy_study(), search=Search(2, lr=(0.1, 10), share=0.25))
    whole = {phase.recipe.budget.value for run in study.runs("smoke") for phase in run.protocol.phases}
    tried = written(study, folder / "runs", [0.1, 0.2])
    assert {p.recipe.budget.value for run in tried for p in run.protocol.phases} == {value / 4 for value in whole}
    tuned = tuning.with_best_recipes(study, folder / "runs").runs("smoke")
    assert {p.recipe.budget.value for run in tuned for p in run.protocol.phases} == whole


def test_a_study_is_tuned_at_the_efforts_it_names(folder: Path) -> None:
    """Table 2 of amos2025 has printed recipes, and at `overnight` models and tasks of other sizes."""
    study = load_study("amos2025_table2")
    assert not tuning.trials(study).runs("paper") and not tuning.trials(study).runs("minutes")
    assert tuning.with_best_recipes(study, folder).runs("paper") == list(study.runs("paper"))
    assert tuning.progress(study, "minutes", folder) == (study, [])
    assert len(tuning.trials(study).runs("overnight")) == 2 * len(study.runs("overnight")) / 3, "two rates, three seeds"
    asked = tuning.with_search(study, 4)
    assert len(tuning.trials(asked).runs("minutes")) == 4 * len(study.runs("minutes")) / 2, "if told to, at any effort"


def test_a_filter_counts_at_efforts_that_are_not_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "amos2025_table2", "--effort", "smoke", "--filter", "listops-s4-*"])
    assert "\nAll 2 runs: " in capsys.readouterr().out


def test_steps_without_patience_shrink_with_the_budget() -> None:
    study = load_study("amos2025_small")
    found: dict[str, set[tuple[float, float]]] = {}
    for run in (*study.runs("overnight"), *tuning.trials(study).runs("overnight")):
        for recipe in (phase.recipe for phase in run.protocol.phases if phase.recipe.patience_after):
            assert recipe.patience_after is not None
            found.setdefault(run.task.name, set()).add((recipe.budget.value, recipe.patience_after.value))
    for task, budgets in found.items():
        assert len(budgets) == 2 and len({after / whole for whole, after in budgets}) == 1, task
    assert found["image8"] != found["listops"] == found["text"]


def test_the_best_on_validation_is_chosen_and_a_diverged_trial_never_is(folder: Path) -> None:
    study = toy_study()
    written(study, folder, [None, 0.5, 0.75, 0.625])
    third = Search(4).factors()[2][0]
    for run, own in zip(tuning.with_best_recipes(study, folder).runs("smoke"), study.runs("smoke"), strict=True):
        recipe = run.protocol.phases[0].recipe
        assert (run.seed, run.model, run.task) == (own.seed, own.model, own.task)
        assert recipe == replace(own.protocol.phases[0].recipe, lr=third * 1e-2, tuning_trials=4)
        assert run.id != own.id
    assert [record["chosen"] for record in tuning.trial_records(study, "smoke", folder)] == [False, False, True, False]
    assert ["validation" in record for record in tuning.trial_records(study, "smoke", folder)] == [
        False,
        True,
        True,
        True,
    ]


def test_where_all_trials_tie_the_own_recipe_stays(folder: Path) -> None:
    study = toy_study()
    written(study, folder, [0.5] * 4)
    chosen = {run.protocol.phases[0].recipe.lr for run in tuning.with_best_recipes(study, folder).runs("smoke")}
    assert chosen == {1e-2}


def test_a_study_without_a_search_stays_as_it_is(folder: Path) -> None:
    study = toy_study(0)
    assert tuning.with_best_recipes(study, folder) is study
    assert tuning.with_search(study, 0) is study


def test_half_a_search_settles_nothing(folder: Path) -> None:
    study = toy_study()
    with pytest.raises(UserError, match="tuned first"):
        tuning.with_best_recipes(study, folder).runs("smoke")
    runs = written(study, folder, [0.5] * 4)
    (store.directory(folder / tuning.FOLDER, runs[1]) / store.DONE).unlink()
    with pytest.raises(UserError, match="3 of 4 trials"):
        tuning.with_best_recipes(study, folder).runs("smoke")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("rows.jsonl", lambda path: path.write_bytes(b"")),
        ("rows.jsonl", lambda path: path.write_bytes(b"{}\n")),
        ("rows.jsonl", lambda path: path.write_bytes(path.read_bytes().replace(b"0.25", b"0.95"))),
        ("rows.jsonl", lambda path: path.unlink()),
        ("ledger.json", lambda path: path.write_bytes(b"{}\n")),
        ("done.json", lambda path: path.write_bytes(b"")),
    ],
)
def test_a_damaged_trial_chooses_no_recipe_and_is_one_sentence(
    folder: Path, name: str, damage: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    study, out = toy_study(), folder / "runs"
    runs = written(study, out, [0.5, 0.25, 0.75, 0.5])
    where = store.directory(out / tuning.FOLDER, runs[1])
    damage(where / name)
    for read in (tuning.with_best_recipes(study, out).runs, lambda effort: tuning.trial_records(study, effort, out)):
        with pytest.raises(UserError, match=f"{name} .*remove {where} and run again"):
            read("smoke")
    assert command("plan", "toys.py", "--effort", "smoke", "--trials", "4") == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and f"remove {Path('runs', tuning.FOLDER, runs[1].id)} and run again." in shown


def test_the_seed_of_trials_is_nobody_elses(folder: Path) -> None:
    (run, *_) = toy_study().runs("smoke")
    study = replace(toy_study(), runs=lambda effort: [replace(run, seed=tuning.SEED)])
    with pytest.raises(UserError, match="take another"):
        tuning.trials(study).runs("smoke")


def test_the_command_tunes_runs_and_reports(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("toys.py", "--effort", "smoke", "--trials", "3")
    assert command("plan", *words) == 0
    assert "3 trials for each arm, 3 in all, 0 done" in capsys.readouterr().out
    assert command("run", *words, "--jobs", "1") == 0
    trials = sorted((folder / "runs" / "trials").glob("toy-trap-scratch-9999-*"))
    assert len(trials) == 3
    for where in trials:  # what was tried never met the test split
        (row,) = read_rows(where / "rows.jsonl")
        assert row["split"] == "val"
        assert not (where / "weights.safetensors").exists()
    results = store.read(folder / "runs", "toys-tuned", "smoke")
    assert {ledger["tuning_trials"] for ledger in results.ledgers.values()} == {3}
    assert len(results.ledgers) == 2
    best = max(record["validation"] for record in results.trials)
    assert [r["validation"] for r in results.trials if r["chosen"]] == [best]
    monkeypatch.setattr(member, "work", lambda job, run_id: True)
    monkeypatch.setenv("RANK", "0")
    source = Source.of("toys.py", 3)
    assert member.take_part(Job(source, "smoke", folder / "runs", folder / "data", pattern=next(iter(results.ledgers))))
    assert store.read(folder / "runs", "toys-tuned", "smoke").trials == results.trials, "torchrun keeps them"
    assert command("plan", *words) == 0
    assert "2 runs, 2 done" in capsys.readouterr().out
    assert command("report", *words) == 0
    page = (folder / "report" / "toys-tuned-smoke" / "report.html").read_text()
    assert "How the arms were tuned" in page
    assert (folder / "report" / "toys-tuned-smoke" / "figures" / "tuning.png").stat().st_size > 5_000
    chosen = next(iter(results.ledgers))
    assert find_run(chosen, folder / "runs", "toys.py").id == chosen


def test_only_chooses_the_arms_that_are_tuned(folder: Path) -> None:
    (run, _) = toy_study().runs("smoke")
    job = Job(Source("toys.py", trials=3), "smoke", folder / "runs", folder / "data", pattern=run.id)
    assert len(job.trials.load()[1]) == 3
    with pytest.raises(UserError, match="No run"):
        replace(job, pattern="image-*").trials.load()
    assert Job.from_json(job.trials.to_json()) == job.trials


def test_a_run_is_named_by_its_id_before_the_search_and_after_it(folder: Path) -> None:
    study = toy_study()
    written(study, folder, [0.5, 0.25, 0.75, 0.5])
    job = Job(Source("toys.py", trials=4), "smoke", folder, folder / "data")
    before, after = study.runs("smoke"), job.load()[1]
    assert {run.id for run in before}.isdisjoint(run.id for run in after)
    for old, new in zip(before, after, strict=True):
        for name in (old.id, new.id, f"*-{new.seed}-*"):
            whole, chosen = replace(job, pattern=name).load()
            assert [run.id for run in chosen] == [new.id]
            assert len(whole.runs("smoke")) == 2  # the index keeps the others
            assert len(replace(job, pattern=name).trials.load()[1]) == 4


def two_arms(folder: Path, trap: str = "", name: str = "") -> Study:
    """The toys, and as many that are wider; `trap` is theirs."""
    text = (folder / "toys.py").read_text()
    wider = f"models += [Model((Trap({trap!r}),), depth=1, width=8, name={name!r} or None) for _ in models]"
    text = text.replace("    return [Run(Toy()", f"    {wider}\n    return [Run(Toy()")
    (folder / "toys.py").write_text(text.replace(", seed) for seed, model", ", at % RUNS) for at, model"))
    return toy_study()


def test_arms_that_are_half_tuned_wait_for_nobody_else(folder: Path) -> None:
    study = two_arms(folder, name="wide")
    runs = written(study, folder, [0.5] * 4)
    (store.directory(folder / tuning.FOLDER, runs[0]) / store.DONE).unlink()
    assert {run.model.label for run in tuning.with_best_recipes(study, folder).runs("smoke")} == {"wide"}
    assert {record["model"] for record in tuning.trial_records(study, "smoke", folder)} == {"wide"}
    chosen, lines = tuning.progress(study, "smoke", folder, lambda run: run.model.label == "wide")
    assert "4 in all, 4 done" in lines[1]
    assert {run.protocol.phases[0].recipe.tuning_trials for run in chosen.runs("smoke")} == {4}


def test_arms_of_one_name_have_a_line_each(folder: Path) -> None:
    from levelfield.report import tuning as tuned

    study = two_arms(folder)
    written(study, folder, [0.5, 0.75, None, 0.25])
    runs = choose(tuning.with_best_recipes(study, folder), "smoke")
    trials = tuning.trial_records(study, "smoke", folder)
    store.write_index(folder, StudyIndex.of("toys", "smoke", runs, trials=trials))
    found = tuned.by_arm(store.read(folder, "toys", "smoke"))
    assert len({arm.model_label for arm in found}) == 2
    for records in found.values():
        assert [record["chosen"] for record in records] == [False, True, False, False]


def test_trials_that_fail_are_told_and_nothing_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_arms(folder, trap="raise", name="wide")
    assert command("run", "toys.py", "--effort", "smoke", "--trials", "2", "--jobs", "1") == 1
    said = capsys.readouterr().out
    assert "no such luck" in said
    assert "The runs wait for their trials" in said
    assert not (folder / "runs" / "studies").exists()
    assert command("report", "toys.py", "--effort", "smoke", "--trials", "2") == 2
    assert "`levelfield run toys.py --trials 2 --effort smoke" in capsys.readouterr().err


def test_trials_are_not_among_the_rows_of_runs(folder: Path) -> None:
    written(toy_study(), folder, [0.5] * 4)
    write_rows(folder / "a-run" / "rows.jsonl", [])
    assert find_files(folder) == [folder / "a-run" / "rows.jsonl"]
    assert len(find_files(folder / tuning.FOLDER)) == 4


def test_what_is_not_trained_has_no_trials(folder: Path) -> None:
    study = replace(toy_study(), runs=lambda effort: [replace(run, protocol=untrained) for run in toys_runs])
    untrained, toys_runs = Protocol("pretrained", ()), toy_study().runs("smoke")
    assert tuning.trials(study).runs("smoke") == []
    assert [run.id for run in tuning.with_best_recipes(study, folder).runs("smoke")] == [
        run.id for run in study.runs("smoke")
    ]
    assert tuning.trial_records(study, "smoke", folder) == []


def test_a_notebooks_run_is_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class may come from a file, which the command line can load."""
    from levelfield import api
    from levelfield.presets import comparison

    monkeypatch.setattr(comparison, "compare", lambda *_: toy_study(0))
    monkeypatch.setattr(api.by_name, "mixer", lambda name, usual: None)
    found = api.compare("toys.py:Layer", effort="smoke", trials=2)
    run_id = next(iter(found.ledgers))
    assert find_run(run_id, folder / "runs", "toys.py").id == run_id


@pytest.mark.slow
def test_a_killed_search_goes_on(folder: Path) -> None:
    toys.write(folder / "toys.py", runs=1, steps=40, pause=0.02)
    words = [sys.executable, "-m", "levelfield", "run", "toys.py", "--effort", "smoke", "--trials", "2", "--jobs", "1"]
    trials = folder / "runs" / "trials"
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as first:
        while not list(trials.glob("*/log.jsonl")):
            assert first.poll() is None
        first.kill()
    assert not list(trials.glob(f"*/{store.DONE}"))
    assert command(*words[3:]) == 0
    assert len(list(trials.glob(f"*/{store.DONE}"))) == 2
    assert len(store.read(folder / "runs", "toys-tuned", "smoke").ledgers) == 1


def test_a_report_without_trials_says_nothing_of_tuning() -> None:
    from levelfield.report import tuning as tuned

    assert tuned.figure(Results()) is None


def test_a_tuned_study_is_not_called_untuned() -> None:
    study = Source("demo").load()
    assert set(study.deviations) - set(tuning.with_search(study, 2).deviations) == {UNTUNED}
    assert tuning.with_search(study, 0) is study
