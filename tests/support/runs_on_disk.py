"""Folders of runs as training leaves them, written by hand: for tests of what reads them, without training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RUN = "listops-s4-spt_masked-0-1a2b3c4d5e"
AWKWARD = (0.1, 1 / 3, 1e-300, 2.5e22, -0.0, 123456789.123456789, 5e-324)
"""Numbers that 32 bits do not hold, or that a text of six digits does not."""

Record = Mapping[str, Any]


def records(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Records of a log: two phases, a score at every third step; of one step nothing is known, as after a NaN."""
    found = []
    for number in range(first, first + count):
        phase, step = divmod(number, 40)
        record = {"phase": phase, "objective": ("denoise", "label")[phase % 2], "step": step + 1}
        record |= {"loss": AWKWARD[number % len(AWKWARD)] + number, "lr": 1 / (number + 3)} if number != 5 else {}
        found.append(record | ({"score": number / 7} if number % 3 == 0 else {}))
    return found


def write_log(where: Path, lines: Sequence[Record], cut: str = "") -> None:
    """Writes a log, and after it what a process was about to write."""
    where.mkdir(parents=True, exist_ok=True)
    spec = {"task": {"kind": "ListOps"}, "model": {"depth": 2}, "protocol": {"phases": [{"lr": 0.002}]}, "seed": 0}
    (where / "spec.json").write_text(json.dumps(spec))
    (where / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + cut)


def complete(where: Path, accuracy: float = 0.52) -> None:
    """Writes what a run leaves when it is done."""
    names = {"run": where.name, "task": "listops", "model": "s4", "protocol": "spt_masked", "seed": 0}
    scores = {"test": accuracy, "val": 0.5}
    rows = [names | {"split": s, "metric": "accuracy", "value": v} for s, v in scores.items()]
    rows.append(names | {"split": "test", "metric": "accuracy", "at": "root=MAX", "value": 0.1})
    rows.append(names | {"model": "chance", "protocol": "none", "split": "test", "metric": "accuracy", "value": 0.2})
    (where / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (where / "ledger.json").write_text(
        json.dumps({"parameters": 804874, "flops": 3.1e13, "device": "cpu", "phases": []})
    )
    (where / "done.json").write_text("{}")


def points(lines: Sequence[Record]) -> dict[str, list[tuple[int, float]]]:
    """What a tracker must have: tag -> steps of the phase and values, as the log has them."""
    found: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        for key in ("loss", "lr", "score"):
            if key in line:
                tag = f"{line['phase'] + 1}-{line['objective']}/{key}"
                found.setdefault(tag, []).append((line["step"], line[key]))
    return found


FACTS = {"test/accuracy": 0.52, "val/accuracy": 0.5, "ledger/parameters": 804874, "ledger/flops": 3.1e13}
