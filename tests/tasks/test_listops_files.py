"""Official ListOps files: read, checked against their own labels, and refused with file and line."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from listops_twin import apart, flatten, parse, value, with_parentheses, words

from levelfield.spec import Examples, UserError
from levelfield.tasks._listops import expressions
from levelfield.tasks.listops import ListOps

TREES = [("MAX", [2, ("MED", [1, 8]), 3]), ("SM", [7, 8, 9]), ("MIN", [5, ("MAX", [4, 6])])]
SMALL = ListOps(minimum=1, length=20, train=3, val=1, test=1, origin="official")


def write(folder: Path, compress: bool = False, **lines: list[str]) -> Path:
    """Official files with three, one and one rows, or the lines given for a split."""
    rows = [f"{with_parentheses(t)}\t{value(t)}" for t in [*TREES, ("MAX", [0, 0]), ("MAX", [0, 1])]]
    for split, own in (("train", rows[:3]), ("val", rows[3:4]), ("test", rows[4:])):
        text = "".join(f"{line}\r\n" for line in lines.get(split, ["Source\tTarget", *own])).encode()
        name = folder / f"basic_{split}.tsv"
        if compress:
            name.with_suffix(".tsv.xz").write_bytes(lzma.compress(text))
        else:
            name.write_bytes(text)
    return folder


@pytest.mark.parametrize("compress", [False, True])
def test_official_files_are_read(tmp_path: Path, compress: bool) -> None:
    splits = SMALL.build(write(tmp_path, compress))
    assert [words(splits["train"].sequence(i)) for i in range(3)] == [flatten(t) for t in TREES]
    assert splits["train"].y.tolist() == [value(t) for t in TREES] == [4, 4, 5]
    assert splits["train"].slices["root"].tolist() == ["MAX", "SM", "MIN"]


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    path = write(tmp_path) / "basic_train.tsv"
    expected = SMALL.build(tmp_path)["train"]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert np.array_equal(SMALL.build(tmp_path)["train"].x, expected.x)


def test_official_files_are_found_where_the_release_puts_them(tmp_path: Path) -> None:
    home = tmp_path / "lra_release" / "listops-1000"
    home.mkdir(parents=True)
    write(home)
    assert len(SMALL.build(tmp_path)["train"]) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("( ( ( [MAX 2 ) 3 ) ] )\t9", "line 2 has the label 9, but its expression is worth 3"),
        ("( ( ( [MAX 2 ) 10 ) ] )\t2", "line 2 has the unknown token '10'"),
        ("( ( ( [MAX 2 ) X ) ] )\t2", "line 2 has the unknown token 'X'"),
        ("( ( ( [MAX 2 ) 3 ) ] )\t12", "line 2 has the label '12'"),
        ("( ( ( [MAX 2 ) 3 )\t3", "line 2 is not a complete expression"),
        ("( ( ( [MAX 2 ) 3", "line 2 is cut short"),
        ("\t3", "line 2 is cut short"),
        ("[MAX " + "1 " * 30 + "]\t1", "line 2 has 32 tokens"),
    ],
)
def test_a_bad_row_is_told_with_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    rows = [f"{with_parentheses(t)}\t{value(t)}" for t in TREES[:2]]
    write(tmp_path, train=["Source\tTarget", line, *rows])
    with pytest.raises(UserError) as caught:
        SMALL.build(tmp_path)
    assert "basic_train.tsv, " + message in str(caught.value)


def test_other_faults_of_official_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--from FOLDER"):
        SMALL.build(None)
    with pytest.raises(UserError, match=r"no basic_test\.tsv"):
        SMALL.build(tmp_path)
    write(tmp_path, train=["source;target"])
    with pytest.raises(UserError, match="line 1 is not the header"):
        SMALL.build(tmp_path)
    write(tmp_path)
    with pytest.raises(UserError, match=r"has 3 expressions and the task asks for 4: .* setting train"):
        replace(SMALL, train=4).build(tmp_path)
    write(tmp_path, train=["Source\tTarget"] + ["( ( ( [MAX 0 ) 1 ) ] )\t1"] * 3)
    with pytest.raises(UserError, match=r"basic_train\.tsv, line 2 repeats basic_test\.tsv, line 2"):
        SMALL.build(tmp_path)


def test_a_damaged_archive_is_told(tmp_path: Path) -> None:
    write(tmp_path, compress=True)
    path = tmp_path / "basic_train.tsv.xz"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match="is damaged"):
        SMALL.build(tmp_path)


@pytest.mark.data
def test_the_law_is_that_of_the_official_generators_own_files(test_data: Path) -> None:
    theirs = ListOps(origin="official", train=1000, val=200, test=200).build(test_data)
    ours = ListOps(train=1200, val=1, test=1).build(None)["train"]
    trees = [[parse(words(e.sequence(i))) for i in range(len(e))] for e in (theirs["train"], ours)]
    far = apart(trees[0], trees[1], 150)
    assert max(far.values()) < 4.5, far
    assert all(value(t) == y for t, y in zip(trees[0], theirs["train"].y))


@pytest.mark.data
def test_published_expressions_have_their_published_values(test_data: Path) -> None:
    """Nangia and Bowman's own test set: label, tab, expression."""
    with lzma.open(test_data / "listops" / "nangia_bowman_test_d20s_even.tsv.xz", "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    sequences = []
    for _, text in rows:
        out = np.zeros(len(text), np.uint8)
        sequences.append(out[: expressions.tokenize(np.frombuffer(text.encode(), np.uint8), out)])
    examples = Examples.of_sequences(sequences, np.array([int(label) for label, _ in rows]))
    assert len(rows) == 5000
    assert np.array_equal(expressions.survey(examples.x, examples.offsets)[0], examples.y)
