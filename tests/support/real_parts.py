"""Parts of the real data that is large, in archives as the whole is, for tests that build a task again and again.

    part(Path("data"), Path("few"))      # links to every folder of `data`; of imdb and speech_commands, few files

`test_text.py` and `test_speech.py` read the whole archives.
"""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

from fixtures_imdb import pack

from levelfield.tasks._texts import imdb

REVIEWS = 150  # of each official split and label
CLIP = re.compile(r"\.txt$|/[0-9][0-9a-f]+_nohash_\d+\.wav$")  # lists, and the clips of ten speakers in sixteen


def part(real: Path, into: Path) -> Path:
    """Returns `into`, an empty folder, with all that `real` has, but few reviews and clips of the archives."""
    for folder in real.iterdir():
        make, pattern = MADE.get(folder.name, (None, ""))
        whole = sorted(folder.glob(pattern)) if make else []
        if make and whole:
            (into / folder.name).mkdir()
            make(whole[0], into / folder.name)
        else:
            (into / folder.name).symlink_to(folder.resolve())
    return into


def _reviews(whole: Path, into: Path) -> None:
    few = {name[0].decode(): text for name, text in imdb._files(whole, imdb.KINDS) if int(name[3]) < REVIEWS}
    (into / "aclImdb.tar").write_bytes(pack(few))


def _clips(whole: Path, into: Path) -> None:
    with tarfile.open(whole, "r|*") as source, tarfile.open(into / "speech_commands.tar", "w") as few:
        for member in source:
            if member.isfile() and CLIP.search(member.name):
                few.addfile(member, source.extractfile(member))


MADE = {"imdb": (_reviews, "aclImdb*.tar*"), "speech_commands": (_clips, "speech_commands*.tar*")}
