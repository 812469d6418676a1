"""Asks a trained model beyond its training length with changes of its attention that need no training.

    length=128,remedy=none  .41     length=128,remedy=interpolate  .63      length=128,remedy=sinks  .12

    interpolate     positions are drawn into the range of training             chen2023, equation 4
    base            the base of the rotary angles grows with the length        bloc97's rule: base f^(d / (d - 2))
    window          a step reads only as many steps as training had            beltagy2020, section 3.1
    sinks           the same, and the first four steps in place of the         xiao2024, section 3.2
                    farthest four

Each is what people try first when a checkpoint fails on longer texts. The weights are the same and the sequences too,
so their scores can be compared sequence by sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from levelfield.evaluate import label_scores, score_row
from levelfield.spec import Examples, Model, Probe, Row, Run, SplitName, Task, UserError

if TYPE_CHECKING:
    from levelfield.model import Network


@dataclass(frozen=True)
class Remedies(Probe):
    """The test score at multiples of the training length, with each of the remedies and with none.

    factors: lengths, as multiples of the training length. examples: test sequences at each of them.
    batch: sequences at the training length that are read at once; longer ones are fewer in proportion.
    """

    name: ClassVar[str] = "remedies"
    factors: tuple[int, ...] = (2, 4, 8)
    examples: int = 900
    batch: int = 64

    def measure(self, net: Network, run: Run, load: Callable[[Task], Mapping[SplitName, Examples]]) -> Iterator[Row]:
        """Yields a row for every length that the model takes and every remedy. Raises UserError where none applies."""
        if not helped(run.model):
            raise UserError(f"The probe remedies changes rotary attention over all steps: {run.model.label} has none.")
        trained = run.task.max_length
        for factor in self.factors:
            if run.model.max_length is not None and factor * trained > run.model.max_length:
                continue
            task = run.task.at_length(factor * trained, self.examples)
            test = load(task)["test"]
            for name, model in changed(run.model, factor, trained).items():
                scores = label_scores(with_settings(net, model), task, test, batch=max(1, self.batch // factor))
                yield score_row(task, scores, f"length={factor * trained},remedy={name}")


def helped(model: Model) -> bool:
    """Tells whether there is a remedy for some of the model's layers."""
    return any(mixer.remedies(model.width, factor=2, trained=2) for mixer in model.mixers)


def with_settings(net: Network, model: Model) -> Network:
    """Returns a copy of a network, in eval mode, whose mixers have the settings of `model`, of equal shapes."""
    given, flag = tuple(net.head_specs.values()), net.encoder.hidden is not None
    other = type(net)(model, net.encoder.spec, given, mask_flag=flag, seed=0, numerics=net.numerics)
    other.load_state_dict(net.state_dict())
    return other.to(next(net.parameters()).device).eval()


def changed(model: Model, factor: int, trained: int) -> dict[str, Model]:
    """Returns models of the same parameters by the name of the remedy, the first being the model as it is."""
    offered = [mixer.remedies(model.width, factor=factor, trained=trained) for mixer in model.mixers]
    found = {"none": model}
    for name in dict.fromkeys(name for each in offered for name in each):
        mixers = tuple(each.get(name, mixer) for each, mixer in zip(offered, model.mixers, strict=True))
        found[name] = replace(model, mixers=mixers)
    return found
