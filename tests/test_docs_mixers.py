"""The Python on the pages about mixers runs, from top to bottom, as a reader would run it."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from levelfield.contract import check
from levelfield.mixers import MIXERS

DOCS = Path(__file__).parents[1] / "docs"


def _blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["mixers.md", "add-a-mixer.md"])
def test_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that begins with a file's name is that file; the others share one scope."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    blocks = _blocks(page)
    assert len(blocks) >= 2
    for block in blocks:
        if name := re.match(r"# (\S+\.py)\n", block):
            path = tmp_path / name[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block)
        else:
            exec(compile(block, page, "exec"), scope)


def test_the_mixer_for_everybody_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = [block for block in _blocks("add-a-mixer.md") if block.startswith("# levelfield/mixers/")]
    module = ModuleType("shift")
    monkeypatch.setitem(sys.modules, "shift", module)
    exec(source, vars(module))
    for config in module.EXAMPLES:
        for causal in (False, True):
            check(config, 8, causal)
        net = config.build(2, causal=True, layer=0, generator=torch.Generator().manual_seed(0))
        x = torch.eye(10)[:, :2].unsqueeze(0)
        assert torch.allclose(net(x, None)[0, config.by], net.out(x[0, 0]))


def test_the_page_names_every_mixer_and_every_setting() -> None:
    page = (DOCS / "mixers.md").read_text()
    for config in MIXERS:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{config.label}` |")]
        assert [field.name for field in dataclasses.fields(config) if f"`{field.name}`" not in row] == []
