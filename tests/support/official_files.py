"""Writes tiny files in the layouts of LongBench v2, LongMemEval and HELMET, for tests of their readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

FACT = "The mill of Town{n}\u2028has\u0085{n} wheels. "
"""With two characters that end no line of JSON, though `str.splitlines` takes them for ends."""


def longbench_records(count: int = 6) -> list[dict[str, Any]]:
    """Questions on texts of growing length; the right answer is the number of the town."""
    return [
        {
            "_id": f"q{n}",
            "domain": "Single-Document QA" if n % 2 else "Long In-context Learning, and {more}",
            "sub_domain": "Academic",
            "difficulty": "easy" if n < 3 else "hard",
            "length": "short",
            "question": f"How many wheels has the mill of Town{n}?",
            **{f"choice_{letter}": str(n + shift) for shift, letter in enumerate("ABCD", -(n % 4))},
            "answer": "ABCD"[n % 4],
            "context": "It rained in {the} valley. " * 10 * n + FACT.format(n=n),
        }
        for n in range(count)
    ]


def longmemeval_records() -> list[dict[str, Any]]:
    """Five questions, of which three have an answer that words can tell."""
    chats = [
        ("2023/05/30 (Tue) 21:40", [{"role": "user", "content": "I moved to Lyon.", "has_answer": True}]),
        ("2023/05/20 (Sat) 02:21", [{"role": "user", "content": "I live in Nantes."}]),
    ]
    kinds = {
        "a": ("knowledge-update", "Lyon"),
        "b_abs": ("multi-session", "You did not mention this."),
        "c": ("single-session-preference", "The user would prefer sunny places."),
        "d": ("temporal-reasoning", "10 days. 11 days (including the last day) is also acceptable."),
        "e": ("multi-session", 3),
    }
    return [
        {
            "question_id": name,
            "question_type": kind,
            "question": f"Question {name}?",
            "answer": answer,
            "question_date": "2023/06/01 (Thu) 10:00",
            "haystack_session_ids": ["s1", "s2"],
            "haystack_dates": [date for date, _ in chats],
            "haystack_sessions": [turns for _, turns in chats],
            "answer_session_ids": ["s1"],
        }
        for name, (kind, answer) in kinds.items()
    ]


def uuid(n: int) -> str:
    return str(UUID(int=n * 7**40 % 2**128))


def helmet(folder: Path) -> Path:
    """The files of every task at 8,192 tokens, with far shorter texts; and the values of json_kv at 16,384."""
    for task in ("niah_multikey_2", "niah_multikey_3", "niah_multivalue"):
        records = [_needle(task, n) for n in range(5)]
        _lines(folder / "data" / "ruler" / task / "validation_8192.jsonl", records)
    for keys in (105, 220):
        _lines(folder / "data" / "json_kv" / f"test_k{keys}_dep6.jsonl", [_values(n) for n in range(5)])
    for name, demo in (
        ("nq-dev-multikilt_1000_k50_dep6", "nq-train-multikilt_1000_k3_dep6"),
        ("triviaqa-dev-multikilt_1000_k50_dep6", "triviaqa-train-multikilt_1000_k3_dep6"),
        ("hotpotqa-dev-multikilt_1000_k50_dep3", "hotpotqa-train-multikilt_1000_k3_dep3"),
        ("popqa_test_1000_k50_dep6", "popqa_test_1000_k3_dep6"),
    ):
        _lines(folder / "data" / "kilt" / f"{name}.jsonl", [_passages(n) for n in range(6)])
        _lines(folder / "data" / "kilt" / f"{demo}.jsonl", [_passages(n // 2) for n in range(20)])
    return folder


def _needle(task: str, n: int) -> dict[str, Any]:
    values = [str(1000 * n + 7 + i) for i in range(4)] if task == "niah_multivalue" else [uuid(n + 1)]
    said = " ".join(f"One of the special magic numbers for old-mill{n} is: {value}." for value in values)
    return {"index": n, "query": f"old-mill{n}", "type_needle_v": "numbers", "context": said, "answer": values}


def _values(n: int) -> dict[str, Any]:
    known = {uuid(10 * n + i): uuid(1000 + 10 * n + i) for i in range(1, 6)}
    asked, *others = known
    demos = [[key, known[key]] for key in others[:3]]
    context = f"JSON data:\n{json.dumps(known)}"
    return {"context": context, "question": asked, "answer": known[asked], "demos": demos, "num_kvs": 5}


def _passages(n: int) -> dict[str, Any]:
    texts = [{"title": f"Town{k}", "text": FACT.format(n=k)} for k in (n + 1, n)]
    question = f"How many wheels has Town{n}'s mill?"
    return {
        "id": f"i{n}",
        "question": question,
        "answers": [f"{n} wheels", str(n)],
        "ctxs": texts,
        "s_pop": 10 ** (n % 5),
    }


def _lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
