"""Certified range with filler of real text: what is drawn, what is refused, and what a file is known by."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from levelfield.cli.app import main
from levelfield.data import prepared
from levelfield.presets import by_name
from levelfield.spec import SPLITS, SplitName, UserError, digest
from levelfield.tasks.reach import Reach

SENTENCE = "the court finds that a party who did not sign is bound, as is every heir of theirs; costs follow"


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Some 2,500 bytes in book.txt, in the current folder."""
    monkeypatch.chdir(tmp_path)
    text = " ".join(random.Random(0).choices(SENTENCE.split(), k=500)).encode()
    Path("book.txt").write_bytes(text)
    return text


TWO = Reach(12, symbols=128, offset=9, easiest=3, train=60, val=20, test=20, text="book.txt")
THREE = Reach(7, marks=3, symbols=256, train=60, val=12, test=12, text="book.txt")


def parts(text: bytes) -> dict[SplitName, bytes]:
    tenth = len(text) // 10
    return {"train": text[: -2 * tenth], "val": text[-2 * tenth : -tenth], "test": text[-tenth:]}


@pytest.mark.parametrize("task", [TWO, THREE], ids=["two", "three"])
def test_every_gap_holds_the_same_stretch_of_the_part_of_its_split(task: Reach, book: bytes) -> None:
    splits, fillers = task.build(None), {}
    for split, part in parts(book).items():
        for at in range(len(splits[split])):
            sequence = splits[split].sequence(at).tolist()
            places = [at for at, symbol in enumerate(sequence) if symbol >= task.symbols]
            apart = places[1] - places[0]
            gaps = {bytes(sequence[at - apart + 1 : at]) for at in [*places, places[-1] + apart]}
            assert len(gaps) == 1 and next(iter(gaps)) in part
            before, after = sequence[: places[0] - apart + 1], sequence[places[-1] + apart :]
            assert before and after and bytes(before) in 2 * part and bytes(after) in 2 * part
            fillers.setdefault(split, Counter())[next(iter(gaps))] += 1
    assert all(len(found) > 1 for found in fillers.values())


@pytest.mark.parametrize("task", [TWO, THREE], ids=["two", "three"])
def test_the_certificate_holds_by_listed_windows_and_is_worked_out_anew(task: Reach, book: bytes) -> None:
    splits = task.build(None)
    owners: dict[bytes, SplitName] = {}
    for split in SPLITS:
        for first in range(0, len(splits[split]), task.twins):
            twins = np.stack([splits[split].sequence(first + at) for at in range(task.twins)])
            labels = splits[split].y[first : first + task.twins]
            assert 2 * labels.sum() == task.twins
            apart = int(np.diff(np.flatnonzero(twins[0] >= task.symbols))[0])
            rows = [(*[-1] * apart, *row, *[-1] * apart) for row in twins.tolist()]
            listed = [Counter(row[at : at + apart] for at in range(len(row) - apart + 1)) for row in rows]
            assert all(windows == listed[0] for windows in listed)
            key = np.minimum(twins[0], task.symbols).tobytes()
            assert owners.setdefault(key, split) == split
    assert task.certify(splits).faults == ()
    test = splits["test"]
    x = test.x.copy()
    x[np.flatnonzero(x[: task.max_length] >= task.symbols)[0] - 1] = 0  # a byte of one gap of one twin
    fault, told = task.certify({**splits, "test": replace(test, x=x)}).faults
    assert fault.startswith(f"test: example 0 has 1 of the {task.twins} orders")
    assert told == f"test: windows of {task.range} steps tell the twins of example 0 apart"


def test_longer_sequences_are_of_the_same_text(book: bytes) -> None:
    longer = TWO.at_length(2 * TWO.max_length, 20)
    assert longer.text == "book.txt" and longer.range > 20 and longer.certify(longer.build(None)).faults == ()


def test_a_text_is_known_by_its_content_and_no_text_by_what_it_was(book: bytes) -> None:
    ids = digest(TWO)
    Path("elsewhere").mkdir()
    Path("elsewhere/copy.txt").write_bytes(book)
    assert digest(replace(TWO, text="elsewhere/copy.txt")) == ids != digest(replace(TWO, text=None))
    Path("book.txt").write_bytes(book[::-1])
    assert digest(TWO) != ids
    # of the default settings before there was such a field: folders of prepared arrays are named by it
    assert digest(Reach()).startswith("8443c1cd149a")


def test_what_does_not_do_is_refused_in_a_sentence(book: bytes) -> None:
    size = f"{len(book):,}"
    with pytest.raises(UserError, match=rf"book.txt has {size} bytes, .*at least 5,000 bytes, or .* at most 2\d\d\."):
        replace(TWO, range=500).build(None)
    with pytest.raises(UserError, match=r"holds the byte 121, but with symbols=16 the marks .*take symbols=122 or"):
        replace(TWO, symbols=16).build(None)
    with pytest.raises(UserError, match=r"nowhere.txt cannot be read"):
        replace(TWO, text="nowhere.txt").build(None)
    with pytest.raises(UserError, match=r"nowhere.txt cannot be read .*: give the path of a file that is there"):
        digest(replace(TWO, text="nowhere.txt"))
    Path("book.txt").write_bytes(b"abc" * 10)
    with pytest.raises(UserError, match=r"at least 120 bytes, or take a range of at most 3\.$"):
        TWO.build(None)
    replace(TWO, range=3, easiest=3).build(None)  # as it is told
    Path("book.txt").write_bytes(b"abc")
    with pytest.raises(UserError, match=r"give a text of at least 20 bytes\.$"):
        replace(TWO, range=2, easiest=2).build(None)
    Path("book.txt").write_bytes(b"")
    with pytest.raises(UserError, match="has 0 bytes"):
        TWO.build(None)


def test_prepare_and_verify_take_it_by_name(book: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    name = "reach(range=12, symbols=128, offset=9, easiest=3, train=60, val=20, test=20, text='book.txt')"
    assert by_name.task(name) == TWO
    main(["data", "prepare", name])
    main(["data", "verify", "reach"])
    assert (
        "Features of up to 12 steps, computed alike at every step and pooled without their places, score exactly 50 %"
        in capsys.readouterr().out
    )
    with pytest.raises(SystemExit) as end:
        main(["data", "prepare", name.replace("128", "64")])
    assert end.value.code == 2 and "none may occur in the filler" in " ".join(capsys.readouterr().err.split())
    Path("book.txt").unlink()  # the arrays are checked all the same
    main(["data", "verify", "reach"])
    assert "sound" in capsys.readouterr().out


def test_arrays_from_before_there_were_texts_have_a_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = prepared.prepare(Reach(5, symbols=6, train=60, val=20, test=20), tmp_path)
    about = json.loads((at / prepared.MANIFEST).read_text())
    del about["settings"]["text"]
    (at / prepared.MANIFEST).write_text(json.dumps(about))
    main(["data", "verify", "reach", "--data", str(tmp_path)])
    assert "Certificate" in capsys.readouterr().out
