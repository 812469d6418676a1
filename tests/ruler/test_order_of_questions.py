"""In `sound` an index asks the same question at every length and with every tokenizer, wherever that question fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_ruler import Pairs, squad_file

from levelfield.ruler import Bytes, PromptOptions, Sources, Tokenizer, generate, named
from levelfield.ruler.builders.question_files import squad

LENGTHS = (580, 620, 660, 700, 760, 820)


def asked(path: str, length: int, tokenizer: Tokenizer) -> list[tuple[str, ...]]:
    """The references of all samples, by index."""
    options = PromptOptions(sources=Sources(squad=path), check="all")
    skipped: list[int] = []
    made = generate(
        named("qa_1"), length, tokenizer, options, count=60, on_skipped=lambda index, why: skipped.append(index)
    )
    found = list(made)
    assert [sample.index for sample in found] == list(range(len(found))), "no index is left out before the last"
    assert skipped == list(range(len(found), 60))
    return [sample.references for sample in found]


@pytest.mark.filterwarnings("ignore:.*only a part of the official file")
def test_a_question_keeps_its_index_wherever_it_fits(tmp_path: Path) -> None:
    """As many are asked as fit, each once, though paragraphs of a few lengths only fit at the shorter lengths."""
    path = squad_file(tmp_path)
    whole = asked(path, 6000, Bytes())
    assert sorted(whole) == sorted(question.answers for question in squad(path).questions)
    counts = []
    for tokenizer in (Bytes(), Pairs()):
        for length in LENGTHS:
            found = asked(path, length, tokenizer)
            assert len(set(found)) == len(found)
            kept = [whole[i] == one for i, one in enumerate(found)]
            assert kept == [whole[i] in found for i in range(len(found))]
            counts.append(len(found))
    assert len(set(counts)) > 3 and max(counts) == len(whole) > min(counts) > 0


@pytest.mark.filterwarnings("ignore:.*only a part of the official file")
def test_a_question_more_moves_none_of_the_others(tmp_path: Path) -> None:
    """One paragraph is made too long to be asked about: only its own place has another question then."""
    path = squad_file(tmp_path)
    before = asked(path, 6000, Bytes())
    content = json.loads(Path(path).read_text())
    paragraph = content["data"][2]["paragraphs"][4]
    paragraph["context"] += " The market is held on Mondays." * 300
    (answer,) = paragraph["qas"][0]["answers"]
    (tmp_path / "longer.json").write_text(json.dumps(content))
    after = asked(str(tmp_path / "longer.json"), 6000, Bytes())
    assert len(after) == len(before) - 1 and (answer["text"],) not in after
    moved = [i for i, one in enumerate(after) if one != before[i]]
    assert moved == [i for i, one in enumerate(before[:-1]) if one == (answer["text"],)]
