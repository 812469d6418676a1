"""The task of certified range against readers that list windows one by one, and against networks that are built."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from levelfield.cli.app import main
from levelfield.data import card as cards
from levelfield.data import prepared
from levelfield.mixers import classes
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.mixers.spade import SPADE
from levelfield.model import Network
from levelfield.objectives import default_objective, heads
from levelfield.spec import Block, Examples, MixerConfig, Model, SplitName, UserError
from levelfield.spec.contents import checksum
from levelfield.tasks._windows import same_windows
from levelfield.tasks.reach import Reach, additive_votes

SMALL = Reach(5, symbols=6, train=60, val=20, test=40)
THREE = Reach(6, marks=3, symbols=4, train=60, val=12, test=24, seed=3)
MIXED = replace(SMALL, range=9, easiest=2, train=240)
every = pytest.mark.parametrize("task", [SMALL, THREE, MIXED], ids=["two", "three", "mixed"])


def rows(examples: Examples) -> np.ndarray:
    return examples.x.reshape(len(examples), -1)


def sequences(examples: Examples) -> list[list[int]]:
    return [examples.sequence(i).tolist() for i in range(len(examples))]


def windows(sequence: list[int], width: int) -> Counter[tuple[int, ...]]:
    """Every window that holds a step of the sequence, with -1 outside."""
    outside = [-1] * (width - 1)
    long = outside + sequence + outside
    return Counter(tuple(long[i : i + width]) for i in range(len(long) - width + 1))


@every
def test_twins_have_the_same_windows_up_to_the_range_and_others_beyond(task: Reach) -> None:
    for split, examples in task.build(None).items():
        x = sequences(examples)
        for first in range(0, len(x), task.twins):
            twins = x[first : first + task.twins]
            places = [at for at, symbol in enumerate(twins[0]) if symbol >= task.symbols]
            apart = places[1] - places[0]
            assert apart == task.range or split == "train"
            for width in range(1, apart + 1):
                assert all(windows(twin, width) == windows(twins[0], width) for twin in twins)
            if task.marks == 2:
                assert windows(twins[0], apart + 1) != windows(twins[1], apart + 1)
            assert len({tuple(twin) for twin in twins}) == task.twins


@every
def test_the_filler_is_the_same_in_every_gap_and_labels_follow_from_the_order(task: Reach) -> None:
    parities = {order: i for i, order in enumerate(permutations(range(task.marks)))}
    for examples in task.build(None).values():
        for sequence, label, word in zip(sequences(examples), examples.y, examples.slices["order"], strict=True):
            places = [at for at, symbol in enumerate(sequence) if symbol >= task.symbols]
            apart = places[1] - places[0]
            gaps = [sequence[at - apart + 1 : at] for at in [*places, places[-1] + apart]]
            assert len(gaps) == task.marks + 1 and all(gap == gaps[0] for gap in gaps)
            assert places[0] >= apart and places[-1] + apart < len(sequence)  # a step is left on either side
            around = len(sequence) - task.marks * apart - apart + 1
            assert around == task.around  # so shorter ranges are shorter sequences
            order = tuple(sequence[at] - task.symbols for at in places)
            assert word == "".join("abc"[mark] for mark in order)
            # Python lists permutations of 2 and 3 so that the parities are 0 1 and 0 1 1 0 0 1.
            assert label == (0, 1, 1, 0, 0, 1)[parities[order]]


def test_training_ranges_are_doublings_of_the_easiest() -> None:
    x = sequences(MIXED.build(None)["train"])
    apart = Counter(int(np.diff(np.flatnonzero(np.array(sequence) >= 6))[0]) for sequence in x)
    assert MIXED.padded and not SMALL.padded
    assert set(apart) == {2, 4, 8, 9} == set(MIXED.ranges) and min(apart.values()) > 240 / 4 / 2
    plain = replace(MIXED, easiest=None).build(None)
    for split in ("val", "test"):
        assert np.array_equal(plain[split].x, MIXED.build(None)[split].x)


def test_how_many_train_does_not_change_what_is_tested() -> None:
    more = replace(SMALL, train=100).build(None)
    assert np.array_equal(SMALL.build(None)["test"].x, more["test"].x)
    assert SMALL.build(None)["train"].x.shape != more["train"].x.shape


@pytest.mark.parametrize(
    "task",
    [
        Reach(512, train=4_000, val=400, test=400),
        Reach(512, easiest=4, train=4_000, val=400, test=400),
        Reach(512, marks=3, train=600, val=600, test=4_200),
        Reach(300, symbols=300, train=2_000, val=2_000, test=2_000),
    ],
    ids=["two marks", "short ones too", "three marks", "two bytes"],
)
def test_drawing_takes_no_more_memory_than_is_asked_for(task: Reach) -> None:
    tracemalloc.start()
    task.build(None)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most <= task.bytes_to_draw


def test_windows_are_compared_as_lists_of_them_are() -> None:
    rng = np.random.default_rng(0)
    answers = []
    for _ in range(400):
        x = np.stack([rng.permutation(line) for line in np.tile(rng.integers(0, 2, 7), (3, 1))])
        width = int(rng.integers(1, 5))
        first = windows(x[0].tolist(), width)
        answers.append(all(windows(line.tolist(), width) == first for line in x))
        assert same_windows(x, width) == answers[-1]
    assert 20 < sum(answers) < 380


LEARNABLE = Reach(9, symbols=4, train=2_000, val=20, test=1_000)


def network(depth: int, mixers: tuple[MixerConfig, ...], *, task: Reach = LEARNABLE, **shape: Any) -> Network:
    """Mean pooling and no positions, unless `shape` says otherwise."""
    model = Model(mixers, depth, 24, block=Block(feedforward=24), **shape)
    return Network(model, task.input, heads(default_objective(task), task), mask_flag=False, seed=0)


def answers(net: Network, examples: Examples) -> torch.Tensor:
    """Logits of every example, (classes, twins, 2), in double precision, where rounding is far below any difference."""
    twins = len(np.unique(examples.slices["order"]))
    net = net.double().eval()
    x = torch.from_numpy(rows(examples).astype(np.int64))
    with torch.no_grad():
        logits = net.head("label", net.hidden_states(x, None), None)
    return logits.unflatten(0, (-1, twins))


def trained(net: Network, examples: Examples, steps: int) -> Network:
    x, y = torch.from_numpy(rows(examples).astype(np.int64)), torch.from_numpy(examples.y)
    optimizer = torch.optim.AdamW(net.parameters(), 5e-3)
    draws = torch.Generator().manual_seed(0)
    for _ in range(steps):
        batch = torch.randint(len(y), (64,), generator=draws)
        logits = net.train().head("label", net.hidden_states(x[batch], None), None)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, y[batch]).backward()
        optimizer.step()
    return net


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
@pytest.mark.parametrize("steps", [0, 60])
def test_a_stack_that_sees_no_further_than_the_range_answers_alike_to_twins(pooling: str, steps: int) -> None:
    """Four layers of kernel 3 see 9 steps, which is the range: exactly half is right, before training and after it."""
    splits = LEARNABLE.build(None)
    net = trained(network(4, (Conv(3, hidden=24),), pooling=pooling), splits["train"], steps)
    logits = answers(net, splits["test"])
    assert float(logits.diff(dim=0).abs().max()) > 1e-6, "the network ignores its input"
    assert float((logits[:, 0] - logits[:, 1]).abs().max()) < 1e-12
    right = logits.argmax(-1).flatten().numpy() == splits["test"].y
    assert right.mean() == 0.5 == LEARNABLE.bounded(9)


def test_a_stack_that_sees_one_step_more_to_each_side_is_not_bound() -> None:
    """One layer of kernel 11 has both marks in its window."""
    splits = LEARNABLE.build(None)
    before = answers(network(1, (Conv(11, hidden=24),)), splits["test"])
    assert float((before[:, 0] - before[:, 1]).abs().min()) > 1e-6
    logits = answers(trained(network(1, (Conv(11, hidden=24),)), splits["train"], 150), splits["test"])
    assert (logits.argmax(-1).flatten().numpy() == splits["test"].y).mean() > 0.95


CHUNKS = Reach(17, symbols=8, offset=2, train=4_000, val=200, test=1_000)


@pytest.mark.parametrize("mixer", [SPADE(state=0, heads=4, near="chunk", window=9), Attention(heads=4, block=4)])
def test_layers_that_part_a_sequence_into_blocks_are_not_bound(mixer: MixerConfig) -> None:
    """They see no more than the range, and a step's place in its block tells them more: no line is drawn for them."""
    net = network(1, (mixer,), task=CHUNKS)
    assert (net.model.receptive_field or 0) <= 17 and net.model.proved_field is None
    found = answers(net, CHUNKS.build(None)["test"])
    assert (found[:, 0] - found[:, 1]).abs().max() > 1e-4


