"""What is kept of long texts: essays once for a tokenizer, no joined text that nobody needs, and the question."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_ruler import Counting, hotpot_file, squad_file

from levelfield.ruler import BEYOND, RULER, Bytes, Needle, PromptOptions, RulerTask, Sources, baselines, generate, named
from levelfield.ruler.sample import question_in


def test_essays_are_tokenised_once_for_all_tasks_and_lengths_of_a_tokenizer() -> None:
    tokenizer, other = Counting(), Counting()
    first = next(generate(Needle(), 6000, tokenizer)).key
    before = tokenizer.letters
    for task, length in ((named("niah_multikey_1"), 6000), (Needle(), 9000), (named("stories_1"), 6000)):
        next(generate(task, length, tokenizer))
    assert tokenizer.letters - before < before
    assert next(generate(Needle(), 6000, other)).key == first and other.letters > before / 2
    assert next(generate(Needle(), 6000, tokenizer)).key == first


@pytest.mark.parametrize("task", [*RULER, *BEYOND], ids=lambda task: task.name)
def test_questions_are_found_at_the_end_of_prompts(task: RulerTask, tmp_path: Path) -> None:
    sources = Sources(squad=squad_file(tmp_path), hotpot=hotpot_file(tmp_path))
    length = 3000 if task in RULER else 4000
    (sample,) = generate(task, length, Bytes(), PromptOptions(template="meta-chat", sources=sources), count=1)
    assert sample.question.startswith(("What is ", "What are ", "Question: ", "Operation: "))
    assert "\n" not in sample.question and len(sample.question) <= 300
    assert sample.question in " ".join(sample.text.split())[-600:]


def test_a_prompt_without_a_question_has_none_and_of_several_the_last_counts() -> None:
    assert question_in("What is it?") == ""
    assert question_in("a\nQuestion: b\nWhat is c?\n[/INST] It is") == "What is c? [/INST] It is"


def test_texts_are_freed_after_the_baselines_and_joined_again() -> None:
    samples = list(generate(Needle(), 3000, Bytes(), count=2))
    texts = [sample.text for sample in samples]
    assert baselines(Needle(), samples) == {"guess": 100.0, "copy_last": 100.0}
    assert all("text" not in vars(sample) for sample in samples)
    assert [sample.text for sample in samples] == texts
