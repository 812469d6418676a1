"""What is easily misread in a user's own file: brackets among symbols, tables in a cell, splits and classes that nobody
can train on."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from levelfield import OwnData
from levelfield.data.audit.facts import facts
from levelfield.spec import Signal, UserError, describe, digest
from levelfield.user import own_columns, own_files, own_rows

ROWS = [f"text {number},{number % 2}" for number in range(30)]
RNG = np.random.default_rng(0)


def table(path: Path, rows: list[str], head: str = "x,y") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([head, *rows]) + "\n")
    return str(path)


def arrays(folder: Path, **given: Any) -> str:
    folder.mkdir()
    for name, array in given.items():
        np.save(folder / f"{name}.npy", array)
    return str(folder)


def test_a_cell_as_long_as_a_book_is_read_where_a_long_of_c_has_32_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where the standard library takes no higher limit."""
    limit = csv.field_size_limit
    before = limit(131_072)

    def of_windows(*most: int) -> int:
        if max(most, default=0) > 2**31 - 1:
            raise OverflowError("Python int too large to convert to C long")
        return limit(*most)

    monkeypatch.setattr(csv, "field_size_limit", of_windows)
    (part,) = own_files.read(Path(table(tmp_path / "books.csv", ["word " * 100_000 + ",1"])))
    assert [len(cell) for cell in part.columns["x"]] == [500_000]
    assert limit(before) == 131_072


def test_whole_numbers_beyond_floats_are_refused_or_left_out_as_infinite_ones_are(tmp_path: Path) -> None:
    rows = [json.dumps({"x": [0.5 * n, 10**400 if n == 3 else n], "y": n % 2, "z": n + 10**400}) for n in range(30)]
    at = tmp_path / "rows.jsonl"
    at.write_text("\n".join(rows))
    with pytest.raises(UserError, match="Row 4 of the column x has a number that is not finite"):
        OwnData(str(at), channels=("x",), label="y").build(None)
    with pytest.raises(UserError, match="Row 1 of the column z has a number that is not finite"):
        OwnData(str(at), channels=("x",), target=("z",), skip_broken=True).build(None)
    assert OwnData(str(at), channels=("x",), label="y", skip_broken=True).left_out == 1


def test_half_of_a_surrogate_pair_is_a_symbol_and_a_name_of_a_group_like_others(tmp_path: Path) -> None:
    at = tmp_path / "rows.jsonl"
    at.write_text("\n".join(json.dumps({"x": f"a{n} \ud800", "y": n % 2, "g": f"\ud800{n // 2}"}) for n in range(60)))
    assert OwnData(str(at), symbols="x", label="y").input.symbols > 2
    by_group = OwnData(str(at), text="x", label="y", group="g")
    assert sum(by_group.shared_groups.values()) == 0 and len(set(by_group.groups["train"].tolist())) > 15


def test_brackets_among_symbols_stay() -> None:
    """Without them, expressions of different value are the same."""
    words = ["[MAX 2 [MIN 4 7 ] 0 ]", "[MIN 2 3 ]", "( 5 )", None]
    expected = ["[MAX", "2", "[MIN", "4", "7", "]", "0", "]"]
    assert own_columns.symbols(words, 99)[0] == [expected, ["[MIN", "2", "3", "]"], ["(", "5", ")"], None]
    assert own_columns.symbols(["[ [ ] ]", "[ ]"], 99)[0] == [["[", "[", "]", "]"], ["[", "]"]]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["[1, 2]", "[]", "[3]"], [["1", "2"], None, ["3"]]),
        (["['[MAX', 'so, so']", "[']']"], [["[MAX", "so, so"], ["]"]]),  # as pandas writes lists
        (["[1 2\n 3]", ""], [["1", "2", "3"], None]),  # as NumPy prints arrays
        ([[1, "[a"], "[2]"], [["1", "[a"], ["2"]]),
        ([np.arange(1_200)], [[str(number) for number in range(1_200)]]),
    ],
)
def test_a_column_of_lists_is_read_as_its_items(cells: list[Any], expected: list[list[str] | None]) -> None:
    assert own_columns.symbols(cells, 9_999)[0] == expected


