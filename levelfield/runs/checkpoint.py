"""Writes and reads checkpoints: everything that a killed run needs to continue, in one file that proves itself whole.

    checkpoint-0-00000420-1f0a6b3c9d2e.safetensors

The name carries the phase, the step and the start of the content's SHA-256, and the file is renamed into place when
it is complete, so a file that exists under its name is whole; one damaged later is noticed and the one before is used.
No pickles: tensors and a JSON header.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from levelfield.files import AGAIN, atomic, disk_errors, unreadable
from levelfield.runs.processes import ALONE, Group
from levelfield.spec import UserError
from levelfield.train import State

_NAME = re.compile(r"checkpoint-(\d+)-(\d+)-\w+\.safetensors")
_NUMBERS = [f.name for f in fields(State) if f.name not in ("net", "optimizer", "best")]


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read back: its phase, the numbers and tensors of its state, and what `run.py` adds."""

    phase: int
    extra: Mapping[str, Any]
    numbers: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def restore(self, state: State, group: Group = ALONE) -> None:
        """Fills a freshly built `state` of the same phase, in every process of a group that executes the run."""
        for name in _NUMBERS:
            value = self.numbers.get(name, getattr(state, name))  # absent from checkpoints of earlier versions
            setattr(state, name, float(value) if isinstance(value, str) and name != "stopped" else value)
        like = state.net.state_dict()
        state.net.load_state_dict(group.shares(self._group("net"), like))
        state.best = dict(group.shares(self._group("best"), like))
        _restore_optimizer(state.optimizer, self._group("optimizer"), group)

    def _group(self, prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(f"{prefix}/"): v for k, v in self.tensors.items() if k.startswith(f"{prefix}/")}


def cpu_copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns contiguous CPU copies, each with memory of its own, tied weights too, as safetensors wants them."""
    return {k: v.detach().cpu().clone(memory_format=torch.contiguous_format) for k, v in tensors.items()}


def write(where: Path, phase: int, state: State, extra: Mapping[str, Any], group: Group = ALONE) -> None:
    """Saves a checkpoint, then removes those before it but the last one. Raises UserError on a full disk.

    One of a later step is removed if it is damaged, which is why the run went on from an earlier step; else it may be
    of an owner that has taken the run over. All processes of a group call it, and the first one writes.
    """
    tensors = {f"net/{k}": v for k, v in state.net.state_dict().items()}
    tensors |= {f"best/{k}": v for k, v in state.best.items()}
    tensors |= {f"optimizer/{k}": v for k, v in _optimizer_tensors(state.optimizer).items()}
    tensors = group.gathered(tensors)
    if not group.leads:
        return
    numbers = {name: _plain(getattr(state, name)) for name in _NUMBERS}
    header = {"header": json.dumps({"phase": phase, "extra": dict(extra), "numbers": numbers})}
    content = save(cpu_copies(tensors), metadata=header)
    name = f"checkpoint-{phase}-{state.step:08d}-{_mark(content)}.safetensors"
    with disk_errors(where), atomic(where / name, durable=True) as partial:
        partial.write_bytes(content)
    others = [path for path in listing(where) if path.name != name]
    before = [path for path in others if _place(path) < (phase, state.step)]
    remove([*before[1:], *filter(_damaged, others[: len(others) - len(before)])])


def remove(checkpoints: Iterable[Path]) -> None:
    """Removes the files of checkpoints; what the system does not remove stays."""
    for path in checkpoints:
        with suppress(OSError):
            path.unlink()


def clear(where: Path) -> None:
    """Removes all checkpoints of a run, finished or not."""
    remove(listing(where))
    remove_unfinished(where)


def latest(where: Path) -> tuple[Saved | None, list[str]]:
    """Returns the newest checkpoint that is whole, and a sentence for each newer one that is not.

    Raises UserError where none is, and one of them cannot be opened, which may be whole.
    """
    complaints, refused = list[str](), list[UserError]()
    for path in listing(where):
        try:
            content = path.read_bytes()
        except OSError as error:
            refused.append(unreadable(path, error, AGAIN))
            complaints.append(f"{path.name} cannot be opened; continuing from the checkpoint before it.")
            continue
        if _whole(path, content):
            return _parse(content), complaints
        complaints.append(f"{path.name} is damaged; continuing from the checkpoint before it.")
    if refused:
        raise refused[0]
    return None, complaints


def listing(where: Path) -> list[Path]:
    """Returns the files of all checkpoints, the newest first: by phase, then by step, as numbers."""
    return sorted((path for path in where.glob("checkpoint-*") if _NAME.fullmatch(path.name)), key=_place, reverse=True)


def remove_unfinished(where: Path) -> None:
    """Removes the files of checkpoints that a kill left half written, under the names that `atomic` gives them.

    A new owner of a run does so before it saves any, since there may be no room for both. An owner that was paused and
    taken over must not when it wakes up: what is half written then is being saved by another process.
    """
    remove(where.glob(".checkpoint-*.partial"))


def _parse(content: bytes) -> Saved:
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["header"])
    return Saved(header["phase"], header["extra"], header["numbers"], load(content))


def _place(path: Path) -> tuple[int, int]:
    """Returns the phase and the step of a checkpoint, which its name says."""
    phase, step = path.name.split("-")[1:3]
    return int(phase), int(step)


def _whole(path: Path, content: bytes) -> bool:
    return _mark(content) == path.stem.rsplit("-", 1)[1]


def _damaged(path: Path) -> bool:
    """Returns whether a checkpoint is; one that cannot be opened may be whole."""
    try:
        return not _whole(path, path.read_bytes())
    except OSError:
        return False


def _mark(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _plain(value: Any) -> Any:
    """Returns a number as JSON can hold it: there are no infinities, so they are written as text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{index}/{key}": torch.as_tensor(value) for index, slot in state.items() for key, value in slot.items()}


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], group: Group) -> None:
    parameters = [parameter for each in optimizer.param_groups for parameter in each["params"]]
    like = {name: parameters[int(name.split("/")[0])] for name in tensors}  # moments have the shape of their parameter
    slots: dict[int, dict[str, Tensor]] = {}
    for name, value in group.shares(tensors, like).items():
        index, key = name.split("/", 1)
        slots.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
