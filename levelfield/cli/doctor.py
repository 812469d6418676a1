"""Shows what is installed here, which device and kernels would be used, and what is missing for which feature.

levelfield doctor
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from levelfield import mixers, tasks
from levelfield._version import __version__
from levelfield.cli.listing import kernels
from levelfield.engine.find import Source, listing
from levelfield.presets import by_name
from levelfield.probes import PROBES
from levelfield.runs.trackers import SINKS
from levelfield.user import plugins

OPTIONAL = {
    "transformers": ("text", "language models of the hub"),
    "tokenizers": ("text", "text as the pieces of a tokenizer"),
    "accelerate": ("spread", "--spread, a language model over several GPUs"),
    "httpx2": ("serve", "models behind a server"),
    "pyarrow": ("data", "Arrow files of your own"),
    **{name: (name, f"showing runs in {name}") for name in SINKS},
    "huggingface_hub": ("hub", "datasets of the hub by name, levelfield export --push"),
    "lm_eval": ("harness", "exported samples and runs in lm-evaluation-harness"),
    "inspect_ai": ("harness", "exported samples in Inspect"),
    "lighteval": ("lighteval", "exported samples in lighteval"),
    "ray": ("ray", "--engine ray"),
    "fla-core": ("kernels", "faster linear attention on a GPU"),
    "mamba-ssm": ("kernels", "Mamba's scan on a GPU"),
    "causal-conv1d": ("kernels", "short convolutions on a GPU"),
}
"""Distribution -> its extra, and what is missing without it."""

CORE = ("torch", "numpy", "numba", "tyro", "safetensors", "duckdb", "matplotlib")


def lines() -> Iterator[str]:
    """Yields the lines that the command prints."""
    yield f"levelfield {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield "installed: " + ", ".join(f"{name} {_version(name) or 'missing'}" for name in CORE)
    yield from _devices()
    yield "optional packages:"
    width = max(map(len, OPTIONAL))
    for name, (extra, what) in OPTIONAL.items():
        built = "--no-build-isolation " if extra == "kernels" else ""  # for the torch that is here
        lacking = f"missing, for {what}: pip install {built}'levelfield[{extra}]'"
        yield f"  {name:<{width}}  {_version(name) or lacking}"
    yield "kernels:"
    yield from (f"  {name:<24}  {about}" for name, about in kernels())
    yield "plug-ins:"
    yield from list(_plugins()) or ["  none"]
    yield from _places()


def _plugins() -> Iterator[str]:
    """Yields a line on each plug-in, which is loaded to tell whether it can be."""
    ours = {
        "mixers": mixers.NAMES,
        "tasks": tasks.names(),
        "studies": listing("studies"),
        "probes": [each.name for each in PROBES],
    }
    loads: dict[plugins.PluginKind, Callable[[str], object]] = {
        "mixers": by_name.mixer,
        "tasks": by_name.task,
        "studies": lambda where: Source(where.partition(":")[0]).find(),
        "probes": by_name.probe,
    }
    for kind, load in loads.items():
        for plugin in plugins.plugins(kind).values():
            why = plugins.fault(plugin, load)
            state = f", BROKEN: {why}" if why else ""
            if plugin.name in ours[kind]:
                state += f", named as one of levelfield's own {kind}: name it as {plugin.where}"
            yield f"  {plugin.name:<14}  {plugin.where} of {plugin.package}{state}"


def _devices() -> Iterator[str]:
    import torch

    yield f"processors: {os.cpu_count()} cores, of which a worker uses 1 unless --threads says otherwise"
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for number in range(count):
        about = torch.cuda.get_device_properties(number)
        yield f"device cuda:{number}: {about.name}, {about.total_memory / 2**30:.0f} GiB"
    if not count:
        why = "torch is built without CUDA" if torch.version.cuda is None else "no GPU or driver is found"
        yield f"device: cpu alone ({why})"


def _places() -> Iterator[str]:
    for name in ("runs", "data"):
        there = sum(1 for _ in Path(name).iterdir()) if Path(name).is_dir() else 0
        yield f"folder {name}: {f'{there} entries' if there else 'not here yet'}"
    yield f"free on this disk: {shutil.disk_usage(Path()).free / 2**30:.0f} GiB"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