@pytest.mark.slow
def test_a_layer_in_chunks_learns_the_order_beyond_its_window() -> None:
    splits = CHUNKS.build(None)
    net = network(1, (SPADE(state=0, heads=4, near="chunk", window=9),), task=CHUNKS)
    found = answers(trained(net, splits["train"], 400), splits["test"])
    assert (found.argmax(-1).flatten().numpy() == splits["test"].y).mean() > 0.9


BOUNDED = [
    pytest.param(mixer, id=str(mixer))
    for config in classes()
    for mixer in (
        *getattr(sys.modules[config.__module__], "EXAMPLES", (config(),)),
        *((SPADE(state=0, near="window", window=4), SPADE(state=0, near="chunk", window=4)) if config is SPADE else ()),
        *((Attention(window=4), Attention(block=4)) if config is Attention else ()),
    )
    if mixer.receptive_field is not None
]


@pytest.mark.parametrize("mixer", BOUNDED)
def test_a_bounded_mixer_is_equivariant_or_says_that_it_is_not(mixer: MixerConfig) -> None:
    """Of an input shifted by a step the outputs are shifted, away from the ends, and only where it says so."""
    causal = "bidirectional" not in mixer.directions
    layer = mixer.build(16, causal=causal, layer=0, generator=torch.Generator().manual_seed(0)).double().eval()
    x = torch.randn(1, 60, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        here, shifted = layer(x[:, 1:], None), layer(x[:, :-1], None)
    inner = slice(mixer.receptive_field, -(mixer.receptive_field or 1))
    apart = (here[:, inner][:, :-1] - shifted[:, inner][:, 1:]).abs().max()
    assert (apart < 1e-9) == mixer.equivariant


def test_rounding_alone_can_tell_the_order() -> None:
    """One step after the other is added to the sum in float32: 2^24 + 1 is 2^24, while -2^24 + 1 is more than -2^24."""
    test = LEARNABLE.build(None)["test"]
    worth = np.array([1] * LEARNABLE.symbols + [2**24, -(2**24)], np.float32)[rows(test)]
    (exact,) = set(worth.astype(np.float64).sum(1))
    assert ((worth.cumsum(1, dtype=np.float32)[:, -1] == exact) == test.y).all()


@pytest.mark.parametrize("marks", [2, 3])
def test_attention_without_positions_adds_no_window(marks: int) -> None:
    """Every step reads all steps, but by a function that ignores their order; rotations make the difference."""
    count = 198 if marks == 3 else 200
    task = Reach(9, marks=marks, symbols=4, train=count, val=count, test=count)
    examples = task.build(None)["test"]
    gaps = {}
    for rotary in ("none", "per_head"):
        mixers = (Attention(rotary=rotary), Conv(5, hidden=24))  # two layers of each see 1 + 2 * 4 = 9 steps
        net = network(4, mixers, task=task)
        gaps[rotary] = float((twins := answers(net, examples)).sub(twins[:, :1]).abs().max())
        if rotary == "none":
            assert (twins.argmax(-1).flatten().numpy() == examples.y).mean() == 0.5
    assert gaps["none"] < 1e-12 < 1e-6 < gaps["per_head"]


ORDERS = list(permutations(range(3)))
ODD = np.array([0, 1, 1, 0, 0, 1])
MATRICES = np.array([[float(order[place] == mark) for mark in range(3) for place in range(3)] for order in ORDERS])


def test_no_sum_over_marks_and_places_is_right_about_six_orders_and_some_about_any_five() -> None:
    """Exactly: signs are to be had if and only if no nonnegative combination of the signed rows vanishes (Gordan)."""
    constant = np.hstack([MATRICES, np.ones((6, 1))])
    assert np.linalg.matrix_rank(constant) == 5  # so all combinations that vanish are multiples of one, which is:
    assert not ((2 * ODD - 1) @ constant).any()  # all odd rows less all even rows, which forbids these signs alone
    for left_out in range(6):
        assert np.linalg.matrix_rank(np.delete(constant, left_out, 0)) == 5  # independent: any signs are to be had


def test_every_small_sum_is_right_about_five_orders_at_most() -> None:
    votes = np.array(list(product((-1, 0, 1), repeat=9)), float)
    right = [((votes @ MATRICES.T > bias) == ODD).sum(1).max() for bias in (-1.5, -0.5, 0, 0.5, 1.5)]
    assert max(right) == 5
    mine = np.array([sum(additive_votes()[mark, order.index(mark)] for mark in range(3)) for order in ORDERS])
    assert ((mine > 0) == ODD).sum() == 5


@pytest.mark.parametrize("task", [THREE, replace(THREE, range=30, symbols=9, seed=4), replace(THREE, offset=7)])
def test_the_rule_of_tagged_marks_is_right_about_five_of_six(task: Reach) -> None:
    splits = task.build(None)
    scores = task.baselines(splits["train"], splits["test"])
    assert scores == {"label_prior": 0.5, "tagged_marks": pytest.approx(5 / 6, abs=1e-15)}
    assert set(SMALL.baselines(SMALL.build(None)["train"], SMALL.build(None)["test"])) == {"label_prior"}


def test_a_bounded_network_with_positions_and_a_linear_head_is_right_about_five_of_six_at_most() -> None:
    """Trained on one class of twins alone, without which it would be right about fewer."""
    task = Reach(5, marks=3, symbols=4, train=6, val=6, test=6)
    splits = task.build(None)
    net = network(2, (Conv(3, hidden=24),), task=task, positions="sinusoidal")
    logits = answers(trained(net, splits["train"], 200), splits["train"])
    scores = (logits[..., 1] - logits[..., 0]).numpy()
    even, odd = scores[0, ODD == 0], scores[0, ODD == 1]
    assert even.sum() == pytest.approx(odd.sum(), abs=1e-9) and np.ptp(scores) > 1e-3
    assert (logits.argmax(-1).flatten().numpy() == splits["train"].y).sum() <= 5


@every
def test_the_certificate_of_what_is_built_has_no_fault(task: Reach) -> None:
    found = task.certify(task.build(None))
    assert found.faults == () and f"up to {task.range} steps" in found.claim


def spoilt(what: str) -> dict[SplitName, Examples]:
    """The splits of SMALL with one thing wrong in the test split."""
    splits = dict(SMALL.build(None))
    test = splits["test"]
    x, y = rows(test).copy(), test.y.copy()
    if what == "filler":  # of one gap alone, in both twins: the marks have other surroundings
        x[2:4, np.flatnonzero(x[2] >= 6)[0] - 1] ^= 1
    if what == "twin":
        x[3, -1] ^= 1
    if what == "label":
        y[2:4] = 0
    if what == "range":  # the second mark and the step before it change places
        at = int(np.flatnonzero(x[2] >= 6)[1])
        x[2:4, [at - 1, at]] = x[2:4, [at, at - 1]]
    if what in ("again", "split"):
        x[2:4] = (x if what == "again" else rows(splits["val"]))[:2]
    slices = {"order": test.slices["order"][::-1]} if what == "slice" else test.slices
    splits["test"] = replace(test, x=x.reshape(-1), y=y, slices=slices)
    if what == "length":  # a step of one twin alone is lost, and it is a zero, as padding is
        x[2:4, -1] = 0
        shorter = [sequence[: len(sequence) - (row == 3)] for row, sequence in enumerate(x)]
        splits["test"] = Examples.of_sequences(shorter, y, test.slices)
    return splits


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("filler", "test: windows of 5 steps tell the twins of example 2 apart"),
        ("twin", "test: example 2 has 1 of the 2 orders of its marks (and 1 more like it)"),
        ("label", "test: labels are not balanced in the class of example 2"),
        ("range", "test: the marks of example 2 are 4 steps apart"),
        ("again", "test: the class of example 0 has 4 sequences, more than one of an order"),
        ("split", "test: twins of its sequences are in val"),
        ("slice", "test: the slice of example 0 says ba, which is not the order of its marks (and 39 more like it)"),
        ("length", "test: example 2 has 1 of the 2 orders of its marks (and 1 more like it)"),
    ],
)
def test_what_breaks_the_certificate_is_found(what: str, says: str) -> None:
    card = cards.make(SMALL, spoilt(what))
    assert says in card.faults and card.certificate == ()
    assert "Certificate" not in cards.markdown(card)


