"""The values everything else is built from, and nothing else.

A run is one frozen value: a task, a model, a protocol and a seed. Whatever reaches the device derives from it,
printing it is the whole truth, and its id is a hash of every field:

    run = Run(task=ListOps(length=200), model=Model(mixers=(Attention(heads=4),), depth=2, width=64),
              protocol=spt_masked(...), seed=0)
    run.id          # "listops-attention-spt_masked-0-5f0c9a1e2b"

Nothing here imports torch at run time, so that plans, reports and the command line stay quick. `identity`, `kinds`,
`archive`, `examples` and `recipe` are parts of it in files of their own.
Letters in shapes: B batch, T length, D width, C channels, N examples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypedDict

import numpy as np

from levelfield.archive import Archive as Archive
from levelfield.examples import Examples as Examples
from levelfield.identity import ReadsFiles as ReadsFiles
from levelfield.identity import UserError as UserError
from levelfield.identity import closest as closest
from levelfield.identity import derive_seed as derive_seed
from levelfield.identity import describe as describe
from levelfield.identity import digest as digest
from levelfield.kinds import Input as Input
from levelfield.kinds import Label as Label
from levelfield.kinds import Output as Output
from levelfield.kinds import Signal as Signal
from levelfield.kinds import StepLabels as StepLabels
from levelfield.kinds import Tokens as Tokens
from levelfield.kinds import Unlabelled as Unlabelled
from levelfield.kinds import Values as Values
from levelfield.recipe import Duration as Duration
from levelfield.recipe import Recipe as Recipe
from levelfield.recipe import Search as Search
from levelfield.usersource import named_files

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from levelfield.model import Net
    from levelfield.surveys import Survey

Effort = Literal["smoke", "minutes", "hours", "paper"]
EFFORTS: tuple[Effort, ...] = ("smoke", "minutes", "hours", "paper")
SplitName = Literal["train", "val", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "val", "test")

Report = Callable[[str, int, int], None]
"""report(what, done, total): how long work tells how far it is."""


def silent(what: str, done: int, total: int) -> None:
    """A Report that says nothing."""


@dataclass(frozen=True)
class Task(ABC, ReadsFiles):
    """Data with declared input and output, splits, a score per example and columns to slice by.

    Subclasses are final frozen dataclasses whose fields are settings; `dataclasses.replace(task, length=400)` is the
    same task at another length. Adding one is one file in `tasks/` that ends in `TASKS = {name: default instance}`.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    source: ClassVar[str]  # citation and licence, one line each
    split_rule: ClassVar[str]  # where train, val and test come from, in words
    padded: ClassVar[bool] = True  # whether sequences differ in length, so that those of a batch are padded
    documents: ClassVar[int] = 1  # sequences in an example, which a model reads one by one
    archives: ClassVar[tuple[Archive, ...]] = ()  # official files that `build` reads; none where it is generated

    @property
    @abstractmethod
    def input(self) -> Input: ...

    @property
    @abstractmethod
    def output(self) -> Output: ...

    @property
    @abstractmethod
    def max_length(self) -> int:
        """No sequence is longer, in steps."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """The expected score of guessing uniformly (a fraction, like every score), or 0.0 for R2."""

    @abstractmethod
    def build(self, sources: Path | None, report: Report = silent) -> Mapping[SplitName, Examples]:
        """Make the three disjoint splits: generate them, or read official files under `sources`.

        Raises UserError where the files are absent or wrong. Called once; `data.prepare` keeps the result on disk.
        """

    @property
    def reads(self) -> tuple[Path, ...]:
        """Files of the user's own that `build` reads: other content is another task, with other arrays and runs.

        By default those that the settings or the code of the class name, as text or as a path; a task that finds its
        files in another way gives them here.
        """
        return named_files(self)

    def augment(self, x: Tensor, lengths: Tensor, generator: Generator) -> Tensor:
        """Label-keeping change of one training batch. x: (B, T) or (B, T, C) raw values; returns the same shape.

        Padding beyond `lengths` stays as it is. Tasks without an augmentation raise UserError.
        """
        raise UserError(f"Task {self.name} has no augmentation; choose a protocol without `augment`.")

    def relabel(self, examples: Examples) -> np.ndarray | None:
        """The targets worked out anew from the sequences, shaped like `examples.y`, by other code than made them.

        None where a sequence does not determine its target. `levelfield data verify` compares.
        """
        return None

    @property
    def augmentation(self) -> str | None:
        """What `augment` does, in words; None where there is no augmentation."""
        return None

    def hits(self, train: Examples, test: Examples) -> dict[str, np.ndarray]:
        """Rule -> whether it is right about each test example, (N,) bool: the label prior, and a greedy rule where one
        exists. Empty where an example has no single label. `Slices` says where such a rule scores."""
        if not isinstance(self.output, Label):
            return {}
        values, counts = np.unique(train.y, return_counts=True)
        return {"label_prior": test.y == values[counts.argmax()]}

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores of rules that learn no sequence model: those of `hits`, and others that are not of single examples."""
        if isinstance(self.output, Values | Label):
            return {rule: float(np.mean(right)) for rule, right in self.hits(train, test).items()}
        known, asked = (e.x if isinstance(self.output, Unlabelled) else e.y[e.y >= 0] for e in (train, test))
        values, counts = np.unique(known, return_counts=True)
        return {"label_prior": float(np.mean(asked == values[counts.argmax()]))}

    def at_length(self, length: int, examples: int | None = None) -> Task:
        """The same task with sequences up to `length`, and `examples` in each split where given.

        Raises UserError where the task has only one length.
        """
        raise UserError(f"Task {self.name} has one length, {self.max_length}; extrapolation needs a generated task.")


