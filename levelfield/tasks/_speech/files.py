"""Reads Google Speech Commands v0.02 from its archive or its folders, and assigns each clip to a split.

    speech_commands_v0.02.tar.gz        or the tree it unpacks to
        yes/0a7c2a8d_nohash_0.wav       word / speaker _nohash_ take
        validation_list.txt  testing_list.txt
        _background_noise_/             ignored

An archive is read twice as a stream, for the names and for the sound; nothing is unpacked to disk. Where both lists are
missing, `partition` computes the split from the speaker's name, as the release's README does.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import tarfile
import wave
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np

from levelfield.spec import Progress, SplitName, UserError

ARCHIVE = "speech_commands_v0.02.tar.gz"
PATTERN = "speech_commands*.tar*"
NOISE = "_background_noise_"
LISTS: dict[str, SplitName] = {"validation_list.txt": "val", "testing_list.txt": "test"}
RATE = 16_000  # samples per second; a clip is one second
BUCKETS = 2**27  # of the README's hash
COMMANDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
OTHERS = ("backward", "bed", "bird", "cat", "dog", "follow", "forward", "happy", "house", "learn", "marvin", "sheila")
WORDS = tuple(sorted((*COMMANDS, *DIGITS, *OTHERS, "tree", "visual", "wow")))
"""The 35 words; the index of a word is its label."""

Entry = tuple[str, Callable[[], bytes]]
"""A file's name relative to the root of the tree, and a function that reads its bytes."""


@dataclass(frozen=True)
class Survey:
    """The names of all clips, such as "yes/0a7c2a8d_nohash_0.wav", by split.

    They are sorted by the SHA-1 of the name, so that the first n are spread over words and speakers. by: what assigned
    the splits, "lists" or "hash".
    """

    names: Mapping[SplitName, tuple[str, ...]]
    by: str


def speaker(name: str) -> str:
    """Returns the speaker of a clip: 0a7c2a8d for "yes/0a7c2a8d_nohash_0.wav"."""
    return PurePosixPath(name).name.split("_nohash_")[0]


def partition(name: str) -> SplitName:
    """Assigns a clip to a split by the SHA-1 of its speaker: a tenth of speakers to val, a tenth to test.

    Source: `which_set` in the release's README.
    """
    bucket = int(hashlib.sha1(speaker(name).encode(), usedforsecurity=False).hexdigest(), 16) % BUCKETS
    percent = bucket * (100 / (BUCKETS - 1))
    return "val" if percent < 10 else "test" if percent < 20 else "train"


def find(sources: Path | None, task: str, page: str) -> Path:
    """Finds the archive, or the folder with a folder for each word. Raises UserError where there is neither."""
    if sources is None:
        raise UserError(
            f"Task {task} needs Speech Commands v0.02: run `levelfield data prepare {task}`, or download "
            f"{ARCHIVE} from {page} into a folder and add --from FOLDER to it."
        )
    if not sources.exists():
        raise UserError(f"{sources} does not exist: name the folder that holds {ARCHIVE}.")
    if sources.is_file():
        return sources
    below = sorted(p for p in sources.iterdir() if p.is_dir())
    for folder in (sources, *below, sources / "SpeechCommands" / "speech_commands_v0.02"):
        archives = sorted(folder.glob(PATTERN), key=lambda p: (p.name != ARCHIVE, p.name))
        if archives:
            return archives[0]
        if any((folder / word).is_dir() for word in COMMANDS):
            return folder
    raise UserError(f"{sources} holds neither {ARCHIVE} nor a folder for each word: get the archive from {page}.")


