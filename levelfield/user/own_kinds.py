"""Says of a file of another kind than those that are read as data how to convert it.

    other_kind(Path("rows.xlsx"), (".csv", ".parquet"))
    # rows.xlsx is no file of data: what is read ends in .csv or .parquet, or is a folder, such as one with x.npy and
    # y.npy. Save its sheet as CSV.

Nobody needs the packages that such files are of: the programs that wrote them write other formats, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from levelfield.spec import UserError

SHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
ARRAYS = (".npz", ".pt", ".pth", ".pkl", ".pickle", ".h5", ".hdf5", ".mat", ".safetensors")
PACKERS = {
    b"\x1f\x8b": ("gzip", "with `gzip -dc`"),
    b"PK\x03\x04": ("zip", "or where it is a spreadsheet, save its sheet as CSV"),
    b"\xfd7zXZ": ("xz", "with `xz -dc`"),
    b"\x28\xb5\x2f\xfd": ("zstd", "with `zstd -dc`"),
}
"""What packed files begin with, what packs them, and how to undo it."""
PACKED = (".gz", ".zip", ".bz2", ".xz", ".zst", ".tar", ".tgz", ".7z")


def other_kind(path: Path, endings: Sequence[str]) -> UserError:
    """Returns the error for a file whose ending is none of `endings`, with what to do about it."""
    listed = f"{', '.join(endings[:-1])} or {endings[-1]}"
    return UserError(
        f"{path} is no file of data: what is read ends in {listed}, or is a folder, such as one with x.npy and y.npy. "
        f"{_conversion(path)}."
    )


def require_unpacked(path: Path, head: bytes) -> None:
    """Raises UserError for a packed file. head: its first bytes."""
    for mark, (packer, way) in PACKERS.items():
        if head.startswith(mark):
            raise UserError(f"{path} is packed by {packer}, whatever its name says: unpack it first, {way}.")


def _conversion(path: Path) -> str:
    ending = path.suffix.lower()
    if ending in SHEETS:
        return "Save its sheet as CSV"
    if ending == ".npy":
        return "Give its folder instead, with inputs in x.npy and labels in y.npy"
    if ending in ARRAYS:
        return "Write its arrays with np.save as x.npy and y.npy into a folder, and give that"
    if ending == ".json":
        lines = shlex.join(["jq", "-c", ".[]", str(path)])
        return f"Write one object a line, for example by `{lines} > {shlex.quote(str(path.with_suffix('.jsonl')))}`"
    if ending in PACKED:
        return "Unpack it first"
    return "If it is in one of these formats, rename it, such as to " + shlex.quote(f"{path}.csv")
