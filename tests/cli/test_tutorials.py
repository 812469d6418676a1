"""The tutorials of the four users, followed: their files are written and every one of their commands is run.

What trains is marked slow. The evaluator's model is a server of ours, and a reader that knows the answers.
"""

from __future__ import annotations

import glob
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures_model_server import serving_model
from page_files import written
from repository import ROOT
from toy_reader import Saying, knows

from levelfield.cli import app, audit_command, ruler_command
from levelfield.ruler import Bytes

USERS = ("proposer", "reproducer", "evaluator", "auditor")
TRAINS = ("run", "compare", "reach", "audit")
SMALLER = (("4096,8192", "700,900"), ("1024,2048", "700,900"), ("--count 20", "--count 2"), ("4096 ", "700 --count 2 "))


def page(user: str) -> str:
    return (ROOT / "docs" / f"tutorial-{user}.md").read_text()


def commands(user: str) -> list[str]:
    """The commands that a reader gives as they stand; what takes hours is indented instead of fenced."""
    return re.findall(r"^levelfield .*", page(user), re.MULTILINE)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def follow(line: str, capfd: pytest.CaptureFixture[str]) -> str:
    """What the command says, which ends well: in this process, unless it starts workers of its own."""
    words = shlex.split(line)[1:]
    if words[0] in TRAINS:
        command = [sys.executable, "-m", "levelfield", *words, "--jobs", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
    app.main(words)
    return capfd.readouterr().out


@pytest.mark.parametrize("user", USERS)
def test_a_tutorial_is_two_screens_at_most_and_names_only_pages_that_help(user: str) -> None:
    assert len(page(user).splitlines()) <= 120
    assert "## Where next" in page(user) and len(commands(user)) >= 4


def test_the_proposers_module_keeps_the_contract(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert list(written(page("proposer"))) == []
    check = commands("proposer")[0]
    assert follow(check, capfd).splitlines()[-1] == "All of it holds."


@pytest.mark.slow
def test_the_proposers_real_comparison_can_be_planned(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert list(written(page("proposer"))) == []
    dry, real = re.findall(r"^    (levelfield compare [^#\n]*?) *(?:#.*)?$", page("proposer"), re.MULTILINE)
    assert dry == f"{real} --dry-run"
    assert "72 runs" in follow(dry, capfd)


def test_the_reproducers_plan_and_citation(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plan, *_ = commands("reproducer")
    (cite,) = (line for line in commands("reproducer") if " cite " in line)
    assert "8 runs" in follow(plan, capfd)
    assert "@" in follow(cite, capfd)


def test_the_evaluator_counts_asks_reports_and_exchanges(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("httpx2", reason="httpx2 is not installed: pip install 'levelfield[serve]'")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(ruler_command, "load", lambda *_: ruler_command.Loaded(Saying(knows), Bytes(), "mark"))
    monkeypatch.setattr(ruler_command, "max_length", lambda *_: None)
    with serving_model(knows) as server:
        server.models = [{"id": "org/toy", "max_model_len": 16_384}]
        dry, *lines = (line.replace("http://127.0.0.1:8000/v1", server.url) for line in commands("evaluator"))
        (quoted,) = re.findall(r"^> (.*)", page("evaluator"), re.MULTILINE)
        assert quoted in follow(f"{dry} --tokenizer bytes", capfd) and server.asked == []
        asked, local, again, results, export, imported = map(smaller, lines)
        follow(f"{asked} --tokenizer bytes", capfd)
        assert len(server.asked) == 8
    assert Path("report/ruler-toy-served/report.html").exists()
    follow(local, capfd)
    assert Path("report/ruler-pythia-160m/report.html").exists()
    follow(again, capfd)
    assert {"toy-served", "pythia-160m"} <= set(re.split(r"[,\n]", follow(results, capfd)))
    follow(export.replace("models/pythia-160m", "bytes"), capfd)
    logged(Path("tasks/niah_single_1-700.jsonl"), Path("results/toy"))
    pattern = next(word for word in shlex.split(imported) if "*" in word)
    follow(imported.replace(pattern, " ".join(glob.glob(pattern))), capfd)
    assert Path("report/ruler-pythia-160m-imported/report.html").exists()


def smaller(line: str) -> str:
    for large, small in SMALLER:
        line = line.replace(large, small)
    return line


def logged(samples: Path, folder: Path) -> None:
    """Writes the log of lm-evaluation-harness of exported samples that a model answers which knows them."""
    folder.mkdir(parents=True)
    records = []
    for n, line in enumerate(samples.read_text().splitlines()):
        doc = json.loads(line)
        said = knows(doc["input"])
        answered = {"resps": [[said]], "filtered_resps": [said], "target": doc["outputs"], "arguments": {}}
        records.append({"doc_id": n, "doc": doc, **answered})
    log = folder / "samples_levelfield_niah_single_1_700_2026-11-22T21-30-02.123456.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_the_auditors_file_is_made_prepared_and_verified(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every audit of the page means what it says; the slow test below runs them."""
    blocks = list(written(page("auditor")))
    assert len(blocks) == 1
    subprocess.run([sys.executable, "make_reviews.py"], check=True)
    prepare, verify, *audits = commands("auditor")
    follow(prepare, capfd)
    assert "own_reviews" in follow(verify, capfd)
    audited: list[tuple[str, str]] = []
    monkeypatch.setattr(
        audit_command, "audited", lambda task, job, *_, **__: audited.append((task.name, job.effort)) is None
    )
    for line in audits:
        app.main(shlex.split(line)[1:])
    assert audited == [("own_reviews", "smoke"), ("listops", "smoke"), ("reach", "smoke")]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("user", ["proposer", "reproducer", "auditor"])
def test_every_command_of_the_page_ends_well(user: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    blocks = list(written(page(user)))
    if user == "auditor":
        subprocess.run([sys.executable, "make_reviews.py"], check=True)
    said = [follow(line.replace("--runs-dir results", f"--runs-dir {ROOT}/results"), capfd) for line in commands(user)]
    assert all(said)
    if user == "auditor":
        (quoted,) = re.findall(r"^> (.*)", page(user), re.MULTILINE)
        assert quoted in " ".join(said)
    for block in blocks:
        exec(compile(block, f"tutorial-{user}.md", "exec"), {})
    pages = {path.parent.name for path in Path("report").glob("*/report.html")}
    assert {name.partition("-")[0] for name in pages} == {
        "proposer": {"compare", "reach"},
        "reproducer": {"amos2025_table2"},
        "auditor": {"audit"},
    }[user]