def test_a_table_in_a_cell_is_no_channel(tmp_path: Path) -> None:
    pairs = [[1, 2], [3, 4], [5, 6]]
    for cell in (pairs, str(pairs)):
        lines = [json.dumps({"x": cell, "y": number % 2}) for number in range(20)]
        (tmp_path / "a.jsonl").write_text("\n".join(lines))
        with pytest.raises(UserError, match="Row 1 of the column x has lists within a list"):
            OwnData(str(tmp_path / "a.jsonl"), channels=("x",), label="y").build(None)
    x, y = RNG.normal(size=(20, 7, 3)), np.arange(20) % 2
    where = arrays(tmp_path / "folder", x=x, y=y)
    with pytest.raises(UserError, match="has its 3 channels already: leave out --channels"):
        OwnData(where, channels=("x",), label="y").build(None)
    assert OwnData(where).build(None)["train"].x.shape[1] == 3
    column = own_columns.signals([[[[1.0], [2.0]]]], ["x"])[0]
    assert column is not None and column.tolist() == [[1.0], [2.0]], "one number for each step is a list all the same"


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_a_list_is_no_text(tmp_path: Path, ending: str) -> None:
    """Written as Python writes it, it would be quotation marks and brackets for the most part."""
    cells = [None, *(["a", f"{n}"] for n in range(20))]
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(json.dumps({"x": cell, "y": number % 2}) for number, cell in enumerate(cells)))
    if ending == ".parquet":
        file, lines = tmp_path / "a.parquet", file
        duckdb.sql(f"COPY (SELECT * FROM read_json('{lines}')) TO '{file}' (FORMAT parquet)")
    with pytest.raises(UserError, match=r"Row 2 of the column x is a list and no text: .*--symbols.*--channels"):
        OwnData(str(file), text="x", label="y").build(None)
    assert OwnData(str(file), symbols="x", label="y").max_length == 2


