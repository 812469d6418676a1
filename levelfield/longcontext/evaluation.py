"""Defines an evaluation: the tasks, lengths and samples of RULER on which a language model is evaluated.

evaluation = Evaluation(tasks=RULER, lengths=(1024, 2048), count=100)
for task, length, samples in evaluation.groups(tokenizer): ...
Overrides(count=10).apply(evaluation)             # the same with fewer samples
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from levelfield.longcontext.predictions import MOST_TOKENS, LeftOut, Prediction, settings_of, task_of
from levelfield.longcontext.served.replies import opens_thought
from levelfield.ruler import RULER, Needle, PromptOptions, RulerTask, Sample, Sources, Tokenizer, generate
from levelfield.ruler.prompt.answer_budget import forgets_answer
from levelfield.ruler.prompt.flavours import flavoured
from levelfield.spec import UserError

SHIPPED = Sources()
MOST_SAMPLES = 100_000  # of each task and length
OnSkipped = Callable[[LeftOut], None]


@dataclass(frozen=True)
class Evaluation:
    """The samples of one evaluation. Raises UserError where there are none, or more than anybody could wait for.

    count: samples of each task and length, from the first. flavour: the variant of RULER. depths: needles are placed at
    each of these; with () every sample has a depth of its own. around: text before the task and after it, where that is
    not one of RULER's templates; `template` then only names it. thinking: tokens that a model that is loaded here may
    think, in addition to those of its length.
    """

    tasks: tuple[RulerTask, ...] = RULER
    lengths: tuple[int, ...] = (1024, 2048, 4096)
    count: int = 100
    seed: int = 42
    flavour: str = "sound"
    template: str = "base"
    depths: tuple[float, ...] = ()
    sources: Sources = SHIPPED
    around: tuple[str, str] | None = None
    thinking: int = 0

    def __post_init__(self) -> None:
        if not self.tasks or not self.lengths or min(self.lengths) < 1:
            raise UserError("An evaluation needs tasks, and lengths from 1.")
        if self.count < 1:
            raise UserError(f"{self.count:,} samples of each task are too few: give 1 or more.")
        if max(self.lengths) > MOST_TOKENS:
            raise UserError(f"A length of {max(self.lengths):.4g} tokens is too long: give {MOST_TOKENS:,} or fewer.")
        if self.count > MOST_SAMPLES:
            raise UserError(f"{self.count:,} samples of each task are too many: give {MOST_SAMPLES:,} or fewer.")
        if self.depths and not any(isinstance(task, Needle) for task in self.tasks):
            raise UserError("Depths are of needle tasks: name one of them, or leave out the depths.")

    @property
    def prompts(self) -> int:
        """The number of prompts, all lengths together."""
        return self.count * len(self.tasks_at_depths) * len(self.lengths)

    @property
    def longest(self) -> int:
        """The most tokens of a prompt, its answer and the thought before that."""
        return max(self.lengths) + self.beyond + self.thinking

    @property
    def beyond(self) -> int:
        """How many tokens a prompt with its answer may take beyond its length: those of answers that are forgotten."""
        forgotten = [task for task in self.tasks if forgets_answer(task, flavoured(self.flavour))]
        return max((task.answer_tokens for task in forgotten), default=0)

    @property
    def tasks_at_depths(self) -> tuple[RulerTask, ...]:
        """The tasks, with those of needles once for every depth."""
        return tuple(at for task in self.tasks for at in self._at_depths(task))

    def covers(self, found: Prediction | LeftOut) -> bool:
        """Whether an answer or a skipped sample belongs to this evaluation."""
        same = found.setting == (self.flavour, self.template, self.seed)
        there = found.length in self.lengths and found.index < self.count
        return same and there and found.task in {task.name for task in self.tasks_at_depths}

    def _at_depths(self, task: RulerTask) -> tuple[RulerTask, ...]:
        if isinstance(task, Needle) and self.depths:
            return tuple(replace(task, depth=depth) for depth in self.depths)
        return (task,)

    def groups(
        self, tokenizer: Tokenizer, on_skipped: OnSkipped | None = None
    ) -> Iterator[tuple[RulerTask, int, list[Sample]]]:
        """Yields task, length and all their samples, those at several depths together, since they share prefixes.

        on_skipped: is called for samples that do not fit; without it they raise UserError.
        """
        for length in sorted(self.lengths):
            for task in self.tasks:
                yield task, length, self.part(task, length, tokenizer, range(self.count), on_skipped=on_skipped)

    def part(
        self, task: RulerTask, length: int, tokenizer: Tokenizer, indices: range, *, on_skipped: OnSkipped | None = None
    ) -> list[Sample]:
        """Returns the samples of one task and length whose indices are in a range, as `groups` yields all of them."""
        at_depths = (self._samples(at, length, tokenizer, indices, on_skipped) for at in self._at_depths(task))
        return [sample for samples in at_depths for sample in samples]

    @property
    def record(self) -> dict[str, Any]:
        """The evaluation as JSON can hold it."""
        known = {name: value for name, value in vars(self).items() if value or name != "thinking"}
        return known | {"tasks": [settings_of(task) for task in self.tasks], "sources": vars(self.sources)}

    @staticmethod
    def restored(record: Mapping[str, Any]) -> Evaluation:
        """Makes the evaluation of a `record`, in which tuples may have become lists."""
        listed = {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
        tasks = tuple(task_of(settings) for settings in record["tasks"])
        return Evaluation(**{**listed, "tasks": tasks, "sources": Sources(**record["sources"])})

    def _samples(
        self, task: RulerTask, length: int, tokenizer: Tokenizer, indices: range, on_skipped: OnSkipped | None
    ) -> Iterator[Sample]:
        def skip(index: int, why: str) -> None:
            assert on_skipped
            on_skipped(
                LeftOut(
                    task=task.name,
                    length=length,
                    index=index,
                    flavour=self.flavour,
                    template=self.template,
                    seed=self.seed,
                    why=why,
                )
            )

        made = generate(
            task,
            length,
            tokenizer,
            PromptOptions(self.flavour, self.template, self.sources, around=self.around),
            seed=self.seed,
            start=indices.start,
            count=len(indices),
            on_skipped=skip if on_skipped else None,
        )
        opens = self.around is not None and opens_thought(self.around[1])
        return (replace(each, thinking=self.thinking, think_open=opens) for each in made) if self.thinking else made


@dataclass(frozen=True)
class Overrides:
    """Fields of an evaluation that the user has set; None leaves a field unchanged."""

    tasks: tuple[RulerTask, ...] | None = None
    lengths: tuple[int, ...] | None = None
    count: int | None = None
    seed: int | None = None
    flavour: str | None = None
    template: str | None = None
    depths: tuple[float, ...] | None = None
    sources: Sources | None = None

    def apply(self, evaluation: Evaluation) -> Evaluation:
        """Returns the evaluation with these fields. Raises UserError as `Evaluation` does."""
        return replace(evaluation, **{name: value for name, value in vars(self).items() if value is not None})
