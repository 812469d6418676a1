"""What a person, a shell or a system can hand to the command line by mistake: one sentence, exit code 2."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import signal
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import foreign_files
import pytest
import toys

from levelfield import pretrained
from levelfield.cli.app import main
from levelfield.cli.arguments import numbers, real, share, whole
from levelfield.files import folder
from levelfield.presets.options import names
from levelfield.report.query import Measured, query
from levelfield.spec import UserError, no_progress
from levelfield.tasks._texts import corpus_files

pytestmark = pytest.mark.usefixtures("undrawn")

LONG = "a" * 300


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    toys.write(tmp_path / "toys.py", runs=2)
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("levelfield: ") and shown.count("\n") == 1 and len(shown) < 600, shown
    return shown


@pytest.mark.parametrize("option", ["--runs-dir", "--data"])
@pytest.mark.parametrize("place", ["one", LONG, "/proc", "/proc/self/fd/none", "toys.py", "toys.py/in", "a\0b"])
def test_a_folder_that_cannot_be_made_is_refused_before_any_run(
    here: Path, capsys: pytest.CaptureFixture[str], option: str, place: str
) -> None:
    assert "give another" in refused(capsys, "run", "toys.py", "--device", "cpu", option, place)


@pytest.mark.parametrize("option", ["--runs-dir", "--data", "--only", "--filter"])
def test_what_a_variable_that_is_not_set_leaves_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    before = sorted(here.iterdir())
    assert "empty" in refused(capsys, "run", "toys.py", "--device", "cpu", option, "")
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize("words", [["plan", "toys.py"], ["report", "toys.py"], ["results", "SELECT 1"]], ids=str)
def test_commands_that_only_read_refuse_such_folders_too(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    for place in ("one", LONG, "toys.py"):
        refused(capsys, *words, "--runs-dir", place)


@pytest.mark.parametrize("words", [["demo"], ["compare", "mine.py:Mine", "--effort", "smoke"]], ids=str)
def test_a_folder_of_reports_is_made_before_anything_is_trained(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (here / "mine.py").write_text("from torch import nn\nclass Mine(nn.Linear):\n" + MINE)
    assert "--report-dir" in refused(capsys, *words, "--device", "cpu", "--jobs", "1", "--report-dir", "/proc/none")
    assert not (here / "runs").exists() and not (here / "data").exists()


MINE = "    def __init__(self, width):\n        super().__init__(width, width)\n"


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["compare", ""], "'' names no class: write FILE.py:Name"),
        (["compare", "mine.py"], "'mine.py' names no class: write FILE.py:Name"),
        (["list", "task"], "There is no list of 'task': did you mean 'tasks'?"),
    ],
)
def test_words_that_name_nothing_are_named(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert sentence in refused(capsys, *words)


def test_a_word_that_is_not_in_utf8_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the name of a file of an old system arrives: the report of a finished run could not be written."""
    said = refused(capsys, "plan", os.fsdecode(b"caf\xe9.py:Mine"))
    assert "'caf\ufffd.py:Mine' is not in UTF-8: rename the file, or set LC_ALL=C.UTF-8." in said


def test_a_folder_that_is_there_or_can_be_made_is_taken(tmp_path: Path) -> None:
    assert folder(str(tmp_path)) == tmp_path
    assert folder(str(tmp_path / "new" / "er")) == tmp_path / "new" / "er"


@pytest.mark.parametrize("count", ["9" * 30, "9" * 5000, "1e9", "nan", "--", "1000000"])
def test_numbers_beyond_all_bounds_are_refused(here: Path, capsys: pytest.CaptureFixture[str], count: str) -> None:
    refused(capsys, "plan", "toys.py", f"--trials={count}")


