"""The command line: exit codes, one-sentence errors with the fix, and every command on a toy study."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import toys
from refusals import refused

from levelfield import protocols, tasks
from levelfield.cli import interrupts, run_screen, train_commands
from levelfield.cli.app import main
from levelfield.cli.dispatch import RENAMED
from levelfield.engine import plan
from levelfield.engine.find import Source, choose, find_run, load_study
from levelfield.engine.training import Job, attempt, lacking
from levelfield.objectives import Masked
from levelfield.presets.options import Options
from levelfield.runs import store
from levelfield.runs.results import StudyIndex
from levelfield.spec import Duration, UserError, digest

pytestmark = pytest.mark.usefixtures("undrawn")

MASKED = Masked(ratio=0.5)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a toy study in it."""
    monkeypatch.chdir(tmp_path)
    toys.write(tmp_path / "toys.py", runs=2)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory where the toy study was run, in this process."""
    folder = tmp_path_factory.mktemp("finished")
    toys.write(folder / "toys.py", runs=2)
    job = Job(Source(str(folder / "toys.py")), "minutes", folder / "runs", folder / "data")
    runs = choose(job.source.load(), "minutes")
    store.write_index(job.out, StudyIndex.of("toys", "minutes", runs))
    assert [attempt(run, job, ()) for run in runs] == [("done", "")] * 2
    return folder


@pytest.mark.parametrize(
    "words, expected",
    [
        (["lst"], "did you mean 'list'?"),
        (["--effort", "smoke"], "Options follow the command: write `levelfield COMMAND --effort ...`."),
        (["data", "--data=d"], "write `levelfield data COMMAND --data ...`."),
        (["--tyro-write-completion", "bash", "no/a b/x"], "make it first, with `mkdir -p 'no/a b'`."),
        (["export"], "levelfield export needs RUN_ID"),
        (["report"], "levelfield report needs STUDY"),
        (["status", "demo", "--runs-dir", "a b"], "--runs-dir 'a b'"),
        (["plan", "nowhere.py"], "no study file nowhere.py"),
        (["plan", "no_such_study"], "no study 'no_such_study'"),
        (["plan", "toys"], "give it with its .py"),
        (["plan", "toys.py", "--filter", "x*"], "ids look like toy-trap-scratch-0-"),
        (["run", "toys.py", "--only", "toy-trap-scratch-1"], "no run 'toy-trap-scratch-1' at effort minutes: did you"),
        (["run", "toys.py", "--only", "a", "--filter", "b*"], "--only names one run and --filter any number"),
        (["data", "prepare", "listop"], "did you mean 'listops'?"),
        (["data", "verify", "listop"], "did you mean 'listops'?"),
        (["data", "verify", "listops"], "levelfield data prepare listops"),
        (["report", "toys.py"], "levelfield run toys"),
        (["probe", "localty", "x"], "did you mean 'locality'?"),
        (["probe", "locality", "x"], "There is no run 'x' in runs"),
        (["audit", "recall", "--jobs", "0"], "--jobs 0 is out of range: give a whole number from 1 to"),
        (["audit", "recall", "--device", "abacus"], "Device 'abacus' cannot be used here"),
        (["audit", "x.csv", "--label", "2", "--test-share=7"], "--test-share '7' is no number from 0 to 1"),
        (["compare", "conv", "--seeds", "-1"], "--seeds -1 is out of range: give a whole number from 1 to 1,000."),
        (["compare", "conv", "--steps", "abc"], "--steps 'abc' is no whole number"),
        (["compare", "conv", "--lr", "nan"], "--lr 'nan' is no number above 0"),
        (["run", "toys.py", "--precision", "tf32", "--device", "cpu"], "tf32 is of NVIDIA GPUs, and this is cpu"),
        (["run", "toys.py", "--accumulate", "3"], "A batch of 8 has no 3 equal parts"),
        (["run", "toys.py", "--accumulate", "0"], "--accumulate 0 is out of range: give a whole number from 1"),
        (["run", "toys.py", "--threads", "0", "--device", "cpu"], "--threads 0 is out of range: give a whole number"),
        (
            ["run", "toys.py", "--runs-dir", "toys.py", "--device", "cpu"],
            "toys.py cannot be a folder here (it is a file)",
        ),
        (["run", "toys.py", "--data", "toys.py/in", "--device", "cpu"], "(Not a directory): give another one"),
        (["run", "toys.py", "--device", "abacus"], "Device 'abacus' cannot be used here"),
        (["results", "SELECT nothing FROM rows"], "columns of rows and published: source, table"),
        (["results", "SELECT split FROM scores"], "n, status; columns of studies: study, effort, run)"),
        (["results", "SELECT * FROM read_csv('toys.py')"], "disabled"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_is_one_sentence_with_the_fix(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    assert expected in refused(capsys, *words)


def test_what_data_is_missing_is_said_first_and_refused_where_no_run_is_left(here: Path) -> None:
    job = Job(Source("toys.py"), "smoke", Path("runs"), Path("data"))
    run = choose(job.source.load(), "smoke")[0]
    runs = [replace(run, task=tasks.find(name)) for name in ("text", "recall")]
    sentence = "text is not prepared: start with `levelfield data prepare text`."
    assert list(lacking(runs, job.out, job.data)) == [sentence]
    with pytest.raises(UserError, match=re.escape(sentence)):
        list(lacking(runs[:1], job.out, job.data))
    (where := store.directory(job.out, runs[0])).mkdir(parents=True)
    (where / store.DONE).write_text("{}")
    assert list(lacking(runs, job.out, job.data)) == [], "what is done needs no data"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x = (\n", "line 1"),
        ("import math\nx = 1 / 0\n", "line 2: ZeroDivisionError"),
        ("import no_such_package\n", "line 1: ModuleNotFoundError"),
        ("x = 1\n", "defines no study"),
        ("study = 'mine'\n", "defines no study"),
    ],
)
def test_a_broken_study_file_is_named_with_its_line(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str
) -> None:
    (here / "mine.py").write_text(text)
    shown = refused(capsys, "plan", "mine.py")
    assert "mine.py" in shown and expected in shown


@pytest.mark.parametrize(
    "command, old, new, expected",
    [
        ("plan", "    models = [", "    models = 1 / 0, [", "ZeroDivisionError: division by zero"),
        ("plan", "scratch(recipe), seed)", "scratch(recipe), np.array(seed))", "TypeError: ndarray cannot be part"),
        ("plan", "weight_decay=0.0", "weight_decay=float('nan')", "weight_decay=nan cannot be: give a finite 0 or"),
        ("run", "runs=runs)", "runs=runs, probes=lambda run: run.no)", "AttributeError: 'Run' object has no"),
        ("plan", 'name="toys"', 'name="../toys"', "study name '../toys' cannot name a folder"),
        ("plan", 'name = "toy"', 'name = "a/b c"', "task name 'a/b c' cannot name a folder"),
        ("plan", "depth=1,", "depth=1, name='n' * 300,", "nn...' cannot name a folder"),
    ],
)
def test_what_goes_wrong_in_a_study_is_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], command: str, old: str, new: str, expected: str
) -> None:
    text = (here / "toys.py").read_text()
    assert text.count(old) == 1
    (here / "toys.py").write_text(text.replace(old, new))
    shown = refused(capsys, command, "toys.py")
    assert expected in shown
    if "Error: " in expected:
        assert "toys.py" in shown
    if "line" in shown:
        number = text[: text.index(old)].count("\n") + 1
        assert f"line {number}:" in shown


def test_a_damaged_index_is_one_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "runs" / "studies").mkdir(parents=True)
    (here / "runs" / "studies" / "toys-minutes.json").write_text("{")
    assert "toys-minutes.json is damaged" in refused(capsys, "report", "toys.py")
    assert "There is no run 'x'" in refused(capsys, "probe", "locality", "x")


def test_a_misspelt_option_is_refused_with_its_likely_meaning(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["plan", "toys.py", "--efort", "smoke"])
    assert stop.value.code == 2
    assert "--effort" in capsys.readouterr().err


def test_plan_shows_arms_costs_and_differences_and_trains_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toys.write(here / "toys.py", traps={1: "none of these"}, runs=2)
    main(["plan", "toys.py"])
    shown = capsys.readouterr().out
    assert "2 runs, 0 done" in shown
    assert "label 3 steps" in shown
    assert "none of these" in shown  # the only field in which the two arms differ
    assert not (here / "runs").exists() and not (here / "data").exists()


def test_plan_counts_parameters_as_the_model_has_them(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", str(finished / "toys.py"), "--runs-dir", str(finished / "runs")])
    shown = capsys.readouterr().out
    ledger = json.loads(next((finished / "runs").glob("*/ledger.json")).read_text())
    assert f" {ledger['parameters']:,} " in shown
    assert "2 runs, 2 done" in shown


def test_the_planned_cost_is_the_one_measured(finished: Path) -> None:
    """All sequences of the toy task have its full length, so that its plan is no upper bound but exact."""
    (run, _) = choose(load_study(str(finished / "toys.py")), "minutes")
    ledger = json.loads((finished / "runs" / run.id / "ledger.json").read_text())
    assert plan.cost(run).total == pytest.approx(ledger["flops"])
    recipe = replace(run.protocol.phases[0].recipe, budget=Duration(2, "epochs"))
    assert plan.cost(replace(run, protocol=protocols.scratch(recipe))).total is None
    twice = protocols.spt_masked(run.protocol.phases[0].recipe, run.protocol.phases[0].recipe, MASKED.ratio)
    both = plan.cost(replace(run, protocol=twice))
    first = plan.cost(replace(run, protocol=protocols.scratch(recipe, MASKED))).flops
    assert both.useful == both.flops
    assert both.total == pytest.approx(3 * 8 * (first + both.flops))


def test_run_does_the_study_in_workers_and_names_the_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toys.write(here / "toys.py", traps={1: "raise"}, runs=2)
    with pytest.raises(SystemExit) as stop:
        main(["run", "toys.py", "--device", "cpu", "--jobs", "1"])
    assert stop.value.code == 1  # one run failed
    shown = capsys.readouterr().out
    assert "1 of 2 runs complete" in shown
    (rows,) = (here / "runs").glob("*/rows.jsonl")
    assert str(rows.relative_to(here)) in shown
    assert "no such luck" in shown and "error.txt" in shown
    results = store.read(here / "runs", "toys", "minutes")
    assert len(results.ledgers) == 1 and list(results.failures.values()) == ["ValueError: no such luck"]


def test_the_report_of_a_finished_study(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(finished / "toys.py"), "--runs-dir", str(finished / "runs"), "--report-dir", str(tmp_path)])
    page = tmp_path / "toys-minutes" / "report.html"
    assert f"Wrote {page}\n" in capsys.readouterr().out
    assert "trap" in page.read_text()


def test_a_probe_adds_rows_to_a_finished_run(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = next((finished / "runs").glob("toy-*-0-*"))
    places = ["--runs-dir", str(finished / "runs"), "--data", str(finished / "data")]
    assert "--study" in refused(capsys, "probe", "locality", run.name, *places)
    main(["probe", "locality", run.name, "--study", str(finished / "toys.py"), "--device", "cpu", *places])
    main(["probe", "kernels", run.name, "--study", str(finished / "toys.py"), "--device", "cpu", *places])
    (rows,), said = run.glob("probe-locality-*.jsonl"), capsys.readouterr().out
    assert str(rows) in said and said.count("The probe kernels has no number of this run.") == 1
    studys = rows.rename(run / "probe-locality-5e77ed.jsonl")
    said = refused(capsys, "probe", "locality", run.name, "--study", str(finished / "toys.py"), *places)
    assert "rows of the probe locality with other settings" in said and studys.exists()


def test_a_run_that_its_study_no_longer_has_is_not_guessed(finished: Path, tmp_path: Path) -> None:
    run = next((finished / "runs").glob("toy-*-1-*"))
    toys.write(tmp_path / "toys.py", runs=1)
    with pytest.raises(UserError, match="no longer has"):
        find_run(run.name, finished / "runs", str(tmp_path / "toys.py"))


def test_results_answers_over_measured_and_printed_rows(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As CSV, since nobody sits at a terminal here."""
    sql = "SELECT seed, value FROM rows WHERE split = 'test' AND model = 'trap' AND place IS NULL ORDER BY seed"
    main(["results", sql, "--runs-dir", str(finished / "runs")])
    shown = csv.DictReader(capsys.readouterr().out.splitlines())
    files = sorted((finished / "runs").glob("toy-*/rows.jsonl"))
    kept = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    wanted = [(r["seed"], r["value"]) for r in kept if r["split"] == "test" and r["model"] == "trap" and "at" not in r]
    assert [(int(r["seed"]), float(r["value"])) for r in shown] == wanted
    main(["results", "SELECT count(*) FROM published WHERE source = 'amos2025'"])
    assert int(capsys.readouterr().out.splitlines()[1]) > 100


