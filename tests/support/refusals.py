"""Calls the command line with words that it has to refuse."""

from __future__ import annotations

import pytest

from levelfield.cli.app import main


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Returns the sentence on standard error of a command that ends with exit code 2."""
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1, shown
    return shown
