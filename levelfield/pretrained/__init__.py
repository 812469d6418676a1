"""Loads language models that others trained, and puts all of them behind one interface.

    model, tokenizer = load("models/mamba2-2.7b", tokenizer="models/gpt-neox-20b")
    generate(model, [tokenizer.encode("The capital of France is")], budgets=8)

A checkpoint that our layers can represent is loaded into them: those of `mamba_ssm`, RWKV-6 and llama2.c, and LLaMA,
GPT-NeoX, Mamba, Mamba-2 and RecurrentGemma as transformers saves them. Our layers need no other package, run on a CPU,
and continue correctly from any state. Every other model runs in transformers
(`levelfield.pretrained.transformers_model`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from levelfield.pretrained.assemble import Decoder, LoadOptions, Precision, assemble
from levelfield.pretrained.checkpoints import (
    llama,
    llama2c,
    mamba_ssm,
    mamba_transformers,
    neox,
    recurrentgemma,
    rwkv6,
)
from levelfield.pretrained.checkpoints.files import Folder
from levelfield.pretrained.decoding import generate as generate
from levelfield.pretrained.language_model import LanguageModel as LanguageModel
from levelfield.pretrained.locate import resolve_model_path
from levelfield.pretrained.positions import Positions as Positions
from levelfield.pretrained.positions import positions_from_config, positions_from_files
from levelfield.pretrained.reference_bug import reproduce
from levelfield.pretrained.sizes import check_sizes, understood
from levelfield.pretrained.tokenizers.read import read_tokenizer
from levelfield.pretrained.transformers_model import TransformersModel
from levelfield.spec import UserError
from levelfield.tokenizer import Bytes
from levelfield.tokenizer import Tokenizer as Tokenizer


@dataclass(frozen=True)
class CheckpointFormat:
    """A format in which checkpoints are written.

    matches: whether a config.json is of this format. convert: turns a config.json and the tensors beside it into our
    layers; its last argument is the path that messages name.
    """

    matches: Callable[[Mapping[str, Any]], bool]
    convert: Callable[[Mapping[str, Any], Mapping[str, Tensor], str], Decoder]


BYTES = "bytes"  # the tokenizer that needs no file
FORMATS = tuple(
    CheckpointFormat(module.matches, module.convert)
    for module in (mamba_ssm, llama, llama2c, mamba_transformers, recurrentgemma, rwkv6, neox)
)


def load(
    name: str,
    tokenizer: str | None = None,
    device: str = "cpu",
    precision: Precision = "float32",
    reference_bug: bool = False,
    transformers: bool = False,
    spread: int = 1,
) -> tuple[LanguageModel, Tokenizer]:
    """Returns a language model and its tokenizer. name: a folder, or a name on the Hugging Face hub.

    tokenizer: its folder, file or name where it is not beside the model, or "bytes", whose ids are 0 to 255.
    reference_bug: whether to generate with the bug of `levelfield.pretrained.reference_bug`.
    transformers: whether to run the model in that library even where our layers could. spread: over how many GPUs it
    spreads the model, from `device` on.
    Raises UserError for an unknown format, and for files that are missing, damaged or not of one model.
    """
    path = resolve_model_path(name)
    options = LoadOptions(name.rstrip("/").rsplit("/", 1)[-1], device, precision, spread)
    folder = Folder(path)
    text = tokenizer_of(tokenizer, path)
    known = matching_formats(folder.config, str(path))
    if transformers or spread > 1 or not known:
        if reference_bug:
            raise UserError("The known decode bug is of the hybrid of mamba_ssm: leave out reference_bug.")
        if "model_type" not in folder.config:
            if known:
                raise UserError(f"{path} is not in a format of transformers, which spreads models: leave out --spread.")
            raise UserError(f"{path} is of no known format: its config.json has neither model_type nor d_model.")
        return check_vocabulary(TransformersModel.read(path, options, bos_ids(text)), text), text
    tensors = folder.tensors()
    with understood(str(path)):
        decoder = known[0].convert(folder.config, tensors, str(path))
        model = assemble(decoder, options, bos_ids(text), eos_ids(folder.config))
    model = check_vocabulary(replace(model, positions=positions_from_config(folder.config).made_for), text)
    return (reproduce(model) if reference_bug else model), text


def positions_of(name: str) -> Positions:
    """Reads how many positions a model has, without its weights. Raises UserError as `load` does."""
    path = resolve_model_path(name, weights=False)
    config = Folder(path).config
    if matching_formats(config, str(path)):
        with understood(str(path)):
            return positions_from_config(config)
    return positions_from_files(path) if "model_type" in config else Positions()  # `load` says what is wrong with it


def matching_formats(config: Mapping[str, Any], where: str) -> list[CheckpointFormat]:
    """Returns the formats that a config.json matches. Raises UserError for sizes and types that no model has."""
    check_sizes(config, where)
    with understood(where):
        return [each for each in FORMATS if each.matches(config)]


def tokenizer_of(name: str | None, path: Path) -> Tokenizer:
    """Reads the tokenizer of a model's folder, or the one that is named instead. Raises UserError as `load` does."""
    if name == BYTES and not Path(name).exists():
        return Bytes()
    return read_tokenizer(resolve_model_path(name, weights=False) if name else path)


Model = TypeVar("Model", bound=LanguageModel)


def check_vocabulary(model: Model, tokenizer: Tokenizer) -> Model:
    """Returns the model. Raises UserError where it has fewer ids than there are bytes and the tokenizer is of bytes."""
    if isinstance(tokenizer, Bytes) and model.vocabulary < 256:
        raise UserError(
            f"{model.name} has {model.vocabulary} ids, fewer than the 256 bytes: name its own tokenizer instead of "
            f"{BYTES}."
        )
    return model


def bos_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Returns the ids that the tokenizer puts before a text when it adds special tokens; () for none."""
    return tuple(getattr(tokenizer, "bos_ids", ()))


def eos_ids(config: Mapping[str, Any]) -> frozenset[int]:
    """Returns the ids at which transformers or llama2.c stop generating; `mamba_ssm` names none."""
    if llama2c.matches(config):
        return llama2c.EOS
    found = config.get("eos_token_id")
    return frozenset([found] if isinstance(found, int) else found or ())
