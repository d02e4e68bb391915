"""How many blocks a launch of matrix_conv.cu has, and in which order they take the phases."""

from __future__ import annotations

import math

from .._geometry import ConvGeometry
from .sums import Sum

# A multiprocessor has several blocks, one after the other, where one of the phases has many more
# taps than the mean; twice as many where some phases have none. Blocks of few taps run ahead, and
# neighbouring outputs, which share sectors of memory, should be written soon after each other, in
# turns of `_TURN_BYTES` bytes.
_UNEQUAL = 1.6
_LEAST_TURNS, _MOST_TURNS = 4, 8
_TURN_BYTES = 2**24
# Outputs up to this size stay in the L2 cache until all phases have been written.
_KEPT_BYTES = 2**25
# With this many tiles of a phase for a multiprocessor, products take most of the time, and another
# block for each phase costs little.
_MANY_TILES = 4


def blocks_of(
    geometry: ConvGeometry,
    summation: Sum,
    tiles: int,
    phase_by_phase: bool,
    multiprocessors: int,
) -> int:
    """Return the blocks of a launch."""
    blocks = multiprocessors * _turns(geometry, summation)
    blocks = multiprocessors if phase_by_phase else max(1, blocks // summation.phases)
    return min(tiles, blocks) * summation.phases


def _output_bytes(geometry: ConvGeometry, summation: Sum) -> int:
    outputs = geometry.batch * geometry.groups * geometry.rows
    return outputs * math.prod(axis.size_out for axis in geometry.axes) * summation.mode.itemsize


def _turns(geometry: ConvGeometry, summation: Sum) -> int:
    """Return how many blocks each multiprocessor has in turn, a power of two."""
    if summation.phases == 1:
        return 1
    most, fewest, every = zip(*(axis.taps.tap_counts for axis in summation.axes), strict=True)
    if math.prod(most) * summation.phases <= _UNEQUAL * math.prod(every):
        return 1
    most_turns = _MOST_TURNS * (1 if all(fewest) else 2)
    turns = _output_bytes(geometry, summation) // _TURN_BYTES
    return max(_LEAST_TURNS, min(most_turns, 1 << turns.bit_length() >> 1))


def by_phase(geometry: ConvGeometry, summation: Sum, tiles: int, multiprocessors: int) -> bool:
    """Return whether neighbouring blocks have the same phase of `tiles` tiles, the longest first.

    Otherwise they have all phases in turn. Then a block of many taps may begin last, or all blocks
    wait for the blocks of the phase with most taps.
    """
    phases = summation.phases
    if not summation.phase_order or tiles * phases <= multiprocessors:
        return False
    taps = summation.phase_taps
    if min(taps) == 0 < max(taps):
        return _output_bytes(geometry, summation) <= _KEPT_BYTES
    many = summation.mode.parts == 2 and tiles >= _MANY_TILES * multiprocessors
    if summation.axes[0].taps.phases == 1 and not many:
        return False
    in_turn = -(-tiles // max(1, multiprocessors // phases)) * max(taps)
    if tiles < multiprocessors:
        return tiles * math.fsum(taps) / multiprocessors + max(taps) / 2 < in_turn
    return -(-tiles // multiprocessors) * math.fsum(taps) < in_turn
