"""Questions of official files: asked as they are, scored by the official rules, and refused in one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import official_files
import pytest
from toy_reader import run
from toy_ruler import Blocks, Pairs

from levelfield.longcontext.predictions import settings_of, task_of
from levelfield.report import longcontext
from levelfield.ruler import OFFICIAL, Bytes, PromptOptions, Sample, Score, Sources, baselines, generate, named, score
from levelfield.ruler.official.longbench import NEEDED, LongBench
from levelfield.ruler.official.longmemeval import answers
from levelfield.ruler.official.whole_questions import OfficialSet
from levelfield.spec import Row, UserError


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """All three official files, tiny."""
    (tmp_path / "data.json").write_text(json.dumps(official_files.longbench_records()))
    (tmp_path / "chats.json").write_text(json.dumps(official_files.longmemeval_records()))
    helmet = official_files.helmet(tmp_path / "HELMET")
    return Sources(longbench=f"{tmp_path}/data.json", longmemeval=f"{tmp_path}/chats.json", helmet=str(helmet))


def samples(name: str, sources: Sources, length: int = 8192, count: int = 3, flavour: str = "sound") -> list[Sample]:
    return list(generate(named(name), length, Bytes(), PromptOptions(flavour, sources=sources), count=count))


def answered(sample: Sample) -> str:
    """The right answer, as the prompt asks for it."""
    if sample.task == "longbench":
        return f" ({sample.references[0]})."
    return " " + (", ".join(sample.references) if sample.task == "helmet_niah_mv" else sample.references[0])


@pytest.mark.parametrize("name", [task.name for task in OFFICIAL])
def test_right_answers_have_full_scores_and_ids_are_those_of_the_text(name: str, sources: Sources) -> None:
    for sample in samples(name, sources):
        assert sample.ids.tolist() == Bytes().encode(sample.text)
        assert score(name, answered(sample), sample.references) == Score(1.0, 1.0)
        assert score(name, " I do not know", sample.references) == Score(0.0, 0.0)
    assert task_of(settings_of(named(name))) == named(name)


def test_longbench_reads_json_lines_and_parquet_alike(tmp_path: Path, sources: Sources) -> None:
    records = official_files.longbench_records()
    official_files._lines(tmp_path / "lines.jsonl", records)
    duckdb.execute(
        f"COPY (SELECT * FROM read_json('{tmp_path}/data.json')) TO '{tmp_path}/data.parquet' (FORMAT parquet)"
    )
    texts = [[s.text for s in samples("longbench", sources, flavour="official")]]
    for name in ("lines.jsonl", "data.parquet"):
        other = replace(sources, longbench=str(tmp_path / name))
        texts.append([s.text for s in samples("longbench", other, flavour="official")])
    assert texts[0] == texts[1] == texts[2]
    first = texts[0][1]
    assert first.endswith('"The correct answer is (insert answer here)".\nThe correct answer is')
    assert "(A) 0\n(B) 1\n(C) 2\n(D) 3\n" in first and "<text>\nIt rained in {the} valley. " in first


@pytest.mark.parametrize(
    ("said", "match", "strict"),
    [
        (" (B)", 1, 1),
        (" B, since", 1, 1),
        (" **(B)**", 1, 1),
        ("\n\nThe correct answer is (B).", 1, 1),
        (" C. The correct answer is (B)", 1, 1),  # the official rule prefers brackets
        (" surely the second, B.", 1, 0),
        (" either A or B", 0, 0),
        (" (C), not B", 0, 0),
        (" 1", 0, 0),
        ("", 0, 0),
    ],
)
def test_longbenchs_own_rule_and_ours(said: str, match: int, strict: int) -> None:
    assert tuple(vars(score("longbench", said, ("B",))).values()) == (match, strict)


def test_generation_ends_where_no_continuation_changes_the_choice() -> None:
    task = LongBench()
    assert task.is_final(" (B)") and not task.is_final(" B") and not task.is_final(" it is (B)")


def test_a_question_is_asked_where_it_fits_and_is_the_same_at_every_length(sources: Sources) -> None:
    """Each in Pairs, whose pieces merge, and in Blocks, which cannot be cut: none is filled, and none is cut."""
    for tokenizer in (Pairs(), Blocks()):
        found = {}
        for length in (450, 900, 4000):
            skipped: list[tuple[int, str]] = []
            made = generate(
                named("longbench"),
                length,
                tokenizer,
                PromptOptions(sources=sources),
                count=7,
                on_skipped=lambda index, why, to=skipped: to.append((index, why)),
            )
            found[length] = {s.index: s for s in made}
            assert {i for i, _ in skipped} | found[length].keys() == set(range(7))
            assert (6, "There are 6 questions: ask for no more samples than that.") in skipped
            assert all(len(s.ids) + s.answer_tokens <= length for s in found[length].values())
            assert all(s.ids.tolist() == tokenizer.encode(s.text) for s in found[length].values())
        sizes = [len(each) for each in found.values()]
        assert 0 < sizes[0] < sizes[-1] == 6
        for index, sample in found[450].items():
            assert sample.key == found[4000][index].key and sample.slices == found[4000][index].slices


def test_longmemeval_leaves_out_what_needs_a_judge_and_hides_the_marks(sources: Sources) -> None:
    found = samples("longmemeval", sources, flavour="official")
    assert [dict(s.slices)["id"] for s in found] == ["a", "d", "e"]
    text = found[0].text
    assert text.index("I live in Nantes.") < text.index("I moved to Lyon."), "chats stand by their dates"
    assert "has_answer" not in text and text.endswith(
        "Current Date: 2023/06/01 (Thu) 10:00\nQuestion: Question a?\nAnswer:"
    )
    assert re.search(r"### Session 1:\nSession Date: 2023/05/20 \(Sat\) 02:21\nSession Content:\n\n\[\{", text)
    assert found[1].references == ("10 days", "11 days") and found[2].references == ("3",)
    assert answers("The blue one. It is also acceptable") == ("The blue one. It is also acceptable",)


@pytest.mark.parametrize(
    ("said", "reference", "match", "strict"),
    [
        (" You moved to Lyon in May.", "Lyon", 1.0, 1.0),
        (" lyon", "Lyon", 1.0, 1.0),
        (" Lyons", "Lyon", 0.0, 0.0),
        (" the old town", "The old harbour town", 4 / 5, 0.0),  # two words of three, and two of two; articles aside
        (" the old town\n\nharbour", "The old harbour town", 4 / 5, 0.0),
    ],
)
def test_longmemeval_is_scored_by_words(said: str, reference: str, match: float, strict: float) -> None:
    found = score("longmemeval", said, (reference,))
    assert (found.match, found.strict) == (pytest.approx(match), strict)


def test_helmet_has_a_file_for_each_length_and_its_examples(sources: Sources) -> None:
    (first, *_) = samples("helmet_json_kv", sources, 16384)
    order = np.random.default_rng(42).permutation(5)
    record = official_files._values(int(order[0]))
    assert first.references == (record["answer"],) and first.text.count("Corresponding value: ") == 2
    assert first.text.endswith(f"\n\nKey: {record['question']}\nCorresponding value:")
    with pytest.raises(UserError, match="no files for 4096 tokens: give --lengths of 8192, 16384"):
        samples("helmet_json_kv", sources, 4096)
    with pytest.raises(UserError, match="no file ruler/niah_multikey_2/validation_16384"):
        samples("helmet_niah_mk_2", sources, 16384)
    several = samples("helmet_niah_mv", sources)[0]
    assert len(several.references) == 4
    assert score("helmet_niah_mv", several.references[0] + ", 5", several.references).match == 0.25


def test_solved_examples_are_of_other_questions_and_popular_pages_are_left_out(sources: Sources) -> None:
    for sample in samples("helmet_popqa", sources, count=4):
        asked = re.findall(r"Question: (.*)\n", sample.text)
        assert len(asked) == len(set(asked)) == 3
        assert not any("Town3'" in each or "Town4'" in each for each in asked), "s_pop of 1,000 and more"
    assert {dict(s.slices)["id"] for s in samples("helmet_popqa", sources, count=4)} == {"i0", "i1", "i2", "i5"}


def test_guessing_is_a_quarter_of_four_choices_and_next_to_nothing_elsewhere(sources: Sources) -> None:
    given = samples("longbench", sources, count=6) * 100
    moved = [replace(sample, index=n) for n, sample in enumerate(given)]
    assert abs(baselines(named("longbench"), moved)["guess"] - 25) < 8
    assert baselines(named("helmet_json_kv"), samples("helmet_json_kv", sources))["copy_last"] == 0


def broken(path: Path) -> list[tuple[str, str, str]]:
    records = official_files.longbench_records(1)
    lacking = [{name: value for name, value in records[0].items() if name != "choice_C"}]
    contents = {
        "lacking.json": json.dumps(lacking),
        "none.json": "[]",
        "text.json": "no JSON",
        "object.json": '{\n "data": []\n}',
        "numbers.json": "[1]",
        "answer.json": json.dumps([{**records[0], "answer": "E"}]),
        "bad.parquet": "PAR1",
        "judged.json": json.dumps(official_files.longmemeval_records()[1:3]),
    }
    for name, content in contents.items():
        (path / name).write_text(content)
    return [
        ("longbench", "lacking.json", "lacks choice_C in record 0: give data.json of LongBench v2"),
        ("longbench", "none.json", "has no records"),
        ("longbench", "text.json", "is not JSON"),
        ("longbench", "object.json", "is not JSON"),
        ("longbench", "numbers.json", "lacks _id"),
        ("longbench", "answer.json", "has the answer 'E'"),
        ("longbench", "bad.parquet", "is no Parquet file, or a damaged one"),
        ("longbench", "absent.parquet", "does not exist"),
        ("longbench", "absent.json", "does not exist"),
        ("longbench", ".", "is a folder"),
        ("longmemeval", "judged.json", "no question that can be scored without a judge"),
        ("longmemeval", "answer.json", "lacks question_id"),
    ]


def test_other_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    for name, file, said in broken(tmp_path):
        with pytest.raises(UserError, match=re.escape(said)):
            next(generate(named(name), 4096, Bytes(), PromptOptions(sources=Sources(**{name: str(tmp_path / file)}))))
    with pytest.raises(UserError, match=r"needs its official file \(data.json of LongBench v2\): add --longbench FILE"):
        next(generate(named("longbench"), 4096, Bytes()))
    assert set(NEEDED) <= official_files.longbench_records(1)[0].keys()


def test_records_with_other_content_are_refused_before_a_question_is_asked(tmp_path: Path, sources: Sources) -> None:
    def refused(name: str, said: str) -> None:
        task = named(name)
        assert isinstance(task, OfficialSet)
        with pytest.raises(UserError, match=re.escape(said)):
            task.check(sources, [8192])

    def rewrite(file: str, **change: object) -> None:
        path = tmp_path / "HELMET" / "data" / "kilt" / f"{file}.jsonl"
        official_files._lines(path, [official_files._passages(n) | change for n in range(6)])

    rewrite("popqa_test_1000_k50_dep6", s_pop=0)
    refused("helmet_popqa", "has no question for helmet_popqa: give the folder that HELMET's data.tar.gz unpacks to")
    rewrite("nq-train-multikilt_1000_k3_dep6", answers=[])
    refused("helmet_nq", "A record of helmet_nq has no answer")
    rewrite("triviaqa-dev-multikilt_1000_k50_dep6", ctxs=[{"text": "It has no title."}])
    refused("helmet_triviaqa", "A record of helmet_triviaqa has another layout (KeyError('title'))")
    chats = official_files.longmemeval_records()
    chats[3]["haystack_dates"] = chats[3]["haystack_dates"][:1]
    (tmp_path / "chats.json").write_text(json.dumps(chats))
    refused("longmemeval", "has not as many dates as sessions in d: give longmemeval_s_cleaned.json")


def test_the_command_asks_them_and_reports_by_kind(
    tmp_path: Path, sources: Sources, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: Callable[[str], str] = lambda prompt: " (B)."  # noqa: E731
    words = ("--tasks", "longbench", "--lengths", "4000", "--count", "6")
    with pytest.raises(SystemExit):
        run(monkeypatch, tmp_path, *words)
    assert "longbench needs its official file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(monkeypatch, tmp_path, *words, "--longbench", str(sources.longmemeval))
    assert "lacks _id" in capsys.readouterr().err
    run(monkeypatch, tmp_path, *words, "--longbench", str(sources.longbench), says=said)
    rows = [json.loads(line) for line in (tmp_path / "runs/ruler/model/rows.jsonl").read_text().splitlines()]
    found = {row["at"]: (row["value"], row["n"]) for row in rows if row["metric"] == "accuracy"}
    assert found["length=4000"] == (pytest.approx(100 * 2 / 6), 6)
    assert found["length=4000,difficulty=easy"] == (pytest.approx(100 / 3), 3)
    assert found["length=4000,domain=Long In-context Learning and {more}"] == (0.0, 3)
    table = longcontext.sliced([Row(**row) for row in rows])
    assert table and ("longbench", "difficulty: hard", "33.3 (n=3)") in table.rows
    assert "difficulty: hard" in (tmp_path / "report/ruler-model/report.html").read_text()
