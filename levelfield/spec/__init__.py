"""The values everything else is built from, and nothing else.

A run is one frozen value: a task, a model, a protocol and a seed. Whatever reaches the device derives from it,
printing it is the whole truth, and its id is a hash of every field:

    run = Run(task=ListOps(length=200), model=Model(mixers=(Attention(heads=4),), depth=2, width=64),
              protocol=spt_masked(...), seed=0)
    run.id          # "listops-attention-spt_masked-0-5f0c9a1e2b"

Nothing here imports torch at run time, so that plans, reports and the command line stay quick. Every name
of the files of this folder can be had from here; `Examples`, the one that needs numpy, is loaded on first use.
Letters in shapes: B batch, T length, D width, C channels, N examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelfield.spec.archive import Archive as Archive
from levelfield.spec.errors import UserError as UserError
from levelfield.spec.errors import closest as closest
from levelfield.spec.identity import ReadsFiles as ReadsFiles
from levelfield.spec.identity import derive_seed as derive_seed
from levelfield.spec.identity import describe as describe
from levelfield.spec.identity import digest as digest
from levelfield.spec.io_types import Input as Input
from levelfield.spec.io_types import Label as Label
from levelfield.spec.io_types import LabelSet as LabelSet
from levelfield.spec.io_types import Output as Output
from levelfield.spec.io_types import Signal as Signal
from levelfield.spec.io_types import StepLabels as StepLabels
from levelfield.spec.io_types import Tokens as Tokens
from levelfield.spec.io_types import Unlabelled as Unlabelled
from levelfield.spec.io_types import Values as Values
from levelfield.spec.model import Block as Block
from levelfield.spec.model import MixerConfig as MixerConfig
from levelfield.spec.model import Model as Model
from levelfield.spec.model import ParamRule as ParamRule
from levelfield.spec.numerics import Numerics as Numerics
from levelfield.spec.protocol import ForeignWeights as ForeignWeights
from levelfield.spec.protocol import Head as Head
from levelfield.spec.protocol import Objective as Objective
from levelfield.spec.protocol import Phase as Phase
from levelfield.spec.protocol import Protocol as Protocol
from levelfield.spec.recipe import Duration as Duration
from levelfield.spec.recipe import Recipe as Recipe
from levelfield.spec.recipe import Search as Search
from levelfield.spec.run import Run as Run
from levelfield.spec.study import EFFORTS as EFFORTS
from levelfield.spec.study import UNTUNED as UNTUNED
from levelfield.spec.study import Effort as Effort
from levelfield.spec.study import Probe as Probe
from levelfield.spec.study import Published as Published
from levelfield.spec.study import ReportView as ReportView
from levelfield.spec.study import Row as Row
from levelfield.spec.study import Study as Study
from levelfield.spec.study import impossible as impossible
from levelfield.spec.task import DRAW_ORDER as DRAW_ORDER
from levelfield.spec.task import SPLITS as SPLITS
from levelfield.spec.task import Certificate as Certificate
from levelfield.spec.task import Progress as Progress
from levelfield.spec.task import SplitName as SplitName
from levelfield.spec.task import Task as Task
from levelfield.spec.task import no_progress as no_progress

if TYPE_CHECKING:
    from levelfield.spec.examples import Examples as Examples


def __getattr__(name: str) -> Any:
    """Loads what needs numpy on first use (PEP 562): a page of help does not wait for it."""
    if name != "Examples":
        raise AttributeError(f"module 'levelfield.spec' has no attribute {name!r}")
    from levelfield.spec.examples import Examples

    return Examples
