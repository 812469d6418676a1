"""Data cards: duplicates that were planted are counted, targets that were spoilt are found, and a page says it."""

from __future__ import annotations

import json
import re
import tarfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import fixtures_cifar
import numpy as np
import pytest
from repository import ROOT
from toy_data import Parity

from levelfield import OwnData, tasks
from levelfield.cli import data_commands
from levelfield.cli.app import main
from levelfield.data import card as cards
from levelfield.data import duplicates, prepared, shingled
from levelfield.data.duplicates import search
from levelfield.data.minhash import BINS, WIDTH, jaccard, shingles, signatures
from levelfield.spec import Examples, Signal, SplitName, Tokens, describe
from levelfield.tasks._listops import second_value
from levelfield.tasks.listops import ListOps
from levelfield.tasks.recall import Recall
from levelfield.tasks.scifar import SCifar

RNG = np.random.default_rng(0)
PAGES = ROOT / "docs" / "cards"
KNOWN = tasks.modules()


def texts(*counts: int, length: int = 200) -> list[np.ndarray]:
    return [RNG.integers(0, 256, length, dtype=np.uint8) for _ in range(sum(counts))]


def splits_of(train: list[np.ndarray], val: list[np.ndarray], test: list[np.ndarray]) -> Mapping[SplitName, Examples]:
    each: dict[SplitName, list[np.ndarray]] = {"train": train, "val": val, "test": test}
    return {split: Examples.of_sequences(rows, np.zeros(len(rows), np.int64)) for split, rows in each.items()}


def test_what_was_planted_is_counted() -> None:
    rows = texts(20)
    found = search(Tokens(256), splits_of(rows[:10] + rows[:3] + rows[:1], rows[10:14], rows[14:] + rows[2:5]))
    assert found.exact == {"train": 4, "val": 0, "test": 0, "train+val": 0, "train+test": 3, "val+test": 0}
    assert found.near["train in train"] == 7 and found.near["test in train"] == 3 and found.near["val in train"] == 0
    assert found.conflicts == 0 and found.documents == {}


def test_a_sequence_with_two_targets_is_a_conflict() -> None:
    rows = texts(4)
    splits = dict(splits_of(rows[:3], rows[3:], [rows[0]]))
    splits["test"] = replace(splits["test"], y=np.array([1]))
    assert search(Tokens(256), splits).conflicts == 1


def test_where_documents_end_makes_a_difference() -> None:
    """ab+c and a+bc have the same symbols and are other pairs; a single document that is in two splits is counted."""
    a, b, c = texts(3)

    def pair(one: np.ndarray, two: np.ndarray) -> Examples:
        return Examples.of_sequences([one, two], np.zeros(1, np.int64), documents=2)

    splits: dict[SplitName, Examples] = {
        "train": pair(np.concatenate([a, b]), c),
        "val": pair(a, np.concatenate([b, c])),
        "test": pair(c, a),
    }
    found = search(Tokens(256), splits)
    assert set(found.exact.values()) == {0}
    assert found.documents["train+test"] == 1 and found.documents["val+test"] == 1 and found.documents["train+val"] == 0


@pytest.mark.slow
def test_the_published_count_of_reviews_in_train_and_test(test_data: Path) -> None:
    """123 texts of the Large Movie Review Dataset are in both of its official splits."""
    archive = next((test_data / "imdb").glob("aclImdb*.tar*"), None)
    if archive is None:
        pytest.skip("there is no IMDb archive in LEVELFIELD_TEST_DATA")
    rows: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    with tarfile.open(archive) as tar:
        for member in tar:
            if re.search(r"/(train|test)/(pos|neg)/", member.name) and (file := tar.extractfile(member)) is not None:
                rows["train" if "/train/" in member.name else "test"].append(np.frombuffer(file.read(), np.uint8))
    assert len(rows["train"]) == len(rows["test"]) == 25_000
    few = splits_of(rows["train"], texts(1), rows["test"])
    keys = {split: duplicates.hashed(few[split], 1) for split in ("train", "test")}  # without the search for near ones
    assert duplicates.repeats(keys)["train+test"] == 123


