"""What the terminal shows: the overview, refusals in one sentence, JSON for other programs, what is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest
import toys
from refusals import refused
from repository import ROOT
from rich.console import Console
from rich.live import Live

from levelfield.cli import overview, query_command, refusals, run_screen
from levelfield.cli.app import COMMANDS, main
from levelfield.cli.dispatch import Group


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    toys.write(tmp_path / "toys.py", runs=2)
    return tmp_path


def test_alone_it_shows_four_uses_and_every_command_without_importing_anything() -> None:
    assert list(overview.COMMANDS) == list(COMMANDS.commands)
    code = "import sys; sys.argv = ['levelfield']; from levelfield.__main__ import main; main(); "
    code += "assert not {'tyro', 'numpy', 'torch'} & set(sys.modules); "
    code += "import atexit, gc; atexit._run_exitfuncs(); assert gc.get_freeze_count(), 'searched at the end'"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == overview.text() + "\n"
    assert len(overview.USES) == 4
    named = {command.split()[1] for _, *commands in overview.USES for command, _ in commands}
    assert named <= set(COMMANDS.commands)


def test_brackets_in_the_answer_of_a_query_are_shown_as_they_are(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_command, "Console", lambda: Console(force_terminal=True, width=80))
    query_command.answer("SELECT '[/x]' AS a, '[kernel] 5' AS \"[b]\", NULL AS c", Path("runs"))
    shown = capsys.readouterr().out
    assert "[/x]" in shown and "[kernel] 5" in shown and "[b]" in shown


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["plan", "demo", "--efort", "smoke"], "levelfield plan has no option --efort: did you mean '--effort'?"),
        (["plan", "--efort", "smoke", "demo"], "levelfield plan has no option --efort: did you mean '--effort'?"),
        (
            ["report", "demo", "--data", "x"],
            "levelfield report has no option --data: `levelfield report --help` lists its options.",
        ),
        (["plan", "--efort=smoke"], "levelfield plan has no option --efort: did you mean '--effort'?"),
        (["plan", "demo", "--effort", "smok"], "--effort cannot be 'smok': did you mean 'smoke'?"),
        (["run", "demo", "--effort", "smok"], "--effort cannot be 'smok': did you mean 'smoke'?"),
        (["plan"], "levelfield plan needs STUDY, such as demo: `levelfield plan --help` says what."),
        (["compare"], "levelfield compare needs MIXER, such as my_mixer.py:MyMixer: `levelfield compare --help` says"),
        (["audit"], "levelfield audit needs DATA, such as listops: `levelfield audit --help` says"),
        (["plan", "demo", "--filter"], "--filter needs a value: `levelfield plan --help` says which."),
        (["plan", "demo", "more"], "levelfield plan takes no further word 'more': `levelfield plan --help` shows"),
        (["plan", "demo", "--qqqqq"], "levelfield plan has no option --qqqqq: `levelfield plan --help` lists"),
        (["audit", "a.csv", "--longest", "-3"], "--longest -3 is out of range: give a whole number from 1 to"),
        (["data", "prepare"], "levelfield data prepare needs TASK, such as listops: "),
        (["ruler"], "levelfield ruler needs a MODEL: a folder of weights, a name on the hub, the id of a run, or"),
        (["--efort"], "Options follow the command: write `levelfield COMMAND --efort ...`."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("columns", ["200", "50"])
def test_words_that_cannot_be_read_are_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit) as stop:
        main(words)
    shown = capsys.readouterr().err
    assert stop.value.code == 2 and shown.startswith(f"levelfield: {sentence}") and shown.count("\n") == 1, shown


def test_boxes_of_a_terminal_are_unframed() -> None:
    box = "╭─ Oh ───╮\n│ \x1b[31mSomething\x1b[0m new.      │\n│ For full helptext, run x │\n╰───╯\n"
    assert refusals.sentence(box, "levelfield run") == "Oh Something new: see `levelfield run --help`."


def _leaves(group: Group, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    return [
        leaf
        for name, command in group.commands.items()
        for leaf in (_leaves(command, (*before, name)) if isinstance(command, Group) else [(*before, name)])
    ]


@pytest.mark.parametrize("words", _leaves(COMMANDS), ids=" ".join)
def test_help_speaks_no_python(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    shown = capsys.readouterr().out
    assert not stop.value.code and f"usage: levelfield {' '.join(words)}" in shown
    assert re.findall(r"None|STR\b|FLOAT|INT\b|\(default: (?:True|False|''|\)).*", shown) == [], shown


@pytest.mark.parametrize("columns", ["1", "3", "5"])
def test_help_ends_in_a_terminal_of_a_few_columns(columns: str) -> None:
    """In a process of its own, which can be ended where it does not."""
    words = [sys.executable, "-m", "levelfield", "cite", "--help"]
    shown = subprocess.run(words, env=os.environ | {"COLUMNS": columns}, capture_output=True, text=True, timeout=100)
    assert shown.returncode == 0 and shown.stdout.startswith("usage: levelfield cite"), shown.stderr


@pytest.mark.parametrize(
    "words, own, other",
    [
        (["report", "--help"], "--report-dir", "report ruler --help"),
        (["export", "-h"], "--push", "export ruler --help"),
    ],
)
def test_help_of_a_group_is_that_of_the_command_which_needs_no_name(
    capsys: pytest.CaptureFixture[str], words: list[str], own: str, other: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    shown = capsys.readouterr().out
    assert not stop.value.code and own in shown and f"\nlevelfield {other}\n" in shown
    assert f"levelfield {words[0]} study --help" not in shown, "that is this help"


def test_lists_plans_and_results_are_json_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["list", "protocols", "--json"])
    assert json.loads(capsys.readouterr().out)["protocols"]["scratch"] == "labels only, from fresh weights"
    main(["plan", "toys.py", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["study"], found["effort"], len(found["runs"])) == ("toys", "minutes", 2)
    assert {"id", "task", "model", "protocol", "seed", "done"} == set(found["runs"][0]) and not found["runs"][0]["done"]
    main(["results", "SELECT 1 AS one, 'a' AS two", "--json"])
    assert json.loads(capsys.readouterr().out) == [{"one": 1, "two": "a"}]
    main(["results", "SELECT 1.5 AS a, 'nan'::DOUBLE AS b, ['-inf'::DOUBLE, 2] AS c", "--json"])
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == [{"a": 1.5, "b": None, "c": [None, 2.0]}]
    with pytest.raises(SystemExit) as stop:
        main(["results", "SELECT 1 AS x, 2 AS x", "--json"])
    assert stop.value.code == 2 and "Several columns are called x" in capsys.readouterr().err
    main(["plan", "huang2024_table1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["study"], found["effort"]) == ("huang2024_table1", "paper")
    first = found["models"][0]
    assert (first["answered"], first["tokens"] > first["answers"] > 0) == (0, True)
    assert first["command"].startswith(f"levelfield ruler {first['model']} --table huang2024_table1 ")


def test_doctor_says_what_is_there_and_what_is_missing_for_what(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from levelfield.cli import doctor

    missing = {"no-such-package": ("text", "models of the hub"), "no-such-kernels": ("kernels", "speed")}
    monkeypatch.setattr(doctor, "OPTIONAL", {"torch": ("core", "x")} | missing)
    main(["doctor"])
    shown = capsys.readouterr().out
    assert "Python 3." in shown and "kernels:" in shown and "device" in shown
    assert "missing, for models of the hub: pip install 'levelfield[text]'\n" in shown
    assert "missing, for speed: pip install --no-build-isolation 'levelfield[kernels]'\n" in shown


def test_doctor_knows_every_extra_that_a_user_may_want() -> None:
    from levelfield.cli import doctor

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra for extra, _ in doctor.OPTIONAL.values()} == extras.keys() - {"dev", "docs", "peers"}


def test_progress_in_a_pipe_says_what_has_changed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_screen, "PLAIN_EVERY_S", 0.0)
    running = [tmp_path / "a", tmp_path / "b"]
    for where, state in zip(running, ("preparing data", "testing"), strict=True):
        where.mkdir()
        (where / "progress.json").write_text(json.dumps({"state": state}))
    with run_screen.screen(Console(force_terminal=False)) as screen:
        for _ in range(3):
            screen.show(running, 16, 0, 24)
        (running[1] / "progress.json").write_text(json.dumps({"state": "probing slices"}))
        screen.show(running, 16, 0, 24)
        screen.show(running[:1], 17, 0, 24)
    assert capsys.readouterr().out.splitlines() == [
        "16 of 24 done",
        "  a  preparing data",
        "  b  testing",
        "  b  probing slices",
        "17 of 24 done",
    ]


@pytest.mark.parametrize(("width", "lines"), [(120, 3), (80, 5), (40, 7)])
def test_runs_that_differ_at_the_end_of_their_names_are_told_apart_in_a_narrow_terminal(
    tmp_path: Path, width: int, lines: int
) -> None:
    ids = [f"listops-attention-scratch-{seed}-d65b9d566a" for seed in (0, 1)]
    facts = {"state": "training", "objective": "label", "phase": 1, "phases": 2, "step": 320, "steps": 2000}
    for each in ids:
        (tmp_path / each).mkdir()
        (tmp_path / each / "progress.json").write_text(json.dumps(facts | {"loss": 1.73, "best": 0.41}))
    console = Console(width=width, file=StringIO())
    live = Live(console=console)
    run_screen.Terminal(console, live).show([tmp_path / each for each in ids], 3, 0, 24)
    console.print(live.get_renderable())
    shown = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert all(shown.count(text) == 1 for text in ids) and shown.count("320/2000") == 2
    assert len(shown.splitlines()) == lines


def test_a_terminal_that_draws_nothing_anew_is_told_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "dumb")  # as in a shell of Emacs
    with run_screen.screen(Console(force_terminal=True)) as screen:
        screen.show([], 1, 0, 2)
        assert capsys.readouterr().out == "1 of 2 done\n"


def test_help_and_version_are_words_too(capsys: pytest.CaptureFixture[str]) -> None:
    for word, flags in (("version", ["--version"]), ("help", ["--help"])):
        main([word])
        said = capsys.readouterr().out
        main(flags)
        assert said == capsys.readouterr().out
    for words, flags in (
        (["help", "data", "prepare"], ["data", "prepare", "--help"]),
        (["help", "run"], ["run", "-h"]),
    ):
        shown: list[str] = []
        for given in (words, flags):
            with pytest.raises(SystemExit) as stop:
                main(given)
            assert not stop.value.code
            shown.append(capsys.readouterr().out)
        assert shown[0] == shown[1] and "usage: levelfield" in shown[0]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_a_shell_gets_its_script_of_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    if shell == "tcsh" and find_spec("shtab") is None:
        assert "needs the package shtab: pip install shtab." in refused(capsys, "completion", shell)
        return
    with pytest.raises(SystemExit) as stop:
        main(["completion", shell])
    shown = capsys.readouterr().out
    assert not stop.value.code and "levelfield" in shown and "leaderboard" in shown and "--baselines" in shown


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be 'bsh': did you mean 'bash'?" in refused(capsys, "completion", "bsh")
