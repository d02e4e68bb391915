"""Products of spectra, summed over channels or samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_borders import path_of

from backends import NumpyBackend, every_backend
from bounds import UNIT32, UNIT64, assert_same_bits
from cupyconv._kernels import spectra
from cupyconv._kernels.launches import Instance
from planning import constant
from reference import Array, Shape
from running import Recorder, dtype_of, instances_of, on_the_emulator
from strategies import COMPLEX, values
from subjects import Subject

SPECTRA = instances_of("spectra.cu")


def threads(_: Instance) -> int:
    return constant("spectra.cu", "THREADS")


SUBJECTS = (Subject(spectra, threads=threads, tested=SPECTRA, limits={"THREADS": spectra.THREADS}),)


def laid_out(a: Array, order: tuple[int, ...]) -> Array:
    """The spectra in memory whose first three axes have another order; frequencies stay last."""
    axes = (*order, *range(3, a.ndim))
    return a.transpose(axes).copy().transpose(np.argsort(axes))


def check(
    backend: NumpyBackend,
    shape: tuple[int, int, int, int],
    space: Shape,
    dtype: np.dtype[Any],
    orders: tuple[tuple[int, ...], ...],
    *,
    adds: bool,
    style: str = "signed",
) -> None:
    """Compare products of such spectra, each in its own memory, with NumPy's."""
    groups, rows, columns, depth = shape
    rng = np.random.default_rng(0)
    a = values(rng, (groups, rows, depth, *space), dtype, style)
    b = values(rng, (groups, depth, columns, *space), dtype, style)
    there = values(rng, (groups, rows, columns, *space), dtype, style)
    scale = 0.375
    a, b, there = (laid_out(one, order) for one, order in zip((a, b, there), orders, strict=True))
    wide = np.complex128
    added = there.astype(wide) if adds else np.zeros(there.shape, wide)
    expected = added + scale * np.einsum("gik...,gkj...->gij...", a.conj(), b, dtype=wide)
    sizes = np.abs(added) + scale * np.einsum("gik...,gkj...->gij...", np.abs(a), np.abs(b))
    if not adds:
        there[...] = np.nan
    arrays = [backend.asarray(one) for one in (a, b, there)]
    path_of(backend, arrays[0]).prepare_multiply(*arrays, scale, adds)(*arrays)
    result = backend.to_numpy(arrays[2])
    if style == "whole":
        assert_same_bits(result + 0, expected.astype(dtype) + 0)  # zeros have no sign
        return
    unit = UNIT32 if dtype == np.complex64 else UNIT64
    segment = constant("spectra.cu", "SEGMENT")
    roundings = min(depth, segment) + depth // segment
    error = 2 * (2 * roundings + 8) * unit * sizes
    difference = result.astype(wide) - expected
    assert (np.abs(difference.real) <= error).all()
    assert (np.abs(difference.imag) <= error).all()


@every_backend
@given(
    shape=st.tuples(*[st.integers(1, 9)] * 3, st.sampled_from([1, 2, 3, 4, 5, 16, 17, 33, 40])),
    space=st.sampled_from([(1,), (5, 3), (300,), (2, 3, 4)]),
    dtype=st.sampled_from(COMPLEX),
    orders=st.tuples(*[st.permutations(range(3)).map(tuple)] * 3),
    adds=st.booleans(),
    style=st.sampled_from(["signed", "positive", "whole"]),
)
def test_products(
    backend: NumpyBackend,
    shape: tuple[int, int, int, int],
    space: Shape,
    dtype: np.dtype[Any],
    orders: tuple[tuple[int, ...], ...],
    adds: bool,
    style: str,
) -> None:
    """Of spectra whose groups, rows, columns and channels lie in any order."""
    check(backend, shape, space, dtype, orders, adds=adds, style=style)


@on_the_emulator("instance", cases=SPECTRA)
@pytest.mark.parametrize("adds", [False, True], ids=["written", "added"])
def test_spectra_instance(instance: Instance, adds: bool) -> None:
    """Several tasks on each axis of the result, the last ones ragged."""
    defines = dict(instance.defines)
    rows, columns = (1, 6) if defines["TILE"] == "1" else (6, 9)
    frequencies = constant("spectra.cu", "THREADS") + 5
    backend = Recorder()
    dtype = dtype_of(defines["ELEMENT"])
    orders = (0, 1, 2), (1, 0, 2), (0, 2, 1)
    check(backend, (2, rows, columns, 3), (frequencies,), dtype, orders, adds=adds)
    (launch,) = backend.launches
    assert launch.instance == instance
    assert launch.grid > 4
