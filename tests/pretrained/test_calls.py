"""How models of transformers are called: positions, states and rows, on toys with the same `forward`; and begins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy_ruler import Pairs

from levelfield.longcontext.runner import prompt_of
from levelfield.pretrained import generate, positions_of
from levelfield.pretrained.assemble import LoadOptions
from levelfield.pretrained.positions import Positions, positions_from_config, positions_from_model
from levelfield.pretrained.tokenizers import read
from levelfield.pretrained.transformers_model import TransformersModel
from levelfield.ruler import TEMPLATES, PromptOptions, named
from levelfield.ruler import generate as samples_of
from levelfield.spec import UserError

WIDTH, SYMBOLS = 8, 31


class Toy(nn.Module):
    """What all toys have: an embedding, a head, and what transformers says of a model."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embed = nn.Parameter(torch.randn(SYMBOLS, WIDTH, generator=generator))
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=SYMBOLS))
        self.generation_config = SimpleNamespace(eos_token_id=None)
        self.device = torch.device("cpu")

    def out(self, hidden: Tensor, **state: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=torch.tanh(hidden) @ self.embed.T, **state)


class Uncounted(Toy):
    """As Bamba does: positions begin at 0 in every call, unless they are given; sums are carried in a layer's list."""

    def forward(
        self, input_ids: Tensor, position_ids: Tensor | None = None, past_key_values: Any = None, use_cache: bool = True
    ) -> SimpleNamespace:
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1]).expand(input_ids.shape)
        hidden = (self.embed[input_ids] * torch.cos(position_ids[..., None] * 0.7)).cumsum(1)
        if past_key_values is not None:
            hidden = hidden + past_key_values.layers[0].sums[0][:, None]
        layer = SimpleNamespace(sums=[hidden[:, -1]], kind="sum")
        return self.out(hidden, past_key_values=SimpleNamespace(layers=[layer]))


class Recurrent(Toy):
    """As RWKV-4 does: it takes a list of tensors as `state`, writes into it, and mixes rows in steps of one token."""

    def forward(
        self, input_ids: Tensor, state: list[Tensor] | None = None, use_cache: bool = True, mixes: bool = True
    ) -> SimpleNamespace:
        inputs = self.embed[input_ids]
        state = [torch.zeros(len(input_ids), WIDTH)] if state is None else state
        alone = mixes and input_ids.shape[1] == 1
        hidden = inputs + state[0] if alone else inputs.cumsum(1) + state[0][:, None]
        state[0][:] = hidden[:, -1]
        return self.out(hidden, state=state)


class Forgetful(Toy):
    """It carries nothing."""

    def forward(self, input_ids: Tensor, past_key_values: Any = None, use_cache: bool = True) -> SimpleNamespace:
        return self.out(self.embed[input_ids].cumsum(1), past_key_values=SimpleNamespace(layers=[]))


