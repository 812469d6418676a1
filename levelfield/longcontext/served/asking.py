"""Asks a server the questions of evaluations that a folder has no answers to, several at a time.

    served = Served(client, "NAME", Way("text"), tokenizer)
    evaluate(served, [served.put(Evaluation(count=100))], folder, at_once=8)      # continues after a kill

Only the main thread writes. Each answer is stored as it arrives, under a hash of what was asked, so that nothing stored
is asked again; a process that is killed loses at most the questions that were on their way. Questions of one task and
length go out in the order of their prompts, since servers that cache prefixes read a common beginning once. While they
are answered, another thread generates those of the next task or length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, final

from levelfield.files import write_json
from levelfield.longcontext.answers import Answers, append_lines, baseline_lines, leave_out
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.model_record import ASKED, INEXACT, ways
from levelfield.longcontext.predictions import LeftOut, OnPrediction, Prediction
from levelfield.longcontext.served.client import Client, Unanswered
from levelfield.longcontext.served.crew import Ahead, Crew
from levelfield.longcontext.served.lengths import is_exact
from levelfield.longcontext.served.replies import Reply
from levelfield.longcontext.served.way import Way, Wrapping
from levelfield.longcontext.served.wrappings import wrapping_for
from levelfield.ruler import RulerTask, Sample
from levelfield.spec import UserError
from levelfield.tokenizer import Tokenizer

MOST_FAILURES = 3  # questions in a row without an answer, each after all its tries, after which nothing more is asked


class Question(NamedTuple):
    """A sample, its task, and the hash under which its answer is stored."""

    sample: Sample
    task: RulerTask
    key: str
    wrapping: Wrapping


@final
@dataclass(frozen=True)
class Served:
    """A model behind a server, how it is asked, and what counts its tokens."""

    client: Client
    model: str
    way: Way
    tokenizer: Tokenizer

    def wrapping(self, template: str) -> Wrapping:
        """Returns the text around the task. Raises UserError for a template that this way cannot have."""
        return wrapping_for(self.way, template, self.tokenizer)

    def put(self, evaluation: Evaluation) -> Evaluation:
        """Returns the evaluation with the prompts and the label of this way of asking."""
        wrapping = self.wrapping(evaluation.template)
        return replace(evaluation, template=self.way.label(wrapping.name), around=wrapping.around)

    def sentence(self, template: str) -> str:
        """Says how questions were put, and whether lengths are approximate."""
        said = self.way.sentence(self.wrapping(template).name)
        return said if is_exact(self.tokenizer) else said + INEXACT

    def ask(self, question: Question) -> Reply:
        """Asks one question. Raises Unanswered and UserError."""
        bos_ids = tuple(getattr(self.tokenizer, "bos_ids", ()))
        body = self.way.body(self.model, question.sample, question.wrapping, bos_ids)
        question.sample.forget_text()
        return self.way.continued(body, self.client.answer(self.way.endpoint, body))

    def prediction(self, question: Question, reply: Reply) -> Prediction:
        """Makes the stored answer. The server's counts stand beside our own."""
        made = reply.made if reply.made is not None else len(self.tokenizer.encode(reply.reasoning + reply.text))
        found = Prediction.of(question.sample, question.task, text=reply.text, made=made, status="ok")
        counts = {"prompt": reply.prompt, "made": reply.made, "thought": self._thought(reply)}
        return replace(
            found,
            key=question.key,
            reasoning=reply.reasoning,
            finish=reply.finish,
            counted={name: count for name, count in counts.items() if count is not None},
        )

    def _thought(self, reply: Reply) -> int | None:
        """Counts the tokens of the reasoning, by the server or else by the tokenizer here; None without any."""
        if reply.thought is not None or not reply.reasoning:
            return reply.thought
        return len(self.tokenizer.encode(reply.reasoning))


