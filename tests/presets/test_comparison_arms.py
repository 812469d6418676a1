"""Which arms a comparison has, by which names, and what each is checked for."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch

import levelfield
from levelfield import contract
from levelfield.api import Choices
from levelfield.cli.app import main
from levelfield.data.audit.view import View
from levelfield.engine import plan
from levelfield.engine.find import Source
from levelfield.files import check_name
from levelfield.mixers import NAMES
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.mixers.longformer import Longformer
from levelfield.mixers.s4 import S4
from levelfield.objectives import Classify, Masked
from levelfield.presets import arm_remarks, by_name, certified, comparison, efforts, unordered
from levelfield.presets.options import Equal, Options
from levelfield.run import build_net
from levelfield.runs.ledger import trained
from levelfield.spec import Row, Run, UserError

PEEKING = """
from torch import nn

class Peek(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.linear(x + x.mean(1, keepdim=True))

class Scaled(nn.Module):
    def __init__(self, d_model, factor=1):
        super().__init__()
        self.linear, self.factor = nn.Linear(d_model, d_model), factor

    def forward(self, x):
        return self.factor * self.linear(x)

class Normed(Scaled):
    def __init__(self, d_model):
        super().__init__(d_model)
        self.norm = nn.BatchNorm1d(d_model)

    def forward(self, x):
        return super().forward(self.norm(x.transpose(1, 2)).transpose(1, 2))

class Idle(nn.Module):
    def __init__(self, d_model):
        super().__init__()

    def forward(self, x):
        return 2 * x

class Split(Scaled):
    def forward(self, x):
        return super().forward(x).view(*x.shape[:2], 8, -1).flatten(2)
"""


TWO = Options(tasks=("recall",), protocols=("scratch",), baselines=("attention(heads=2)",), seeds=1)
ONE = Options(tasks=("recall",), protocols=("scratch",), baselines=("conv",), seeds=1)


def labels(mixer: str, *baselines: str) -> list[str]:
    """Returns the names of the arms of a comparison on ListOps, in order; each can name a folder."""
    options = Options(tasks=("listops",), protocols=("scratch",), baselines=baselines, seeds=1)
    runs = comparison.compare(by_name.mixer(mixer, comparison.BASELINES), options).runs("smoke")
    for run in runs:
        check_name("model", run.model.label)
    return [run.model.label for run in runs]


def test_a_baseline_of_the_mixers_own_name_is_an_arm_that_says_what_differs() -> None:
    assert labels("attention(heads=2)", "attention(heads=4)") == ["attention", "attention-heads4"]
    assert labels("linear", "conv(kernel=3)", "conv(kernel=9)") == ["linear", "conv-kernel3", "conv-kernel9"]
    assert labels("linear", "linear", "conv") == ["linear", "conv"], "the mixer itself is no baseline"
    assert labels("attention", "attention(window=9,sinks=2)") == ["attention", "attention-window9-sinks2"]
    with pytest.raises(UserError, match="linear is linear itself: name another one, or leave baselines out"):
        labels("linear", "linear")


@pytest.mark.parametrize("name", ["attention", "s4", "conv"])
def test_a_name_is_one_mixer_whether_it_is_compared_or_compared_with(name: str) -> None:
    """Attention without rotary positions was compared by the name of attention that has them elsewhere."""

    def mixers(compared: str) -> set[object]:
        runs = Source("compare", compared).load().runs("smoke")
        return {run.model.mixers for run in runs if run.model.label == name}

    assert mixers(name) == mixers("linear") and len(mixers(name)) == 1
    assert by_name.mixer(f"{name}()", comparison.BASELINES) == by_name.mixer(name, comparison.BASELINES)


def test_settings_beside_a_name_change_the_mixer_that_the_name_means() -> None:
    """`attention(heads=8)` had other settings than `attention`, such as no rotary positions, and the same label."""
    usual = comparison.BASELINES
    assert by_name.mixer("attention(heads=8)", usual) == replace(efforts.ATTENTION, heads=8)
    assert by_name.mixer("s4(state=8)", usual) == replace(efforts.S4_DIAGONAL, state=8)
    assert by_name.mixer("Conv(kernel=9)", usual) == Conv(kernel=9, hidden=64)
    (arm,) = (run for run in Source("compare", "linear", TWO).load().runs("smoke") if run.model.label == "attention")
    assert arm.model.mixers == (replace(efforts.ATTENTION, heads=2),)
    with pytest.raises(UserError, match="has no setting 'head': did you mean 'heads'"):
        by_name.mixer("attention(head=8)", usual)


def test_settings_of_ones_own_class_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PEEKING)
    mine = f"{tmp_path / 'mine.py'}:Scaled"
    assert labels(f"{mine}(factor=2)", f"{mine}(factor=3)", "conv") == ["scaled", "scaled-factor3", "conv"]


def test_ones_own_task_by_the_name_of_one_that_ships_is_not_asked_at_lengths_that_it_has_not() -> None:
    @dataclass(frozen=True)
    class Own(View):
        name: ClassVar[str] = "recall"  # pyright: ignore[reportIncompatibleVariableOverride]

    (run,) = comparison.compare(by_name.mixer("linear"), ONE).runs("smoke")[:1]
    assert [each.name for each in comparison.probes(run)] == ["extrapolation", "effective_context", "slices"]
    own = replace(run, task=Own(run.task))
    assert [each.name for each in comparison.probes(own)] == ["effective_context", "slices"]


def test_tasks_that_tables_call_alike_are_refused() -> None:
    options = Options(tasks=("reach(range=16)", "reach(range=32)"), protocols=("scratch",), baselines=("conv",))
    with pytest.raises(UserError, match=r"reach\(range=16\) and reach\(range=32\) are both called reach"):
        comparison.compare(by_name.mixer("linear"), options).runs("smoke")


@pytest.mark.parametrize("name", ["parity(length=12)", "induction(length=16)", "words_a5", "recall(pairs=4)"])
def test_a_setting_of_a_task_changes_neither_its_direction_nor_what_answers(name: str) -> None:
    family = "words" if name == "words_a5" else by_name.without_settings(name)
    plain, other = (efforts.model(each, efforts.ATTENTION, "minutes") for each in (family, name))
    assert (other.causal, other.pooling) == (plain.causal, plain.pooling)


@pytest.mark.parametrize(("name", "share"), [("listops_official", 0.1), ("text_1k", 0.15), ("image8", 0.5)])
def test_the_share_that_is_hidden_is_that_of_the_kind_of_data(name: str, share: float) -> None:
    (protocol,) = efforts.protocols(name, "minutes", ("spt_masked",))
    objective = protocol.phases[0].objective
    assert isinstance(objective, Masked) and objective.ratio == share


def test_a_baseline_that_sees_the_future_is_refused_as_the_mixer_would_be(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PEEKING)
    options = Options(tasks=("parity",), protocols=("scratch",), baselines=(f"{tmp_path / 'mine.py'}:Peek",))
    with pytest.raises(UserError, match="peek is built as causal, but its output"):
        comparison.compare(by_name.mixer("linear"), options).runs("smoke")


def test_a_baseline_has_a_finer_width_where_no_multiple_of_eight_is_near(tmp_path: Path) -> None:
    """One that fails in its calls alone at such a width keeps to those that it takes."""
    (tmp_path / "mine.py").write_text(PEEKING)
    options = Options(baselines=("conv(kernel=5,hidden=64)", f"{tmp_path / 'mine.py'}:Split"))
    own, conv, split = comparison.models(by_name.mixer("mega"), "listops", "smoke", options)
    of = efforts.generated("listops", "smoke")
    apart = {width: abs(trained(replace(conv, width=width), of) - trained(own, of)) for width in range(1, 65)}
    assert apart[conv.width] == min(apart.values()) and conv.width % 8
    apart = {width: abs(trained(replace(split, width=width), of) - trained(own, of)) for width in range(8, 65, 8)}
    assert apart[split.width] == min(apart.values()) > 0.04 * trained(own, of)


def reordered_alike(run: Run) -> bool:
    """Returns whether the run's network, before training, answers alike where all steps but the first are turned."""
    net = build_net(run, Classify()).eval()
    x = torch.randint(1, 10, (4, run.task.max_length), generator=torch.Generator().manual_seed(0))
    turned = x[:, [0, *range(run.task.max_length - 1, 0, -1)]]
    before, after = (net.head("label", net.hidden_states(each, None), None) for each in (x, turned))
    return torch.allclose(before, after, atol=1e-5)


def test_arms_that_see_no_order_are_named() -> None:
    given = ("performer", "longformer", "bigbird", "attention", "alibi", "conv", "lru")
    options = Options(tasks=("listops",), protocols=("scratch",), baselines=given, seeds=2)
    runs = comparison.compare(by_name.mixer("linear"), options).runs("smoke")
    (said,) = unordered.sentences(runs)
    blind = list(dict.fromkeys(run.model.label for run in runs if reordered_alike(run)))
    assert blind == ["linear", "performer", "longformer", "bigbird"]
    assert said.startswith(f"No order is seen by {', '.join(blind)} on listops: ")
    assert not list(unordered.sentences([replace(run, model=replace(run.model, causal=True)) for run in runs]))
    ordered = [replace(run, model=replace(run.model, positions="sinusoidal")) for run in runs]
    assert not list(unordered.sentences(ordered)) and not any(map(reordered_alike, ordered[:2]))


def test_a_window_sees_no_order_in_what_it_holds_whole() -> None:
    found = [contract.order_blind(Longformer(window=window), 16, {20, 64}) for window in (8, 64, 512)]
    assert found == [set(), {20}, {20, 64}]
    assert contract.order_blind(Attention(heads=3), 16, {20}) == set(), "what cannot be built shows nothing"


def test_commands_name_arms_that_see_no_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before training, and beside the scores."""

    def refused(*given: object) -> None:
        raise UserError("There is no engine.")

    words = ["linear", "--effort", "smoke", "--tasks", "recall", "--protocols", "scratch", "--baselines", "performer"]
    places = ["--runs-dir", str(tmp_path / "runs"), "--data", str(tmp_path / "data")]
    sentence = "No order is seen by linear, performer on recall: "
    main(["plan", *words, *places])
    assert f"\n{sentence}" in capsys.readouterr().out
    monkeypatch.setattr("levelfield.engine.placement.engine", refused)
    with pytest.raises(SystemExit):
        main(["compare", *words, *places, "--report-dir", str(tmp_path / "report")])
    assert capsys.readouterr().out.startswith(sentence)
    runs, data, report = (tmp_path / name for name in ("runs", "data", "report"))
    folders = Choices(runs_dir=runs, data=data, report_dir=report)
    found = levelfield.compare("linear", "recall", "scratch", "smoke", baselines="performer", **folders)
    assert any(each.startswith(sentence) for each in found.remarks)
    assert "sees no order in two directions" in found.page.read_text()


def test_what_the_contract_allows_and_a_reader_should_know_is_a_sentence_each(tmp_path: Path) -> None:
    """Of the mixer and of baselines, of unknown code alone."""
    (tmp_path / "mine.py").write_text(PEEKING)
    peek, scaled, normed, idle = (f"{tmp_path / 'mine.py'}:{name}" for name in ("Peek", "Scaled", "Normed", "Idle"))

    def said(mixer: str, *beside: str) -> list[str]:
        options = replace(ONE, baselines=beside)
        return [*arm_remarks.sentences(comparison.compare(by_name.mixer(mixer), options).runs("smoke"))]

    assert said(scaled, "conv") == []
    order, ahead = said(peek, "conv")  # a mean over the steps
    assert order.startswith("No order is seen by peek")
    assert ahead.startswith("peek takes no `causal` and looks ahead, so that all arms see both directions on recall.")
    (mixes,) = said("conv", normed)
    assert mixes.startswith("normed lets the sequences of a batch see each other in training")
    (untrained,) = said(idle, "conv")
    assert untrained.startswith("idle has no weights to train: it stays as it is")
    reach = [certified.beside(by_name.mixer(each)).runs("smoke") for each in (peek, scaled)]
    assert [sum("takes no `causal`" in each for each in arm_remarks.sentences(runs)) for runs in reach] == [1, 0]


def test_plan_comparison_and_page_say_that_a_mixer_looks_ahead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PEEKING)
    sentence = "peek takes no `causal` and looks ahead, so that all arms see both directions on recall."
    words = ["mine.py:Peek", "--effort", "smoke"]
    main(["plan", *words, "--tasks", "recall", "--protocols", "scratch", "--baselines", "conv"])
    assert f"\n{sentence}" in capsys.readouterr().out
    lines: list[str] = []
    found = levelfield.compare(
        "mine.py:Peek", "recall", "scratch", "smoke", baselines="conv", steps=2, say=lines.append
    )
    assert any(line.startswith(sentence) for line in lines[:2]) and f"\n{sentence}" in repr(found)

    def head(page: Path) -> str:
        return re.sub("<[^>]*>", "", page.read_text().partition("</header>")[0])

    shown = sentence.replace("`", "")  # as code
    assert shown in head(found.page)
    main(["report", *words, "--report-dir", "again"])
    assert shown in head(next(Path("again").glob("*/report.html"))) and sentence in capsys.readouterr().out


CHANCE = Row(task="t", model="chance", protocol="none", metric="accuracy", split="test", value=0.1, n=2_000)


def arm(model: str, *percent: float) -> list[Row]:
    row = Row(task="t", model=model, protocol="scratch", metric="accuracy", split="test", n=2_000)
    return [row | Row(run=f"{model}{seed}", seed=seed, value=v / 100) for seed, v in enumerate(percent)]


def test_an_arm_is_called_below_the_baseline_that_is_shown_to_be_above_it() -> None:
    """The best baseline is so by a lucky seed, and only another one is shown to be above the mixer."""
    rows = [CHANCE, *arm("mine", 30, 30.1, 30.2), *arm("conv", 50, 50.2, 50.4), *arm("attention", 75, 75.1, 75.2)]
    text = comparison.verdict("mine", [*rows, *arm("s4", 58, 78, 98)])
    assert text.startswith("mine is above every baseline in 0 of 1 comparisons and below some baseline in 1.")
    assert "is below attention at 75.1 % (75.0 to 75.2 over 3 seeds), and is not shown to be below the best" in text
    assert "the best baseline, s4 at 78.0 % (58.0 to 98.0 over 3 seeds)." in text
    assert "is below the best baseline, s4 at 78.0 %" in comparison.verdict("mine", [*rows, *arm("s4", 77.9, 78, 78.1)])


def test_an_arm_of_which_every_seed_diverged_is_above_nobody() -> None:
    """Its scores are of weights kept before, and read like any other."""
    others, own = [CHANCE, *arm("s4", 40, 40.5, 41)], arm("mine", 60, 60.5, 61)
    apart = [row | Row(status="diverged") for row in own]
    said = comparison.verdict("mine", [*others, *apart])
    assert "in 0 of 1 comparisons" in said and "is not ranked above the best baseline, s4" in said
    assert "All of its seeds diverged" in said
    some = comparison.verdict("mine", [*others, *apart[:2], *own[2:]])
    assert "in 1 of 1 comparisons" in some and "diverged" not in some
    below = [row | Row(status="diverged") for row in arm("mine", 20, 20.5, 21)]
    assert "is below the best baseline" in comparison.verdict("mine", [*others, *below])


def test_arms_of_equal_flops_get_as_many_as_the_mixer_takes_for_its_steps() -> None:
    """Within a step of each phase, and the three digits that a budget has."""

    def flops(equal: Equal) -> dict[tuple[str, str], float]:
        asked = Options(("recall",), ("scratch", "spt_masked"), ("linear",), steps=200, equal=equal)
        runs = comparison.compare(S4(), asked).runs("smoke")
        return {(run.model.label, run.protocol.name): plan.cost(run).total or 0.0 for run in runs}

    by_steps, equal = flops("steps"), flops("flops")
    assert len(by_steps) == 4 and max(by_steps.values()) > 1.2 * min(by_steps.values())
    assert list(equal.values()) == pytest.approx([by_steps["s4", "scratch"]] * 4, rel=0.025)


def test_other_flops_are_another_comparison_whose_runs_are_judged_apart() -> None:
    equal = [Options(("recall",), equal=each) for each in ("steps", "flops")]
    shared = [comparison.shared("smoke", options) for options in (*equal, Options())]
    assert shared[0] == shared[2] != shared[1]
    with pytest.raises(UserError, match="choose one of: steps, flops"):
        Options(equal="tokens")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", NAMES)
def test_every_mixer_that_ships_is_a_baseline_by_its_name_alone(name: str) -> None:
    """Heads of 64 channels, as Mamba-2 and RWKV have in their papers, divide few widths that parameters ask for."""
    beside = comparison.arms(by_name.mixer("gru"), Options(baselines=("conv", name)))
    back = any("bidirectional" not in mixer.directions for mixer in beside.values())
    if name not in beside or (back and "causal" not in beside[name].directions):
        return
    task, options = efforts.sized_task("recall", "minutes"), Options(baselines=("conv", name))
    own, *others = comparison.models(by_name.mixer("attention"), "recall", "minutes", options, back)
    for model in others:
        assert 0.8 < trained(model, task) / trained(own, task) < 1.25, model.label
    named = by_name.mixer(name, certified.NAMED)
    assert certified.models((named,), "minutes", "causal" in named.directions)