def greedy(inner: Toy, prompt: list[int], count: int) -> list[int]:
    """By definition: the whole text again for every token."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(inner(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize(("make", "alone"), [(Uncounted, False), (Recurrent, True)])
@torch.no_grad()
def test_models_that_need_their_positions_or_their_state_generate_as_by_definition(
    make: Callable[[], Toy], alone: bool
) -> None:
    """In pieces, in batches of unequal prompts, and with shared beginnings."""
    inner = make()
    model = TransformersModel(LoadOptions("toy"), inner)
    assert model.alone is alone and model.supports_chunked_prefill
    begin = torch.randint(SYMBOLS, (300,), generator=torch.Generator().manual_seed(2)).tolist()
    prompts = [[*begin, 3], [*begin, 4, 5, 6], [7, 8, 9], [*begin[:280], 1, 2]]
    assert generate(model, prompts, 6) == [greedy(inner, prompt, 6) for prompt in prompts]
    ids = torch.tensor([begin[:40], begin[40:80]])
    torch.testing.assert_close(model.logits(ids, last=5), inner(ids).logits[:, -5:])


def test_who_cannot_go_on_is_refused_without_a_word_on_whose_fault_it_is() -> None:
    with pytest.raises(UserError, match=r"puts logits off by .* standard deviations.* or levelfield calls it wrongly"):
        TransformersModel(LoadOptions("toy"), Forgetful())


@pytest.mark.parametrize(
    ("before", "after", "expected"), [((), (), ()), ((1,), (), (1,)), ((1,), (2,), (1,)), ((), (2,), ())]
)
def test_a_begin_is_what_stands_before_a_word(
    before: tuple[int, ...], after: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """And an end is none, though an empty text would show both."""

    def marked(text: str) -> list[int]:
        return [*before, *Pairs().encode(text), *after]

    assert read.find_bos_ids(marked, Pairs().encode) == expected


@pytest.mark.parametrize("bos", ["<s>", {"content": "<s>"}])
@pytest.mark.parametrize(("added", "begin"), [(None, (1,)), (True, (1,)), (False, ())])
def test_a_begin_that_the_settings_switch_off_is_not_put_before_prompts(
    bos: object, added: bool | None, begin: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the tokenizers library, whose tokenizer puts <s> before every text and </s> after it."""

    class Inner:
        def encode(self, text: str, add_special_tokens: bool) -> SimpleNamespace:
            ids = [10 + ord(letter) for letter in text]
            return SimpleNamespace(ids=[1, *ids, 2] if add_special_tokens else ids)

        def token_to_id(self, text: str) -> int | None:
            return {"<s>": 1, "</s>": 2}.get(text)

        def no_truncation(self) -> None: ...
        def no_padding(self) -> None: ...

    library = SimpleNamespace(Tokenizer=SimpleNamespace(from_file=lambda path: Inner()))
    monkeypatch.setattr(read, "needed", lambda package: library)
    (tmp_path / "tokenizer.json").write_text("{}")
    settings = {"bos_token": bos} | ({} if added is None else {"add_bos_token": added})
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    found = read.read_tokenizer(tmp_path)
    assert found.bos_ids == begin and found.encode("a") == [107]  # pyright: ignore[reportAttributeAccessIssue]
    (tmp_path / "tokenizer_config.json").write_text("[")
    with pytest.raises(UserError, match="is not JSON"):
        read.read_tokenizer(tmp_path)


class Special(Pairs):
    """Knows the special tokens of the templates by their text, as tokenizers of such models do."""

    BEGINS = ("<|begin_of_text|>", "<|startoftext|>", "<BOS_TOKEN>")
    name = "special"

    def encode(self, text: str) -> list[int]:
        for begin in self.BEGINS:
            if begin in text:
                first, _, rest = text.partition(begin)
                return [*self.encode(first), 1000, *self.encode(rest)]
        return super().encode(text) if text else []


@pytest.mark.parametrize("template", list(TEMPLATES))
@pytest.mark.parametrize("begin", [(1000,), (999, 1000), ()])
def test_a_prompt_begins_once(template: str, begin: tuple[int, ...]) -> None:
    """Whether the begin comes from the tokenizer, from the template, or from both."""
    (sample,) = samples_of(named("niah_single_1"), 2000, Special(), PromptOptions(template=template), count=1)
    model: Any = SimpleNamespace(bos_ids=begin)
    ids = prompt_of(model, sample).tolist()
    own = any(text in TEMPLATES[template] for text in Special.BEGINS)
    assert ids.count(1000) == max(own, 1000 in begin)
    assert ids[: len(begin)] == list(begin) and ids[len(ids) - len(sample.ids) + own :] == sample.ids[own:].tolist()


@pytest.mark.parametrize(
    ("rows", "settings", "expected"),
    [
        (None, {"max_position_embeddings": 90}, Positions(None, 90)),
        (92, {"max_position_embeddings": 90}, Positions(90, 90)),
        (None, {"n_positions": 80}, Positions(80, 80)),
        (40, {}, Positions(None, None)),
    ],
    ids=["rotary", "a table with two more rows", "named as a table", "nothing said"],
)
def test_positions_are_a_table_where_the_model_holds_one(
    rows: int | None, settings: dict[str, int], expected: Positions
) -> None:
    """Rotary ones have no table, whatever the settings call their number."""
    inner = Toy()
    inner.tokens = nn.Embedding(90, 2)
    inner.places = None if rows is None else nn.Embedding(rows, 2)
    inner.get_input_embeddings = lambda: inner.tokens  # pyright: ignore[reportAttributeAccessIssue]
    config = SimpleNamespace(vocab_size=SYMBOLS, **settings)
    inner.config = SimpleNamespace(get_text_config=lambda: config)
    assert positions_from_model(inner) == expected
    assert positions_from_config(settings).most is None


def test_positions_are_known_without_weights(tmp_path: Path) -> None:
    settings = {"model_type": "llama", "hidden_act": "silu", "max_position_embeddings": 2048}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert positions_of(str(tmp_path)) == Positions(None, 2048)
