"""Small mistakes with a user's own data: columns that differ by case only, and folders and datasets with nothing in."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from levelfield import OwnData
from levelfield.cli.app import main
from levelfield.spec import UserError, Values
from levelfield.user import own_files


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], path: str, text: str = "text", label: str = "label") -> str:
    with pytest.raises(SystemExit) as end:
        main(["data", "prepare", path, "--text", text, "--label", label])
    said = capsys.readouterr().err
    assert end.value.code == 2 and said.count("\n") == 1, said
    return said


def zipped(content: bytes) -> bytes:
    with zipfile.ZipFile(made := io.BytesIO(), "w") as file:
        file.writestr("a.csv", content)
    return made.getvalue()


def write(path: Path) -> None:
    """A file with the columns Text, text, nested (whose parts are no columns) and label."""
    if path.suffix == ".csv":
        rows = [f"good {i},bad {i},,{i % 2}" for i in range(40)]
        path.write_text("\n".join(["Text,text,nested,label", *rows]) + "\n")
        return
    nested = "{'label': [i], 'Text': {'text': 'no'}}"
    cells = f"'good ' || i AS \"Text\", 'bad ' || i AS qext, {nested} AS nested, i % 2 AS label"
    duckdb.sql(f"COPY (SELECT {cells} FROM range(40) _(i)) TO '{path}' (FORMAT parquet)")
    path.write_bytes(path.read_bytes().replace(b"qext", b"text"))  # DuckDB writes no two names that are so alike


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_that_differ_by_case_only_are_two_and_a_third_spelling_is_none(
    here: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    file = f"a.{ending}"
    write(here / file)
    (part,) = own_files.read(Path(file))
    assert list(part.columns) == ["Text", "text", "nested", "label"]
    for name, word in (("Text", b"good"), ("text", b"bad ")):
        x = OwnData(file, text=name, label="label").build(None)["train"].x
        assert bytes(x[:4].tolist()) == word
    assert "no column 'TEXT' for --text: did you mean 'Text' or 'text'?" in refused(capsys, file, "TEXT")
    assert "no column 'LABEL' for --label: did you mean 'label'?" in refused(capsys, file, label="LABEL")


def test_two_columns_of_one_name_are_refused_in_every_format(here: Path) -> None:
    write(here / "a.parquet")
    Path("a.parquet").write_bytes(Path("a.parquet").read_bytes().replace(b"Text", b"text"))
    Path("a.csv").write_text("text,label,text\na,0,b\n")
    for file in ("a.parquet", "a.csv"):
        with pytest.raises(UserError, match="has two columns 'text': rename one of them"):
            own_files.read(Path(file))


def test_a_folder_without_files_and_a_dataset_without_rows_are_said_to_be_so(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`datasets` saves no file of rows where there is none, which read as if the folder were damaged."""
    for folder in ("nothing", "inner/train", "hidden/.git"):
        Path(folder).mkdir(parents=True)
    Path("hidden/.git/HEAD").write_text("ref")
    for folder in ("nothing", "inner", "hidden"):
        assert f"{folder} holds no files: put train.csv" in refused(capsys, f"./{folder}")
    Path("notes").mkdir()
    Path("notes/readme.txt").write_text("later")
    assert "or give the file itself, which ends in .csv, " in refused(capsys, "./notes")
    saved = json.dumps({"_data_files": [], "_split": None})
    for folder in ("rowless", "splits/train"):
        Path(folder).mkdir(parents=True)
        Path(folder, "state.json").write_text(saved)
    Path("splits/dataset_dict.json").write_text(json.dumps({"splits": ["train"]}))
    assert "rowless is a dataset of no rows: save it with rows" in refused(capsys, "./rowless")
    assert "train is a dataset of no rows: save it with rows" in refused(capsys, "./splits")