def test_verify_prints_the_certificate_and_finds_a_corrupted_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = prepared.prepare(SMALL, tmp_path)
    command = ["data", "verify", "reach", "--data", str(tmp_path)]
    main(command)
    said = capsys.readouterr().out
    claim = "Features of up to 5 steps, computed alike at every step and pooled without their places, score exactly"
    assert f"Certificate:\n\n- {claim} 50 %" in said
    assert "windows listed for some classes (30 of train, 10 of val, 20 of test) are equal" in said
    path = at / "test.x.npy"
    np.save(path, spoilt("filler")["test"].x)
    with pytest.raises(SystemExit):
        main(command)
    assert "test.x.npy" in capsys.readouterr().out
    about = json.loads((at / prepared.MANIFEST).read_text())
    about["arrays"]["test.x"]["sha256"] = checksum(path)  # of whoever made other arrays, and a manifest to them
    (at / prepared.MANIFEST).write_text(json.dumps(about))
    with pytest.raises(SystemExit):
        main(command)
    assert "windows of 5 steps tell the twins of example 2 apart" in capsys.readouterr().out


def test_the_certificate_at_a_long_range() -> None:
    task = Reach(16_384, train=2, val=2, test=2)
    assert task.max_length == 3 * 16_383 + 2 + 16_384 // 3
    assert task.certify(task.build(None)).faults == ()


