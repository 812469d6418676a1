"""Starts a model that is trained on a task from the weights of a language model that others trained.

    letters = CheckpointTrunk("pythia-70m-deduped", address, files, symbols=("a", "b", "c"))
    finetuned(letters, recipe)                  # a protocol; symbol 1 of the task has the embedding of "b"

The blocks take the checkpoint's weights as they are. A task has few symbols, so the embedding keeps a row for each of
them, that of the text which the symbol stands for; the rest of the vocabulary and the head over it are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from levelfield.pretrained import matching_formats
from levelfield.pretrained.checkpoints.files import Folder
from levelfield.pretrained.sizes import understood
from levelfield.pretrained.tokenizers.read import read_tokenizer
from levelfield.spec import Block, ForeignWeights, Model, UserError

NORM_EPS = 1e-5  # torch's, where a block names none


@final
@dataclass(frozen=True)
class CheckpointTrunk(ForeignWeights):
    """The blocks of a checkpoint in one of `levelfield.pretrained.FORMATS`, and rows of its embedding.

    symbols: for each symbol of the task, the text whose tokens it stands for; where there are several tokens, it has
    the mean of their rows. hidden: the text of padding, which no model sees, and of steps that an objective hides.
    """

    symbols: tuple[str, ...]
    hidden: str = "<|padding|>"

    def trunk(self, folder: Path, model: Model) -> Mapping[str, Tensor]:
        files, where = Folder(folder), str(folder)
        if not (known := matching_formats(files.config, where)):
            raise UserError(f"{folder} is of no format that our layers can represent.")
        with understood(where):
            decoder = known[0].convert(files.config, files.tensors(), where)
        if _architecture(decoder.model) != _architecture(model):
            raise UserError(f"{folder} holds another model than {model.label}: its config.json says {decoder.model}.")
        encode = read_tokenizer(folder).encode
        texts = (self.hidden, self.hidden, *self.symbols)  # ids of padding and of hidden steps come first
        rows = [decoder.embedding[encode(text)].float().mean(0) for text in texts]
        blocks = {name: value.float() for name, value in decoder.weights.items()}
        return {"encoder.embed.weight": decoder.scale * torch.stack(rows), **blocks}


def _architecture(model: Model) -> tuple[tuple[object, ...], int, int, bool, Block]:
    """Returns what makes the function of a trunk: layers, depth, width, direction and block."""
    block = replace(model.block, eps=model.block.eps or NORM_EPS, dropout=0.0)
    return model.mixers, model.depth, model.width, model.causal, block
