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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from levelfield.spec.identity import HEAD

ABSENT = "(absent)"
MISSING = object()  # what an arm has in the place of a field that it does not have
# "kind" decides how far to look and opens every value; names and citations change nothing that is computed.
IGNORED = frozenset({*HEAD, "seed", "name", "source", "assumed"})


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


def differences(
    specs: Mapping[Arm, Mapping[str, Any]], write: Callable[[str, Mapping[Arm, Any]], Mapping[Arm, str]] | None = None
) -> list[Difference]:
    """Fields with more than one value, in the order of the description. specs: arm -> `spec.describe(run)`.

    write: returns the texts of the described values of one field, MISSING where an arm has none; each whole by default.
    """
    if len(specs) < 2:
        return []
    found: list[Difference] = []
    for path, nodes in _fields("", specs):
        shown: dict[str, list[Arm]] = {}
        for arm, text in (write or _whole)(path, nodes).items():
            shown.setdefault(text, []).append(arm)
        if len(shown) > 1:
            found.append(Difference(path, {text: tuple(arms) for text, arms in shown.items()}))
    return found


def _whole(path: str, nodes: Mapping[Arm, Any]) -> dict[Arm, str]:
    return {arm: ABSENT if value is MISSING else compact(value) for arm, value in nodes.items()}


def _fields(path: str, nodes: Mapping[Arm, Any]) -> Iterator[tuple[str, Mapping[Arm, Any]]]:
    """Yields the fields whose values differ, each with what the arms have there."""
    values = list(nodes.values())
    if all(v == values[0] for v in values):
        return
    if (children := _children(values)) is None:
        yield path, nodes
        return
    for name in children:
        yield from _fields(f"{path}.{name}".lstrip("."), {arm: _child(node, name) for arm, node in nodes.items()})


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
    if any(node is MISSING for node in nodes):
        return
    names = _children(list(nodes))
    if names is None:
        if all(node == nodes[0] for node in nodes) and nodes[0] not in ("", [], None):
            yield path, nodes[0]
        return
    for name in names:
        yield from _leaves(f"{path}.{name}".lstrip("."), [_child(node, name) for node in nodes])


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
    if node is MISSING:
        return MISSING
    if isinstance(node, list):
        index = -1 if name == "last" else int(name.removeprefix("last")) - 1
        return node[index] if -index <= len(node) else MISSING
    return node.get(name, MISSING)


def group(arms: Iterable[Arm], among: Iterable[Arm], most: int | None = None) -> str:
    """A set of arms in words, as a product of models, variants and protocols where it is one.

    most: names that are listed, before the rest of them are counted; None for all.
    """
    chosen, every = tuple(dict.fromkeys(arms)), tuple(dict.fromkeys(among))
    if (words := _product(chosen, every, most)) is not None:
        return words
    others = tuple(arm for arm in every if arm not in chosen)
    if len(others) < len(chosen) and (words := _product(others, every, most)) is not None:
        return f"all but {words}"
    return _listed(list(map(str, chosen)), most)


def _product(chosen: Sequence[Arm], every: Sequence[Arm], most: int | None) -> str | None:
    """Names the models, variants and protocols whose every combination is chosen; None where there are no such."""
    parts = ("model", "variant", "protocol")
    models, variants, protocols = own = [dict.fromkeys(getattr(arm, part) for arm in chosen) for part in parts]
    if {a for a in every if a.model in models and a.variant in variants and a.protocol in protocols} != set(chosen):
        return None
    all_models, all_variants, all_protocols = (_holds_all(every, parts, own, i) for i in range(len(parts)))
    if all_models and all_variants and all_protocols:
        return "all arms"
    labels = list(dict.fromkeys(a.model_label for a in chosen))
    if all_variants:
        which = "" if all_models else _listed(list(models), most)
    elif len(models) > 1 and "" not in variants and len(labels) == len(models) * len(variants):
        which = f"{'all' if all_models else _listed(list(models), most)} with {_listed(list(variants), most)}"
    else:
        which = _listed(labels, most)
    return " · ".join(part for part in (which, "" if all_protocols else _listed(list(protocols), most)) if part)


def _holds_all(every: Sequence[Arm], parts: Sequence[str], own: Sequence[Mapping[str, object]], index: int) -> bool:
    """Whether no arm differs from the chosen in this part alone. own: values of the chosen, by part."""
    others = [(part, values) for i, (part, values) in enumerate(zip(parts, own, strict=True)) if i != index]
    beside = (a for a in every if all(getattr(a, part) in values for part, values in others))
    return all(getattr(a, parts[index]) in own[index] for a in beside)


def _listed(names: Sequence[str], most: int | None) -> str:
    """Joins names, the first of them where there are more than `most` and at least two are left."""
    if most is None or len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


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
