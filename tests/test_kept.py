"""Kept reference tensors name the library and version that made them, are small, and are those that can be made."""

from __future__ import annotations

from kept import FOLDER, drawn, read
from reference.make import PEERS
from safetensors import safe_open


def test_every_file_can_be_made_again_and_names_its_maker() -> None:
    files = sorted(FOLDER.glob("*.safetensors"))
    assert [path.stem for path in files] == sorted(PEERS)
    assert sum(path.stat().st_size for path in files) < 2 << 20
    for path in files:
        with safe_open(path, "pt") as file:
            about = file.metadata()
        peer = PEERS[path.stem]
        assert about["library"] == peer.library and about["version"].split(".")[0] == str(peer.major)


def test_a_weight_depends_on_its_name_and_shape_alone() -> None:
    assert drawn("a", 3).equal(drawn("a", 3)) and not drawn("a", 3).equal(drawn("b", 3))
    case = read("bloom")[""]
    assert {name: tuple(value.shape) for name, value in case.weights.items()} == case.shapes
