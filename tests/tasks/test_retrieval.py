"""Citation pairs: files of every form read as they are, faults told with their line, slices and baselines by hand."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import lzma
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelfield.spec import SPLITS, Examples, UserError, no_progress
from levelfield.tasks import _lra_release as release
from levelfield.tasks._texts import citation_pairs as files
from levelfield.tasks.retrieval import CHARACTERS, END, UNKNOWN, Retrieval, leading_bytes, leading_characters

Row = tuple[str, str, str, str, str]
SMALL = Retrieval(length=12, train=3, val=1, test=2)
ROWS: dict[str, list[Row]] = {
    "train": [
        ("1.0", "A1", "B1", "b'the cat sat'", "b\"a 'cat' sat\\non mats\""),
        ("0.0", "A1", "B2", "b'the cat sat'", "b'no'"),
        ("1", "C1", "C2", "x", "y"),
    ],
    "eval": [("0", "B1", "A1", "b'the cat sat'", "b'caf\\xc3\\xa9'")],
    "test": [("1.0", "A1", "Z1", "b'one'", '"two" of'), ("0.0", "Y1", "Z1", "café ♞", "b'\\ttabs are printed'")],
}
OFFICIAL_COUNTS = {"train": 147_086, "val": 18_090, "test": 17_437}


def text(rows: list[Row], end: str = "\n") -> bytes:
    return "".join("\t".join(row) + end for row in rows).encode()


def contents(end: str = "\n") -> dict[str, bytes]:
    return {f"new_aan_pairs.{split}.tsv": text(rows, end) for split, rows in ROWS.items()}


def plain(folder: Path, end: str = "\n") -> Path:
    """The three files in `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents(end).items():
        (folder / name).write_bytes(data)
    return folder


def archive(path: Path, inner: str = "lra_release/lra_release/tsv_data", leave_out: str = "") -> Path:
    """An archive like the release's: a .tar.gz with many other files before, between and after."""
    members: list[tuple[str, bytes]] = [(f"{inner}/._new_aan_pairs.train.tsv", b"not a table")]
    for name, data in reversed(contents().items()):
        members += [(f"lra_release/lra_release/pathfinder32/{i}/{name}.png", b"picture" * i) for i in range(40)]
        members += [(f"{inner}/{name}", data)] if name != leave_out else []
    members.append(("lra_release/listops-1000/basic_test.tsv", b"x" * 5000))
    with gzip.open(path, "wb") as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def read(examples: Examples) -> list[tuple[bytes, bytes, int]]:
    documents = [examples.sequence(i).tobytes() for i in range(2 * len(examples))]
    return list(zip(documents[::2], documents[1::2], examples.y.tolist()))


EXPECTED = {
    "train": [(b"b'the cat sa", b"b\"a 'cat' sa", 1), (b"b'the cat sa", b"b'no'", 0), (b"x", b"y", 1)],
    "val": [(b"b'the cat sa", b"b'caf\\xc3\\xa", 0)],
    "test": [(b"b'one'", b'"two" of', 1), ("café ♞".encode(), b"b'\\ttabs are", 0)],
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("inside", ["", "tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data"])
def test_files_are_found_wherever_the_archive_puts_them(tmp_path: Path, inside: str, end: str) -> None:
    plain(tmp_path / inside, end)
    splits = SMALL.build(tmp_path)
    assert {split: read(splits[split]) for split in SPLITS} == EXPECTED
    assert all(splits[s].documents == 2 and splits[s].x.dtype == np.uint8 for s in SPLITS)


@pytest.mark.parametrize("name", release.NAMES)
@pytest.mark.parametrize("as_file", [True, False])
def test_the_archive_is_read_without_unpacking(tmp_path: Path, name: str, as_file: bool) -> None:
    path = archive(tmp_path / name)
    if name.endswith(".tar"):
        path.write_bytes(gzip.decompress(path.read_bytes()))
    splits = SMALL.build(path if as_file else tmp_path)
    assert {split: read(splits[split]) for split in SPLITS} == EXPECTED
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_files_may_be_compressed_and_end_without_a_line_end(tmp_path: Path) -> None:
    for name, data in contents().items():
        (tmp_path / f"{name}.xz").write_bytes(lzma.compress(data.rstrip(b"\n")))
    assert {s: read(e) for s, e in SMALL.build(tmp_path).items()} == EXPECTED


def test_a_byte_order_mark_is_no_part_of_the_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in plain(tmp_path).iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    for block in (files.BLOCK, 5):
        monkeypatch.setattr(files, "BLOCK", block)
        assert {s: read(e) for s, e in SMALL.build(tmp_path).items()} == EXPECTED


def test_a_table_named_by_itself_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.tsv is one table and no archive: name the folder that holds it"):
        SMALL.build(plain(tmp_path) / "new_aan_pairs.train.tsv")


texts = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), min_size=1, max_size=30)
rows_of = st.lists(st.tuples(st.sampled_from(["0", "1", "0.0", "1.0"]), texts, texts, texts, texts), min_size=1)


@given(rows_of, st.sampled_from([1, 7, 64, 1 << 20]), st.integers(1, 20), st.booleans())
def test_parsing_is_that_of_the_csv_module(rows: list[Row], block: int, length: int, trailing: bool) -> None:
    """At any size of the blocks that the file is read in; quotes have no meaning."""
    data = text(rows) if trailing else text(rows)[:-1]
    wanted = list(csv.reader(io.StringIO(data.decode(), newline="\n"), delimiter="\t", quoting=csv.QUOTE_NONE))
    before, files.BLOCK = files.BLOCK, block
    try:
        pairs = files.parse(io.BytesIO(data), "here", len(rows), lambda t: leading_bytes(t, length), no_progress)
    finally:
        files.BLOCK = before
    offsets = np.concatenate([[0], np.cumsum(pairs.lengths)])
    documents = [pairs.x[a:b].tobytes() for a, b in itertools.pairwise(offsets)]
    assert documents == [t.encode()[:length] for row in wanted for t in row[3:]]
    assert pairs.y.tolist() == [int(float(row[0])) for row in wanted]
    assert pairs.papers == [(row[1].encode(), row[2].encode()) for row in wanted]
    assert pairs.sizes.tolist() == [len((row[3] + row[4]).encode()) for row in wanted]


@given(texts, st.integers(2, 20))
def test_characters_are_those_of_the_string(written: str, length: int) -> None:
    symbols = leading_characters(np.frombuffer(written.encode(), np.uint8), length).tolist()
    kept = written[: length - 1]
    assert symbols == [ord(c) - 32 if " " <= c <= "~" else UNKNOWN for c in kept] + [END]
    assert max(symbols) < CHARACTERS == Retrieval(level="characters").input.symbols


def test_the_character_vocabulary_is_the_printed_99() -> None:
    """98 symbols in S4's code, and one to mask with (amos2025): here <pad> and <mask> come from the input's kind."""
    assert Retrieval(level="characters").input.vocabulary == 99
    assert Retrieval().input.symbols == 256


def test_defaults_are_the_printed_counts() -> None:
    task = Retrieval()
    assert {s: getattr(task, s) for s in SPLITS} == OFFICIAL_COUNTS and task.max_length == 4000
    assert [a.name for a in task.archives] == ["lra_release.gz"]


def test_at_another_length_there_are_no_more_pairs_than_asked_for_and_than_there_are() -> None:
    at = [SMALL.at_length(24, examples) for examples in (None, 2, 500)]
    assert [(t.length, t.train, t.val, t.test) for t in at] == [(24, 3, 1, 2), (24, 2, 1, 2), (24, 3, 1, 2)]
    with pytest.raises(UserError, match="a pair in every split"):
        SMALL.at_length(24, 0)


def refused(tmp_path: Path, train: bytes) -> str:
    plain(tmp_path)
    (tmp_path / "new_aan_pairs.train.tsv").write_bytes(train)
    with pytest.raises(UserError) as caught:
        SMALL.build(tmp_path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"1.0\tA\tB\ttext", "line 2 has 4 columns"),
        (b"1.0\tA\tB\ttext\tother\tmore", "line 2 has 6 columns"),
        (b"", "line 2 has 1 columns"),
        (b"2.0\tA\tB\ttext\tother", "line 2 has the label '2.0'"),
        (b"\tA\tB\ttext\tother", "line 2 has the label ''"),
        (b"label\tid1\tid2\ttext1\ttext2", "line 2 has the label 'label'"),
        (b"1.0\tA\tB\t\tother", "line 2 lacks one of its two texts"),
        (b"1.0\tA\tB\ttext\t", "line 2 lacks one of its two texts"),
    ],
)
def test_a_bad_row_is_told_with_file_and_line(tmp_path: Path, row: bytes, message: str) -> None:
    lines = text(ROWS["train"]).split(b"\n")
    said = refused(tmp_path, b"\n".join([lines[0], row, lines[1], lines[2], b""]))
    assert said.startswith(f"new_aan_pairs.train.tsv, {message}")


def test_a_line_keeps_its_number_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 5)
    said = refused(tmp_path, text(ROWS["train"][:2]) + b"1.0\tC1\tC2\tcut")
    assert said.startswith("new_aan_pairs.train.tsv, line 3 has 4 columns")


def test_files_cut_short_and_files_of_something_else_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(tmp_path, text(ROWS["train"][:2]))
    assert "has 2 pairs and the task asks for 3" in said
    assert "has 0 pairs" in refused(tmp_path, b"")
    monkeypatch.setattr(files, "LONGEST_ROW", 1000)
    monkeypatch.setattr(files, "BLOCK", 100)
    assert "line 1 has no end" in refused(tmp_path, bytes(5000))


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"https://storage.*--from FOLDER"):
        SMALL.build(None)
    with pytest.raises(UserError, match=r"neither new_aan_pairs\.train\.tsv nor .*eval.* nor .*lra_release\.gz"):
        SMALL.build(tmp_path)
    plain(tmp_path)
    (tmp_path / "new_aan_pairs.eval.tsv").unlink()
    with pytest.raises(UserError, match=r"holds neither new_aan_pairs\.eval\.tsv nor lra_release\.gz"):
        SMALL.build(tmp_path)
    path = archive(tmp_path / "lra_release.gz", leave_out="new_aan_pairs.eval.tsv")
    with pytest.raises(UserError, match=r"lra_release\.gz has no tsv_data/new_aan_pairs\.eval\.tsv"):
        SMALL.build(tmp_path)
    whole = archive(path).read_bytes()
    for cut in (1, 100, len(whole) // 2):
        path.write_bytes(whole[:cut])
        with pytest.raises(UserError, match=r"lra_release\.gz is truncated or damaged"):
            SMALL.build(path)
    path.write_bytes(whole[:60] + bytes(200) + whole[260:])
    with pytest.raises(UserError, match=r"lra_release\.gz is truncated or damaged"):
        SMALL.build(path)


@pytest.mark.parametrize("bad", [{"length": 1}, {"train": 0}, {"level": "word"}])
def test_settings_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(UserError, match="Retrieval"):
        replace(SMALL, **bad)  # type: ignore[arg-type]


def test_slices_say_what_was_met_in_train(tmp_path: Path) -> None:
    splits = SMALL.build(plain(tmp_path))
    assert splits["train"].slices["seen"].tolist() == [3, 3, 3]
    assert splits["val"].slices["seen"].tolist() == [3], "the pair of train's first row, the other way round"
    assert splits["test"].slices["seen"].tolist() == [1, 0]
    both = replace(SMALL, train=2, test=1)
    rows = [("1", "B1", "B2", "x", "y")]
    (tmp_path / "new_aan_pairs.test.tsv").write_bytes(text(rows))
    assert both.build(tmp_path)["test"].slices["seen"].tolist() == [2]


def test_other_slices_by_hand(tmp_path: Path) -> None:
    splits = replace(SMALL, length=100).build(plain(tmp_path))
    assert splits["train"].slices["length"].tolist() == [64, 32, 2], "36, 19 and 2 bytes, up to a power of two"
    # {b, the, cat, sat} and {b, a, cat, sat, non, mats}: three of seven
    assert splits["train"].slices["overlap"].tolist()[0] == 42
    characters = replace(SMALL, length=100, level="characters").build(tmp_path)
    assert np.array_equal(characters["train"].slices["overlap"], splits["train"].slices["overlap"])


def test_the_lexical_rule_learns_its_threshold_on_train() -> None:
    def split(overlap: list[int], y: list[int]) -> Examples:
        documents = [np.zeros(1, np.uint8)] * (2 * len(y))
        return Examples.of_sequences(documents, np.array(y), {"overlap": np.array(overlap)}, documents=2)

    train = split([0, 2, 4, 6, 8, 10], [0, 0, 1, 0, 1, 1])
    scores = SMALL.baselines(train, split([2, 4, 6, 8], [0, 0, 1, 1]))
    assert scores == {"label_prior": 0.5, "shared_words": 0.75}, "from 4 on, the first of the best thresholds"


def test_one_set_of_labels_alone_has_baselines() -> None:
    documents = [np.zeros(1, np.uint8)] * 4
    one = Examples.of_sequences(documents, np.array([1, 1]), {"overlap": np.array([4, 8])}, documents=2)
    assert SMALL.baselines(one, one) == {"label_prior": 1.0, "shared_words": 1.0}


@pytest.mark.data
def test_real_pairs_are_read_as_the_csv_module_reads_them(test_data: Path) -> None:
    """Pairs of real papers in the release's form: every byte of every kept text, ids and labels."""
    folder = test_data / "acl_citation_pairs"
    task = Retrieval(length=3000, train=300, val=298, test=294)
    splits = task.build(folder)
    before = csv.field_size_limit(1 << 24)
    for split, name in files.NAMES.items():
        with lzma.open(folder / f"{name}.xz", "rt", encoding="utf8", newline="\n") as file:
            table = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            rows = list(itertools.islice(table, len(splits[split])))
        wanted = [(a.encode()[:3000], b.encode()[:3000], int(float(y))) for y, _, _, a, b in rows]
        assert read(splits[split]) == wanted
    csv.field_size_limit(before)
    assert [Counter(splits[split].y.tolist()) for split in ("val", "test")] == [{0: 149, 1: 149}, {0: 147, 1: 147}]


@pytest.mark.data
def test_words_in_common_tell_something_of_real_pairs(test_data: Path) -> None:
    """A rule that sees no order gets well beyond the prior, so a model has to beat it and not chance."""
    task = Retrieval(length=1000, train=2304, val=298, test=294)
    splits = task.build(test_data / "acl_citation_pairs")
    scores = task.baselines(splits["train"], splits["test"])
    assert scores["label_prior"] == 0.5 and 0.6 < scores["shared_words"] < 0.75
    assert set(np.unique(splits["test"].slices["seen"])) == {0, 1, 2}, "no pair is in two splits"
