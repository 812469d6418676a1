"""`levelfield check` says of each rule what it finds, tells one fault once, and names the rule that it breaks."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from levelfield.cli.app import main
from levelfield.contract import check, findings, looks_ahead
from levelfield.spec import UserError
from levelfield.user.mixer import user_mixer


class Raises(nn.Linear):
    def __init__(self, width: int) -> None:
        super().__init__(width, width)

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x[:, :16]) + x  # made for sequences of 16 steps


class NotFinite(Raises):
    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return nn.functional.linear(x, self.weight) / 0


class Overflows(Raises):
    """The mean over all steps, which noise on its parameters makes infinite."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x.mean(1, keepdim=True) + x + self.bias.square().sum() * torch.finfo(x.dtype).max * 1e3


@pytest.mark.parametrize(
    "made, words", [(Raises, "fails on an input of shape"), (NotFinite, "returns NaN or infinite")]
)
def test_a_fault_of_the_outputs_is_told_once_under_its_own_rule(made: type[nn.Module], words: str) -> None:
    found = list(findings.examine(user_mixer(made), 8, causal=True))
    faults = {each.rule: each.fault for each in found if each.fault not in ("", findings.NOT_REACHED)}
    assert list(faults) == [findings.FINITE] and words in faults[findings.FINITE]
    at = [each.rule for each in found].index(findings.FINITE)
    assert not any(each.fault for each in found[:at]), "its weights are tensors, whatever its forward does"
    assert {each.fault for each in found[at + 1 :]} == {findings.NOT_REACHED}


class Frozen(Raises):
    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        with torch.no_grad():
            return nn.functional.linear(x, self.weight, self.bias)


def test_a_layer_that_cuts_gradients_off_is_told_so_once() -> None:
    found = {each.rule: each.fault for each in findings.examine(user_mixer(Frozen), 8, causal=True)}
    faults = [rule for rule, fault in found.items() if fault not in ("", findings.NOT_REACHED)]
    assert faults == ["gradients are finite"]
    assert found[findings.RUNS] == found[findings.IN_BF16] == findings.NOT_REACHED


class OneOfTwo(Raises):
    """A layer for both directions, each with a map of its own: one of them is idle where the future stays hidden."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__(width)
        self.after = nn.Linear(width, width)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        y = nn.functional.linear(x, self.weight, self.bias)
        return y if self.causal else y + self.after(nn.functional.pad(x, (0, 0, 0, 1))[:, 1:])


def test_weights_without_a_gradient_are_a_note_as_a_comparison_trains_them() -> None:
    with pytest.warns(UserWarning, match="get no gradient: inner.after.bias, inner.after.weight"):
        check(user_mixer(OneOfTwo), 8, causal=True)
    found = {each.rule: each.fault for each in findings.examine(user_mixer(OneOfTwo), 8, causal=True) if each.fault}
    assert list(found) == [findings.USED] and findings.USED in findings.NOTES
    assert "get no gradient: inner.after.bias, inner.after.weight; remove or use them" in found[findings.USED]


def test_who_names_a_mask_otherwise_is_told_that_it_is_not_passed() -> None:
    class Mean(Raises):
        def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            return x.mean(1, keepdim=True) + nn.functional.linear(x, self.weight, self.bias)

    with pytest.raises(UserError, match=r"take `mask`, .*; `attention_mask` is never passed"):
        check(user_mixer(Mean), 8, causal=False)


class Doubles(Raises):
    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return nn.functional.linear(x.mul_(2), self.weight, self.bias)


class Hides(Raises):
    """It hides padded steps in its input."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        if mask is not None:
            x[~mask] = 0
        return nn.functional.linear(x, self.weight, self.bias)


class AddsNothing(Raises):
    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        x += torch.zeros_like(x)  # such as positions before any training
        return nn.functional.linear(x, self.weight, self.bias)


class Bypasses(Raises):
    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        x.data[:, 0] = 1
        return nn.functional.linear(x, self.weight, self.bias)


@pytest.mark.parametrize("made", [Doubles, Hides, AddsNothing, Bypasses])
def test_a_layer_that_changes_its_input_in_place_is_told_so_once(made: type[Raises]) -> None:
    mixer = user_mixer(made)
    found = list(findings.examine(mixer, 8, causal=True))
    faults = {each.rule: each.fault for each in found if each.fault not in ("", findings.NOT_REACHED)}
    assert list(faults) == [findings.INPUT]
    assert "changes its input in place" in faults[findings.INPUT] and "x = x.clone()" in faults[findings.INPUT]
    with pytest.raises(UserError, match="changes its input in place"):
        check(mixer, 8, causal=True)


def test_outputs_that_are_not_finite_show_no_look_ahead() -> None:
    assert not looks_ahead(user_mixer(NotFinite), 8)
    assert looks_ahead(user_mixer(Overflows), 8), "as initialised it does, and only noise hides it"


