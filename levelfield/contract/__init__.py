"""Checks the contract that every mixer keeps, before any training: ours in the tests, a user's before it is compared.

    check(load_user_mixer("mine.py:Mine"), width=64, causal=True)
    # UserError: mine is built as causal, but its output at step 3 depends on inputs after step 3: ...

A comparison is worthless when one arm reads the future, the padding or its neighbours in the batch, and such faults
look like skill. Each rule therefore changes what must not matter and looks for a change in the output. Letters:
B batch, T steps, D width.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor, nn

from levelfield.contract import built, fields, rules, seeds, settings, training
from levelfield.spec import MixerConfig, UserError, torch_settings
from levelfield.spec.errors import format_error
from levelfield.spec.memory import SHORTER, fitting
from levelfield.spec.reseeding import SetsSeed

SHORT = 33  # steps that show most of what a layer does


def check(
    config: MixerConfig,
    width: int,
    causal: bool,
    length: int = SHORT,
    padding: bool = True,
    device: str = "cpu",
    lengths: Collection[int] = (),
) -> None:
    """Raises UserError, in one sentence, for the first rule that the layer of `config` breaks.

    The rules: no seed and no setting of torch's that is changed, weights that are there when it is built, outputs of
    the input's shape, finite outputs and gradients, the same output for the same input in eval mode, no memory between
    calls, none of one batch of training in the next, sequences of one step, independence of batch neighbours, no future
    in the causal direction, neither in eval mode nor in training, with `padding` no influence of padded steps on real
    ones, declared lengths that are true, a receptive field that is the same at every step unless `equivariant` denies
    it, and weights that alone, stored and loaded, make the same layer. At each of `lengths`, in steps, which the tasks
    to come have, outputs must be finite and a pass of training must run; in the middle of the longest a causal layer
    must not see the future, nor any layer what is padded, and no rule asks for more steps than that. Parameters that
    never get a gradient raise a warning only; `cautions` tells what no rule forbids. A check takes well under a second
    on a CPU, plus three passes at each length and ten at the longest, eight more for a declared field; `device` is for
    modules that run nowhere else.

    The layer is checked as initialised, and again with noise added to its parameters: a last map that starts at zero
    would hide every fault until training moves it.
    """
    try:
        bound = config.max_length
        asked = tuple(sorted({min(each, bound or each) for each in lengths}))
        length = min(length, bound or length, *asked[-1:])
        what = f"{config.label} at width {width:,}, called on up to {max((length, *asked)):,} steps,"
        with fitting(what, SHORTER), torch_settings.kept():
            idle = Examination(config, width, causal, padding, device, length=length, lengths=asked).run()
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's own layer raises
        raise UserError(f"{config.label} fails in the contract check: {format_error(error)}") from error
    if idle:
        names = ", ".join(sorted(idle))
        warnings.warn(f"{config.label} has parameters that get no gradient: {names}; remove or use them.", stacklevel=2)


@torch.no_grad()
def cautions(config: MixerConfig, width: int, causal: bool, longest: int = SHORT) -> Iterator[str]:
    """Yields a sentence for each thing that no rule forbids and whoever reads scores of the layer should know: that the
    sequences of a batch see each other in training alone, that a batch of training gives another output the next time,
    that its first weights are the same for all seeds, and that it has no weights to train. No more than `longest` steps
    are asked. A layer that fails shows nothing: `check` says what is wrong with it."""
    length = min(SHORT, longest, config.max_length or SHORT)
    examination = Examination(config, width, causal, padding=False, device="cpu", length=length)
    with suppress(Exception, SystemExit), torch.random.fork_rng(devices=[]):  # whatever a user's own layer raises
        layer, generator = examination.built(), Generator().manual_seed(1)
        first = examination.subject(layer, generator)
        mixes, unsteady = training.mixes_in_training(first), training.unsteady(first)
        rules.add_noise(layer, generator)
        noisy = examination.subject(layer, generator)
        if mixes or training.mixes_in_training(noisy):
            yield f"{config.label} {training.MIXES}"
        if said := unsteady or training.unsteady(noisy):
            yield f"{config.label} {said}"
        if examination.begins_alike():
            yield f"{config.label} {seeds.ALIKE}"
        if not any(value.requires_grad for value in layer.parameters()):
            yield f"{config.label} has no weights to train: {rules.UNTRAINED}"


def looks_ahead(config: MixerConfig, width: int, longest: int = SHORT) -> bool:
    """Tells whether the layer, built for both directions, sees any later step.

    A module that ignores `causal` has one direction, whichever is asked for, and this tells which. It is asked with
    noise on its parameters, so that a map that starts at zero hides nothing, and as initialised, as noise may overflow;
    and on no more than `longest` steps. Outputs that are not finite show nothing: the contract's rule on finite outputs
    says what is wrong with them. Raises UserError for a layer that cannot be built or called, or whose weights have no
    size before its first call.
    """
    length = min(SHORT, longest, config.max_length or SHORT)
    with fitting(f"{config.label} at width {width:,}, called on {length:,} steps,", SHORTER):
        noisy, generator = _build(config, width, causal=False), Generator().manual_seed(1)
        built.sizes_known(noisy, config.label)
        rules.add_noise(noisy, generator)
        x, other = (torch.randn(2, length, width, generator=generator) for _ in range(2))
        layers = (noisy, _build(config, width, causal=False))
        return any(_sees_later_steps(rules.Subject(layer, config.label, x, other)) for layer in layers)


def _sees_later_steps(subject: rules.Subject) -> bool:
    """Tells whether other inputs in the second half of the steps change finite outputs in the first half.

    Every call draws the same random numbers. A layer that gives another output when it is called again shows nothing:
    the contract's rule on the same output says what is wrong with it.
    """
    half = (subject.x.shape[1] + 1) // 2
    changed = torch.cat([subject.x[:, :half], subject.other[:, half:]], 1)
    before, again, after = (y[:, :half] for y in _outputs(subject, subject.x, subject.x, changed))
    if not all(torch.isfinite(each).all() for each in (before, again, after)) or rules.differ(before, again):
        return False
    return rules.differ(before, after)


def _outputs(subject: rules.Subject, *inputs: Tensor) -> list[Tensor]:
    """Returns the outputs for several inputs, in whose calls the same random numbers are drawn."""
    outputs = []
    for x in inputs:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            outputs.append(subject(x))
    return outputs


def order_blind(config: MixerConfig, width: int, lengths: Collection[int]) -> set[int]:
    """Returns those of some lengths, in steps, at which the layer, built for both directions, sees no order.

    There the outputs for steps in another order are the same in that order: without positions a sequence is a bag of
    steps to it. The first step stays the first, which layers with a global step know and no other. A layer with a
    window sees no order in what its window holds whole. It is asked with noise on its parameters, so that a map or a
    table of positions that starts at zero hides nothing; a layer that fails, or whose outputs are not finite, shows
    nothing.
    """
    found: set[int] = set()
    with suppress(UserError), fitting(f"{config.label} at width {width:,}", SHORTER):
        layer, generator = _build(config, width, causal=False), Generator().manual_seed(1)
        rules.add_noise(layer, generator)
        for length in sorted({min(SHORT, *lengths), *lengths}):  # most layers need no call on more steps
            x = torch.randn(2, length, width, generator=generator)
            order = torch.cat([torch.zeros(1).long(), 1 + torch.randperm(length - 1, generator=generator)])
            straight, mixed = _outputs(rules.Subject(layer, config.label, x, x), x, x[:, order])
            if not torch.isfinite(straight).all() or rules.differ(straight[:, order], mixed):
                break
            found.add(length)
    return found & set(lengths)


@dataclass(frozen=True)
class Examination:
    """The course of one check: what is built, at which sizes, and which rules are applied in which order."""

    config: MixerConfig
    width: int
    causal: bool
    padding: bool
    device: str
    length: int
    lengths: tuple[int, ...] = ()

    def run(self) -> set[str]:
        """Applies every rule twice; returns the names of parameters that never get a gradient."""
        layer, generator = self.built(), Generator().manual_seed(1)
        built.holds_tensors_alone(layer, self.config.label)
        self.leaves_the_seed()
        with torch.random.fork_rng(rules.devices(self.device)):
            settings.left_when_called(self.subject(layer, generator))
            built.made_when_built(self.subject(layer, generator))
            seeds.left_when_called(self.subject(layer, generator))
            idle = self._rules(layer, generator)
            self._lengths(layer, generator)
            self._in_training(layer, generator)
            self.declared_lengths(layer, generator)
            self._long_sequence(layer, generator)
            rules.add_noise(layer, generator)
            if torch.isfinite(layer(self._normal(2, self.length, generator), None)).all():  # noise may overflow
                idle &= self._rules(layer, generator)
                self._in_training(layer, generator)
                self.declared_lengths(layer, generator)
                self._long_sequence(layer, generator)
            rules.same_after_loading(self.subject(layer, generator), self.built())
        return idle

    def built(self) -> nn.Module:
        return _build(self.config, self.width, self.causal).to(self.device)

    def leaves_the_seed(self) -> None:
        """Raises UserError for a layer that sets torch's seed when it is built."""
        make, draws = partial(self.config.build, self.width, causal=self.causal, layer=0), Generator().manual_seed(0)
        seeds.left_when_built(partial(make, generator=draws), self.config.label)

    def begins_alike(self) -> bool:
        """Tells whether its first weights look drawn, and are the same for all seeds."""
        return seeds.alike(partial(_build, self.config, self.width, self.causal))

    def _normal(self, batch: int, steps: int, generator: Generator) -> Tensor:
        """(batch, steps, D), standard normal."""
        return torch.randn(batch, steps, self.width, generator=generator).to(self.device)

    def subject(
        self, layer: nn.Module, generator: Generator, batch: int = 3, steps: int | None = None
    ) -> rules.Subject:
        x, other = (self._normal(batch, steps or self.length, generator) for _ in range(2))
        return rules.Subject(layer, self.config.label, x, other)

    def _rules(self, layer: nn.Module, generator: Generator) -> set[str]:
        """Applies the rules in order of what explains most."""
        subject = self.subject(layer, generator)
        with torch.no_grad():
            rules.finite(subject)
            rules.same_output_when_called_again(subject)
            rules.one_step(subject)
            rules.independent_of_batch(subject)
            if self.causal:
                rules.blind_to_the_future(subject, range(self.length - 1))
            if self.padding:
                rules.blind_to_padding(subject)
            training.carries_no_batch(subject)
        return rules.finite_gradients(subject, self.padding)

    def _lengths(self, layer: nn.Module, generator: Generator) -> None:
        """Asks at each length of a task for finite numbers. It is asked of first weights alone, as noise on them may
        overflow over many steps."""
        for steps in self.lengths:
            rules.finite_over(self.subject(layer, generator, 2, steps), self.padding)

    def _in_training(self, layer: nn.Module, generator: Generator) -> None:
        """Applies the rules on calls in training."""
        subject = self.subject(layer, generator)
        if not training.mixes_in_training(subject) and self.causal:
            training.blind_in_training(subject, self.some)

    @property
    def some(self) -> list[int]:
        """Steps after which the input is changed where not all steps are tried."""
        return sorted({step for step in (0, self.length // 2, self.length - 2) if 0 <= step < self.length - 1})

    @torch.no_grad()
    def _long_sequence(self, layer: nn.Module, generator: Generator) -> None:
        """Applies the rules on the future and on padding at the longest length to come.

        Layers that work in chunks see the future, if they do, beyond the first of them: from within a chunk, or from a
        chunk's last step. Layers with windows may hide padding only from sequences that one window holds.
        """
        if not self.lengths:
            return
        longest = self.lengths[-1]
        subject, half = self.subject(layer, generator, 1, longest), longest // 2
        steps = [step for step in (half - 1, half + 2) if 0 <= step < longest - 1]
        tests: list[Callable[[rules.Subject], None]] = []
        tests += [partial(rules.blind_to_the_future, steps=steps)] if self.causal else []
        tests += [rules.blind_to_long_padding] if self.padding else []
        for test in tests:
            try:
                test(subject)
            except UserError:
                if not _holds_in_float64(test, subject):
                    raise

    def declared_lengths(self, layer: nn.Module, generator: Generator) -> None:
        """What the config declares is true: no step beyond `max_length` is taken, none beyond the field is seen."""
        name, bound, field = self.config.label, self.config.max_length, self.config.receptive_field
        if bound is not None:
            try:
                layer(self._normal(1, bound + 1, generator), None)
            except UserError:
                pass
            else:
                raise UserError(f"{name} declares max_length {bound} but takes {bound + 1} steps: raise UserError.")
        if field is None:
            return
        equivariant, longest = self.config.equivariant, max(self.length, *self.lengths, 1)
        fields.gradient_within(self.subject(layer, generator, 1, 2 * field + 1), field, self.causal, equivariant)
        fields.blind_beyond(self.subject(layer, generator, 1, longest), field, self.causal)
        if equivariant and (bound is None or bound > 3 * field):
            fields.same_at_every_step(self.subject(layer, generator, 1, 3 * field + 1), field)


def _holds_in_float64(rule: Callable[[rules.Subject], None], subject: rules.Subject) -> bool:
    """Tells whether a layer runs in float64 and keeps a rule there, so that float32 has shown rounding alone: a norm of
    tiny values, as of gMLP's first kernels, magnifies that of a long Fourier transform."""
    x, other = subject.x.double(), subject.other.double()
    try:
        rule(rules.Subject(deepcopy(subject.layer).double(), subject.name, x, other))
    except (Exception, SystemExit):  # whatever a user's own layer raises
        return False
    return True


def _build(config: MixerConfig, width: int, causal: bool, generator: Generator | None = None) -> nn.Module:
    generator = generator or Generator().manual_seed(0)
    config.check_direction(causal)
    try:
        with fitting(f"{config.label} at width {width:,}"), warnings.catch_warnings():
            warnings.simplefilter("ignore", SetsSeed)  # of which there is a rule
            layer = config.build(width, causal=causal, layer=0, generator=generator)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{config.label} cannot be built at width {width}: {format_error(error)}") from error
    return layer.eval()
