"""Several labels of an example in a user's own file: read from every form alike, trained, audited, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from levelfield import OwnData
from levelfield.data import card as cards
from levelfield.data import conformance
from levelfield.data.audit import shallow
from levelfield.data.audit.facts import facts
from levelfield.engine.audit import floor
from levelfield.engine.restore import restore
from levelfield.files import read_rows
from levelfield.mixers.conv import Conv
from levelfield.objectives import default_objective
from levelfield.presets import audit
from levelfield.protocols import scratch
from levelfield.run import execute
from levelfield.runs import store
from levelfield.spec import SPLITS, Block, Duration, LabelSet, Model, Recipe, Run, UserError, describe, digest
from levelfield.user import own_columns, own_data
from levelfield.user.own_labels import label_sets

NAMES = ("love", "sea", "war")
WORDS = {"war": "gun", "love": "kiss", "sea": "ship"}


def rows(count: int = 240) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        tags = [tag for tag, p in zip(NAMES, (0.4, 0.3, 0.2), strict=True) if rng.random() < p]
        words = [*(WORDS[tag] for tag in tags), *rng.choice(["the", "of", "to"], 6)]
        made.append(
            {"plot": " ".join(rng.permutation(words)), "tags": tags, "title": "two words"}
            | {t: int(t in tags) for t in NAMES}
        )
    return made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "films.jsonl").write_text("\n".join(map(json.dumps, rows())))
    return tmp_path


def film(path: str = "films.jsonl", labels: Sequence[str] = ("tags",)) -> OwnData:
    return OwnData(path, symbols="plot", labels=tuple(labels))


def csv(write: Callable[[list[str]], str]) -> str:
    return "\n".join(["plot,tags", *(f"{row['plot']},{write(row['tags'])}" for row in rows())])


WRITTEN: dict[str, Callable[[list[str]], str]] = {
    "semicolons": lambda tags: "; ".join(tags) or "[]",
    "bars": lambda tags: "|".join(tags) or "[]",
    "commas": lambda tags: f'"{", ".join(tags)}"' if tags else "[]",
    "json": lambda tags: '"' + json.dumps(tags).replace('"', '""') + '"',
    "python": lambda tags: f'"{tags}"',
}


@pytest.mark.parametrize("form", WRITTEN)
def test_every_way_to_write_a_set_gives_the_same(here: Path, form: str) -> None:
    (here / "films.csv").write_text(csv(WRITTEN[form]))
    one, other = film(), film("films.csv")
    assert other.classes == one.classes == NAMES and other.output == LabelSet(3)
    for split in SPLITS:
        assert (other.build(None)[split].y == one.build(None)[split].y).all()


def test_columns_of_yes_and_no_give_the_same(here: Path) -> None:
    one, other = film(), film(labels=NAMES)
    assert other.classes == NAMES and digest(one) != digest(other)
    assert all((one.build(None)[s].y == other.build(None)[s].y).all() for s in SPLITS)
    names, y = label_sets([["Yes", "0", 1, None], ["no", "TRUE", 0.0, "1"]], ("a", "b"))
    assert names == ("a", "b") and y.tolist() == [[1, 0], [0, 1], [1, 0], [-1, 1]]


def test_an_empty_cell_is_left_out_and_an_empty_set_is_not(here: Path) -> None:
    (here / "films.csv").write_text(csv(";".join))
    task = film("films.csv")
    none = sum(not row["tags"] for row in rows())
    with pytest.warns(UserWarning, match=rf"{none} of 240 rows .* were left out. Where .* write \[\]"):
        kept = sum(len(split) for split in task.build(None).values())
    assert kept == 240 - none and sum(len(split) for split in film().build(None).values()) == 240


def test_arrays_of_zeros_and_ones(here: Path) -> None:
    folder = here / "a"
    folder.mkdir()
    y = np.random.default_rng(0).integers(0, 2, (40, 3))
    np.save(folder / "x.npy", np.arange(160).reshape(40, 4) % 7)
    np.save(folder / "y.npy", y)
    task = OwnData("a", labels=("y",))
    found = {tuple(s.sequence(i)): s.y[i].tolist() for s in task.build(None).values() for i in range(len(s))}
    assert task.output == LabelSet(3) and len(found) <= 40
    assert sum(len(s) for s in task.build(None).values()) == 40
    np.save(folder / "y.npy", y + 1)
    with pytest.raises(UserError, match="give 0 and 1"):
        OwnData("a", labels=("y",)).output  # noqa: B018  # reads the file


def test_its_identity_is_kept_and_tasks_without_sets_keep_theirs(here: Path) -> None:
    task = film()
    assert own_data.from_word(repr(task)) == task and restore(describe(task)) == task
    assert "labels" not in describe(OwnData("films.jsonl", symbols="plot", label="war"), identity=True)


BAD: dict[str, tuple[Callable[[], OwnData], str]] = {
    "a column of one label": (lambda: film(labels=["war"]), "never has two labels in a cell: name it with --label"),
    "names of two words": (lambda: film(labels=["title"]), "never has two labels in a cell"),
    "no such column": (lambda: film(labels=["tag"]), "no column 'tag' for --labels: did you mean"),
    "text among yes and no": (lambda: film(labels=["war", "title"]), "with 1 or 0, yes or no"),
    "two kinds of output": (lambda: OwnData("films.jsonl", symbols="plot", label="war", labels=("tags",)), "leave out"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_unclear_is_refused_in_a_sentence(here: Path, case: str) -> None:
    make, sentence = BAD[case]
    with pytest.raises(UserError, match=sentence):
        make().output  # noqa: B018  # reads the file


def test_card_facts_and_guesses_count_labels(here: Path) -> None:
    task, splits = film(), film().build(None)
    conformance.check(task, splits)
    shares = {name: float(splits["train"].y[:, at].mean()) for at, name in enumerate(NAMES)}
    page = cards.markdown(cards.make(task, splits))
    assert f"| with love | {shares['love']:.3f} |" in page
    told = {row.get("metric"): row.get("value") for row in facts(task, splits) if row.get("split") == "train"}
    assert told["labels"] == pytest.approx(sum(shares.values())) and "largest_class" not in told
    assert 0.2 < task.chance < task.baselines(splits["train"], splits["test"])["label_prior"] < 0.7
    assert floor(task, splits["train"], splits["test"]).mean() == pytest.approx(
        task.baselines(splits["train"], splits["test"])["label_prior"]
    )


def test_rules_without_a_sequence_find_words_that_decide(here: Path) -> None:
    task, splits = film(), film().build(None)
    words = shallow.score(task, splits, shallow.PROBES["1-grams"])
    assert words.test.mean() > 0.95 > 0.7 > shallow.score(task, splits, shallow.PROBES["first 1"]).test.mean()


def test_a_run_learns_it_and_its_rows_say_f1(here: Path) -> None:
    task = film()
    recipe = Recipe(
        lr=1e-2,
        weight_decay=0.0,
        batch=32,
        budget=Duration(150, "steps"),
        warmup=Duration(5, "steps"),
        schedule="constant",
        clip=1.0,
        validate_every=Duration(50, "steps"),
    )
    model = Model((Conv(3, hidden=16),), 1, 16, block=Block(feedforward=32))
    run = Run(task, model, scratch(recipe, default_objective(task)), seed=0)
    execute(run, here / "run", here / "data")
    found = {(row.get("model"), row.get("split")): row for row in read_rows(here / "run" / store.ROWS)}
    own = found["conv", "test"]
    assert own["metric"] == "f1" and own["unit"] == "fraction" and own["status"] == "ok"
    assert own["value"] > 0.9 > found["label_prior", "test"]["value"] > found["chance", "test"]["value"]


def test_an_audit_has_all_its_arms(here: Path) -> None:
    names = {run.model.label for run in audit.runs(film(), "smoke")}
    assert {"window1", "window5", "within8", "across8", "unordered", "s4", "attention"} <= names


def test_names_of_classes_have_one_order_whatever_order_they_are_met_in() -> None:
    """As a number, NAN is neither above nor below others, and a set of texts has another order in every process."""
    names = ["1", "2", "10", "NAN", "a", "-inf"]
    orders = {tuple(sorted(order, key=own_columns.by_number)) for order in permutations(names)}
    assert orders == {("-inf", "1", "2", "10", "NAN", "a")}