def plain_shingles(row: np.ndarray) -> set[bytes]:
    width = min(WIDTH, len(row))
    return {row[i : i + width].tobytes() for i in range(len(row) - width + 1)}


@pytest.mark.parametrize("length", [1, 5, WIDTH - 1, WIDTH, WIDTH + 1, 300])
def test_shingles_are_those_of_a_set_of_slices(length: int) -> None:
    rows = [RNG.integers(0, 3, length, dtype=np.uint8) for _ in range(30)]
    for a, b in pairwise(rows):
        one, two = plain_shingles(a), plain_shingles(b)
        assert len(np.unique(shingles(a))) == len(one)
        assert jaccard(a, b) == pytest.approx(len(one & two) / len(one | two))
        assert jaccard(a, a) == 1


def changed(row: np.ndarray, places: int) -> np.ndarray:
    out = row.copy()
    for place in RNG.choice(len(row), places, replace=False):
        out[place] = (out[place] + RNG.integers(1, 256)) % 256
    return out


def test_signatures_agree_as_often_as_the_sets_do() -> None:
    """Within four standard errors of the binomial, over similarities from 0 to 1, and densely for few shingles."""
    for length in (20, 60, 2000):
        shares, similar = [], []
        for cut in np.linspace(0, length - WIDTH, 40).astype(int):
            base = RNG.integers(0, 256, length, dtype=np.uint8)
            other = np.concatenate([base[cut:], RNG.integers(0, 256, cut, dtype=np.uint8)])
            both = np.concatenate([base, other])
            one, two = signatures(both, np.array([0, length, 2 * length]))
            shares.append(np.mean(one == two))
            similar.append(jaccard(base, other))
        error = 4 * np.sqrt(0.25 / min(BINS, length - WIDTH) / len(shares))
        assert abs(np.mean(shares) - np.mean(similar)) < error
        assert shares[0] == similar[0] == 1


@pytest.mark.parametrize("kind", ["uint8", "uint16"])
def test_near_duplicates_are_the_pairs_that_a_comparison_of_all_finds(kind: str) -> None:
    rows = texts(60, length=400)
    rows += [changed(rows[i], places) for i in range(20) for places in (1, 2, 3, 5, 8)]
    order = RNG.permutation(len(rows))
    rows = [rows[i].astype(kind) for i in order]
    train, val, test = rows[:100], rows[100:130], rows[130:]
    found = search(Tokens(256), splits_of(train, val, test))
    sets = [plain_shingles(row) for row in rows]
    alike = [
        (i, j) for i, j in combinations(range(len(rows)), 2) if len(sets[i] & sets[j]) >= 0.8 * len(sets[i] | sets[j])
    ]
    assert len(alike) > 50
    assert found.near["test in train"] == len({j for i, j in alike if i < 100 and j >= 130})
    assert found.near["train in train"] == len({k for pair in alike if max(pair) < 100 for k in pair})
    assert found.near["test in val"] == len({j for i, j in alike if 100 <= i < 130 <= j})


