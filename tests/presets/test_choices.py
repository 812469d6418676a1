"""The keywords of the two functions that Python users call, and the names that they need for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import levelfield
from levelfield import UserError, api
from levelfield.api import Choices


@pytest.mark.parametrize(
    ("given", "written"), [("attention", "attention(heads=8)"), ("conv(kernel=3)", "conv(heads=8)")]
)
def test_settings_beside_a_name_are_refused(given: str, written: str):
    with pytest.raises(UserError) as refused:
        levelfield.compare(given, "recall", "scratch", "smoke", settings={"heads": 8})
    assert str(refused.value).endswith(f"write them into the name, '{written}'.")


def test_earlier_names_of_folders_warn_and_go_on_working():
    with pytest.warns(DeprecationWarning) as said:
        found = api._renamed("compare", Choices(out="a", to="b", data="c"), Choices.__annotations__)
    assert found == {"runs_dir": "a", "report_dir": "b", "data": "c"}
    assert [str(each.message) for each in said] == [
        "compare(out=...) is now compare(runs_dir=...)",
        "compare(to=...) is now compare(report_dir=...)",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert api._renamed("compare", Choices(**found), Choices.__annotations__) == found


@pytest.mark.parametrize("call", [levelfield.compare, levelfield.audit], ids=["compare", "audit"])
@pytest.mark.parametrize(
    ("words", "complaint"),
    [({"oout": "a"}, "unexpected keyword argument 'oout'"), ({"out": "a", "runs_dir": "b"}, "both 'runs_dir' and")],
)
def test_unknown_and_double_keywords_are_refused(call: Callable[..., Any], words: dict[str, str], complaint: str):
    with pytest.raises(TypeError, match=complaint):
        call("parity", **words)


def test_the_public_names_are_there_and_are_all_that_the_public_functions_ask_for():
    for name in levelfield.__all__:
        assert getattr(levelfield, name) is not None
    assert {"Numerics", "ParamRule", "Published", "Search", "StepLabels"} <= set(levelfield.__all__)
