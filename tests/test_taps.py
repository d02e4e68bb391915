"""The tap tables against the definition of a gather, and the arithmetic of kernels/taps.cuh."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cupyconv import _compile
from cupyconv._kernels import sums
from cupyconv._taps import AxisTaps, conv_taps, conv_transpose_taps, residues_below

MOST = 2**31 - 1
HUGE = 61  # bits, of coordinates up to the geometry's bounds
LARGE = 29  # and up to those of kernels that count in 32
small = st.integers(1, 12)


def up_to(most: int) -> st.SearchStrategy[int]:
    """Positive integers, many of them close to the bound."""
    return st.one_of(st.integers(1, most), st.integers(most // 2 + 1, most))


@st.composite
def axes(draw: st.DrawFn, *, bits: int = 0) -> tuple[bool, AxisTaps, int]:
    """Direction, axis and front padding, as the geometry allows them; with `bits`, steps and
    coordinates have up to about so many."""
    step = up_to(min(MOST, 2**bits)) if bits else small
    stride, dilation = draw(step), draw(step)
    size_in = draw(up_to(2**bits // stride) if bits else small)
    kernel = draw(up_to(2**bits // dilation) if bits else small)
    transposed = draw(st.booleans())
    extent = dilation * (kernel - 1) + 1
    if transposed:
        full = (size_in - 1) * stride + extent + draw(st.integers(0, max(stride, dilation) - 1))
        pad = draw(up_to(full)) - 1
        size_out = draw(up_to(full - pad))
        return True, conv_transpose_taps(size_in, size_out, kernel, stride, dilation, pad), pad
    pad = draw(st.integers(max(0, extent - size_in), extent + size_in))
    size_out = (size_in + pad - extent) // stride + 1
    return False, conv_taps(size_in, size_out, kernel, stride, dilation, pad), pad


def reads(transposed: bool, axis: AxisTaps, stride: int, pad: int) -> set[tuple[int, int, int]]:
    """All (o, k, i) by the definition, where i may lie outside of the input."""
    result = set()
    for o in range(axis.size_out):
        for k in range(axis.kernel):
            if not transposed:
                result.add((o, k, o * stride - pad + k * axis.dilation))
            elif (o + pad - k * axis.dilation) % stride == 0:
                result.add((o, k, (o + pad - k * axis.dilation) // stride))
    return result


def stride_of(transposed: bool, axis: AxisTaps) -> int:
    return axis.phases if transposed else axis.step


@given(drawn=axes())
@example(drawn=(True, conv_transpose_taps(5, 13, 3, 4, 6, 2), 2))  # a phase without taps
@example(drawn=(True, conv_transpose_taps(1, 1, 12, 12, 1, 5), 5))  # fewer outputs than phases
@example(drawn=(False, conv_taps(3, 2, 2, 5, 3, 4), 4))
def test_tables_are_the_definition(drawn: tuple[bool, AxisTaps, int]) -> None:
    transposed, axis, pad = drawn
    gathered = [
        (phase + axis.phases * q, tap, q * axis.step + offset)
        for phase in range(axis.phases)
        for q in range(axis.positions(phase))
        for tap, offset in axis.table(phase)
    ]
    assert len(gathered) == len(set(gathered)), "a tap is taken twice"
    assert set(gathered) == reads(transposed, axis, stride_of(transposed, axis), pad)


@given(drawn=axes())
def test_each_output_belongs_to_one_phase(drawn: tuple[bool, AxisTaps, int]) -> None:
    _, axis, _ = drawn
    outputs = [
        phase + axis.phases * q
        for phase in range(axis.phases)
        for q in range(axis.positions(phase))
    ]
    assert sorted(outputs) == list(range(axis.size_out))
    assert sum(map(axis.positions, range(axis.phases))) == axis.size_out
    assert axis.positions(0) == max(map(axis.positions, range(axis.phases)))


@given(drawn=axes())
def test_each_tap_belongs_to_the_phases_of_one_residue(drawn: tuple[bool, AxisTaps, int]) -> None:
    """A convolution's only phase has all taps; those of a transposed one share them out: a tap
    meets each residue of the input's positions, stride by stride, exactly once."""
    transposed, axis, pad = drawn
    tables = [axis.table(phase) for phase in range(axis.phases)]
    if not transposed:
        assert [tap for tap, _ in tables[0]] == list(range(axis.kernel))
        return
    stride = axis.phases
    owners = [[p for p in range(stride) if k in dict(tables[p])] for k in range(axis.kernel)]
    assert owners == [[(k * axis.dilation - pad) % stride] for k in range(axis.kernel)]
    for table in tables:
        taps = [tap for tap, _ in table]
        assert taps == sorted(set(taps))