@pytest.mark.parametrize("cell", ["to_timestamp(i % 2)", "{'at': [to_timestamp(i % 2)]}"])
def test_times_with_a_zone_are_texts_in_utc(tmp_path: Path, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They kept a file from being read, for want of a package, even where nobody asked for their column."""
    monkeypatch.setitem(sys.modules, "pytz", None)
    table = f'SELECT \'text \' || i AS x, i % 2 AS y, {cell} AS "of a""" FROM range(30) _(i)'
    duckdb.sql(f"COPY ({table}) TO '{tmp_path / 'a.parquet'}' (FORMAT parquet)")
    (part,) = own_files.read(tmp_path / "a.parquet")
    texts = ["1970-01-01 00:00:00+00", "1970-01-01 00:00:01+00"]
    nested = cell.startswith("{")
    assert part.columns['of a"'][:2] == ([{"at": [text]} for text in texts] if nested else texts)
    assert (
        list(part.columns) == ["x", "y", 'of a"'] and OwnData(str(tmp_path / "a.parquet"), text="x", label="y").classes
    )


@pytest.mark.parametrize(
    "asked, sentence",
    [
        ({"text": "blob", "label": "y"}, "Row 1 of the column blob is bytes and no text"),
        ({"symbols": "blob", "label": "y"}, "A cell of --symbols is bytes"),
        ({"text": "x", "labels": ("empty",)}, "empty has nothing in it"),
        ({"text": "x", "label": "y", "split": "empty"}, "empty has nothing in row 1: its cells are train, val or test"),
    ],
)
def test_cells_that_mean_nothing_where_they_are_named(tmp_path: Path, asked: dict[str, Any], sentence: str) -> None:
    cells = "'text ' || i AS x, i % 2 AS y, 'b'::BLOB AS blob, {'a': i} AS record, NULL::VARCHAR AS empty"
    duckdb.sql(f"COPY (SELECT {cells} FROM range(30) _(i)) TO '{tmp_path / 'a.parquet'}' (FORMAT parquet)")
    with pytest.raises(UserError, match=sentence):
        OwnData(str(tmp_path / "a.parquet"), **asked).build(None)


def test_the_scale_of_very_many_steps_is_that_of_all_of_them() -> None:
    """Sums of float32 stop growing at 16,777,216 ones."""
    rows = [np.broadcast_to(np.float32(1), (17_000_000, 2)), np.zeros((1, 2), np.float32)]
    _, found = own_rows._encoded(own_rows._Sequences(rows, "signal"), np.array([True, False]))
    assert isinstance(found, Signal) and found.shift == (1.0, 1.0) and found.scale == (1.0, 1.0)


@pytest.mark.parametrize("lengths", [np.full(20, -3), np.full(20, 8), np.full(20, np.nan), np.ones((20, 1)), 2.5])
def test_lengths_that_are_none_are_refused(tmp_path: Path, lengths: Any) -> None:
    x, y = RNG.integers(0, 9, (20, 7)), np.arange(20) % 2
    where = arrays(tmp_path / "folder", x=x, y=y, lengths=np.broadcast_to(lengths, np.shape(lengths) or 20))
    with pytest.raises(UserError, match=r"lengths\.npy says no steps of each example: give whole numbers from 0 to 7"):
        OwnData(where).build(None)


def test_labels_that_are_stored_as_fractions_are_remarked_on(tmp_path: Path) -> None:
    x, y = RNG.integers(0, 9, (20, 7)), np.arange(20) % 2
    where = arrays(tmp_path / "folder", x=x, y=y.astype(float))
    assert any("for classes give --label y" in note for note in OwnData(where).notes)
    assert OwnData(where, label="y").classes == ("0", "1") and not OwnData(where, label="y").notes
    assert not OwnData(where, target=("y",)).notes, "whoever asks for numbers means them"


def test_a_split_without_a_usable_row_is_remarked_on(tmp_path: Path) -> None:
    table(tmp_path / "f" / "train.csv", ROWS)
    table(tmp_path / "f" / "test.csv", [f"words {number}" for number in range(9)], "x")
    task = OwnData(str(tmp_path / "f"), text="x", label="y")
    assert any(note.startswith("No row of the split test has input and label") for note in task.notes)


def test_classes_that_no_training_row_has_are_remarked_on(tmp_path: Path) -> None:
    table(tmp_path / "f" / "train.csv", ROWS)
    table(tmp_path / "f" / "test.csv", [f"words {number},{number % 2}a" for number in range(9)])
    task = OwnData(str(tmp_path / "f"), text="x", label="y")
    assert "2 of 4 classes have no row to train on: '0a', '1a'." in task.notes
    assert not OwnData(table(tmp_path / "a.csv", ROWS), text="x", label="y").notes


@pytest.mark.parametrize(
    ("train", "test", "classes", "alike"),
    [
        (("1.0", "0.0"), ("1", "0"), ("0", "1"), "'0.0' is '0', '1.0' is '1'"),
        (("1e0", "2.50"), ("1", "2.5"), ("1", "2.5"), "'1e0' is '1', '2.50' is '2.5'"),
        (("True", "False"), ("TRUE", "false"), ("False", "True"), "'TRUE' is 'True', 'false' is 'False'"),
        (("01", "1.0"), ("1", "1.0"), ("01", "1", "1.0"), ""),  # 01 is a code
        (("1.0", "b"), ("1", "b"), ("1", "1.0", "b"), ""),
        (("1.0", "0.0"), ("1.0", "0.0"), ("0.0", "1.0"), ""),
    ],
)
def test_labels_that_mean_the_same_in_both_files_are_one_class(
    tmp_path: Path, train: tuple[str, str], test: tuple[str, str], classes: tuple[str, ...], alike: str
) -> None:
    """As where one file is written with a gap in it, so that its whole numbers are fractions."""
    for name, labels in (("train", train), ("test", test)):
        table(tmp_path / f"{name}.csv", [f"{name} {number},{labels[number % 2]}" for number in range(30)])
    task = OwnData(str(tmp_path), text="x", label="y")
    assert task.classes == classes
    assert [note for note in task.notes if "one class" in note] == (
        [f"Labels that mean the same are one class: {alike}."] if alike else []
    )
    assert ("spellings" in describe(task, identity=True)) == bool(alike), "ids change where classes do, and only there"


def test_sequences_that_are_cut_are_counted(tmp_path: Path) -> None:
    rows = [f"{'a' * (7 if number < 4 else 5)}{number},{number % 2}" for number in range(10)] + ["aaaaaaaaaaaaa,"]
    path = table(tmp_path / "a.csv", rows)
    task = OwnData(path, text="x", label="y", longest=6)
    assert task.cut == 4 and task.max_length == 6, "the row without a label is none of them"
    assert task.notes[1].startswith("4 of 10 sequences were cut at 6 steps") and "--longest 8 " in task.notes[1]
    whole = OwnData(path, text="x", label="y", longest=8)
    assert whole.cut == 0 and whole.max_length == 8 and len(whole.notes) == 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"x": RNG.integers(0, 2**40, (20, 7))}, "symbols up to 1,0.* np.unique"),
        (
            {"x": np.where(np.arange(20)[:, None] == 3, 1e39, np.ones((20, 7)))},
            r"example 4 of x\.npy .*beyond 3\.4e\+38",
        ),
        (
            {"x": RNG.random((20, 7)), "y": 1e300 * RNG.random(20)},
            r"A target goes up to \S*e\+\d+, too far .*logarithm",
        ),
        ({"x": RNG.random((20, 7)), "y": np.r_[np.arange(19.0), 1e200]}, r"goes up to 1e\+200, too far"),
    ],
)
def test_numbers_that_are_too_large_are_refused(tmp_path: Path, given: dict[str, Any], sentence: str) -> None:
    where = arrays(tmp_path / "folder", **{"y": np.arange(20) % 2} | given)
    with pytest.raises(UserError, match=sentence):
        OwnData(where).build(None)


