"""A task of a user's own file, without code: every format gives the same sequences, splits follow the recorded rule,
other content is another task, and whatever is wrong is one sentence."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from levelfield import OwnData
from levelfield.cli.app import main
from levelfield.data import prepared
from levelfield.data.audit.view import View
from levelfield.data.prepared import load
from levelfield.engine.restore import restore
from levelfield.presets import efforts
from levelfield.spec import SPLITS, Examples, Label, Signal, Tokens, UserError, Values, describe, digest
from levelfield.user import own_data, own_splits

pytestmark = pytest.mark.usefixtures("undrawn")

SAID = ('bad, "really"', "good", "good")
ROWS = [{"body": f"the film number {i} was {SAID[i % 3]}\né", "stars": 5 if i % 3 else 1} for i in range(60)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, rows: list[dict] = ROWS) -> str:
    """The rows in the format that the ending says."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        (path.with_suffix(".json")).write_text(json.dumps(rows))
        duckdb.sql(f"COPY (SELECT * FROM read_json('{path.with_suffix('.json')}')) TO '{path}' (FORMAT parquet)")
    else:
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            table.writeheader()
            table.writerows(rows)
    return str(path)


def contents(examples: Examples) -> list[tuple[bytes, float]]:
    return [(bytes(examples.sequence(i)), float(examples.y[i])) for i in range(len(examples))]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_bytes_and_classes_that_were_written(here: Path, ending: str) -> None:
    task = OwnData(write(here / f"reviews.{ending}"), text="body", label="stars")
    splits = task.build(None)
    found = Counter(row for split in SPLITS for row in contents(splits[split]))
    assert found == Counter((row["body"].encode(), float(row["stars"] == 5)) for row in ROWS)
    assert (task.input, task.output, task.classes) == (Tokens(256), Label(2), ("1", "5"))
    assert task.max_length == max(len(row["body"].encode()) for row in ROWS)
    assert [len(splits[s]) for s in SPLITS] == [42, 6, 12], "a tenth for val and a fifth for test"
    assert task.name == "own_reviews"


def test_formats_agree_on_the_splits_and_content_is_the_identity(here: Path) -> None:
    tasks = [OwnData(write(here / f"a.{ending}"), text="body", label="stars") for ending in ("csv", "jsonl", "parquet")]
    first, *others = [{s: contents(task.build(None)[s]) for s in SPLITS} for task in tasks]
    assert all(other == first for other in others)
    moved = OwnData(write(here / "b.csv"), text="body", label="stars")
    assert digest(moved) == digest(tasks[0]), "where a file lies makes no difference"
    assert digest(OwnData("b.csv", text="body", label="stars", seed=1)) != digest(moved)
    before = digest(moved)
    write(here / "b.csv", ROWS[:-1])
    assert digest(moved) != before and sum(map(len, moved.build(None).values())) == 59


def test_a_hash_of_the_key_decides_and_keys_stay_together() -> None:
    keys = [b"%d" % (i % 40) for i in range(100)]
    split = own_splits.carve(keys, {"test": 0.2, "val": 0.1}, seed=0)
    of = {key: {str(s) for k, s in zip(keys, split, strict=True) if k == key} for key in keys}
    assert all(len(found) == 1 for found in of.values())
    counts = Counter(split.tolist())
    assert abs(counts["test"] - 20) <= 3 and abs(counts["val"] - 10) <= 3
    backwards = own_splits.carve(keys[::-1], {"test": 0.2, "val": 0.1}, seed=0)
    assert (backwards[::-1] == split).all(), "the order of rows makes no difference"
    assert (own_splits.carve(keys, {"test": 0.2, "val": 0.1}, seed=1) != split).any()


