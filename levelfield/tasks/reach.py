"""Certified range: in which order do the marks stand, when everything between and around them is the same?

    w v | x y z  a  x y z  b  x y z | v   ->  a first         w v | x y z  b  x y z  a  x y z | v   ->  b first

The filler `x y z` is the same in every gap, so a window that holds at most one mark looks the same whichever mark comes
first. Both orders have the same windows of up to `range` steps, the distance of two marks, equally often. Hence a model
whose features see no more, and which pools them without regard to their places, answers alike to both, whatever its
depth and head; and since every split holds all orders of whatever it holds, it scores exactly 50 %. That is proved, in
docs/reach.md, and not measured. miralles2025 (section 6) asks for benchmarks that need long range by construction.
The filler may be random symbols or stretches of a text of one's own, which the proof makes no difference between.

With two marks the question is which comes first. With three it is whether an even number of exchanges puts them in
order, which no sum of features of single marks and their positions answers either (at most 5 of 6 orders).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from pathlib import Path
from typing import ClassVar

import numpy as np

from levelfield.spec import SPLITS, Certificate, Examples, Label, Progress, SplitName, Task, Tokens, UserError, memory
from levelfield.spec import no_progress as silent
from levelfield.tasks._distinct_rows import Draw, Rows, narrow, splits
from levelfield.tasks._filler import Fill, longest_stretch, of_text, random_symbols
from levelfield.tasks._windows import same_gaps, same_windows

LONGEST = 65_536  # steps between marks
SAMPLE = 200  # classes of twins of each split whose windows are listed
SAMPLED_STEPS = 2_000_000  # beyond which fewer are
COPIES = 5  # of all sequences, padded to the longest, that drawing holds at most


@dataclass(frozen=True)
class Reach(Task):
    """The order of marks that stand `range` steps apart.

    range: 2 to 65,536. marks: 2 (which comes first) or 3 (parity of the order). symbols: of the filler; the marks are
    others, after them. offset: random steps before the first filler and after the last, together, at least one on each
    side; None is a third of the range. easiest: where given, training sequences have this range, or twice, four times
    ... of it, or the task's own, each as long as its range asks, and equally often as far as there are so many
    different ones; val and test do not change.
    text: the path of a file whose bytes are the filler, each of them below `symbols`; None is random symbols. The file
    is known by its content, wherever it lies.
    train, val, test: sequences, which come in classes of all orders, so these are multiples of 2 or 6.
    """

    range: int = 256
    marks: int = 2
    symbols: int = 16
    offset: int | None = None
    easiest: int | None = field(default=None, metadata={"version": 2})
    train: int = 40_000
    val: int = 2_000
    test: int = 4_000
    seed: int = 0
    text: str | None = field(default=None, metadata={"added": True, "identity": False})

    name: ClassVar[str] = "reach"
    version: ClassVar[int] = 1
    source: ClassVar[str] = "generated; levelfield's own construction (docs/reach.md)"
    split_rule: ClassVar[str] = (
        "drawn independently, each split from its own seed; all orders of the marks in the same filler are in one split"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.range <= LONGEST:
            raise UserError(f"Reach takes a range of 2 to {LONGEST:,} steps between marks, not {self.range:,}.")
        if self.marks not in (2, 3):
            raise UserError(f"Reach takes 2 or 3 marks, not {self.marks}.")
        if not 2 <= self.symbols <= 65_000:
            raise UserError(f"Reach takes 2 to 65,000 symbols of filler, not {self.symbols:,}.")
        if self.offset is not None and self.offset < 2:
            raise UserError(f"Reach needs a step before the filler and one after it: offset={self.offset} is below 2.")
        if self.easiest is not None and not 2 <= self.easiest <= self.range:
            raise UserError(f"Reach takes an easiest range of 2 to range={self.range}, not {self.easiest}.")
        for split in SPLITS:
            count = getattr(self, split)
            if count < self.twins or count % self.twins:
                nearest = self.twins * max(1, round(count / self.twins))
                raise UserError(
                    f"Reach holds all {self.twins} orders of {self.marks} marks: {split}={count} is no multiple of "
                    f"{self.twins}, take {nearest}."
                )

    @property
    def twins(self) -> int:
        """The number of orders, which is that of the sequences in a class. They follow one another."""
        return math.factorial(self.marks)

    @property
    def around(self) -> int:
        """Steps before the first filler and after the last one, together."""
        return max(2, self.range // 3) if self.offset is None else self.offset

    @property
    def padded(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  # where ranges differ, so do lengths
        return len(self.ranges) > 1

    @property
    def ranges(self) -> tuple[int, ...]:
        """The ranges of training sequences, each as often as the others."""
        if self.easiest is None:
            return (self.range,)
        doublings = math.ceil(math.log2(self.range / self.easiest))
        return (*(self.easiest << n for n in range(doublings)), self.range)

    @property
    def input(self) -> Tokens:
        """Symbols of the filler, then the marks a, b (and c)."""
        return Tokens(self.symbols + self.marks)

    @property
    def output(self) -> Label:
        return Label(2)

    @property
    def max_length(self) -> int:
        return self._length(self.range)

    @property
    def chance(self) -> float:
        return 0.5

    def _core(self, apart: int) -> int:
        """Steps from the first filler to the last one, where marks are `apart` steps apart."""
        return (self.marks + 1) * (apart - 1) + self.marks

    def _length(self, apart: int) -> int:
        """Steps of a sequence whose marks are `apart` steps apart."""
        return self._core(apart) + self.around

    def at_length(self, length: int, examples: int | None = None) -> Reach:
        """Returns the task at the longest range that fits, with at most `examples` sequences in each split.

        The offset stays in proportion. Raises UserError where no range fits, or no class of twins.
        """
        counts = {} if examples is None else dict.fromkeys(SPLITS, examples - examples % self.twins)
        scaled = min(LONGEST, self.range * length // self.max_length)
        for apart in range(min(LONGEST, scaled + 3), 1, -1):
            offset = None if self.offset is None else max(2, self.offset * apart // self.range)
            easiest = None if self.easiest is None else min(self.easiest, apart)
            longer = replace(self, range=apart, offset=offset, easiest=easiest, **counts)
            if longer.max_length <= length:
                return longer
        raise UserError(f"Reach with {self.marks} marks does not fit in {length} steps: take more.")

    @property
    def certified_range(self) -> int:
        return self.range

    @property
    def longest_range(self) -> int:
        return LONGEST if self.text is None else min(LONGEST, longest_stretch(Path(self.text)))

    def at_range(self, steps: int, examples: int) -> Reach:
        """Returns the task at another range; the offset stays in proportion where it is given."""
        offset = None if self.offset is None else max(2, self.offset * steps // self.range)
        easiest = None if self.easiest is None else min(self.easiest, steps)
        counts = dict.fromkeys(SPLITS, examples - examples % self.twins)
        return replace(self, range=steps, offset=offset, easiest=easiest, **counts)

    def bounded(self, steps: int) -> float:
        """Returns the highest score of a model that pools features of `steps` steps without their places: 1/2 up to
        the range, and 1 beyond it, where a window holds two marks."""
        return 0.5 if steps <= self.range else 1.0

    def build(self, sources: Path | None, progress: Progress = silent) -> Mapping[SplitName, Examples]:
        """Draws the three splits. Raises UserError where they do not fit in memory or cannot all differ, and for a text
        that is too short or holds a mark."""
        self._require_memory()
        counts: dict[SplitName, int] = {split: getattr(self, split) // self.twins for split in SPLITS}
        settings = (self.range, self.marks, self.symbols, self.around)
        fills = self._fills()
        draws: dict[SplitName, Draw] = {split: self._drawer((self.range,), fills[split]) for split in SPLITS}
        draws["train"] = self._drawer(self.ranges, fills["train"])
        made = splits("reach", self.seed, settings, counts=counts, draw=draws, progress=progress)
        return {split: self._closed(*made[split]) for split in SPLITS}

    @property
    def reads(self) -> tuple[Path, ...]:
        return () if self.text is None else (Path(self.text),)

    def _fills(self) -> dict[SplitName, Fill]:
        """Returns what draws the filler of each split. Raises UserError for a text that does not do."""
        if self.text is None:
            return dict.fromkeys(SPLITS, random_symbols(self.symbols))
        return of_text(Path(self.text), self.symbols, least=self.range)

    @property
    def bytes_to_draw(self) -> int:
        """Memory that drawing takes at most, mostly for the sequences in several copies."""
        return COPIES * (self.train + self.val + self.test) * self.max_length * narrow(self.symbols + 3)(0).itemsize

    def _require_memory(self) -> None:
        """Raises UserError where drawing takes more than this machine's memory."""
        if self.bytes_to_draw > memory.total():
            raise UserError(
                f"Reach at range {self.range:,} needs {self.bytes_to_draw / 1e9:.1f} GB to be drawn, more than this "
                "machine has: take fewer sequences or a shorter range."
            )

    def _drawer(self, ranges: tuple[int, ...], fill: Fill) -> Draw:
        """Returns a function that draws one sequence of each class, x (count, T), zero after its end, and the places of
        its marks in order, (count, marks)."""

        def draw(rng: np.random.Generator, count: int) -> Rows:
            x = fill(rng, (count, self.max_length), narrow(self.symbols + self.marks - 1))
            places = np.empty((count, self.marks), np.int64)
            which = rng.integers(0, len(ranges), count)
            for number, apart in enumerate(ranges):
                mine = which == number
                x[mine], places[mine] = self._marked(rng, x[mine], apart, fill)
            return x, places

        return draw

    def _marked(self, rng: np.random.Generator, x: np.ndarray, apart: int, fill: Fill) -> Rows:
        """Writes one filler into every gap of each row, (count, T), the marks between, and zeros after the sequence's
        end; with the places of the marks."""
        count, core = len(x), self._core(apart)
        x[:, self._length(apart) :] = 0
        before = rng.integers(1, self.around, count)
        filler = fill(rng, (count, apart), np.int64).astype(x.dtype)  # whose last step makes room for a mark
        for start in np.unique(before):  # few, so that no array of places as large as x is made
            mine = before == start
            x[mine, start : start + core] = np.tile(filler[mine], self.marks + 1)[:, :core]
        places = before[:, None] + apart - 1 + apart * np.arange(self.marks)
        x[np.arange(count)[:, None], places] = self.symbols + np.arange(self.marks)
        return x, places

    def _closed(self, x: np.ndarray, places: np.ndarray) -> Examples:
        """Gives every row, (count, T), up to its end and in all orders of its marks, one after the other, with labels
        and orders."""
        orders = np.array(list(permutations(range(self.marks))))
        twins = np.repeat(x, len(orders), axis=0)
        rows = np.arange(len(twins))[:, None]
        twins[rows, np.repeat(places, len(orders), axis=0)] = self.symbols + np.tile(orders, (len(x), 1))
        odd = np.array([round(np.linalg.det(np.eye(self.marks)[order])) < 0 for order in orders])
        words = np.array(["".join("abc"[mark] for mark in order) for order in orders])
        y = np.tile(odd.astype(np.int64), len(x))
        lengths = np.repeat([self._length(apart) for apart in np.diff(places)[:, 0].tolist()], len(orders))
        kept = twins[np.arange(self.max_length) < lengths[:, None]]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Examples(kept, offsets, y, {"order": np.tile(words, len(x))})

    def hits(self, train: Examples, test: Examples) -> dict[str, np.ndarray]:
        """Adds, for three marks, the rule `tagged_marks`: a sum of one number for each mark and the third of the
        sequence that it stands in, which is right about five of six orders where the offset leaves no doubt which of
        them that is. For two marks such a sum is right about both, whatever the range (docs/reach.md), so it is no rule
        to be above."""
        rules = super().hits(train, test)
        if self.marks == 2:
            return rules
        x = _rows(test)
        places = np.stack([(x == self.symbols + mark).argmax(1) for mark in range(self.marks)], axis=1)
        thirds = np.clip(places // self.range - 1, 0, self.marks - 1)  # exact up to an offset of range + 1
        votes = additive_votes()
        return rules | {"tagged_marks": (votes[np.arange(self.marks), thirds].sum(1) > 0) == test.y}

    def recompute_labels(self, examples: Examples) -> np.ndarray:
        """Counts the pairs of marks that stand in the wrong order: (N,), -1 where not every mark stands once."""
        x = _rows(examples)
        first = np.stack([(x == self.symbols + mark).argmax(1) for mark in range(self.marks)])
        inverted = sum((first[b] < first[a]).astype(np.int64) for a, b in combinations(range(self.marks), 2)) % 2
        once = np.all([(x == self.symbols + mark).sum(1) == 1 for mark in range(self.marks)], axis=0)
        return np.where(once, inverted, -1)

    def certify(self, given: Mapping[SplitName, Examples]) -> Certificate:
        """Works out from the arrays alone that the bound holds: classes of twins are complete, balanced and in one
        split, and all gaps of each have the same filler, so that twins have the same windows (docs/reach.md). The
        windows themselves are compared in a sample of classes. The slice `order` is worked out anew, too."""
        faults: list[str] = []
        owners: dict[bytes, str] = {}
        compared: dict[SplitName, int] = {}
        for split in SPLITS:
            x = _rows(given[split])
            classes = self._classes(x, given[split].lengths)
            faults += _first(split, self._unbalanced(classes, x, given[split].y))
            faults += _first(split, self._misnamed(x, given[split].slices.get("order", np.full(len(x), "nothing"))))
            shared = sorted({owners[key] for key in classes if key in owners})
            faults += [f"{split}: twins of its sequences are in {other}" for other in shared]
            owners |= dict.fromkeys(classes, split)
            listed = self._sample(list(classes.values()))
            compared[split] = len(listed)
            allowed = self.ranges if split == "train" else (self.range,)
            faults += _first(split, self._told_apart(classes.values(), listed, given[split], allowed))
        orders = "both orders" if self.twins == 2 else f"all {self.twins} orders"
        sizes = ", ".join(f"{count:,} of {split}" for split, count in compared.items())
        return Certificate(
            claim=f"Features of up to {self.range:,} steps, computed alike at every step and pooled without their "
            f"places, score exactly 50 % on val and test: {orders} of the marks have the same windows.",
            checked=f"In every class of {self.twins} twins, labels are balanced and all gaps have the same filler, "
            "from which equal windows follow, and no class is in two splits; windows listed for some classes "
            f"({sizes}) are equal.",
            faults=tuple(faults),
        )

    def _classes(self, x: np.ndarray, lengths: np.ndarray) -> dict[bytes, list[int]]:
        """Maps what twins have in common, the sequence without the names of its marks, to their rows of x, (N, T)."""
        found: dict[bytes, list[int]] = {}
        for row, (sequence, length) in enumerate(zip(x, lengths, strict=True)):
            key = np.minimum(sequence[:length], self.symbols).astype(np.uint16).tobytes()
            found.setdefault(hashlib.blake2b(key, digest_size=16).digest(), []).append(row)
        return found

    def _unbalanced(self, classes: Mapping[bytes, list[int]], x: np.ndarray, y: np.ndarray) -> Iterator[str]:
        for rows in classes.values():
            orders = {tuple(x[row][x[row] >= self.symbols].tolist()) for row in rows}
            if len(rows) > self.twins:
                yield f"the class of example {rows[0]} has {len(rows)} sequences, more than one of an order"
            elif len(rows) != self.twins or len(orders) != self.twins:
                yield f"example {rows[0]} has {len(orders)} of the {self.twins} orders of its marks"
            elif 2 * int(y[rows].sum()) != self.twins:
                yield f"labels are not balanced in the class of example {rows[0]}"

    def _misnamed(self, x: np.ndarray, orders: np.ndarray) -> Iterator[str]:
        """Yields a fault for each row of x, (N, T), whose marks stand in another order than its slice says, (N,)."""
        for row, (sequence, said) in enumerate(zip(x, orders.tolist(), strict=True)):
            marks = sequence[sequence >= self.symbols].astype(np.int64) - self.symbols
            if said != "".join("abc"[mark] if mark < self.marks else "?" for mark in marks):
                yield f"the slice of example {row} says {said}, which is not the order of its marks"

    def _sample(self, classes: list[list[int]]) -> set[int]:
        """Returns the first rows of classes spread evenly over all, as many as are listed in seconds."""
        count = min(SAMPLE, len(classes), max(1, SAMPLED_STEPS // (self.twins * self.max_length)))
        return {classes[int(at)][0] for at in np.linspace(0, len(classes) - 1, count)}

    def _told_apart(
        self, classes: Iterable[list[int]], listed: Container[int], examples: Examples, allowed: tuple[int, ...]
    ) -> Iterator[str]:
        """Yields a fault for each class of examples whose windows are not equal by their gaps, or not by themselves
        where its first example is `listed`."""
        for twins in classes:
            first = examples.sequence(twins[0])
            places = np.flatnonzero(first >= self.symbols)
            apart = sorted(set(np.diff(places).tolist()))
            if len(places) != self.marks or len(apart) != 1 or apart[0] not in allowed:
                yield f"the marks of example {twins[0]} are {' and '.join(map(str, apart)) or 'no'} steps apart"
            elif places[0] < apart[0] or places[-1] + apart[0] >= len(first):
                yield f"example {twins[0]} has no step before its first gap, or none after its last one"
            elif not same_gaps(first, places) or (
                twins[0] in listed and not same_windows(np.stack([examples.sequence(twin) for twin in twins]), apart[0])
            ):
                yield f"windows of {apart[0]} steps tell the twins of example {twins[0]} apart"


def additive_votes() -> np.ndarray:
    """Returns numbers for each of three marks at each of three places, (3, 3), whose sum over an order is 1 for odd and
    -1 for even ones, but for the last order: the permutation matrices of the five others are independent."""
    orders = list(permutations(range(3)))[:-1]
    odd = np.array([sum(a > b for a, b in combinations(order, 2)) % 2 for order in orders])
    matrices = np.array([np.eye(3)[:, order].ravel() for order in orders])
    return np.linalg.lstsq(matrices, 2.0 * odd - 1, rcond=None)[0].reshape(3, 3)


def _rows(examples: Examples) -> np.ndarray:
    """Returns the sequences as the rows of one array, (N, T), with zeros after the end of those that are shorter."""
    lengths = examples.lengths
    if lengths.min() == lengths.max():  # nothing is copied
        return examples.x.reshape(len(examples), -1)
    x = np.zeros((len(examples), int(lengths.max(initial=0))), examples.x.dtype)
    x[np.arange(x.shape[1]) < lengths[:, None]] = examples.x
    return x


def _first(split: str, faults: Iterator[str]) -> list[str]:
    """Returns the first fault of a split, with the number of the others."""
    found = list(faults)
    more = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
    return [f"{split}: {found[0]}{more}"] if found else []


TASKS: dict[str, Task] = {"reach": Reach(), "reach_parity": Reach(marks=3, train=39_996, val=1_998, test=3_996)}
EXAMPLES: tuple[Task, ...] = (
    Reach(5, symbols=6, train=60, val=20, test=20),
    Reach(6, marks=3, symbols=4, easiest=2, train=60, val=12, test=24, seed=3),
)