def test_verify_tells_sound_data_from_changed_data(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished / "data", tmp_path / "data")
    main(["data", "verify", "all", "--data", str(tmp_path / "data")])
    assert "sound" in capsys.readouterr().out
    array = next((tmp_path / "data").glob("toy-*/train.y.npy"))
    array.write_bytes(array.read_bytes()[:-1] + b"\7")
    with pytest.raises(SystemExit) as stop:
        main(["data", "verify", "all", "--data", str(tmp_path / "data")])
    assert stop.value.code == 1
    assert "train.y.npy" in capsys.readouterr().out


def test_interrupting_says_how_to_go_on(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(train_commands, "execute", interrupted)
    with pytest.raises(SystemExit) as stop:
        main(["run", "toys.py"])
    assert stop.value.code == 130
    assert interrupts.STOPPED in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["tasks", "mixers", "protocols", "studies", "probes"])
def test_everything_listed_has_a_line_about_it(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["list", kind])
    for line in capsys.readouterr().out.splitlines():
        name, about = line.split(None, 1)
        assert name and about


def test_every_shipped_study_loads_under_its_file_name() -> None:
    from levelfield.cli.listing import stated_claim
    from levelfield.engine.find import PACKAGE, listing

    for name in listing("studies"):
        found = Source(name).find()
        assert found.name == name
        assert stated_claim(PACKAGE / "studies" / f"{name}.py") in (found.claim, "")


