"""Records which model the answers in a folder are of, so that those of two models are never mixed.

claim(folder, model=fingerprint(path), tokenizer="bytes", precision="float32")
claim(folder, model="of another one", ...)            # UserError, once there are answers
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from levelfield.files import read_json, write_json
from levelfield.longcontext.predictions import PREDICTIONS, OnPrediction, Prediction
from levelfield.longcontext.served.lengths import APPROXIMATE, SERVER
from levelfield.longcontext.survey import ANATOMY
from levelfield.spec import UserError

MODEL = "model.json"
ASKED = "asked.json"  # how the questions under each label were put to a server
INEXACT = "; lengths are approximate"  # at the end of what is said of them
UNRECORDED = "a way that is not recorded"
SERVED = "served"  # the precision of a model behind a server
BYTES = 1 << 20  # at the beginning and at the end of a file that its fingerprint covers
SAMPLE, SAMPLES = 1 << 14, 256  # bytes, and how many times so many, between them


def fingerprint(path: Path) -> str:
    """Hashes a model's files: names, sizes, the first and last megabyte of each, and after a + what samples of the rest
    hold, since models that were trained further from one checkpoint may begin and end alike."""
    import hashlib

    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    digest, inside = hashlib.sha256(), hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as data:
            digest.update(data.read(BYTES))
            data.seek(max(0, size - BYTES))
            digest.update(data.read(BYTES))
            for place in range(BYTES, size - BYTES, max(SAMPLE, (size - 2 * BYTES) // SAMPLES)):
                data.seek(place)
                inside.update(data.read(SAMPLE))
    return f"{digest.hexdigest()[:16]}+{inside.hexdigest()[:16]}"


def claim(folder: Path, *, model: str, tokenizer: str, precision: str) -> None:
    """Records the model of a folder. Raises UserError if it has answers of another model, tokenizer or precision."""
    facts = {"model": model, "tokenizer": tokenizer, "precision": precision}
    if not _claimed(folder):
        write_json(folder / MODEL, {**facts, "since": time.strftime("%Y-%m-%d")})
        return
    check(folder, facts)
    if (known := _record(folder))["model"] != model:  # as it was recorded before there were samples
        write_json(folder / MODEL, known | {"model": model})


def check(folder: Path, facts: Mapping[str, str]) -> None:
    """Raises UserError if a folder has answers for which these facts, among those of `claim`, are others."""
    known = dict(_record(folder) if _claimed(folder) else facts)
    if known.get("model") == facts.get("model", "").partition("+")[0]:  # as it was recorded before there were samples
        known["model"] = facts["model"]
    if changed := [key for key, value in facts.items() if known.get(key) != value]:
        there = ", ".join(f"{known.get(key)} there, {facts[key]} here" for key in changed)
        raise UserError(
            f"{folder} holds predictions with another {' and '.join(changed)} ({there}): give what they were made "
            "with, or another --runs-dir folder."
        )


def _claimed(folder: Path) -> bool:
    """Whether a folder has answers, and a record of what they are of."""
    answers = folder / PREDICTIONS
    return (folder / MODEL).exists() and answers.exists() and answers.stat().st_size > 0


def other_address(folder: Path, url: str) -> str:
    """Returns the address of the server that gave a folder's last answers where it is another than this, and ""
    otherwise. This machine has several names, which are one."""
    earlier = str(_record(folder).get("address", ""))
    return earlier if earlier and _place(earlier) != _place(url) else ""


@contextmanager
def address_noted(folder: Path, url: str, on_prediction: OnPrediction) -> Iterator[OnPrediction]:
    """Yields a function that passes answers on, and records the server's address with the first new one, or once all
    is answered. One that refuses and answers nothing, as a wrong address, is not that of any answers."""
    noted = False

    def note() -> None:
        nonlocal noted
        if not noted:
            noted = True
            write_json(folder / MODEL, _record(folder) | {"address": url})

    def watched(found: Prediction, new: bool) -> None:
        if new:
            note()
        on_prediction(found, new)

    yield watched
    note()


def _place(url: str) -> str:
    return re.sub(r"(?<=://)(localhost|127\.0\.0\.1|\[::1\])(?=[:/]|$)", "localhost", url)


def note_positions(folder: Path, made_for: int | None) -> None:
    """Records how many positions the model was made for."""
    if made_for is not None and positions(folder) != made_for:
        write_json(folder / MODEL, _record(folder) | {"positions": made_for})


def note_anatomy(folder: Path, layers: str, parameters: int, positions: int | None) -> None:
    """Records what the model of a folder consists of, and how many positions it was made for."""
    note_positions(folder, positions)
    write_json(folder / ANATOMY, {"layers": layers, "parameters": parameters})


def tokenizer_of(folder: Path) -> str:
    """Reads the name of the tokenizer in which a folder's lengths are counted; "" where it is not recorded."""
    return str(_record(folder).get("tokenizer", ""))


def counting_of(folder: Path) -> str | None:
    """Returns "server" or "approximate" where that counted the lengths of a folder's answers, and None otherwise."""
    path = folder / PREDICTIONS
    known = tokenizer_of(folder) if path.exists() and path.stat().st_size else ""
    return known if known in (APPROXIMATE, SERVER) else None


def precision_of(folder: Path) -> str:
    """Reads the precision of a folder's answers; "" where it is not recorded."""
    return str(_record(folder).get("precision", ""))


def positions(folder: Path) -> int | None:
    """Reads how many positions the model was made for; None where that is unknown."""
    found = _record(folder).get("positions")
    return found if isinstance(found, int) else None


def _record(folder: Path) -> dict[str, Any]:
    """Reads what is recorded of a folder's model; {} where nothing is. Raises UserError where it is damaged."""
    path = folder / MODEL
    advice = "if all answers beside it are of one model and tokenizer, remove this file alone and run again"
    known = read_json(path, advice) if path.exists() else {}
    if not isinstance(known, dict):
        raise UserError(f"{path} is damaged (it is no object): {advice}.")
    return known


def is_exact(said: str) -> bool:
    """Whether lengths are exact where questions were put as a sentence of `ways` says."""
    return not said.endswith(INEXACT)


def ways(folder: Path) -> dict[str, str]:
    """Reads how questions were put, by the label of their answers; {} where nothing is recorded.

    Raises UserError where the file is damaged: without it, lengths that are approximate would be taken for exact ones.
    """
    path = folder / ASKED
    advice = "remove this file alone and run the same command without --rescore, which writes it again and asks no "
    advice += "question twice"
    known = read_json(path, advice) if path.exists() else {}
    if not isinstance(known, dict) or not all(isinstance(said, str) for said in known.values()):
        raise UserError(f"{path} is damaged (it is no object of sentences): {advice}.")
    return known


def way_of(folder: Path, label: str) -> str:
    """Returns how the questions under a label were put; "" for a model that was asked here.

    Where a server was asked and `ASKED` is lost, the name of its tokenizer still tells whether lengths are exact.
    """
    if (said := ways(folder).get(label)) or precision_of(folder) != SERVED:
        return said or ""
    return UNRECORDED + INEXACT * (tokenizer_of(folder) == APPROXIMATE)
