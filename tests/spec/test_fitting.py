"""What does not fit into memory: known by its error, refused before it is used, and said in one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from levelfield.cli import app
from levelfield.spec import memory
from levelfield.spec.memory import TooLarge, fitting, reason

WIDE = """
import torch
from torch import nn


class Built(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.kept = nn.Parameter(torch.empty(10**9, 1_000 * width))

    def forward(self, x):
        return x


class Called(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.scale + x.new_zeros(*x.shape, 10**10).sum(-1)
"""


@pytest.mark.parametrize(
    "command, what",
    [
        (("compare", "wide.py:Built"), "Built(width=16) does not fit into memory (64,000.0 GB are asked for at once"),
        (("compare", "wide.py:Called"), "called at width 16, called on up to 256 steps, does not fit into memory ("),
        (("reach", "wide.py:Called"), "called at width 16, called on 33 steps, does not fit into memory ("),
        (("check", "wide.py:Called", "--width", "8"), "called at width 8 does not fit into memory ("),
    ],
)
def test_what_does_not_fit_is_one_sentence_with_the_remedy(
    command: tuple[str, ...], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wide.py").write_text(WIDE)
    more = () if command[0] == "check" else ("--effort", "smoke")
    with pytest.raises(SystemExit) as stop:
        app.main([*command, *more])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1
    assert what in said and ": take a smaller width (--width)" in said
    assert not Path("runs").exists()


def test_two_things_that_fit_alone_and_not_together_are_refused() -> None:
    """Linux lends both, and ends some process once they are used; nothing here is used."""
    if not memory.OWN.exists():
        pytest.skip("this system does not say what a process has")
    most = int(0.7 * memory.free())
    with fitting("one of them"):
        alone = torch.empty(most, dtype=torch.uint8)
    del alone
    with pytest.raises(TooLarge, match="both of them does not fit into memory"), fitting("both of them"):
        kept = [torch.empty(most, dtype=torch.uint8) for _ in range(2)]
        assert not kept
    unused = torch.empty(most, dtype=torch.uint8)  # the limit holds inside alone
    assert unused.numel() == most


@pytest.mark.parametrize(
    "line, root, files, none",
    [
        ("0::/job/step\n", "", ("memory.max", "memory.current", "inactive_file"), "max"),
        ("0::/\n", "", ("memory.max", "memory.current", "inactive_file"), "max"),
        (
            "5:cpu:/elsewhere\n4:hugetlb,memory:/job/step\n0::/\n",
            "memory",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            str(2**63 - 4096),
        ),
    ],
)
def test_memory_is_at_most_that_of_the_container_or_job_without_what_it_uses(
    line: str, root: str, files: tuple[str, str, str], none: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of Slurm has no limit of its own, its job has; a container may see its own group alone, as the root."""
    (tmp_path / "cgroup").write_text(line)
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    step = tmp_path / root / ("job/step" if "job" in line else "")
    job = step.parent if "job" in line else step

    def write(group: Path, limit: str) -> None:
        group.mkdir(parents=True, exist_ok=True)
        for name, content in zip((*files[:2], "memory.stat"), (limit, "700", f"anon 600\n{files[2]} 100"), strict=True):
            (group / name).write_text(content)

    write(step, none)
    assert memory.total() > 10**8 < memory.free()
    write(job, "1000")
    assert (memory.total(), memory.free()) == (1000, 400)
    write(job, "500")
    assert memory.free() == 0


@pytest.mark.parametrize(
    "error, words",
    [
        (MemoryError(), "Memory ends here: take a smaller batch"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has"),
            "(21.5 GB are asked",
        ),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 4000000000 bytes"), "(4.0 GB are"),
        (ValueError("out of memory"), "ValueError: out of memory"),
    ],
)
def test_a_run_whose_memory_ends_says_so(error: Exception, words: str) -> None:
    assert words in reason(error)


def test_other_errors_pass_and_numpys_count() -> None:
    with pytest.raises(RuntimeError, match="shapes"), fitting("it"):
        raise RuntimeError("shapes do not fit")
    with pytest.raises(TooLarge, match=r"it does not fit into memory \(9,007,199.3 GB are asked for"), fitting("it"):
        np.empty(2**53, np.uint8)