def test_progress_reads_what_a_run_wrote_and_survives_half_a_file(tmp_path: Path) -> None:
    assert run_screen.read(tmp_path) == {}
    (tmp_path / "progress.json").write_text('{"state": "trai')
    assert run_screen.read(tmp_path) == {}
    facts = {"state": "training", "objective": "masked", "phase": 1, "phases": 2, "step": 50, "steps": 200}
    facts |= {"loss": 1.5, "best": 0.25, "elapsed_s": 40.0}
    (tmp_path / "progress.json").write_text(json.dumps(facts))
    assert run_screen.columns(run_screen.read(tmp_path)) == (
        "masked 1/2",
        "50/200",
        "loss 1.500",
        "best 0.250",
        "2 min left",
    )


MINE = """
from torch import nn


class Mine(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return {body}
"""


def test_compare_puts_a_users_module_beside_baselines_that_share_task_protocol_and_blocks(here: Path) -> None:
    (here / "mine.py").write_text(MINE.format(body="self.inner(x)"))
    study = Source("compare", "mine.py:Mine", Options(("listops",), ("scratch",))).load()
    runs = choose(study, "smoke")
    assert runs[0].model.label == "mine"
    assert len({run.model.label for run in runs}) > 2
    assert len({digest((run.task, run.protocol, run.model.block, run.model.depth)) for run in runs}) == 1
    assert re.fullmatch("compare-mine-[0-9a-f]{6}", study.name)
    assert load_study("mine.py:Mine").name == study.name
    (here / "mine.py").write_text(MINE.format(body="self.inner(x) + x"))
    assert load_study("mine.py:Mine").name != study.name, "another source has a report of its own"


