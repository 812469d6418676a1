"""The benchmark of training steps: what its table holds, and what its page makes of rows. Nothing is timed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from levelfield.mixers import classes

FOLDER = Path(__file__).parents[1] / "benchmarks"
if not FOLDER.exists():
    pytest.skip("the benchmarks come with the repository, not with the package", allow_module_level=True)
sys.path.append(str(FOLDER))

import train as benchmark  # noqa: E402
import train_cases  # noqa: E402


def row(group: str, side: str, cost: float) -> dict[str, Any]:
    """As it is read from the file."""
    numbers = {"us_per_token": str(cost), "peak_mib": "10", "rounds": "1", "machine": "m"}
    return {"group": group, "side": side, "length": "1024", "status": "ok", **numbers}


def test_every_mixer_has_a_step_in_each_way_of_computing_it() -> None:
    found = {(case.group, case.side) for case in train_cases.CASES}
    assert {(config.label, side) for config in classes() for side in ("ours", "ours bf16", "ours compiled")} <= found
    assert {("attention", "transformers"), ("s4", "s4 repository")} <= found


def test_the_weights_of_a_peer_are_trained_though_its_builder_returns_a_function() -> None:
    made: list[nn.Linear] = []

    def build(peers: Path, length: int) -> Any:
        made.append(nn.Linear(train_cases.WIDTH, train_cases.WIDTH))
        layer = made[-1]
        return lambda x: (layer(x), None)

    step, tokens = train_cases.theirs(build)(Path("peers"), 4096)
    before = [layer.weight.detach().clone() for layer in made]
    step()
    assert tokens == 8192 and len(made) == 2
    assert not any(torch.equal(layer.weight, old) for layer, old in zip(made, before, strict=True))


def test_a_mixer_is_a_line_of_its_share_and_of_ratios_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Products of 1,572,864 FLOPs per token in 15.72864 and 7.86432 us are 100 and 200 GFLOP/s.
    # A copy of 256 channels of 4 bytes reads and writes 2,048 bytes a token: in 0.1024 us that is 20 GB/s.
    limit = [row("products", "float32", 15.72864), row("products", "bf16", 7.86432), row("products", "memory", 0.1024)]
    each = benchmark.flops_per_token("attention", 1024)
    ours = row("attention", "ours", each / 50e3)
    rows = [*limit, ours, row("attention", "ours bf16", each / 150e3), row("attention", "peer", each / 25e3)]
    lost = row("attention", "large", 0) | {"status": "memory", "us_per_token": "", "peak_mib": ""}
    monkeypatch.setattr(benchmark, "PARTS", tmp_path / "parts.csv")
    (tmp_path / "parts.csv").write_text("mixer,precision,linear maps\nattention,float32,0.5\nattention,bf16,0.4\n")
    lines = benchmark.page([*rows, lost]).splitlines()
    assert "Plain products: 100 GFLOP/s in float32." in lines and "Plain products: 200 GFLOP/s in bf16." in lines
    assert "Memory: 20.0 GB/s, read and written by a copy." in lines
    assert lines[-1].endswith("| 10 | 50% | 50% | 3.00 (10) | 1.33 |  | peer 0.50 (10); large does not fit |")


def test_the_page_says_which_peers_are_faster_and_how_many_gain_in_bf16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer in bf16 stands beside ours in bf16."""
    parts = "mixer,precision,ms,linear maps,attention\nconv,float32,100,0.2,0.5\nconv,bf16,120,0.1,0.5\n"
    monkeypatch.setattr(benchmark, "PARTS", tmp_path / "parts.csv")
    (tmp_path / "parts.csv").write_text(parts)
    rows = [row("products", "float32", 16), row("products", "bf16", 8), row("conv", "ours", 210)]
    rows += [row("conv", "ours bf16", 150), row("conv", "quick bf16", 120), row("conv", "slow", 420)]
    assert benchmark.about_peers([*rows, row("conv", "lost", 0) | {"status": "time"}]) == (
        "- **Of 2 steps of others that were measured, 1 is faster than ours**: quick bf16 by 25.0 % (`conv`). "
        "1 take 2.00 to 2.00 times as long; 1 could not be measured."
    )
    assert "none of the 1 mixers**, and 0 of them train" in benchmark.about_bf16(rows)
    assert benchmark.about_compiled(rows) == "- No step was compiled."
    compiled = [row("conv", "ours again", 240), row("conv", "ours compiled", 160)]  # not 210, of another day
    compiled += [row("gru", "ours again", 100), row("gru", "ours compiled", 125)]
    compiled += [row("s4", "ours again", 100), row("s4", "ours compiled", 96)]
    compiled += [row("s5", "ours again", 100), row("s5", "ours compiled", 0) | {"status": "build"}]
    text = benchmark.about_compiled([*rows, *compiled])
    assert "1 of 3 steps are faster on a CPU by more than a twentieth**, up to 1.50 times, and 1 slower" in text
    assert "down to 0.80 times" in text and text.endswith("It takes longer than that for `s5`.")
    assert " 1.50 (10) |" in next(line for line in benchmark.lines([*rows, *compiled[:2]]) if "`conv`" in line)
    assert benchmark.about_maps(rows) == (
        "Of the 0 mixers that spend more than half of a step in maps, none misses it. "
        "Of all that miss it, 1 would not reach it by their maps, 0 would."
    )
    (tmp_path / "parts.csv").write_text(parts.replace("0.2", "0.6"))
    assert benchmark.about_maps(rows).startswith(
        "Of the 1 mixers that spend more than half of a step in maps, 1 misses"
    )
    assert "`conv` 120 ms in bf16 and 100 in float32" in benchmark.about_parts()
    assert "in bf16, 1.20 times (`conv`) as long" in benchmark.about_parts()


def test_the_committed_page_is_that_of_the_committed_rows() -> None:
    page = FOLDER.parent / "docs" / "speed-train.md"
    rows = benchmark.read(FOLDER.parent / "results" / "speed-train.csv")
    for about in (benchmark.about_peers, benchmark.about_compiled):
        text = benchmark.filled(about(rows))
        assert text.split() and " ".join(text.split()) in " ".join(page.read_text().split())


def test_the_flops_of_a_step_are_those_of_its_products() -> None:
    """Two blocks: qkv and output maps, feed-forward, and causal attention to half of all steps; tripled by backward."""
    width, hidden, steps = 256, 1024, 1024
    maps = 2 * (4 * width * width + 2 * width * hidden) * 2
    least, most = 3 * maps, 3 * (maps + 2 * 4 * steps * width)
    assert least < benchmark.flops_per_token("attention", 1024) < 1.2 * most


def test_a_case_trains_with_the_loop_itself() -> None:
    case = next(c for c in train_cases.CASES if (c.group, c.side) == ("conv", "ours bf16"))
    work, tokens = case.make(Path("peers"), 4096)
    assert tokens == 8192
    first, second = work(), work()
    assert (first.step, second.step) == (1, 2)  # pyright: ignore[reportAttributeAccessIssue]
    assert 0 < second.loss < 10  # pyright: ignore[reportAttributeAccessIssue]
