"""Tasks of a user's own file: known by the content of the files they read, prepared and verified by the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelfield.cli.app import main
from levelfield.data import prepared
from levelfield.engine.find import find_tasks, listing, load_study
from levelfield.spec import Task, UserError, digest, own_code

pytestmark = pytest.mark.usefixtures("undrawn")

TASK = """
import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from levelfield.spec import Examples, Label, Task, Tokens, no_progress

{globals}

@dataclass(frozen=True)
class Reviews(Task):
    {fields}
    part: int = 4
    name = "reviews"
    version = 1
    source = "none"
    split_rule = "in order"
    input = Tokens(100)
    output = Label(2)
    max_length = 3
    chance = 0.5

    def build(self, sources, progress=no_progress):
        rows = np.array([[int(x) for x in row] for row in csv.reader(Path({path}).read_text().splitlines())])
        cut = {{"train": rows[: -2 * self.part], "val": rows[-2 * self.part : -self.part], "test": rows[-self.part :]}}
        return {{k: Examples.of_equal_length(v[:, :3].astype(np.uint8), v[:, 3]) for k, v in cut.items()}}
"""
STUDY = """
from levelfield.spec import Study
from levelfield.studies.demo import study as demo
from dataclasses import replace

OF_LABELS = [run for run in demo.runs("smoke") if run.task.name == "listops"]
study = Study(name="mine", claim="none", runs=lambda effort: [replace(r, task=Reviews()) for r in OF_LABELS])
"""
WAYS = {  # where the file is named: lines above the class, a field, the expression that is opened
    "field": ("", 'path: str = "reviews.csv"', "self.path"),
    "path field": ("", 'path: Path = Path("reviews.csv")', "self.path"),
    "field of a full path": ("", "path: str = str(Path(__file__).resolve().with_name('reviews.csv'))", "self.path"),
    "constant": ("", "", '"reviews.csv"'),
    "global": ('FILE = Path(__file__).resolve().parent / "reviews.csv"', "", "FILE"),
    "beside": ("", "", 'Path(__file__).resolve().parent.joinpath("reviews.csv")'),
    "helper": ('def found():\n    return Path("reviews.csv")', "", "found()"),
    "declared": ("", "reads = property(lambda self: (Path('reviews.' + 'csv'),))", "self.reads[0]"),
}


def write(folder: Path, way: str, shift: int = 0) -> str:
    """The task and its data below the folder; what the command line calls it."""
    top, field, path = WAYS[way]
    (folder / "my_task.py").write_text(TASK.format(globals=top, fields=field, path=path) + STUDY)
    lines = [[i, (i * 7) % 100, (i * 3 + shift) % 100, i % 2] for i in range(40)]
    (folder / "reviews.csv").write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    return f"{folder / 'my_task.py'}:Reviews"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("way", WAYS)
def test_other_content_of_the_users_file_is_another_task(here: Path, way: str) -> None:
    (task,) = find_tasks(write(here, way))
    first, before = prepared.load(task, here / "data"), digest(task)
    assert digest(task) == before and prepared.prepare(task, here / "data") == prepared.folder(task, here / "data")
    old = first["train"].x.copy()
    write(here, way, shift=1)
    assert digest(task) != before
    changed = prepared.load(task, here / "data")["train"].x
    assert (changed[2::3] == (old[2::3] + 1) % 100).all()
    write(here, way)
    assert digest(task) == before, "the same content is the same task, whenever it was written"
    assert len(list((here / "data").glob("reviews-*"))) == 2


def test_the_runs_of_a_study_are_others_too(here: Path) -> None:
    write(here, "beside")
    ids = [run.id for run in load_study("my_task.py").runs("smoke")]
    assert ids == [run.id for run in load_study("my_task.py").runs("smoke")]
    write(here, "beside", shift=1)
    assert not set(ids) & {run.id for run in load_study("my_task.py").runs("smoke")}


CODE_EDITS = {  # what is edited in my_task.py or in a file that it imports, and whether the task is another one then
    "its build": ("my_task.py", "v[:, 3])", "1 - v[:, 3])", True),
    "its helper": ("my_task.py", 'Path("reviews.csv")', 'Path("./reviews.csv")', True),
    "a file beside it": ("shifts.py", "SHIFT = 0", "SHIFT = 1", True),
    "its study": ("my_task.py", 'claim="none"', 'claim="another"', False),
    "a line above it": ("my_task.py", "import csv", "import csv  # of the standard library", True),
    "a name that it does not use": ("my_task.py", "UNUSED = 1", "UNUSED = 2", False),
}


@pytest.mark.parametrize("what", CODE_EDITS)
def test_other_code_of_a_task_is_another_task_and_what_stands_beside_it_is_none(here: Path, what: str) -> None:
    name, before, after, changes = CODE_EDITS[what]
    where = write(here, "helper")
    (here / "shifts.py").write_text("SHIFT = 0\n")
    text = (here / "my_task.py").read_text().replace("import csv", "import csv\nfrom shifts import SHIFT\nUNUSED = 1")
    (here / "my_task.py").write_text(text.replace('source = "none"', "source = str(SHIFT)"))
    (task,) = find_tasks(where)
    first, ids = digest(task), [run.id for run in load_study("my_task.py").runs("smoke")]
    assert before in (here / name).read_text()
    (here / name).write_text((here / name).read_text().replace(before, after))
    (edited,) = find_tasks(where)
    assert (digest(edited) != first) == changes
    assert ([run.id for run in load_study("my_task.py").runs("smoke")] != ids) == changes


def test_the_part_of_a_file_that_a_name_depends_on() -> None:
    lines = {  # line: whether `Mine` depends on it
        "import os": True,
        "import sys": False,
        "TABLE = {}": True,
        "for k in range(3): TABLE[k] = os.name": True,
        "RATE = 1": True,
        "def keep(cls): return cls": True,
        "def other(): return Mine": False,
        "@keep": True,
        "class Mine: rate = RATE": True,
        "Mine.table = TABLE": True,
        "RATE += 1": True,
        "if __name__ == '__main__': print(Mine)": False,
        "study = [Mine, sys]": False,
    }
    kept = own_code.part("\r\n".join(lines).encode(), "Mine").decode()
    assert kept.split("\n") == [line for line, wanted in lines.items() if wanted]


def test_verify_says_that_arrays_are_of_older_code(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, "beside")
    main(["data", "prepare", "my_task.py:Reviews"])
    (here / "my_task.py").write_text((here / "my_task.py").read_text().replace("v[:, 3])", "1 - v[:, 3])"))
    capsys.readouterr()
    main(["data", "verify", "my_task.py:Reviews"])
    assert "sound, but made with other settings, code or files than it has now" in capsys.readouterr().out
    main(["data", "prepare", "my_task.py:Reviews"])
    assert len(list(Path("data").glob("reviews-*"))) == 2


def test_what_is_no_data_of_a_task_is_left_out(here: Path) -> None:
    """Its own source, files without an ending, logs and folders; tasks of levelfield name no files."""
    (task,) = find_tasks(write(here, "global"))
    assert [path.name for path in task.reads] == ["reviews.csv"]
    from levelfield import tasks

    assert all(tasks.find(name).reads == () for name in tasks.names())


@pytest.mark.parametrize("name", ["my_task.py:Reviews", "my_task.py:Reviews(part=6)", "my_task.py"])
def test_prepare_and_verify_take_it(here: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, "beside")
    main(["data", "prepare", name])
    (at,) = Path("data").glob("reviews-*")
    assert str(at) in capsys.readouterr().out
    main(["data", "verify", name])
    shown = capsys.readouterr().out
    assert f"{at}: sound" in shown and "label prior" in shown.lower().replace("_", " "), "with its card"
    (at / "train.y.npy").write_bytes(b"")
    with pytest.raises(SystemExit) as end:
        main(["data", "verify", name])
    assert end.value.code == 1


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("my_task.py:Review", "did you mean 'Reviews'"),
        ("my_task.py:Reviews(parts=3)", "Reviews has no setting 'parts': did you mean 'part'?"),
        ("nowhere.py:Reviews", "nowhere.py"),
        ("nowhere.py", "nowhere.py"),
        ("listop", "did you mean 'listops'"),
    ],
)
def test_a_task_that_is_not_there_is_one_sentence(
    here: Path, name: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here, "beside")
    for action in ("prepare", "verify"):
        with pytest.raises(SystemExit) as end:
            main(["data", action, name])
        said = capsys.readouterr().err
        assert end.value.code == 2 and sentence in said and said.count("\n") == 1


@pytest.mark.parametrize("member", ["name", "version", "source", "split_rule"])
def test_a_class_that_lacks_what_a_task_says_of_itself_is_refused_before_anything_is_made(
    here: Path, member: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here, "beside")
    kept = [line for line in TASK.splitlines() if not line.startswith(f"    {member} = ")]
    (here / "my_task.py").write_text("\n".join(kept).format(globals="", fields="", path='"reviews.csv"') + STUDY)
    name = "Reviews" if member == "name" else "reviews"
    for words in (["audit"], ["compare", "s4", "--tasks"], ["data", "prepare"]):
        with pytest.raises(SystemExit) as end:
            main([*words, "my_task.py:Reviews"])
        said = capsys.readouterr().err
        assert end.value.code == 2 and f"Task {name} has no `{member}`: say" in said and said.count("\n") == 1
    with pytest.raises(SystemExit) as end:
        main(["check", "my_task.py:Reviews"])
    said = capsys.readouterr().out
    assert end.value.code == 1 and said.count("FAULT  ") == 1 and f"has no `{member}`" in said
    if member != "name":
        with pytest.raises(UserError, match=f"has no `{member}`"):
            prepared.prepare(load_study("my_task.py").runs("smoke")[0].task, here / "data")
    assert not list(here.glob("data/*-*"))


def test_a_task_that_is_made_takes_other_settings(here: Path) -> None:
    write(here, "beside")
    path = here / "my_task.py"
    path.write_text(path.read_text() + "\n\nSMALL = Reviews(part=2)\n")
    (small,), (other,) = find_tasks("my_task.py:SMALL"), find_tasks("my_task.py:SMALL(part=3)")
    assert (small.part, other.part) == (2, 3) and digest(small) != digest(other)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UserError, match="SMALL has no setting 'parts': did you mean 'part'"):
        find_tasks("my_task.py:SMALL(parts=3)")


def test_a_shipped_study_names_its_tasks() -> None:
    assert "demo" in listing("studies")
    assert {task.name for task in find_tasks("demo", "smoke")} == {
        r.task.name for r in load_study("demo").runs("smoke")
    }
    with pytest.raises(UserError):
        find_tasks("demos")
    assert all(isinstance(task, Task) for task in find_tasks("listops"))
