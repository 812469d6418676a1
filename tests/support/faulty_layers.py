"""What tests of the contract share: a layer to get wrong, and the rule that finds a fault."""

from __future__ import annotations

from torch import Tensor, nn

from levelfield.contract import findings
from levelfield.spec import MixerConfig


class Mapped(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x)


def faults_of(mixer: MixerConfig, *, causal: bool = True) -> dict[str, str]:
    """Returns rule -> fault at width 8, of the rules that were reached."""
    found = {each.rule: each.fault for each in findings.examine(mixer, 8, causal=causal)}
    return {rule: fault for rule, fault in found.items() if fault not in ("", findings.NOT_REACHED)}
