"""Examines a mixer rule by rule and says of each whether it holds: what `levelfield check` shows of a mixer.

    for finding in examine(mixer, width=32, causal=True):
        print(finding.rule, finding.fault or "holds")

`contract.check` stops at the first fault, as nothing is trained after it; whoever mends a mixer wants to see them all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Generator, nn

from levelfield.contract import Examination, built, check, rules, seeds, settings, training
from levelfield.contract.bf16 import LosesDigits, agrees_in_bf16
from levelfield.spec import MixerConfig, UserError, torch_settings
from levelfield.spec.errors import format_error
from levelfield.spec.memory import TooLarge, fitting

NOT_REACHED = "not reached, for the fault above"


class Finding(NamedTuple):
    """A rule in words, and what breaks it in one sentence; "" where nothing does. A rule of NOTES may be broken."""

    rule: str
    fault: str = ""


class _Case(NamedTuple):
    """A layer under examination: its subject, and the examination that it is part of."""

    subject: rules.Subject
    examination: Examination
    generator: Generator

    @property
    def layer(self) -> nn.Module:
        return self.subject.layer


USED = "all weights get a gradient"
TRAINED = "it has weights to train"
TRAINS = "calls in training run"
FRESH = "no batch of training meets what was kept of another"
STEADY = "in training the same batch gives the same output"
CAUSAL_IN_TRAINING = "no step sees a later one in training"
IN_TRAINING = "sequences of a batch do not see each other in training"
AS_ONE = "one layer passes all of this in a row, on long sequences too"
RUNS = "a training step on a long sequence runs, in bfloat16 too"
IN_BF16 = "a training step in bfloat16 agrees with one in float32"
MADE = "calls make no weights, and change no shapes"
SEED = "torch's seed is left alone"
SETTINGS = "torch's settings are left alone"
OWN = "other seeds give other first weights"
INPUT = "its input stays as it is"
FINITE = "outputs are finite and have the shape of the input"
SAME = "the same input gives the same output"
APART = "sequences of a batch do not see each other"
CAUSAL = "no step sees a later one"
PADDING = "padding is not seen"
STORED = "stored weights make the same layer again"
RULES: dict[str, Callable[[_Case], object]] = {
    "weights are tensors, and there when it is built": lambda c: built.holds_tensors_alone(c.layer, c.subject.name),
    SETTINGS: lambda c: settings.left_when_called(c.subject),
    MADE: lambda c: built.made_when_built(c.subject),
    SEED: lambda c: _leaves_the_seed(c),
    INPUT: lambda c: rules.leaves_its_input(c.subject),
    FINITE: lambda c: rules.finite(c.subject),
    SAME: lambda c: rules.same_output_when_called_again(c.subject),
    "sequences of one step are taken": lambda c: rules.one_step(c.subject),
    APART: lambda c: rules.independent_of_batch(c.subject),
    CAUSAL: lambda c: rules.blind_to_the_future(c.subject, range(c.examination.length - 1)),
    PADDING: lambda c: rules.blind_to_padding(c.subject),
    TRAINS: lambda c: training.mixes_in_training(c.subject),  # whatever it tells, it calls the layer in training
    FRESH: lambda c: training.carries_no_batch(c.subject),
    "gradients are finite": lambda c: rules.finite_gradients(c.subject, padding=True),
    USED: lambda c: _used(c),
    OWN: lambda c: _own_weights(c),
    TRAINED: lambda c: _trained(c),
    IN_TRAINING: lambda c: _apart_in_training(c),
    STEADY: lambda c: _steady(c),
    CAUSAL_IN_TRAINING: lambda c: _blind_in_training(c),
    "declared lengths are true": lambda c: c.examination.declared_lengths(c.layer, c.generator),
    STORED: lambda c: rules.same_after_loading(c.subject, c.examination.built()),
}
"""What must hold, in the order of what explains most."""

COMPARING = {
    APART,
    CAUSAL,
    PADDING,
    IN_TRAINING,
    FRESH,
    STEADY,
    CAUSAL_IN_TRAINING,
    STORED,
    AS_ONE,
    IN_BF16,
}  # they compare outputs of two calls
FOLLOWING = {
    SEED: {SAME, OWN, *COMPARING},
    SAME: COMPARING,
    CAUSAL: {CAUSAL_IN_TRAINING, AS_ONE},
    TRAINS: {FRESH, IN_TRAINING, STEADY, CAUSAL_IN_TRAINING, AS_ONE},
    FRESH: {"gradients are finite", USED, STEADY, AS_ONE},
    AS_ONE: {RUNS, IN_BF16},
    RUNS: {IN_BF16},
}
"""The rules that are not reached where one is broken. All are where calls make weights or change settings, or outputs
are not finite; else it is AS_ONE."""

NOTES = {USED, OWN, TRAINED, IN_TRAINING, STEADY, IN_BF16}
"""Rules that good mixers may break, and whoever trains one should know."""

TRACKED = {"gradients are finite", USED, "declared lengths are true", AS_ONE, RUNS, IN_BF16}  # these look at gradients
STEPS = 33  # of the sequences of all rules but those that say "long"
LONG = 512  # steps after which a sum in bfloat16 has stopped growing


def examine(
    config: MixerConfig, width: int, causal: bool, length: int = STEPS, lengths: Collection[int] = ()
) -> Iterator[Finding]:
    """Yields what each rule finds, each on a fresh layer, as initialised and with noise added to its parameters; in
    bfloat16 with noise alone, and over more steps.

    Where nothing is at fault so far, `contract.check` follows, which applies them to one layer, and at `lengths`: what
    a comparison refuses is a fault here. A fault that several rules run into is told once; the later ones say that they
    were not reached, and so do all that follow changed settings or outputs which are not finite, and those that compare
    outputs where one input has several. Raises TooLarge where the layer does not fit into memory at this width.
    """
    told: set[str] = set()
    hidden: set[str] = set()
    length = min(length, config.max_length or length)
    examination = Examination(config, width, causal, padding=True, device="cpu", length=length)
    tests: dict[str, Callable[[], None]] = {name: partial(_twice, rule, examination) for name, rule in RULES.items()}
    half = _InHalf(config, width, causal)
    tests |= {AS_ONE: partial(check, config, width, causal, lengths=lengths), RUNS: half.runs, IN_BF16: half.agrees}
    if not causal:
        del tests[CAUSAL], tests[CAUSAL_IN_TRAINING]
    for name, test in tests.items():
        fault = NOT_REACHED if name in hidden else _fault(test, examination, tracked=name in TRACKED)
        yield Finding(name, NOT_REACHED if fault in told else fault)
        told |= {fault} - {""}
        if fault and name not in NOTES and name not in hidden:
            hidden |= FOLLOWING.get(name, {*tests} if name in (MADE, SETTINGS, FINITE) else {AS_ONE})


class _InHalf:
    """A training step in bfloat16: whether it runs is one rule, and whether it keeps its digits another."""

    def __init__(self, config: MixerConfig, width: int, causal: bool) -> None:
        self.step = partial(agrees_in_bf16, config, width, causal, min(LONG, config.max_length or LONG))
        self.lost: LosesDigits | None = None

    def runs(self) -> None:
        try:
            self.step()
        except LosesDigits as lost:
            self.lost = lost

    def agrees(self) -> None:
        if self.lost:
            raise self.lost


def _fault(test: Callable[[], None], examination: Examination, tracked: bool) -> str:
    """Returns what a test raises as a sentence, "" where it raises nothing. tracked: whether it looks at gradients."""
    label = examination.config.label
    try:
        with (
            fitting(f"{label} at width {examination.width:,}"),
            warnings.catch_warnings(),
            torch.random.fork_rng(devices=[]),
            torch_settings.kept(),
            torch.set_grad_enabled(tracked),
        ):
            warnings.simplefilter("ignore")
            test()
    except TooLarge:
        raise
    except UserError as error:
        return str(error)
    except (Exception, SystemExit) as error:  # whatever a user's own layer raises
        return f"{label} fails in the contract check: {format_error(error)}"
    return ""


def _twice(rule: Callable[[_Case], object], examination: Examination) -> None:
    """Applies a rule to a layer as initialised, and with noise added to its parameters."""
    layer, generator = examination.built(), Generator().manual_seed(1)
    built.sizes_known(layer, examination.config.label)
    rule(_Case(examination.subject(layer, generator), examination, generator))
    rules.add_noise(layer, generator)
    subject = examination.subject(layer, generator)
    if not _overflows(subject):
        rule(_Case(subject, examination, generator))


def _overflows(subject: rules.Subject) -> bool:
    """Tells whether noise has made the outputs infinite. A layer that fails is left to the rules that call it."""
    try:
        return not bool(torch.isfinite(subject(subject.x)).all())
    except (UserError, SystemExit):
        return False


def _apart_in_training(case: _Case) -> None:
    """Raises UserError where outputs depend on the batch in training; where in eval mode too, that rule's own."""
    rules.independent_of_batch(case.subject)
    if training.mixes_in_training(case.subject):
        raise UserError(f"{case.subject.name} {training.MIXES}")


