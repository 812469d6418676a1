"""What a run stores of a layer is all of it: layers that keep something elsewhere are refused before training."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from levelfield.contract import check
from levelfield.presets import efforts
from levelfield.protocols import scratch
from levelfield.run import execute
from levelfield.runs import store
from levelfield.spec import MixerConfig, Run, UserError
from levelfield.user.mixer import user_mixer

WIDTH = 16


class Around(nn.Module):
    """A linear map, and `also` after it."""

    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH) if inner is None else inner

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.also(self.inner(x))

    def also(self, y: Tensor) -> Tensor:
        return y


class Listed(Around):
    def __init__(self) -> None:
        super().__init__()
        self.others = [nn.Linear(WIDTH, WIDTH)]

    def also(self, y: Tensor) -> Tensor:
        return self.others[0](y)


class Looked(Around):
    """It keeps its last output, for a figure."""

    def also(self, y: Tensor) -> Tensor:
        self.last = y
        return y


class Drawn(Around):
    def __init__(self) -> None:
        super().__init__()
        self.gain = 0.5 + float(np.random.default_rng().random())

    def also(self, y: Tensor) -> Tensor:
        return self.gain * y


class Grown(Around):
    """Counts its training calls where no checkpoint looks."""

    calls = 0

    def also(self, y: Tensor) -> Tensor:
        self.calls += self.training
        return (1 + self.calls) * y


class Late(Around):
    def also(self, y: Tensor) -> Tensor:
        if not hasattr(self, "late"):
            self.late = nn.Parameter(torch.eye(WIDTH))
        return y @ self.late


class Extra(Around):
    def get_extra_state(self) -> dict[str, int]:
        return {"steps": 3}

    def set_extra_state(self, state: Any) -> None: ...


class Wide(Around):
    def also(self, y: Tensor) -> Tensor:
        return y.double()


class Tied(Around):
    def __init__(self) -> None:
        super().__init__()
        self.twin = nn.Linear(WIDTH, WIDTH)
        self.twin.weight = self.inner.weight  # pyright: ignore[reportAttributeAccessIssue]

    def also(self, y: Tensor) -> Tensor:
        return self.twin(y)


SHARED = nn.Linear(WIDTH, WIDTH)


class Complex128(Around):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(WIDTH, dtype=torch.complex128))

    def also(self, y: Tensor) -> Tensor:
        return y * self.a.real.to(y.dtype)


def _normed() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have the parametrization
        return Around(nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH)))


def _exits() -> nn.Module:
    raise SystemExit("no gpu")


@dataclass(frozen=True)
class Made(MixerConfig):
    label: ClassVar[str] = "made"
    paper: ClassVar[str] = "here"
    how: Callable[[], nn.Module]

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return self.how()

    def state_size(self, width: int, length: int) -> None:
        return None


FAULTS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "lazy": (lambda: Around(nn.LazyLinear(WIDTH)), "does not know the size of 'inner.weight' when it is built"),
    "shared": (lambda: Around(SHARED), "shares 'inner.weight' between layers and runs"),
    "listed": (Listed, r"uses a parameter of shape \(16,? ?1?6?\) that it does not register"),
    "drawn": (Drawn, "does not give the same output after its weights are stored and loaded"),
    "grown": (Grown, "does not give the same output after its weights are stored and loaded"),
    "late": (Late, "makes or drops 'late' after it was built"),
    "extra": (Extra, "keeps a dict as '_extra_state'"),
    "complex128": (Complex128, r"'a' as torch.complex128, which safetensors.*: make it torch.complex64"),
    "wide": (Wide, "returns torch.float64 numbers for torch.float32 ones"),
    "normed": (_normed, r"cannot be copied after a call.*parametrizations.weight_norm"),
    "looked at": (
        Looked,
        r"cannot be copied after a call, as it keeps a tensor .*: keep nothing of a call in the module",
    ),
    "exits": (_exits, "SystemExit: no gpu"),
}


@pytest.mark.parametrize("how, sentence", FAULTS.values(), ids=FAULTS.keys())
def test_what_a_run_would_lose_is_told(how: Callable[[], nn.Module], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        check(Made(how), WIDTH, causal=False, padding=False)


def test_a_length_that_the_task_has_is_tried() -> None:
    def limited() -> nn.Module:
        class Limited(Around):
            def also(self, y: Tensor) -> Tensor:
                return y + torch.ones(40, WIDTH)[: y.shape[1]]

        return Limited()

    check(Made(limited), WIDTH, causal=False, padding=False, lengths=(40,))
    with pytest.raises(UserError, match=r"made fails on an input of shape \(2, 41, 16\) with no mask: RuntimeError"):
        check(Made(limited), WIDTH, causal=False, padding=False, lengths=(41,))


@pytest.mark.parametrize("ahead", [100, 1], ids=["far", "next-chunk"])
def test_a_future_beyond_the_first_steps_is_seen(ahead: int) -> None:
    """Within 33 steps both layers are causal: one looks a hundred steps ahead, one from each 64th step to the next."""

    def peeking() -> nn.Module:
        class Peeking(Around):
            def also(self, y: Tensor) -> Tensor:
                steps = torch.arange(y.shape[1])
                seen = torch.where((steps + 1) % (64 if ahead == 1 else 1) == 0, steps + ahead, 1_000_000)
                return y + torch.cat([y, torch.zeros_like(y[:, :1])], 1)[:, seen.clamp(max=y.shape[1])]

        return Peeking()

    check(Made(peeking), WIDTH, causal=True, padding=False)
    with pytest.raises(UserError, match="is built as causal, but its output at step"):
        check(Made(peeking), WIDTH, causal=True, padding=False, lengths=(256,))


def test_tied_weights_are_trained_stored_and_loaded(tmp_path: Path) -> None:
    mixer = user_mixer(Tied)
    check(mixer, WIDTH, causal=False, padding=False)
    model = efforts.model("recall", mixer, "smoke", "tied")
    run = Run(efforts.generated("recall", "smoke"), model, scratch(efforts.recipe("smoke")), 0)
    execute(run, store.directory(tmp_path, run), tmp_path / "data", "cpu")
    assert store.complete(store.directory(tmp_path, run))
