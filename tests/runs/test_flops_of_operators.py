"""FLOPs of operators that no mixer which ships uses, against counts done by hand."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from repository import ROOT
from tiny import FirstSymbol, recipe
from torch import Tensor, nn
from torch.nn import functional as F

from levelfield import protocols
from levelfield.ops.arithmetic import Operations
from levelfield.run import execute
from levelfield.runs import store
from levelfield.spec import Model, Run
from levelfield.user.mixer import user_mixer


def both_ways(work: Any, *inputs: Tensor) -> tuple[int, int]:
    """Operations of some work, and of its backward pass."""
    given = [x.requires_grad_() for x in inputs]
    with Operations() as forward:
        y = work(*given)
    with Operations() as backward:
        y.backward(torch.ones_like(y))
    return forward.total, backward.total


def test_the_page_says_what_it_is_worth_that_softmax_counts_as_nothing() -> None:
    """Of each score a difference, a sum and a quotient are left out, and 4 operations of the gradient."""
    text = " ".join((ROOT / "docs" / "flops.md").read_text().split())
    shares = {}
    for channels in (8, 16, 64):
        queries, keys, values = torch.rand(3, 1, 1, 32, channels)
        counted = sum(both_ways(F.scaled_dot_product_attention, queries, keys, values)) / 32**2
        assert counted == pytest.approx(14 * channels, rel=0.01)
        shares[channels] = 100 * (3 + 4) / counted
    assert f"{shares[16]:.0f} % of that at 16 channels a head, {shares[8]:.0f} % at 8, and below 1 % from 64 on" in text
    assert shares[64] < 1


def test_a_bilinear_layer_costs_what_its_products_and_sums_do() -> None:
    """For each of its outputs, as torch loops over them: x W, then its product with y, summed up."""
    n, i, j, o = 16, 4, 3, 5
    of_x = o * (n * i * j + 2 * n * i * j + n * i)  # the gradient times W, the product with y, the sum over outputs
    of_w = o * (n * i + 2 * n * i * j)
    of_y = o * (2 * n * i * j + n * j + n * j)
    layer = nn.Bilinear(i, j, o, bias=False)
    forward, backward = both_ways(layer, torch.rand(n, i), torch.rand(n, j))
    assert (forward, backward) == (o * (2 * n * i * j + 2 * n * j), of_x + of_w + of_y)


def test_distances_cost_their_differences_powers_and_sums() -> None:
    pairs = 2 * 8 * 6 * 4
    for norm, forward, backward in ((1.0, 2, 3), (2.0, 3, 4), (3.0, 3, 6)):
        counted = both_ways(partial(torch.cdist, p=norm), torch.rand(2, 8, 4), torch.rand(2, 6, 4))
        assert counted == (forward * pairs, 2 * backward * pairs)
    # Of many, the squares, and products that have two channels more.
    many = both_ways(torch.cdist, torch.rand(2, 30, 4), torch.rand(2, 6, 4))[0]
    assert many == 2 * (2 * (30 * 4 + 6 * 4) + 2 * 30 * 6 * (4 + 2))


def test_a_running_logarithm_of_sums_costs_two_operations_a_step() -> None:
    """Each step adds to the larger of two numbers the logarithm of 1 and an exponential, whose argument is their
    difference. The backward pass has two such scans, and five sums and differences."""
    assert both_ways(lambda x: x.logcumsumexp(1), torch.rand(2, 9, 3)) == (2 * 54, (2 * 2 + 5) * 54)
    assert both_ways(lambda x: x.logsumexp(1), torch.rand(2, 9, 3))[0] == 2 * 54


def test_linear_systems_cost_their_elimination_and_two_triangular_solves() -> None:
    n, k = 6, 2
    eliminated = sum(m + 2 * m * m for m in range(n))
    a, b = torch.eye(n) + torch.rand(3, n, n) / 9, torch.rand(3, n, k)
    forward, backward = both_ways(torch.linalg.solve, a, b)
    assert forward == 3 * (eliminated + 2 * n * n * k)
    assert backward == 3 * (2 * n * n * k + 2 * n * n * k)  # the solve again, and the product that is the gradient of a
    halves = sum(m + m * (m + 1) for m in range(n))
    for work, expected in {
        torch.linalg.det: eliminated,
        torch.linalg.slogdet: eliminated,
        torch.linalg.lu_factor: eliminated,
        torch.linalg.inv: eliminated + 2 * n**3,
        torch.linalg.cholesky: halves,
    }.items():
        with Operations() as counted:
            work(a.detach() @ a.detach().mT)
        assert counted.total == 3 * (expected + 2 * n**3)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_products_cost_what_is_stored() -> None:
    """As do their gradients, which multiply by the transposed matrix."""
    x, stored = torch.rand(5, 7), 3
    for sparse in (torch.eye(5)[:stored].to_sparse(), torch.eye(5)[:stored].to_sparse_csr()):
        for work in (sparse.matmul, partial(torch.sparse.mm, sparse)):
            assert both_ways(work, x.clone()) == (2 * stored * 7, 2 * stored * 7)
    with Operations() as counted:
        torch.mm(torch.rand(7, 5), torch.eye(5)[:, :stored].to_sparse())
    assert counted.total == 2 * stored * 7


@torch.library.custom_op("lf_tests::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return x * 2


def test_operators_without_a_rule_are_named() -> None:
    """Those of torch, and any of another library; what moves data is none of them."""
    with Operations() as counted:
        torch.linalg.qr(torch.rand(4, 4))
        doubled(torch.rand(3).flip(0))
    assert counted.uncounted == {"aten.linalg_qr", "lf_tests.doubled"}
    with Operations() as counted:
        torch.mm(torch.rand(4, 4).sort().values.exp(), torch.rand(4, 4))
    assert not counted.uncounted


class Orthogonal(nn.Module):
    """A map by an orthogonal matrix, which is made by an operator without a rule."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(width))

    def forward(self, x: Tensor) -> Tensor:
        return x @ torch.matrix_exp(self.weight - self.weight.T)


def test_a_ledger_names_operators_that_its_flops_lack(tmp_path: Path) -> None:
    """Once, however many phases and lengths there are."""
    run = Run(FirstSymbol(), Model((user_mixer(Orthogonal),), 1, 8), protocols.spt_masked(recipe(1), recipe(1), 0.3), 0)
    where = store.directory(tmp_path, run)
    execute(run, where, tmp_path / "data", "cpu")
    (note,) = json.loads((where / store.LEDGER).read_text())["notes"]
    assert note == "FLOPs lack those of operators that are not counted: aten.linalg_matrix_exp."
