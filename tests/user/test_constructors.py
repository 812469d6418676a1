"""A constructor that fails is told what it is called with: the parameters that it declares by name, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from levelfield.spec import UserError
from levelfield.user.mixer import load_user_mixer


@pytest.mark.parametrize(
    "made, called, lacked",
    [
        ("def made(**kw):\n    return kw['dim']\n", r"made\(\) fails: KeyError: 'dim'", "dim"),
        ("def made(**kw):\n    return int(kw.get('dim'))\n", r"made\(\) fails: TypeError: .*", "width"),
        ("def made(*args):\n    return args[0]\n", r"made\(\) fails: IndexError: tuple index out of range", "width"),
        ("def made(width, **kw):\n    return kw['depth']\n", r"made\(width=8\) fails: KeyError: 'depth'", "depth"),
        ("def made(width):\n    return {}['width']\n", r"made\(width=8\) fails: KeyError: 'width'", ""),
    ],
)
def test_a_constructor_of_any_arguments_is_told_which_of_them_it_gets(
    tmp_path: Path, made: str, called: str, lacked: str
) -> None:
    (tmp_path / "mine.py").write_text(made)
    mixer = load_user_mixer(f"{tmp_path}/mine.py:made")
    by_name = ": it is called with the parameters that it declares by name; where "
    advice = f"{by_name}{lacked} is one, declare it too, before the .* or .*" if lacked else ""
    with pytest.raises(UserError, match=f"^{called}{advice}$"):
        mixer.build(8, causal=False, layer=0, generator=torch.Generator())
