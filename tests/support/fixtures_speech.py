"""Speech Commands as released, in small: every word, wav files written byte by byte, both lists, noise to leave out.

    tree = fixtures_speech.write(tmp_path)
    fixtures_speech.pack(tree, tmp_path / "speech_commands_v0.02.tar.gz")

`sound(name)` is what the clip of that name holds.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import struct
import tarfile
from pathlib import Path

import numpy as np

WORDS = (
    *("backward", "bed", "bird", "cat", "dog", "down", "eight", "five", "follow", "forward", "four", "go", "happy"),
    *("house", "learn", "left", "marvin", "nine", "no", "off", "on", "one", "right", "seven", "sheila", "six", "stop"),
    *("three", "tree", "two", "up", "visual", "wow", "yes", "zero"),
)
SPEAKERS = {"train": "00f0204f", "val": "8b775397", "test": "2aa787cf"}  # where the official lists have them
SHORT, LONG = "cat/00f0204f_nohash_0.wav", "dog/00f0204f_nohash_0.wav"


def names(split: str) -> list[str]:
    """The names of a split's clips: one of each word, by the split's only speaker."""
    return [f"{word}/{SPEAKERS[split]}_nohash_0.wav" for word in WORDS]


def sound(name: str) -> np.ndarray:
    """The samples of a clip, (samples,) int16: one second, except for two clips."""
    samples = {SHORT: 11_000, LONG: 17_500}.get(name, 16_000)
    rng = np.random.default_rng(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))
    return (rng.normal(0, 2000, samples) * np.hanning(samples)).astype(np.int16)


def wav(samples: np.ndarray, *, channels: int = 1, rate: int = 16_000, bits: int = 16) -> bytes:
    """A wav file: RIFF, a format chunk, a chunk that readers must skip, and the data."""
    data = samples.astype("<i2").tobytes()
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form
    chunks += b"LIST" + struct.pack("<I", 4) + b"INFO" + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def write(folder: Path, lists: bool = True) -> Path:
    """Writes the tree to `folder`, and returns the folder."""
    for split in SPEAKERS:
        for name in names(split):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wav(sound(name)))
    noise = folder / "_background_noise_"
    noise.mkdir()
    (noise / "white_noise.wav").write_bytes(wav(np.zeros(40_000, np.int16)))
    (folder / "README.md").write_text("# Speech Commands Data Set v0.02\n")
    if lists:
        for split, name in (("val", "validation_list.txt"), ("test", "testing_list.txt")):
            (folder / name).write_text("".join(f"{n}\n" for n in names(split)))
    return folder


def pack(tree: Path, archive: Path) -> Path:
    """Packs the tree as the release is packed, with members that begin with "./"."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        tar.add(tree, ".")
    whole = stream.getvalue()
    archive.write_bytes(gzip.compress(whole, 1) if archive.suffix == ".gz" else lzma.compress(whole, preset=0))
    return archive
