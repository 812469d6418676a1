"""Every command on every page can be read: it exists, has the options that it is given, and can be typed as it stands.

What the commands of tutorials do is tested by doing it, in `test_tutorials.py` and beside the pages' subjects. Here
nothing is called, so that pages on clusters, hubs and downloads are held to what the command line understands, too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path

import pytest
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


def refusal(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says of words that it cannot read; empty where it can."""
    try:
        app.main(shlex.split(line, comments=True)[1:])
    except SystemExit as stop:
        said = capsys.readouterr().err
        return said if stop.code else ""
    return ""