@given(drawn=axes())
@example(drawn=(True, conv_transpose_taps(5, 13, 3, 4, 6, 2), 2))  # a phase without taps
@example(drawn=(True, conv_transpose_taps(5, 13, 3, 5, 1, 2), 2))  # more phases than taps
@example(drawn=(True, conv_transpose_taps(1, 1, 12, 12, 1, 5), 5))  # fewer outputs than phases
def test_numbers_of_taps(drawn: tuple[bool, AxisTaps, int]) -> None:
    _, axis, _ = drawn
    counts = [len(axis.table(phase)) for phase in range(axis.phases)]
    assert axis.most_taps == max(counts)
    used = [counts[phase] for phase in range(axis.phases) if axis.positions(phase)]
    assert list(axis.used_phases) == list(range(len(used)))
    assert axis.tap_counts == (max(used), min(used), sum(used))


@given(drawn=axes())
@example(drawn=(True, conv_transpose_taps(5, 13, 3, 4, 6, 2), 2))  # a phase without taps
@example(drawn=(True, conv_transpose_taps(1, 1, 12, 12, 1, 5), 5))  # fewer outputs than phases
@example(drawn=(True, conv_transpose_taps(9, 20, 5, 3, 7, 0), 0))  # a dilation beyond the stride
def test_the_ends_of_offsets(drawn: tuple[bool, AxisTaps, int]) -> None:
    _, axis, _ = drawn
    offsets = [[offset for _, offset in axis.table(phase)] for phase in range(axis.phases)]
    every = [offset for phase in offsets for offset in phase]
    assert axis.offsets == (min(every), max(every))
    used = [phase for phase in offsets[: axis.size_out] if phase]
    assert axis.begins_odd == any(min(phase) % 2 for phase in used)


@given(
    st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(-60, 60),
    st.integers(1, 30),
)  # fmt: skip
def test_residues_below(limit: int, count: int, step: int, start: int, divisor: int) -> None:
    limit = min(limit, divisor)
    residues = [(start + i * step) % divisor for i in range(count)]
    assert residues_below(limit, count, step, start, divisor) == sum(r < limit for r in residues)


@given(
    size_out=st.integers(1, 12), kernel=st.integers(1, 40), stride=st.integers(1, 12),
    dilation=st.integers(1, 12), size_in=st.integers(1, 9), pad=st.integers(0, 9),
)  # fmt: skip
def test_components_hold_all_taps(
    size_out: int, kernel: int, stride: int, dilation: int, size_in: int, pad: int
) -> None:
    axis = conv_taps(size_in, size_out, kernel, stride, dilation, pad)
    seen = sums._axis(axis, last=False)
    inputs = {tap * dilation % stride for tap in range(kernel)}
    assert seen.lattices == max(inputs) // math.gcd(stride, dilation) + 1


@given(drawn=axes(bits=HUGE), phase=st.integers(0, 2**31))
def test_long_progressions(drawn: tuple[bool, AxisTaps, int], phase: int) -> None:
    """Tables too long to write down: the first tap, the last one, and none before or after."""
    transposed, axis, pad = drawn
    phase %= axis.phases
    first, count, offset = axis.progression(phase)
    if not count:
        # No tap divides, or the first one that does is after the last.
        assert (phase + pad) % axis.gcd or first >= axis.kernel
        return
    last = first + (count - 1) * axis.tap_step
    assert 0 <= first < axis.tap_step
    assert axis.kernel - axis.tap_step <= last < axis.kernel
    for tap, i in ((first, offset), (last, offset + (count - 1) * axis.offset_step)):
        if transposed:
            assert i * axis.phases == phase + pad - tap * axis.dilation
        else:
            assert i == tap * axis.dilation - pad
    if transposed:
        assert axis.tap_step * axis.dilation == -axis.offset_step * axis.phases
    else:
        assert (axis.tap_step, axis.offset_step) == (1, axis.dilation)


