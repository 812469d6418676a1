"""Writes what differs between the arms of a study for a person, however many arms there are (`levelfield plan`).

    task.range · task.val · protocol.phases.last.recipe.batch (these vary as one)
      16 · 500 · 32     [all with range=16]
      4096 · 124 · 2    [all with range=4096]
    model.mixers
      S4(form=diagonal, state=16)    [s4]

Arms of one name are told apart by as few fields as do. Fields that divide the arms alike stand together, and so does a
field that follows from another one whose values are short. Of a mixer or a phase those settings are shown that are not
at their default, or that differ among the arms; `plan --json` leaves nothing out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from levelfield.report.arms import ABSENT, IGNORED, MISSING, Arm, Difference, compact, differences, group
from levelfield.report.cells import arms_of
from levelfield.runs.results import Results
from levelfield.spec import Run, describe

Arms = Mapping[Arm, Sequence[Run]]  # the runs of each arm of one task, which differ in their seed
Specs = Mapping[Arm, Mapping[str, Any]]  # arm -> what `describe` says of one of its runs
Defaults = Mapping[str, Mapping[str, Any]]  # kind -> field -> described default
SHORT = 12  # characters of a value that may stand on a line with others
NAMED = 8  # arms that are listed by name where nothing they have in common tells who they are
TRIED = 3  # fields, of which every choice is tried to tell arms apart


def by_task(runs: Sequence[Run]) -> dict[str, dict[Arm, list[Run]]]:
    """Returns task -> arm -> its runs."""
    arms = arms_of(Results(specs={run.id: describe(run) for run in runs}))
    found: dict[str, dict[Arm, list[Run]]] = {}
    for run in runs:
        found.setdefault(run.task.name, {}).setdefault(arms[run.id], []).append(run)
    return found


def described(arms: Arms) -> dict[Arm, dict[str, Any]]:
    """Returns what `describe` says of one run of each arm."""
    return {arm: describe(runs[0]) for arm, runs in arms.items()}


def told_apart(arms: Arms) -> Arms:
    """Returns the arms of one task under names that are no longer than it takes to tell them apart."""
    shorter = named(described(arms))
    return {shorter[arm]: runs for arm, runs in arms.items()}


def named(specs: Specs) -> dict[Arm, Arm]:
    """Returns the arms with as few fields in their variant as tell them apart. specs: the arms of one task."""
    alike: dict[tuple[str, str], list[Arm]] = {}
    for arm in specs:
        alike.setdefault((arm.model, arm.protocol), []).append(arm)
    found: dict[Arm, Arm] = {}
    for arms in alike.values():
        told = _fewest(differences({arm: specs[arm] for arm in arms}), len(arms))
        for arm in arms:
            parts = [f"{d.field.rsplit('.', 1)[-1]}={_value_of(d, arm)}" for d in told]
            found[arm] = replace(arm, variant=", ".join(parts))
    return {arm: found[arm] for arm in specs}


def _fewest(found: Sequence[Difference], arms: int) -> Sequence[Difference]:
    """Returns the fewest differences that tell this many arms apart, of equally many those of short values; all where
    more than TRIED are needed."""
    short = sorted(found, key=lambda d: max(map(len, d.values)) > SHORT)
    for size in range(1, TRIED + 1):
        for chosen in combinations(short, size):
            told: dict[Arm, tuple[str, ...]] = {}
            for difference in chosen:
                for value, having in difference.values.items():
                    for arm in having:
                        told[arm] = (*told.get(arm, ()), value)
            if len(set(told.values())) == arms:
                return chosen
    return found


def _value_of(difference: Difference, arm: Arm) -> str:
    return next(value for value, arms in difference.values.items() if arm in arms)


@dataclass(frozen=True)
class Together:
    """Fields that vary as one, and the arms that have each combination of their values."""

    fields: tuple[str, ...]
    values: Mapping[tuple[str, ...], tuple[Arm, ...]]


def together(found: Sequence[Difference]) -> list[Together]:
    """Puts fields together that divide the arms alike, and those that follow from another one, where values are short.

    The order is that of the fields, which is that of the description.
    """
    leads: dict[str, tuple[Difference, list[Difference]]] = {}
    for difference in sorted(found, key=lambda d: -len(d.values)):
        lead = next((lead for lead, _ in leads.values() if _follows(difference, lead)), difference)
        leads.setdefault(lead.field, (lead, []))[1].append(difference)
    order = {difference.field: i for i, difference in enumerate(found)}
    made: list[Together] = []
    for lead, joined in leads.values():
        parts = sorted(joined, key=lambda d: order[d.field])
        values = {tuple(_value_of(d, arms[0]) for d in parts): arms for arms in lead.values.values()}
        made.append(Together(tuple(d.field for d in parts), values))
    return sorted(made, key=lambda together: order[together.fields[0]])


def _follows(one: Difference, lead: Difference) -> bool:
    """Whether arms that agree in `lead` agree in this field too, and the values of both are short."""
    follows = all(any(set(arms) <= set(having) for having in one.values.values()) for arms in lead.values.values())
    return follows and max(len(value) for d in (one, lead) for value in d.values) <= SHORT


def lines(specs: Specs, defaults: Defaults) -> Iterator[str]:
    """Yields what differs between the arms of one task, which are named as `named` has them."""
    for found in together(differences(specs, lambda path, nodes: _texts(path, nodes, specs, defaults))):
        yield f"  {' · '.join(found.fields)}{' (these vary as one)' if len(found.fields) > 1 else ''}"
        texts = [" · ".join(values) for values in found.values]
        width = max((len(text) for text in texts if len(text) <= 5 * SHORT), default=0)
        for text, arms in zip(texts, found.values.values(), strict=True):
            yield f"    {text.ljust(width)}   [{group(arms, specs, NAMED)}]"


def defaults_of(runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """Returns the described defaults of every class of which a value is part of some run. A class whose name another
    one has as well has none."""
    kinds: dict[str, set[type]] = {}
    for run in runs:
        for kind in _kinds(run):
            kinds.setdefault(kind.__name__, set()).add(kind)
    return {name: _defaults(*same) for name, same in kinds.items() if len(same) == 1}


def _kinds(value: Any) -> Iterator[type]:
    if dataclasses.is_dataclass(value):
        yield type(value)
        for field in dataclasses.fields(value):
            yield from _kinds(getattr(value, field.name))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _kinds(part)


def _defaults(kind: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            found[field.name] = describe(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = describe(field.default_factory())
    return found


def _texts(path: str, nodes: Mapping[Arm, Any], specs: Specs, defaults: Defaults) -> dict[Arm, str]:
    """Writes the values of one field, folded to what is not usual; an earlier phase that not all arms have, as far as
    it is not like the last one."""
    varying = _varying(nodes.values())
    phase = path.startswith("protocol.phases.last") and any(node is MISSING for node in nodes.values())
    texts: dict[Arm, str] = {}
    for arm, node in nodes.items():
        if phase and isinstance(node, Mapping):
            unlike = ", ".join(_unlike(node, specs[arm]["protocol"]["phases"][-1], defaults))
            texts[arm] = f"as the last phase, but {unlike}" if unlike else "as the last phase"
        else:
            texts[arm] = ABSENT if node is MISSING else compact(_folded(node, defaults, varying))
    return texts


def _varying(nodes: Iterable[Any]) -> dict[str, set[str]]:
    """Returns kind -> its fields that have several values among these descriptions."""
    seen: dict[tuple[str, str], list[Any]] = {}
    for node in nodes:
        for described in _described(node):
            for name, value in described.items():
                known = seen.setdefault((described.get("kind", ""), name), [])
                if value not in known:
                    known.append(value)
    found: dict[str, set[str]] = {}
    for (kind, name), values in seen.items():
        if len(values) > 1:
            found.setdefault(kind, set()).add(name)
    return found


def _described(node: Any) -> Iterator[Mapping[str, Any]]:
    """Yields every described value in a description."""
    if isinstance(node, Mapping):
        yield node
    for part in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from _described(part)


def _folded(node: Any, defaults: Defaults, varying: Mapping[str, set[str]]) -> Any:
    """Returns a description without what is at its default and does not vary."""
    if isinstance(node, list):
        return [_folded(part, defaults, varying) for part in node]
    if not isinstance(node, Mapping) or (kind := node.get("kind", "")) == "Duration":
        return node
    usual, kept = defaults.get(kind, {}), varying.get(kind, set[str]())
    return {
        name: _folded(value, defaults, varying)
        for name, value in node.items()
        if name in kept or name not in usual or usual[name] != value
    }


def _unlike(node: Mapping[str, Any], other: Mapping[str, Any], defaults: Defaults) -> Iterator[str]:
    """Yields what a described value has that another one of its kind does not, such as "budget=6000 steps"."""
    for name, value in node.items():
        if name in IGNORED or value == (theirs := other.get(name)):
            continue
        if isinstance(value, Mapping) and isinstance(theirs, Mapping) and _alike(value, theirs):
            yield from _unlike(value, theirs, defaults)
        else:
            yield f"{name}={compact(_folded(value, defaults, {}))}"


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two values are of one kind, whose fields are worth comparing."""
    return one.get("kind") == other.get("kind") != "Duration"
