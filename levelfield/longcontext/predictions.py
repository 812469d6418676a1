"""Defines the stored lines of an evaluation: one for each answer, and one for each sample that could not be made.

    Prediction.of(sample, task, text=" 7319284", made=8, status="ok")

Fields are the keys of `predictions.jsonl` and `left_out.jsonl`, so they keep their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from levelfield.ruler import BEYOND, OFFICIAL, RULER, RulerTask, Sample
from levelfield.ruler.sample import FILE
from levelfield.spec import UserError

PREDICTIONS = "predictions.jsonl"
LEFT_OUT = "left_out.jsonl"
ESSAYS = "essays"  # the column of samples that names theirs
MOST_TOKENS = 100_000_000  # of a prompt with its answer: no model has read more
CUT_OFF = 0.9  # of a prompt's tokens: a server that counts fewer may not have read all of it
FILTERED = "content_filter"  # how servers end an answer that a filter has taken away or cut off
WITHHELD = "The server's content filter withheld the answer."
TOO_LONG = "The server refuses this question as longer than its context"  # at the beginning of why one is left out
AGAIN = "run the same command again to ask once more."  # at the end of why a question is left out that may be answered
ENDED_BEFORE = f"The command ended before they were answered: {AGAIN}"
ADDED = {"added": True}
"""Marks fields that stored lines have only where they differ from their default."""
Setting = tuple[str, str, int]
"""Variant, template and seed: answers of one setting may be averaged."""


def known_fields(kind: type[Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns of a record what is a field of that dataclass."""
    return {each.name: record[each.name] for each in fields(kind) if each.name in record}


@dataclass(frozen=True)
class LeftOut:
    """A sample that was skipped because it could not be made or was not answered, and why."""

    task: str
    length: int
    index: int
    flavour: str
    template: str
    seed: int
    why: str

    @staticmethod
    def of(sample: Sample | Prediction, why: str) -> LeftOut:
        """Leaves out a sample that could be made, but has no answer, or none that counts."""
        return LeftOut(
            task=sample.task,
            length=sample.length,
            index=sample.index,
            flavour=sample.flavour,
            template=sample.template,
            seed=sample.seed,
            why=why,
        )

    @staticmethod
    def restored(record: Mapping[str, Any]) -> LeftOut:
        """Makes it from a stored line. Fields of later versions are left out."""
        return LeftOut(**known_fields(LeftOut, record))

    @property
    def place(self) -> tuple[str, int, int, str, str, int]:
        """Identifies the sample, as that of an answer does."""
        return self.task, self.length, self.index, self.flavour, self.template, self.seed

    @property
    def unanswered(self) -> bool:
        """Whether there may be an answer where it is asked once more."""
        return self.why.endswith(AGAIN)

    @property
    def too_long(self) -> bool:
        """Whether the server has a shorter context."""
        return self.why.startswith(TOO_LONG)

    @property
    def base_task(self) -> str:
        """The task without the depth that was chosen for its needle."""
        return self.task.partition("@")[0]

    @property
    def setting(self) -> Setting:
        return self.flavour, self.template, self.seed

    @property
    def cell(self) -> tuple[str, int, Setting]:
        """The task, length and setting that lack it."""
        return self.task, self.length, self.setting