def survey(at: Path, progress: Progress) -> Survey:
    """Lists the clips and assigns them to splits. Raises UserError for words and lists that are not as released."""
    names: list[str] = []
    listed: dict[str, SplitName] = {}
    lists = 0
    for name, data in entries(at):
        if name in LISTS:
            lists += 1
            for line in data().decode(errors="replace").split():
                if listed.setdefault(line, LISTS[name]) != LISTS[name]:
                    raise UserError(f"{at}: {line} is in both lists of clips: get the release again.")
        else:
            names.append(_known(name, at))
    if lists == 1:
        raise UserError(f"{at} has one of {' and '.join(LISTS)}: it needs both, or neither for the README's hash rule.")
    if len(set(names)) < len(names):
        raise UserError(f"{at} holds a clip twice: get the release again.")
    names.sort(key=lambda name: hashlib.sha1(name.encode(), usedforsecurity=False).digest())
    split: dict[SplitName, list[str]] = {"train": [], "val": [], "test": []}
    for name in names:
        split[listed.get(name, "train") if lists else partition(name)].append(name)
    progress(f"listing {at.name}", len(names), len(names))
    return Survey({key: tuple(value) for key, value in split.items()}, "lists" if lists else "hash")


def clips(at: Path, wanted: Mapping[str, object]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields name and sound, (samples,) int16, of the wanted clips, in the order in which they are stored."""
    for name, data in entries(at):
        if name in wanted:
            yield name, decode(data(), f"{name} in {at}")


def decode(data: bytes, what: str) -> np.ndarray:
    """Decodes a wav file: (samples,) int16. Raises UserError for anything but 16-bit mono at 16 kHz."""
    try:
        with wave.open(BytesIO(data)) as file:
            form = (file.getnchannels(), 8 * file.getsampwidth(), file.getframerate())
            count, frames = file.getnframes(), file.readframes(file.getnframes())
    except (wave.Error, EOFError, RuntimeError) as error:
        why = str(error) or "it ends too soon"
        raise UserError(f"{what} is not a readable wav file ({why}): get the release again.") from error
    if form != (1, 16, RATE):
        raise UserError(
            f"{what} has {form[0]} channels of {form[1]} bits at {form[2]:,} Hz: clips are mono, 16, 16,000."
        )
    if not count or len(frames) != 2 * count:
        raise UserError(f"{what} holds {len(frames) // 2:,} of {count:,} samples: get the release again.")
    return np.frombuffer(frames, "<i2").astype(np.int16, copy=False)


def entries(at: Path) -> Iterator[Entry]:
    """Yields the wav files and lists of a folder, sorted by name, or of an archive, in its order. Raises UserError."""
    if at.is_dir():
        for path in sorted([*at.glob("*/*.wav"), *(at / name for name in LISTS)]):
            name = path.relative_to(at).as_posix()
            if path.is_file() and _is_wanted(name):
                yield name, path.read_bytes
        return
    try:
        with _open(at) as stream:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    parts = PurePosixPath(member.name).parts
                    name = "/".join(parts[-2:] if member.name.endswith(".wav") else parts[-1:])
                    if member.isfile() and _is_wanted(name):
                        yield name, _extractor(archive, member)
            while stream.read(2**20):  # up to the checksum of the archive, which is beyond what tarfile reads
                pass
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError, zlib.error) as error:
        raise UserError(f"{at} is truncated or damaged ({error}): download it again.") from error


def _extractor(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Callable[[], bytes]:
    def extract() -> bytes:
        file = archive.extractfile(member)
        return file.read() if file else b""

    return extract


def _open(at: Path) -> gzip.GzipFile | lzma.LZMAFile | BinaryIO:
    if at.suffix in (".gz", ".tgz"):
        return gzip.open(at)
    return lzma.open(at) if at.suffix == ".xz" else at.open("rb")


def _is_wanted(name: str) -> bool:
    """Whether a file is a list or a clip, rather than noise or a hidden file that some systems add."""
    folder, _, file = name.rpartition("/")
    return name in LISTS or (file.endswith(".wav") and folder != NOISE and not file.startswith("."))


def _known(name: str, at: Path) -> str:
    if name.split("/")[0] not in WORDS or "_nohash_" not in name:
        raise UserError(
            f"{at}: {name} is not a clip of Speech Commands, which are WORD/SPEAKER_nohash_N.wav: remove it."
        )
    return name