@pytest.mark.parametrize(
    "body, words, expected",
    [
        ("self.inner(x).flip(0)", [], "batch"),
        ("self.inner(x)", ["--tasks", "listop"], "did you mean 'listops'?"),
        ("self.inner(x)", ["--protocols", "scratc"], "did you mean 'scratch'?"),
    ],
)
def test_compare_refuses_before_any_compute(
    here: Path, capsys: pytest.CaptureFixture[str], body: str, words: list[str], expected: str
) -> None:
    (here / "mine.py").write_text(MINE.format(body=body))
    assert expected in refused(capsys, "compare", "mine.py:Mine", "--effort", "smoke", *words)
    assert not (here / "runs").exists()


def test_an_old_flag_of_other_commands_is_refused_as_it_was_typed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, "export", "x", "--to", "folder")
    assert "export has no option --to:" in said and "is called" not in said


def test_one_run_is_named_by_its_id(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[str] = []

    def execute(job: Job, *rest: object, **more: object) -> bool:
        executed.extend(run.id for run in job.load()[1])
        return True

    monkeypatch.setattr(train_commands, "execute", execute)
    last = choose(load_study("toys.py"), "smoke")[1].id
    main(["run", "toys.py", "--effort", "smoke", "--only", last])
    assert executed == [last]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("old", "command"), [("--flavour", "ruler"), ("--published-bug", "ruler"), ("--only", "plan")])
def test_a_flag_of_an_earlier_version_still_works_and_says_its_name(
    old: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command's help lists the new name alone."""
    with pytest.raises(SystemExit) as stop:
        main([command, "x", *([old] if old == "--published-bug" else [f"{old}=official"]), "--help"])
    shown = capsys.readouterr()
    assert stop.value.code == 0 and RENAMED[old] in shown.out and old not in shown.out
    assert shown.err == f"{old} is called {RENAMED[old]} now; the next release drops the old name.\n"
