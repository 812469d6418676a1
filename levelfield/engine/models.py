"""Finds and loads the language model that a command names: a run that was trained here, or a checkpoint of others.

    named = Named("models/mamba2-2.7b", Path("runs"), tokenizer="models/gpt-neox-20b", precision="bfloat16")
    named.text()                    # tokenizer and identity, without a weight
    named.load("cuda", 4096)        # and the model, if it fits with a question of that length

What a checkpoint takes is predicted before it is loaded, and one that does not fit is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from levelfield.engine import find
from levelfield.longcontext import model_record
from levelfield.runs import store
from levelfield.spec import Run, UserError

if TYPE_CHECKING:
    from levelfield.pretrained import LanguageModel, Tokenizer
    from levelfield.pretrained.decoding import Batching


class Text(NamedTuple):
    """A tokenizer, and what tells the model from another one of the same name."""

    tokenizer: Tokenizer
    mark: str


class Loaded(NamedTuple):
    """A model, its tokenizer, and what tells it from another model of the same name.

    batching: the batches that fit into memory; None for the usual ones.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    mark: str
    batching: Batching | None = None


@dataclass(frozen=True)
class Named:
    """A language model by its name, and how it computes.

    name: a folder, a name on the hub, or the id of a run in `runs_dir`. tokenizer: None where it is beside the model.
    reference_bug: as `pretrained.load` takes it. spread: GPUs over which one copy is spread.
    """

    name: str
    runs_dir: Path
    tokenizer: str | None = None
    precision: Literal["float32", "bfloat16", "float64"] = "float32"
    reference_bug: bool = False
    spread: int = 1

    @property
    def record(self) -> dict[str, Any]:
        """The fields as JSON can hold them."""
        return vars(self) | {"runs_dir": str(self.runs_dir)}

    @staticmethod
    def restored(record: Mapping[str, Any]) -> Named:
        return Named(**{**record, "runs_dir": Path(record["runs_dir"])})

    @property
    def trained_here(self) -> bool:
        return (self.runs_dir / self.name / store.SPEC).exists()

    def max_length(self) -> int | None:
        """Returns the most tokens that the model takes, if its positions are a table; None otherwise."""
        from levelfield.pretrained import positions_of

        return None if self.trained_here else positions_of(self.name).most

    def text(self) -> Text:
        """Reads the tokenizer. Raises UserError as `load` does."""
        from levelfield.pretrained import BYTES, tokenizer_of
        from levelfield.pretrained.locate import resolve_model_path
        from levelfield.tokenizer import Bytes

        if not self.trained_here:
            path = resolve_model_path(self.name)
            return Text(tokenizer_of(self.tokenizer, path), model_record.fingerprint(path))
        run = self._run()
        if self.tokenizer not in (None, BYTES):
            raise UserError(f"{run.id} was trained here on bytes: leave out --tokenizer.")
        return Text(Bytes(), run.id)

    def load(self, device: str, length: int = 1, copies: int = 1) -> Loaded:
        """Loads the model. device: auto, cpu, cuda or cuda:1. copies: of it that share the memory of that device.

        Raises UserError where it cannot be read, or would not fit with a question of that length.
        """
        from levelfield.run import pick_device

        device = str(pick_device(device))
        return self._load_run(device) if self.trained_here else self._load_checkpoint(device, length, copies)

    def _run(self) -> Run:
        run = find.find_run(self.name, self.runs_dir)
        if not store.complete(store.directory(self.runs_dir, run)):
            raise UserError(f"{run.id} is not complete: run its study first.")
        return run

    def _load_run(self, device: str) -> Loaded:
        """Loads the language model that a run of this package trained."""
        from levelfield.pretrained.from_run import trained
        from levelfield.run import load_net

        text, run = self.text(), self._run()
        if self.spread > 1:
            raise UserError(f"{run.id} was trained here and runs on one device: leave out --spread.")
        where = store.directory(self.runs_dir, run)
        return Loaded(*trained(run, load_net(run, where), device), text.mark)

    def _load_checkpoint(self, device: str, length: int, copies: int) -> Loaded:
        """Loads a language model that others trained, from a folder or from the hub."""
        from levelfield import pretrained
        from levelfield.pretrained import memory
        from levelfield.pretrained.locate import resolve_model_path

        path = resolve_model_path(self.name)
        needed, place = memory.predicted(path, self.precision), memory.Place(device, copies, self.spread)
        memory.check(self.name, needed, length, place)
        model, tokenizer = pretrained.load(
            self.name, self.tokenizer, device, self.precision, reference_bug=self.reference_bug, spread=self.spread
        )
        return Loaded(model, tokenizer, model_record.fingerprint(path), memory.batching(needed, place))