@final
class _Asking:
    """One call of `evaluate`."""

    def __init__(self, served: Served, folder: Path, on_prediction: OnPrediction) -> None:
        self.served, self.answers, self.on_prediction = served, Answers(folder), on_prediction
        self.left: list[LeftOut] = []
        self.on_their_way: set[str] = set()
        self.failures = 0
        self.error: UserError | None = None

    def questions(self, evaluations: Sequence[Evaluation]) -> Iterator[Question]:
        """Yields what is to be asked, and reports what is stored already. Ends early after an error."""
        with Ahead(self._groups(evaluations)) as groups:
            for asked, baselines in groups:
                if self.error:
                    return
                append_lines(self.answers.folder, baselines)  # before the answers, so that none is without them
                yield from self._of_group(asked)

    def _groups(self, evaluations: Sequence[Evaluation]) -> Iterator[tuple[list[Question], list[str]]]:
        """Yields the questions of each task and length in the order of their prompts, and their baselines."""
        for each in evaluations:
            wrapping = Wrapping(each.template, *(each.around or ("", "")))
            for task, _, samples in each.groups(self.served.tokenizer, self.left.append):
                asked = [Question(s, task, self.served.way.key(s, each.template), wrapping) for s in samples]
                new = any(not self.answers.known(q.key) for q in asked)
                baselines = baseline_lines(task, samples) if new else []
                yield sorted(asked, key=lambda q: q.sample.ids.tobytes()), baselines

    def _of_group(self, asked: Sequence[Question]) -> Iterator[Question]:
        todo = [q for q in asked if not self.answers.known(q.key) and q.key not in self.on_their_way]
        for q in asked:
            if old := self.answers.known(q.key):
                self.take(_restated(q, old), new=False)
        for q in todo:
            if self.error:
                return
            self.on_their_way.add(q.key)
            yield q

    def ask(self, question: Question) -> Reply:
        """Asks one question, in any thread, unless there was an error. Raises Unanswered and UserError."""
        if self.error:
            raise Unanswered("nothing more was asked")
        return self.served.ask(question)

    def take(self, found: Prediction, new: bool) -> None:
        """Stores an answer and reports it."""
        self.answers.append(found)
        self.on_prediction(found, new)

    def receive(self, question: Question, result: Reply | BaseException) -> None:
        """Stores a reply, or notes why there is none. After too many failures nothing more is asked."""
        self.on_their_way.discard(question.key)
        if isinstance(result, Reply):
            self.failures = 0
            self.take(self.served.prediction(question, result), new=True)
        elif isinstance(result, UserError):
            self.error = self.error or result
        elif isinstance(result, Unanswered):
            self.failures += 1
            self.left.append(_without_answer(question.sample, str(result)))
            if self.failures >= MOST_FAILURES:
                url = self.served.client.address.url
                self.error = self.error or UserError(
                    f"{url} does not answer any more ({result}). What it answered is stored: run the same command "
                    "again to continue."
                )
        else:
            raise result


def evaluate(
    served: Served,
    evaluations: Sequence[Evaluation],
    folder: Path,
    at_once: int = 8,
    on_prediction: OnPrediction = lambda prediction, new: None,
) -> list[LeftOut]:
    """Asks for the answers that `folder` does not have yet, and returns the samples without one.

    evaluations: as `Served.put` makes them. at_once: how many questions are on their way at most. Raises UserError
    where the server refuses or has stopped answering; what was answered until then is stored.
    """
    asking = _Asking(served, folder, on_prediction)
    with Crew(at_once, asking.ask) as crew:
        try:
            for question, result in crew.over(asking.questions(evaluations)):
                asking.receive(question, result)
        finally:
            for question, result in crew.finished():  # after Ctrl-C
                if isinstance(result, Reply):
                    asking.receive(question, result)
            asking.answers.sync()
    if asking.error:
        raise asking.error
    if asking.left and len(asking.left) == sum(each.prompts for each in evaluations):
        raise UserError(f"No question has an answer. {asking.left[0].why}")
    leave_out(folder, evaluations, asking.left)
    return asking.left


def _restated(question: Question, old: Prediction) -> Prediction:
    """Makes the stored answer to the same prompt again, with what else is known of its sample today."""
    found = Prediction.of(question.sample, question.task, text=old.text, made=old.made, status=old.status)
    return replace(found, key=old.key, reasoning=old.reasoning, finish=old.finish, counted=old.counted)


def _without_answer(sample: Sample, why: str) -> LeftOut:
    return LeftOut.of(sample, f"The server did not answer ({why}): run the same command again to ask once more.")


def note_ways(folder: Path, sentences: Mapping[str, str]) -> None:
    """Records how the questions under each label were put."""
    known = ways(folder)
    if merged := {label: said for label, said in sentences.items() if known.get(label) != said}:
        write_json(folder / ASKED, {**known, **merged})
