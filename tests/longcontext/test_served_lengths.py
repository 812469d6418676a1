"""A set that others made has the same prompts at all lengths that they fit: asked once, and answered at each length."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from levelfield.longcontext.answers import predictions, with_left_out
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.served.asking import Served, evaluate
from levelfield.longcontext.served.client import Refusal
from levelfield.longcontext.served.replies import Reply
from levelfield.longcontext.served.way import Way
from levelfield.ruler import Sources, named
from levelfield.tokenizer import Bytes

COUNT, LENGTHS = 12, (4096, 8192, 16384)


class Server:
    """Answers late, so that the questions of the next length are made while those of the first are on their way."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses, self.asked = refuses, 0

    def answer(self, endpoint: str, body: dict[str, Any]) -> Reply:
        self.asked += 1
        time.sleep(0.05)
        if self.refuses and self.refuses in str(body):
            raise Refusal("The server refuses it.", "no")
        return Reply(" (A).", finish="stop", prompt=100, made=3)


def ask(server: Server, folder: Path) -> None:
    said = {"domain": "d", "difficulty": "easy", "length": "short", "answer": "A"}
    said |= {f"choice_{letter}": letter for letter in "ABCD"}
    records = [{"_id": str(n), "question": f"q{n}?", "context": f"t{n}"} | said for n in range(COUNT)]
    (source := folder / "data.json").write_text(json.dumps(records))
    served = Served(server, "m", Way("text"), Bytes())  # pyright: ignore[reportArgumentType]
    plan = Evaluation(tasks=(named("longbench"),), lengths=LENGTHS, count=COUNT, sources=Sources(longbench=str(source)))
    (folder / "m").mkdir(exist_ok=True)
    evaluate(served, [served.put(plan)], folder / "m", at_once=8)


def test_a_prompt_that_is_on_its_way_is_answered_at_all_its_lengths(tmp_path: Path) -> None:
    ask(server := Server(), tmp_path)
    found, left = with_left_out(tmp_path / "m")
    assert server.asked == COUNT and not left
    assert Counter(p.length for p in found) == dict.fromkeys(LENGTHS, COUNT)
    assert len({(p.length, p.index) for p in found}) == len(found)
    ask(again := Server(), tmp_path)
    assert again.asked == 0 and len(predictions(tmp_path / "m")) == len(found)


def test_a_prompt_that_is_refused_has_no_answer_at_any_of_its_lengths(tmp_path: Path) -> None:
    ask(Server("t3"), tmp_path)
    found, left = with_left_out(tmp_path / "m")
    assert Counter(p.length for p in found) == dict.fromkeys(LENGTHS, COUNT - 1)
    assert Counter(one.length for one in left) == dict.fromkeys(LENGTHS, 1)
