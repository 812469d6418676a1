"""Golden traces: the losses of 20 steps of every protocol, as they were when last looked at.

A refactor reproduces them. A change that is meant to alter numbers writes them anew
(`python tests/test_golden.py`) and its commit says why they moved.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import MODEL, FirstSymbol, recipe

from levelfield import protocols
from levelfield.files import read_rows
from levelfield.run import execute
from levelfield.spec import Protocol, Run

TRACES = Path(__file__).parent / "golden.json"
R = recipe(20)
CASES: dict[str, tuple[Protocol, bool]] = {
    "scratch": (protocols.scratch(R), False),
    "spt_masked": (protocols.spt_masked(R, R, 0.3), False),
    "spt_masked_values": (protocols.spt_masked(R, R, 0.5, loss="l1"), True),
    "spt_masked_levels": (protocols.spt_masked(R, R, 0.5, block=3), True),
    "spt_causal": (protocols.spt_causal(R, R), False),
    "enriched": (protocols.enriched(R, augment=True, denoise=protocols.DENOISE), False),
}


def trace(name: str, folder: Path) -> list[float]:
    protocol, continuous = CASES[name]
    run = Run(FirstSymbol(continuous=continuous), protocols.causal_where_needed(MODEL, protocol), protocol, 0)
    execute(run, folder / name, folder / "data", "cpu")
    return [record["loss"] for record in read_rows(folder / name / "log.jsonl")]


@pytest.mark.parametrize("name", CASES)
def test_losses_are_the_golden_ones(name: str, tmp_path: Path):
    golden = json.loads(TRACES.read_text())[name]
    # Equal to the last bits on one machine; other processors sum in another order.
    assert trace(name, tmp_path) == pytest.approx(golden, rel=2e-5)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        TRACES.write_text(json.dumps({name: trace(name, Path(folder)) for name in CASES}, indent=1) + "\n")