class Noisy(Raises):
    """It sees one step at a time, and adds noise that it draws anew at each call."""

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return nn.functional.linear(x, self.weight, self.bias) + torch.randn_like(x)


class NoisyAhead(Noisy):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x.mean(1, keepdim=True)


class Counts(Noisy):
    """It adds how often it was called, which no random number explains."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return nn.functional.linear(x, self.weight, self.bias) + self.calls


class Lazy(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.LazyLinear(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x)


@pytest.mark.parametrize("made, words", [(Noisy, "draws random numbers"), (Counts, "gives another output")])
def test_a_layer_with_several_outputs_of_one_input_is_told_so_and_of_nothing_else(
    made: type[nn.Module], words: str
) -> None:
    assert not looks_ahead(user_mixer(made), 8), "it sees one step at a time"
    found = {each.rule: each.fault for each in findings.examine(user_mixer(made), 8, causal=True)}
    faults = {rule: fault for rule, fault in found.items() if fault not in ("", findings.NOT_REACHED)}
    assert list(faults) == [findings.SAME] and words in faults[findings.SAME]
    assert {rule for rule, fault in found.items() if fault == findings.NOT_REACHED} == findings.COMPARING


def test_a_layer_that_draws_and_looks_ahead_is_seen_to_look_ahead() -> None:
    assert looks_ahead(user_mixer(NoisyAhead), 8)


def test_weights_without_a_size_are_one_fault_and_one_sentence() -> None:
    found = list(findings.examine(user_mixer(Lazy), 8, causal=True))
    assert (
        found[0].fault == "lazy does not know the size of 'inner.map.weight' when it is built: take it from the width."
    )
    assert {each.fault for each in found[1:]} == {findings.NOT_REACHED}
    with pytest.raises(UserError, match="lazy does not know the size"):
        looks_ahead(user_mixer(Lazy), 8)


class BatchNormed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.map, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.map(x).transpose(1, 2)).transpose(1, 2)


class BatchCentred(nn.Linear):
    """Its outputs depend on the batch in eval mode too, which is a fault and no note."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width)

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x - x.mean(0))


def test_what_mixes_sequences_in_training_alone_is_told_and_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {each.rule for each in findings.examine(user_mixer(BatchNormed), 8, causal=False) if each.fault} == {
        findings.IN_TRAINING
    }
    found = {each.rule: each.fault for each in findings.examine(user_mixer(BatchCentred), 8, causal=False)}
    assert found[findings.IN_TRAINING] == findings.NOT_REACHED
    monkeypatch.chdir(tmp_path)
    lines = inspect.getsource(BatchNormed)
    Path("mine.py").write_text(f"from torch import Tensor, nn\n{lines}")
    main(["check", "mine.py:BatchNormed", "--width", "8"])
    shown = capsys.readouterr().out
    said = (
        "note   sequences of a batch do not see each other in training: batchnormed lets the sequences of a batch see"
    )
    assert said in shown and "FAULT" not in shown and shown.endswith("All of it holds.\n")


class SumsInHalf(Raises):
    """A sum over all steps so far in the precision of training, which in bfloat16 stops growing."""

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        terms = nn.functional.linear(x, self.weight, self.bias) + 1
        total, totals = torch.zeros_like(terms[:, 0]), []
        for step in terms.unbind(1):
            total = total + step
            totals.append(total)
        return torch.stack(totals, 1)


def test_what_loses_its_digits_in_bfloat16_is_told_and_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where noise makes float32 overflow, there is nothing to lose."""
    found = {each.rule: each.fault for each in findings.examine(user_mixer(SumsInHalf), 8, causal=True)}
    (told,) = {rule for rule, fault in found.items() if fault}
    assert told == findings.IN_BF16 and "off that in float32 at 512 steps" in found[told]
    overflowing = {each.rule: each.fault for each in findings.examine(user_mixer(Overflows), 8, causal=False)}
    assert overflowing[findings.IN_BF16] == ""
    monkeypatch.chdir(tmp_path)
    source = inspect.getsource(SumsInHalf).replace("(Raises)", "(nn.Linear)").replace("x: Tensor", "x")
    made = "    def __init__(self, width):\n        super().__init__(width, width)\n"
    Path("mine.py").write_text(f"import torch\nfrom torch import Tensor, nn\n{source}{made}")
    main(["check", "mine.py:SumsInHalf", "--width", "8"])
    shown = capsys.readouterr().out
    assert f"note   {findings.IN_BF16}: sumsinhalf in bfloat16 has" in shown and "FAULT" not in shown


class Scripted(nn.Module):
    """A copy of it gets no gradients for its weights once the layer has run."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = torch.jit.script(nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_layer_is_at_no_fault() -> None:
    assert [found for found in findings.examine(user_mixer(Scripted), 16, False) if found.fault] == []


