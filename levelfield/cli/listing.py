"""Lists what there is, for `levelfield list`: a name and one line about it. Each function loads only what it lists."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from levelfield.presets import by_name
from levelfield.spec import Label, LabelSet, MixerConfig, StepLabels, Task, Tokens, Unlabelled, Values
from levelfield.user.plugins import Plugin, plugins

Line = tuple[str, str]


def tasks() -> Iterator[Line]:
    from levelfield import tasks as found

    for name in found.names():
        yield name, _task(found.find(name))
    for name, task in by_name.plugged_tasks():
        yield name, _about(_task(task), plugins("tasks")[name])


def _task(task: Task) -> str:
    given = task.input
    number, unit = (given.symbols, "symbol") if isinstance(given, Tokens) else (given.channels, "channel")
    pair = " twice" if task.documents == 2 else ""
    return f"{number} {unit}{'s' * (number > 1)}, up to {task.max_length:,} steps{pair}, {_output(task)}"


def _output(task: Task) -> str:
    match task.output:
        case Label(classes):
            return f"{classes} classes"
        case LabelSet(classes):
            return f"any of {classes} labels"
        case StepLabels(classes, pooled):
            return f"{classes} classes at some steps{', from one state' * pooled}"
        case Values(dims):
            return f"{dims} values" if dims > 1 else "one value"
        case Unlabelled():
            return "no labels"


def mixers() -> Iterator[Line]:
    from levelfield.mixers import classes

    for mixer in classes():
        yield mixer.label, f"{first_sentence(mixer)} ({mixer.complexity})"
    for name, config in by_name.plugged_mixers():
        yield name, _about("" if config.opaque else _first_line(type(config)), plugins("mixers")[name])


def first_sentence(mixer: type[MixerConfig]) -> str:
    """Returns what a mixer is: the first sentence of its file."""
    doc = sys.modules[mixer.__module__].__doc__ or ""
    return re.split(r"(?<=[.])\s", doc.strip(), maxsplit=1)[0].rstrip(".").replace("\n", " ")


def protocols() -> Iterator[Line]:
    from levelfield.protocols import DESCRIPTIONS

    yield from DESCRIPTIONS.items()


def studies() -> Iterator[Line]:
    from levelfield.engine.find import PACKAGE, Source, listing, plugged_studies

    for name in listing("studies"):
        yield name, stated_claim(PACKAGE / "studies" / f"{name}.py") or Source(name).find().claim
    for name, study in plugged_studies():
        yield name, _about(study.claim, plugins("studies")[name])


def stated_claim(file: Path) -> str:
    """Returns the claim that a study's file states as plain text, without loading it, which imports torch; "" where it
    is put together when it is loaded."""
    calls = [node.value for node in ast.parse(file.read_bytes()).body if isinstance(node, ast.Assign)]
    given = [
        word.value for call in calls if isinstance(call, ast.Call) for word in call.keywords if word.arg == "claim"
    ]
    text = given[-1].value if given and isinstance(given[-1], ast.Constant) else ""
    return text if isinstance(text, str) else ""


def probes() -> Iterator[Line]:
    from levelfield.probes import PROBES

    for probe in PROBES:
        yield probe.name, _first_line(sys.modules[probe.__module__])
    for name, added in by_name.plugged_probes():
        yield name, _about(_first_line(type(added)), plugins("probes")[name])


def _about(said: str, plugin: Plugin) -> str:
    """Returns what a plug-in's thing says of itself, or where it is, and which package it is of."""
    return f"{said or plugin.where} ({plugin.package})"


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n")[0]


def kernels() -> Iterator[Line]:
    """Yields what would run here, self-tested where there is a GPU."""
    import torch

    from levelfield.ops.kernel_cases import CASES

    for case in CASES:
        candidates = (f"{each}{each.limits and f' (not for {each.limits})'}" for each in case.table.kernels)
        told = f"for {case.serves}; candidates: {', '.join(candidates)}"
        if not torch.cuda.is_available():
            yield case.name, f"plain, as there is no CUDA device; {told}"
            continue
        for kind in (torch.float32, torch.bfloat16):
            note = case.decide(torch.device("cuda"), kind).note or "plain, as no candidate is installed or takes it"
            yield f"{case.name} {str(kind).removeprefix('torch.')}", f"{note}; {told}"


ALL: dict[str, Callable[[], Iterator[Line]]] = {
    "tasks": tasks,
    "mixers": mixers,
    "protocols": protocols,
    "studies": studies,
    "probes": probes,
    "kernels": kernels,
}
