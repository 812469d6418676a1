"""Compares Mamba and Mamba-2 with transformers' classes, weights copied by name, and prints the largest difference.

pip install transformers
python benchmarks/parity_mamba.py
"""

from __future__ import annotations

import torch
import transformers
from torch import Generator, Tensor, nn
from transformers import Mamba2Config, MambaConfig
from transformers.models.mamba.modeling_mamba import MambaMixer
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

from levelfield.mixers.mamba import Mamba
from levelfield.mixers.mamba2 import Mamba2
from levelfield.spec import MixerConfig

WIDTH, STEPS = 32, 77


def compare(config: MixerConfig, peer: nn.Module) -> float:
    """The largest difference of outputs and all gradients, relative to the largest number in each."""
    ours = config.build(WIDTH, causal=True, layer=0, generator=Generator().manual_seed(0))
    peer.load_state_dict(ours.state_dict(), strict=True)
    x, grad = torch.randn(2, 2, STEPS, WIDTH, generator=Generator().manual_seed(1))
    pairs = zip(_results(ours, x, grad), _results(peer, x, grad), strict=True)
    return max(float((found - other).abs().max() / other.abs().max()) for found, other in pairs)


def _results(net: nn.Module, x: Tensor, grad: Tensor) -> list[Tensor]:
    x, leaves = x.clone().requires_grad_(), dict(net.named_parameters())
    y = net(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *(leaves[name] for name in sorted(leaves))], grad)]


def main() -> None:
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, float32")
    for groups in (1, 2):
        settings = Mamba2Config(
            hidden_size=WIDTH, num_heads=8, head_dim=8, state_size=16, n_groups=groups, chunk_size=16
        )
        print(
            f"mamba2, {groups} groups: {compare(Mamba2(state=16, head=8, groups=groups), Mamba2Mixer(settings, 0)):.1e}"
        )
    settings = MambaConfig(hidden_size=WIDTH, state_size=16)
    print(f"mamba: {compare(Mamba(state=16), MambaMixer(settings, 0)):.1e}")


if __name__ == "__main__":
    main()
