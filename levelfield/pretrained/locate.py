"""Finds a model's files: in a folder, or on the Hugging Face hub, from where they are downloaded once.

resolve_model_path("models/mamba2-2.7b")        # that folder
resolve_model_path("EleutherAI/pythia-160m")    # a folder in the hub's own cache, after a download if needed
"""

from __future__ import annotations

import re
from pathlib import Path

from levelfield.pretrained.optional import Missing, first_line, needed
from levelfield.spec import UserError

NAME = re.compile(r"[\w.-]+/[\w.-]+")
TEXTS = ("*.json", "*.model", "*.txt")
WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.pth")


def resolve_model_path(name: str, weights: bool = True) -> Path:
    """Returns a model's folder or file. weights: whether to download them too. Raises UserError for an unknown name."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    if not NAME.fullmatch(name):
        raise UserError(f"There is no folder {name}: give a model's folder, or its name on the hub, as OWNER/MODEL.")
    try:
        hub = needed("huggingface_hub")
    except Missing as error:
        raise Missing(f"There is no folder {name}, and none is looked for on the hub. {error}") from error
    try:
        return Path(hub.snapshot_download(name, allow_patterns=_wanted(hub, name, weights)))
    except Exception as error:  # the network, the hub or the name may be at fault, each with types of its own
        raise UserError(f"{name} is neither a folder nor to be had from the hub: {first_line(error)}") from error


def _wanted(hub: object, name: str, weights: bool) -> list[str]:
    """Returns patterns of the files to download: settings, tokenizer, and weights in one format, safetensors first."""
    if not weights:
        return list(TEXTS)
    listed = hub.HfApi().list_repo_files(name)  # pyright: ignore[reportAttributeAccessIssue]
    for pattern in WEIGHTS:
        if any(Path(file).match(pattern) and "/" not in file for file in listed):
            return [*TEXTS, pattern]
    return list(TEXTS)
