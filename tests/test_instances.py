"""Every instance that plans can ask for has a test in tests/kernels/.

The tests run it on the emulator: with more than one tile on each axis, a ragged last tile, and sums
that are longer than what the kernel has under way at once.
"""

from __future__ import annotations

import numpy as np
import pytest

import subjects
import test_norms
import test_pooling
from running import INSTANCES, Recorder
from strategies import Case


def test_every_instance_is_tested() -> None:
    """By itself, but for what tests of others launch."""
    tested = {instance for kernel in subjects.subjects() for instance in kernel.tested}
    elsewhere = {name for kernel in subjects.subjects() for name in kernel.elsewhere}
    assert tested <= set(INSTANCES)
    untested = [i for i in INSTANCES if i not in tested and i.function not in elsewhere]
    assert not untested


@pytest.mark.emulator
@pytest.mark.instance
def test_more_axes_than_are_unrolled() -> None:
    """Axes that cannot be merged."""
    x = np.random.default_rng(0).standard_normal((4, 8, 6, 4, 6, 10), np.float32)[
        (slice(None, None, 2),) * 6
    ]
    backend = Recorder()
    test_norms.check(backend, Case("batch_norm", {"input": x}, {}))
    test_norms.check(backend, Case("group_norm", {"input": x}, {"num_groups": 2}))
    test_pooling.check(backend, Case("max_pool2d", {"input": x[0, 0]}, {"kernel_size": 2}))
