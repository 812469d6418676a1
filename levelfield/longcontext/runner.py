"""Runs evaluations: generates the answers that a folder does not have yet, and stores each as it arrives.

    evaluate(model, tokenizer, [Evaluation(count=100)], folder)      # continues after a kill
    score(folder)                                                    # `levelfield.longcontext.answers`

A sample that does not fit its length is skipped, and its cell says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from levelfield.longcontext.answers import Answers, append_baselines, await_answers, leave_out
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import AGAIN, LeftOut, OnPrediction, Prediction
from levelfield.longcontext.served.replies import CLOSED, parted, unopened
from levelfield.ruler import RulerTask, Sample, Tokenizer
from levelfield.ruler.early_stop import is_final
from levelfield.spec import UserError

if TYPE_CHECKING:
    from levelfield.pretrained import LanguageModel
    from levelfield.pretrained.decoding import Batching

UNANSWERED = f"No copy of the model answered: {AGAIN}"
Ask = Callable[[RulerTask, Sequence[Sample]], Iterator[Prediction]]
"""ask(task, samples): yields the answers to samples of a task, in any order; some may have none."""


def evaluate(
    model: LanguageModel,
    tokenizer: Tokenizer,
    evaluations: Sequence[Evaluation],
    folder: Path,
    on_prediction: OnPrediction = lambda prediction, new: None,
    *,
    batching: Batching | None = None,
) -> list[LeftOut]:
    """Generates the answers that `folder` does not have yet, and returns the samples that do not fit.

    A stored answer to the same prompt is used again. Raises UserError for lengths and ids that the model does not have,
    and where no prompt fits.
    """
    for each in evaluations:
        check(model, each)

    def ask(task: RulerTask, samples: Sequence[Sample]) -> Iterator[Prediction]:
        return answered(model, tokenizer, task, samples, batching=batching)

    return collect(tokenizer, evaluations, folder, ask, on_prediction)


def collect(
    tokenizer: Tokenizer,
    evaluations: Sequence[Evaluation],
    folder: Path,
    ask: Ask,
    on_prediction: OnPrediction = lambda prediction, new: None,
) -> list[LeftOut]:
    """Asks for the answers that `folder` does not have yet, and returns the samples without one.

    Raises UserError where no prompt fits, and where no sample has an answer.
    """
    answers = Answers(folder)
    left: list[LeftOut] = []
    unanswered: list[LeftOut] = []
    for each in evaluations:
        for task, _, samples in each.groups(tokenizer, left.append):
            waiting = True
            for prediction, new in _stored_first(task, samples, answers, ask):
                if new and waiting:
                    await_answers(folder, [sample for sample in samples if not answers.known(sample.key)], left)
                    waiting = False
                answers.append(prediction)
                on_prediction(prediction, new)
            unanswered += [LeftOut.of(sample, UNANSWERED) for sample in samples if not answers.known(sample.key)]
    answers.sync()
    without = [*left, *unanswered]
    if without and len(without) == sum(each.prompts for each in evaluations):
        raise UserError(f"No question has an answer. {UNANSWERED}" if unanswered else f"No prompt fits. {left[0].why}")
    leave_out(folder, evaluations, without)
    return without


def check(model: LanguageModel, evaluation: Evaluation) -> None:
    """Raises UserError for lengths of more tokens than the model takes."""
    before = len(model.bos_ids) + evaluation.thinking
    check_lengths(model.name, model.max_length, evaluation, before, ", or less --thinking" * bool(evaluation.thinking))


def check_lengths(name: str, most: int | None, evaluation: Evaluation, before: int = 0, advice: str = "") -> None:
    """Raises UserError for lengths of more than `most` tokens with the `before` tokens in front of the prompt.

    advice: what else may mend it.
    """
    longest = max(evaluation.lengths)
    before += evaluation.beyond
    if most is not None and longest + before > most:
        raise UserError(
            f"{name} takes at most {most} tokens and cannot be evaluated at a length of {longest}: "
            f"give --lengths up to {most - before}{advice}{', or leave out fwe' * bool(evaluation.beyond)}."
        )


def _stored_first(
    task: RulerTask, samples: Sequence[Sample], answers: Answers, ask: Ask
) -> Iterator[tuple[Prediction, bool]]:
    """Yields the answers to all samples, stored ones first, and whether each was generated now."""
    todo = [sample for sample in samples if not answers.known(sample.key)]
    asked = ask(task, todo)
    if todo:  # before the answers, so that none is stored without its baselines
        append_baselines(answers.folder, task, samples)
    for sample in samples:
        if old := answers.known(sample.key):
            yield old.restated(sample, task), False
    for prediction in asked:
        yield prediction, True


def answered(
    model: LanguageModel,
    tokenizer: Tokenizer,
    task: RulerTask,
    samples: Sequence[Sample],
    *,
    batching: Batching | None = None,
) -> Iterator[Prediction]:
    """Returns what yields the model's answers as they are done. Raises UserError at once for ids that it lacks.

    An answer ends as soon as no continuation can change its score. batching: None for the usual one.
    """
    check_ids(model, tokenizer, samples)
    return _generated(model, tokenizer, task, samples, batching)


def check_ids(model: LanguageModel, tokenizer: Tokenizer, samples: Sequence[Sample]) -> None:
    """Raises UserError for ids of the tokenizer that the model lacks."""
    highest = max((int(sample.ids.max()) for sample in samples), default=0)
    if highest >= model.vocabulary:
        raise UserError(
            f"The tokenizer {tokenizer.name} gives the id {highest}, and {model.name} has only {model.vocabulary}: "
            "name the model's own with --tokenizer."
        )


def _generated(
    model: LanguageModel, tokenizer: Tokenizer, task: RulerTask, todo: Sequence[Sample], batching: Batching | None
) -> Iterator[Prediction]:
    from levelfield.pretrained.decoding import Batching, Stop, any_of, ends_with, generate_iter

    looked_at: dict[int, int] = {}  # by sample, how many tokens of a thought that had no end in them
    closed: set[int] = set()

    def thinks(number: int, made: Sequence[int]) -> bool:
        if number not in closed:
            begin = max(0, looked_at.get(number, 0) - len(CLOSED))
            if CLOSED in tokenizer.decode(made[begin:]):
                closed.add(number)
            looked_at[number] = len(made)
        return number not in closed

    def done(number: int, made: Sequence[int]) -> bool:
        if not todo[number].thinking:
            return is_final(task, tokenizer.decode(made), todo[number].references)
        if thinks(number, made):  # what stands in a thought is no answer
            return False
        return is_final(task, tokenizer.decode(made).partition(CLOSED)[2], todo[number].references)

    stop: Stop = any_of(ends_with(model.eos_ids), done)
    prompts, budgets = [prompt_of(model, sample) for sample in todo], [s.answer_tokens + s.thinking for s in todo]
    for number, made in generate_iter(model, prompts, budgets, stop, batching or Batching()):
        sample = todo[number]
        ended = bool(made) and stop(number, made)
        broken = len(made) < budgets[number] and not ended
        text = tokenizer.decode([i for i in made if i not in model.eos_ids])
        found = Prediction.of(sample, task, text=text, made=len(made), status="diverged" if broken else "ok")
        yield _parted(found, sample, tokenizer, "stop" if ended else "length") if sample.thinking else found


def _parted(found: Prediction, sample: Sample, tokenizer: Tokenizer, finish: str) -> Prediction:
    """Returns an answer without the thought before it, which is stored beside it and counted."""
    reasoning, text = parted(found.text)
    counted = {"thought": len(tokenizer.encode(reasoning))} if reasoning else {}
    opened = sample.think_open or unopened(found.text)
    said = {"reasoning": reasoning, "finish": finish, "counted": counted}
    return replace(found, text=text, **said, think_open=opened, think_closed=CLOSED in found.text)


def prompt_of(model: LanguageModel, sample: Sample) -> np.ndarray:
    """Puts the model's BOS ids before those of the sample: (n,) int32. BOS ids in the template are not repeated."""
    bos, ids = np.array(model.bos_ids, np.int32), sample.ids
    repeated = next((n for n in range(len(bos), 0, -1) if np.array_equal(bos[-n:], ids[:n])), 0)
    return np.concatenate([bos[: len(bos) - repeated], ids])
