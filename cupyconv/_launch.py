"""Fourth room: arguments packed, kernels put on the current stream.

`KernelPath` packs the arguments in the order of the kernels' ``struct Arguments`` and leaves to a
device what only it knows: addresses, workspace, the launch itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple

import numpy as np

from . import _plain, _pointwise, _pointwise16, _streaming
from ._arrays import Array, Convolution, Fused, floating
from ._device import Device
from ._geometry import ConvGeometry, NormGeometry, PoolGeometry
from ._kernels import depthwise_conv, direct_conv, gather_conv
from ._kernels.depthwise_conv import DepthwisePlan
from ._kernels.direct_conv import DirectPlan
from ._kernels.gather_conv import GatherPlan
from ._kernels.question import Question
from ._matrix import MOST_FOLDS, MOST_ORDERED, Sum
from ._packing import (
    Arguments,
    lie_together,
    long_reciprocal,
    packed_words,
    parameter_fields,
    reciprocal,
    zero_padded,
)
from ._plan import (
    PACK,
    MatrixPlan,
    NormPlan,
    PlainPlan,
    Pointwise16Plan,
    PointwisePlan,
    StreamingPlan,
    plan_conv,
    plan_fused,
    plan_norm,
    plan_pool,
)
from ._strides import ConvStrides, conv_strides, laid_out, lines_of, on_long_lines, strides_of
from ._taps import on_three_axes
from ._views import Placed, lies_across, norm_layout, pool_layout


def _pitches(
    line: int, sizes: tuple[int, int], strides: tuple[int, int, int], chunk: int
) -> list[int]:
    """Return what separates lines, planes and channels in shared memory.

    A line has room for `line` elements at least, a plane and a channel have `sizes` of them. Each
    equals its stride modulo a chunk, so that chunks are aligned there as they are in memory.
    """
    pitches = []
    for size, stride in zip((1, *sizes), strides, strict=True):
        line *= size
        line += (stride - line) % chunk
        pitches.append(line)
    return pitches


def _words(members: bytes, room: int) -> Iterator[int]:
    """Yield an array of bytes, of which a kernel has `room`, as numbers of eight."""
    for first in range(0, room, 8):
        yield int.from_bytes(members[first : first + 8], "little")


def _phases(layout: _plain.Layout) -> Iterator[int]:
    """Yield what plain_conv.cu knows of phases: each axis's own, and those of z and y in order."""
    for axis in layout.axes:
        fields: list[int] = []
        before = 0
        for phase in range(axis.phases):
            first, count, offset = axis.progression(phase)
            fields += (first, count, offset, before, axis.positions(phase))
            before += count
        yield from zero_padded(fields, 5 * _plain.MAX_PHASES)
    busy = layout.busy
    yield len(busy)
    order = sorted(range(layout.phases), key=lambda phase: phase not in busy)
    yield from _words(bytes(order), _plain.MAX_PHASES**2)


def _space(geometry: ConvGeometry, strides: ConvStrides) -> tuple[int, ...]:
    """Return the members of a ``struct Space``."""
    g = geometry
    lead = (0,) * (3 - g.rank)
    axes = on_three_axes(g.axes)
    along = list(zip(axes, (*lead, *strides.input_axes), strict=True))
    z, y, x = (axis.size_out for axis in axes)
    sizes = y, x, z * y * x
    return (
        sum(stride * axis.origin for axis, stride in along),
        *(*strides.input, *(stride * axis.step for axis, stride in along)),
        *(*strides.out, *lead, *strides.out_axes),
        *(*sizes, *map(long_reciprocal, sizes)),
        g.rank > 1,
    )


def _neighbours_together(
    geometry: ConvGeometry, strides: ConvStrides, places: int, inputs: bool
) -> bool:
    """Return whether so many neighbours lie together in the result, and in the inputs of these."""
    g = geometry
    steps = [stride * axis.step for axis, stride in zip(g.axes, strides.input_axes, strict=True)]
    outs, ins = (*strides.out, *strides.out_axes), (*strides.input, *steps)
    size = g.axes[-1].size_out
    return all(lie_together(places, own, size) == places for own in (outs, ins)[: 1 + inputs])


