"""Cuts evaluations into blocks of questions, which copies of a model answer in any order, and joins the answers.

    blocks = cut(evaluations, tokenizer, lambda key: False)      # {"vt-4096-32-5f0c9a1e2b": Block(...), ...}
    samples = blocks[name].samples(evaluations, tokenizer, name)
    found = collected(folder)                                    # {key: answer} of all blocks

A block is some samples of one task and length, at all depths. How many it has does not depend on how many copies there
are, so that the same questions form the same batches wherever they are asked, unless memory bounds a batch or part of a
block was answered before. Its name has a hash of the keys of its samples: after a change of texts or of a task, a block
has another name and is asked again. A question that an earlier block has, as where a length holds what a shorter one
holds, is left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from levelfield.longcontext.answers import read_predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import Prediction
from levelfield.ruler import RulerTask, Sample, Tokenizer
from levelfield.spec import UserError

SIZE = 32  # samples of a block, at one depth
PART = "part-{}.jsonl"  # answers of one process, by the number of its claim; nobody else writes to it


class Block(NamedTuple):
    """Some samples of one task and length: indices `first` to `first + SIZE`, as far as there are samples.

    evaluation: its place among the evaluations. task: that of the task in the evaluation. elsewhere: keys of samples
    that an earlier block has, and which this one is without.
    """

    evaluation: int
    task: int
    length: int
    first: int
    elsewhere: Sequence[str] = ()

    def task_of(self, evaluations: Sequence[Evaluation]) -> RulerTask:
        return evaluations[self.evaluation].tasks[self.task]

    def samples(self, evaluations: Sequence[Evaluation], tokenizer: Tokenizer, name: str) -> list[Sample]:
        """Returns the samples. name: of the block, which they must have. Raises UserError where it is another one here.

        Where a tokenizer fails the check of a first sample alone, the samples are those of the whole group.
        """
        each, task = evaluations[self.evaluation], self.task_of(evaluations)
        after = min(self.first + SIZE, each.count)
        for indices in (range(self.first, after), range(each.count)):
            made = each.part(task, self.length, tokenizer, indices, on_skipped=lambda one: None)
            here = (sample for sample in made if self.first <= sample.index < after)
            found = [sample for sample in here if sample.key not in self.elsewhere]
            if _name(task, self, found) == name:
                return found
        raise UserError(f"The questions {name} are other ones on this machine: give all machines the same files.")


def cut(evaluations: Sequence[Evaluation], tokenizer: Tokenizer, known: Callable[[str], bool]) -> dict[str, Block]:
    """Returns the blocks with an unanswered sample, by name. known: whether there is an answer under a key."""
    blocks: dict[str, Block] = {}
    taken: set[str] = set()
    for number, each in enumerate(evaluations):
        for task, length, samples in each.groups(tokenizer, lambda one: None):
            by_first: dict[int, list[Sample]] = {}
            for sample in samples:
                by_first.setdefault(sample.index // SIZE * SIZE, []).append(sample)
            for first, part in by_first.items():
                keys = [sample.key for sample in part]
                own = [sample for sample in part if sample.key not in taken]
                block = Block(number, each.tasks.index(task), length, first, sorted(taken.intersection(keys)))
                taken.update(keys)
                if not all(known(sample.key) for sample in own):
                    blocks[_name(task, block, own)] = block
    return blocks


def _name(task: RulerTask, block: Block, samples: Sequence[Sample]) -> str:
    """Names a block, such that it can be the name of a folder."""
    digest = hashlib.sha256("".join(sample.key for sample in samples).encode()).hexdigest()[:10]
    return f"{re.sub(r'[^a-zA-Z0-9_]', '_', task.name)[:60]}-{block.length}-{block.first}-{digest}"


def collected(folder: Path, block: str = "*") -> dict[str, Prediction]:
    """Reads the answers of one block in a folder or of all, unfinished ones too, by key; the first where several are.

    Raises UserError where a file is damaged.
    """
    found: dict[str, Prediction] = {}
    for path in sorted(folder.glob(f"{block}/{PART.format('*')}")):
        for one in read_predictions(path):
            found.setdefault(one.key, one)
    return found
