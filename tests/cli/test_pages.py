"""Every command on every page can be read: it exists, has the options that it is given, and can be typed as it stands.

What the commands of tutorials do is tested by doing it, in `test_tutorials.py` and beside the pages' subjects. First
nothing is called, so that pages on clusters, hubs and downloads are held to what the command line understands, too;
then those that need no more than this machine are done, as far as they go without training.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path

import duckdb
import pytest
from page_files import written
from repository import ROOT

from levelfield import tasks
from levelfield.cli import app, dispatch
from levelfield.engine.find import listed
from levelfield.mixers import classes

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(?:console|bash)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^((?: {4}.*\n)+)", re.MULTILINE)
MENTIONED = re.compile(r"`(levelfield [a-z][^`]*)`")
ELSEWHERE = re.compile(r" [>|&]+ .*")  # what the shell does with the command


def typed(text: str) -> Iterator[str]:
    """The commands in the blocks of a page, whole where one goes over several lines."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = iter("".join([*FENCED.findall(text), *INDENTED.findall(prose)]).splitlines())
    for line in lines:
        if line.lstrip().startswith("levelfield ") and "levelfield --" not in line:
            while line.endswith("\\") or line.count('"') % 2:
                line = f"{line.removesuffix(chr(92))} {next(lines).strip()}"
            yield ELSEWHERE.sub("", line.strip())


def mentioned(text: str) -> Iterator[str]:
    """The commands that stand in sentences and tables, where arguments may be left out."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (ELSEWHERE.sub("", re.sub(r"\s+", " ", line)) for line in MENTIONED.findall(prose))


def test_the_check_itself() -> None:
    text = """Give `levelfield run
demo` or:

    levelfield plan demo   # what it costs
    (cd results; levelfield list)

```
levelfield cite demo > a.bib
levelfield results "SELECT model
                    FROM scores"
```
"""
    whole = ["levelfield cite demo", 'levelfield results "SELECT model FROM scores"']
    assert list(typed(text)) == [*whole, "levelfield plan demo   # what it costs"]
    assert list(mentioned(text)) == ["levelfield run demo"]


def test_every_command_of_every_page_can_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read: list[object] = []
    real = dispatch._deferred

    def reading(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
        later = real(command)
        return wraps(later)(lambda *words, **options: lambda: read.append(later(*words, **options)))

    monkeypatch.setattr(dispatch, "_deferred", reading)
    texts = {page.name: page.read_text() for page in PAGES}
    whole = {line: name for name, text in texts.items() for line in typed(text)}
    parts = {line: name for name, text in texts.items() for line in mentioned(text) if "..." not in line}
    faults = [f"{name}: {line}: {said}" for line, name in whole.items() if (said := refusal(line, capsys))]
    faults += [
        f"{name}: {line}: {said}"
        for line, name in parts.items()
        if line not in whole and (said := refusal(line, capsys)) and " needs " not in said
    ]
    assert faults == []
    assert len(whole) > 90 and len(read) > 110


def test_the_studies_and_tasks_that_commands_name_exist() -> None:
    """What a reader writes is left out: files, settings, and words in capitals."""
    known = {"audit": set(tasks.names())} | {word: {*tasks.names(), *listed(), "all"} for word in ("prepare", "verify")}
    studies = {*listed(), *(mixer.label for mixer in classes())}
    known |= dict.fromkeys(("plan", "run", "report", "status", "cite"), studies)
    known["compare"] = {mixer.label for mixer in classes()}
    known["report"] = known["report"] | {"ruler"}  # of stored answers, where other names follow
    lost = []
    for page in PAGES:
        text = page.read_text()
        for line in (*typed(text), *mentioned(text)):
            command, *words = line.replace(" data ", " ").split()[1:]
            name = words[0].strip('"') if words and not words[0].startswith("-") else ""
            if name.islower() and name.isidentifier() and command in known and name not in known[command]:
                lost.append(f"{page.name}: {line}")
    assert lost == []


SECONDS = ("doctor", "list", "cite", "completion", "results", "leaderboard", "export", "import", "data croissant")
ALONE = ("doctor", "list")  # commands that need no word behind them
NOT_HERE = re.compile(r"OWNER/|FOLDER|STUDY|models/|export ruler|samples_|my_\w+|\w+\.csv|report/|huang|kernels|tcsh")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_that_take_seconds_end_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of every page, beside one small run; those that need a user's own files, a hub or a cluster are left out."""
    monkeypatch.chdir(tmp_path)
    Path("results").symlink_to(ROOT / "results")
    small = "--seeds 1 --steps 4 --width 8 --depth 1 --batch 4 --effort smoke --jobs 1"
    app.main(shlex.split(f"compare conv --tasks recall --protocols scratch --baselines linear {small}"))
    run_id = next(Path("runs").glob("recall-*")).name
    app.main(["data", "prepare", "listops"])
    lines = dict.fromkeys(line for page in PAGES for of in (typed, mentioned) for line in of(page.read_text()))
    ran: list[str] = []
    for line in sorted(lines, key=lambda line: line.startswith("levelfield import")):  # of what was exported
        words = shlex.split(line.replace("RUN_ID", run_id), comments=True)[1:]
        named = [name for name in SECONDS if words[: len(name.split())] == name.split()]
        if not named or NOT_HERE.search(line) or "..." in line or (len(words) == 1 and named[0] not in ALONE):
            continue
        capsys.readouterr()
        try:
            app.main(words)
        except SystemExit as stop:
            assert not stop.code, (line, capsys.readouterr().err)
        assert capsys.readouterr().out, line
        ran += named
    assert set(ran) == {*SECONDS}, sorted(ran)