AHEAD = """
from torch import nn

class Told(nn.Linear):
    def __init__(self, width, causal=False):
        super().__init__(width, width)

    def forward(self, x, mask=None):
        real = x.new_ones(x.shape[:2]) if mask is None else mask.to(x.dtype)
        return super().forward(x) + (x * real[..., None]).sum(1, keepdim=True) / real.sum(1).clamp(1)[:, None, None]

class Untold(Told):
    def __init__(self, width):
        super().__init__(width)
"""


def test_a_layer_that_is_told_to_see_earlier_steps_alone_and_sees_all_is_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that nobody can tell sees both directions, and is compared so."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(AHEAD)
    with pytest.raises(SystemExit) as stop:
        main(["check", "mine.py:Told", "--width", "8"])
    shown = capsys.readouterr().out
    assert stop.value.code == 1 and shown.count("FAULT") == 2, shown  # a line, and the last one
    assert f"FAULT  {findings.CAUSAL}: told is built as causal" in shown
    main(["check", "mine.py:Untold", "--width", "8"])
    shown = capsys.readouterr().out
    assert shown.endswith(
        "mine.py:Untold takes no `causal` and looks ahead: it is examined and compared in both directions only. If it "
        "is meant to see earlier steps alone, let it take `causal`: `levelfield check` then names a step that sees "
        "later ones.\nAll of it holds, in both directions.\n"
    )
    assert "FAULT" not in shown


def test_a_check_goes_on_to_its_last_line_after_a_layer_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    body = "    def forward(self, x):\n        raise ValueError('no such thing')\n"
    Path("mine.py").write_text(f"from torch import nn\nclass Mine(nn.Identity):\n    width = 1\n{body}")
    with pytest.raises(SystemExit) as stop:
        main(["check", "mine.py:Mine", "--width", "8"])
    shown = capsys.readouterr().out
    assert stop.value.code == 1 and shown.endswith("Mend what is marked FAULT, then check again.\n")
    assert "seeing both directions" in shown and "seeing earlier steps alone" in shown
    assert shown.count("FAULT  ") == 1, "what is the same in both directions is told once"
    assert shown.count("not reached") == 2 and "  -      17 rules are not reached, for the fault above\n" in shown
    assert "  -      here too: 1 fault of those above\n" in shown
    assert "max_length" not in shown, "it fails at every length"


def test_a_ready_made_task_is_checked_on_few_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Drawing all 200,000 pictures of Pathfinder twice would take minutes; whoever names counts has those."""
    main(["check", "flipflop"])
    assert capsys.readouterr().out.startswith(
        "the task flipflop of at most 2,400 examples (others: flipflop(train=...)):"
    )
    main(["check", "flipflop(train=100)"])
    assert capsys.readouterr().out.startswith("the task flipflop(train=100):")


def test_a_mixer_of_wide_heads_is_checked_at_a_width_that_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "rwkv7"])
    shown = capsys.readouterr().out
    assert shown.startswith(
        "the mixer rwkv7 at width 64, as it does not take 32, on 25, 33, 47 and 256 steps, seeing earlier steps "
        "alone:\n"
    )
    assert shown.endswith("All of it holds.\n")


def test_parameters_that_first_values_of_zero_switch_off_are_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "rwkv6_channel"])
    assert capsys.readouterr().out.endswith("All of it holds.\n")


class LooksAheadInTraining(Raises):
    """It drops units in training, too, with draws of its own."""

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        y = nn.functional.dropout(nn.functional.linear(x, self.weight, self.bias), 0.5, self.training)
        return y + x.mean(1, keepdim=True) if self.training else y


class DropsUnits(Raises):
    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return nn.functional.dropout(nn.functional.linear(x, self.weight, self.bias), 0.5, self.training)


class Sums(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1)


def test_looking_ahead_in_training_alone_is_a_fault_and_dropout_is_none() -> None:
    """In a comparison as well; batch statistics, which are of later steps too, are the note that they were."""
    found = {each.rule: each.fault for each in findings.examine(user_mixer(LooksAheadInTraining), 8, causal=True)}
    assert "in training its output at step 0 depends on inputs after step 0" in found[findings.CAUSAL_IN_TRAINING]
    assert found[findings.CAUSAL] == ""
    with pytest.raises(UserError, match="honour `causal` where"):
        check(user_mixer(LooksAheadInTraining), 8, causal=True)
    check(user_mixer(LooksAheadInTraining), 8, causal=False)
    check(user_mixer(DropsUnits), 8, causal=True)
    assert not [each for each in findings.examine(user_mixer(DropsUnits), 8, causal=True) if each.fault]


def test_a_mixer_without_weights_is_noted() -> None:
    faults = [each for each in findings.examine(user_mixer(Sums), 8, causal=True) if each.fault]
    assert [each.rule for each in faults] == [findings.TRAINED] and findings.TRAINED in findings.NOTES
    assert "has none: it stays as it is" in faults[0].fault
