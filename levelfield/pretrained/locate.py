"""Where a model's files are: a folder, or a name on the Hugging Face hub whose files are fetched once.

find("models/mamba2-2.7b")        # that folder
find("EleutherAI/pythia-160m")    # in the hub's own cache, downloaded where it is not there
"""

from __future__ import annotations

import re
from pathlib import Path

from levelfield.pretrained.optional import first_line, needed
from levelfield.spec import UserError

NAME = re.compile(r"[\w.-]+/[\w.-]+")
TEXTS = ("*.json", "*.model", "*.txt")
WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.pth")


def find(name: str, weights: bool = True) -> Path:
    """The folder or file. weights: whether they are wanted too. Raises UserError where there is no such model."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    if not NAME.fullmatch(name):
        raise UserError(f"There is no folder {name}: give a model's folder, or its name on the hub, as OWNER/MODEL.")
    hub = needed("huggingface_hub")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=_wanted(hub, name, weights)))
    except Exception as error:  # of the network, of the hub, of the name
        raise UserError(f"{name} is neither a folder nor to be had from the hub: {first_line(error)}") from error


def _wanted(hub: object, name: str, weights: bool) -> list[str]:
    """Patterns of files: settings, tokenizer, and the weights in one form, safetensors where there are any."""
    if not weights:
        return list(TEXTS)
    listed = hub.HfApi().list_repo_files(name)  # pyright: ignore[reportAttributeAccessIssue]
    for pattern in WEIGHTS:
        if any(Path(file).match(pattern) and "/" not in file for file in listed):
            return [*TEXTS, pattern]
    return list(TEXTS)
