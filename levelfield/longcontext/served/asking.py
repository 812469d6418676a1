"""Asks a server the questions of evaluations that a folder has no answers to, several at a time.

    served = Served(client, "NAME", Way("text"), tokenizer)
    evaluate(served, [served.put(Evaluation(count=100))], folder, at_once=8)      # continues after a kill

Only the main thread writes. Each answer is stored as it arrives, under a hash of what was asked, so that nothing stored
is asked again; a process that is killed, or finds the disk full, loses at most the questions that were on their way. A
question that the server refuses while it answers others is left out; after three that are too long for its context, and
no answer, the rest of their task and length is left out unasked. Questions of one task and
length go out in the order of their prompts, since servers that cache prefixes read a common beginning once. While they
are answered, another thread generates those of the next task or length.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from levelfield.files import write_json
from levelfield.longcontext.answers import Answers, append_lines, baseline_lines, leave_out, left_out
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.model_record import ASKED, INEXACT, ways
from levelfield.longcontext.predictions import AGAIN, TOO_LONG, WITHHELD, LeftOut, OnPrediction, Prediction
from levelfield.longcontext.served.client import Client, Refusal, Unanswered, Unfinished
from levelfield.longcontext.served.crew import Ahead, Crew
from levelfield.longcontext.served.lengths import is_exact
from levelfield.longcontext.served.replies import Reply, opens_thought
from levelfield.longcontext.served.way import PLACEHOLDER, Way, Wrapping
from levelfield.longcontext.served.wrappings import wrapping_for
from levelfield.ruler import RulerTask, Sample
from levelfield.spec import UserError
from levelfield.tokenizer import Tokenizer

MOST_FAILURES = 3  # questions in a row without an answer, each after all its tries, after which nothing more is asked
ROOM, ROOM_OF_TOKEN = 1 << 13, 16  # bytes of a stored answer at most, without what is written and for a token of it
STORED = "What it answered is stored"
AGAIN_OR_REPORT = "run the same command again to continue, or with --rescore for a report of what is stored."
SHORT = "Which number comes after 1, 2, 3?\nThe next number is"  # what nothing but a way of asking can be refused for


class ServedQuestion(NamedTuple):
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

    @property
    def template_unknown(self) -> bool:
        """Whether only the server knows the template of a chat, so that nothing here counts its tokens."""
        return self.way.chat and getattr(self.tokenizer, "chat_template", None) is None

    @property
    def beside(self) -> int:
        """The tokens that the server reads beside those of a length, as far as they are known: ids that it puts before
        every prompt, and a system prompt in a template that only it knows."""
        system = self.tokenizer.encode(self.way.system) if self.template_unknown else ()
        return len(getattr(self.tokenizer, "bos_ids", ())) + len(system)

    def sentence(self, template: str) -> str:
        """Says how questions were put, and whether lengths are approximate."""
        said = self.way.sentence(self.wrapping(template).name)
        return said if is_exact(self.tokenizer) else said + INEXACT

    def ask(self, question: ServedQuestion) -> Reply:
        """Asks one question. Raises Unanswered and UserError."""
        bos_ids = tuple(getattr(self.tokenizer, "bos_ids", ()))
        body = self.way.body(self.model, question.sample, question.wrapping, bos_ids)
        question.sample.forget_text()
        return self.way.continued(body, self.client.answer(self.way.endpoint, body))

    def ask_shortly(self, question: ServedQuestion) -> Reply:
        """Asks what fits into a line, in the same way. Raises Unanswered and UserError."""
        ids = np.array(self.tokenizer.encode(SHORT), np.int32)
        short = replace(question.sample, parts=(SHORT,), ids=ids)
        return self.ask(question._replace(sample=short, wrapping=Wrapping("", *PLACEHOLDER)))

    def prediction(self, question: ServedQuestion, reply: Reply) -> Prediction:
        """Makes the stored answer. The server's counts stand beside our own."""
        made = reply.made if reply.made is not None else len(self.tokenizer.encode(reply.reasoning + reply.text))
        found = Prediction.of(question.sample, question.task, text=reply.text, made=made, status="ok")
        counts = {"prompt": reply.prompt, "made": reply.made, "thought": self._thought(reply)}
        return replace(
            found,
            key=question.key,
            reasoning=reply.reasoning,
            finish=reply.finish,
            think_open=reply.unopened or opens_thought(question.wrapping.after),
            think_closed=reply.closed,
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

    def __init__(
        self, served: Served, evaluations: Sequence[Evaluation], folder: Path, on_prediction: OnPrediction
    ) -> None:
        self.served, self.evaluations = served, evaluations
        self.answers, self.on_prediction = Answers(folder), on_prediction
        self.left: list[LeftOut] = []
        self.met: list[tuple[str, LeftOut]] = []  # by key, what is left of each question if the call ends before
        self.noted: set[tuple[object, ...]] = set()  # cells whose questions without an answer are stored
        self.withheld = 0  # answers that are stored and count as none
        self.on_their_way: dict[str, list[ServedQuestion]] = {}  # by key, questions of other lengths with this prompt
        self.failures = 0
        self.refusals: list[Refusal] = []  # of single questions
        self.too_long: dict[tuple[str, int], list[Refusal]] = {}  # by task and length without an answer
        self.answered = False  # any question, now or before
        self.works = False  # whether the server has answered a question since it last refused one
        self.begun = False  # whether any was answered in this call
        self.error: UserError | OSError | None = None

    def questions(self) -> Iterator[ServedQuestion | None]:
        """Yields what is to be asked, None while it is being made, and reports what is stored already. Ends early after
        an error, which is noted, so that the answers that are on their way are stored all the same."""
        try:
            with Ahead(self._groups()) as groups:
                for group in groups:
                    if self.error:
                        return
                    if group is None:
                        yield None
                        continue
                    asked, baselines = group
                    append_lines(self.answers.folder, baselines)  # before the answers, so that none is without them
                    yield from self._of_group(asked)
        except (UserError, OSError) as error:
            self.error = self.error or error

    def _groups(self) -> Iterator[tuple[list[ServedQuestion], list[str]]]:
        """Yields the questions of each task and length in the order of their prompts, and their baselines."""
        for each in self.evaluations:
            wrapping = Wrapping(each.template, *(each.around or ("", "")))
            for task, _, samples in each.groups(self.served.tokenizer, self.left.append):
                asked = [ServedQuestion(s, task, self.served.way.key(s, each.template), wrapping) for s in samples]
                new = any(not self.answers.known(q.key) for q in asked)
                baselines = baseline_lines(task, samples) if new else []
                yield sorted(asked, key=lambda q: q.sample.ids.tobytes()), baselines

    def _of_group(self, asked: Sequence[ServedQuestion]) -> Iterator[ServedQuestion]:
        """Yields what is to be asked. A set that others made has the same prompts at all lengths that they fit."""
        self.met += [(q.key, _without_answer(q.sample, "the command ended before")) for q in asked]
        todo = []
        for q in asked:
            if old := self.answers.known(q.key):
                self.take(old.restated(q.sample, q.task), new=False)
            else:
                todo.append(q)
        for q in todo:
            if self.error:
                return
            if old := self.answers.known(q.key):  # by now
                self.take(old.restated(q.sample, q.task), new=False)
            elif q.key in self.on_their_way:
                self.on_their_way[q.key].append(q)
            else:
                self.on_their_way[q.key] = []
                self._check_room(q)
                yield q

    def _check_room(self, question: ServedQuestion) -> None:
        """Raises OSError where the disk may have no room for the answers to what is on its way."""
        one = ROOM + ROOM_OF_TOKEN * self.served.way.most(question.sample.answer_tokens)
        if shutil.disk_usage(self.answers.folder).free < one * len(self.on_their_way):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.answers.path))

    def ask(self, question: ServedQuestion) -> Reply:
        """Asks one question, in any thread, unless there was an error.

        Raises Unanswered; Refusal for a question that the server refuses while it answers others; and UserError where
        it refuses whatever is asked.
        """
        if self.error:
            raise Unanswered("nothing more was asked")
        if len(refused := self.too_long.get(_cell(question), [])) >= MOST_FAILURES:
            raise Refusal(str(refused[0]), refused[0].why)
        try:
            return self.served.ask(question)
        except Refusal as refusal:
            if not self.works and not (refusal.too_long and self.answered):
                try:
                    self.served.ask_shortly(question)
                except UserError:
                    raise UserError(str(refusal)) from refusal
            raise

    def take(self, found: Prediction, new: bool) -> None:
        """Stores an answer and reports it. Where there is no room for it, those that follow are stored if they can."""
        try:
            if new and found.cell not in self.noted:  # before its first answer, so that scores say so even after a kill
                self.leave_out()
                self.noted.add(found.cell)
            self.answers.append(found)
        except OSError as error:
            self.error = self.error or error
            return
        self.withheld += found.withheld
        self.answered = self.answered or not found.withheld
        self.on_prediction(found, new)

    def receive(self, question: ServedQuestion, result: Reply | BaseException) -> None:
        """Stores a reply, or notes why there is none. After too many failures nothing more is asked."""
        others = self.on_their_way.pop(question.key, [])
        samples = [q.sample for q in (question, *others)]
        if isinstance(result, Reply):
            self.failures, self.works, self.begun = 0, True, True
            self.too_long.pop(_cell(question), None)
            found = self.served.prediction(question, result)
            self.take(found, new=True)
            for other in others:
                self.take(found.restated(other.sample, other.task), new=False)
        elif isinstance(result, Refusal):
            self.works = False
            self.refusals.append(result)
            why = f"The server refuses this question for good, and answers others ({result.why})."
            if result.too_long:
                why = f"{TOO_LONG} ({result.why})."
                self.too_long.setdefault(_cell(question), []).append(result)
            self.left += [LeftOut.of(sample, why) for sample in samples]
            if len(self.refusals) >= MOST_FAILURES and not self.answered:
                self.error = self.error or self.refusals[0]
        elif isinstance(result, UserError):
            self.error = self.error or self._after(result)
        elif isinstance(result, Unanswered):
            self.failures += 1
            self.left += [_without_answer(sample, str(result)) for sample in samples]
            if self.failures >= MOST_FAILURES:
                url, again = self.served.client.address.url, "run the same command again to continue."
                again = AGAIN_OR_REPORT if self.answered else again
                said = f" any more ({result}). {STORED}: {again}" if self.begun else f" ({result}): {again}"
                self.error = self.error or Unfinished(f"{url} does not answer{said}")
        else:
            raise result

    def leave_out(self) -> None:
        """Stores which questions have no answer. Of tasks and lengths that this call did not come to, what an earlier
        one left out stays."""
        told = {one.place for one in self.left}
        met = {one.place for _, one in self.met} | told
        earlier = [old for old in left_out(self.answers.folder) if old.place not in met]
        unasked = [one for key, one in self.met if not self.answers.known(key) and one.place not in told]
        leave_out(self.answers.folder, self.evaluations, [*earlier, *self.left, *unasked])

    def _after(self, error: UserError) -> UserError:
        """Returns the error as one after which something is left to do, where this call had answers before it."""
        return Unfinished(f"{error} {STORED}.") if self.begun else error


