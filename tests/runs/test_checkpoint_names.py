"""Checkpoints are ordered by the numbers in their names."""

from __future__ import annotations

from pathlib import Path

from levelfield.runs import checkpoint


def test_the_tenth_phase_comes_after_the_ninth(tmp_path: Path):
    for phase, step in ((8, 3), (9, 1), (10, 1), (10, 100_000_000), (10, 99_999_999)):
        (tmp_path / f"checkpoint-{phase}-{step:08d}-0a1b2c3d4e5f.safetensors").write_bytes(b"")
    (tmp_path / "checkpoint-best.safetensors").write_bytes(b"of another tool")
    found = [tuple(map(int, path.name.split("-")[1:3])) for path in checkpoint.listing(tmp_path)]
    assert found == [(10, 100_000_000), (10, 99_999_999), (10, 1), (9, 1), (8, 3)]
