"""Defines the warning for a layer that sets torch's seed when it is built, which its builder gives and checks make an
error: runs of such a layer that exist can still be read."""

from __future__ import annotations


class SetsSeed(UserWarning):
    """The warning for a layer of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} sets torch's seed when it is built, so that all its layers and all seeds begin with the same "
            "weights: leave torch.manual_seed out, as every run sets a seed of its own."
        )
