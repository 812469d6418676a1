"""Lets lm-evaluation-harness ask a model that was trained here, or any other that levelfield loads.

    python -m levelfield.cli.lm_eval_model --model levelfield --model_args name=RUN_ID,runs_dir=runs --tasks lambada

The words are those of `lm_eval`, which the extra `harness` installs. From Python:

    register()
    lm_eval.simple_evaluate(model="levelfield", model_args="name=RUN_ID", tasks=["lambada"])
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from levelfield.cli.ruler_command import Loaded, load
from levelfield.cli.ruler_options import ModelChoice
from levelfield.pretrained.likelihood import GreedyRequest, continued, encoded_pair, likelihood, start_ids
from levelfield.spec import UserError

Request = Any
"""What lm_eval asks: an object whose `args` are the texts."""


def register() -> type:
    """Makes the model `levelfield` known to lm_eval, and returns its class. Raises UserError without that package."""
    try:
        from lm_eval.api.model import LM  # pyright: ignore[reportMissingImports]
        from lm_eval.api.registry import register_model  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("This needs lm-evaluation-harness: pip install 'levelfield[harness]'.") from error

    @register_model("levelfield")
    class Trained(LM):
        """A language model of levelfield. Generation is greedy; `batch_size` is accepted and not used."""

        def __init__(
            self,
            name: str,
            runs_dir: str = "runs",
            tokenizer: str | None = None,
            device: str | None = None,
            precision: Any = "float32",
            batch_size: Any = None,
            max_batch_size: Any = None,
        ) -> None:
            super().__init__()
            choice = ModelChoice(name, tokenizer, usable(device), precision)
            self.loaded = load(choice, Path(runs_dir))

        def loglikelihood(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
            return [scored(self.loaded, *request.args) for request in requests]

        def loglikelihood_rolling(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[float]:
            return [rolled(self.loaded, *request.args) for request in requests]

        def generate_until(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[str]:
            asked = [asked_of(*request.args) for request in requests]
            return continued(self.loaded.model, self.loaded.tokenizer, asked)

    return Trained


def usable(device: str | None) -> str:
    """Returns the device that lm_eval names; "auto" for a GPU that is not here, since it names one unless told."""
    import torch

    missing = device is not None and device.startswith("cuda") and not torch.cuda.is_available()
    return "auto" if device is None or missing else device


def scored(loaded: Loaded, context: str, continuation: str) -> tuple[float, bool]:
    """Scores a continuation of a context: the logarithm of its probability, and whether it is the greedy one."""
    before, after = encoded_pair(loaded.tokenizer, context, continuation)
    before = [*loaded.model.bos_ids, *before] or start_ids(loaded.model, loaded.tokenizer)
    found = likelihood(loaded.model, before, after)
    return found.total, found.greedy


def rolled(loaded: Loaded, text: str) -> float:
    """Scores a whole text. Where the model takes fewer tokens, each is scored once, with as many before it as fit."""
    start, ids = start_ids(loaded.model, loaded.tokenizer), list(loaded.tokenizer.encode(text))
    most = loaded.model.max_length or len(ids) + len(start)
    whole, total = [*start, *ids], 0.0
    for begin in range(len(start), len(whole), most):
        end = min(begin + most, len(whole))
        total += likelihood(loaded.model, whole[:begin], whole[begin:end]).total
    return total


def asked_of(context: str, settings: Mapping[str, Any]) -> GreedyRequest:
    """Reads a request for text as lm_eval puts it. Raises UserError for one that is to be sampled."""
    if settings.get("do_sample") and settings.get("temperature", 1.0):
        raise UserError("Text is generated greedily here: leave out do_sample, or set temperature=0.")
    until = settings.get("until") or ()
    until = (until,) if isinstance(until, str) else tuple(each for each in until if each)
    return GreedyRequest(context, until, int(settings.get("max_gen_toks", GreedyRequest.most)))


def main() -> None:
    """Runs lm_eval's own command line with this model known to it."""
    try:
        register()
        from lm_eval.__main__ import cli_evaluate  # pyright: ignore[reportMissingImports]

        cli_evaluate()
    except UserError as error:
        print(f"levelfield: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
