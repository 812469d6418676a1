"""Cross-validated scores in an audit: of which data there are any, what is kept together, and what the page says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from levelfield import OwnData
from levelfield.data.audit import folds, shallow
from levelfield.engine import audit as auditing
from levelfield.engine.audit import Folders
from levelfield.presets import audit
from levelfield.report.audit import page, words
from levelfield.report.audit.reading import Reading
from levelfield.spec import Row, Task, UserError, no_progress

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def few_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shallow, "PROBES", {name: shallow.PROBES[name] for name in ("length", "1-grams")})


def written(path: Path, count: int = 200) -> Path:
    """Rows whose length says their label in eight of ten, with a column of splits and one of groups."""
    rng = np.random.default_rng(0)
    rows = ["text,label,part,who"]
    for row in range(count):
        label = int(rng.integers(2))
        length = 20 + 20 * int(rng.random() < (0.8 if label else 0.2))
        text = "".join(rng.choice(list("abcd"), length))
        rows.append(f"{text},{label},{'test' if row % 4 == 0 else 'train'},{row // 4}")
    path.write_text("\n".join(rows) + "\n")
    return path


def rows_of(task: Task, at: Path) -> list[Row]:
    folders = Folders(at / "runs", at / "data")
    auditing.measure(task, "minutes", folders, no_progress)
    return auditing.collect(task, "minutes", folders)


@pytest.mark.usefixtures("few_rules")
def test_only_data_without_a_test_split_of_their_own_are_cross_validated(tmp_path: Path) -> None:
    path = str(written(tmp_path / "a.csv"))
    given = rows_of(OwnData(path, text="text", label="label", split="part"), tmp_path / "given")
    carved = rows_of(OwnData(path, text="text", label="label"), tmp_path / "carved")
    assert not any("folds" in row.get("metric", "") for row in given)
    assert not list((tmp_path / "given").rglob("folds-*"))
    found = Reading.of(carved)
    assert set(found.folds) == {"length", "1-grams"} and found.folded.tested == 200
    length, split = found.folds["length"], found.scores["length"]
    assert length.low < 0.8 < length.high and length.high - length.low < 0.7 * (split.high - split.low)
    labels = [int(line.split(",")[1]) for line in Path(path).read_text().splitlines()[1:]]
    assert found.folded.guessing == max(np.mean(labels), 1 - np.mean(labels))
    for name, rows in (("given", given), ("carved", carved)):
        page.build(rows, tmp_path / name / "report")
        said = re.sub("<[^>]+>", "", (tmp_path / name / "report" / "report.html").read_text())
        assert ("five folds (%)" in said) == ("Five folds: 200 examples are divided" in said) == (name == "carved")
        assert (f"{100 * length.value:.1f}{100 * length.low:.1f} to {100 * length.high:.1f}" in said) == (
            name == "carved"
        )


@pytest.mark.usefixtures("few_rules")
def test_a_killed_audit_continues_with_the_rules_that_are_left(tmp_path: Path) -> None:
    task = OwnData(str(written(tmp_path / "a.csv")), text="text", label="label")
    first = rows_of(task, tmp_path)
    where = auditing.folder(task, "minutes", Folders(tmp_path / "runs", tmp_path / "data"))
    before = {path: path.stat().st_mtime_ns for path in where.iterdir()}
    (where / "folds-length.npy").unlink()
    assert rows_of(task, tmp_path) == first
    assert [p.name for p in where.iterdir() if p.stat().st_mtime_ns != before[p]] == ["folds-length.npy"]
    (where / "folds-length.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(UserError, match=r"folds-length.npy is damaged .*: remove .* and run the same command again"):
        rows_of(task, tmp_path)


def test_groups_and_equal_inputs_are_kept_together_in_a_part_of_the_data_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 600 rows 310 are used, so that numbers of groups have to be those of the rows that are."""
    monkeypatch.setitem(audit.SCALES, "smoke", replace(audit.SCALES["smoke"], most=(200, 50, 60)))
    rng = np.random.default_rng(0)
    rows = [(f"t{rng.integers(500)} of {row // 3}", row % 2, row // 3) for row in range(590)]
    rows += [("nobody", row % 2, row) for row in range(10)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y,who", *(",".join(map(str, row)) for row in rows)]))
    for group in ("who", ""):
        task = OwnData(str(tmp_path / "a.csv"), text="x", label="y", group=group)
        base, where = audit.seen(task, "smoke"), Folders(tmp_path / "runs", tmp_path / "data")
        whole = auditing.pooled(task, base, where)
        assert whole is not None and len(whole) == 310
        sets, near = auditing.kept_together(task, base, where, whole)
        assert (sets == near).all(), "none is nearly another's duplicate"
        texts = [bytes(whole.sequence(i)).decode() for i in range(310)]
        of: dict[str, set[int]] = {}
        for text, number in zip(texts, folds.folds(sets).tolist(), strict=True):
            of.setdefault(text, set()).add(number)
            if group and " of " in text:
                of.setdefault("group " + text.partition(" of ")[2], set()).add(number)
        assert {len(each) for each in of.values()} == {1}


@pytest.mark.usefixtures("few_rules")
@pytest.mark.parametrize("groups", [[0, 1, 2, 3] * 20, [0] * 45 + [*range(35)]])
def test_data_that_cannot_be_divided_by_group_are_not_cross_validated(tmp_path: Path, groups: list[int]) -> None:
    """Four groups make no five folds, nor does one that has more than half of the rows leave equal ones."""
    path = tmp_path / "a.csv"
    path.write_text("x,y,who\n" + "".join(f"row {i},{i % 3 % 2},{group}\n" for i, group in enumerate(groups)))
    rows = rows_of(OwnData(str(path), text="x", label="y", group="who"), tmp_path)
    assert not any("folds" in row.get("metric", "") for row in rows)


@pytest.mark.usefixtures("few_rules")
def test_what_only_all_examples_show_is_not_called_nothing(tmp_path: Path) -> None:
    """Where the test split shows nothing, the verdict says what five folds show; of redrawn labels, nothing."""
    path = written(tmp_path / "a.csv", 800)
    task = OwnData(str(path), text="text", label="label")
    found = Reading.of(rows_of(task, tmp_path))
    told = words.lead(replace(found, learnable=False))
    assert found.surely == "length" and "is shown on the" in told and "the length alone is above" in told
    rng = np.random.default_rng(1)
    lines = [line.split(",") for line in path.read_text().splitlines()]
    drawn = [[text, str(rng.integers(2)), *rest] for text, _, *rest in lines[1:]]
    (tmp_path / "b.csv").write_text("\n".join(map(",".join, [lines[0], *drawn])) + "\n")
    null = Reading.of(rows_of(replace(task, path=str(tmp_path / "b.csv")), tmp_path))
    assert not null.surely and "five folds" not in words.lead(replace(null, learnable=False))


@pytest.mark.usefixtures("few_rules")
def test_what_five_folds_show_is_said_where_the_test_split_is_too_small(tmp_path: Path) -> None:
    """200 examples leave 40 for test, of which nothing can be said; below 100 in all, nothing is said of these."""
    rows = rows_of(OwnData(str(written(tmp_path / "a.csv")), text="text", label="label"), tmp_path / "a")
    found = Reading.of(rows)
    assert found.too_small and found.surely == "length"
    assert words.lead(found).startswith(
        f"The test split is too small to say anything: {found.tested} test examples, and at least 100 are needed. In "
        "five folds over all 200 examples, the rule that knows the length alone is above guessing: "
    )
    assert "95 % intervals over test examples, or in five folds over all examples" in words.paragraph(found)
    few = Reading.of(rows_of(OwnData(str(written(tmp_path / "b.csv", 90)), text="text", label="label"), tmp_path / "b"))
    assert few.folds["length"].low > few.folded.guessing and not few.surely
    assert words.lead(few).startswith("Too small to say anything: ") and "five folds" not in words.lead(few)


@pytest.mark.usefixtures("few_rules")
def test_classes_of_ten_persons_in_test_have_not_moved(tmp_path: Path) -> None:
    """Each of 50 persons has 20 rows of one class, so that test, of ten of them, hardly ever has them as train does."""
    rng, path = np.random.default_rng(5), tmp_path / "a.csv"
    own = rng.integers(2, size=50)
    lines = [f"{''.join(rng.choice(list('abcd'), 12))},{own[row // 20]},{row // 20}" for row in range(1_000)]
    path.write_text("text,label,who\n" + "\n".join(lines) + "\n")
    rows = rows_of(OwnData(str(path), text="text", label="label", group="who"), tmp_path)
    train, test = (Reading.of(rows).fact("largest_class", split) for split in ("train", "test"))
    assert abs(train - test) > 0.1 and not any(row.get("metric") == "shifted" for row in rows)


def redrawn(path: Path, originals: int, copies: int) -> Path:
    """Texts of 150 letters, each of which comes several times with two letters changed, always with the label that a
    coin gave the first: nothing but a copy tells it."""
    rng = np.random.default_rng(0)
    lines = ["text,label"]
    for _ in range(originals):
        first, label = rng.choice(list("abcdefghijklmnop"), 150), int(rng.integers(2))
        for _ in range(copies):
            text = first.copy()
            text[rng.integers(0, 150, 2)] = rng.choice(list("abcdefghijklmnop"), 2)
            lines.append(f"{''.join(text)},{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_near_duplicates_do_not_make_a_rule_seem_to_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where near duplicates lie in different folds, counts of 5-grams have their labels; kept together, nothing has."""
    monkeypatch.setattr(shallow, "PROBES", {"5-grams": shallow.PROBES["5-grams"]})
    task = OwnData(str(redrawn(tmp_path / "a.csv", 120, 4)), text="text", label="label")
    found = Reading.of(rows_of(task, tmp_path))
    kept, guessing = found.folds["5-grams"], found.folded.guessing
    assert kept.low < 0.5 < kept.high and not found.surely and "near duplicates in other" not in words.five_folds(found)
    base, where = audit.seen(task, "minutes"), Folders(tmp_path / "runs", tmp_path / "data")
    whole = auditing.pooled(task, base, where)
    assert whole is not None
    sets, _ = auditing.kept_together(task, base, where, whole)
    assert sorted(np.bincount(sets).tolist()) == [4] * 120
    apart = folds.held_out(task, whole, folds.folds(np.arange(480)), shallow.PROBES["5-grams"])
    assert apart.mean() > 0.95 > guessing + 0.3


def smooth(path: Path, count: int) -> Path:
    """Pieces of one wave from all places of it, each nearly a duplicate of the next: one set of near duplicates."""
    rng, path = np.random.default_rng(0), path / "waves"
    path.mkdir()
    starts = rng.permutation(count) * 2 * np.pi / count
    np.save(path / "x.npy", np.sin(starts[:, None] + np.linspace(0, 6, 120)).astype(np.float32))
    np.save(path / "y.npy", rng.integers(0, 2, count))
    return path


@pytest.mark.usefixtures("few_rules")
def test_where_all_are_nearly_alike_folds_keep_only_equal_inputs_together_and_the_page_says_so(tmp_path: Path) -> None:
    task = OwnData(str(smooth(tmp_path, 200)))
    rows = rows_of(task, tmp_path)
    found = Reading.of(rows)
    assert found.fact("near_apart") == 200
    said = "So many are nearly alike that 200 have near duplicates in other parts, which may inflate scores."
    assert words.five_folds(found).endswith(said)
    told = replace(found, surely="length", learnable=False, tested=200)
    assert words.lead(told).endswith(said)
