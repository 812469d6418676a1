"""Digits: the pictures that come with levelfield are UCI's, and splits are cut between filled-in forms."""

from __future__ import annotations

import difflib
import hashlib
from pathlib import Path

import numpy as np
import pytest

from levelfield.data import croissant, prepared
from levelfield.spec import SPLITS, UserError
from levelfield.tasks.digits import FILE, FORMS, Digits

SPLIT = Digits().build(None)
X = np.concatenate([SPLIT[split].x.reshape(-1, 64) for split in SPLITS])
Y = np.concatenate([SPLIT[split].y for split in SPLITS])


def test_facts_that_uci_states() -> None:
    """Of optdigits.tes: 1,797 instances with 64 values of 0..16 and one of ten digits, so many of each."""
    assert X.shape == (1_797, 64) and (X.min(), X.max()) == (0, 16)
    assert np.bincount(Y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() in Digits.source


def test_the_first_picture_is_a_zero_row_after_row() -> None:
    """As it is printed in scikit-learn's documentation of digits.images[0]."""
    printed = """
        0 0 5 13 9 1 0 0   0 0 13 15 10 15 5 0   0 3 15 2 0 11 8 0   0 4 12 0 0 8 8 0
        0 5 8 0 0 9 8 0   0 4 11 0 1 12 7 0   0 2 14 5 10 12 0 0   0 0 6 13 10 0 0 0"""
    assert SPLIT["train"].sequence(0)[:, 0].tolist() == [int(value) for value in printed.split()]


@pytest.mark.peers
def test_arrays_are_those_of_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed: pip install scikit-learn")
    x, y = datasets.load_digits(return_X_y=True)
    np.testing.assert_array_equal(X, x)
    np.testing.assert_array_equal(Y, y)


def test_splits_are_cut_between_forms_of_one_order_of_digits() -> None:
    """Every form has the first one's order of digits, but for gaps and single other digits. All begin with 0 to 9, but
    for one whose 0 is missing."""
    forms = ["".join(map(str, Y[first:end])) for first, end in zip(FORMS, (*FORMS[1:], len(Y)))]
    assert [form[:9] for form in forms] == ["012345678"] * 7 + ["123456789"] + ["012345678"] * 6
    assert all(difflib.SequenceMatcher(None, forms[0], form, False).ratio() > 0.95 for form in forms)
    kept = [np.unique(SPLIT[split].slices["form"]).tolist() for split in SPLITS]
    assert kept == [list(range(9)), [9, 10], [11, 12, 13]]
    for examples in SPLIT.values():
        assert np.bincount(examples.y).min() > 0.09 * len(examples), "classes are nearly balanced"


def test_the_nearest_training_picture_has_the_label_of_most_test_pictures() -> None:
    """363 of 382, as scikit-learn's KNeighborsClassifier(1) counts as well: pictures and labels belong together."""
    train, test = (SPLIT[split].x.reshape(-1, 64).astype(float) for split in ("train", "test"))
    nearest = ((train**2).sum(1) - 2 * test @ train.T).argmin(1)
    assert (SPLIT["train"].y[nearest] == SPLIT["test"].y).sum() == 363


def test_inputs_are_standardised_and_a_part_is_the_first_pictures() -> None:
    signal = Digits().input
    values = (SPLIT["train"].x - signal.shift[0]) / signal.scale[0]
    assert abs(values.mean()) < 0.01 and abs(values.std() - 1) < 0.01
    part = Digits(train=300, test=7).build(None)
    np.testing.assert_array_equal(part["train"].x, SPLIT["train"].x[: 300 * 64])
    assert [len(part[split]) for split in SPLITS] == [300, 258, 7]


@pytest.mark.parametrize("settings", [{"train": 1_158}, {"val": 0}, {"test": 383}])
def test_a_part_that_is_not_there_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(UserError, match=r"^Digits has 1 to [\d,]+ pictures in (train|val|test), not \d+\.$"):
        Digits(**settings)


def test_whoever_describes_the_arrays_names_their_licence_and_not_levelfield_as_creator(tmp_path: Path) -> None:
    task = Digits(train=20, val=10, test=10)
    about = croissant.metadata(task, prepared.prepare(task, tmp_path))
    assert about["license"].endswith("/CC-BY-4.0") and "Kaynak" in about["citeAs"]
    assert "creator" not in about and "generated" not in about["description"]
