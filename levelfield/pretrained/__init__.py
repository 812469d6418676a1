"""Pretrained language models behind one interface.

    model, tokenizer = load("models/mamba2-2.7b", tokenizer="models/gpt-neox-20b")
    generate(model, [tokenizer.encode("The capital of France is")], budgets=8)

What our layers can be is loaded into them, whoever wrote the file: checkpoints of `mamba_ssm`, RWKV-6, llama2.c, and
LLaMA, Mamba, Mamba-2 and RecurrentGemma as transformers saves them. They need no package, run on a CPU, and go on
rightly from any state. Everything else is left to transformers (`levelfield.pretrained.transformers_model`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from levelfield.pretrained.assemble import Decoder, Precision, Setup, assemble
from levelfield.pretrained.checkpoints import llama, llama2c, mamba_ssm, mamba_transformers, recurrentgemma, rwkv6
from levelfield.pretrained.checkpoints.files import Folder
from levelfield.pretrained.decoding import generate as generate
from levelfield.pretrained.language_model import LanguageModel as LanguageModel
from levelfield.pretrained.locate import find
from levelfield.pretrained.positions import Positions as Positions
from levelfield.pretrained.positions import of_files, of_settings
from levelfield.pretrained.reference_bug import reproduce
from levelfield.pretrained.sizes import checked, understood
from levelfield.pretrained.tokenizers.read import read_tokenizer
from levelfield.pretrained.transformers_model import Hub
from levelfield.spec import UserError
from levelfield.tokenizer import Bytes
from levelfield.tokenizer import Tokenizer as Tokenizer


@dataclass(frozen=True)
class Layout:
    """A way in which checkpoints are written: which config.json is of it, and how its tensors become ours."""

    recognises: Callable[[Mapping[str, Any]], bool]
    decoder: Callable[[Mapping[str, Any], Mapping[str, Tensor], str], Decoder]


BYTES = "bytes"  # the tokenizer that needs no file
LAYOUTS = tuple(
    Layout(module.recognises, module.decoder)
    for module in (mamba_ssm, llama, llama2c, mamba_transformers, recurrentgemma, rwkv6)
)


def load(
    name: str,
    tokenizer: str = "",
    device: str = "cpu",
    precision: Precision = "float32",
    reference_bug: bool = False,
    transformers: bool = False,
) -> tuple[LanguageModel, Tokenizer]:
    """The model of a folder or of a name on the Hugging Face hub, and its tokenizer.

    tokenizer: a folder, file or name where it is not beside the model, or "bytes", whose ids are 0 to 255.
    reference_bug: `levelfield.pretrained.reference_bug`.
    transformers: leave the model to that library even where our layers know it.
    Raises UserError for a layout nobody here knows, and for files that are absent, broken or not of one model.
    """
    path = find(name)
    setup = Setup(name.rstrip("/").rsplit("/", 1)[-1], device, precision)
    folder = Folder(path)
    text = _tokenizer(tokenizer, path)
    known = recognised(folder.config, str(path))
    if transformers or not known:
        if reference_bug:
            raise UserError("The known decode bug is of the hybrid of mamba_ssm: leave out reference_bug.")
        if "model_type" not in folder.config:
            raise UserError(f"{path} is of no layout known here: its config.json names neither model_type nor d_model.")
        return _spells(Hub.read(path, setup, begins(text)), text), text
    tensors = folder.tensors()
    with understood(str(path)):
        decoder = known[0].decoder(folder.config, tensors, str(path))
        model = assemble(decoder, setup, begins(text), ends(folder.config))
    model = _spells(replace(model, reach=of_settings(folder.config).made_for), text)
    return (reproduce(model) if reference_bug else model), text


def positions_of(name: str) -> Positions:
    """How far its positions reach, without its weights. Raises UserError as `load` does."""
    path = find(name, weights=False)
    config = Folder(path).config
    if recognised(config, str(path)):
        with understood(str(path)):
            return of_settings(config)
    return of_files(path) if "model_type" in config else Positions()  # `load` says what is wrong with it


def recognised(config: Mapping[str, Any], where: str) -> list[Layout]:
    """The layouts that a config.json is of. Raises UserError where sizes are none and kinds are of no layout."""
    checked(config, where)
    with understood(where):
        return [layout for layout in LAYOUTS if layout.recognises(config)]


def _tokenizer(name: str, path: Path) -> Tokenizer:
    if name == BYTES and not Path(name).exists():
        return Bytes()
    return read_tokenizer(find(name, weights=False) if name else path)


Model = TypeVar("Model", bound=LanguageModel)


def _spells(model: Model, tokenizer: Tokenizer) -> Model:
    """The same. Raises UserError where it has fewer ids than there are bytes and the tokenizer is of bytes."""
    if isinstance(tokenizer, Bytes) and model.vocabulary < 256:
        raise UserError(
            f"{model.name} has {model.vocabulary} ids, fewer than the 256 bytes: name its own tokenizer instead of "
            f"{BYTES}."
        )
    return model


def begins(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What the tokenizer puts before a text when it is asked for special tokens: a begin, or nothing."""
    return tuple(getattr(tokenizer, "begin", ()))


def ends(config: Mapping[str, Any]) -> frozenset[int]:
    """The ids at which transformers stops, or llama2.c; `mamba_ssm` names none."""
    if llama2c.recognises(config):
        return llama2c.ENDS
    found = config.get("eos_token_id")
    return frozenset([found] if isinstance(found, int) else found or ())
