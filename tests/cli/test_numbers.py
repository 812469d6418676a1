"""Numbers of options that cannot be: one sentence that names the option, and says the least and the most allowed."""

from __future__ import annotations

import pytest
from refusals import refused

RULER = "ruler nope --lengths 700"
COUNTS = {
    "run demo --effort smoke": "threads jobs nproc accumulate",
    "plan demo": "nproc accumulate seeds steps width depth batch longest",
    "compare conv": "jobs nproc accumulate seeds steps width depth batch longest",
    "reach conv": "seeds steps jobs",
    "check conv": "width",
    RULER: "count copies spread threads at-once tries timeout",
    "export ruler --tokenizer bytes --lengths 700": "count",
    "audit recall": "jobs longest",
}
CASES = [(command, option) for command, options in COUNTS.items() for option in options.split()]


@pytest.mark.parametrize("command, option", CASES)
def test_a_count_is_1_at_least(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = command.split()
    for number in ("0", "-1", "1" + 30 * "0"):
        said = refused(capsys, *words, f"--{option}={number}")
        assert f"levelfield: --{option} {number} is out of range: give a whole number from 1 to " in said
    for word in ("1.5", "many", ""):
        said = refused(capsys, *words, f"--{option}={word}")
        assert said.startswith(f"levelfield: --{option} '{word}' is no whole number: give one such as "), said


@pytest.mark.parametrize(
    "words, sentence",
    [
        ("run demo --threads 100000", "--threads 100000 is out of range: give a whole number from 1 to 1,024."),
        ("check conv --width 100000", "--width 100000 is out of range: give a whole number from 1 to 65,536."),
        (f"{RULER} --temperature warm", "--temperature 'warm' is no number: give one such as 0 or 0.6."),
        ("compare conv --test-share 0.1", "Options of your own data are given, but no file: give it with --own"),
    ],
)
def test_other_numbers_that_cannot_be(words: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, *words.split()).startswith(f"levelfield: {sentence}")