@pytest.mark.parametrize(
    "words",
    [
        ["--lengths", "9" * 30],
        ["--lengths", "9" * 5000],
        ["--lengths", "1024,1e4"],
        ["--lengths", "100000001"],
        ["--count", "999999999"],
        ["--depths", "nan"],
        ["--depths", "0 1.5"],
    ],
)
def test_questions_beyond_all_bounds_are_refused_before_a_model_is_looked_for(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert "nowhere" not in refused(capsys, "ruler", "nowhere", *words)


def test_words_are_read_as_the_numbers_and_names_they_are() -> None:
    assert whole("12") == 12 and real("2e-3") == 0.002
    assert names(["a,b", "c d", ",e,"]) == names(["a b c d e"]) == ("a", "b", "c", "d", "e")
    assert numbers(["1024,2048", "4096 1024"], whole) == (1024, 2048, 4096) and numbers(["0, .5"], share) == (0, 0.5)
    for wrong in ("-1", "x", "1.5", ""):
        with pytest.raises(UserError):
            whole(wrong)
    for wrong in ("0", "-1", "nan", "inf", "x"):
        with pytest.raises(UserError):
            real(wrong)


@pytest.mark.parametrize("where", ["", "def runs(effort):\n    "], ids=["in the file", "in its runs"])
def test_a_study_that_ends_the_program_is_named_with_its_line(
    here: Path, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    text = f"import sys\nfrom levelfield.spec import Study\n{where}sys.exit(0)\n"
    (here / "mine.py").write_text(text + ("study = Study('mine', 'a claim', runs)\n" if where else ""))
    shown = refused(capsys, "run", "mine.py", "--effort", "smoke")
    assert f"mine.py, line {4 if where else 3} ends the program" in shown


@pytest.mark.parametrize(
    "sql",
    [
        "CALL enable_logging()",
        "SELECT * FROM enable_logging()",
        "SET memory_limit = '100GB'",
        "SELECT 1; SELECT 2",
        "DROP TABLE rows",
        "INSERT INTO rows SELECT * FROM published",
        "COPY rows TO 'rows.csv'",
        "SELECT * FROM read_text('/etc/hostname')",
        "ATTACH 'other.db'",
        "PRAGMA database_list",
        "-- nothing",
        "",
        "SELECT * FROM range(2000000)",
        "SELECT list(i) FROM range(10000000000) t(i)",
        "SELECT 'open",
    ],
)
def test_a_query_can_only_ask(here: Path, capsys: pytest.CaptureFixture[str], sql: str) -> None:
    refused(capsys, "results", sql)
    assert not (here / "rows.csv").exists() and not (here / "other.db").exists()


def test_questions_of_every_form_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder for temporary files whose name has what SQL and shells quote with."""
    odd = tmp_path / 'it\'s "odd"'
    odd.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(odd))
    columns, rows = query("SELECT source, count(*) AS n FROM published GROUP BY ALL ORDER BY n DESC", Measured())
    assert columns == ["source", "n"] and all(count > 0 for _, count in rows)
    for sql in ("WITH p AS (FROM published) SELECT count(*) FROM p", "DESCRIBE rows", "EXPLAIN SELECT 1", "VALUES (1)"):
        assert query(sql, Measured())[1], sql


INTERRUPTED = """
import importlib.abc, os, runpy, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests were started in the background
sys.argv[1:] = ["list", "tasks"]
def interrupt():
    os.kill(os.getpid(), signal.{number})
    sum(range(1000))
class At(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            if {stage!r} == "raised":
                interrupt()
            elif {stage!r} == "text":
                exec("interrupt()")
            elif {stage!r} == "dropped":
                try:
                    interrupt()
                except BaseException:
                    pass
                time.sleep(1000)
            else:
                class Freed:
                    def __del__(self):
                        interrupt()
                Freed()
                time.sleep(1000)
sys.meta_path.insert(0, At())
runpy.run_module("levelfield", run_name="__main__")
"""


@pytest.mark.parametrize(
    "number, module, stage",
    [
        ("SIGINT", "levelfield.cli.arguments", "raised"),  # before the command line is there
        ("SIGINT", "levelfield.cli.listing", "raised"),
        ("SIGINT", "levelfield.cli.listing", "text"),  # as a dataclass is made, which may end the process by the signal
        ("SIGINT", "levelfield.cli.listing", "dropped"),  # as an import of another package may do
        ("SIGINT", "levelfield.cli.listing", "freed"),  # where Python can only say that it ignored the exception
        ("SIGTERM", "levelfield.cli.listing", "raised"),
        ("SIGTERM", "levelfield.cli.listing", "dropped"),
    ],
)
def test_an_interrupt_ends_the_command_wherever_it_comes(tmp_path: Path, number: str, module: str, stage: str) -> None:
    """Run with -m, as Python ends by the signal there and not where it is given the code itself."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED.format(number=number, module=module, stage=stage))
    words, path = [sys.executable, "-m", "interrupted"], os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=100, check=False
    )
    code = 128 + signal.Signals[number]
    assert (done.returncode, done.stderr.strip()) == (code, "stopped; run the same command again to continue")


def in_zip(text: bytes) -> bytes:
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", text)
    return made.getvalue()


def in_tar(text: bytes) -> bytes:
    made, packed = BytesIO(), lzma.compress(text)
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        info = tarfile.TarInfo("a.txt.xz")
        info.size = len(packed)
        archive.addfile(info, BytesIO(packed))
    return made.getvalue()


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "a.txt": bytes,
    "a.txt.gz": gzip.compress,
    "a.jsonl.xz": lambda text: lzma.compress(b'{"text": "%s"}' % text),
    "a.zip": in_zip,
    "a.tar.gz": in_tar,
}
"""Every form that is unpacked, and what makes it of a text."""


@pytest.mark.parametrize("name", FORMS)
def test_no_more_is_unpacked_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(corpus_files, "MOST", 1 << 20)
    (tmp_path / name).write_bytes(FORMS[name](b"a" * (1 << 19)))
    assert corpus_files.documents(tmp_path, no_progress) == [b"a" * (1 << 19)]
    (tmp_path / name).write_bytes(FORMS[name](b"a" * (50 << 20)))
    tracemalloc.start()
    with pytest.raises(UserError, match="give a part of it"):
        corpus_files.documents(tmp_path, no_progress)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 << 20


VALUES = (None, [], {}, "x", -1, 0, 10**12, True, 1.5, float("inf"), [1, "a"], {"a": None})


def places(config: dict[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in config.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from places(value, (*before, key))


def replaced(config: Any, place: tuple[str, ...], value: Any) -> dict[str, Any]:
    return config | {place[0]: replaced(config[place[0]], place[1:], value) if len(place) > 1 else value}


def test_whatever_a_config_holds_is_a_model_or_one_sentence(tmp_path: Path) -> None:
    config = foreign_files.HYBRID
    folder = foreign_files.write_native(tmp_path, config, foreign_files.random_weights(config))
    for place in places(config):
        for value in VALUES:
            (folder / "config.json").write_text(json.dumps(replaced(config, place, value)))
            try:
                pretrained.load(str(folder))
            except UserError as error:
                assert "\n" not in str(error)


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", line, sys.executable, "-P"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    "words, rest, reason",
    [
        ("list tasks", ">&-", "Standard output is closed"),
        ("list tasks", "> /dev/full", "No space left"),
        ("--help", "> /dev/full", "No space left"),
        ("results 'SELECT * FROM published'", "> /dev/full", "No space left"),
    ],
)
def test_an_output_that_takes_nothing_is_one_sentence(tmp_path: Path, words: str, rest: str, reason: str) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "rows.csv").write_text("source,value\nme,1\n")
    done = shell(f'"$0" -m levelfield {words} {rest}', tmp_path)
    assert done.returncode == 2
    assert reason in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_reader_that_has_had_enough_is_no_run_that_failed(tmp_path: Path) -> None:
    toys.write(tmp_path / "toys.py", runs=1)
    done = shell('{ "$0" -m levelfield run toys.py --effort smoke --jobs 1; echo $? >&2; } | head -n 1', tmp_path)
    assert done.stdout.count("\n") == 1
    assert done.stderr == "141\n"


def test_other_streams_may_be_closed_and_letters_few(tmp_path: Path) -> None:
    done = shell('"$0" -m levelfield results "SELECT \'–\' AS x" 2>&- <&-', tmp_path)
    assert (done.returncode, done.stdout) == (0, "x\n–\n")
    done = shell('PYTHONIOENCODING=ascii "$0" -m levelfield results "SELECT \'–\' AS x"', tmp_path)
    assert (done.returncode, done.stdout) == (0, "x\n\\u2013\n")


def test_the_help_of_a_command_shows_its_argument_and_no_type_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["data", "prepare"], ["data", "verify"], ["list"], ["run"], ["plan"], ["compare"], ["ruler"]):
        with pytest.raises(SystemExit) as stop:
            main([*words, "--help"])
        shown = capsys.readouterr().out
        assert not stop.value.code and f"usage: levelfield {' '.join(words)} " in shown
        assert "None" not in shown and "STR" not in shown, shown
        assert not re.search(r"\(default: [^()]*\)[\s│]*\(default:", shown), shown


def test_a_misspelt_option_is_compared_with_those_of_its_own_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`ruler` has a --seed, and `run` has none."""
    with pytest.raises(SystemExit) as stop:
        main(["run", "demo", "--seeds", "3"])
    assert stop.value.code == 2
    shown = capsys.readouterr().err
    assert "--seeds" in shown and "ruler" not in shown


def test_values_without_levels_are_pretrained_on_as_values(here: Path) -> None:
    """A spectrum or a pulse has no symbols to predict; both ways of pretraining then regress its steps."""
    (here / "mine.py").write_text("from torch import nn\nclass Mine(nn.Linear):\n" + MINE)
    words = ("--tasks", "pulse", "--protocols", "spt_masked", "spt_causal", "--effort", "smoke", "--jobs", "1")
    main(["compare", "mine.py:Mine", "--baselines", "conv", *words])
    texts = [path.read_text() for path in (here / "runs").glob("pulse-*/rows.jsonl")]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    assert {row["protocol"] for row in rows} == {"spt_masked_matched", "spt_causal_matched", "none"}