@dataclass(frozen=True)
class ParamRule:
    """How the optimizer treats parameters whose name ends in the rule's key. None means: as the recipe says."""

    lr: float | None = None
    weight_decay: float | None = None


@dataclass(frozen=True)
class MixerConfig(ABC):
    """Moves information along the sequence: builds a module of (x: (B, T, D), mask: (B, T) bool | None) -> (B, T, D).

    mask is True at real steps; real steps' outputs must not depend on padding. A mixer does not know the training
    length: what needs a bound says so in `max_length` and raises UserError beyond it.
    """

    version: ClassVar[int] = 1
    label: ClassVar[str]
    paper: ClassVar[str]
    complexity: ClassVar[str] = ""  # of what crosses steps, in T, D and names of settings: "T^2 D", "T D state"
    directions: ClassVar[frozenset[str]] = frozenset({"causal", "bidirectional"})
    opaque: ClassVar[bool] = False  # True: of unknown code, which may read or keep values where FLOPs are counted

    @abstractmethod
    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        """One layer. All initial values are drawn from `generator` (a CPU generator). Raises UserError on bad sizes."""

    @abstractmethod
    def state_size(self, width: int, length: int) -> int | None:
        """Numbers a causal layer carries to step `length` + 1, per sequence; None where it was not declared."""

    @property
    def max_length(self) -> int | None:
        return None

    @property
    def receptive_field(self) -> int | None:
        """Steps one bidirectional layer sees, itself included; None where it sees all."""
        return None

    def param_rules(self) -> Mapping[str, ParamRule]:
        """Name suffix -> rule, for parameters with their own learning rate or no weight decay."""
        return {}

    def learned_kernel(self, layer: nn.Module, length: int) -> Tensor | None:
        """The layer's learned convolution kernel at lags 0..length-1, (channels, length); None where it has none."""
        return None


@dataclass(frozen=True)
class Block:
    """The residual block around every mixer: x + mixer(norm(x)), then x + feedforward(norm(x)) if there is one."""

    norm: Literal["layer", "batch", "rms", "scale"] = "layer"  # "scale": rms with one gain for all channels
    prenorm: bool = True
    feedforward: int = 0  # hidden width; 0 means there is none
    activation: Literal["relu", "gelu", "silu", "swiglu", "geglu"] = "gelu"
    dropout: float = 0.0
    final_norm: bool = True
    bias: bool = True  # of the feed-forward's maps
    eps: float | None = None  # of the norms; None is torch's: 1e-5, and for "rms" the precision's own


@dataclass(frozen=True)
class Model:
    """Input encoder, residual backbone, head. `mixers` is a pattern repeated to `depth`, so a hybrid is a value."""

    mixers: tuple[MixerConfig, ...]
    depth: int
    width: int
    causal: bool = False
    block: Block = Block()
    positions: Literal["none", "sinusoidal", "learned"] = "none"  # summed to the encoded input
    max_positions: int | None = None  # rows of the learned table; only with positions="learned"
    pooling: Literal["mean", "max", "last"] = "mean"
    head_hidden: int = 0  # 0: one linear map; else linear, ReLU, linear
    pair: Literal["concat", "interaction"] = "concat"  # two documents x, y: the head sees [x, y] or [x, y, x*y, x-y]
    name: str | None = None

    @property
    def label(self) -> str:
        """Short name for tables and file names."""
        return self.name or "+".join(dict.fromkeys(m.label for m in self.mixers))

    @property
    def max_length(self) -> int | None:
        """The longest sequence that every part takes, in steps; None where there is no bound."""
        table = self.max_positions if self.positions == "learned" else None
        return min((b for b in [table, *(m.max_length for m in self.mixers)] if b is not None), default=None)