# The kernels' own arithmetic ----------------------------------------------------------------

# All that taps.cuh needs of scalar.cuh and of CUDA.
SHIM = """
#include <cstdio>
#define __device__
typedef long long int64;
"""

MAIN = """
#include "taps.cuh"

int main() {
    AxisTaps a;
    int64 phase, small;
    static_assert(sizeof(a) == 12 * sizeof(int64), "as many fields as in Python");
    while (fread(&a, sizeof(a), 1, stdin) == 1 && fread(&phase, sizeof(phase), 1, stdin) == 1 &&
           fread(&small, sizeof(small), 1, stdin) == 1) {
        Progression<int64> p = {};
        if (small) {
            Progression<int> own = progression(a, int(phase));
            p = {own.first, own.count, own.offset};
        } else {
            p = progression(a, phase);
        }
        int64 numbers[] = {p.first, p.count, p.offset, positions_of(a, phase)};
        fwrite(numbers, sizeof(numbers), 1, stdout);
    }
}
"""

Call = tuple[AxisTaps, int, bool]  # an axis, a phase, and whether it is computed in 32 bits


@pytest.fixture(scope="module")
def taps_cuh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[Call]], list[tuple]]:
    """`progression` and `positions_of` of taps.cuh for many axes at once, in a C++ process that
    ends at the first overflow."""
    folder: Path = tmp_path_factory.mktemp("taps")
    shutil.copy(_compile.directory() / "taps.cuh", folder)
    (folder / "scalar.cuh").write_text(SHIM)
    (folder / "main.cpp").write_text(MAIN)
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "main.cpp", "-o", "taps"]
    command += ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    def call(calls: list[Call]) -> list[tuple]:
        numbers = [n for axis, *rest in calls for n in (*astuple(axis), *rest)]
        packed = b"".join(n.to_bytes(8, "little", signed=True) for n in numbers)
        done = subprocess.run([folder / "taps"], input=packed, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        words = [done.stdout[i : i + 8] for i in range(0, len(done.stdout), 8)]
        values = [int.from_bytes(word, "little", signed=True) for word in words]
        return [tuple(values[i : i + 4]) for i in range(0, len(values), 4)]

    return call


@st.composite
def calls(draw: st.DrawFn) -> list[Call]:
    """Many axes with a phase that has outputs."""
    kinds = [(axes(), True), (axes(), False), (axes(bits=LARGE), True), (axes(bits=HUGE), False)]
    one = st.one_of(*(st.tuples(kind, st.just(short)) for kind, short in kinds))
    result = []
    for (_, axis, _), short in draw(st.lists(one, min_size=1, max_size=40)):
        used = min(axis.phases, axis.size_out)
        result.append((axis, draw(st.integers(0, used - 1)), short))
    return result


@given(calls=calls())
@example(calls=[(conv_transpose_taps(2**30, 9, 2**30, MOST, MOST - 1, 2**61), 5, False)])
@example(calls=[(conv_transpose_taps(1, 2**30, 1, 2**30 - 1, 2**29 - 1, 0), 2**30 - 2, True)])
def test_taps_cuh(taps_cuh: Callable[[list[Call]], list[tuple]], calls: list[Call]) -> None:
    expected = []
    for axis, phase, _ in calls:
        first, count, offset = axis.progression(phase)
        expected.append((first, count, offset, axis.positions(phase)))
    for (axis, phase, _), got, (first, count, offset, positions) in zip(
        calls, taps_cuh(calls), expected, strict=True
    ):
        assert (got[1], got[3]) == (count, positions), (axis, phase)
        if count:  # what a phase without taps says of its first one does not matter
            assert got == (first, count, offset, positions), (axis, phase)
