"""What harnesses ask of a language model: scores against sums over a table of pairs, and generated text."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from levelfield.cli import lm_eval_model
from levelfield.cli.lm_eval_model import asked_of, register, rolled, scored
from levelfield.cli.ruler_command import Loaded
from levelfield.pretrained import LanguageModel
from levelfield.pretrained.likelihood import GreedyRequest, continued, encoded_pair, likelihood
from levelfield.ruler import Bytes
from levelfield.spec import UserError

PAIRS = torch.randn(256, 256, generator=torch.Generator().manual_seed(0)) * 3
PAIRS[:, 128:] -= 30  # only letters and figures are likely
PAIRS[:, :32] -= 30
LOGS = PAIRS.double().log_softmax(-1)


class OfPairs(LanguageModel):
    """Predicts each byte from the one before it by a table."""

    name, vocabulary, device = "pairs", 256, torch.device("cpu")
    max_length = None

    def __init__(self, most: int | None = None, bos: tuple[int, ...] = ()) -> None:
        self.max_length, self.longest, self.bos = most, 0, bos  # type: ignore[misc]

    @property
    def bos_ids(self) -> tuple[int, ...]:
        return self.bos

    def step(self, ids: Tensor, state: Any, last: bool = True) -> tuple[Tensor, Any]:
        before = 0 if state is None else state[0]
        self.longest = max(self.longest, before + ids.shape[1])
        logits = PAIRS[ids]
        return (logits[:, -1] if last else logits), (before + ids.shape[1], len(ids))

    def rows(self, state: Any, index: Tensor) -> Any:
        return state[0], len(index)

    def join(self, states: Sequence[Any]) -> Any:
        return states[0][0], sum(rows for _, rows in states)


def naive(first: int, text: bytes) -> float:
    """The log probability of bytes after another one, pair by pair."""
    return sum(float(LOGS[a, b]) for a, b in zip([first, *text], text))


def greedy(first: int, count: int) -> bytes:
    made = [first]
    for _ in range(count):
        made.append(int(LOGS[made[-1]].argmax()))
    return bytes(made[1:])


def loaded(most: int | None = None, bos: tuple[int, ...] = ()) -> Loaded:
    return Loaded(OfPairs(most, bos), Bytes(), "mark")


@pytest.mark.parametrize("most", [None, 9])
def test_a_continuation_scores_as_the_sum_of_its_pairs(most: int | None) -> None:
    one = loaded(most)
    total, is_greedy = scored(one, "The sky is", " blue")
    assert total == pytest.approx(naive(ord("s"), b" blue"))
    assert not is_greedy
    assert scored(one, "", "blue")[0] == pytest.approx(naive(ord("\n"), b"blue"))
    assert scored(one, "The sky ", "blue")[0] == pytest.approx(naive(ord("y"), b" blue"))  # as lm_eval parts them
    assert isinstance(one.model, OfPairs) and one.model.longest <= (most or 99)
    best = greedy(ord("s"), 3)
    assert likelihood(one.model, b"is", best).greedy
    assert not likelihood(one.model, b"is", best[:2] + bytes([best[2] ^ 1])).greedy


@pytest.mark.parametrize("most", [None, 1, 4, 100])
def test_a_whole_text_scores_the_same_however_it_is_cut(most: int | None) -> None:
    """The table sees one byte back, so no cut changes the sum; a BOS takes the place of the line end."""
    text = b"A text of twenty-six bytes"
    assert rolled(loaded(most), text.decode()) == pytest.approx(naive(ord("\n"), text))
    assert rolled(loaded(most, bos=(7,)), text.decode()) == pytest.approx(naive(7, text))
    assert rolled(loaded(most), "") == 0


def test_what_cannot_be_scored_is_refused() -> None:
    assert likelihood(OfPairs(), b"a", b"") == (0, True)
    with pytest.raises(UserError, match="at least one token before it"):
        likelihood(OfPairs(), b"", b"a")
    with pytest.raises(UserError, match="takes 2 tokens"):
        likelihood(OfPairs(2), b"a", b"bcd")
    with pytest.raises(UserError, match="cannot answer with 5"):
        continued(OfPairs(4), Bytes(), [GreedyRequest("abc", most=5)])


def test_pairs_are_encoded_as_one_text() -> None:
    assert encoded_pair(Bytes(), "ab ", "c") == ([97, 98], [32, 99])
    assert encoded_pair(Bytes(), " ", "c") == ([], [32, 99])


def test_generated_text_ends_before_what_it_was_to_end_at() -> None:
    made = greedy(ord("x"), 12)
    whole = Bytes().decode(list(made))
    end = whole[5]
    texts = continued(
        OfPairs(40),
        Bytes(),
        [GreedyRequest("ax", most=12), GreedyRequest("bx", (end, "\0\0"), 12), GreedyRequest("y" * 90 + "x", most=12)],
    )
    assert texts == [whole, whole[: whole.index(end)], whole]


def test_requests_are_read_and_sampling_is_refused() -> None:
    assert asked_of("a", {"until": "\n", "do_sample": False, "temperature": 0.0}) == GreedyRequest("a", ("\n",), 256)
    assert asked_of("a", {"until": ["x", ""], "max_gen_toks": 9, "do_sample": True, "temperature": 0}) == GreedyRequest(
        "a", ("x",), 9
    )
    with pytest.raises(UserError, match="greedily"):
        asked_of("a", {"do_sample": True, "temperature": 0.7})


LM_EVAL = bool(importlib.util.find_spec("lm_eval"))


@pytest.mark.skipif(LM_EVAL, reason="lm-evaluation-harness is installed, and nothing is missing")
def test_without_lm_eval_the_remedy_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"levelfield\[harness\]"):
        register()
    with pytest.raises(SystemExit, match="2"):
        lm_eval_model.main()
    assert "pip install 'levelfield[harness]'" in capsys.readouterr().err


@pytest.mark.peers
@pytest.mark.skipif(not LM_EVAL, reason="lm-evaluation-harness is not installed: pip install lm_eval")
@pytest.mark.timeout(300)
def test_lm_eval_asks_the_model_by_its_name(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices and perplexity of a task of lm_eval's own form are those of the table of pairs."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(lm_eval_model, "load", lambda choice, runs: loaded())
    (tmp_path / "docs.jsonl").write_text('{"q": "The sky is", "c": ["blue", "made of tin"], "a": 0}\n')
    (tmp_path / "pairs.yaml").write_text(
        f"task: pairs\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {tmp_path}/docs.jsonl\n"
        'output_type: multiple_choice\ntest_split: test\ndoc_to_text: "{{q}}"\ndoc_to_choice: "{{c}}"\n'
        "doc_to_target: a\nmetric_list:\n  - metric: acc\n"
    )
    register()
    found = simple_evaluate(
        model="levelfield",
        model_args="name=some-run",
        tasks=["pairs"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
    )
    assert found is not None
    (sample,) = found["samples"]["pairs"]
    logs = [naive(ord("s"), b" " + text) for text in (b"blue", b"made of tin")]
    assert [float(each[0]) for each in sample["filtered_resps"]] == pytest.approx(logs)
    assert found["results"]["pairs"]["acc,none"] == float(logs[0] > logs[1])
