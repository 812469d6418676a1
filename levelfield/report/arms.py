"""Lists what differs between the arms of a comparison, field by field, as `plan` prints before any compute is spent.

    differences({"attention · scratch": spec.describe(run), "s4 · scratch": ..., ...})

    field                      value                            arms
    model.mixers               Attention(heads=4, ...)          attention (all protocols)
                               S4(state=64, ...)                s4 (all protocols)
    protocol.phases.last.start fresh                            scratch (all models)
                               previous                         spt_masked (all models)

A field that is the same everywhere is not listed: what two arms share is one object. Lists of phases are matched from
the end, since the last phase is the one that is scored. Whatever changes its kind is shown whole, not field by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ABSENT = "(absent)"
# "kind" decides how far to look and opens every value; names and citations change nothing that is computed.
IGNORED = frozenset({"seed", "name", "kind", "version", "source", "assumed"})


@dataclass(frozen=True)
class Arm:
    """One line of a comparison: what is trained, how, on what. `variant` tells apart arms that share all names."""

    task: str
    model: str
    protocol: str
    variant: str = ""

    @property
    def model_label(self) -> str:
        return f"{self.model} ({self.variant})" if self.variant else self.model

    def __str__(self) -> str:
        return f"{self.model_label} · {self.protocol}"


@dataclass(frozen=True)
class Difference:
    """A field, and for each of its values the arms that have it."""

    field: str
    values: Mapping[str, tuple[Arm, ...]]


def compact(value: Any) -> str:
    """A described value as the expression a reader would type: S4(state=64, form=dplr)."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{k}={compact(v)}" for k, v in value.items() if k not in IGNORED and v not in ("", []))
        if value.get("kind") == "Duration":
            return f"{value['value']:g} {value['unit']}"
        return f"{value['kind']}({inside})" if "kind" in value else f"{{{inside}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        parts = [compact(v) for v in value]
        # Mixers and phases follow one another; numbers are a tuple.
        return " + ".join(parts) if any(isinstance(v, Mapping) for v in value) else f"({', '.join(parts)})"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)


def differences(specs: Mapping[Arm, Mapping[str, Any]]) -> list[Difference]:
    """Fields with more than one value, in the order of the description. specs: arm -> `spec.describe(run)`."""
    if len(specs) < 2:
        return []
    arms = tuple(specs)
    found: list[Difference] = []
    _walk("", {arm: specs[arm] for arm in arms}, found)
    return found


def _walk(path: str, nodes: Mapping[Arm, Any], found: list[Difference]) -> None:
    values = list(nodes.values())
    if all(v == values[0] for v in values):
        return
    if (children := _children(values)) is None:
        shown: dict[str, list[Arm]] = {}
        for arm, value in nodes.items():
            shown.setdefault(ABSENT if value is _MISSING else compact(value), []).append(arm)
        if len(shown) > 1:
            found.append(Difference(path, {text: tuple(arms) for text, arms in shown.items()}))
        return
    for name in children:
        _walk(f"{path}.{name}".lstrip("."), {arm: _child(node, name) for arm, node in nodes.items()}, found)


def shared(specs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Part of a run -> "depth 2, width 48, ...": fields that have one value in all described runs. Phases are matched
    from the end, as in `differences`."""
    found: dict[str, list[str]] = {}
    for path, value in _leaves("", specs) if specs else ():
        *around, name = [part for part in path.split(".") if part not in ("protocol", "phases", "recipe")]
        where = " ".join(around).replace("_", " ").replace("last", "phase") or name
        found.setdefault(where, []).append(f"{name.replace('_', ' ')} {compact(value)}")
    return {where: ", ".join(texts) for where, texts in found.items()}


def _leaves(path: str, nodes: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """(path, value) of every field that is the same in all nodes; values that make a name are left out."""
    if any(node is _MISSING for node in nodes):
        return
    names = _children(list(nodes))
    if names is None:
        if all(node == nodes[0] for node in nodes) and nodes[0] not in ("", [], None):
            yield path, nodes[0]
        return
    for name in names:
        yield from _leaves(f"{path}.{name}".lstrip("."), [_child(node, name) for node in nodes])


_MISSING = object()


def _children(values: Sequence[Any]) -> list[str] | None:
    """Names to descend to; None where the values must be shown whole."""
    if all(isinstance(v, Mapping) for v in values) and len({v.get("kind") for v in values}) == 1:
        kind = str(values[0].get("kind"))
        # A duration reads as one number with its unit.
        return (
            None if kind == "Duration" else [k for k in dict.fromkeys(k for v in values for k in v) if k not in IGNORED]
        )
    if all(isinstance(v, list) for v in values) and any(isinstance(x, Mapping) for v in values for x in v):
        longest, shortest = max(map(len, values)), min(map(len, values))
        same_kinds = len({str([x.get("kind") for x in v][-shortest:]) for v in values if shortest}) == 1
        return [_ordinal(i) for i in range(-longest, 0)] if same_kinds else None
    return None


def _ordinal(index: int) -> str:
    """Names a place from the end: -1 is "last", -2 is "last-1"."""
    return "last" if index == -1 else f"last{index + 1}"


def _child(node: Any, name: str) -> Any:
    if node is _MISSING:
        return _MISSING
    if isinstance(node, list):
        index = -1 if name == "last" else int(name.removeprefix("last")) - 1
        return node[index] if -index <= len(node) else _MISSING
    return node.get(name, _MISSING)


def group(arms: Iterable[Arm], among: Iterable[Arm]) -> str:
    """A set of arms in words, as a product of models and protocols where it is one."""
    chosen, every = tuple(dict.fromkeys(arms)), tuple(dict.fromkeys(among))
    models = list(dict.fromkeys(a.model_label for a in chosen))
    protocols = list(dict.fromkeys(a.protocol for a in chosen))
    inside = {a for a in every if a.model_label in models and a.protocol in protocols}
    if inside != set(chosen):
        return ", ".join(map(str, chosen))
    all_models = {a.model_label for a in every} <= set(models)
    all_protocols = {a.protocol for a in every if a.model_label in models} <= set(protocols)
    if all_models and all_protocols:
        return "all arms"
    if all_protocols:
        return ", ".join(models)
    if {a.model_label for a in every if a.protocol in protocols} <= set(models):
        return ", ".join(protocols)
    return f"{', '.join(models)} · {', '.join(protocols)}"


def field_values(spec: Mapping[str, Any], name: str) -> list[Any]:
    """All values of a field of that name anywhere in the task and the model, in order, without repeats."""
    found: list[Any] = []

    def look(node: Any) -> None:
        if isinstance(node, Mapping):
            for key, value in node.items():
                if key == name and value not in found:
                    found.append(value)
                look(value)
        elif isinstance(node, list):
            for value in node:
                look(value)

    for part in ("model", "task"):
        look(spec.get(part, {}))
    return found
