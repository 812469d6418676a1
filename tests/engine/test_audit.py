"""Audits from end to end: what is trained, stored and concluded about data sets whose verdict is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_audits import Known

import levelfield
from levelfield import OwnData, tasks
from levelfield.cli.app import main
from levelfield.data.audit import shallow
from levelfield.engine import audit as auditing
from levelfield.engine.audit import Folders
from levelfield.presets import audit, efforts
from levelfield.report.audit import page, words
from levelfield.report.audit.reading import Reading
from levelfield.report.audit.shares import FREE, Scored, findings
from levelfield.spec import Examples, LabelSet, Output, Task, UserError, no_progress
from levelfield.tasks.corpus import Corpus
from levelfield.tasks.listops import ListOps
from levelfield.tasks.parity import Parity
from levelfield.tasks.reach import Reach

pytestmark = pytest.mark.usefixtures("undrawn")


def done(task: Task, at: Path) -> Reading:
    """The audit of a task at `smoke`, run here and now."""
    found = levelfield.audit(
        task, "smoke", runs_dir=at / "runs", data=at / "data", report_dir=at / "report", device="cpu"
    )
    assert {path.name for path in found.files} >= {"report.html", "rows.csv", "badge.svg", "datasheet.md"}
    return Reading.of(found.rows)


def few_arms(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """Leaves windows of 1 and 5 steps, S4, and S4 without any order."""
    monkeypatch.setattr(audit, "FREE", (efforts.S4_DIAGONAL,))
    monkeypatch.setitem(audit.SCALES, "smoke", replace(audit.SCALES["smoke"], blocks=(), **changes))


@pytest.mark.timeout(300)  # seconds, where the machine is idle
def test_short_windows_have_all_of_what_three_symbols_in_a_row_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_arms(monkeypatch, steps=60, batch=32, width=24, lr=5e-3)
    found = done(Known("window"), tmp_path)
    assert found.enough.steps == 3, "of which counts are enough"
    assert found.scores["window1"].value < 0.6 < found.scores["window5"].value
    said = words.lead(replace(found, effort="minutes"))
    assert said.startswith(
        "The best that was tried, the rule that knows counts of 3-grams, sees no more than windows of 3"
    )
    assert found.shares["unordered"].high < 0.6


def test_a_coin_has_nothing_to_learn_and_what_is_there_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_arms(monkeypatch, steps=4)
    found = done(Known("none"), tmp_path)
    assert "No higher accuracy than guessing is shown" in words.lead(found) and not found.shares
    where = auditing.folder(Known("none"), "smoke", Folders(tmp_path / "runs", tmp_path / "data"))
    before = {path: path.stat().st_mtime_ns for path in where.iterdir()}
    (where / "rule-length.json").unlink()
    auditing.measure(Known("none"), "smoke", Folders(tmp_path / "runs", tmp_path / "data"), no_progress)
    changed = [path.name for path in where.iterdir() if path.stat().st_mtime_ns != before[path]]
    assert sorted(changed) == ["rule-length.json", "rule-length.npy"]
    folders = Folders(tmp_path / "runs", tmp_path / "data")
    for name, content in (("rule-length.npy", b"\x93NUMPY"), ("rule-length.json", b"{}")):
        whole = (where / name).read_bytes()
        (where / name).write_bytes(content)
        with pytest.raises(UserError, match=rf"{name} is damaged .*: remove .* and run the same command again"):
            auditing.collect(Known("none"), "smoke", folders)
        (where / name).write_bytes(whole)
    monkeypatch.setattr(shallow, "VERSION", shallow.VERSION + 1)
    assert auditing.folder(Known("none"), "smoke", folders) != where, "what other rules have scored is not used"


def test_rules_alone_tell_what_labels_at_steps_give_away_and_continue_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = Parity(16, train=400, val=100, test=200)
    first = levelfield.audit(task, "smoke", without_models=True)
    found = Reading.of(first.rows)
    assert list(found.scores) == ["commonest", "place", "latest 1", "latest 2", "latest 3", "shown"]
    assert "the one that knows the latest 3 symbols is best on validation" in first.verdict
    assert [steps for steps, _ in found.windows] == [1, 2, 3] and found.enough.steps == 3
    where = auditing.folder(task, "smoke", Folders(Path("runs"), Path("data")))
    before = {path: path.stat().st_mtime_ns for path in where.iterdir()}
    (where / "rule-latest-2.json").unlink()
    assert levelfield.audit(task, "smoke", without_models=True).rows == first.rows
    changed = [path.name for path in where.iterdir() if path.stat().st_mtime_ns != before[path]]
    assert sorted(changed) == ["later-latest-2.npy", "rule-latest-2.json", "rule-latest-2.npy"]


def test_two_files_of_one_name_have_a_report_each_and_the_same_file_again_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few_arms(monkeypatch, steps=1, windows=(1,))
    pages, said = [], []
    for which in ("a", "b", "a"):
        file = tmp_path / which / "reviews.csv"
        file.parent.mkdir(exist_ok=True)
        file.write_text("body,stars\n" + "".join(f"{which} {i},{i % 2}\n" for i in range(40)))
        own = levelfield.OwnData(str(file), text="body", label="stars")
        places = {"runs_dir": tmp_path / "runs", "data": tmp_path / "data", "report_dir": tmp_path / "report"}
        places |= {"device": "cpu", "say": said.append}
        audited = levelfield.audit(own, "smoke", **places)
        small = {"baselines": "conv", "steps": 1, "seeds": 1, "width": 8, "depth": 1}
        compared = levelfield.compare("dlr", [own], "scratch", "smoke", **small, **places)
        pages.append((audited.page, compared.page))
    assert pages[0] == pages[2] and not set(pages[0]) & set(pages[1])
    assert len({page.parent for pair in pages for page in pair}) == 4
    assert all(page.parent.parent == tmp_path / "report" for pair in pages for page in pair)
    assert said[-1].startswith("2 of 2  own_reviews-") and not capsys.readouterr().out, "it prints nothing then"


def test_windows_below_a_certified_range_score_exactly_one_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_arms(monkeypatch, steps=4)
    found = done(Reach(8, train=200, val=40, test=200), tmp_path)
    assert [found.scores[name].value for name in ("window1", "window5")] == [0.5, 0.5]
    assert found.scores["1-grams"].value == 0.5
    assert any("windows of up to 8 steps" in sentence for sentence in words.details(found))
    assert found.enough.steps == 9 and found.fact("training_steps", "train") == 4


def test_arms_share_their_data_and_budget_and_see_what_their_names_say() -> None:
    runs = audit.study(ListOps()).runs("minutes")
    by_name = {run.model.label: run for run in runs}
    windows = {name: run.model.receptive_field for name, run in by_name.items() if name.startswith("window")}
    assert windows == {f"window{w}": w for w in audit.SCALES["minutes"].windows}
    assert len({(run.protocol, run.task.max_length) for run in runs}) == 1
    assert len(runs) == 3 * len(by_name), "three seeds each"
    with pytest.raises(UserError, match="no targets"):
        audit.study(Corpus()).runs("minutes")


def test_a_floor_is_the_best_guess() -> None:
    splits = Known("none").build(None)
    floor = auditing.floor(Known("none"), splits["train"], splits["test"])
    assert floor.mean() >= 0.5 and len(floor) == len(splits["test"])
    numbers = Known("sum").build(None)
    away = auditing.floor(Known("sum"), numbers["train"], numbers["test"])
    assert np.isclose(-away.mean(), np.square(numbers["test"].y - numbers["train"].y.mean()).mean())


class Tagged(Known):
    """The same, with any of three labels."""

    output: Output = LabelSet(3)  # pyright: ignore[reportIncompatibleMethodOverride]


def test_the_commonest_answer_is_that_of_the_test_examples() -> None:
    x, labels = np.zeros((5, 4), np.uint8), np.array([2, 1, 2, 0, 2])
    of_sequences = Examples.of_equal_length(x, labels)
    assert auditing.constant(ListOps(), of_sequences).tolist() == [1, 0, 1, 0, 1]
    steps = Examples(np.zeros(7, np.uint8), np.array([0, 3, 5, 7]), np.array([1, 1, -1, 0, 1, -1, -1]), stepwise=True)
    assert auditing.constant(Parity(), steps).tolist() == [1, 0.5, 0]
    numbers = Examples.of_equal_length(x, np.array([[1.0], [2.0], [3.0], [4.0], [10.0]]))
    assert auditing.constant(Known("sum"), numbers).tolist() == [-9, -4, -1, 0, -36]  # of their mean, 4
    sets = Examples.of_equal_length(x, np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 1, 0], [0, 0, 1]]))
    assert np.allclose(auditing.constant(Tagged(), sets), [1, 2 / 3, 1, 1, 0])  # of the first two


def test_a_guess_that_is_nearer_to_the_mean_of_other_years_has_learnt_nothing() -> None:
    rng = np.random.default_rng(0)
    train, test = (Examples.of_equal_length(np.zeros((300, 1), np.uint8), rng.normal(m, 1, (300, 1))) for m in (0, 0.4))
    nearer = -np.square(test.y[:, 0] - 0.05)  # 0.05, whatever the input is
    guess, best = auditing.floor(Known("sum"), train, test), auditing.constant(Known("sum"), test)
    rows = (findings([Scored("s4", FREE, 0.0, nearer[None])], guess, constant=each) for each in (None, best))
    assert [row.get("value") for each in rows for row in each if row.get("metric") == "learnable"] == [1, 0]


PARITY_OF_MARKS = tasks.find("reach_parity")


def test_a_report_is_named_after_the_task_and_what_is_unusual_of_it(tmp_path: Path) -> None:
    assert auditing.report_name(ListOps(), "smoke") == "audit-listops-smoke"
    names = {auditing.report_name(task, "smoke") for task in (Reach(), Reach(64), PARITY_OF_MARKS, Reach(65))}
    assert len(names) == 4 and "audit-reach-smoke" in names


def test_the_groups_of_an_audit_are_those_of_the_examples_that_it_has(tmp_path: Path) -> None:
    """Of 500 test rows it has 300. A row's text says its group; a row without one is a group by itself."""
    names = [f"{i % 60}" if i % 4 else "" for i in range(2_500)]
    rows = [f"{i} of {names[i]},{i % 2},{names[i]}" for i in range(2_500)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y,who", *rows]))
    task = levelfield.OwnData(str(tmp_path / "a.csv"), text="x", label="y", group="who")
    folders, base = Folders(tmp_path / "runs", tmp_path / "data"), audit.seen(task, "smoke")
    test, groups = base.build(None)["test"], auditing.groups_of(task, base, folders)
    assert groups is not None and len(test) == len(groups) == 300 < len(task.build(None)["test"])
    said = [bytes(test.sequence(i)).decode().partition(" of ")[2] or str(-i) for i in range(300)]
    assert len(set(zip(said, groups.tolist(), strict=True))) == len(set(said)) == len(set(groups.tolist()))
    assert auditing.groups_of(replace(task, group=""), base, folders) is None


def test_equal_inputs_of_the_test_split_are_one_group_and_groups_of_the_users_own_go_first(tmp_path: Path) -> None:
    rows = [f"text {i // 10},{i % 2},{i // 10 // 5}" for i in range(2_000)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y,who", *rows]))
    task = levelfield.OwnData(str(tmp_path / "a.csv"), text="x", label="y")
    folders = Folders(tmp_path / "runs", tmp_path / "data")
    for given, kind, rows_of_one in ((task, "inputs", 10), (replace(task, group="who"), "groups", 50)):
        base = audit.seen(given, "minutes")
        test = base.build(None)["test"]
        alike = auditing.alike_of(given, base, test, folders)
        assert alike is not None and alike.kind == kind
        assert set(np.unique(alike.number, return_counts=True)[1].tolist()) == {rows_of_one}
    (tmp_path / "b.csv").write_text("\n".join(["x,y", *(f"name{i},{i % 2}" for i in range(600))]))
    names = levelfield.OwnData(str(tmp_path / "b.csv"), symbols="x", label="y")
    base = audit.seen(names, "minutes")
    test = base.build(None)["test"]
    assert not test.x.any() and auditing.alike_of(names, base, test, folders) is None, (
        "all words are unknown, and others"
    )
    alone = Known("none")
    assert auditing.alike_of(alone, alone, alone.build(None)["test"], folders) is None


@pytest.mark.parametrize(
    ("words_given", "sentence"),
    [
        (["listop"], "did you mean 'listops'"),
        (["listops", "--text", "body"], "no file of data"),
        (["nowhere.csv", "--text", "body"], "no file or folder nowhere.csv"),
        (["reach(size=3)"], "no setting 'size'"),
        (["demo"], "tasks: name one of them"),
        (["imdb_text"], "no targets"),
    ],
)
def test_bad_input_is_one_sentence(
    words_given: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["audit", *words_given, "--effort", "smoke"])
    said = capsys.readouterr().err
    assert end.value.code == 2 and sentence in said and said.count("\n") == 1
    assert not list(tmp_path.iterdir()), "nothing is written before"


LEAKY = 240  # texts of a coin's label, of which the tests below have copies in train


def leaky(path: Path, copied: int, group: str = "") -> OwnData:
    """Texts that say nothing of their label, where the first test texts are in train too but for a letter."""
    rng, letters = np.random.default_rng(0), np.array(list("abcdefgh ij"))
    texts = ["".join(rng.choice(letters, 40)) for _ in range(LEAKY)]
    split = ["test"] * 120 + ["val"] * 20 + ["train"] * 100
    labels = rng.integers(0, 2, LEAKY).tolist()
    rows = list(zip(texts, labels, split, range(LEAKY), strict=True))
    rows += [(f"{t[:20]}z{t[21:]}", y, "train", at) for t, y, _, at in rows[:copied]]
    rows += [("".join(rng.choice(letters, 40)), 0, "train", at) for at in (range(60, 90) if group else ())]
    path.write_text("text,label,split,group\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return OwnData(str(path), text="text", label="label", split="split", group=group)


@pytest.mark.filterwarnings("ignore:90 groups of group")
@pytest.mark.parametrize(
    ("copied", "group", "left", "said"),
    [
        (60, "", 60, "On the 60 of 120 test examples that are not in train, exactly or nearly, the rule that knows"),
        (60, "group", 30, "On the 30 of 120 test examples that are not in train, exactly, nearly or by their group,"),
        (120, "", 0, "All of the test examples that were scored are in train, exactly or nearly: no score is one on"),
        (0, "", 0, ""),
    ],
)
def test_what_is_not_in_train_has_scores_of_its_own(
    tmp_path: Path, copied: int, group: str, left: int, said: str
) -> None:
    task, folders = leaky(tmp_path / "a.csv", copied, group), Folders(tmp_path / "runs", tmp_path / "data")
    auditing.measure(task, "minutes", folders, no_progress)
    rows = auditing.collect(task, "minutes", folders)
    found = Reading.of(rows)
    assert found.fresh.tested == left and found.tested == 120
    assert not said or any(sentence.startswith(said) for sentence in words.details(found))
    assert set(found.unleaked) == (set(found.scores) if left else set())
    if left:
        kept = np.load(next((tmp_path / "runs").rglob("rule-positions.npy")))[90 if group else 60 :]
        assert found.unleaked["positions"].value == pytest.approx(kept.mean())
        assert found.scores["positions"].value > 0.65 > found.unleaked["positions"].value
    else:
        assert any("in train," in sentence for sentence in words.details(found)) == bool(copied)
    page.build(rows, tmp_path / "report")
    assert ("not in train</th>" in (tmp_path / "report/report.html").read_text()) == bool(left)
