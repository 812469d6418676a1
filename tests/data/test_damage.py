"""Files of runs that are damaged, missing or may not be read: one sentence each, and the rest goes on."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest
from tiny import MODEL, FirstSymbol, recipe

from levelfield import protocols
from levelfield.files import read_json, read_text, unreadable, write_json
from levelfield.run import execute, load_net
from levelfield.runs import store
from levelfield.spec import Run, UserError

RUN = Run(FirstSymbol(), MODEL, protocols.scratch(recipe(steps=10)), 0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    execute(RUN, store.directory(root, RUN), root / "data", "cpu")
    return store.directory(root, RUN)


@pytest.fixture
def where(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / RUN.id))


def test_one_changed_bit_of_the_weights_is_noticed(where: Path) -> None:
    load_net(RUN, where)
    path = where / store.WEIGHTS
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"has changed since .* run again\.$"):
        load_net(RUN, where)


def test_weights_of_a_run_without_a_checksum_are_read_as_before(where: Path) -> None:
    known = read_json(where / store.DONE)
    assert len(known.pop("weights_sha256")) == 64
    write_json(where / store.DONE, known)
    load_net(RUN, where)
    (where / store.WEIGHTS).write_bytes((where / store.WEIGHTS).read_bytes()[:-9])
    with pytest.raises(UserError, match="is damaged"):
        load_net(RUN, where)
    (where / store.WEIGHTS).unlink()
    with pytest.raises(UserError, match="is missing"):
        load_net(RUN, where)


@pytest.mark.parametrize("content", ["", "{", "[]", "7", '{"weights_sha256": 5}'])
def test_a_damaged_last_file_of_a_run_is_told(where: Path, content: str) -> None:
    (where / store.DONE).write_text(content)
    with pytest.raises(UserError, match=r"(damaged|changed).*remove .* and run again"):
        load_net(RUN, where)


@pytest.mark.parametrize(
    ("number", "removes", "says"),
    [
        (errno.ENOENT, True, "is missing"),
        (errno.EISDIR, True, "is a folder"),
        (errno.EACCES, False, "may not be read"),
        (errno.EPERM, False, "may not be read"),
        (errno.EMFILE, False, "too many files are open"),
        (errno.ENFILE, False, "too many files are open"),
        (errno.EIO, False, "see to the disk"),
    ],
)
def test_removing_a_file_is_advised_for_damage_only(number: int, removes: bool, says: str) -> None:
    sentence = str(unreadable(Path("rows.jsonl"), OSError(number, "why"), "remove it and run again"))
    assert says in sentence
    assert ("remove it" in sentence) == removes


def test_text_that_is_none_is_damage(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"no UTF-8 text.*: remove it"):
        read_text(tmp_path / "a", "remove it")
    (tmp_path / "a").write_bytes(json.dumps("ä").encode())
    assert read_text(tmp_path / "a", "remove it") == json.dumps("ä")