@dataclass(frozen=True)
class Objective(ABC):
    """What a phase optimises. Interpreted by `objectives.py`; the values themselves need no torch."""

    @property
    def direction(self) -> str | None:
        """The word causal where the model must be so; None where either will do."""
        return None


@dataclass(frozen=True)
class Head:
    """An output of the network: `outputs` numbers for the pooled documents of an example, or for every step."""

    name: str
    outputs: int
    per: Literal["sequence", "step"]
    documents: int = 1


@dataclass(frozen=True)
class Phase:
    """An objective, a recipe, and where the weights start: fresh, or the previous phase's trunk under a new head."""

    objective: Objective
    recipe: Recipe
    start: Literal["fresh", "previous"] = "fresh"
    augment: bool = False
    # Of the training split: the beginning of one stratified order for all seeds, so that subsets nest.
    fraction: float = field(default=1.0, metadata={"version": 2})

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise UserError(
                f"A phase cannot train on fraction={self.fraction} of the data: give more than 0, at most 1."
            )


@dataclass(frozen=True)
class Protocol:
    """A tuple of phases; () means: evaluate as given. The last phase's objective is the one that is scored.

    `weights` names a safetensors file that the first phase (or the evaluation) starts from, with its SHA-256,
    which alone of the two is part of the run's id.
    """

    name: str
    phases: tuple[Phase, ...]
    weights: str | None = field(default=None, metadata={"identity": False})
    weights_sha256: str | None = None

    @property
    def causal(self) -> bool:
        """Whether some phase needs a causal model."""
        return any(p.objective.direction == "causal" for p in self.phases)


@dataclass(frozen=True)
class Run:
    """One cell, one seed: the frozen value from which everything that reaches the device derives."""

    task: Task
    model: Model
    protocol: Protocol
    seed: int

    @property
    def id(self) -> str:
        """Names for the eye, then ten hex digits of a hash over every field and version."""
        names = f"{self.task.name}-{self.model.label}-{self.protocol.name}-{self.seed}"
        return f"{names}-{digest(self)[:10]}"


class Row(TypedDict, total=False):
    """One number, measured or published alike. A key that does not apply is absent."""

    source: str  # "levelfield", or the paper's key
    table: str
    study: str
    effort: str
    run: str
    task: str
    model: str
    protocol: str
    seed: int
    at: str  # where it was measured: "length=2000", "kernel=5", "root=MAX", ...
    split: str
    metric: str
    unit: str
    value: float
    n: int  # examples behind the value
    positions: int  # that a language model was made for; a length beyond them is extrapolated
    stderr: float
    status: str  # ok, chance, diverged, undefined; published: reported, chance, infeasible, unreported, derived
    origin: str


@dataclass(frozen=True)
class Published:
    """Which printed rows a study answers to."""

    paper: str
    table: str


@dataclass(frozen=True)
class View:
    """A figure or table of the report, by the name of a function in `report/`, with its settings."""

    kind: Literal["compare", "gap", "curve", "training", "slices", "heat", "samples"]
    title: str
    metric: str = "accuracy"
    axis: str = ""  # for "curve": the key of `at` on the x axis, such as "kernel"; for "heat": the one on y
    note: str = ""


@dataclass(frozen=True)
class Probe(ABC):
    """A measurement on a trained model. Never trains, never writes files: it yields rows."""

    name: ClassVar[str]

    @abstractmethod
    def measure(self, net: Net, run: Run, load: Callable[[Task], Mapping[SplitName, Examples]]) -> Iterator[Row]:
        """Rows with `at`, `metric`, `value`, `n`; the caller fills in the run's columns."""


UNTUNED = "One untuned recipe for every arm, so an architecture that wants another one is at a disadvantage."
"""Among a study's deviations, until its arms are tuned alike."""


@dataclass(frozen=True)
class Study:
    """One file: the claim, the runs it takes, the printed rows it answers to, and what its report shows.

    A study with a search tunes every arm before it runs: `levelfield/tuning.py`. One with a survey trains nothing: it
    asks language models that exist.
    """

    name: str
    claim: str
    runs: Callable[[Effort], Sequence[Run]]
    published: tuple[Published, ...] = ()
    views: tuple[View, ...] = ()
    probes: Callable[[Run], Sequence[Probe]] = lambda run: ()
    verdict: Callable[[Sequence[Row]], str] | None = None
    deviations: tuple[str, ...] = ()  # where it knowingly differs from the printed experiment
    search: Search | None = None
    survey: Survey | None = None
