"""How far does each architecture reach, where what is asked needs that range by proof?

    levelfield plan reach --effort minutes
    levelfield run reach --effort minutes
    levelfield report reach --effort minutes
    levelfield reach mine.py:Mine               # the same of a mixer of your own, beside a few of these

Ten mixers that see everything and three convolutions that do not are trained on the task `reach` at growing certified
ranges (docs/reach.md), with one recipe and similar parameters. The convolutions check the proof: at and beyond
what they see, every one of their scores is 50 %. The others show what training makes of what the architecture could.
"""

from __future__ import annotations

from levelfield.presets import certified
from levelfield.presets.reach_verdict import findings as findings

study = certified.study(
    "reach",
    certified.SHIPPED,
    claim=(
        "A stack of convolutions that sees no more steps than the certified range scores exactly 50 %, as is "
        "proved; models that see everything reach further, and training stops some of them short."
    ),
)
