"""Tiny folders in every form in which CIFAR-10 comes, of random pictures.

    fixtures_cifar.write(tmp_path, "python")          # cifar-10-batches-py/data_batch_1, ...
    Image(train=100, test=40).build(tmp_path)

Any task whose pictures come from CIFAR-10 reads them; labels and pixels are those of `pictures`.
"""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path
from typing import Literal

import numpy as np

Form = Literal["python", "binary", "parquet", "npz"]
FORMS: tuple[Form, ...] = ("python", "binary", "parquet", "npz")


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N, 32, 32, 3) uint8 and labels (N,) uint8, every label present where N >= 10."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return pixels, (np.arange(count) % 10).astype(np.uint8)


def write(folder: Path, form: Form, train: int = 100, test: int = 40) -> Path:
    """The pictures `pictures(train, seed=0)` and `pictures(test, seed=1)` under `folder`; returns `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    splits = {"train": pictures(train, seed=0), "test": pictures(test, seed=1)}
    if form == "npz":
        (x, y), (x_test, y_test) = splits["train"], splits["test"]
        np.savez(folder / "cifar10.npz", x_train=x, y_train=y[:, None], x_test=x_test, y_test=y_test[:, None])
    elif form == "parquet":
        for split, (x, y) in splits.items():
            write_parquet(folder / f"{split}-00000-of-00001.parquet", x, y)
    else:
        inner = folder / f"cifar-10-batches-{'py' if form == 'python' else 'bin'}"
        inner.mkdir(exist_ok=True)
        x, y = splits["train"]
        fifths = zip(np.array_split(x, 5), np.array_split(y, 5))
        named_parts = {f"data_batch_{i}": part for i, part in enumerate(fifths, 1)} | {"test_batch": splits["test"]}
        for name, (x, y) in named_parts.items():
            data = old_pickle(x, y) if form == "python" else records(x, y)
            (inner / (name if form == "python" else f"{name}.bin")).write_bytes(data)
    return folder


def pack(folder: Path, form: Literal["python", "binary"]) -> Path:
    """The official archive's name and inner paths, from a folder that `write` made."""
    archive = folder / f"cifar-10-{form}.tar.gz"
    inner = f"cifar-10-batches-{'py' if form == 'python' else 'bin'}"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder / inner, inner)
    return archive


def planes(x: np.ndarray) -> np.ndarray:
    """(N, 32, 32, 3) -> (N, 3072): red, green, blue."""
    return np.stack([x[..., c].reshape(len(x), 1024) for c in range(3)], 1).reshape(len(x), 3072)


def records(x: np.ndarray, y: np.ndarray) -> bytes:
    return b"".join(bytes([label]) + row.tobytes() for label, row in zip(y, planes(x)))


def old_pickle(x: np.ndarray, y: np.ndarray) -> bytes:
    """Protocol 2 as Python 2 wrote the official files: byte strings, and an array of numpy.core.multiarray."""
    data, labels = planes(x).tobytes(), b"".join(b"K" + bytes([label]) for label in y)
    shape = struct.pack("<H", len(x)), struct.pack("<H", 3072)
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        + (b"(K\x01M" + shape[0] + b"M" + shape[1] + b"\x86" + dtype + b"\x89")
        + (b"T" + struct.pack("<i", len(data)) + data + b"tb")
    )
    return b"\x80\x02}(U\x0bbatch_labelU\x04tinyU\x06labels](" + labels + b"eU\x04data" + array + b"u."


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def write_parquet(
    path: Path, x: np.ndarray, y: np.ndarray, image: str = "img", label: str = "label", kind: str = "PNG"
) -> None:
    import duckdb

    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE t ({image} STRUCT(bytes BLOB, path VARCHAR), {label} BIGINT)")
        rows = [[encoded(p, kind), f"{i:05d}", int(c)] for i, (p, c) in enumerate(zip(x, y))]
        database.executemany("INSERT INTO t VALUES ({'bytes': ?::BLOB, 'path': ?}, ?)", rows)
        database.execute(f"COPY t TO '{path}' (FORMAT parquet)")
