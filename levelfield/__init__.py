"""A level playing field for long-sequence models.

How far does a model really see, and how much of its score comes from the architecture rather than from the recipe, the
initialisation or shortcuts in the benchmark? The values that questions and answers are made of live in
`levelfield.spec` and can be had from here:

    from levelfield import Duration, Model, OwnData, Recipe, Run, Study

Nothing is imported until it is used, so the command line answers at once and never waits for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelfield._version import __version__ as __version__

if TYPE_CHECKING:
    from levelfield.api import Choices, audit, compare, load
    from levelfield.spec import (
        Block,
        Duration,
        Examples,
        Label,
        LabelSet,
        MixerConfig,
        Model,
        Numerics,
        ParamRule,
        Phase,
        Probe,
        Protocol,
        Published,
        Recipe,
        ReportView,
        Row,
        Run,
        Search,
        Signal,
        StepLabels,
        Study,
        Task,
        Tokens,
        UserError,
        Values,
    )
    from levelfield.user.own_data import OwnData

__all__ = [
    "Block",
    "Choices",
    "Duration",
    "Examples",
    "Label",
    "LabelSet",
    "MixerConfig",
    "Model",
    "Numerics",
    "OwnData",
    "ParamRule",
    "Phase",
    "Probe",
    "Protocol",
    "Published",
    "Recipe",
    "ReportView",
    "Row",
    "Run",
    "Search",
    "Signal",
    "StepLabels",
    "Study",
    "Task",
    "Tokens",
    "UserError",
    "Values",
    "audit",
    "compare",
    "load",
]

ELSEWHERE = {"OwnData": "levelfield.user.own_data"} | dict.fromkeys(
    ("Choices", "audit", "compare", "load"), "levelfield.api"
)


def __getattr__(name: str) -> Any:
    """Loads a public name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'levelfield' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(ELSEWHERE.get(name, "levelfield.spec")), name)


def __dir__() -> list[str]:
    """The public names, for completion, before any of them is loaded."""
    return sorted([*globals(), *__all__])