def pictures(count: int, channels: int = 3) -> np.ndarray:
    """(count, 1024, channels) uint8, smooth as photographs are."""
    coarse = RNG.random((count, 8, 8, channels))
    fine = coarse.repeat(4, 1).repeat(4, 2)
    return (255 * fine).astype(np.uint8).reshape(count, 1024, channels)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_that_is_brighter_or_noisy_is_alike_and_another_is_not(channels: int) -> None:
    base = pictures(12, channels)
    brighter = np.clip(base[:4].astype(int) // 2 + 90, 0, 255).astype(np.uint8)
    noisy = np.clip(base[4:8] + RNG.normal(0, 12, base[4:8].shape), 0, 255).astype(np.uint8)
    splits: dict[SplitName, Examples] = {
        "train": Examples.of_equal_length(base, np.arange(12)),
        "val": Examples.of_equal_length(brighter, np.arange(4)),
        "test": Examples.of_equal_length(np.concatenate([noisy, pictures(6, channels)]), np.arange(10)),
    }
    found = search(Signal(channels, (0.0,) * channels, (1.0,) * channels), splits)
    assert found.near["val in train"] == 4 and found.near["test in train"] == 4 and found.near["train in train"] == 0
    assert "8 x 8" in found.measure


def test_signals_of_any_length_are_compared_by_correlation() -> None:
    waves = [np.cumsum(RNG.normal(size=(300 + 7 * i, 2)), 0).astype(np.float32) for i in range(20)]
    louder = [3 * wave + 5 for wave in waves[:4]]
    noisy = [wave + RNG.normal(0, 5 * wave.std(0), wave.shape).astype(np.float32) for wave in waves[4:8]]
    found = search(Signal(2, (0.0, 0.0), (1.0, 1.0)), splits_of(waves, louder, noisy))
    assert found.near["val in train"] == 4 and found.near["test in train"] == 0 and found.near["train in train"] == 0


@pytest.mark.slow
def test_pictures_of_cifar_that_people_judged_alike(test_data: Path) -> None:
    """33 test pictures, as the module's text says; how many of them are on the public list is said there as well."""
    folder = test_data / "cifar10"
    if not folder.is_dir():
        pytest.skip("there is no cifar10 in LEVELFIELD_TEST_DATA")
    task = tasks.find("scifar_15k")
    found = search(task.input, task.build(folder))
    assert found.near["test in train"] == 31 and found.near["test in val"] == 2
    assert set(found.exact.values()) == {0}


def test_the_card_counts_what_is_there() -> None:
    task = Recall(pairs=6, train=60, val=20, test=20)
    splits = task.build(None)
    card = cards.make(task, splits)
    assert card.examples == {"train": 60, "val": 20, "test": 20}
    assert card.steps["train"] == (13, 13, 13, 13)
    assert {int(k): v for k, v in card.balance["train"].items()} == Counter(splits["train"].y.tolist())
    assert card.baselines == task.baselines(splits["train"], splits["test"]) and card.chance == 1 / 8
    assert card.relabelled and card.faults == ()
    assert json.loads(cards.to_json(card))["found"]["exact"]["train+test"] == 0


@pytest.mark.parametrize(("output", "head", "first"), [("label", "class", ""), ("labels", "label", "with ")])
def test_classes_of_own_data_are_called_by_their_names(tmp_path: Path, output: str, head: str, first: str) -> None:
    """One of them is like a quantile, and one has what ends a cell of the table."""
    cells = ["5: bad", "a|b"] if output == "label" else ["5: bad; a|b", "5: bad"]
    rows = [{"body": f"text {i}", "y": cells[i % 2].split("; ") if first else cells[i % 2]} for i in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = ("y",) if first else "y"
    task = OwnData(str(tmp_path / "a.jsonl"), text="body", **{output: named})
    splits = task.build(None)
    text = cards.markdown(cards.make(task, splits))
    y = np.asarray(splits["train"].y)
    share = y.mean(0) if first else np.array([(y == 0).mean(), (y == 1).mean()])
    assert f"| {head} | train | val | test |" in text
    assert f"\n| {first}5: bad | {share[0]:.3f} | " in text and f"\n| {first}a\\|b | {share[1]:.3f} | " in text


def test_quantiles_of_lengths() -> None:
    rows = [np.zeros(length, np.uint8) for length in range(1, 101)]
    steps = cards.make(Parity(), splits_of(rows, rows[:1], rows[:1])).steps
    assert steps["train"] == (1, 50, 95, 100)


def test_a_wrong_target_and_an_overlap_of_generated_splits_are_faults() -> None:
    task = Recall(pairs=6, train=60, val=20, test=20)
    splits = dict(task.build(None))
    y = splits["val"].y.copy()
    y[7] = (y[7] + 1) % 8
    splits["val"] = replace(splits["val"], y=y)
    splits["test"] = splits["train"].take(np.arange(20))
    wrong, overlap = cards.make(task, splits).faults
    assert wrong == "1 target of val is not what its sequence says, first at 7"
    assert overlap == "20 examples are in both train+test"


def test_an_overlap_of_official_splits_is_told_and_no_fault(tmp_path: Path) -> None:
    task = SCifar(train=100, test=40)
    splits = dict(task.build(fixtures_cifar.write(tmp_path, "python")))
    splits["test"] = splits["train"].take(np.arange(5))
    card = cards.make(task, splits, ("picture 172 is empty",))
    assert card.faults == () and card.remarks == ("picture 172 is empty", "5 examples are in both train+test")


def test_symbols_and_lengths_outside_what_is_declared_are_faults() -> None:
    rows = [np.full(31, 10, np.uint8)]
    faults = cards.make(Parity(), splits_of(rows, [rows[0] - 1], [rows[0] - 2])).faults
    assert "train has sequences outside 1 to 30 steps" in faults
    assert "train has symbols outside 0 to 9" in faults and "val has symbols outside 0 to 9" not in faults


def test_the_page_says_all_of_it() -> None:
    task = Recall(pairs=6, train=60, val=20, test=20)
    page = cards.markdown(cards.make(task, task.build(None), ("one empty picture",)))
    for words in ("# recall: data card", task.split_rule, task.source, "pairs=6", "last_value", "0.125", "Jaccard"):
        assert words in page
    assert "Notes on the files:\n\n- one empty picture" in page and "Errors:\n\n- none found" in page
    for table in re.findall(r"(?:^\|.*\|\n?)+", page, re.MULTILINE):
        assert len({row.count("|") for row in table.strip().splitlines()}) == 1


def test_many_classes_are_summed_up() -> None:
    task = Recall(values=40, train=2000)
    page = cards.markdown(cards.make(task, task.build(None)))
    assert "of 40 classes" in page and "rarest" in page and "| 17 |" not in page


def test_every_task_but_those_of_archives_has_a_card_in_the_docs() -> None:
    """Of one of its settings. Where all are of archives, there is one if somebody had them."""
    kept = {path.stem for path in PAGES.glob("*.md")}
    made = {
        file: set(module.TASKS) for file, module in KNOWN.items() if not all(t.archives for t in module.TASKS.values())
    }
    assert {"needle", "listops"} <= set(made)
    assert [file for file, names in made.items() if not names & kept] == [], "run python docs/scripts/cards.py"


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_cards_in_the_docs_are_of_todays_tasks(path: Path) -> None:
    """Version and settings, source and split rule; without a fault."""
    task, page = tasks.find(path.stem), path.read_text()
    settings = ", ".join(f"{name}={value}" for name, value in describe(task).items() if name != "kind")
    for line in (f"# {task.name}: data card", f"- **Settings.** {settings}", f"- **Splits.** {task.split_rule}"):
        assert line in page.splitlines()
    assert f"- **Source.** {' '.join(task.source.split())}\n" in page
    assert page.endswith("Errors:\n\n- none found\n")


OPERATORS = {10: max, 11: lambda v: int(np.median(v)), 12: min, 13: lambda v: sum(v) % 10}


def naive(tokens: list[int]) -> int:
    """By plain recursion from the left."""
    first = tokens.pop(0)
    if first < 10:
        return first
    arguments = []
    while tokens[0] != 14:
        arguments.append(naive(tokens))
    tokens.pop(0)
    return OPERATORS[first](arguments)


def test_values_are_those_of_a_plain_recursion() -> None:
    examples = ListOps(minimum=2, length=60, max_depth=5, train=300, val=1, test=1).build(None)["train"]
    expected = [naive(examples.sequence(i).tolist()) for i in range(len(examples))]
    assert second_value.values(examples.x, examples.offsets).tolist() == expected == examples.y.tolist()


@pytest.mark.parametrize(
    "tokens", [[10], [10, 14], [14], [10, 1], [1, 2], [10, 1, 14, 14], [10, 1, 14, 2], [10, 11, 1, 14]]
)
def test_what_is_no_expression_has_no_value(tokens: list[int]) -> None:
    assert second_value.values(np.array(tokens, np.uint8), np.array([0, len(tokens)])).tolist() == [-1]


def test_verify_prints_the_card_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Recall(pairs=6, train=60, val=20, test=20)
    at = prepared.prepare(task, tmp_path)
    main(["data", "verify", "recall", "--data", str(tmp_path)])
    said = capsys.readouterr().out
    assert f"{at}: sound" in said and "# recall: data card" in said
    kept = json.loads((at / cards.CARD).read_text())
    assert kept["task"] == "recall" and kept["settings"]["pairs"] == 6
    assert prepared.verify(at) == [], "the card beside the arrays is no fault"


def test_verify_of_a_task_with_settings_checks_its_folder_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a bare name it checks all folders, and its last line names those that are not sound."""
    few, more = (Recall(pairs=pairs, train=60, val=20, test=20) for pairs in (6, 7))
    at, other = (prepared.prepare(task, tmp_path) for task in (few, more))
    (other / "train.y.npy").write_bytes(b"")
    name = "recall(pairs={}, train=60, val=20, test=20)"
    main(["data", "verify", name.format(6), "--data", str(tmp_path)])
    said = capsys.readouterr().out
    assert f"{at}: sound" in said and str(other) not in said and "Sound:" not in said
    with pytest.raises(SystemExit) as end:
        main(["data", "verify", name.format(7), "--data", str(tmp_path)])
    assert end.value.code == 1 and str(at) not in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        main(["data", "verify", "recall", "--data", str(tmp_path)])
    last = capsys.readouterr().out.splitlines()[-1]
    assert end.value.code == 1 and last == f"Sound: 1 of 2 folders. Not sound: {other}."
    with pytest.raises(SystemExit) as end:
        main(["data", "verify", name.format(8), "--data", str(tmp_path)])
    said = " ".join(capsys.readouterr().err.split())
    assert end.value.code == 2 and f"levelfield data prepare '{name.format(8)}'" in said
    assert "levelfield data verify recall`" in said


def test_verify_fails_where_the_generator_made_a_wrong_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Recall._examples

    def wrong(self: Recall, x: np.ndarray) -> Examples:
        examples = right(self, x)
        return replace(examples, y=(examples.y + 1) % 8)

    monkeypatch.setattr(Recall, "_examples", wrong)
    prepared.prepare(Recall(pairs=6, train=60, val=20, test=20), tmp_path)
    said: list[str] = []
    assert not data_commands.verify("recall", tmp_path, said.append)
    assert "60 targets of train are not what their sequences say" in said[0]


def test_arrays_of_an_unknown_task_are_checked_without_a_card(tmp_path: Path) -> None:
    prepared.prepare(Parity(), tmp_path)
    said: list[str] = []
    assert data_commands.verify("all", tmp_path, said.append)
    assert len(said) == 1 and said[0].endswith("sound")


def test_sequences_of_mostly_one_filler_are_counted_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of selective copying, where nearly any two share most shingles: by signatures, and the card says so."""
    monkeypatch.setattr(shingled, "CANDIDATES", 5_000)
    monkeypatch.setattr(shingled, "MEASURED", 1_000)
    rows = np.zeros((400, 600), np.uint8)
    for row in rows:
        row[RNG.choice(600, 12, replace=False)] = RNG.integers(1, 3, 12)
    found = search(Tokens(3), splits_of(list(rows[:300]), list(rows[300:350]), list(rows[350:])))
    assert "estimated" in found.measure and found.near["train in train"] > 50
    signature = signatures(rows.reshape(-1), np.arange(401) * 600)
    assert len(shingled.candidates(signature)[0]) <= 5_000 + len(rows) * BINS // shingled.BAND