def test_a_number_too_large_in_a_cell_is_named_by_its_row(tmp_path: Path) -> None:
    rows = [f"0.5 {'1e39' if number == 3 else '1e38'},{number % 2}" for number in range(30)]
    with pytest.raises(UserError, match=r"Row 4 of the column x has a number beyond 3\.4e\+38.*divide"):
        OwnData(table(tmp_path / "a.csv", rows), channels=("x",), label="y").build(None)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_labels_that_say_nothing_are_no_class_unless_they_are_renamed(tmp_path: Path, ending: str) -> None:
    rows = [
        {"x": f"text {n}", "y": ("1", "2", "nan", " n/a", "")[n % 5], "t": ("1.5", "2", "NA")[n % 3]} for n in range(60)
    ]
    file = tmp_path / f"a{ending}"
    if ending == ".csv":
        table(file, [",".join(row.values()) for row in rows], "x,y,t")
    elif ending == ".jsonl":
        file.write_text("\n".join(map(json.dumps, rows)))
    else:
        listed = ", ".join(f"('{row['x']}', '{row['y']}', '{row['t']}')" for row in rows)
        duckdb.sql(f"COPY (SELECT * FROM (VALUES {listed}) AS a(x, y, t)) TO '{file}' (FORMAT parquet)")
    said = (
        r"is 'nan' in 12 and 'n/a' in 12 of 60 rows, .* with --missing nan n/a, or keep them as a class by another word"
    )
    with pytest.raises(UserError, match=said):
        OwnData(str(file), text="x", label="y").build(None)
    task = OwnData(str(file), text="x", label="y", missing=("nan", "n/a"))
    assert task.classes == ("1", "2") and task.notes == ("36 of 60 rows without input or label were left out.",)
    assert digest(task) != digest(OwnData(str(file), text="x", label="y"))
    with pytest.raises(UserError, match=r"no number \('NA'\): .* with --missing"):
        OwnData(str(file), text="x", target=("t",)).build(None)
    assert OwnData(str(file), text="x", target=("t",), missing=("NA",)).left_out == 20


