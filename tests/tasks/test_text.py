"""Text: reviews read from every form, cut, turned into symbols and split as declared, against plain Python."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import fixtures_imdb
import numpy as np
import pytest
from fingerprints import fingerprint
from fixtures_imdb import FORMS, Form, reviews, write

from levelfield.spec import SPLITS, Examples, SplitName, UserError
from levelfield.tasks._texts import imdb
from levelfield.tasks._texts import naive_bayes as _words
from levelfield.tasks.text import CHARACTERS, EDGES, END, TASKS, UNKNOWN, Text

SMALL = Text(length=600, train=60, val=4, test=80)
MOST: dict[SplitName, int] = {"train": 60, "val": 4, "test": 80}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("imdb"), "gz")


def begins(text: bytes) -> bytes:
    return text[: imdb.PREFIX]


def expected() -> dict[SplitName, list[tuple[str, bytes]]]:
    """Names and texts by the declared rule: in order of number, negative before positive."""
    texts = reviews()

    def order(name: str) -> tuple[int, str]:
        return int(name.split("/")[2].split("_")[0]), name.split("/")[1]

    held = {begins(text) for name, text in texts.items() if name.startswith("test")}
    parts: dict[SplitName, list[tuple[str, bytes]]] = {"train": [], "val": [], "test": []}
    for name in sorted(texts, key=order):
        text = texts[name]
        if name.startswith("test"):
            parts["test"].append((name, text))
        elif begins(text) not in held:
            share = int(hashlib.sha256(begins(text)).hexdigest()[:16], 16) / 16**16
            parts["val" if share < 0.1 else "train"].append((name, text))
    return {split: rows[: MOST[split]] for split, rows in parts.items()}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_arrays(form: Form, copy: Path, tmp_path: Path) -> None:
    assert fingerprint(SMALL.build(write(tmp_path, form))) == fingerprint(SMALL.build(copy))


def test_the_archive_itself_may_be_given(copy: Path) -> None:
    assert fingerprint(SMALL.build(copy / fixtures_imdb.ARCHIVES["gz"])) == fingerprint(SMALL.build(copy))


def test_splits_labels_and_slices_are_those_of_the_files(copy: Path) -> None:
    splits, rule = SMALL.build(copy), expected()
    for split in SPLITS:
        found, rows = splits[split], rule[split]
        assert len(found) == len(rows) == MOST[split]
        assert found.y.tolist() == [int("/pos/" in name) for name, _ in rows]
        assert found.slices["stars"].tolist() == [int(name[:-4].split("_")[1]) for name, _ in rows]
        for bucket, (_, text) in zip(found.slices["length"], rows, strict=True):
            first, last = str(bucket).split("-")
            assert int(first) <= len(text) <= (int(last) if last else math.inf)
    assert {"0000-0499", "1000-1999", "4000-"} <= set(splits["test"].slices["length"].tolist())


def test_bytes_are_the_files_bytes(copy: Path) -> None:
    splits = SMALL.build(copy)
    for split, rows in expected().items():
        assert [splits[split].sequence(i).tobytes() for i in range(len(rows))] == [text[:600] for _, text in rows]


def test_characters_are_looked_up_one_by_one(copy: Path) -> None:
    places = {c: i for i, c in enumerate(CHARACTERS)}
    splits = Text("characters", 600, **MOST).build(copy)
    for split, rows in expected().items():
        for i, (_, text) in enumerate(rows):
            plain = [places.get(c, UNKNOWN) for c in text.decode()[:599]] + [END]
            assert splits[split].sequence(i).tolist() == plain
    assert UNKNOWN in splits["test"].x and places["é"] in splits["test"].x and splits["test"].x.dtype == np.uint8


def test_another_length_is_the_same_reviews(copy: Path) -> None:
    long, short = SMALL.at_length(4000).build(copy), SMALL.at_length(200, examples=4).build(copy)
    for split in SPLITS:
        assert len(short[split]) == 4
        for i in range(4):
            assert np.array_equal(short[split].sequence(i), long[split].sequence(i)[:200])


def test_a_review_of_train_that_is_also_in_test_is_left_out(tmp_path: Path) -> None:
    texts = reviews()
    names = [name for name in texts if name.startswith("train/pos")]
    shared = begins(next(text for name, text in texts.items() if name.startswith("test"))) + b" and more"
    texts[names[0]] = shared
    before = SMALL.build(write(tmp_path / "before", "folder"))
    after = Text(length=600, train=59, val=4, test=80).build(write(tmp_path / "after", "folder", texts))
    kept = {after["train"].sequence(i).tobytes() for i in range(59)}
    assert begins(shared) not in {begins(text) for text in kept}
    assert np.array_equal(before["test"].x, after["test"].x)


def test_versions_of_one_review_fall_into_one_split() -> None:
    def review(number: int, end: bytes) -> imdb.Review:
        return imdb.Review(b"", "train", "pos", number, 9, b"%0120d" % number + end)

    parts = imdb.splits([review(n, end) for n in range(500) for end in (b"", b" again")])
    numbers = {split: Counter(r.number for r in part) for split, part in parts.items()}
    assert set(numbers["train"].values()) == set(numbers["val"].values()) == {2}
    assert 30 <= len(numbers["val"]) <= 70  # a tenth of 500, give or take three deviations


def test_without_files_it_says_where_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"aclImdb_v1.tar.gz from https://ai.stanford.edu"):
        SMALL.build(None)
    with pytest.raises(UserError, match=r"neither aclImdb_v1.tar.gz nor a folder aclImdb"):
        SMALL.build(tmp_path)


def test_a_part_of_the_set_is_not_taken_for_the_whole(copy: Path) -> None:
    with pytest.raises(UserError, match="holds 80 of 25,000 train reviews"):
        Text().build(copy)
    with pytest.raises(UserError, match=r"gives \d train reviews|gives \d\d train reviews"):
        Text(train=100, val=1, test=1).build(copy)


@pytest.mark.parametrize("form", ["gz", "xz", "tar"])
def test_a_cut_archive_is_named(form: Form, tmp_path: Path) -> None:
    path = write(tmp_path, form) / fixtures_imdb.ARCHIVES[form]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=f"{path.name} is no tar archive or damaged"):
        SMALL.build(tmp_path)


def test_another_file_under_its_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "aclImdb_v1.tar.gz").write_bytes(b"<html>not found</html>" * 100)
    with pytest.raises(UserError, match="is no tar archive or damaged"):
        SMALL.build(tmp_path)


def test_an_empty_review_and_wrong_stars_are_refused(tmp_path: Path) -> None:
    texts = reviews()
    name = next(iter(texts))
    with pytest.raises(UserError, match=f"{name} is empty"):
        SMALL.build(write(tmp_path / "empty", "gz", texts | {name: b""}))
    with pytest.raises(UserError, match=r"test/neg/99_8.txt, but 7 to 10 stars are positive"):
        SMALL.build(write(tmp_path / "stars", "gz", texts | {"test/neg/99_8.txt": b"fine"}))


def test_text_that_is_not_utf8_is_refused_as_characters_only(tmp_path: Path) -> None:
    texts = reviews()
    name = next(n for n in texts if n.startswith("test/neg/0_"))
    folder = write(tmp_path, "folder", texts | {name: b"caf\xe9 " * 40})
    assert SMALL.build(folder)["test"].sequence(0).tobytes() == b"caf\xe9 " * 40
    with pytest.raises(UserError, match="is not UTF-8"):
        Text("characters", 600, **MOST).build(folder)


def test_a_whole_copy_with_other_texts_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the tiny set declared to be the official one; one letter of one review is then changed."""
    texts = reviews()
    official = {}
    for split in ("train", "test"):
        rows = sorted(name for name in texts if name.startswith(split))
        official[split] = hashlib.sha256(b"".join(n.encode() + b"\0" + texts[n] + b"\0" for n in rows)).hexdigest()
    monkeypatch.setattr(imdb, "PER_KIND", fixtures_imdb.PER_KIND)
    monkeypatch.setattr(imdb, "CONTENT", official)
    assert len(SMALL.build(write(tmp_path / "right", "gz"))["test"]) == 80
    changed = next(name for name in texts if name.startswith("test/pos"))
    altered = write(tmp_path / "altered", "gz", texts | {changed: texts[changed] + b"."})
    with pytest.raises(UserError, match=r"The test reviews in .* are not the official ones"):
        SMALL.build(altered)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 100}, "128 to 16,384"),
        ({"level": "words"}, "Text has no level='words'"),
        ({"train": 30_000}, "train=22397"),
        ({"test": 0}, "test=1 to test=25000"),
    ],
)
def test_settings_out_of_range(settings: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Text(**settings)  # pyright: ignore[reportArgumentType]


def words_of(data: bytes) -> tuple[set[str], set[tuple[str, str]]]:
    words = re.findall(r"[\w']+", data.decode("latin-1").lower().replace("_", " "))
    return set(words), set(pairwise(words))


def naive_bayes(train: Examples, test: Examples, pairs: bool) -> float:
    """Multinomial naive Bayes with dictionaries. Buckets never filled count one each, as in the hashed tables."""
    seen: dict[int, Counter[object]] = {0: Counter(), 1: Counter()}
    for i in range(len(train)):
        words, both = words_of(train.sequence(i).tobytes())
        seen[int(train.y[i])].update([*words, *(both if pairs else ())])
    size = (2 if pairs else 1) << _words.BITS
    totals = [size + sum(seen[label].values()) for label in (0, 1)]
    right = 0
    for i in range(len(test)):
        words, both = words_of(test.sequence(i).tobytes())
        score = math.log((train.y.sum() + 1) / ((1 - train.y).sum() + 1))
        for feature in (*words, *(both if pairs else ())):
            score += math.log((seen[1][feature] + 1) / totals[1] * totals[0] / (seen[0][feature] + 1))
        right += (score > 0) == test.y[i]
    return right / len(test)


def opinions(count: int, seed: int) -> Examples:
    """Texts of 5 to 30 words out of sixty, some likelier in one label, with odd gaps between them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, count)
    words = [f"W{i}'s" if i % 3 else f"word{i}" for i in range(60)]
    chances = np.random.default_rng(0).dirichlet(np.ones(60), 2)
    texts = [" -- ".join(rng.choice(words, rng.integers(5, 30), p=0.7 / 60 + 0.3 * chances[label])) for label in y]
    return Examples.of_sequences([np.frombuffer(text.encode(), np.uint8) for text in texts], y)


def test_naive_bayes_equals_one_with_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = opinions(200, seed=1), opinions(100, seed=2)
    plain = [naive_bayes(train, test, pairs) for pairs in (False, True)]
    letters = _words.lookup(bytes(range(256)).decode("latin-1"))
    assert list(_words.accuracies(train, test, letters)) == plain
    assert 0.5 < min(plain) <= max(plain) < 1
    monkeypatch.setattr(_words, "BLOCK", 1000)  # several blocks, cut between documents
    assert list(_words.accuracies(train, test, letters)) == plain


@pytest.mark.parametrize("name", ["text", "text_char"])
def test_words_tell_the_label_at_both_levels(name: str, copy: Path) -> None:
    """Every made-up review of 30 words or more says "great" or "dull", by its label, and never both."""
    task = replace(TASKS[name], **MOST)
    scores = task.baselines(*(task.build(copy)[split] for split in ("train", "test")))
    assert set(scores) == {"label_prior", "words", "word_pairs"} and scores["label_prior"] == 0.5
    assert scores["words"] > 0.9


def test_texts_without_a_word() -> None:
    empty = Examples.of_sequences([np.frombuffer(b"...", np.uint8)] * 3, np.array([1, 1, 0]))
    assert _words.accuracies(empty, empty, _words.lookup("." * 256)) == (2 / 3, 2 / 3)


@pytest.mark.slow
def test_the_official_set(test_data: Path) -> None:
    """Counts, hash (checked on reading), overlap and lengths as counted by others, and published accuracies."""
    found = imdb.read(test_data, "text")
    assert Counter((r.split, r.kind) for r in found) == {(s, k): 12_500 for s in ("train", "test") for k in imdb.KINDS}
    texts = {split: {r.text for r in found if r.split == split} for split in ("train", "test")}
    assert len(texts["train"]) == 24_904 and len(texts["test"]) == 24_801
    assert len(texts["train"] & texts["test"]) == 123
    sizes = np.array([len(r.text) for r in found])
    assert np.median(sizes) == 971 and np.sum(sizes >= 4000) == 1512 and sizes.max() == 13_704
    counts: Counter[str] = Counter()
    for review in found:
        if review.split == "train":
            counts.update(review.text.decode()[:4095])
    assert sorted(c for c in counts if counts[c] >= 15) == list(CHARACTERS)
    with pytest.raises(UserError, match=r"The test reviews .* are not the official ones"):
        imdb._check([found[0]._replace(text=b"good app"), *found[1:]], test_data, imdb.KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["text", "text_char"])
def test_the_official_splits(name: str, test_data: Path) -> None:
    """No sequence is in two splits at the shortest length, and naive Bayes is as good as Wang and Manning print."""
    task = TASKS[name]
    splits = task.at_length(128).build(test_data)
    rows = {s: {splits[s].sequence(i).tobytes() for i in range(len(splits[s]))} for s in SPLITS}
    assert not rows["train"] & rows["val"] and not rows["train"] & rows["test"] and not rows["val"] & rows["test"]
    assert {s: len(splits[s]) for s in SPLITS} == imdb.COUNTS
    whole = task.build(test_data)
    assert whole["val"].y.mean() == pytest.approx(0.5, abs=0.02) and whole["test"].y.mean() == 0.5
    scores = task.baselines(whole["train"], whole["test"])
    assert scores["words"] == pytest.approx(0.8355, abs=0.01)
    assert scores["word_pairs"] == pytest.approx(0.8659, abs=0.01)
    assert len(EDGES) == 4 and set(np.unique(whole["test"].slices["stars"])) == {1, 2, 3, 4, 7, 8, 9, 10}
