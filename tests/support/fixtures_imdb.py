"""Tiny copies of the IMDb review set in the official layout, of random words.

    fixtures_imdb.write(tmp_path, "gz")          # aclImdb_v1.tar.gz
    Text(length=256, train=50, val=4, test=30).build(tmp_path)

The reviews are those of `reviews()`. Beside them lie the official archive's other files, which nobody should read.
"""

from __future__ import annotations

import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Form = Literal["gz", "xz", "tar", "folder", "inside"]
FORMS: tuple[Form, ...] = ("gz", "xz", "tar", "folder", "inside")
ARCHIVES: dict[Form, str] = {"gz": "aclImdb_v1.tar.gz", "xz": "aclImdb_labeled.tar.xz", "tar": "aclImdb.tar"}
WORDS = ["a", "film", "café", "<br", "/><br", "/>naïve", "it's", "slow;", "grand—really", "Ω", "actors,", "the end."]
PER_KIND = 40  # reviews of train/pos and the other three


def reviews(unlabelled: int = 0) -> dict[str, bytes]:
    """Path below aclImdb -> text. Of 30 to 700 words, of which one in ten is "great" in positive ones, else "dull"."""
    rng = random.Random(7)
    made: dict[str, bytes] = {}
    for split in ("test", "train"):
        for kind, stars in (("neg", (1, 4)), ("pos", (7, 10))):
            for number in range(PER_KIND):
                made[f"{split}/{kind}/{number}_{rng.randint(*stars)}.txt"] = _text(rng, kind)
    for number in range(unlabelled):
        made[f"train/unsup/{number}_0.txt"] = _text(rng, "unsup")
    return made


def _text(rng: random.Random, kind: str) -> bytes:
    count = rng.choice([30, 60, 200, 700])
    leaning = {"pos": "great", "neg": "dull"}.get(kind, "long")
    words = [leaning if rng.random() < 0.1 else rng.choice(WORDS) for _ in range(count)]
    return f"{rng.randrange(10**12)} {' '.join(words)}".encode()


def write(folder: Path, form: Form, texts: Mapping[str, bytes] | None = None) -> Path:
    """Makes the copy in `folder`, which it returns. "inside": the unpacked folder aclImdb itself is `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"README": b"Large Movie Review Dataset v1.0", "train/urls_pos.txt": b"http://www.imdb.com/title/tt0\n"}
    files |= {"train/labeledBow.feat": b"9 0:9 1:1\n", "imdbEr.txt": b"0.5\n"}
    files |= texts or reviews()
    if form in ARCHIVES:
        tarred = pack(files)
        squeezed = {"gz": gzip.compress(tarred), "xz": lzma.compress(tarred)}.get(form, tarred)
        (folder / ARCHIVES[form]).write_bytes(squeezed)
        return folder
    for name, data in files.items():
        path = folder / ("" if form == "inside" else "aclImdb") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def pack(files: Mapping[str, bytes]) -> bytes:
    """A tar of them under aclImdb/, with an entry for that folder as in the official one."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        top = tarfile.TarInfo("aclImdb/")
        top.type = tarfile.DIRTYPE
        tar.addfile(top)
        for name, data in files.items():
            header = tarfile.TarInfo(f"aclImdb/{name}")
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return made.getvalue()