@dataclass(frozen=True)
class Prediction:
    """A model's answer to one sample.

    settings: the fields of the task. tokens: number of tokens in the prompt. made: number of generated tokens. slices:
    columns such as the haystack. status: "ok", or "diverged" where a logit was NaN or infinite. version: of the task
    when the answer was generated; lines without one are of version 1.

    reasoning, finish, counted: of a model that may think or is behind a server, what it wrote before its answer, why it
    ended ("stop", "length"), and tokens as the server counted them ("prompt", "made", and "thought" for the reasoning,
    also where it is counted here).

    think_open: whether its prompt had opened a thought, which the answer had to close. think_closed: whether it closed
    one, of which lines that are older than this field say nothing.

    question: what was asked, as a reader of the report needs it; "" in lines that are older than this field.
    """

    key: str
    task: str
    settings: Mapping[str, Any]
    length: int
    index: int
    flavour: str
    template: str
    seed: int
    tokens: int
    made: int
    depths: tuple[float, ...]
    slices: Mapping[str, str | int | float]
    references: tuple[str, ...]
    text: str
    status: str = "ok"
    version: int = 1
    reasoning: str = field(default="", metadata=ADDED)
    finish: str = field(default="", metadata=ADDED)
    counted: Mapping[str, int] = field(default_factory=dict, metadata=ADDED)
    question: str = field(default="", metadata=ADDED)
    think_open: bool = field(default=False, metadata=ADDED)
    think_closed: bool = field(default=False, metadata=ADDED)

    @staticmethod
    def of(sample: Sample, task: RulerTask, *, text: str, made: int, status: str) -> Prediction:
        """Makes the prediction of a sample whose task has its present version. text: the answer, of `made` tokens."""
        return Prediction(
            key=sample.key,
            task=sample.task,
            settings=settings_of(task),
            length=sample.length,
            index=sample.index,
            flavour=sample.flavour,
            template=sample.template,
            seed=sample.seed,
            tokens=len(sample.ids),
            made=made,
            depths=sample.depths,
            slices=dict(sample.slices),
            references=sample.references,
            text=text,
            status=status,
            version=task.version(sample.flavour),
            question=sample.question,
        )

    def restated(self, sample: Sample, task: RulerTask) -> Prediction:
        """Makes the same answer to the same prompt again, with what else is known of its sample today."""
        found = Prediction.of(sample, task, text=self.text, made=self.made, status=self.status)
        said = ("key", "reasoning", "finish", "counted", "think_open", "think_closed")
        return replace(found, **{name: getattr(self, name) for name in said})

    @staticmethod
    def restored(record: Mapping[str, Any]) -> Prediction:
        """Makes a prediction from a stored line, in which tuples are lists.

        Fields of later versions, and a server's counts beyond all reason, are left out.
        """
        listed = {name: tuple(record[name]) for name in ("depths", "references")}
        counted = {name: count for name, count in record.get("counted", {}).items() if count <= MOST_TOKENS}
        return Prediction(**known_fields(Prediction, {**record, **listed, "counted": counted}))

    def record(self) -> dict[str, Any]:
        """Returns the fields as they are stored; those of servers where they have something to say."""
        later = {each.name for each in fields(self) if "added" in each.metadata}
        return {name: value for name, value in vars(self).items() if value or name not in later}

    @property
    def base_task(self) -> str:
        """The task without the depth that was chosen for its needle."""
        return self.task.partition("@")[0]

    @property
    def chosen_depth(self) -> str:
        """The depth that was chosen for its needle, as in the task's name; "" where each sample has its own."""
        return self.task.partition("@")[2]

    @property
    def shown_depths(self) -> str:
        """The depths of all its needles, as lists show them: "0.12, 0.50"; "" without any."""
        return ", ".join(f"{depth:.2f}" for depth in self.depths)

    @property
    def setting(self) -> Setting:
        return self.flavour, self.template, self.seed

    @property
    def cut_off(self) -> bool:
        """Whether the server counted so few tokens that it may not have read all of the prompt."""
        return self.counted.get("prompt", self.tokens) < CUT_OFF * self.tokens

    @property
    def withheld(self) -> bool:
        """Whether a filter of the server took the answer away or cut it off, so that it is not the model's."""
        return self.finish == FILTERED

    @property
    def ended_thinking(self) -> bool:
        """Whether its tokens ran out while the model was thinking, so that it is empty."""
        return self.finish == "length" and not self.text.strip() and bool(self.reasoning or self.counted.get("thought"))

    @property
    def essays(self) -> str:
        """The name, and hash, of the essays that its prompt is made of; "" for a prompt without any."""
        return str(self.slices.get(ESSAYS, ""))

    @property
    def texts(self) -> tuple[str, str]:
        """What tells the texts of its prompt apart: what names the essays, and the hash of the user's file.

        "" for prompts without either, and for the file also in lines that are older than its hash.
        """
        return self.essays, str(self.slices.get(FILE, ""))

    @property
    def cell(self) -> tuple[str, int, Setting]:
        """What it is averaged with: task, length and setting."""
        return self.task, self.length, self.setting

    @property
    def place(self) -> tuple[str, int, int, str, str, int]:
        """Identifies the sample that it answers, whatever its prompt was."""
        return self.task, self.length, self.index, self.flavour, self.template, self.seed

    @property
    def outdated(self) -> bool:
        """Whether its prompt may differ from the one that this version of its task makes."""
        return self.version < self.ruler_task.version(self.flavour)

    @property
    def scored_text(self) -> str:
        """The text to score, which is empty where a logit was NaN or infinite."""
        return self.text if self.status == "ok" else ""

    @property
    def ruler_task(self) -> RulerTask:
        """Rebuilds the task from its stored settings. Raises UserError where this version has no such task."""
        return task_of(self.settings)


def settings_of(task: RulerTask) -> dict[str, Any]:
    """Returns a task as it is stored: its class and its fields."""
    return {"kind": type(task).__name__, **vars(task)}


def task_of(settings: Mapping[str, Any]) -> RulerTask:
    """Rebuilds a task from `settings_of`. Raises UserError where this version has no such task."""
    kinds = {type(task).__name__: type(task) for task in (*RULER, *BEYOND, *OFFICIAL)}
    given = dict(settings)
    kind = given.pop("kind", "")
    if kind not in kinds:
        raise UserError(f"A prediction is of the task kind '{kind}', which RULER here does not have.")
    if later := given.keys() - known_fields(kinds[kind], given).keys():
        raise UserError(
            f"A prediction of {kind} has the setting '{min(later)}', which RULER here does not have: use the version "
            "of levelfield that wrote it, or a later one."
        )
    return kinds[kind](**given)


def settled(found: Sequence[Prediction]) -> list[Prediction]:
    """Returns a model's answers, in which a thought that has no end is no text of an answer.

    Where prompts open a thought, as other answers to prompts of this template show, one whose tokens ran out before it
    closed the thought has only thought.
    """
    opened = {p.template for p in found if p.think_open}
    return [
        replace(p, text="", reasoning=p.text, counted={**p.counted, "thought": p.made})
        if p.template in opened and p.finish == "length" and not p.reasoning and not p.think_closed
        else p
        for p in found
    ]


def ended_thinking(found: Sequence[Prediction]) -> Iterator[str]:
    """Yields a line for each template and length on answers whose tokens ran out while the model was thinking."""
    groups: dict[tuple[str, int], list[Prediction]] = {}
    for p in found:
        groups.setdefault((p.template, p.length), []).append(p)
    for (label, length), whole in groups.items():
        if ended := sum(p.ended_thinking for p in whole):
            yield (
                f"{ended} of {len(whole)} answers at {length} ({label}) ended while the model was thinking, and are "
                "empty: give a greater --thinking."
            )


OnPrediction = Callable[[Prediction, bool], None]
"""on_prediction(answer, whether it was asked for now)."""