def _axes_of(sum: Sum, strides: ConvStrides) -> list[int]:
    """Return the members of three ``struct MatrixAxis``."""
    weight_axes = (*(0,) * (3 - len(strides.weight_axes)), *strides.weight_axes)
    return [
        value
        for axis, stride in zip(sum.axes, weight_axes, strict=True)
        for value in (
            *(*astuple(axis.taps), stride),
            *(axis.spacing, axis.lattices, axis.pairs),
            *(axis.spread, long_reciprocal(axis.spread)),
        )
    ]


def _folds_of(sum: Sum) -> list[int]:
    """Return the members of three ``struct Fold``, and the number of folds."""
    return [*(value for fold in sum.fold for value in astuple(fold)), sum.folds]


def _fold_offsets(sum: Sum, strides: Sequence[int]) -> list[int]:
    """Return where the folds of a column lie, from the first one on."""
    along_z, along_y, along_x = strides
    folds = itertools.product(*(range(fold.count) for fold in sum.fold))
    return [z * along_z + y * along_y + x * along_x for z, y, x in folds]


def _order_of(sum: Sum) -> tuple[int, int, int]:
    """Return the last members of a ``struct Steps``."""
    return sum.depth, sum.halves, sum.axes[2].apart


def _pack_constants(
    plan: MatrixPlan | PointwisePlan,
    geometry: ConvGeometry,
    strides: ConvStrides,
    row_tiles: int,
    slabs: int,
) -> Arguments:
    """Return what pack_weights.cu takes behind its arrays, for all modes."""
    g, own = geometry, plan.sum
    return packed_words(
        (
            *(g.groups, g.rows, *strides.weight),
            *(own.phases, row_tiles, slabs, own.steps, plan.splits),
            *(own.channels, own.spans * own.blocks, *_order_of(own)),
            *_folds_of(own),
            *_axes_of(own, strides),
        )
    )


