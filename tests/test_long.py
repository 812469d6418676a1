"""Path-X and Path-256 at full length: 16,384 and 65,536 steps through the whole path, in bounded memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from levelfield import protocols
from levelfield.files import read_json
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.mixers.dlr import DLR
from levelfield.mixers.gmlp import GMLP
from levelfield.mixers.s4 import S4
from levelfield.run import execute
from levelfield.runs import store
from levelfield.spec import Duration, MixerConfig, Model, Recipe, Run
from levelfield.tasks.pathfinder import Pathfinder

MIXERS: dict[str, MixerConfig] = {
    "attention": Attention(heads=2, rotary="per_head", block=4096),
    "conv": Conv(kernel=61, hidden=16),
    "s4": S4(state=8),
    "dlr": DLR(state=32),
    "gmlp": GMLP(hidden=16, bound=65_536),
}
WIDTH = 16


def one_step(name: str, side: int) -> Run:
    recipe = Recipe(
        lr=1e-3,
        weight_decay=0.0,
        batch=1,
        budget=Duration(1, "steps"),
        warmup=Duration(0, "steps"),
        schedule="constant",
        clip=1.0,
        validate_every=Duration(1, "steps"),
    )
    task = Pathfinder(side, train=2, val=2, test=2)
    return Run(task, Model((MIXERS[name],), depth=2, width=WIDTH), protocols.scratch(recipe), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXERS)
@pytest.mark.parametrize("side, room", [(128, 1.0), (256, 3.0)])
def test_a_whole_run_fits(name: str, side: int, room: float, tmp_path: Path) -> None:
    """Trained, tested and counted; resident memory grows by less than `room` GiB above the libraries'.

    A full matrix of attention would take 1 and 16 GiB for each head and layer.
    """
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_long import measure
print(measure({name!r}, {side}, {str(tmp_path)!r}))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout.split()[-1]) < room
    run = one_step(name, side)
    where = store.directory(tmp_path, run)
    ledger = read_json(where / "ledger.json")
    assert store.complete(where) and ledger["tokens"] == side * side and ledger["flops"] > 0


def measure(name: str, side: int, folder: str) -> float:
    """Does the run; how far resident memory grew, in GiB."""
    run = one_step(name, side)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    execute(run, store.directory(Path(folder), run), Path(folder) / "data", device="cpu")
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
