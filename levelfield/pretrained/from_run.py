"""Turns a run of this package into a language model.

    run = find_run("imdb_text-s4-pretrain-0-5f0c9a1e2b", out)
    model, tokenizer = trained(run, load_net(run, out / run.id))

Any causal model whose last phase predicted the next symbol will do; on text the symbols are bytes.
"""

from __future__ import annotations

from levelfield.model import Network
from levelfield.pretrained.native_model import NativeModel
from levelfield.spec import Run, Tokens, UserError
from levelfield.tokenizer import Bytes

BYTES = 256


def trained(run: Run, net: Network, device: str = "cpu") -> tuple[NativeModel, Bytes]:
    """Returns a run as a language model with its tokenizer. net: as `levelfield.run.load_net` returns it.

    Raises UserError where the run is no language model: it must be causal, have a head for the next symbol, and read
    bytes.
    """
    spec, head = run.task.input, net.head_specs.get("next")
    if not run.model.causal or head is None:
        raise UserError(f"{run.id} does not predict the next symbol: name a run whose last phase is causal.")
    if not isinstance(spec, Tokens) or spec.symbols != BYTES:
        raise UserError(f"{run.id} reads {run.task.name}, whose symbols are not bytes: name a run on text.")
    net = net.to(device).requires_grad_(False).eval()
    return NativeModel(run.id, net, net.heads["next"], spec.symbols, id_offset=Tokens.OFFSET), Bytes()