def test_the_first_line_is_read_with_care(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"line \d+: .*: mend its quotation marks"):
        OwnData(table(tmp_path / "a.csv", ROWS, 'x,"y'), text="x", label="y").build(None)
    rows = [row.replace(",", "\t") for row in ROWS]
    named = table(tmp_path / "a.tsv", rows, "said, as it is, whole\ty")
    assert OwnData(named, text="said, as it is, whole", label="y").classes == ("0", "1")


def test_words_that_training_does_not_have_make_no_inputs_equal(tmp_path: Path) -> None:
    """Three hundred names of one word each; every other one has the label of two."""
    own = OwnData(table(tmp_path / "a.csv", [f"name{i},{i % 2}" for i in range(300)]), symbols="x", label="y")
    splits = own.build(None)
    assert own.unknown == len(splits["test"]) > 30 and not splits["test"].x.any()
    found = {(row.get("metric"), row.get("at")): row.get("value") for row in facts(own, splits)}
    assert not any(v for (metric, _), v in found.items() if metric in ("contradictions", "exact_duplicates", "leaked"))
    assert not any(v for (metric, _), v in found.items() if metric == "near_duplicates")
    known = OwnData(
        table(tmp_path / "b.csv", [f"a {'b ' * (i + 1)},{i % 2}" for i in range(30)]), symbols="x", label="y"
    )
    assert known.apart is None and known.unknown == 0


@pytest.mark.parametrize(
    "spelt, groups", [(("{}", "{}.0"), 50), (("p{}", " p{}"), 50), (("p{}", "p{} "), 50), (("p{}", "q{}"), 100)]
)
def test_a_group_that_is_spelt_in_two_ways_is_one(tmp_path: Path, spelt: tuple[str, str], groups: int) -> None:
    rows = [
        f"text {i},{i % 2},{s.format(i % 50)},{p}"
        for s, p in zip(spelt, ("train", "test"), strict=True)
        for i in range(100)
    ]
    own = OwnData(table(tmp_path / "a.csv", rows, "x,y,g,s"), text="x", label="y", group="g", split="s")
    assert own.shared_groups["train+test"] + own.shared_groups["val+test"] == 100 - groups
    assert ("groups" in own.own_parts) == (groups == 50)


def test_classes_without_a_training_row_are_a_fact(tmp_path: Path) -> None:
    rows = [f"text {i},{i % 2},train" for i in range(40)] + [f"other {i},{i % 4},test" for i in range(40)]
    own = OwnData(table(tmp_path / "a.csv", rows, "x,y,s"), text="x", label="y", split="s")
    with pytest.warns(UserWarning, match="2 of 4 classes have no row to train on"):
        splits = own.build(None)
    assert [row.get("value") for row in facts(own, splits) if row.get("metric") == "unseen"] == [0.5]
    several = [f"text {i},A;B,train" if i % 2 else f"text {i},A,train" for i in range(40)]
    several += [f"other {i},{'A;C' if i % 4 else 'B'},test" for i in range(40)]
    sets = OwnData(table(tmp_path / "b.csv", several, "x,y,s"), text="x", labels=("y",), split="s")
    with pytest.warns(UserWarning, match="1 of 3 labels have no row to train on"):
        splits = sets.build(None)
    assert [row.get("value") for row in facts(sets, splits) if row.get("metric") == "unseen"] == [0.75]


