"""Makes the data card of a task: everything one should know of its arrays before believing a score on them.

    card = make(task, splits)
    print(markdown(card))       # source, split rule, counts, balance, lengths, duplicates, baselines, errors
    card.faults                 # what must not be: an overlap of generated splits, a target that cannot be right

Everything is counted from the arrays themselves, never copied from a paper. What official files are known to have, such
as duplicates across their splits, is a note (`remarks`); in generated data the same is an error (`faults`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from levelfield.data import duplicates
from levelfield.data.duplicates import Duplicates
from levelfield.files import abridged
from levelfield.spec import (
    SPLITS,
    Examples,
    LabelSet,
    Progress,
    SplitName,
    Task,
    Tokens,
    Unlabelled,
    Values,
    describe,
    no_progress,
)

CARD = "card.json"
MEANING = (
    "Exact: examples that repeat an earlier one of the split, or different sequences that both splits have. Near: "
    "examples of the first split with a near duplicate in the second, {}."
)
MANY = 12  # classes that are named one by one
WITH = "with "  # what the names of labels begin with of which an example has any number


@dataclass(frozen=True)
class Card:
    """What is known of a task's arrays; the fields are stored under these names.

    steps: split -> least, median, 95 % and most steps of a sequence. balance: split -> class -> examples, or for sets
    of labels "with 3" -> examples, or for real targets the name of a quantile -> its value. relabelled: whether targets
    were recomputed from the sequences. remarks: notes on the files. faults: errors. certificate: what is proved of
    scores on this data, and what was checked for it; empty where nothing is proved, or where the check failed.
    classes: the names of classes or labels, by their number; () where they have none.
    """

    task: str
    settings: Mapping[str, Any]
    source: str
    split_rule: str
    about: str
    examples: Mapping[str, int]
    steps: Mapping[str, tuple[int, int, int, int]]
    balance: Mapping[str, Mapping[str, float]]
    chance: float
    baselines: Mapping[str, float]
    found: Duplicates
    relabelled: bool
    remarks: tuple[str, ...]
    faults: tuple[str, ...]
    certificate: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


def make(
    task: Task,
    splits: Mapping[SplitName, Examples],
    notes: Sequence[str] = (),
    files: bool = False,
    progress: Progress = no_progress,
    *,
    found: Duplicates | None = None,
) -> Card:
    """Counts everything.

    found: duplicates, where they are searched for already. notes: warnings that were given while the arrays were built;
    files: whether a folder of files was read for it (a task with archives always reads some, and so does one of a
    user's own files).
    """
    found = found or duplicates.of_task(task, splits, progress)
    relabelled, wrong = _recomputed(task, splits)
    shared = {pair: count for pair, count in found.exact.items() if "+" in pair and count}
    overlaps = [f"{_many(count, 'example is', 'examples are')} in both {pair}" for pair, count in shared.items()]
    generated = not (task.archives or files or task.reads)
    certified = task.certify(splits)
    against = certified.faults if certified else ()
    return Card(
        task=task.name,
        settings={k: v for k, v in describe(task).items() if k != "kind"},
        source=task.source,
        split_rule=task.split_rule,
        about=_about(task),
        examples={split: len(splits[split]) for split in SPLITS},
        steps={split: _steps(splits[split]) for split in SPLITS},
        balance={split: _balance(task, splits[split]) for split in SPLITS},
        chance=task.chance,
        baselines=task.baselines(splits["train"], splits["test"]),
        found=found,
        relabelled=relabelled,
        remarks=(*notes, *(() if generated else overlaps), *_conflicts(found)),
        faults=(*wrong, *_out_of_range(task, splits), *(overlaps if generated else ()), *against),
        certificate=(certified.claim, certified.checked) if certified and not against else (),
        classes=getattr(task, "classes", ()),
    )


def to_json(card: Card) -> str:
    found = asdict(card)
    del found["found"]["leaked"]
    return json.dumps(found, indent=1)


def markdown(card: Card) -> str:
    """The card as a page; it reads on a terminal as well."""
    blocks = [
        f"# {card.task}: data card",
        _facts(card),
        _table("split", ("examples", "least steps", "median", "95 %", "most"), _sizes(card)),
        _targets(card),
        _table("duplicates", ("exact", "near"), _duplicates(card)) + "\n\n" + MEANING.format(card.found.measure),
        _list("Certificate", card.certificate),
        _list("Notes on the files", card.remarks),
        _list("Errors", card.faults or ("none found",)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _about(task: Task) -> str:
    kind = task.input
    output = describe(task.output)["kind"].lower()
    number, unit = (kind.symbols, "symbol") if isinstance(kind, Tokens) else (kind.channels, "channel")
    pair = f", {task.documents} inputs per example" if task.documents > 1 else ""
    return f"{number} {unit}{'s' * (number > 1)}, at most {task.max_length:,} steps{pair}; output {output}"


def _steps(examples: Examples) -> tuple[int, int, int, int]:
    low, median, high, most = np.quantile(examples.lengths, [0, 0.5, 0.95, 1], method="lower")
    return int(low), int(median), int(high), int(most)


def _balance(task: Task, examples: Examples) -> dict[str, float]:
    if isinstance(task.output, Unlabelled):
        return {}
    if isinstance(task.output, Values):
        places = (0, 0.05, 0.5, 0.95, 1)
        found = np.quantile(np.asarray(examples.y, np.float64).reshape(len(examples), -1), places, axis=0).T
        return {f"{dim}: {100 * at:g} %": float(v) for dim, row in enumerate(found) for at, v in zip(places, row)}
    if isinstance(task.output, LabelSet):
        return {f"{WITH}{label}": int(count) for label, count in enumerate(np.asarray(examples.y).sum(0, int))}
    values, counts = np.unique(examples.y[examples.y >= 0], return_counts=True)
    return {str(value): int(count) for value, count in zip(values, counts, strict=True)}


def _recomputed(task: Task, splits: Mapping[SplitName, Examples]) -> tuple[bool, list[str]]:
    """Tells whether labels can be recomputed, with a sentence for each split where some differ."""
    wrong: list[str] = []
    for split in SPLITS:
        again = task.recompute_labels(splits[split])
        if again is None:
            return False, []
        differ = np.flatnonzero(again != splits[split].y)
        if len(differ):
            one, several = "is not what its sequence says", "are not what their sequences say"
            targets = _many(len(differ), f"target of {split} {one}", f"targets of {split} {several}")
            wrong.append(f"{targets}, first at {differ[0]}")
    return True, wrong


def _conflicts(found: Duplicates) -> Iterator[str]:
    if found.conflicts:
        yield f"{_many(found.conflicts, 'sequence occurs', 'sequences occur')} with different targets"


def _many(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _out_of_range(task: Task, splits: Mapping[SplitName, Examples]) -> Iterator[str]:
    """Names symbols and lengths beyond what the task declares, and signals that are not finite."""
    for split in SPLITS:
        examples = splits[split]
        if examples.lengths.min() < 1 or examples.lengths.max() > task.max_length:
            yield f"{split} has sequences outside 1 to {task.max_length} steps"
        if isinstance(task.input, Tokens):
            if examples.x.min() < 0 or examples.x.max() >= task.input.symbols:
                yield f"{split} has symbols outside 0 to {task.input.symbols - 1}"
        elif not np.isfinite(examples.x[:: max(1, len(examples.x) // 10**7)]).all():
            yield f"{split} has values that are not finite"


def _facts(card: Card) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in card.settings.items())
    scores = ", ".join(f"{name} {value:.3f}" for name, value in card.baselines.items())
    labels = "recomputed from the sequences and compared" if card.relabelled else "as given"
    facts = {
        "Settings": settings,
        "Source": " ".join(card.source.split()),
        "Splits": card.split_rule,
        "Form": card.about,
        "Chance": f"{card.chance:.3f}" + (f"; without a sequence model: {scores}" if scores else ""),
        "Targets": labels,
    }
    return "\n".join(f"- **{name}.** {text}" for name, text in facts.items())


def _sizes(card: Card) -> dict[str, tuple[str, ...]]:
    return {s: (f"{n:,}", *(f"{v:,}" for v in card.steps[s])) for s, n in card.examples.items()}


def _targets(card: Card) -> str:
    """Shares of classes, or quantiles of real targets; of many classes only the rarest and the commonest."""
    names = list(dict.fromkeys(name for found in card.balance.values() for name in found))
    if not names:
        return ""
    if ":" in names[0]:
        rows = {name: tuple(f"{card.balance[s][name]:.4g}" for s in SPLITS) for name in names}
        return _table("target", SPLITS, rows)
    sets = names[0].startswith(WITH)  # an example may have several
    of = {s: card.examples[s] if sets else sum(card.balance[s].values()) for s in SPLITS}
    shares = {s: {n: card.balance[s].get(n, 0) / of[s] for n in names} for s in SPLITS}
    if len(names) <= MANY:
        rows = {_called(card, n): tuple(f"{shares[s][n]:.3f}" for s in SPLITS) for n in names}
        return _table("label" if sets else "class", SPLITS, rows)
    ends = {"rarest": min, "commonest": max}
    rows = {name: tuple(f"{end(shares[s].values()):.4f}" for s in SPLITS) for name, end in ends.items()}
    return _table(f"of {len(names)} {'labels' if sets else 'classes'}", SPLITS, rows)


def _called(card: Card, name: str) -> str:
    """Returns what a class or label of the balance is called, in a cell of a table."""
    if not card.classes:
        return name
    number = name.removeprefix(WITH)
    called = " ".join(card.classes[int(number)].split()).replace("|", "\\|")
    return f"{name[: -len(number)]}{abridged(called)}"


def _duplicates(card: Card) -> dict[str, tuple[str, str]]:
    found, rows = card.found, {}
    for pair, near in found.near.items():
        b, _, a = pair.partition(" in ")
        exact = found.exact[a if a == b else f"{a}+{b}"]
        rows["within " + a if a == b else pair] = (f"{exact:,}", f"{near:,}")
    return rows | {f"single inputs, {pair}": (f"{count:,}", "") for pair, count in found.documents.items()}


def _table(corner: str, head: tuple[str, ...], rows: Mapping[str, tuple[str, ...]]) -> str:
    lines = [(corner, *head), ("---",) * (len(head) + 1), *((name, *cells) for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _list(title: str, items: tuple[str, ...]) -> str:
    return f"{title}:\n\n" + "\n".join(f"- {item}" for item in items) if items else ""
