"""Patterns of published hybrids: their order, and that a model of each runs and sees no later step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from repository import ROOT

from levelfield.engine import find
from levelfield.mixers.attention import Attention
from levelfield.mixers.hymba import Hymba
from levelfield.model import Network
from levelfield.presets import by_name, hybrids
from levelfield.presets.hybrids import HYBRIDS, pattern
from levelfield.spec import Model, Study, Tokens, UserError

ORDERS = {
    "jamba": "mamba mamba mamba mamba attention mamba mamba mamba",
    "samba": "mamba attention",
    "qwen3_next": "gated_deltanet gated_deltanet gated_deltanet attention",
    "kimi_linear": "kda kda kda attention",
    "griffin": "rglru rglru attention",
    "hymba": " ".join(["hymba"] * 32),
}


@pytest.mark.parametrize("name", HYBRIDS)
def test_layers_follow_each_other_as_printed_and_the_model_is_causal(name: str) -> None:
    mixers = pattern(name, heads=2, window=5)
    assert " ".join(mixer.label for mixer in mixers) == ORDERS[name]
    assert all(mixer.rotary == "none" for mixer in mixers if isinstance(mixer, Attention)) == (
        name in ("jamba", "kimi_linear", "hymba")  # Hymba's layers turn their queries themselves
    )
    bounded = {mixer.window for mixer in mixers if isinstance(mixer, Attention | Hymba)}
    assert bounded == ({5, None} if name == "hymba" else {5} if name in ("samba", "griffin") else {None})
    net = Network(Model(mixers, len(mixers), 16, causal=True), Tokens(7), (), mask_flag=False, seed=0).eval()
    x = torch.randint(2, 9, (2, 12), generator=torch.Generator().manual_seed(0))
    changed = torch.cat([x[:, :8], (x[:, 8:] - 1) % 7 + 2], 1)
    with torch.no_grad():
        before, after = net.hidden_states(x, None), net.hidden_states(changed, None)
    torch.testing.assert_close(before[:, :8], after[:, :8])
    assert not torch.allclose(before[:, 8:], after[:, 8:])


def test_attention_to_all_steps_is_where_the_released_models_have_it() -> None:
    """Hymba-1.5B's `global_attn_idx`, Jamba-v0.1's `attn_layer_offset` of each `attn_layer_period`, and Qwen3-Next's
    and Kimi Linear's layers, counted from 0."""
    places = {
        name: [
            layer
            for layer, mixer in enumerate(pattern(name, heads=2, window=5))
            if isinstance(mixer, Attention | Hymba) and mixer.window is None
        ]
        for name in HYBRIDS
    }
    wanted = {"jamba": [4], "samba": [], "qwen3_next": [3], "kimi_linear": [3], "griffin": [], "hymba": [0, 15, 31]}
    assert places == wanted


@pytest.mark.parametrize("name", ["samba", "Jamba", "kimi-linear", "Qwen3-Next", "griffin(heads=2)"])
def test_a_hybrid_that_is_named_as_a_mixer_is_explained(name: str) -> None:
    kind = name.partition("(")[0]
    with pytest.raises(UserError, match=rf"^{kind} is no mixer but a hybrid") as refused:
        by_name.mixer(name)
    said = str(refused.value)
    assert all(each in said for each in HYBRIDS) and "did you mean" not in said
    (line,) = re.findall(r"`(.+?)`", said)
    assert isinstance(eval(line, {"Model": Model, "hybrids": hybrids}), Model), "it can be copied"
    assert by_name.mixer("hymba").label == "hymba", "of which there is a mixer, too"


def test_the_study_of_the_page_compares_a_hybrid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "mixers.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page[page.index("## Hybrids") : page.index("## What was")], re.DOTALL)
    (tmp_path / "hybrids_study.py").write_text(code)
    study = find.Source(str(tmp_path / "hybrids_study.py")).load()
    assert isinstance(study, Study)
    names = {run.model.label: [mixer.label for mixer in run.model.mixers] for run in study.runs("smoke")}
    assert names == {"samba": ["mamba", "attention"], "mamba": ["mamba"]}


def test_bad_names_and_sizes_are_one_sentence() -> None:
    with pytest.raises(UserError, match="did you mean 'griffin'"):
        pattern("grifin")
    with pytest.raises(UserError, match="at least one head"):
        pattern("jamba", heads=0)