class KernelPath:
    """Convolutions, norms and pooling by the kernels of a device."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return uninitialised memory for the launches of one call."""
        return self.device.workspace(shape, dtype)

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` in `dtype`: itself, or a copy in workspace."""
        return self.device.cast(array, dtype)

    def _parameter(self, array: Array | None) -> tuple[int, int, int]:
        """Return a packed ``struct Parameter``."""
        return 0 if array is None else self.device.address(array), *parameter_fields(array)

    def prepare(
        self,
        geometry: ConvGeometry,
        input: Array,
        weight: Array,
        bias: Array | None,
        out: Array,
        precision: str,
    ) -> Convolution:
        """Return the convolution of `geometry` for all arrays of the layouts of these.

        It holds no address, and nothing that comes from the contents of an array.
        """
        geometry, strides = laid_out(geometry, input, weight, out)
        processor = self.device.processor()
        plan = plan_conv(geometry, out.dtype, precision, processor)
        question = Question(geometry, out.dtype, precision, processor)
        if isinstance(plan, DirectPlan):
            convolve = direct_conv.bind(plan, question, strides, bias, self.device)
        elif isinstance(plan, DepthwisePlan):
            convolve = depthwise_conv.bind(plan, question, strides, bias, self.device)
        elif isinstance(plan, GatherPlan):
            convolve = gather_conv.bind(plan, question, strides, bias, self.device)
        elif isinstance(plan, PlainPlan):
            convolve = self._plain(geometry, strides, bias, out.dtype)
        elif isinstance(plan, StreamingPlan):
            convolve = self._streaming(plan, geometry, strides, bias, out.dtype.itemsize)
        elif isinstance(plan, PointwisePlan):
            convolve = self._pointwise(plan, geometry, strides, bias)
        elif isinstance(plan, Pointwise16Plan):
            convolve = self._pointwise16(plan, geometry, strides, bias)
        else:
            convolve = self._matrix(plan, geometry, strides, bias, out.dtype.itemsize)
        dtype, cast = out.dtype, self.device.cast
        if input.dtype == weight.dtype == dtype:
            return convolve
        return lambda input, weight, *rest: convolve(cast(input, dtype), cast(weight, dtype), *rest)

    def _plain(
        self, geometry: ConvGeometry, strides: ConvStrides, bias: Array | None, dtype: np.dtype
    ) -> Convolution:
        plan, g, strides = on_long_lines(geometry, strides, dtype, self.device.processor())
        layout = plan.layout
        x = layout.axes[2]
        lead = (0,) * (3 - g.rank)
        inputs = (*lead, *strides.input_axes)
        chunks = x.step == inputs[2] == 1
        pieces = _plain.pieces(layout.extent, chunks)
        deep, high = layout.extents
        line, plane, channel = _pitches(
            layout.pitches[1],
            (high, deep),
            (inputs[1], inputs[0], strides.input[2]),
            _plain.CHUNK if chunks else 1,
        )
        together = _plain.STORED // dtype.itemsize
        buffer_row = layout.lines * layout.buffer_line + strides.out[2] % together
        fields = [
            value
            for axis, *rest in zip(
                layout.axes,
                layout.tile,
                layout.tiles,
                (plane, line, layout.pitches[2]),
                inputs,
                (*lead, *strides.weight_axes),
                (*lead, *strides.out_axes),
                strict=True,
            )
            for value in (*astuple(axis), *rest)
        ]
        constants = packed_words(
            (
                *(g.groups, g.rows, g.channels, *strides.input, *strides.weight, *strides.out),
                *fields,
                *_phases(layout),
                *(layout.units, layout.count),
                *(layout.row_tiles, layout.slabs, layout.slabs_of_tile),
                *(layout.lines, layout.passes),
                *(
                    layout.steps,
                    layout.low,
                    layout.extent,
                    channel,
                    *layout.places,
                    layout.buffer_line,
                    buffer_row,
                ),
                pieces,
                *map(long_reciprocal, reversed(layout.tiles)),
                *map(reciprocal, (x.step, layout.lines, pieces)),
                *(chunks, layout.bulk),
            )
        )
        weights = 4 * _plain.ROWS * plan.slabs * layout.steps
        pack, launch = self.device.launcher(plan.pack), self.device.launcher(plan.launch)
        element, address, byte = parameter_fields(bias), self.device.address, np.dtype(np.uint8)

        def convolve(input: Array, weight: Array, bias: Array | None, out: Array) -> None:
            packed = self.device.workspace((weights + 4 * plan.slabs,), byte)
            place = address(packed)
            term = 0 if bias is None else address(bias)
            arrays = address(input), address(weight), address(out), term
            arguments = packed_words((*arrays, *element, place, place + weights)) + constants
            pack(arguments)
            launch(arguments)

        return convolve

    def _streaming(
        self,
        plan: StreamingPlan,
        geometry: ConvGeometry,
        strides: ConvStrides,
        bias: Array | None,
        itemsize: int,
    ) -> Convolution:
        g, layout = geometry, plan.layout
        lead = (0,) * (3 - g.rank)
        axes = on_three_axes(g.axes)
        padded = not all(map(_streaming.is_inside, axes))
        constants = packed_words(
            (
                *parameter_fields(bias),
                *(layout.positions, layout.products, g.rows),
                *strides.weight,
                *_space(g, strides),
                *(layout.units, layout.passes, layout.chunks),
                layout.products // g.channels,
                *(axis.kernel for axis in axes),
                *(axis.size_in for axis in axes),
                *(axis.step for axis in axes),
                *(axis.origin for axis in axes),
                *(axis.offset_step for axis in axes),
                *(*lead, *strides.weight_axes),
                padded,
            )
        )
        # Neighbours of a thread: with several taps in the result alone.
        places = _streaming.places(layout.shape, itemsize)
        together = _neighbours_together(g, strides, places, not layout.shape.taps)
        launch = self.device.launcher(plan.launch)
        address = self.device.address

        def convolve(input: Array, weight: Array, bias: Array | None, out: Array) -> None:
            term = 0 if bias is None else address(bias)
            arrays = address(input), address(weight), address(out), term
            loaded = 0 if layout.shape.taps else arrays[0]
            aligned = together and (loaded | arrays[2]) % (places * itemsize) == 0
            launch(packed_words(arrays) + constants + packed_words((aligned,)))

        return convolve

    def _pointwise(
        self,
        plan: PointwisePlan,
        geometry: ConvGeometry,
        strides: ConvStrides,
        bias: Array | None,
    ) -> Convolution:
        g, layout, shape = geometry, plan.layout, plan.layout.shape
        pack_constants = _pack_constants(plan, g, strides, layout.units_of_group, shape.held)
        constants = packed_words(
            (
                *parameter_fields(bias),
                *(g.channels, g.rows, *strides.weight),
                *_space(g, strides),
                *(layout.tiles, layout.tiles_of_sample, long_reciprocal(layout.tiles_of_sample)),
                *(layout.units, layout.units_of_group, layout.chunks),
                *(layout.stages, layout.stay),
            )
        )
        axis = g.axes[-1]
        together = g.rank == 1 and axis.step * strides.input_axes[0] == 1
        together = together and _neighbours_together(g, strides, _pointwise.PLACES, True)
        # Each warp that copies has a channel in each chunk, or it could fall behind by a phase.
        bulks = together and not layout.alone and (g.channels - 1) % shape.channels >= 3
        bulks = bulks and math.gcd(*strides.input, axis.size_out) % 4 == 0
        pack, launch = self.device.launcher(plan.pack), self.device.launcher(plan.launch)
        address, byte = self.device.address, np.dtype(np.uint8)
        lines = lines_of(g, strides, 4)

        def convolve(input: Array, weight: Array, bias: Array | None, out: Array) -> None:
            source, weights, result = address(input), address(weight), address(out)
            term = 0 if bias is None else address(bias)
            aligned = together and (source | result) % 8 == 0
            bulk = aligned and bulks and source % 16 == 0
            memory = self.device.workspace((plan.packed,), byte)
            packed = address(memory)
            pack(packed_words((weights, packed)) + pack_constants + packed_words((source, lines)))
            arrays = packed_words((source, weights, packed, result, term))
            launch(arrays + constants + packed_words((bulk, aligned)))

        return convolve

    def _pointwise16(
        self,
        plan: Pointwise16Plan,
        geometry: ConvGeometry,
        strides: ConvStrides,
        bias: Array | None,
    ) -> Convolution:
        g, layout = geometry, plan.layout
        constants = packed_words(
            (
                *parameter_fields(bias),
                *(g.channels, g.rows, *strides.weight),
                *_space(g, strides),
                *(layout.blocks, layout.blocks_of_sample),
                long_reciprocal(layout.blocks_of_sample),
                *(layout.units, layout.units_of_group, layout.stages),
            )
        )
        inputs = outs = 1
        if g.rank == 1:
            axis, word = g.axes[0], _pointwise16.WORD
            steps = *strides.input, strides.input_axes[0] * axis.step
            inputs = lie_together(word, steps, axis.size_out)
            outs = lie_together(word, (*strides.out, *strides.out_axes), axis.size_out)
        group, row, channel = strides.weight
        weights = lie_together(_pointwise16.WORD, strides.weight, g.channels)
        by_rows = lie_together(_pointwise16.WORD, (group, channel, row), g.rows)
        most = inputs, max(weights, by_rows), outs
        launch, address = self.device.launcher(plan.launch), self.device.address

        def convolve(input: Array, weight: Array, bias: Array | None, out: Array) -> None:
            arrays = address(input), address(weight), address(out)
            term = 0 if bias is None else address(bias)
            moved = tuple(
                math.gcd(own, place // 2) for own, place in zip(most, arrays, strict=True)
            )
            across = by_rows > weights and min(moved[:2]) > 1
            launch(packed_words((*arrays, term)) + constants + packed_words((*moved, across)))

        return convolve

    def _matrix(
        self,
        plan: MatrixPlan,
        geometry: ConvGeometry,
        strides: ConvStrides,
        bias: Array | None,
        element: int,
    ) -> Callable[..., None]:
        """Return a convolution of elements of so many bytes.

        Behind its arrays, or None in their place, it takes further arguments of its kernel.
        """
        g, sum, tiling = geometry, plan.sum, plan.tiling
        lead = (0,) * (3 - g.rank)
        pack_constants = _pack_constants(plan, g, strides, tiling.row_tiles, tiling.shape.slabs)
        axes, folds, order = _axes_of(sum, strides), _folds_of(sum), _order_of(sum)
        scaled = sum.mode.scaled
        batch = max(1, g.batch)
        judged = packed_words(
            (
                *(batch, g.groups * g.channels, *(axis.size_in for axis in sum.taps)),
                *(strides.input[0], strides.input[2], *lead, *strides.input_axes),
            )
        )
        rows = g.groups * sum.phases * tiling.row_tiles * tiling.shape.rows
        shifts = plan.packed - 4 * batch - 8 * rows, plan.packed - 4 * batch
        x = sum.axes[2]
        input_pairs = x.pairs and lie_together(2, (*strides.input, *strides.input_axes)) == 2
        along_x = sum.fold[2].count
        own = along_x % 2 == 0 or along_x == x.taps.phases == 1
        out_strides = (*strides.out, *strides.out_axes)
        unit = lie_together(sum.unit if own else 1, out_strides, g.axes[-1].size_out)
        groups = tiling.slots // 32
        constants = packed_words(
            (
                *parameter_fields(bias),
                *(g.batch, g.groups, g.rows),
                *(*strides.input, *lead, *strides.input_axes),
                *strides.weight,
                *(*strides.out, *lead, *strides.out_axes),
                *(value for axis in sum.taps for value in astuple(axis)),
                *axes,
                *folds,
                *zero_padded(_fold_offsets(sum, (*lead, *strides.out_axes)), MOST_FOLDS),
                *(sum.channels, sum.blocks, *order),
                *(sum.phases, sum.steps),
                *(plan.by_phase, *_words(bytes(sum.phase_order), MOST_ORDERED)),
                *(tiling.row_tiles, *tiling.tiles, *tiling.tile),
                *(tiling.plane_pitch, tiling.row_pitch, tiling.segment_pitch),
                *(tiling.slots, tiling.lattice_slots, *tiling.extent, *tiling.reach),
                *(
                    tiling.stages,
                    tiling.weight_stages,
                    tiling.chunk,
                    tiling.deep,
                    tiling.resident,
                    tiling.group,
                ),
                *map(reciprocal, (tiling.plane_pitch, tiling.row_pitch, tiling.tile[1])),
                *(long_reciprocal(n) for n in (tiling.row_tiles, *reversed(tiling.tiles))),
            )
        )
        pack, launch = self.device.launcher(plan.pack), self.device.launcher(plan.launch)
        address = self.device.address
        byte = np.dtype(np.uint8)
        lines = lines_of(g, strides, element)
        several = sum.spans > 1
        of_spans = sum.spans, long_reciprocal(sum.spans), tiling.apart

        def convolve(
            input: Array, weight: Array, bias: Array | None, out: Array | None, *more: int
        ) -> None:
            memory = self.device.workspace((plan.workspace,), byte)
            partial = address(memory)
            weights = address(weight), partial + plan.partial
            source, result = address(input), 0 if out is None else address(out)
            if scaled:
                found = weights[1] + shifts[0], weights[1] + shifts[1]
                looked_at = packed_words((source, lines, *found)) + judged
                more = (*found, *more)
            else:
                looked_at = packed_words((source, lines))
            if several:
                arrived = weights[1] + plan.packed
                looked_at += packed_words((arrived, plan.arrived))
                more = (*more, partial, arrived, *of_spans)
            pack(packed_words(weights) + pack_constants + looked_at)
            addresses = source, *weights, result, 0 if bias is None else address(bias)
            paired = input_pairs and source % (2 * element) == 0
            last = reciprocal(groups // 2 if paired else groups), paired
            aligned = math.gcd(unit, result // element)
            launch(packed_words(addresses) + constants + packed_words((*last, aligned, *more)))

        return convolve

    def fused(
        self,
        convolution: ConvGeometry,
        pooling: PoolGeometry,
        group_norm: NormGeometry,
        precision: str,
        input: Array,
        kernel: Array,
        given: bool,
        eps: float,
        out: Array,
    ) -> Fused | None:
        """Return the fused operation for all arrays of the layouts of these.

        None where it has no plan. Statistics may be `given`.
        """
        device, dtype, pooled_shape = self.device, out.dtype, pooling.out_shape
        num_groups = group_norm.sets_per_sample
        processor = device.processor()
        plan = plan_fused(convolution, pooled_shape, num_groups, dtype, precision, processor)
        if isinstance(plan, str):
            return None
        samples, channels, height, width = pooled_shape
        space, blocks = height * width, plan.convolution.launch.grid
        # The convolution's own result lies nowhere.
        strides = conv_strides(convolution, input, kernel, out)
        strides = strides._replace(out=(0, 0, 0), out_axes=[0, 0])
        convolve = self._matrix(plan.convolution, convolution, strides, None, dtype.itemsize)
        combine, normalize = device.launcher(plan.combine), device.launcher(plan.normalize)
        # In the place of the first block's statistics lies what `combine` makes of all.
        moments_shape = (1 if given else blocks, channels, 2)
        bits = int(np.float64(eps).view(np.int64))
        own = channels // num_groups
        sizes = samples, blocks, channels, num_groups, own, space, width
        constants = packed_words((*sizes, *strides_of(out), bits))
        single, double = np.dtype(np.float32), np.dtype(np.float64)

        def compute(
            input: Array,
            kernel: Array,
            statistics: Sequence[Array | None],
            parameters: Sequence[Array],
            out: Array,
        ) -> None:
            input, kernel = device.cast(input, dtype), device.cast(kernel, dtype)
            extrema = device.workspace(pooled_shape, single)
            moments = device.workspace(moments_shape, double)
            pooled, affine = device.address(extrema), device.address(moments)
            partials = 0 if given else affine
            known = [field for a in statistics for field in self._parameter(a)]
            before, behind = (
                [field for a in pair for field in self._parameter(a)]
                for pair in (parameters[:2], parameters[2:])
            )
            layout = channels * space, space, width
            convolve(input, kernel, None, None, pooled, partials, *before, *known, bits, *layout)
            arguments = packed_words(
                (pooled, partials, affine, device.address(out), *known, *before, *behind)
            )
            arguments += constants
            combine(arguments)
            normalize(arguments)
            if plan.apart:
                norm = self._plan_norm(group_norm, extrema, out, given=False, tanh=False)
                self._normalize(norm, group_norm, extrema, (None, None, *parameters[2:]), eps, out)

        return compute

    def normalize(
        self,
        geometry: NormGeometry,
        input: Array,
        mean: Array | None,
        var: Array | None,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        out: Array,
        tanh: bool = False,
    ) -> None:
        """Write the normalised `input` to `out`, computed in float64; tanh follows if asked for."""
        input = self.device.cast(input, floating(input.dtype))
        plan = self._plan_norm(geometry, input, out, given=mean is not None, tanh=tanh)
        self._normalize(plan, geometry, input, (mean, var, weight, bias), eps, out)

    def _plan_norm(
        self, geometry: NormGeometry, input: Array, out: Array, *, given: bool, tanh: bool
    ) -> NormPlan:
        across = lies_across(geometry, self._placed(input))
        processor = self.device.processor()
        return plan_norm(geometry, input.dtype, out.dtype, given, tanh, across, processor)

    def _normalize(
        self,
        plan: NormPlan,
        geometry: NormGeometry,
        input: Array,
        parameters: Sequence[Array | None],
        eps: float,
        out: Array,
    ) -> None:
        g, address = geometry, self.device.address
        alone = not plan.statistics
        workspaces = [
            self.device.workspace(shape, np.dtype(np.float64))
            for shape in ((g.sets, 2), (g.shape[1], 2), (g.sets, plan.segments, 2))
            if not alone
        ]
        own = packed_words(
            (
                *(address(input), address(out)),
                *(map(address, workspaces) if workspaces else (0, 0, 0)),
                *(field for array in parameters for field in self._parameter(array)),
                int(np.float64(eps).view(np.int64)),
                *(plan.segment, plan.segments),
            )
        )
        input_placed, out_placed = self._placed(input), self._placed(out)
        arguments = own + norm_layout(g, plan.pack, alone, input_placed, out_placed)
        for launch in (*plan.statistics, plan.normalize):
            self.device.launcher(launch)(arguments)

    def _placed(self, array: Array) -> Placed:
        size = array.dtype.itemsize
        return Placed(strides_of(array), size, self.device.address(array) // size % PACK)

    def max_pool2d(self, geometry: PoolGeometry, input: Array, out: Array) -> None:
        """Write the maximum of each window to `out`; a NaN in a window is its maximum."""
        device, size = self.device, out.dtype.itemsize
        plan = plan_pool(geometry, out.dtype, device.processor())
        (batch, *channels), workspaces = geometry.lead, []
        arrays = [(device.address(input), strides_of(input))]
        for one, elements in zip(plan.passes, plan.between, strict=False):
            workspaces.append(device.workspace((elements,), out.dtype))
            shape = (plan.samples, *channels, *one.out_shape)
            strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
            arrays.append((device.address(workspaces[-1]), strides))
        arrays.append((device.address(out), strides_of(out)))
        last = len(arrays) - 1
        for first in range(0, batch, plan.samples):
            lead = (min(plan.samples, batch - first), *channels)
            # Workspace is used again for each group of samples.
            places = [
                (address + (first * strides[0] * size if i in (0, last) else 0), strides)
                for i, (address, strides) in enumerate(arrays)
            ]
            for one, launch, (source, strides), (target, of_out) in zip(
                plan.passes, plan.launches, places, places[1:], strict=False
            ):
                placed = Placed(strides, size, source // size % PACK)
                layout = pool_layout(one, lead, placed, of_out)
                device.launcher(launch)(packed_words((source, target)) + layout)