TRIED_ELSEWHERE = re.compile(
    r"OWNER/|stanfordnlp|nyu-mll|downloads/"  # a hub: tests/user
    r"|^ruler|^(report|export) ruler|^report huang2024_table1"  # language models: test_tutorials.py
    r"|--from|--mirror|(prepare|verify) (image|text|speech|retrieval|amos)"  # official files: tests/tasks
    r"|^compare \w+$"  # a mixer by its name: looked up above
    r"|^status|^track"  # of what runs: tests/engine; trackers, which are not in every environment: tests/runs/trackers
    r"|^report .*(\.py|--own|--effort smoke|--precision)"  # of other runs: test_tutorials.py
    r"|\b(STUDY|NAME|TASK|FILE|RUN_ID)\b|mypackage|my_study|tiny"  # what a reader fills in
)
"""Of commands without their comments: those that other tests do, beside what they need."""

OF_A_CLUSTER = re.compile(r" --(engine|device|gpus|jobs|partition|time|account|track) \S+")
SHORT = "--effort smoke --seeds 1 --steps 4 --jobs 1"  # of a reach


def of_a_reader(pages: Iterable[Path]) -> None:
    """Writes the files that commands read: those of the pages, and tables like the ones that pages speak of."""
    for block in written("".join(page.read_text() for page in pages)):
        if "LAYERS = " in block:
            Path("hybrids_study.py").write_text(block)
        elif "class Lookup(" in block:
            Path("my_task.py").write_text(f"{block}\n\nTask = Lookup\n")
    parts = [Path("mine.py").read_text(), "Mine = TokenShift\n", Path("hybrids_study.py").read_text()]
    Path("mine.py").write_text("\n\n".join(parts))
    subprocess.run([sys.executable, "make_reviews.py"], check=True)
    plots = ["a war and a love", "a long war", "two in love", "nothing but love"] * 50
    genres = ["war; love", "war", "love", "love"] * 50
    rows = [f"{plot} {n},{genre}\n" for n, (plot, genre) in enumerate(zip(plots, genres))]
    Path("films.csv").write_text("".join(["plot,genres\n", *rows]))
    rows = [f"{plot} {n},{n % 2},{n // 2 % 2}\n" for n, plot in enumerate(plots)]
    Path("posts.csv").write_text("".join(["body,toxic,insult\n", *rows]))
    Path("book.txt").write_text(" ".join(f"{plot} {n * n}" for n, plot in enumerate(plots * 20)))
    duckdb.sql(
        "COPY (SELECT [sin(n), cos(n), n % 3] AS ecg, [n, n + 1, n % 5] AS ppg, n % 60 + 40 AS rate, "
        "n // 4 AS patient FROM range(200) AS r(n)) TO 'beats.parquet'"
    )


def without_training(line: str) -> str:
    """The command as far as it goes in seconds."""
    command, _, rest = line.partition(" ")
    if command == "run":
        return f"plan {OF_A_CLUSTER.sub('', rest)}"
    if command == "compare":
        return f"{re.sub(r' --(effort [a-z]+|dry-run)', '', line)} --effort smoke --dry-run"
    if command == "reach":
        return f"{re.sub(r' --(steps|effort) [0-9a-z]+', '', line)} {SHORT}"
    if command == "audit":
        return f"{re.sub(r' --(effort [a-z]+|without-models)', '', line)} --effort smoke --without-models"
    if command == "report" and "--runs-dir" not in line:
        return f"{line} --runs-dir results"
    return line


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore:.*get no gradient")  # of a layer whose half is for models that read both ways
def test_the_commands_that_train_or_read_a_readers_files_end_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of every page. Runs and comparisons are planned, audits train nothing, and a reach is that of a few steps."""
    monkeypatch.chdir(tmp_path)
    Path("results").symlink_to(ROOT / "results")
    of_a_reader(PAGES)
    app.main(["data", "prepare", "reach(range=16)"])
    lines = {line for page in PAGES for of in (typed, mentioned) for line in of(page.read_text())}
    bare = {shlex.join(shlex.split(line, comments=True)[1:]) for line in lines}
    done = {
        without_training(line)
        for line in bare
        if " " in line and line != "data prepare" and not line.startswith(SECONDS) and not TRIED_ELSEWHERE.search(line)
    }
    faults = [f"{line}: {said}" for line in sorted(done) if (said := refusal(f"levelfield {line}", capsys))]
    assert faults == []
    assert len(done) > 70


def refusal(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says of words that it cannot read; empty where it can."""
    try:
        app.main(shlex.split(line, comments=True)[1:])
    except SystemExit as stop:
        said = capsys.readouterr().err
        return said if stop.code else ""
    return ""
