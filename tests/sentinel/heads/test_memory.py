"""How many fits share a GPU: by what one of them was measured to take."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sentinel.heads.config import HeadConfig
from sentinel.heads.memory import CONTEXT_BYTES, MARGIN, Peak, gpu_share, measure

GB = 2**30
SMALL = HeadConfig(width=16, layers=1, max_train_tokens=32, max_score_tokens=64, batch_size=4)


def test_as_many_fits_as_have_room() -> None:
    assert gpu_share(Peak(5 * GB, 24 * GB)) == 0.3333  # 3 × (5 · 1.15 + 1) GB
    assert gpu_share(Peak(5 * GB, 80 * GB)) == 0.0909
    assert gpu_share(Peak(30 * GB, 24 * GB)) == 1.0
    assert gpu_share(Peak(None, None)) == 1.0


@given(st.integers(1, 200 * GB), st.integers(GB, 200 * GB))
def test_shares_never_ask_for_more_than_there_is(fit: int, device: int) -> None:
    share = gpu_share(Peak(fit, device))
    assert 0 < share <= 1
    fits = int(1 / share)
    assert fits * share <= 1
    assert fits == 1 or fits * (fit * MARGIN + CONTEXT_BYTES) <= device


def test_a_cpu_measures_nothing_and_leaves_the_random_state_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    assert measure(SMALL, "cpu") == Peak(None, None)
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_counts_what_a_fit_takes() -> None:
    small, large = (measure(HeadConfig(batch_size=n), "cuda") for n in (4, 32))
    assert small.fit is not None
    assert large.fit is not None
    assert large.device is not None
    assert 0 < small.fit < large.fit < large.device
