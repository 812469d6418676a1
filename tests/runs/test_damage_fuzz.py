"""Every kind of file of a run, damaged in every way: a report and a query lose that run at most, and say why.

A run folder is small, so every case is tried: cuts, other bytes, other JSON, each field of each object with a value of
another type, a folder in the file's place, and a file that may not be read. The runs are as earlier versions left them,
without checksums of these files, so that damage which keeps the shape is read: then a report has to take it.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import toys

from levelfield import report
from levelfield.cli.app import main
from levelfield.engine.find import Source, choose
from levelfield.probes import find
from levelfield.report import style
from levelfield.report.query import Measured, collect, query
from levelfield.run import execute
from levelfield.runs import store
from levelfield.runs.results import Results, StudyIndex
from levelfield.spec import Study

pytestmark = pytest.mark.usefixtures("undrawn")

FILES = ("spec.json", "done.json", "rows.jsonl", "ledger.json", "log.jsonl", "progress.json", store.WEIGHTS, "probe")
NEEDED = ("done.json", "rows.jsonl", "ledger.json", "probe")  # without which a report has no use for a run
FIELDS = ("rows.jsonl", "ledger.json", "log.jsonl", "probe")  # of which every field is tried
DRAWN = 8  # reports that are made, of what is damaged and yet has the shape it should have
CONTENTS: tuple[bytes, ...] = (
    b"",
    b"\n",
    b"\xff\xfe\x00garbage",
    b"not json\n",
    b"[]\n",
    b"{}\n",
    b"null\n",
    b"7\n",
    b'"text"\n',
    b"[[1]]\n",
    b'{"phases": 3}\n',
    b"[" * 100_000,
    b"9" * 10_000,
    b"NaN\n",
)
WRONG: tuple[Any, ...] = (None, "text", "\ud800", "\0", -1, 10**30, float("nan"), float("inf"), [], {}, [None], True)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Path]:
    """A study of two runs that are complete, with a probe."""
    folder = tmp_path_factory.mktemp("damage")
    toys.write(folder / "toys.py", runs=2)
    loaded = Source(str(folder / "toys.py")).load()
    for run in (runs := choose(loaded, "minutes")):
        execute(run, store.directory(folder / "runs", run), folder / "data", "cpu", [find("effective_context")])
        done = store.directory(folder / "runs", run) / store.DONE
        known = json.loads(done.read_text())
        done.write_text(json.dumps({key: known[key] for key in ("version", "weights_sha256")}))
    store.write_index(folder / "runs", StudyIndex.of("toys", "minutes", runs))
    return loaded, folder / "runs"


@pytest.fixture
def out(study: tuple[Study, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(study[1], tmp_path / "runs"))


def victim(out: Path, name: str) -> Path:
    """That file of the first run."""
    where = min(out.glob("toy-*"))
    return next(where.glob("probe-*.jsonl")) if name == "probe" else where / name


def fields(path: Path) -> Iterator[bytes]:
    """The file with each field of its first object, and of objects in that, in turn of another kind or absent."""
    first, *rest = path.read_bytes().splitlines() if path.suffix == ".jsonl" else [path.read_bytes()]
    for changed in variants(json.loads(first)):
        yield b"\n".join([json.dumps(changed).encode(), *rest, b""])


def variants(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
            yield from ({**value, key: wrong} for wrong in WRONG)
            yield from ({**value, key: inner} for inner in variants(value[key]))
    elif isinstance(value, list) and value:
        yield from ([inner, *value[1:]] for inner in variants(value[0]))


def damages(path: Path, name: str) -> Iterator[Callable[[], object]]:
    whole = path.read_bytes()
    for content in (*CONTENTS, whole[: len(whole) // 2], whole[:-2], whole[1:], whole * 2):
        yield lambda content=content: path.write_bytes(content)
    if name in FIELDS:
        for content in fields(path):
            yield lambda content=content: path.write_bytes(content)
    yield path.unlink
    yield lambda: (path.unlink(), path.mkdir())


def repair(path: Path, whole: bytes) -> None:
    if path.is_dir():
        path.rmdir()
    path.write_bytes(whole)


def rows_of(results: Results, run: str) -> list[Any]:
    return [row for row in results.rows if row.get("run") == run]


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_costs_its_run_at_most(
    study: tuple[Study, Path], out: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = victim(out, name)
    whole, before = path.read_bytes(), store.read(out, "toys", "minutes")
    lost, other = sorted(before.specs)
    monkeypatch.setattr(style, "render", lambda *_: ("<svg></svg>", b""))  # drawn, but not rendered: seconds a case
    left_out, passed, queried = 0, list[Results](), list[Any]()
    for damage in damages(path, name):
        damage()
        results = store.read(out, "toys", "minutes")
        assert rows_of(results, other) == rows_of(before, other)
        assert results.ledgers[other] == before.ledgers[other]
        found = collect(out)
        queried += [row for row in found.rows if row.get("run") != other]
        why = results.failures.get(lost, "")
        assert found.complaints == [why.removeprefix("not readable, because ")] * bool(why), (
            "report and query are alike"
        )
        if why:
            assert why.startswith("not readable, because ") and "run again" in why
            assert lost not in results.ledgers and rows_of(results, lost) == []
            left_out += 1
        elif results != before:
            passed.append(results)
        repair(path, whole)
    assert bool(left_out) == (name in NEEDED)
    for results in passed[:: max(1, len(passed) // DRAWN)]:
        report.build(study[0], "minutes", results, tmp_path / "report")
    assert len(query("SELECT * FROM rows", Measured(queried))[1]) == len(queried)
    assert store.read(out, "toys", "minutes") == before


@pytest.mark.parametrize(
    ("name", "content"),
    [("ledger.json", b"{"), ("rows.jsonl", b"[1]\n"), ("done.json", b"[]"), ("probe", b"\xff")],
)
def test_the_page_says_which_run_and_the_commands_go_on(
    study: tuple[Study, Path], out: Path, tmp_path: Path, name: str, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    file = str(study[1].parent / "toys.py")
    path = victim(out, name)
    path.write_bytes(content)
    with pytest.raises(SystemExit) as end:
        main(["report", file, "--runs-dir", str(out), "--report-dir", str(tmp_path)])
    assert end.value.code == 1
    said = capfd.readouterr().out
    assert "The report is of 1 of 2 runs." in said and f"{path.parent.name} is not readable, because {path} is" in said
    assert f"To run again what was removed: `levelfield run {file} --effort minutes --runs-dir {out}`." in said
    page = (tmp_path / "toys-minutes" / "report.html").read_text()
    assert f"not readable, because {path} is damaged" in page
    main(["plan", file, "--runs-dir", str(out)])
    main(["results", "SELECT count(*) FROM scores", "--runs-dir", str(out)])
    shown = capfd.readouterr()
    assert shown.err.count("Left out: ") == 1


def test_a_report_says_how_many_runs_it_is_of_and_which_have_lost_their_rows(
    study: tuple[Study, Path], out: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["report", str(study[1].parent / "toys.py"), "--runs-dir", str(out), "--report-dir", str(tmp_path)]
    main(words)
    assert "The report is of" not in capfd.readouterr().out, "of all of them"
    path = victim(out, "rows.jsonl")
    path.unlink()
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capfd.readouterr().out
    where = path.parent
    assert end.value.code == 1 and "The report is of 1 of 2 runs." in said
    assert f"{where.name} is not readable, because {path} is missing: remove {where} and run again." in said
    assert "To run again what was removed: `levelfield run " in said
    (where / store.DONE).unlink()
    main(words)
    said = capfd.readouterr().out
    assert "The report is of 1 of 2 runs." in said and "not readable" not in said


def test_where_nothing_can_be_read_the_report_says_so(
    study: tuple[Study, Path], out: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in out.glob("*/ledger.json"):
        path.write_text("")
    with pytest.raises(SystemExit) as end:
        main(["report", str(study[1].parent / "toys.py"), "--runs-dir", str(out), "--report-dir", str(tmp_path)])
    assert end.value.code == 2
    said = capfd.readouterr().err
    assert "not readable, because" in said and said.count("\n") == 1


@pytest.mark.parametrize(("number", "advice"), [(errno.EACCES, "the right to read"), (errno.EMFILE, "ulimit -n")])
@pytest.mark.parametrize("name", [*NEEDED, "log.jsonl"])
def test_what_may_not_be_read_is_not_to_be_removed(
    out: Path, name: str, number: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = victim(out, name), Path.open

    def refuse(self: Path, *arguments: Any, **options: Any) -> Any:
        if self == path:
            raise OSError(number, "refused", str(self))
        return real(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    (why,) = store.read(out, "toys", "minutes").failures.values()
    assert advice in why and "remove" not in why


@pytest.mark.parametrize("content", CONTENTS)
def test_a_damaged_record_of_a_study_is_one_sentence(
    out: Path, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """Queries go on without it: then rows do not say which study they are of."""
    (out / "studies" / "toys-minutes.json").write_bytes(content)
    with pytest.raises(store.UserError, match="run the study again"):
        store.read(out, "toys", "minutes")
    main(["results", "SELECT count(*) FROM scores WHERE study IS NULL", "--runs-dir", str(out)])
    shown = capfd.readouterr()
    assert shown.out.split() == ["count_star()", "2"] and "toys-minutes.json" in shown.err


@pytest.mark.parametrize("content", [b"", b"\xff", b"\n\n", b"It failed.\nwith details\n"])
def test_the_reason_of_a_failure_is_read_whatever_is_in_it(out: Path, content: bytes) -> None:
    victim(out, "done.json").unlink()
    victim(out, "error.txt").write_bytes(content)
    (why,) = store.read(out, "toys", "minutes").failures.values()
    assert why == "It failed." if b"failed" in content else why


@pytest.fixture
def sealed(out: Path) -> Path:
    """The folder of the first run, with the checksums that runs have now."""
    where = victim(out, "rows.jsonl").parent
    store.conclude(where, "1", ["effective_context"])
    return where


def failure(where: Path) -> str:
    return store.read(where.parent, "toys", "minutes").failures.get(where.name, "")


@pytest.mark.parametrize("name", ["rows.jsonl", "ledger.json"])
def test_an_edited_number_is_noticed(sealed: Path, name: str) -> None:
    assert failure(sealed) == ""
    text = (sealed / name).read_text()
    digit = next(place for place, letter in enumerate(text) if letter in "12345678")
    (sealed / name).write_text(text[:digit] + "9" + text[digit + 1 :])
    assert f"{name} is damaged (it has changed since it was written): remove {sealed} and run again." in failure(sealed)


@pytest.mark.parametrize("name", ["rows.jsonl", "probe"])
@pytest.mark.parametrize("content", [b"{}\n", b'{"a": 1}\n', b'{"run": "another", "metric": "accuracy"}\n'])
def test_rows_of_no_run_are_damaged_ones(out: Path, name: str, content: bytes) -> None:
    path = victim(out, name)
    path.write_bytes(content)
    assert f"{path} is damaged (it holds rows of " in failure(path.parent)


def test_rows_without_the_score_of_the_run_are_cut_off(out: Path) -> None:
    path = victim(out, "rows.jsonl")
    validation, test, *rules = path.read_text().splitlines(keepends=True)
    path.write_text(validation)
    assert "it has no score on the test split" in failure(path.parent)
    path.write_text("".join([validation, *rules]))
    assert "it has no score on the test split" in failure(path.parent), "those of rules are not its own"
    row = json.loads(test)
    del row["value"]
    path.write_text(validation + json.dumps(row | {"status": "undefined"}) + "\n")
    assert failure(path.parent) == "", "such as that of a regression whose targets are all equal"


def test_a_damaged_file_of_a_probe_is_all_that_is_to_be_removed(
    study: tuple[Study, Path], sealed: Path, tmp_path: Path
) -> None:
    path = victim(sealed.parent, "probe")
    whole, weights = path.read_bytes(), (sealed / store.WEIGHTS).stat().st_mtime_ns
    for content in (b"", b"{", whole[:-9]):
        path.write_bytes(content)
        assert failure(sealed).endswith(f": remove {path} and run again.")
    path.unlink()
    assert failure(sealed) == ""
    (run,) = [run for run in choose(study[0], "minutes") if run.id == sealed.name]
    execute(run, sealed, study[1].parent / "data", "cpu", [find("effective_context")])
    assert path.read_bytes() == whole and (sealed / store.WEIGHTS).stat().st_mtime_ns == weights


def test_a_probe_that_has_nothing_to_say_leaves_no_empty_file(sealed: Path) -> None:
    store.write_probe(sealed, find("effective_context"), [])
    assert failure(sealed) == "" and victim(sealed.parent, "probe").read_bytes() == b"\n"


def test_a_damaged_log_costs_a_finished_run_its_curve_alone(
    study: tuple[Study, Path], out: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before, where = store.read(out, "toys", "minutes"), victim(out, "log.jsonl").parent
    (where / store.LOG).write_bytes(b'{"a": 1}\n')
    after = store.read(out, "toys", "minutes")
    assert after.rows == before.rows and after.failures == {} and where.name not in after.curves
    main(["report", str(study[1].parent / "toys.py"), "--runs-dir", str(out), "--report-dir", str(tmp_path)])
    assert f"without what is damaged in log.jsonl of {where.name}." in capfd.readouterr().out


def test_a_log_that_is_gone_is_told_and_costs_a_finished_run_its_curve_alone(
    study: tuple[Study, Path], out: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before, where = store.read(out, "toys", "minutes"), victim(out, "log.jsonl").parent
    (where / store.LOG).unlink()
    after = store.read(out, "toys", "minutes")
    assert after.rows == before.rows and after.failures == {} and where.name not in after.curves
    main(["report", str(study[1].parent / "toys.py"), "--runs-dir", str(out), "--report-dir", str(tmp_path)])
    said = "Only training curves are lost, as log.jsonl is missing (for new ones, remove the folder and run again), of "
    assert f"{said}{where.name}.\n" in capfd.readouterr().out


def test_a_run_without_the_rows_of_a_probe_is_not_done(
    study: tuple[Study, Path], sealed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` would measure it again."""
    victim(sealed.parent, "probe").unlink()
    words = [str(study[1].parent / "toys.py"), "--runs-dir", str(sealed.parent)]
    main(["status", *words])
    assert "1 done, 0 running, 0 silent, 0 failed, 1 waiting" in capsys.readouterr().out
    main(["report", *words, "--report-dir", str(tmp_path)])
    assert f"rows of its probes are missing of {sealed.name}." in capsys.readouterr().out


def test_a_command_that_finds_a_damaged_run_names_its_file_and_fails(
    out: Path, capsys: pytest.CaptureFixture[str], study: tuple[Study, Path]
) -> None:
    first, second = sorted(path.parent for path in out.glob("toy-*/ledger.json"))
    (first / store.LEDGER).write_text("{")
    (second / store.ROWS).unlink()
    words = [str(study[1].parent / "toys.py"), "--runs-dir", str(out)]
    with pytest.raises(SystemExit) as stop:
        main(["run", *words, "--device", "cpu"])
    assert stop.value.code == 1
    shown = capsys.readouterr().out
    assert "0 of 2 runs complete" in shown and f"  {first}/rows.jsonl" not in shown
    main(["status", *words])
    lines = [*shown.splitlines(), *capsys.readouterr().out.splitlines()]
    for where, name in ((first, store.LEDGER), (second, store.ROWS)):
        told = [line for line in lines if where.name in line and str(where / name) in line]
        assert len(told) == 2 and all("failed" in line and "run again" in line for line in told), lines
