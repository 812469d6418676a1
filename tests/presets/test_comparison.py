"""Comparing a mixer that levelfield has never seen, from a file and from Python."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from repository import ROOT
from torch import Tensor, nn

import levelfield
from levelfield.cli import app
from levelfield.presets import by_name, comparison, efforts
from levelfield.presets.options import Options
from levelfield.run import check
from levelfield.runs import store
from levelfield.spec import Duration, Numerics, Row, UserError
from levelfield.user.mixer import user_mixer

FILE = """
import torch
from torch import nn

class Gru(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.rnn = nn.GRU(d_model, d_model, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]

class Wide(nn.Linear):
    def __init__(self, d_model):
        super().__init__(d_model, 2 * d_model)

class Peeking(Gru):
    def __init__(self, d_model, causal):
        super().__init__(d_model)

    def forward(self, x):
        return super().forward(x.flip(1)).flip(1)

class Broken(Gru):
    def forward(self, x):
        return super().forward(x) / 0 * 0
"""


class Decay(nn.Module):
    """A causal exponential average; defined in a test, as in a notebook."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        keep, out, state = self.rate.sigmoid(), [], torch.zeros_like(x[:, 0])
        for step in x.unbind(1):
            state = keep * state + (1 - keep) * step
            out.append(state)
        return torch.stack(out, 1)


class Both(Decay):
    """The same in either direction, as asked."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__(width)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.causal else super().forward(x) + super().forward(x.flip(1)).flip(1)


class TwoWays(nn.Module):
    """A recurrent layer of torch, whose way back begins in the padding, if there is any."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


class Table(nn.Module):
    """Has a vector for each of 30 steps, and says so where it is told to."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(30, width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.table[: x.shape[1]]


class Bounded(Table):
    max_length = 30


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("mine.py:Wide",), "wide turns an input of shape"),
        (("mine.py:Broken",), "broken"),
        (("mine.py:Peeking", "--protocols", "spt_causal"), "peeking"),
        (("mine.py:Gur",), "did you mean 'Gru'"),
        (("mine.py:Gru", "--tasks", "listop"), "did you mean 'listops'"),
        (("mine.py:Gru", "--protocols", "scrtch"), "did you mean 'scratch'"),
        (("other.py:Gru",), "other.py"),
    ],
)
def test_what_is_wrong_is_one_sentence_before_any_training(
    tmp_path: Path,
    words: tuple[str, ...],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    (tmp_path / "mine.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        app.main(["compare", *words, "--effort", "smoke", "--jobs", "1"])
    assert end.value.code == 2
    is_one_sentence(capfd.readouterr().err, sentence, tmp_path)


def is_one_sentence(said: str, sentence: str, folder: Path) -> None:
    assert sentence in said
    assert len(said.strip().splitlines()) == 1
    assert not (folder / "runs").exists()


def test_the_command_in_a_process_of_its_own_says_the_same(tmp_path: Path):
    """Where a library's warnings, too, would be lines of its standard error."""
    (tmp_path / "mine.py").write_text(FILE)
    words = [sys.executable, "-m", "levelfield", "compare", "mine.py:Peeking", "--protocols", "spt_causal"]
    done = subprocess.run([*words, "--effort", "smoke"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    is_one_sentence(done.stderr, "peeking", tmp_path)


def test_the_same_class_from_python(tmp_path: Path):
    found = levelfield.compare(
        Decay,
        ["recall"],
        ["scratch"],
        "smoke",
        runs_dir=tmp_path / "runs",
        data=tmp_path / "data",
        report_dir=tmp_path / "report",
    )
    models = list(dict.fromkeys(r.get("model") for r in found.rows if r.get("protocol") == "scratch"))
    assert models == ["decay", "attention", "s4", "conv"]
    assert found.page.name == "report.html"
    assert "decay" in found.page.read_text()
    assert "<iframe" in found._repr_html_()
    lines = str(found).splitlines()
    assert lines[0] == found.verdict.splitlines()[0] and "decay is above every baseline in" in lines[0]
    assert set(found.remarks) <= set(lines) and str(found.page) in lines[-1]
    assert [line.split()[2] for line in lines if line.endswith("n=1")] == models, "arms alone, each with its seeds"
    (own,) = (r for r in found.rows if r.get("model") == "decay" and r.get("split") == "test" and "at" not in r)
    assert any("decay" in line and f"{own.get('value', 0.0):.3f}" in line for line in lines)
    assert {"compare", "Study", "UserError"} <= set(dir(levelfield))
    assert all(path.exists() for path in found.figures)
    assert "curve-distance" in {path.stem for path in found.figures}, "how far each model looks"
    assert len({run.split("-")[1] for run in found.ledgers}) == 4
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("*/done.json")}
    again = levelfield.compare(  # one name needs no list
        Decay,
        "recall",
        "scratch",
        "smoke",
        runs_dir=tmp_path / "runs",
        data=tmp_path / "data",
        report_dir=tmp_path / "report",
    )
    assert list(again.rows) == list(found.rows)
    assert before == {p: p.stat().st_mtime_ns for p in before}


def test_from_python_a_comparison_says_how_it_is_computed(tmp_path: Path):
    compare = partial(
        levelfield.compare, Decay, "recall", "scratch", "smoke", baselines="conv", runs_dir=tmp_path, data=tmp_path
    )
    found = compare(report_dir=tmp_path / "report", numerics=Numerics(accumulate=2))
    assert {row.get("numerics") for row in found.rows if row.get("run")} == {"float32-accumulate2"}
    assert found.page.parent.name.endswith("-float32-accumulate2-smoke")
    with pytest.raises(UserError, match="is for 2 processes, and here is 1"):
        compare(report_dir=tmp_path / "report", numerics=Numerics(nproc=2))


def test_arms_are_matched_by_parameters_and_differ_in_nothing_else():
    options = Options(("recall",), ("scratch", "spt_masked", "spt_causal"))
    study = comparison.compare(user_mixer(Both, {}), options)
    runs = study.runs("minutes")
    for run in runs:
        check(run)
    own = comparison.models(user_mixer(Both, {}), "recall", "minutes")
    assert [m.label for m in own] == ["both", "attention", "s4", "conv"]
    assert {(m.depth, m.pooling) for m in own} == {(2, "last")}
    steps = {run.protocol.name: sum(p.recipe.budget.value for p in run.protocol.phases) for run in runs}
    assert len(set(steps.values())) == 1
    assert all(run.model.causal == (run.protocol.name == "spt_causal_matched") for run in runs)


def test_a_mixer_that_looks_back_alone_has_baselines_that_do():
    """Even those that have no other direction, such as Mamba."""
    options = Options(("recall", "pathfinder"), baselines=("mamba", "attention"))
    runs = comparison.compare(user_mixer(Decay, {}), options).runs("smoke")
    assert {run.model.label for run in runs} == {"decay", "mamba", "attention"}
    assert all(run.model.causal for run in runs)
    for run in runs:
        check(run)


def test_help_and_pages_name_the_defaults_that_the_code_has(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        app.main(["compare", "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    page = " ".join((ROOT / "docs" / "add-a-mixer.md").read_text().split())
    usual = {"tasks": efforts.TASKS, "protocols": comparison.PROTOCOLS}
    usual["baselines"] = tuple(mixer.label for mixer in comparison.BASELINES)
    for what, names in usual.items():
        assert f"names of {'mixers' if what == 'baselines' else what} (default: {' '.join(names)})" in shown
        assert ", ".join(f"`{name}`" for name in names[:-1]) + f" and `{names[-1]}`" in page, what
    size = efforts.sized("minutes", {})
    assert f"{size.seeds} at minutes" in shown and f"{size.width} at minutes" in shown
    assert f"{size.depth} at minutes" in shown and f"{size.lr} at minutes" in shown


def test_options_change_what_they_name_and_nothing_else():
    mixer = user_mixer(Both, {})
    usual = comparison.compare(mixer, Options(("recall",), ("scratch",))).runs("smoke")
    given = Options(("recall",), ("scratch",), ("conv",), seeds=3, steps=10, width=24, depth=2, lr=0.01, batch=4)
    runs = comparison.compare(mixer, given).runs("smoke")
    assert [(run.model.label, run.seed) for run in runs] == [(m, s) for m in ("both", "conv") for s in range(3)]
    (recipe,) = {phase.recipe for run in runs for phase in run.protocol.phases}
    assert (recipe.budget, recipe.lr, recipe.batch) == (Duration(10, "steps"), 0.01, 4)
    assert (runs[0].model.width, {run.model.depth for run in runs}) == (24, {2})
    same = comparison.compare(mixer, Options(("recall",), ("scratch",), seeds=1, steps=6, width=16, depth=1, lr=2e-3))
    assert [run.id for run in same.runs("smoke")] == [run.id for run in usual]


def test_the_numbers_of_options_are_sizes_whatever_fields_come_before_them():
    @dataclass(frozen=True, kw_only=True)
    class More(Options):
        note: str = "not a size"

    names = ("seeds", "steps", "width", "depth", "lr", "batch")
    given = dict(zip(names, (3, 10, 24, 2, 0.01, 4), strict=True))
    assert More(("recall",), ("scratch",), ("conv",), **given).numbers == given  # pyright: ignore[reportArgumentType]
    assert Options().numbers == {}


@pytest.mark.parametrize(
    "wrong", [{"seeds": 0}, {"steps": -1}, {"width": 10**9}, {"lr": 0.0}, {"lr": float("nan")}, {"batch": 0}]
)
def test_numbers_that_no_run_can_have_are_refused(wrong: dict[str, float]):
    with pytest.raises(UserError):
        Options(**wrong)  # pyright: ignore[reportArgumentType]


def test_a_recurrence_of_two_ways_is_taken_where_nothing_is_padded():
    mixer = user_mixer(TwoWays, {})
    assert len(comparison.compare(mixer, Options(("recall", "pathfinder"), ("scratch",))).runs("smoke")) == 8
    with pytest.raises(UserError, match="padding"):
        comparison.compare(mixer, Options(("listops",), ("scratch",))).runs("smoke")


def test_a_module_of_bounded_length_is_told_to_declare_it():
    with pytest.raises(UserError, match="max_length"):
        comparison.compare(user_mixer(Table, {}), Options(("pathfinder",), ("scratch",))).runs("smoke")
    declared = user_mixer(Bounded, {})
    for run in comparison.compare(declared, Options(("recall",), ("scratch",))).runs("smoke"):
        check(run)
    (own, *_) = comparison.compare(declared, Options(("pathfinder",), ("scratch",))).runs("smoke")
    with pytest.raises(UserError, match="takes 30 steps but pathfinder16 has up to 256"):
        check(own)


def test_protocols_that_need_weights_and_unknown_baselines_are_refused():
    with pytest.raises(UserError, match="needs weights"):
        comparison.compare(user_mixer(Decay, {}), Options(("recall",), ("pretrained",))).runs("smoke")
    with pytest.raises(UserError, match="did you mean 'mamba'"):
        comparison.compare(user_mixer(Decay, {}), Options(("recall",), baselines=("mamab",))).runs("smoke")


def test_a_name_that_a_baseline_has_is_told_apart():
    class S4(Decay):
        pass

    models = comparison.models(user_mixer(S4, {}), "recall", "smoke")
    assert [m.label for m in models] == ["my_s4", "attention", "s4", "conv"]


def arm(model: str, *percent: float, task: str = "t") -> list[Row]:
    """An arm's test scores, one a seed, on 2,000 examples."""
    row = Row(task=task, model=model, protocol="scratch", metric="accuracy", split="test", n=2_000)
    return [row | Row(run=f"{task}{model}{seed}", seed=seed, value=v / 100) for seed, v in enumerate(percent)]


RULES = [Row(task="t", model=m, protocol="none", metric="accuracy", split="test", value=v, n=2_000) for m, v in (
    ("chance", 0.1), ("last_value", 0.3))]  # fmt: skip


def test_the_verdict_says_what_the_rows_say():
    baselines = arm("s4", 40, 40.5, 41) + arm("conv", 35, 35.5, 36)
    text = comparison.verdict("mine", [*RULES, *arm("mine", 60, 60.5, 61), *baselines])
    assert text.startswith("mine is above every baseline in 1 of 1 comparisons and below some baseline in 0.")
    assert (
        "On t under scratch, mine, 60.5 % (60.0 to 61.0 over 3 seeds), is above the best baseline, s4 at 40.5 %" in text
    )
    assert "cannot be told apart" in comparison.verdict("mine", [*RULES, *arm("mine", 41, 42, 43), *baselines])
    assert "mine, 31.5 %" in comparison.verdict("mine", [*RULES, *arm("mine", 31, 31.5, 36), *baselines])
    assert "Nothing" in comparison.verdict("mine", [])
    assert "Nothing" in comparison.verdict("mine", arm("mine", 60, 61, 62))
    assert "Nothing can be said yet: no run of the mixer" in comparison.verdict("mine", [])


def test_runs_that_have_finished_without_a_score_are_not_called_unfinished():
    """As `runs.rows` has it: a row without a value, of the share of no variance."""
    rows = [
        Row(task="flat", run=model, model=model, protocol="scratch", metric="r2", split="test", status="undefined")
        for model in ("mine", "s4")
    ]
    said = "he score of mine on flat is undefined, as where all test targets are equal."
    assert comparison.verdict("mine", rows) == f"Nothing can be said: t{said}"
    others = [*RULES, *arm("mine", 60, 60.5, 61), *arm("s4", 40, 40.5, 41)]
    assert comparison.verdict("mine", [*rows, *others]) == f"{comparison.verdict('mine', others)} T{said}"


def test_numbers_to_predict_are_compared_by_the_variance_explained():
    """Beside a task of shares, of which nothing changes."""

    def explained(model: str, *percent: float) -> list[Row]:
        rows = arm(model, *percent, task="n")
        own = [row | Row(metric="r2", unit="", stderr=0.01) for row in rows]
        return [*own, *(row | Row(metric="negative_mse", value=row["value"] - 1) for row in own)]

    chance = Row(task="n", model="chance", protocol="none", metric="r2", split="test", value=0.0, n=2_000)
    numbers = [chance, *explained("mine", 80, 81, 82), *explained("s4", 30, 31, 32)]
    text = comparison.verdict("mine", numbers)
    assert text.startswith("mine is above every baseline in 1 of 1 comparisons")
    assert "mine, 81.0 %" in text and text.endswith("Percent are of the variance explained on n.")
    both = comparison.verdict("mine", [*numbers, *RULES, *arm("mine", 60, 60.5, 61), *arm("s4", 40, 40.5, 41)])
    assert "in 2 of 2 comparisons" in both
    assert "nothing can be said: no arm is shown to beat the best simple rule, chance (0.0 %)" in comparison.verdict(
        "mine", [chance, *explained("mine", -3, 0, 1), *explained("s4", -4, 0.5, 1)]
    )


def test_one_seed_says_what_was_seen_and_decides_nothing():
    rows = [*RULES, *arm("mine", 90), *arm("s4", 40.5), *arm("conv", 30)]
    text = comparison.verdict("mine", rows)
    assert "mine, 90.0 % with one seed, cannot be told apart from the best baseline, s4 at 40.5 % with one seed" in text
    assert "above every baseline in 0 of 1 comparisons and below some baseline in 0; 1 is not decided." in text


def test_an_arm_below_a_simple_rule_is_above_nobody():
    baselines = arm("s4", 10, 10.1, 10.2) + arm("conv", 9.9, 10, 10.1)
    text = comparison.verdict("mine", [*RULES, *arm("mine", 29, 29.1, 29.2), *baselines])
    assert "nothing can be said: no arm is shown to beat the best simple rule, last value (30.0 %)" in text
    learnt = comparison.verdict("mine", [*RULES, *arm("mine", 20, 20.1, 20.2), *arm("s4", 60, 60.1, 60.2)])
    assert "is below the best baseline" in learnt and "cannot be shown to beat the best simple rule, last" in learnt
    above = comparison.verdict("mine", [*RULES, *arm("mine", 29, 29.1, 29.2), *arm("s4", 60, 10, 10), *baselines[3:]])
    assert "is above the" not in above


def test_an_unknown_task_is_refused():
    with pytest.raises(UserError, match="recall"):
        comparison.compare(user_mixer(Decay, {}), Options(("recal",))).runs("smoke")


def test_results_of_a_study_never_run(tmp_path: Path):
    with pytest.raises(UserError, match="levelfield run demo"):
        store.read(tmp_path, "demo", "minutes")


def test_the_standard_tasks_have_one_name() -> None:
    names = comparison.chosen_tasks(Options(("standard", "listops", "parity")))
    assert names == ("recall", "words", "reach", "digits", "listops", "parity")
    assert comparison.chosen_tasks(Options()) == efforts.TASKS
    six = comparison.chosen_tasks(Options(("mad", "compression")))
    assert len(six) == 6 and all(efforts.sized_task(name, "smoke").name == name for name in six)


@pytest.mark.parametrize(("own", "beside"), [("gru", ("attention",)), ("attention", ("gru", "s4"))])
def test_where_one_mixer_reads_forward_alone_all_arms_do(own: str, beside: tuple[str, ...]) -> None:
    options = Options(("listops", "recall"), ("scratch", "spt_masked"), beside)
    runs = comparison.compare(by_name.mixer(own), options).runs("smoke")
    assert {run.model.label for run in runs} == {own, *beside}
    assert all(run.model.causal for run in runs)
    both = comparison.compare(by_name.mixer("attention"), replace(options, baselines=("s4",))).runs("smoke")
    assert not any(run.model.causal for run in both)
