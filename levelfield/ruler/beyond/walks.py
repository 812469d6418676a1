"""Builds walks on a graph: a list of edges, and a question whose answer is a set of nodes.

4f1a09c2 -> 77be0d31
0c5d9e1f -> 4f1a09c2
...
Operation: Which nodes are reached from 0c5d9e1f by 2 edges, and by no fewer? Final Answer: [

After GraphWalks (OpenAI 2025), generated anew: the edges that decide the answer are drawn first, and all others so that
they cannot change it, whatever the length. Edges are added until the length is filled, and all stand in a random order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from levelfield.ruler.prompt.compose import Order, TokenTable
from levelfield.ruler.prompt.fit import PromptDraft, too_short
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.question_set import CONTROL, QuestionSet, Score, clean
from levelfield.spec import UserError, closest

TASK = (
    "Below is a directed graph, one edge a line: a -> b leads from node a to node b. Answer the question after it with "
    "a set of nodes.\n\n"
    "For example, the graph with the edges\nuvwx -> alke\nabcd -> uvwx\nabcd -> efgh\nefgh -> uvwx\nanswers the "
    "question which nodes have an edge that leads to uvwx with\nFinal Answer: [abcd, efgh]\n\n"
    "The graph has the following edges:{context}\n\n"
    "Operation: {question} Give only the set of nodes, as in the example."
)
ANSWER = " Final Answer: ["
QUESTIONS = {
    "parents": "Which nodes have an edge that leads to {node}?",
    "bfs": "Which nodes are reached from {node} by {hops} edges, and by no fewer?",
}
LETTERS = 8  # hexadecimal digits of a node's name
SHORT = (4, 7)  # of the names of the last edge, which fills the length
FEWEST, MOST = 2, 5  # nodes of an answer
EDGES_PER_NODE = 2.5
PARENTS = 0.3  # chance that a reached node is reached from a second node, too
LAST = 24  # edges that are tried to fill what is left
NODE = re.compile(r"(?<!\w)(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{4,8}(?!\w)")

CLOSED = re.compile(r"\[?([^\[\]]*)\]")
"""A list at the beginning of an answer: the one that the prompt has begun, or a whole one."""
MARK = "final answer"
LAST_MARK = "Final Answer:"
LAST_LINE = re.compile(r"Final Answer: ?\[(.*)\]")

Edge = tuple[str, str]


@dataclass(frozen=True)
class Walk(QuestionSet):
    """Edges of a directed graph: which nodes lead to one, or are reached from it by so many edges and no fewer?"""

    answer_tokens: ClassVar[int] = 96
    operation: Literal["bfs", "parents"] = "bfs"
    hops: int = 2  # edges from the node to the answer; of bfs alone

    def __post_init__(self) -> None:
        if self.operation not in QUESTIONS:
            raise UserError(f"There is no walk '{self.operation}': {closest(self.operation, list(QUESTIONS))}")
        if not 1 <= self.hops <= 8:
            raise UserError(f"A walk has 1 to 8 hops, not {self.hops}.")

    @property
    def name(self) -> str:
        hops = f"_{self.hops}" if self.operation == "bfs" and self.hops != 2 else ""
        return f"walks_{self.operation}{hops}"

    def version(self, flavour: str) -> int:
        return 2  # scores: what follows the list that ends an answer does not count

    def builder(self, setting: Setting) -> Walks:
        return Walks(setting, self)

    def answer(self, rng: np.random.Generator) -> str:
        return ", ".join(names(MOST, rng)) + "]"

    def score(self, prediction: str, references: Sequence[str]) -> Score:
        return walk_score(prediction, references)

    def other_scores(self, prediction: str, references: Sequence[str]) -> dict[str, float]:
        return {"last_line_f1": last_line_f1(prediction, references)}

    def candidates(self, text: str) -> list[str]:
        return NODE.findall(text[: text.rfind("\n\nOperation: ")].partition("following edges:\n")[2])

    def is_final(self, text: str) -> bool:
        return bool(_begun(CONTROL.sub("\n", text.lstrip()).lstrip()))


def walk_score(prediction: str, references: Sequence[str]) -> Score:
    """Scores a set of nodes: match is F1 of the set, strict whether it is the very set.

    The set is the list with which the answer begins, which the prompt may have opened; without one, the list after the
    last "Final Answer" that nodes follow; and without that, all nodes up to the first closing bracket. Letter case does
    not matter. GraphWalks reads the last line alone (`last_line_f1`).
    """
    given, wanted = _nodes(clean(prediction)), set(references)
    return Score(_f1(given, wanted), float(given == wanted))


def last_line_f1(prediction: str, references: Sequence[str]) -> float:
    """Scores a set of nodes by GraphWalks' rule: F1 of the list after "Final Answer:" in the last line, else 0.

    The list ends with the line's last bracket, and names count as they are written. An answer of one line continues the
    line that the prompt has begun. The published code also takes the words before the list for part of its first name,
    and gives 1 where no name is right; the rule that it states does neither. Source: OpenAI 2025, openai/graphwalks.
    """
    lines = prediction.split("\n")
    last = ANSWER + prediction if len(lines) == 1 and LAST_MARK not in prediction else lines[-1]
    found = LAST_LINE.search(last)
    given = {name.strip() for name in found[1].split(",") if name.strip()} if found else set()
    return _f1(given, set(references))


def _f1(given: set[str], wanted: set[str]) -> float:
    return 2 * len(given & wanted) / (len(given) + len(wanted))


def _nodes(text: str) -> set[str]:
    """Returns the nodes that a cleaned answer names, in lower case."""
    if begun := _begun(text):
        return begun
    parts = [NODE.findall(part.partition("]")[0]) for part in text.lower().split(MARK)]
    marked = next((nodes for nodes in reversed(parts[1:]) if nodes), None)
    return set(parts[0] if marked is None else marked)


def _begun(text: str) -> set[str]:
    """Returns the nodes of a list with which a text begins, in lower case; none where it begins otherwise."""
    found = CLOSED.match(text)
    return set() if found is None or MARK in found[1].lower() else set(NODE.findall(found[1].lower()))


@dataclass(frozen=True)
class Core:
    """What decides an answer. closed: nodes with no other edges than these, outgoing (bfs) or incoming (parents)."""

    node: str
    edges: tuple[Edge, ...]
    answer: tuple[str, ...]
    closed: frozenset[str]


class Walks:
    """Builds samples of one kind of walk at one length."""

    def __init__(self, setting: Setting, task: Walk) -> None:
        self.setting, self.task, self.composer = setting, task, setting.composer
        before, after = setting.around
        self.head, _, self.rest = (before + TASK + after + ANSWER).partition("{context}")

    def draft(self, index: int, room: int) -> PromptDraft:
        """Drafts sample `index`, of at most `room` tokens."""
        rng = self.setting.rng(index)
        core = self._core(rng)
        question = QUESTIONS[self.task.operation].format(node=core.node, hops=self.task.hops)
        rest = self.rest.replace("{question}", question)
        fixed = self._table(core.edges)
        left = room - self.composer.size([self.head, Order(fixed, np.arange(len(fixed))), rest])
        if left < 0:
            raise too_short(room, room - left)
        others = self._others(core, left, rng)
        table = TokenTable.joined(fixed, self._table(others))
        size = len(fixed) + int(np.searchsorted(np.cumsum(table.sizes[len(fixed) :]), left, side="right"))
        left -= int(table.sizes[len(fixed) : size].sum())
        ending = self._ending(core, left, rng)
        pieces = [self.head, Order(table, rng.permutation(size)), ending + rest]
        if ending and self.composer.size(pieces) > room:  # where its tokens merge with what follows
            pieces[-1] = rest
        nodes = {node for edge in (*core.edges, *others[: size - len(fixed)]) for node in edge}
        slices = (("operation", self.task.operation), ("edges", size + bool(ending)), ("nodes", len(nodes)))
        return PromptDraft(pieces, core.answer, (), slices)

    def _core(self, rng: np.random.Generator) -> Core:
        count = int(rng.integers(FEWEST, MOST + 1))
        if self.task.operation == "parents":
            node, *answer = names(count + 1, rng)
            return Core(node, tuple((parent, node) for parent in answer), tuple(answer), frozenset([node]))
        layers, edges = [names(1, rng)], list[Edge]()
        for hop in range(1, self.task.hops + 1):
            reached = names(count if hop == self.task.hops else int(rng.integers(2, 4)), rng)
            for node in reached:
                first = int(rng.integers(len(layers[-1])))
                edges.append((layers[-1][first], node))
                if len(layers[-1]) > 1 and rng.random() < PARENTS:
                    edges.append((layers[-1][first - 1], node))
            layers.append(reached)
        closed = frozenset(node for layer in layers[:-1] for node in layer)
        return Core(layers[0][0], tuple(edges), tuple(layers[-1]), closed)

    def _others(self, core: Core, tokens: int, rng: np.random.Generator) -> list[Edge]:
        """Draws edges that do not change the answer, of at least so many tokens."""
        sample = self._table([(a, b) for a, b in zip(names(16, rng), names(16, rng))])
        count = int(1.2 * tokens / max(1.0, float(sample.sizes.mean()))) + 8
        known = sorted({node for edge in core.edges for node in edge})
        nodes = [*known, *names(int(count / EDGES_PER_NODE) + 2, rng)]
        free = [node for node in nodes if node not in core.closed]
        sources, targets = (free, nodes) if self.task.operation == "bfs" else (nodes, free)
        drawn = zip(rng.integers(len(sources), size=count), rng.integers(len(targets), size=count))
        edges = ((sources[a], targets[b]) for a, b in drawn)
        return list(dict.fromkeys(edge for edge in edges if edge[0] != edge[1] and edge not in core.edges))

    def _ending(self, core: Core, left: int, rng: np.random.Generator) -> str:
        """Draws a last edge between nodes with short names that takes at most `left` tokens; "" where none does."""
        lengths = [(int(a), int(b)) for a, b in rng.integers(SHORT[0], SHORT[1] + 1, size=(LAST, 2))]
        edges = [_text((names(1, rng, a)[0], names(1, rng, b)[0])) for a, b in lengths]
        table = self.composer.table(edges, "0", "\n")
        fitting = [(int(size), text) for size, text in zip(table.sizes, edges) if size <= left]
        return max(fitting)[1] if fitting else ""

    def _table(self, edges: tuple[Edge, ...] | list[Edge]) -> TokenTable:
        return self.composer.clean_table([_text(edge) for edge in edges], "0", "\n")


def _text(edge: Edge) -> str:
    return f"\n{edge[0]} -> {edge[1]}"


def names(count: int, rng: np.random.Generator, letters: int = LETTERS) -> list[str]:
    """Draws names of hexadecimal digits, with at least one figure and one letter, so that no word is a name."""
    found: list[str] = []
    while len(found) < count:
        digits = rng.integers(16, size=(max(16, 2 * (count - len(found))), letters))
        drawn = ("".join("0123456789abcdef"[i] for i in row) for row in digits.tolist())
        found += [name for name in drawn if not name.isdigit() and not name.isalpha()]
    return found[:count]