def test_lengths_and_settings() -> None:
    assert Reach(24).max_length == 79 and Reach(24, offset=2).max_length == 73
    for task in (Reach(24), Reach(24, marks=3, offset=40, train=6, val=6, test=6), MIXED):
        longer = task.at_length(4 * task.max_length, 500)
        assert 3.7 * task.max_length < longer.max_length <= 4 * task.max_length
        assert longer.test == 500 - 500 % task.twins and longer.marks == task.marks
    with pytest.raises(UserError, match="does not fit in 6 steps"):
        Reach(24).at_length(6)
    with pytest.raises(UserError, match=r"train=40001 is no multiple of 2, take 40000"):
        Reach(train=40_001)
    with pytest.raises(UserError, match="2 or 3 marks"):
        Reach(marks=4)
    with pytest.raises(UserError, match="2 to 65,536 steps"):
        Reach(range=100_000)
    with pytest.raises(UserError, match="easiest range of 2 to range=16"):
        Reach(16, easiest=17)
    with pytest.raises(UserError, match="2 to 65,000 symbols"):
        Reach(symbols=1)
    with pytest.raises(UserError, match="offset=1 is below 2"):
        Reach(offset=1)
    with pytest.raises(UserError, match="too few different"):
        Reach(2, symbols=2, train=1_000).build(None)
    with pytest.raises(UserError, match="more than this machine has: take fewer sequences or a shorter range"):
        Reach(65_536, train=40_000_000).build(None)
