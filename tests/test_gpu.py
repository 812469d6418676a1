"""What only a CUDA device can show: `pytest -m gpu` says what other packages' kernels are good for there."""

from __future__ import annotations

import pytest
import torch

from levelfield.ops import kernel_cases
from levelfield.ops.vendor import adapters, dispatch


@pytest.mark.gpu
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", [64, 131, 1024, 4096])
@pytest.mark.parametrize("kernel", [k for o in adapters.OPERATORS.values() for k in o.kernels], ids=str)
def test_on_a_gpu_every_kernel_agrees_or_is_missing(
    kernel: adapters.Kernel, length: int, dtype: torch.dtype, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether every kernel may be used on this machine."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: this test is for one")
    device, seen = torch.device("cuda"), []
    for case in (one for c in kernel_cases.CASES for one in (c, kernel_cases.from_state(c)) if one is not None):
        if kernel in case.table.kernels:
            verdict = dispatch.validate(kernel, case.table, case.twin, case.inputs(device, dtype), length)
            seen += [(case.name, verdict)] if verdict.note else []
    with capsys.disabled():
        print(*(f"\n{name}, {length} steps, {dtype}: {verdict.note}" for name, verdict in seen))
    if not seen:
        pytest.skip(f"{kernel.package} is not installed, or its {kernel.function} does not take {dtype}")
    assert [verdict.note for _, verdict in seen if verdict.call is None] == []