@pytest.mark.parametrize("cell", ["0,12 -1,30 2,5", "0,12;-1,30", "0,1\t0,2"])
def test_decimal_commas_are_no_two_numbers(cell: str) -> None:
    with pytest.raises(UserError, match=r"Row 2 of the column ecg has commas within .*: write 0\.12 with a point"):
        own_columns.signals([["0.1 0.2", cell]], ["ecg"])


@pytest.mark.parametrize("cell", ["[0.1,0.2,3]", "1,2,3", "1, 2; 3", "0.1, -2"])
def test_commas_that_part_numbers_part_them(cell: str) -> None:
    (found,) = own_columns.signals([[cell]], ["ecg"])
    assert found is not None and len(found) == cell.count(",") + cell.count(";") + 1


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_labels_that_are_no_number_in_an_array_are_left_out(tmp_path: Path, kind: str) -> None:
    y = np.array([np.nan, *([0, 1] * 20)], kind)
    own = OwnData(arrays(tmp_path / "a", x=np.tile(np.arange(41)[:, None], 5), y=y), label="y")
    assert own.left_out == 1 and own.classes == ("0", "1")


def test_signals_in_an_array_with_numbers_that_are_none_are_left_out_as_broken_ones(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(41, 5))
    x[7, 3], x[9, 0] = np.nan, np.inf
    folder = arrays(tmp_path / "a", x=x, y=np.arange(41) % 2)
    with pytest.raises(
        UserError, match=r"example 8 of x.npy .* not finite.* leave such examples out with --skip-broken"
    ):
        _ = OwnData(folder).input
    own = OwnData(folder, skip_broken=True)
    assert (own.notes, own.left_out) == (("2 broken rows were left out.",), 2)
    cut = OwnData(folder, skip_broken=True, longest=3)  # as the default, which does not look beyond either
    assert cut.left_out == 1


def test_labels_in_a_column_of_an_array_are_one_each(tmp_path: Path) -> None:
    own = OwnData(arrays(tmp_path / "a", x=np.tile(np.arange(40)[:, None], 5), y=np.arange(40)[:, None] % 2))
    assert own.classes == ("0", "1")


def test_a_waveform_of_whole_numbers_is_told_from_symbols(tmp_path: Path) -> None:
    wave = np.tile(np.arange(-20, 20)[:, None], 5)
    with pytest.raises(UserError, match="below 0: number them from 0 on, or save measured numbers as fractions"):
        _ = OwnData(arrays(tmp_path / "a", x=wave, y=np.arange(40) % 2)).input


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999"])
def test_a_target_that_is_not_finite_is_refused_by_its_row(tmp_path: Path, cell: str) -> None:
    rows = [*(f"text {i},{i}" for i in range(40)), f"text,{cell}"]
    data = OwnData(table(tmp_path / "a.csv", rows), text="x", target=("y",))
    said = f"Row 41 of the column y has a number that is not finite.*with --missing {cell}[.]$"
    with pytest.raises(UserError, match=said):
        _ = data.output
    assert replace(data, missing=(cell,)).left_out == 1


@pytest.mark.parametrize(("first", "said"), [("train", "training"), ("test", "test"), ("val", "val")])
def test_a_split_with_one_class_is_refused(tmp_path: Path, first: str, said: str) -> None:
    """Guessing has 100 % of such a test, nothing can be learnt from such training data, nor chosen by validation."""
    splits = ["train"] * 20 + ["val"] * 10 + ["test"] * 10
    rows = [f"text {i},{0 if split == first else i % 2},{split}" for i, split in enumerate(splits)]
    data = OwnData(table(tmp_path / "own.csv", rows, "x,y,split"), text="x", label="y", split="split")
    with pytest.raises(UserError, match=f"The {said} split has one class only"):
        data.build(None)
