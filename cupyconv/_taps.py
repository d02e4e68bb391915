"""The tap table: it describes convolutions and transposed convolutions as the same gather.

Along one axis, the outputs ``o = phase + phases * q`` read the inputs ``q * step + offset`` for
each ``(tap, offset)`` of a short table that depends on the phase only:

- a convolution has one phase and ``step = stride``; tap ``k`` has offset ``k * dilation - pad``;
- a transposed convolution has one phase for each residue of the output position modulo the stride,
  and ``step = 1``; a phase uses tap ``k`` only if ``phase + pad - k * dilation`` is divisible by
  the stride, and the quotient is the offset.

The taps of a phase form an arithmetic progression: every ``stride / gcd(stride, dilation)``-th tap
from a first one, which a modular inverse gives. So a handful of integers describes a table of any
length, and no table is stored in device memory or transferred. Kernels expand the progression
themselves (``kernels/taps.cuh``); `AxisTaps.table` expands it here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


def floor_sum(count: int, step: int, start: int, divisor: int) -> int:
    """Return the sum of ``(start + i*step) // divisor`` over all i below `count`.

    The sum is the number of integer points below a line. Euclid's algorithm counts them in a
    logarithmic number of steps.
    """
    total = 0
    while count > 0:
        total += count * (count - 1) // 2 * (step // divisor) + count * (start // divisor)
        step, start = step % divisor, start % divisor
        end = start + count * step
        count, start, step, divisor = end // divisor, end % divisor, divisor, step
    return total


def residues_below(limit: int, count: int, step: int, start: int, divisor: int) -> int:
    """Return the number of i below `count` for which ``(start + i*step) % divisor < limit``.

    An axis may have millions of phases, so planning must not loop over them.
    """
    return floor_sum(count, step, start, divisor) - floor_sum(count, step, start - limit, divisor)


@dataclass(frozen=True)
class AxisTaps:
    """The taps of one axis as progressions. The fields equal the members of ``struct AxisTaps``."""

    size_in: int
    size_out: int
    kernel: int
    phases: int
    step: int
    origin: int  # phase + origin is the numerator of tap 0
    divisor: int  # the numerator divided by this is an input offset
    dilation: int
    gcd: int  # a phase has taps only if its numerator is divisible by this
    tap_step: int  # from one tap of a phase to the next
    inverse: int  # modular inverse of dilation / gcd modulo tap_step
    offset_step: int  # from the input offset of one tap of a phase to the next

    def positions(self, phase: int) -> int:
        """Return the number of outputs that belong to `phase`."""
        return max(0, -(-(self.size_out - phase) // self.phases))

    def progression(self, phase: int) -> tuple[int, int, int]:
        """Return the first tap of `phase`, the number of its taps and the first tap's offset."""
        numerator = phase + self.origin
        if numerator % self.gcd:
            return 0, 0, 0
        first = numerator // self.gcd % self.tap_step * self.inverse % self.tap_step
        count = max(0, -(-(self.kernel - first) // self.tap_step))
        return first, count, (numerator - first * self.dilation) // self.divisor

    @property
    def most_taps(self) -> int:
        """Largest number of taps of one phase, whether or not the phase has outputs."""
        return -(-self.kernel // self.tap_step)

    @property
    def used_phases(self) -> range:
        """Phases that have outputs."""
        return range(min(self.phases, self.size_out))

    @property
    def tap_counts(self) -> tuple[int, int, int]:
        """Most and fewest taps of the phases that have outputs, and the sum of their taps."""
        if self.size_out >= self.phases:
            # Each tap belongs to one phase, and no two phases have the same first tap.
            fewest = self.kernel // self.tap_step if self.gcd == 1 else 0
            return self.most_taps, fewest, self.kernel

        def used(taps: int) -> int:
            """Return the number of the first `taps` taps that belong to phases with outputs."""
            return residues_below(self.size_out, taps, self.dilation, -self.origin, self.phases)

        # Each tap below `tap_step` is the first tap of a phase. The lowest of these first taps
        # belong to the phases with the most taps.
        rest = self.most_taps - 1
        longest = used(self.kernel - rest * self.tap_step)
        with_taps = used(min(self.kernel, self.tap_step))
        most = rest + (longest > 0) if with_taps else 0
        fewest = rest + (longest == self.size_out) if with_taps == self.size_out else 0
        return most, fewest, used(self.kernel)

    @property
    def offsets(self) -> tuple[int, int]:
        """Smallest and largest input offset: the offsets of the first and of the last tap."""
        if self.kernel < 1:
            return 0, 0
        sign = 1 if self.offset_step > 0 else -1
        first, last = (
            sign * ((tap * self.dilation + sign * self.origin) // self.divisor)
            for tap in (0, self.kernel - 1)
        )
        return min(first, last), max(first, last)

    @property
    def begins_odd(self) -> bool:
        """Whether the smallest input offset of some phase that has outputs is odd."""
        if self.offset_step > 0:
            return self.kernel > 0 and self.origin % 2 == 1
        # The last taps have the smallest offsets. The offset of a tap is odd if
        # `tap * dilation - origin` exceeds the phase by an odd multiple of the stride.
        taps = min(self.kernel, self.tap_step)
        start = (self.kernel - taps) * self.dilation - self.origin - self.phases
        outputs = len(self.used_phases)
        return residues_below(outputs, taps, self.dilation, start, 2 * self.phases) > 0

    @property
    def reach(self) -> int:
        """Upper bound of the coordinates that a kernel computes on the axis, without its tiles."""
        inputs = max(self.size_in, self.size_out * self.step)
        return inputs + self.size_out + self.phases + abs(self.origin)

    def table(self, phase: int) -> list[tuple[int, int]]:
        """Return the ``(tap, offset)`` pairs of `phase`."""
        first, count, offset = self.progression(phase)
        return [(first + j * self.tap_step, offset + j * self.offset_step) for j in range(count)]


def conv_taps(
    size_in: int, size_out: int, kernel: int, stride: int, dilation: int, pad: int
) -> AxisTaps:
    """Return the taps of a convolution along one axis."""
    return AxisTaps(
        size_in=size_in,
        size_out=size_out,
        kernel=kernel,
        phases=1,
        step=stride,
        origin=-pad,
        divisor=1,
        dilation=dilation,
        gcd=1,
        tap_step=1,
        inverse=0,
        offset_step=dilation,
    )


def conv_transpose_taps(
    size_in: int, size_out: int, kernel: int, stride: int, dilation: int, pad: int
) -> AxisTaps:
    """Return the taps of a transposed convolution along one axis."""
    gcd = math.gcd(stride, dilation)
    tap_step = stride // gcd
    return AxisTaps(
        size_in=size_in,
        size_out=size_out,
        kernel=kernel,
        phases=stride,
        step=1,
        origin=pad,
        divisor=stride,
        dilation=dilation,
        gcd=gcd,
        tap_step=tap_step,
        inverse=pow(dilation // gcd, -1, tap_step) if tap_step > 1 else 0,
        offset_step=-(dilation // gcd),
    )


# Takes the place of an axis that a call lacks: one input, one tap, one output.
NO_AXIS = conv_taps(1, 1, 1, 1, 1, 0)


def on_three_axes(axes: tuple[AxisTaps, ...]) -> tuple[AxisTaps, ...]:
    """Return the taps of z, y and x, where an axis that the convolution lacks has one element."""
    return (NO_AXIS,) * (3 - len(axes)) + axes