@pytest.mark.parametrize(
    ("x", "symbols", "sentence"),
    [
        (np.ones((9, 4), complex), "", r"x\.npy has complex numbers: save real and imaginary parts as two channels"),
        (np.ones((9, 4, 2)), "x", "holds measured numbers or channels, and no symbols: leave out --symbols"),
        (np.ones((9, 4)), "x", "leave out --symbols"),
        (np.ones((9, 4, 2), int), "x", "leave out --symbols"),
        (np.arange(36).reshape(9, 4), "x", ""),
        (np.full((9, 4), "a"), "", r"x\.npy holds <U1 and no numbers: save numbers, or name symbols with --symbols x"),
        (np.arange(36).reshape(9, 4).astype("datetime64[D]"), "", r"x\.npy holds datetime64\[D\] and no numbers"),
        (np.arange(36).reshape(9, 4).astype(str), "x", ""),
    ],
)
def test_arrays_of_measured_numbers_are_no_symbols_and_complex_ones_are_refused(
    here: Path, x: np.ndarray, symbols: str, sentence: str
) -> None:
    Path("a").mkdir()
    np.save("a/x.npy", x)
    np.save("a/y.npy", np.arange(9) % 2)
    task = OwnData("a", symbols=symbols)
    if not sentence:
        assert task.max_length == 4
        return
    with pytest.raises(UserError, match=sentence):
        task.input  # noqa: B018  # reads the files


def test_targets_in_an_array_of_one_or_more_columns_are_numbers_by_name_too(here: Path) -> None:
    Path("a").mkdir()
    np.save("a/x.npy", np.random.default_rng(0).normal(size=(30, 4)))
    for y in (np.arange(30)[:, None], np.stack([np.arange(30), np.arange(30) % 7], 1)):
        np.save("a/y.npy", y)
        task = OwnData("a", target=("y",))
        assert task.output == Values(y.shape[1]) and len(task.build(None)["train"]) == 21


def test_no_next_step_is_predicted_where_all_sequences_have_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A phase of such self-pretraining took its steps, and learnt nothing."""
    Path("a").mkdir()
    np.save("a/x.npy", np.random.default_rng(0).normal(size=(60, 1)))
    np.save("a/y.npy", np.arange(60) % 2)
    words = ["compare", "s4", "--own", "a", "--label", "y", "--baselines", "conv", "--effort", "smoke", "--dry-run"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--protocols", "scratch", "spt_causal"])
    assert ended.value.code == 2
    assert "No step of own_a has a next one, which spt_causal_matched predicts" in capsys.readouterr().err


def test_lists_within_a_list_are_no_symbols(here: Path) -> None:
    """Each inner list was a symbol of its own, which no other row had."""
    rows = [{"x": [[n, 1], [2, n]], "y": n % 2} for n in range(20)]
    (here / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match="A cell of --symbols has lists within a list: name a column of plain lists"):
        OwnData("a.jsonl", symbols="x", label="y").build(None)


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_a_record_is_neither_an_input_nor_an_output(here: Path, ending: str) -> None:
    """A cell of several fields was said to be a set of labels, which it is not either."""
    rows = [{"x": f"text {n}", "y": n % 2, "meta": {"stars": n % 3, "shop": "a"}} for n in range(20)]
    rows = [row | {"several": [row["meta"]], "one": [f"{row['y']}"]} for row in rows]
    (here / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    if ending == ".parquet":
        duckdb.sql("COPY (SELECT * FROM read_json('a.jsonl')) TO 'a.parquet' (FORMAT parquet)")
    outputs: list[dict[str, Any]] = [{"label": "meta"}, {"labels": ("meta",)}, {"target": ("meta",)}]
    inputs: list[dict[str, Any]] = [{"text": "meta"}, {"symbols": "meta"}, {"channels": ("meta",)}]
    fix = r"\(stars, shop\): write the field that is meant into a column of its own, such as {}_stars, and name that"
    for asked in [{"text": "x"} | output for output in outputs] + [{"label": "y"} | given for given in inputs]:
        with pytest.raises(UserError, match=f"Row 1 of the column meta is a record {fix.format('meta')}"):
            OwnData(f"a{ending}", **asked).build(None)
    with pytest.raises(UserError, match=f"Row 1 of the column several is a list of records {fix.format('several')}"):
        OwnData(f"a{ending}", text="x", label="several").build(None)
    with pytest.raises(UserError, match="never has two labels in a cell: write each label by itself, without a list"):
        OwnData(f"a{ending}", text="x", labels=("one",)).build(None)


def test_blank_lines_of_a_table_are_none_of_its_rows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One above the names of the columns made the file an empty one, and one of blanks a row with too few cells."""
    rows = [f"words {n};{n % 2}" for n in range(20)]
    Path("a.csv").write_text("\n".join(["", " ", "text;label", "", *rows[:9], "  ", *rows[9:], ""]))
    (part,) = own_files.read(Path("a.csv"))
    assert part.columns == {"text": [f"words {n}" for n in range(20)], "label": [f"{n % 2}" for n in range(20)]}
    assert part.skipped == 0
    Path("a.csv").write_text("\n\ntext;label\na;0\nb\n")
    assert "a.csv, line 5: it has 1 cell, but the first line names 2 columns" in refused(capsys, "a.csv")
    Path("a.csv").write_text("\n \n")
    assert "a.csv is empty" in refused(capsys, "a.csv")


