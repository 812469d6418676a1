"""Holds the checkpoint that amos2025 fine-tunes on Long Range Arena, and what its tokens are on each task.

    finetuned(checkpoint("image"), recipe)      # a gray value of 17 is read as the text "17"

The paper's code turns every symbol of a task into text, and the text into tokens of Pythia's own (`src/models/lm`).
"""

from __future__ import annotations

from levelfield.pretrained.trunk import CheckpointTrunk
from levelfield.tasks import text
from levelfield.tasks.listops import SYMBOLS

ADDRESS = (
    "https://huggingface.co/EleutherAI/pythia-70m-deduped/resolve/e93a9faa9c77e5d09219f6c868bfc7a1bd65593c"  # revision
)
FILES = (
    ("config.json", "002050231a9b1ec3ac77aa6b9b3bbdc4d923f4068a7dd33b8da72a9bd6ad9a43"),
    ("tokenizer.json", "c24618a1b3e6a38167beff1c72cffd126c3a66254347304b50547d12c5f25624"),
    ("model.safetensors", "3da388330e4549156d76b58d6d268c63cd005e9336b4f4d2d378421e7b7a33fd"),
)
"""What is read of EleutherAI/pythia-70m-deduped, with the SHA-256 of each file."""

END = "<|endoftext|>"  # also what stands for unknown characters in the paper's code
GRAY = tuple(map(str, range(256)))
PRINTABLE = tuple(map(chr, range(32, 127)))


def checkpoint(task: str) -> CheckpointTrunk:
    """Returns Pythia 70M as the trunk of a model of the task, whose symbols are its tokens."""
    return CheckpointTrunk("pythia-70m-deduped", ADDRESS, FILES, SYMBOLS_AS_TEXT[task])


SYMBOLS_AS_TEXT = {
    "listops": SYMBOLS,
    "text": (*text.CHARACTERS, END, END),
    "retrieval": (*PRINTABLE, END, END),
    **dict.fromkeys(("image", "pathfinder", "pathx"), GRAY),
}
