"""Protocols as tuples of phases."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tiny import MODEL, FirstSymbol, recipe

from levelfield import protocols
from levelfield.objectives import Causal, Classify, Masked, Sum
from levelfield.run import check
from levelfield.spec import Duration, Phase, Protocol, Run, UserError

R = recipe()


def test_shapes():
    assert [type(p.objective) for p in protocols.scratch(R).phases] == [Classify]
    masked = protocols.spt_masked(R, R, 0.5, loss="l1", block=4)
    assert masked.phases[0].objective == Masked(ratio=0.5, block=4, loss_kind="l1")
    assert [p.start for p in masked.phases] == ["fresh", "previous"]
    assert protocols.spt_causal(R, R).phases[0].objective == Causal()
    rich = protocols.enriched(R, augment=True, denoise=protocols.DENOISE).phases[0]
    assert rich.augment
    assert isinstance(rich.objective, Sum)
    assert (protocols.DENOISE.ratio, protocols.DENOISE.random) == (0.3, pytest.approx(1 / 3))


def test_enriched_says_what_enriches():
    with pytest.raises(UserError, match="Nothing is enriched"):
        protocols.enriched(R)
    assert protocols.enriched(R, extra_sets=True).phases == protocols.scratch(R).phases


def test_nothing_to_match(tmp_path: Path):
    (tmp_path / "w.safetensors").write_bytes(b"x")
    with pytest.raises(UserError, match="no phases"):
        protocols.matched(protocols.pretrained(tmp_path / "w.safetensors"), Duration(9, "steps"))
    with pytest.raises(UserError, match="pretrained has no phase that a share"):
        protocols.scarce(protocols.pretrained(tmp_path / "w.safetensors"), 0.5)


@pytest.mark.parametrize("shares", [None, (0.4, 0.6), (0.0, 1.0)])
def test_matched_arms_cost_the_same(shares: tuple[float, ...] | None):
    total = Duration(1000, "examples")
    spt = protocols.matched(protocols.spt_masked(R, R, 0.3), total, shares)
    scratch = protocols.matched(protocols.scratch(R), total)
    assert sum(p.recipe.budget.value for p in spt.phases) == pytest.approx(1000)
    assert [p.recipe.budget for p in scratch.phases] == [total]
    assert spt.name == "spt_masked_matched"
    odd = protocols.matched(protocols.spt_masked(R, R, 0.3), Duration(7, "steps"), (0.4, 0.6))
    assert [p.recipe.budget.value for p in odd.phases] == [3, 4]
    with pytest.raises(UserError, match="2 phases"):
        protocols.matched(protocols.spt_masked(R, R, 0.3), total, (0.5, 0.6))
    with pytest.raises(UserError, match=r"budget of 1 \(in steps\) is too little for the 2 phases of spt_masked: give"):
        protocols.matched(protocols.spt_masked(R, R, 0.3), Duration(1, "steps"), (0.4, 0.6))
    assert protocols.matched(protocols.scratch(R), Duration(1, "steps")).phases[0].recipe.budget.value == 1


def test_causal_protocols_make_the_model_causal():
    protocol = protocols.spt_causal(R, R)
    with pytest.raises(UserError, match="causal=True"):
        check(Run(FirstSymbol(), MODEL, protocol, 0))
    assert protocols.causal_where_needed(MODEL, protocol).causal
    assert protocols.causal_where_needed(MODEL, protocols.scratch(R)) is MODEL
    check(Run(FirstSymbol(), protocols.causal_where_needed(MODEL, protocol), protocol, 0))


def test_a_first_phase_cannot_follow_nothing():
    headless = Protocol("odd", (Phase(Classify(), R, start="previous"),))
    with pytest.raises(UserError, match="first phase"):
        check(Run(FirstSymbol(), MODEL, headless, 0))


def test_pretrained_needs_its_file(tmp_path: Path):
    with pytest.raises(UserError, match="No weights"):
        protocols.pretrained(tmp_path / "none.safetensors")
    (tmp_path / "w.safetensors").write_bytes(b"x")
    assert protocols.pretrained(tmp_path / "w.safetensors").phases == ()


def test_pretrained_weights_larger_than_memory_are_known_by_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "w.safetensors").write_bytes(b"x")
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("it is held in memory whole"))
    assert protocols.pretrained(tmp_path / "w.safetensors").weights_sha256 == hashlib.sha256(b"x").hexdigest()


def test_the_share_of_labels_is_read_from_names_that_tell_one():
    for share in (1.0, 0.5, 0.1, 1e-5):
        arm = protocols.scarce(protocols.spt_masked(recipe(), recipe(), 0.5), share)
        for name in (arm.name, protocols.matched(arm, Duration(4, "epochs")).name):
            assert protocols.share_of(name) == share, name
    for name in ("x_2d", "top_5", "v_1.0.2", "0.1"):
        assert protocols.share_of(name) == 1