@pytest.mark.parametrize(
    ("pack", "way"),
    [
        (gzip.compress, "gzip, whatever its name says: unpack it first, with `gzip -dc`"),
        (lzma.compress, "xz, whatever its name says: unpack it first, with `xz -dc`"),
        (zipped, "zip, whatever its name says: unpack it first, or where it is a spreadsheet, save its sheet as CSV"),
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_a_packed_file_under_another_name_is_told_as_such(
    here: Path, capsys: pytest.CaptureFixture[str], pack: Callable[[bytes], bytes], way: str, ending: str
) -> None:
    (here / f"a{ending}").write_bytes(pack(b"text,label\ngood,1\nbad,0\n"))
    assert f"a{ending} is packed by {way}." in refused(capsys, f"a{ending}")


def test_a_list_of_objects_is_told_from_broken_lines(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"text": f"good {i}", "label": i % 2} for i in range(9)]
    for text in (json.dumps(rows), json.dumps(rows, indent=1)):
        (here / "a.jsonl").write_text(text)
        assert "line 1: it begins a list, where each line is an object (`jq -c '.[]'`" in refused(capsys, "a.jsonl")
    (here / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n{")
    assert "a.jsonl, line 10: it is no JSON" in refused(capsys, "a.jsonl")


def test_too_few_groups_are_told_as_groups(here: Path) -> None:
    rows = [f"good {i},{i % 2},one,{'ab'[i // 20]},{i % 3}" for i in range(40)]
    (here / "a.csv").write_text("\n".join(["text,label,g1,g2,g3", *rows]) + "\n")
    for count in (1, 2):
        with pytest.raises(UserError, match=f"3 splits need as many groups, and the column g{count} has {count} for"):
            OwnData("a.csv", text="text", label="label", group=f"g{count}").build(None)
    assert OwnData("a.csv", text="text", label="label", group="g3").shared_groups == dict.fromkeys(
        ("train+val", "train+test", "val+test"), 0
    )
    (here / "b.csv").write_text("text,label\n" + "same,1\nother,0\n" * 9)
    with pytest.raises(UserError, match="3 splits need as many different inputs, and the rows have 2"):
        OwnData("b.csv", text="text", label="label").build(None)


def test_labels_that_differ_in_capitals_stay_apart_and_are_named(here: Path) -> None:
    labels = ["Pos", "pos ", "neg", "POS", "nEG", "odd"]
    (here / "a.csv").write_text("text,label\n" + "".join(f"number {i},{labels[i % 6]}\n" for i in range(120)))
    task = OwnData("a.csv", text="text", label="label")
    assert task.classes == ("POS", "Pos", "nEG", "neg", "odd", "pos")
    (said,) = (note for note in task.notes if "capitals" in note)
    assert "'POS' and 'Pos' and 'pos', 'nEG' and 'neg'. Where" in said and "odd" not in said
    (here / "b.csv").write_text((here / "a.csv").read_text().lower())
    assert not any("capitals" in note for note in OwnData("b.csv", text="text", label="label").notes)


@pytest.mark.parametrize("cell", ["0,5", "1,000", "1,000.5", "5%", "5 %", "$7.50", "1'000", "€3"])
def test_a_number_with_signs_of_other_programs_is_told_how_to_be_written(here: Path, cell: str) -> None:
    (here / "a.csv").write_text(f'text,rate\ngood,1.5\nbad,"{cell}"\n')
    with pytest.raises(UserError, match=r"Row 2 of the column rate is no number .*: write numbers as 1234\.5, without"):
        OwnData("a.csv", text="text", target=("rate",)).build(None)
    for other in ("2024-01-01", "high", "10:30"):
        (here / "b.csv").write_text(f"text,rate\ngood,1.5\nbad,{other}\n")
        with pytest.raises(UserError, match=r"Row 2 of the column rate is no number .*: name classes with --label"):
            OwnData("b.csv", text="text", target=("rate",)).build(None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text": "text", "labels": ("a", "b", "a")}, "The column a is named twice"),
        ({"text": "text", "target": ("a", "a")}, "The column a is named twice"),
        ({"channels": ("x", "x"), "label": "a"}, "The column x is named twice"),
        ({"text": "a", "label": "a"}, "The column a is input and output"),
        ({"symbols": "b", "target": ("a", "b")}, "The column b is input and output"),
        ({"text": "text", "label": "a", "group": "a"}, "The column a is output and group"),
    ],
)
def test_a_column_is_not_two_things_at_once(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        OwnData("a.csv", **given)
    OwnData("a.csv", text="text", target=("a", "b"), group="text", split="c")  # an input may be its own group


def test_a_group_that_is_called_as_missing_values_are_is_one_and_is_named(here: Path) -> None:
    groups = ["nan", "", "NA", *(f"p{i}" for i in range(20))]
    rows = [f"good {i},{i % 2},{groups[i % 23]}" for i in range(230)]
    (here / "a.csv").write_text("\n".join(["text,label,who", *rows]) + "\n")
    task = OwnData("a.csv", text="text", label="label", group="who")
    said = [note for note in task.notes if "taken for one group" in note]
    assert [note.split(":")[0] for note in said] == [
        f"10 rows with '{name}' in the column who were taken for one group" for name in ("NA", "nan")
    ]
    assert all(f"--missing {name}." in note for note, name in zip(said, ("NA", "nan"), strict=True))
    given = OwnData("a.csv", text="text", label="label", group="who", missing=("nan", "NA"))
    assert not [note for note in given.notes if "group" in note]
    numbers = [number for of in (given.groups or {}).values() for number in of.tolist()]
    assert len(set(numbers)) == 20 + 30, "a group for each name, and one for each row without"


@pytest.mark.parametrize("nothing", ["null", "NaN"])
def test_an_empty_item_in_a_list_of_symbols_is_no_symbol_by_its_name(here: Path, nothing: str) -> None:
    """As 'None' or 'nan' it would be one of the symbols, and with it what a model may learn from."""
    good = [[*"abcdef"[n % 5 :], " "] for n in range(40)]
    for name, write in (("lists", str), ("texts", json.dumps)):
        cells = [*(write(json.dumps(symbols)) for symbols in good), write(f'["a", {nothing}]')]
        lines = [f'{{"x": {x}, "y": {n % 2}}}' for n, x in enumerate(cells)]
        Path(f"{name}.jsonl").write_text("\n".join(lines))
        Path("good.jsonl").write_text("\n".join(lines[:-1]))
        with pytest.raises(UserError, match="Row 41 of --symbols has an item that is empty: write a symbol for it, or"):
            OwnData(f"{name}.jsonl", symbols="x", label="y").input  # noqa: B018  # reads the file
        task = OwnData(f"{name}.jsonl", symbols="x", label="y", skip_broken=True)
        assert task.left_out == 1 and "1 broken row was left out." in task.notes
        assert task.input == OwnData("good.jsonl", symbols="x", label="y").input
    cut = OwnData("lists.jsonl", symbols="x", label="y", longest=1)
    assert cut.left_out == 0 and cut.max_length == 1, "what is cut away is not looked at"
