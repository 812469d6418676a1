"""RWKV-6 from its published layouts: logits against its equations, and against the authors' package."""

from __future__ import annotations

import json
from pathlib import Path

import kept
import pytest
import torch
from foreign_files import rwkv6_shapes, write_vocabulary
from torch import Tensor
from torch.nn import functional as F

from levelfield.pretrained import generate, load
from levelfield.spec import UserError

Weights = dict[str, Tensor]
VOCABULARY, DEPTH = 50, 2
PARTS = ("w", "k", "v", "r", "g")


def random_weights() -> Weights:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) / 2 for name, shape in rwkv6_shapes().items()}


def naive_logits(weights: Weights, ids: list[int]) -> Tensor:
    """Step by step in float64, from peng2024's equations 11 to 26 and the checkpoint's own names."""
    w = {name: value.double() for name, value in weights.items()}
    width = w["emb.weight"].shape[1]

    def normed(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (width,), w[f"{name}.weight"], w[f"{name}.bias"])

    x = normed(w["emb.weight"][ids], "blocks.0.ln0")
    for i in range(DEPTH):
        b = f"blocks.{i}."
        x = x + time_mix(_under(w, f"{b}att."), normed(x, f"{b}ln1"))
        x = x + channel_mix(_under(w, f"{b}ffn."), normed(x, f"{b}ln2"))
    return normed(x, "ln_out") @ w["head.weight"].T


def _under(w: Weights, prefix: str) -> Weights:
    return {name.removeprefix(prefix): value for name, value in w.items() if name.startswith(prefix)}


def time_mix(w: Weights, x: Tensor) -> Tensor:
    before, rows = torch.zeros_like(x[0]), []
    memory = torch.zeros(*w["time_faaaa"].shape, w["time_faaaa"].shape[1]).double()
    for now in x:
        back = before - now
        low = torch.tanh((now + back * w["time_maa_x"].flatten()) @ w["time_maa_w1"]).view(5, -1)
        seen = {
            p: now + back * (w[f"time_maa_{p}"].flatten() + low[j] @ w["time_maa_w2"][j]) for j, p in enumerate(PARTS)
        }
        r, k, v = ((w[f"{n}.weight"] @ seen[n[0]]).view(len(memory), -1) for n in ("receptance", "key", "value"))
        rate = w["time_decay"].flatten() + torch.tanh(seen["w"] @ w["time_decay_w1"]) @ w["time_decay_w2"]
        fresh = k[:, :, None] * v[:, None]
        y = torch.einsum("hk,hkv->hv", r, memory + w["time_faaaa"][:, :, None] * fresh)
        memory = torch.exp(-rate.exp()).view_as(k)[:, :, None] * memory + fresh
        y = (y - y.mean(1, keepdim=True)) / (y.var(1, correction=0, keepdim=True) + 64e-5).sqrt()
        y = y.flatten() * w["ln_x.weight"] + w["ln_x.bias"]
        rows.append(w["output.weight"] @ (y * F.silu(w["gate.weight"] @ seen["g"])))
        before = now
    return torch.stack(rows)


def channel_mix(w: Weights, x: Tensor) -> Tensor:
    back = torch.cat([torch.zeros_like(x[:1]), x[:-1]]) - x
    k, r = (x + back * w[f"time_maa_{part}"].view(-1) for part in "kr")
    return torch.sigmoid(r @ w["receptance.weight"].T) * (torch.relu(k @ w["key.weight"].T) ** 2 @ w["value.weight"].T)


def write(folder: Path, weights: Weights, layout: str) -> str:
    """The authors' .pth with its vocabulary beside it, or the folder of the hub."""
    folder.mkdir()
    write_vocabulary(folder, (b"ab", b"abc"))
    if layout != "hub":
        torch.save(weights, folder / "model.pth")
        return str(folder / "model.pth" if layout == "file" else folder)
    names = {"emb.": "rwkv.embeddings.", "ln_out.": "rwkv.ln_out.", "blocks.": "rwkv.blocks."}
    parts = {".ln0.": ".pre_ln.", ".att.": ".attention.", ".ffn.": ".feed_forward."}
    theirs = {}
    for name, value in weights.items():
        for ours, hub in names.items():
            name = hub + name.removeprefix(ours) if name.startswith(ours) else name
        for ours, hub in parts.items():
            name = name.replace(ours, hub)
        theirs[name] = value
    torch.save(theirs, folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps({"model_type": "rwkv6", "eos_token_id": 0}))
    return str(folder)


@pytest.mark.parametrize("layout", ["file", "folder", "hub"])
def test_logits_are_those_of_the_equations(layout: str, tmp_path: Path) -> None:
    weights = random_weights()
    model, tokenizer = load(write(tmp_path / "model", weights, layout), precision="float64")
    ids = torch.randint(VOCABULARY, (2, 17), generator=torch.Generator().manual_seed(1))
    expected = torch.stack([naive_logits(weights, row.tolist()) for row in ids])
    torch.testing.assert_close(model.logits(ids), expected, rtol=1e-9, atol=1e-9)
    prompt, made = ids[0].tolist(), generate(model, [ids[0].tolist()], 3)[0]
    assert made == [int(naive_logits(weights, prompt + made[:i])[-1].argmax()) for i in range(3)]
    assert model.eos_ids == (frozenset([0]) if layout == "hub" else frozenset())
    assert tokenizer.encode("abcab") == [258, 257] and tokenizer.decode([258, 257, 0]) == "abcab"


@kept.modes
def test_it_is_the_authors_package(mode: kept.Mode, tmp_path: Path) -> None:
    theirs = kept.case("rwkv", mode)
    path = write(tmp_path / "model", {name: value.float() for name, value in theirs.weights.items()}, "file")
    model, _ = load(path)
    torch.testing.assert_close(model.logits(theirs["ids"][None])[0], theirs["logits"], rtol=1e-4, atol=1e-4)


def test_another_rwkv_is_told_apart(tmp_path: Path) -> None:
    weights = {name: value for name, value in random_weights().items() if "time_maa_w1" not in name}
    with pytest.raises(UserError, match="holds no RWKV-6, the one RWKV that can be read"):
        load(write(tmp_path / "model", weights, "file"))