def test_rows_without_a_group_are_no_group(here: Path) -> None:
    """Half of two hundred rows have none: as one group they would all be in one split."""
    rows = [{"x": f"{i} a", "y": i % 2, "who": "" if i % 2 else i // 10} for i in range(200)]
    own = OwnData(write(here / "a.csv", rows), text="x", label="y", group="who")
    counts = [
        len([x for x in range(len(part)) if int(bytes(part.sequence(x)).split()[0]) % 2])
        for part in own.build(None).values()
    ]
    assert sum(counts) == 100 and min(counts) > 2 and set(own.shared_groups.values()) == {0}


def test_groups_and_given_splits(here: Path) -> None:
    rows = [{"x": f"{i} a", "y": i % 2, "who": i // 5, "part": "test" if i >= 40 else "train"} for i in range(60)]
    path = write(here / "a.csv", rows)
    carved = OwnData(path, text="x", label="y", group="who")
    assert carved.shared_groups == {"train+val": 0, "train+test": 0, "val+test": 0} and carved.notes == ()
    assert carved.carved and carved.groups is not None
    of = {
        split: [int(bytes(e.sequence(i)).split()[0]) // 5 for i in range(len(e))]
        for split, e in carved.build(None).items()
    }
    pairs = {pair for split, numbers in carved.groups.items() for pair in zip(of[split], numbers.tolist(), strict=True)}
    assert len(pairs) == len({number for _, number in pairs}) == 12, "a number for each group"
    splits = OwnData(path, text="x", label="y", split="part").build(None)
    assert {bytes(splits["test"].sequence(i)) for i in range(20)} == {f"{i} a".encode() for i in range(40, 60)}
    assert len(splits["val"]) == 4, "a tenth of the forty that may be trained on"
    leaking = [row | {"who": i % 7} for i, row in enumerate(rows)]
    given = OwnData(write(here / "b.csv", leaking), text="x", label="y", group="who", split="part")
    assert given.shared_groups["train+test"] == 6, "the seventh is val"
    assert not given.carved and not OwnData("b.csv", text="x", label="y", split="part").carved
    assert "6 groups of who are in both train and test." in given.notes
    (here / "folder").mkdir()
    write(here / "folder" / "train.csv", rows[:30])
    write(here / "folder" / "test.csv", rows[30:])
    assert len(OwnData("folder", text="x", label="y").build(None)["test"]) == 30


def test_symbols_are_numbered_by_training_and_signals_scaled_by_it(here: Path) -> None:
    rows = [{"w": f"a b {'c' * (i % 2)} {i}", "v": f"[{i}, 2, 3.5]", "u": [1, i, 0], "t": i / 2} for i in range(20)]
    words = OwnData(write(here / "a.jsonl", rows), symbols="w", target=("t",))
    assert words.input == Tokens(1 + 3 + 14), "others, a, b, c and the numbers of the fourteen training rows"
    assert words.output == Values(1) and words.chance == 0.0
    train = words.build(None)["train"]
    assert train.sequence(0).tolist()[:2] == [1, 2] and abs(train.y.mean()) < 1e-6 and abs(train.y.std() - 1) < 1e-6
    signal = OwnData("a.jsonl", channels=("v", "u"), target=("t",))
    made, kind = signal.build(None), signal.input
    assert isinstance(kind, Signal) and kind.channels == 2
    assert np.allclose(made["train"].x.mean(0), kind.shift) and made["test"].x.shape[1] == 2


def test_numpy_folders(here: Path) -> None:
    rng = np.random.default_rng(0)
    (here / "a").mkdir()
    np.save(here / "a" / "x.npy", rng.integers(0, 9, (30, 6)))
    np.save(here / "a" / "y.npy", rng.integers(0, 3, 30))
    np.save(here / "a" / "lengths.npy", np.full(30, 4))
    task = OwnData("a")
    assert (task.input, task.output, task.max_length) == (Tokens(9), Label(3), 4)
    for name, count in (("train", 20), ("test", 10)):
        (here / "b" / name).mkdir(parents=True)
        np.save(here / "b" / name / "x.npy", rng.standard_normal((count, 6, 2)))
        np.save(here / "b" / name / "y.npy", rng.standard_normal((count, 2)))
    other = OwnData("b")
    assert isinstance(other.input, Signal) and other.output == Values(2) and len(other.build(None)["test"]) == 10


BAD = {
    "no such column": ("x,y\na,1\n", {"text": "z", "label": "y"}, "no column 'z' for --text"),
    "one class": ("x,y\na,1\nb,1\nc,1\n", {"text": "x", "label": "y"}, "only '1' in it"),
    "numbers as classes": (
        "x,y\n" + "".join(f"a{i},{i}\n" for i in range(50)),
        {"text": "x", "label": "y"},
        "--target",
    ),
    "words as numbers": ("x,y\na,b\n", {"text": "x", "target": ("y",)}, "--label"),
    "empty": ("", {"text": "x", "label": "y"}, "is empty"),
    "no rows": ("x,y\n", {"text": "x", "label": "y"}, "no rows"),
    "broken row": ("x,y\na,1\nb,2,3\n", {"text": "x", "label": "y"}, "line 3: it has 3 cells"),
    "quotation": ('x,y\na,1\n"b" c,2\n', {"text": "x", "label": "y"}, "quotation marks"),
    "too few": ("x,y\na,1\nb,2\n", {"text": "x", "label": "y"}, "at least 3"),
    "no input": ("x,y\na,1\nb,2\n", {"label": "y"}, "name a column of bad.csv with --text"),
    "no output": ("x,y\na,1\nb,2\n", {"text": "x"}, "--label"),
    "splits": ("x,y,s\na,1,train\nb,2,tset\n", {"text": "x", "label": "y", "split": "s"}, "says 'tset'"),
    "no numbers": ("x,y\na,1\nb,2\n", {"channels": ("x",), "label": "y"}, "no list of numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(here: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, settings, sentence = BAD[case]
    (here / "bad.csv").write_text(content)
    flags = [w for k, v in settings.items() for w in (f"--{k}", *([v] if isinstance(v, str) else v))]
    with pytest.raises(SystemExit) as end:
        main(["data", "prepare", "bad.csv", *flags])
    said = capsys.readouterr().err
    assert end.value.code == 2 and sentence in said and said.count("\n") == 1, said


def test_several_classes_in_a_cell_of_a_label_are_refused(here: Path) -> None:
    write(here / "tags.jsonl", [{"x": f"text {i}", "y": ["a", "b"][: i % 3]} for i in range(20)])
    (here / "a").mkdir()
    np.save(here / "a" / "x.npy", np.zeros((6, 4), int))
    np.save(here / "a" / "y.npy", np.eye(6, 3, dtype=int))
    for task in (OwnData("tags.jsonl", text="x", label="y"), OwnData("a")):
        with pytest.raises(UserError, match=r"The label y has several classes in a cell.*--labels y"):
            task.output  # noqa: B018  # reads the file


def test_files_that_cannot_be_read(here: Path) -> None:
    (here / "latin.csv").write_bytes("x,y\né,1\n".encode("latin-1"))
    (here / "broken.jsonl").write_text('{"x": "a", "y": 1}\n{"x": \n')
    (here / "no.parquet").write_text("x")
    for path, sentence in {
        "latin.csv": "no UTF-8", "broken.jsonl": "line 2", "no.parquet": "no Parquet", "none.csv": "no file or folder",
    }.items():  # fmt: skip
        with pytest.raises(UserError, match=sentence):
            OwnData(path, text="x", label="y").input  # noqa: B018  # reads the file
    with pytest.raises(UserError, match="one of --text"):
        OwnData("a.csv", text="x", symbols="y")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_text_in_sixteen_bits_is_read_by_its_mark_and_named_without_one(here: Path, encoding: str) -> None:
    write(here / "a.csv")
    text = (here / "a.csv").read_text().replace("0", "é")
    (here / "a.csv").write_text(text, encoding="utf-8")
    (here / "b.csv").write_text(text, encoding=encoding)
    plain, wide = (OwnData(str(here / name), text="body", label="stars") for name in ("a.csv", "b.csv"))
    if encoding == "utf-16":
        assert np.array_equal(wide.build(None)["train"].x, plain.build(None)["train"].x)
        (here / "b.csv").write_bytes((here / "b.csv").read_bytes()[:-1])
    with pytest.raises(UserError, match=r"UTF-16.*iconv -f utf-16"):
        wide.input  # noqa: B018  # reads the file


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
@pytest.mark.parametrize(
    "content",
    [
        np.arange(64, dtype=np.int32).tobytes(),  # zero bytes in pairs
        b"\x00\x01\x02\x03" * 20,  # decodes as UTF-16 into letters and control characters
        b"A\x00\x00\xd8" * 20,  # begins as UTF-16 does, and is none
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16),  # what an old Excel saves
    ],
)
def test_what_is_no_text_is_not_taken_for_another_encoding(here: Path, content: bytes, ending: str) -> None:
    (here / f"a{ending}").write_bytes(content)
    with pytest.raises(UserError, match=rf"a\{ending} is no text.*export it as text") as refused:
        OwnData(str(here / f"a{ending}"), text="body", label="stars").input  # noqa: B018  # reads the file
    assert "UTF-16" not in str(refused.value) and "iconv" not in str(refused.value)


@pytest.mark.parametrize("number", ["nan", "-inf", "1e39"])
def test_rows_of_numbers_that_are_none_are_refused_or_left_out_as_broken_ones(here: Path, number: str) -> None:
    lines = ["ecg,y", *(f"0.{i} 0.2,{i % 2}" for i in range(30)), f"0.1 {number},1", ",1", f"{number} {number},"]
    (here / "beats.csv").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"Row 31 of the column ecg has a number .* such rows out with --skip-broken"):
        OwnData("beats.csv", channels=("ecg",), label="y").build(None)
    task = OwnData("beats.csv", channels=("ecg",), label="y", skip_broken=True)
    with pytest.warns(UserWarning):
        assert sum(map(len, task.build(None).values())) == 30
    said = "1 of 31 rows without input or label was left out.", "2 broken rows were left out."
    assert (task.notes, task.left_out) == (said, 3)


def test_a_row_that_is_not_closed_is_named_by_its_first_line_and_not_skipped(here: Path) -> None:
    """Where it ends cannot be told, so that what follows might be read as rows that nobody wrote."""
    (here / "a.csv").write_text('x,y\n"one\nrow",1\n"open,0\nb,1\nc,0\nd,1\n')
    for skip in (False, True):
        with pytest.raises(UserError, match=r"a.csv, line 4: .*: mend its quotation marks. --skip-broken cannot"):
            OwnData(str(here / "a.csv"), text="x", label="y", skip_broken=skip).build(None)


def test_what_is_no_array_is_refused_without_advice_to_unpickle(here: Path) -> None:
    (here / "a").mkdir()
    np.save(here / "a" / "x.npy", np.zeros((6, 4)))
    whole = (here / "a" / "x.npy").read_bytes()
    np.save(here / "objects.npy", np.array([{}] * 6, object))
    contents = {
        b"junk": "no array as NumPy saves it", whole[:-9]: "is damaged", whole[:8]: "is damaged",
        (here / "objects.npy").read_bytes(): "holds Python objects",
    }  # fmt: skip
    for content, sentence in contents.items():
        (here / "a" / "y.npy").write_bytes(content)
        with pytest.raises(UserError, match=sentence) as raised:
            OwnData("a").input  # noqa: B018  # reads the files
        assert "pickle" not in str(raised.value)
    np.save(here / "a" / "x.npy", np.array([[1], [2, 3]], object))
    with pytest.raises(UserError, match=r"x.npy holds Python objects: .* padded to one length, .* lengths.npy"):
        OwnData("a").input  # noqa: B018


def test_a_packed_file_that_is_named_as_text_is_to_be_unpacked(here: Path) -> None:
    path = Path(write(here / "reviews.csv"))
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(UserError, match="is packed by gzip, whatever its name says: unpack it"):
        OwnData(str(path), text="body", label="stars").input  # noqa: B018


def test_broken_and_missing_rows_are_left_out_and_counted(here: Path) -> None:
    lines = [f"text {i},{i % 2}" for i in range(20)] + ["a,1,2", ",1", "text,"]
    (here / "a.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    task = OwnData("a.csv", text="x", label="y", skip_broken=True)
    with pytest.warns(UserWarning):
        assert sum(map(len, task.build(None).values())) == 20
    assert task.notes == ("2 of 22 rows without input or label were left out.", "1 broken row was left out.")


def test_prepare_and_verify_and_the_text_form(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(here / "reviews.csv")
    flags = [path, "--text", "body", "--label", "stars"]
    main(["data", "prepare", *flags])
    assert "own_reviews" in capsys.readouterr().out
    main(["data", "verify", *flags])
    assert "sound" in capsys.readouterr().out
    task = OwnData(path, text="body", label="stars", channels=(), target=())
    assert own_data.from_word(repr(task)) == task and restore(describe(task)) == task
    assert prepared.folder(task, here / "data").exists()
    assert efforts.sized_task(repr(task), "minutes") == task and efforts.protocols(repr(task), "smoke", ["scratch"])
    assert load(task, here / "data")["train"].y.shape == (42,)


def test_leaks_of_a_users_file_are_remarks_and_no_errors(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, part in (("train", ROWS[:40]), ("test", ROWS[35:])):
        (here / "f").mkdir(exist_ok=True)
        write(here / "f" / f"{name}.csv", part)
    flags = [str(here / "f"), "--text", "body", "--label", "stars"]
    main(["data", "prepare", *flags])
    main(["data", "verify", *flags])
    assert "examples are in both train+test" in capsys.readouterr().out
    (at,) = (here / "data").glob("own_f-*")
    flags = [*flags, "--longest", "22"]
    with pytest.warns(UserWarning, match="were cut at 22 steps"):
        main(["data", "prepare", *flags])
    (cut,) = {*(here / "data").glob("own_f-*")} - {at}
    stored = json.loads((cut / prepared.MANIFEST).read_text())
    (cut / prepared.MANIFEST).write_text(json.dumps(stored | {"notes": []}))  # as versions had it that said nothing
    main(["data", "verify", *flags])
    assert "were cut at 22 steps, and the rest of them is not read: --longest " in capsys.readouterr().out


def test_a_comparison_takes_the_file_as_a_task(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--own", write(here / "reviews.csv"), "--text", "body", "--label", "stars", "--effort", "smoke"]
    main(["plan", "linear", *own, "--protocols", "scratch", "--baselines", "conv", "--json"])
    planned = json.loads(capsys.readouterr().out)
    assert len(planned["runs"]) == 2 and all("own_reviews" in run["id"] for run in planned["runs"])
    with pytest.raises(SystemExit) as end:
        main(["run", "demo", *own])
    assert end.value.code == 2 and "--tasks cannot change it" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        main(["plan", "linear", "--text", "body"])
    assert end.value.code == 2 and "no file: give it with --own" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["arrays"], "arrays/x.npy is no array as NumPy saves it"),
        (["./nowhere"], "There is no file or folder ./nowhere: give the path of your data."),
        (["owner/set.csv", "--text", "a"], "There is no file or folder owner/set.csv: give the path of your data."),
        (["nowhere", "--text", "a"], "There is no file or folder nowhere: give the path of your data."),
        (["recall", "--text", "a"], "'recall' is no file of data"),
        (["notes.txt", "--text", "a"], "notes.txt is no file of data: what is read ends in .csv, .tsv, .jsonl, "),
        (["notes.txt"], "a folder, such as one with x.npy and y.npy. If it is in one of these formats, rename it"),
        (["./notes.txt"], "such as to notes.txt.csv."),
        (["./rows.xlsx"], "Save its sheet as CSV."),
        (["rows.npz", "--label", "a"], "Write its arrays with np.save as x.npy and y.npy into a folder, and give"),
        (["arrays/x.npy"], "Give its folder instead, with inputs in x.npy and labels in y.npy."),
        (["rows.json"], "for example by `jq -c '.[]' rows.json > rows.jsonl`."),
        (["./rows.csv.gz", "--text", "a"], "Unpack it first."),
        (["./tables"], "name its files so, or give the file itself, such as tables/a.csv."),
        (["./headless.csv", "--text", "a"], "no column 'a' for --text, and its first line seems to be data: add a"),
    ],
)
def test_a_place_without_data_is_told_apart(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    for name in ("arrays/x.npy", "notes.txt", "rows.xlsx", "rows.npz", "rows.json", "rows.csv.gz", "tables/a.csv"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text("text")
    (here / "tables" / "lonely.npy").write_text("text")
    (here / "headless.csv").write_text("good film,pos\nbad film,neg\nfilm,pos\n")
    with pytest.raises(SystemExit) as stop:
        main(["data", "prepare", *words])
    assert stop.value.code == 2 and sentence in capsys.readouterr().err


def test_a_pipe_gets_no_empty_line_for_a_bar(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["data", "prepare", write(here / "reviews.csv"), "--text", "body", "--label", "stars"])
    shown = capsys.readouterr()
    assert shown.err == "" and shown.out.count("\n") == 1


def test_verifying_own_data_tells_what_an_audit_made_of_them(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = OwnData(write(here / "a.csv"), text="body", label="stars")
    other = replace(task, seed=1)
    for each in (task, View(task, (20, 5, 5)), View(task, (20, 5, 5), "within", 8), View(other, (20, 5, 5))):
        prepared.prepare(each, here / "data")
    main(["data", "verify", "a.csv", "--text", "body", "--label", "stars"])
    said = capsys.readouterr().out
    assert said.count(": sound, a part that an audit made\n") == 2
    assert said.count(": sound, but made with other settings, code or files than it has now\n") == 1
    assert "Sound: 4 of 4 folders." in said
