"""Groups whose examples all have one target: against plain counting, and on targets that tell nothing of groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from levelfield import OwnData
from levelfield.data.audit.facts import facts, one_target
from levelfield.report.audit.faults import faults
from levelfield.report.audit.reading import Reading
from levelfield.spec import Row


def test_groups_of_several_are_counted_and_those_with_one_target() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 150, 600)
    own = rng.integers(0, 3, 150)
    targets = own[groups]
    for name in (4, 9):  # two groups with several targets are less than one in twenty
        targets[np.flatnonzero(groups == name)[0]] = (own[name] + 1) % 3
    several = [targets[groups == name] for name in range(150) if (groups == name).sum() > 1]
    assert one_target(targets, groups) == (len(several), sum(len(set(each.tolist())) == 1 for each in several))
    assert one_target(targets, groups)[1] == len(several) - 2
    columns = np.stack([targets, 1 - targets], 1) / 10  # several numbers to predict, or labels of a set
    assert one_target(columns, 1_000 - groups) == one_target(targets, groups)
    for name in range(20):
        targets[np.flatnonzero(groups == name)[0]] = (own[name] + 1) % 3
    assert one_target(targets, groups) == (len(several), 0)


@pytest.mark.parametrize("groups", [np.arange(300), np.repeat(np.arange(2), 150), np.zeros(300, int)])
@pytest.mark.parametrize("share", [0.5, 0.99])
def test_singletons_and_few_groups_tell_nothing(groups: np.ndarray, share: float) -> None:
    """Two groups with one label each may be chance in one dataset of two."""
    targets = (groups % 2 if share == 0.5 else np.arange(300) < 300 * share).astype(int)
    assert one_target(targets, groups)[1] == 0


@pytest.mark.parametrize("sizes", ["2", "3", "20", "mixed"])
@pytest.mark.parametrize("share", [0.5, 0.05, 0.005])
def test_targets_that_have_nothing_to_do_with_groups_are_not_said_to(sizes: str, share: float) -> None:
    """Labels of a rare class are mostly alike within groups, by chance: of 300 datasets one may be told."""
    told = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        few = int(rng.integers(5, 200))
        count = rng.geometric(0.4, few) if sizes == "mixed" else np.full(few, int(sizes))
        groups = np.repeat(np.arange(few), count)
        told += one_target((rng.random(len(groups)) < share).astype(int), groups)[1] > 0
    assert told <= 1


def found_in(path: Path, of: np.ndarray) -> Reading:
    """What the facts say of patients with four texts each and the labels of their texts, (N,)."""
    lines = [f"text {row} of {row % 7},{label},{row // 4}" for row, label in enumerate(of.tolist())]
    path.write_text("\n".join(["x,y,who", *lines]) + "\n")
    task = OwnData(str(path), text="x", label="y", group="who")
    rows = list(facts(task, task.build(None), task.shared_groups, grouped=task.groups))
    rows += [Row(model="guessing", metric="score", value=0.5), Row(model="a", metric="learnable", value=0.0, n=30)]
    return Reading.of(rows)


def test_the_page_says_that_labels_are_those_of_groups(tmp_path: Path) -> None:
    own = np.random.default_rng(0).integers(0, 2, 40)
    labels = np.repeat(own, 4)
    told = [" ".join(faults(found_in(tmp_path / "a.csv", labels)))]
    labels[0] = 1 - labels[0]
    told.append(" ".join(faults(found_in(tmp_path / "b.csv", labels))))
    for said, count in zip(told, ("all 40", "39 of 40"), strict=True):
        assert (
            f"In {count} groups of several rows, every row has the same label: only as many of these are independent "
            "as there are groups, and a model may recognise a group instead of what is asked."
        ) in said
    mixed = np.random.default_rng(1).integers(0, 2, 160)
    assert "every row has" not in " ".join(faults(found_in(tmp_path / "c.csv", mixed)))