def _leaves_the_seed(case: _Case) -> None:
    case.examination.leaves_the_seed()
    seeds.left_when_called(case.subject)


def _own_weights(case: _Case) -> None:
    if case.examination.begins_alike():
        raise UserError(f"{case.subject.name} {seeds.ALIKE}")


def _steady(case: _Case) -> None:
    if said := training.unsteady(case.subject):
        raise UserError(f"{case.subject.name} {said}")


def _blind_in_training(case: _Case) -> None:
    if not training.mixes_in_training(case.subject):
        training.blind_in_training(case.subject, case.examination.some)


def _trained(case: _Case) -> None:
    """Raises UserError for a layer without a parameter that training changes."""
    if not any(value.requires_grad for value in case.layer.parameters()):
        raise UserError(f"{case.subject.name} has none: {rules.UNTRAINED}")


def _used(case: _Case) -> None:
    """Raises UserError for parameters that never get a gradient, such as those of the direction that is not asked."""
    idle = rules.finite_gradients(case.subject, padding=True)
    if idle:  # which first values of zero may have switched off, until training moves them
        layer, generator = case.examination.built(), Generator().manual_seed(1)
        rules.add_noise(layer, generator)
        moved = case.examination.subject(layer, generator)
        idle &= set() if _overflows(moved) else rules.finite_gradients(moved, padding=True)
    if idle:
        names = ", ".join(sorted(idle))
        raise UserError(f"{case.subject.name} has parameters that get no gradient: {names}; remove or use them.")
