"""Several labels for a sequence: a yes or no for each of them, scored by the F1 of each example.

    ClassifySet()       # of a task whose output is LabelSet(classes=20)

The score of an example is the F1 of the set of labels that is guessed, 2 |guess and truth| / (|guess| + |truth|), and 1
where both are empty; scores are averaged over examples (example-based F1, Tsoumakas and Katakis 2007). Which set is
guessed is decided so that F1 is expected to be highest, and not at a probability of one half, under which rare labels
would never be guessed (Lipton, Elkan and Naryanaswamy 2014). Letters: B examples, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from levelfield.data.batches import Batch, ModelInput
from levelfield.objectives.base import Scores, Trainable
from levelfield.spec.errors import UserError
from levelfield.spec.io_types import Input, LabelSet, Output
from levelfield.spec.label_sets import f1, guessed
from levelfield.spec.protocol import Head


@dataclass(frozen=True)
class ClassifySet(Trainable):
    """Binary cross-entropy of each label of a set; scored by the F1 of each example."""

    key = "labels"
    metric = "f1"

    def head(self, spec: Input, output: Output) -> Head:
        if not isinstance(output, LabelSet):
            raise UserError("ClassifySet needs a task with sets of labels; use Classify for one label per sequence.")
        return Head(self.key, output.classes, "sequence")

    def loss(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs.float(), batch.y.float())

    def score(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Scores:
        sound = outputs.isfinite().all(-1)
        likely = torch.where(sound[:, None], outputs, 0).double().sigmoid().cpu().numpy()  # (B, L)
        found = torch.from_numpy(f1(guessed(likely), batch.y.cpu().numpy() > 0)).to(outputs.device) * sound
        return Scores(found, torch.ones_like(found), sound)
