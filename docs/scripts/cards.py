"""Writes the data cards in docs/cards/ from arrays that are prepared.

    python docs/scripts/cards.py text image_15k --data data     # docs/cards/text.md and docs/cards/image_15k.md
    python docs/scripts/cards.py all --data data                # of every named task that is prepared there

A card is what `levelfield data verify` prints.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from levelfield import tasks
from levelfield.data import card as cards
from levelfield.data import prepared

PLACE = Path(__file__).resolve().parents[1] / "cards"


def write(name: str, root: Path) -> Path | None:
    """The card of one named task; None where it is not prepared."""
    task = tasks.find(name)
    at = prepared.folder(task, root)
    if not (at / prepared.MANIFEST).exists():
        return None
    about = prepared.manifest(at)
    card = cards.make(task, prepared.read(at), about.get("notes", ()), about.get("files", False))
    PLACE.mkdir(exist_ok=True)
    path = PLACE / f"{name}.md"
    path.write_text(cards.markdown(card))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description="Write data cards.")
    parser.add_argument("tasks", nargs="+", help="names of tasks, or all")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of prepared data")
    arguments = parser.parse_args()
    names = tasks.names() if arguments.tasks == ["all"] else arguments.tasks
    missing = 0
    for name in names:
        path = write(name, arguments.data)
        missing += path is None
        print(f"Wrote {path}" if path else f"{name} is not prepared in {arguments.data}")
    return 1 if missing and arguments.tasks != ["all"] else 0


if __name__ == "__main__":
    sys.exit(main())