def evaluate(
    served: Served,
    evaluations: Sequence[Evaluation],
    folder: Path,
    at_once: int = 8,
    on_prediction: OnPrediction = lambda prediction, new: None,
) -> list[LeftOut]:
    """Asks for the answers that `folder` does not have yet, and returns the samples without one.

    evaluations: as `Served.put` makes them. at_once: how many questions are on their way at most. Raises UserError
    where the server refuses all that is asked, Unfinished where it fails or refuses after it has begun to answer, and
    OSError where the disk is full; what was answered until then is stored, and which questions have no answer.
    """
    asking = _Asking(served, evaluations, folder, on_prediction)
    with Crew(at_once, asking.ask) as crew:
        try:
            for question, result in crew.over(asking.questions()):
                asking.receive(question, result)
        finally:
            for question, result in crew.finished():  # after Ctrl-C
                if isinstance(result, Reply):
                    asking.receive(question, result)
            asking.answers.sync()
            if asking.answered:
                asking.leave_out()
    if asking.error:
        raise asking.error
    if len(asking.left) + asking.withheld == sum(each.prompts for each in evaluations):
        late = next((one for one in asking.left if one.unanswered), None)
        kind, why = Unfinished if late else UserError, late or next(iter(asking.left), None)
        raise next(iter(asking.refusals), kind(f"No question has an answer. {why.why if why else WITHHELD}"))
    return asking.left


def _cell(question: ServedQuestion) -> tuple[str, int]:
    return question.sample.task, question.sample.length


def _without_answer(sample: Sample, why: str) -> LeftOut:
    return LeftOut.of(sample, f"The server did not answer ({why}): {AGAIN}")


def note_ways(folder: Path, sentences: Mapping[str, str]) -> None:
    """Records how the questions under each label were put."""
    known = ways(folder)
    if merged := {label: said for label, said in sentences.items() if known.get(label) != said}:
        write_json(folder / ASKED, {**known, **merged})
