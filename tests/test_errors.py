"""Wrong calls: for every argument of every function the type and the whole text of the error.

One call of each function is right; a row of the table changes one or two of its arguments.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import cupyconv
from backends import BACKENDS, NumpyBackend, every_backend
from reference import Array, Shape
from strategies import BFLOAT16, FUSED, poison


class HostBackend(NumpyBackend):
    """CuPy arrays that lie in the host's memory: what raises before any launch needs no GPU.

    A call that should raise and does not ends in an error of CUDA.
    """

    name = "host"

    def asarray(self, a: Array, device: int = 0) -> Any:
        import cupy

        address = a.__array_interface__["data"][0]
        memory = cupy.cuda.UnownedMemory(address, a.nbytes, a, device_id=device)
        pointer = cupy.cuda.MemoryPointer(memory, 0)
        return cupy.ndarray(a.shape, a.dtype, memptr=pointer, strides=a.strides)

    def to_numpy(self, a: Any) -> Array:
        interface = {
            "version": 3,
            "data": (a.data.ptr, True),
            "shape": a.shape,
            "strides": a.strides,
            "typestr": a.dtype.str,
        }
        return np.asarray(type("Memory", (), {"__array_interface__": interface}))


HOST = pytest.param(HostBackend(), id="cupy-host")
every_kind = pytest.mark.parametrize("backend", [*BACKENDS, HOST])
every_cupy = pytest.mark.parametrize("backend", [p for p in BACKENDS if p.id == "cupy"] + [HOST])

# The calls that are right -------------------------------------------------------------------

LENGTHS, KERNEL = (6, 7, 5), (3, 2, 2)
FORWARD = {"conv": 2, "conv1d": 1, "conv2d": 2, "conv3d": 3}
TRANSPOSED = {f"{name.replace('conv', 'conv_transpose')}": rank for name, rank in FORWARD.items()}
CONVOLUTIONS = {**FORWARD, **TRANSPOSED, "depthwise_conv2d": 2}
NORMS = ("batch_norm", "group_norm")
PARAMETERS = ("bn_weight", "bn_bias", "gn_weight", "gn_bias", "mean", "var")
FUNCTIONS = (*CONVOLUTIONS, *NORMS, "max_pool2d", FUSED)


def shapes_of(function: str) -> dict[str, Shape]:
    """The shapes of the arrays of a right call, of `out` last."""
    if function in NORMS:
        names = (
            ("mean", "var", "weight", "bias") if function == "batch_norm" else ("weight", "bias")
        )
        return {"input": (2, 4, 3), **dict.fromkeys(names, (4,)), "out": (2, 4, 3)}
    if function == "max_pool2d":
        return {"input": (2, 3, 6, 7), "out": (2, 3, 3, 3)}
    if function == FUSED:
        arrays = {"input": (2, 4, 3, 3), "kernel": (4, 3, 3, 3)}
        return {**arrays, **dict.fromkeys(PARAMETERS, (6,)), "out": (2, 6, 2, 2)}
    rank = CONVOLUTIONS[function]
    lengths, kernel = LENGTHS[:rank], KERNEL[:rank]
    pairs = list(zip(lengths, kernel, strict=True))
    if function in TRANSPOSED:
        outputs = tuple(n + k - 1 for n, k in pairs)
        arrays = {"input": (2, 4, *lengths), "weight": (4, 3, *kernel)}
    else:
        outputs = tuple(n - k + 1 for n, k in pairs)
        arrays = {"input": (2, 4, *lengths), "weight": (6, 2, *kernel)}
    if function == "depthwise_conv2d":
        arrays = {"input": (2, 3, *lengths), "weight": (6, 1, *kernel)}
    return {**arrays, "bias": (6,), "out": (2, 6, *outputs)}


def options_of(function: str) -> dict[str, Any]:
    if function in NORMS:
        return {"num_groups": 2} if function == "group_norm" else {}
    if function == "max_pool2d":
        return {"kernel_size": 2}
    if function == FUSED:
        return {"num_groups": 2, "groups": 2}
    return {} if function == "depthwise_conv2d" else {"groups": 2}


def right_call(function: str) -> dict[str, Any]:
    shapes = shapes_of(function)
    arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    poison(arrays["out"])
    return {**arrays, **options_of(function)}


def on(backend: NumpyBackend, function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, their arrays as the backend's (where CuPy has such arrays at all)."""

    def is_array(name: str, value: Any) -> bool:
        known = type(value) is np.ndarray and value.dtype.name in {"bool", *ALL_DTYPES.split(", ")}
        return known and name in shapes_of(function)

    return {
        name: backend.asarray(value) if is_array(name, value) else value
        for name, value in arguments.items()
    }


@every_backend
@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_right_call_is_right(backend: NumpyBackend, function: str) -> None:
    arguments = on(backend, function, right_call(function))
    result = backend.call(function, **arguments)
    assert result is arguments["out"]
    assert np.isfinite(backend.to_numpy(result)).all()


# The table of what is wrong -----------------------------------------------------------------


@dataclass(frozen=True)
class Wrong:
    """A call that is wrong in `changes`; `text` is the error's, after the function's name.

    Advice that follows a semicolon is tested in test_advice.py.
    """

    function: str
    changes: Mapping[str, Any]
    error: type[Exception]
    text: str


def huge(*shape: int, dtype: Any = np.float32) -> Array:
    """An array of any size in the memory of one element."""
    return as_strided(np.ones((), dtype), shape, (0,) * len(shape))


def ones(*shape: int, dtype: Any = np.float32) -> Array:
    return np.ones(shape, dtype)


# What is no integer, alone or among others; what is no sequence.
NO_INTEGERS = [1.5, 1.0, True, np.True_, "1", None, 1j, np.float32(1), b"1", {1, 2}, {1: 2}]
NO_INTEGER_AMONG = [1.5, False, "1", None, (1, 2), [1]]
EACH = "an integer or a sequence of integers"


def integers(
    function: str, argument: str, rank: int, *, minimum: int, none: bool = False, bits: int = 31
) -> Iterator[Wrong]:
    """Rows for an argument of one integer for all axes or for each; `none` is a value of it.

    Each is below 2**bits.
    """

    def row(value: Any, error: type[Exception], rule: str) -> Wrong:
        text = f"{argument} must {rule}, got {argument}={value!r}"
        return Wrong(function, {argument: value}, error, text)

    fill = (1,) * (rank - 1)
    for value in [*NO_INTEGERS, *((*fill, item) for item in NO_INTEGER_AMONG), np.array(1.5)]:
        if not (none and value is None):
            yield row(value, TypeError, f"be {EACH}")
    yield row(np.array([True] * rank), TypeError, f"be {EACH}")
    bound = ["not be negative", "be positive"][minimum]
    for low in (minimum - 1, -1, -(2**70), np.int8(-1)):
        yield row(low, ValueError, bound)
        yield row((*fill, low), ValueError, bound)
        yield row([low, *fill], ValueError, bound)
    for high in (2**bits, 2**63, 2**64, np.uint64(2**bits)):
        yield row(high, ValueError, f"be below 2**{bits}")
        yield row((*fill, high), ValueError, f"be below 2**{bits}")
    for count in {0, rank - 1, rank + 1, rank + 2} - {rank}:
        for value in ((1,) * count, [1] * count, np.ones(count, np.int64)):
            yield row(value, ValueError, f"have one value for each of {rank} spatial axes")


def paddings(function: str, rank: int) -> Iterator[Wrong]:
    """Rows for the padding of convolutions."""
    form = (
        f"be an integer, one integer or one (before, after) pair for each of {rank} spatial axes, "
        "'valid' or 'same'"
    )

    def row(value: Any, error: type[Exception], rule: str) -> Wrong:
        return Wrong(
            function, {"padding": value}, error, f"padding must {rule}, got padding={value!r}"
        )

    fill: Any = (0,) * (rank - 1)
    pairs: Any = ((0, 0),) * (rank - 1)
    for value in NO_INTEGERS:
        if not isinstance(value, str):
            yield row(value, TypeError, form)
    for item in (1.5, True, None, "same", b"1"):
        yield row((*fill, item), TypeError, form)
        yield row((*pairs, (0, item)), TypeError, form)
        yield row([*pairs, [item, 0]], TypeError, form)
    yield row((*pairs, ((0, 0), (0, 0))), TypeError, form)
    for name in ("full", "SAME", "", "1", "reflect"):
        text = f"padding given by name must be 'valid' or 'same', got padding={name!r}"
        yield Wrong(function, {"padding": name}, ValueError, text)
    for negative in (-1, (*fill, -1), (*pairs, (0, -1)), [*pairs, [-1, 0]], -(2**70)):
        yield row(negative, ValueError, "not be negative")
    for large in (2**63, (*fill, 2**63), (*pairs, (0, 2**64))):
        yield row(large, ValueError, "be below 2**63")
    for count in (0, rank + 1):
        yield row((1,) * count, ValueError, f"have one value for each of {rank} spatial axes")
    for wrong in (((1, 1),) * (rank + 1), ((1, 1, 1),) * rank, ((1,),) * rank, [[]] * rank):
        yield row(wrong, ValueError, form)
    yield row((*pairs, 1, (1, 1)), ValueError, form)  # flat and nested
    yield row((*pairs, (1, 1), "same"), ValueError, form)
    yield row(np.ones((rank + 1, 2), int), ValueError, form)


def counts(function: str, argument: str) -> Iterator[Wrong]:
    """Rows for an argument of one positive integer."""

    def row(value: Any, error: type[Exception], rule: str) -> Wrong:
        text = f"{argument} must {rule}, got {argument}={value!r}"
        return Wrong(function, {argument: value}, error, text)

    for value in [*NO_INTEGERS, (1,), [1], np.ones(1, int), np.array(1.0)]:
        yield row(value, TypeError, "be an integer")
    for value in (0, -1, -(2**70), np.int64(0)):
        yield row(value, ValueError, "be positive")
    for value in (2**63, 2**70):
        yield row(value, ValueError, "be below 2**63")


REAL = "bfloat16, float16, float32, float64, int16, int32, int64, int8"
UNSIGNED = "uint16, uint32, uint64, uint8"
REAL_DTYPES = f"{REAL}, {UNSIGNED}"
ALL_DTYPES = f"bfloat16, complex128, complex64, {REAL.removeprefix('bfloat16, ')}, {UNSIGNED}"
ODD_DTYPES: list[Any] = [
    bool,
    object,
    np.longdouble,
    np.clongdouble,
    "U1",
    "S1",
    "V4",
    "datetime64[s]",
    "timedelta64[s]",
    [("x", "f4")],
    ml_dtypes.float8_e4m3,
    ml_dtypes.int4,
]


class WithUnit(np.ndarray):
    """An array whose arithmetic is its own."""

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented


def arrays(function: str) -> Iterator[Wrong]:
    """Rows for each argument that is an array."""
    optional = {"mean", "var", "bias", "out"} | ({"weight"} if function in NORMS else set())
    dtypes = ALL_DTYPES if function in CONVOLUTIONS else REAL_DTYPES
    for name, shape in shapes_of(function).items():
        no_arrays = [ones(*shape).tolist(), 1.0, np.float32(1), "1", (), object()]
        no_arrays += [np.ma.masked_array(ones(*shape)), memoryview(ones(*shape))]
        with pytest.warns(PendingDeprecationWarning):
            no_arrays.append(np.matrix([[1.0]], np.float32))
        no_arrays.append(ones(*shape).view(WithUnit))
        for value in [*no_arrays, *([] if name in optional else [None])]:
            text = f"{name} must be a NumPy or CuPy array, got {type(value).__name__}"
            yield Wrong(function, {name: value}, TypeError, text)
        odd = [np.dtype(dtype) for dtype in ODD_DTYPES]
        odd += [] if function in CONVOLUTIONS else [np.dtype("complex64"), np.dtype("complex128")]
        for dtype in odd:
            text = f"{name} must have one of the dtypes {dtypes}, got {dtype}"
            yield Wrong(function, {name: np.zeros(shape, dtype)}, TypeError, text)


def outs(function: str) -> Iterator[Wrong]:
    """Rows for the shape and the dtype of ``out``."""
    shape = shapes_of(function)["out"]
    longer, transposed = (*shape[:-1], shape[-1] + 1), (shape[1], shape[0], *shape[2:])
    for wrong in (longer, transposed, shape[1:], (1, *shape), (math.prod(shape),), ()):
        text = f"out must have shape {shape}, got {wrong}"
        yield Wrong(function, {"out": poison(np.empty(wrong, np.float32))}, ValueError, text)
    for dtype in (np.float64, np.float16, np.int32, BFLOAT16):
        text = f"out must have dtype float32, got {np.dtype(dtype)}"
        yield Wrong(function, {"out": poison(np.empty(shape, dtype))}, TypeError, text)


def precisions(function: str) -> Iterator[Wrong]:
    for value in (1, True, b"tf32", ("tf32",), np.float32):
        text = f"precision must be a string, got {value!r}"
        yield Wrong(function, {"precision": value}, TypeError, text)
    for name in ("", "TF32", "float16", "ieee"):
        text = f"precision must be one of ('float32', 'tf32'), got precision={name!r}"
        yield Wrong(function, {"precision": name}, ValueError, text)


def methods(function: str) -> Iterator[Wrong]:
    """Rows for the method."""
    rule = "method must be one of 'direct', 'fft', 'auto', got method="
    for value in (None, 1, True, b"fft", ("fft",), 0.0):
        yield Wrong(function, {"method": value}, TypeError, f"{rule}{value!r}")
    for name in ("", "FFT", "winograd", "overlap-add"):
        yield Wrong(function, {"method": name}, ValueError, f"{rule}{name!r}")


MODES_RULE = "padding_mode must be None or one of 'reflect', 'symmetric', 'edge', 'wrap', got"


def padding_modes(function: str, rank: int) -> Iterator[Wrong]:
    """Rows for what lies in the padding."""
    for value in (1, True, b"edge", ("edge",), np.float32, 0.0):
        text = f"{MODES_RULE} padding_mode={value!r}"
        yield Wrong(function, {"padding_mode": value}, TypeError, text)
    for name in ("", "Edge", "zeros", "replicate", "circular", "constant", "mirror", "linear_ramp"):
        text = f"{MODES_RULE} padding_mode={name!r}"
        yield Wrong(function, {"padding_mode": name}, ValueError, text)
    if function in TRANSPOSED:
        return  # an output has at least one position
    shape = (*shapes_of(function)["input"][:-1], 0)
    lengths, padding = shape[2:], ((9, 9),) * rank
    text = (
        "padding_mode='edge' must have at least one position to continue on each axis, got spatial "
        f"sizes {lengths} with padding={padding}"
    )
    changes = {"input": ones(*shape), "padding": 9, "padding_mode": "edge"}
    yield Wrong(function, changes, ValueError, text)


def cut(value: Any) -> str:
    """What errors show of a number: its ends, where it is long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:98]}...{text[-99:]}"


def numbers(function: str) -> Iterator[Wrong]:
    """Rows for eps."""
    for value in (None, "1e-5", True, np.True_, 1j, [1e-5], np.array(1e-5), b"1"):
        text = f"eps must be a real number, got eps={value!r}"
        yield Wrong(function, {"eps": value}, TypeError, text)
    nan, inf = math.nan, math.inf
    for value in (-1e-5, -5e-324, -1, nan, inf, -inf, np.float64(nan), 10**400, np.float16(-1)):
        text = f"eps must be finite and not negative, got eps={cut(value)}"
        yield Wrong(function, {"eps": value}, ValueError, text)


def convolutions(function: str) -> Iterator[Wrong]:
    """Rows for what all convolutions have in common."""
    rank = CONVOLUTIONS[function]
    shapes = shapes_of(function)
    lengths, kernel = shapes["input"][2:], shapes["weight"][2:]

    def row(changes: Mapping[str, Any], text: str, error: type[Exception] = ValueError) -> Wrong:
        return Wrong(function, changes, error, text)

    yield from arrays(function)
    yield from outs(function)
    yield from precisions(function)
    yield from paddings(function, rank)
    yield from padding_modes(function, rank)
    yield from methods(function)
    for argument in ("stride", "dilation"):
        yield from integers(function, argument, rank, minimum=1)

    # Ranks.
    for shape in ((), (4,), lengths[1:], (1, 2, 4, *lengths)):
        text = (
            f"input must have {rank + 2} axes, or {rank + 1} without a batch axis, got input of "
            f"shape {shape}"
        )
        yield row({"input": ones(*shape)}, text)
    fixed = function not in ("conv", "conv_transpose")
    for shape in ((), (6,), (6, 2), (6, 2, *kernel, 1), kernel[1:]):
        rule = f"must have {rank + 2} axes"
        if not fixed:
            rule = "must have 1 to 24 spatial axes after its two channel axes"
            if len(shape) > 2:
                continue  # another rank, which the input does not have
        yield row({"weight": ones(*shape)}, f"weight {rule}, got weight of shape {shape}")
    for shape in ((), (1, 6), (6, 1), (5,), (7,), (0,), (1,)):
        text = "bias must have shape (6,), one value for each output channel, got bias of shape "
        yield row({"bias": ones(*shape)}, f"{text}{shape}")
    for axis in range(rank):
        shape = (*shapes["weight"][: 2 + axis], 0, *shapes["weight"][3 + axis :])
        text = f"weight must have kernel axes of at least 1, got weight of shape {shape}"
        yield row({"weight": ones(*shape)}, text)

    # dtypes.
    for input_dtype, weight_dtype in (
        (BFLOAT16, "int32"),
        ("uint16", BFLOAT16),
        ("float16", BFLOAT16),
    ):
        pair = np.dtype(input_dtype), np.dtype(weight_dtype)
        changes = {
            "input": ones(*shapes["input"], dtype=pair[0]),
            "weight": ones(*shapes["weight"], dtype=pair[1]),
        }
        text = f"input and weight must have a common dtype, got {pair[0]} and {pair[1]}"
        yield row(changes, text, TypeError)
    for bias_dtype, dtype in (
        ("complex64", "float32"),
        ("complex128", "float64"),
        ("float32", "int32"),
        ("float16", "int64"),
        (BFLOAT16, "int8"),
        ("int64", "uint8"),
    ):
        changes = {name: ones(*shapes[name], dtype=dtype) for name in ("input", "weight", "out")}
        changes["bias"] = ones(6, dtype=bias_dtype)
        text = (
            "bias must be castable to the result's dtype without a change of kind, got "
            f"{np.dtype(bias_dtype)} with a result of {dtype}"
        )
        yield row(changes, text, TypeError)


def overflows(function: str) -> Iterator[Wrong]:
    """Rows for convolutions whose arrays would have 2**63 bytes or a coordinate of 2**63."""
    rank = CONVOLUTIONS[function]
    shapes = shapes_of(function)
    spatial = shapes["input"][2:]
    one: Shape = (1,) * rank

    def row(shape: Shape, stride: int = 1, padding: int = 0, dtype: Any = np.float32) -> Wrong:
        options: dict[str, Any] = {"stride": (stride,) * rank}
        options["padding"] = ((padding, padding),) * rank
        if function in TRANSPOSED:
            options["output_padding"] = (0,) * rank
        options["dilation"] = one
        text = (
            "sizes must stay below 2**63, counted in bytes at 16 an element, got input of shape "
            f"{shape} with weight of shape {shapes['weight']}, "
            + ", ".join(f"{name}={value}" for name, value in options.items())
        )
        changes = {"input": huge(*shape, dtype=dtype), **options}
        return Wrong(function, changes, ValueError, text)

    channels = shapes["input"][1]
    samples = 2**59 // (channels * math.prod(spatial)) + 1
    yield row((samples, channels, *spatial), dtype=np.int8)  # the input, in the result's dtype
    empty = (0, channels, *shapes["weight"][2:-1], 2**57)
    yield row(
        empty, dtype=np.int8
    )  # no elements, and still no shape of an array of 16-byte numbers
    if rank == 1:  # only a coordinate
        far = 2**31 - 1
        full = (2**33 - 1) * far + shapes["weight"][2]
        if function in TRANSPOSED:
            yield row((2, channels, 2**33), stride=far, padding=full // 2 - 1)
        else:
            yield row(shapes["input"], stride=far, padding=2**62)
    if function in TRANSPOSED:
        yield row((2, channels, 2**28, *one[1:]), stride=2**31 - 1)
    else:
        for padding in (2**58, 2**62 - 2, 2**62, 2**63 - 1):
            yield row(shapes["input"], padding=padding)


def forward(function: str) -> Iterator[Wrong]:
    """Rows for the convolutions that are not transposed, nor depthwise."""
    shapes = shapes_of(function)
    lengths, weight = shapes["input"][2:], shapes["weight"]
    yield from counts(function, "groups")
    for channels, groups in ((3, 2), (5, 2), (4, 1), (4, 3), (4, 2**40), (0, 2)):
        shape = (2, channels, *lengths)
        text = (
            f"input must have groups * weight.shape[1] channels, got {channels} channels with "
            f"groups={groups} and weight of shape {weight}"
        )
        yield Wrong(function, {"input": ones(*shape), "groups": groups}, ValueError, text)
    shape = (6, 1, *weight[2:])
    text = f"groups must divide the output channels, got groups=4 and weight of shape {shape}"
    yield Wrong(function, {"weight": ones(*shape), "groups": 4}, ValueError, text)


def too_large_kernels(function: str) -> Iterator[Wrong]:
    rank = CONVOLUTIONS[function]
    shapes = shapes_of(function)
    lengths, weight = shapes["input"][2:], shapes["weight"]
    for axis in range(rank):
        kernel = (*weight[2 : 2 + axis], lengths[axis] + 4, *weight[3 + axis :])
        for dilation, padding in (((1,) * rank, 1), ((2,) * rank, 2), ((2**31 - 1,) * rank, 0)):
            pads = ((padding, padding),) * rank
            shape = (*weight[:2], *kernel)
            extent = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
            padded = tuple(n + 2 * padding for n in lengths)
            text = (
                "the kernel must not be larger than the padded input, got input of shape "
                f"{shapes['input']} with weight of shape {shape}, stride={(1,) * rank}, "
                f"padding={pads}, dilation={dilation}: a kernel of extent {extent} on a padded "
                f"input of size {padded}"
            )
            changes = {"weight": ones(*shape), "dilation": dilation, "padding": padding}
            yield Wrong(function, changes, ValueError, text)


def transposed(function: str) -> Iterator[Wrong]:
    """Rows for the transposed convolutions."""
    rank = TRANSPOSED[function]
    shapes = shapes_of(function)
    lengths, weight = shapes["input"][2:], shapes["weight"]
    yield from counts(function, "groups")
    yield from output_paddings(function, rank)
    yield from output_sizes(function)
    for channels in (3, 5, 0):
        text = (
            f"input must have weight.shape[0] channels, got {channels} channels with weight of "
            f"shape {weight}"
        )
        yield Wrong(function, {"input": ones(2, channels, *lengths)}, ValueError, text)
    for groups in (3, 8, 2**40):
        changes = {"groups": groups, "bias": None}
        text = (
            f"groups must divide the input channels, got groups={groups} and input of shape "
            f"{shapes['input']}"
        )
        yield Wrong(function, changes, ValueError, text)
    text = "bias must have shape (3,), one value for each output channel, got bias of shape (6,)"
    yield Wrong(function, {"groups": 1, "bias": ones(6)}, ValueError, text)
    full = shapes["out"][2:]
    for padding in (4, 2**62):
        size = tuple(n - 2 * padding for n in full)
        text = (
            f"every spatial size of the output must be at least 1, got input of shape "
            f"{shapes['input']} with weight of shape {weight}, stride={(1,) * rank}, "
            f"padding={((padding, padding),) * rank}, output_padding={(0,) * rank}, "
            f"dilation={(1,) * rank}: output size {size}"
        )
        yield Wrong(function, {"padding": padding}, ValueError, text)


def output_paddings(function: str, rank: int, dilated: bool = True) -> Iterator[Wrong]:
    yield from integers(function, "output_padding", rank, minimum=0)
    one = (1,) * rank
    for axis in range(rank):
        for stride, dilation in ((1, 1), (2, 1), (1, 3), (3, 2), (2, 3)):
            if dilation > 1 and not dilated:
                continue
            strides = (*one[:axis], stride, *one[axis + 1 :])
            dilations = (*one[:axis], dilation, *one[axis + 1 :])
            for extra in (max(stride, dilation), max(stride, dilation) + 1, 2**31 - 1):
                extras = (*(0,) * axis, extra, *(0,) * (rank - 1 - axis))
                changes = {"output_padding": extras, "stride": strides, "dilation": dilations}
                text = (
                    "output_padding must be smaller than stride or dilation on each axis, got "
                    f"output_padding={extras} with stride={strides}, dilation={dilations}"
                )
                if not dilated:
                    del changes["dilation"]
                yield Wrong(function, changes, ValueError, text)
    text = f"output_padding must be 0 with padding='same', got output_padding={one}"
    changes = {"output_padding": 1, "stride": 2, "padding": "same"}
    yield Wrong(function, changes, ValueError, text)


def output_sizes(function: str) -> Iterator[Wrong]:
    """Rows for the output size; the last axis has the wrong one of a range."""
    rank = TRANSPOSED[function]
    shapes = shapes_of(function)
    lengths, weight = shapes["input"][2:], shapes["weight"]
    yield from integers(function, "output_size", rank, minimum=1, none=True, bits=63)
    one, full = (1,) * rank, shapes["out"][2:]
    text = (
        "output_padding must be 0 with output_size, which replaces it, got "
        f"output_padding={one} with output_size={full}"
    )
    yield Wrong(function, {"output_size": full, "output_padding": 1, "stride": 2}, ValueError, text)
    call = f"input of shape {shapes['input']} with weight of shape {weight}"
    pads: Any
    for stride, dilation, pads in (
        (1, 1, "valid"),
        (1, 1, 1),
        (3, 2, ((2, 1),) * rank),
        (3, 1, "same"),
        (5, 1, "same"),
        (5, 2, ((5, 9),) * rank),  # some sizes of the range would be below 1
    ):
        padding = pads if isinstance(pads, str) else ((pads, pads),) * rank
        padding = padding if isinstance(pads, (str, int)) else pads
        total = sum(padding[0]) if isinstance(padding, tuple) else 0
        small, large = [], []
        for n, k in zip(lengths, weight[2:], strict=True):
            least = (n - 1) * stride + 1
            if pads != "same":
                least += dilation * (k - 1) - total
            small.append(max(least, 1))
            large.append(least + stride - 1)
        for wrong in (small[-1] - 1, large[-1] + 1, 2**63 - 1):
            if not wrong:
                continue
            size = (*small[:-1], wrong)
            text = (
                f"output_size must be from {tuple(small)} to {tuple(large)}, the sizes that a "
                f"convolution with the same arguments maps to the input's size, got "
                f"output_size={size} for {call}, stride={(stride,) * rank}, padding={padding!r}, "
                f"dilation={(dilation,) * rank}"
            )
            changes = {"output_size": size, "stride": stride, "dilation": dilation}
            yield Wrong(function, {**changes, "padding": pads}, ValueError, text)
    # No size at all.
    least = tuple(n + k - 1 - 40 for n, k in zip(lengths, weight[2:], strict=True))
    text = (
        f"every spatial size of the output must be at least 1, got {call}, stride={one}, "
        f"padding={((20, 20),) * rank}, dilation={one}: output size from {least} to {least}"
    )
    yield Wrong(function, {"padding": 20, "output_size": 1}, ValueError, text)


def depthwise() -> Iterator[Wrong]:
    function = "depthwise_conv2d"
    for shape in ((6, 2, 3, 2), (6, 3, 3, 2), (6, 0, 3, 2)):
        text = f"weight must have shape (C_out, 1, *kernel), got weight of shape {shape}"
        yield Wrong(function, {"weight": ones(*shape)}, ValueError, text)
    for channels_in, channels_out in ((4, 6), (3, 7), (3, 2), (0, 6)):
        given, weight = (2, channels_in, 6, 7), (channels_out, 1, 3, 2)
        text = (
            "weight.shape[0] must be a multiple of the input's channels, got weight of shape "
            f"{weight} with input of shape {given}"
        )
        changes = {"input": ones(*given), "weight": ones(*weight)}
        yield Wrong(function, changes, ValueError, text)


def norms(function: str) -> Iterator[Wrong]:
    yield from arrays(function)
    yield from outs(function)
    yield from numbers(function)
    shapes = shapes_of(function)
    for shape in ((), (4,)):
        text = f"input must have a batch and a channel axis, got input of shape {shape}"
        yield Wrong(function, {"input": ones(*shape)}, ValueError, text)
    for name in [name for name in ("mean", "var", "weight", "bias") if name in shapes]:
        for shape in ((), (3,), (5,), (1,), (4, 1), (1, 4), (0,)):
            text = f"{name} must have shape (4,), one value for each channel, got {name} of shape "
            yield Wrong(function, {name: ones(*shape)}, ValueError, f"{text}{shape}")
    empty = {
        "batch_norm": [(0, 4, 3), (2, 4, 0), (0, 4), (0, 0)],
        "group_norm": [(2, 4, 0), (2, 0, 3), (2, 0), (0, 4, 0)],
    }
    for shape in empty[function]:
        text = f"cannot normalise over no values, got input of shape {shape}"
        changes = {
            "input": ones(*shape),
            **dict.fromkeys(name for name in shapes if name not in ("input", "out")),
        }
        yield Wrong(function, changes, ValueError, text)
    for shape in ((2**59, 4), (1, 4, 2**57), (2**30, 4, 2**15, 2**12), (0, 4, 2**59)):
        if 0 in shape and function == "batch_norm":
            continue
        text = (
            "sizes must stay below 2**63, counted in bytes at 16 an element, got input of shape "
            f"{shape}"
        )
        yield Wrong(function, {"input": huge(*shape, dtype=np.int8)}, ValueError, text)


def batch_norm() -> Iterator[Wrong]:
    for function in ("batch_norm", FUSED):
        for alone, missing in (("mean", "var"), ("var", "mean")):
            text = f"mean and var must be given together, got {alone} alone"
            yield Wrong(function, {missing: None}, ValueError, text)


FUSED_CALL = "input of shape (2, 4, 3, 3) with kernel of shape (4, 3, 3, 3)"


def group_norm() -> Iterator[Wrong]:
    for function, channels, subject in (
        ("group_norm", 4, "input of shape (2, 4, 3)"),
        (FUSED, 6, f"{FUSED_CALL}: a pooled result of shape (2, 6, 2, 2)"),
    ):
        yield from counts(function, "num_groups")
        for groups in (channels - 1, channels + 1, 2 * channels, 2**62):
            text = f"num_groups must divide the channels, got num_groups={groups} and {subject}"
            yield Wrong(function, {"num_groups": groups}, ValueError, text)


def max_pool2d() -> Iterator[Wrong]:
    function = "max_pool2d"

    def call(changes: Mapping[str, Any]) -> str:
        def pair(name: str, default: Any) -> Shape:
            value = changes.get(name, default)
            return value if isinstance(value, tuple) else (value, value)

        kernel = pair("kernel_size", 2)
        shape = changes["input"].shape if "input" in changes else (2, 3, 6, 7)
        return (
            f"input of shape {shape} with kernel_size={kernel}, stride={pair('stride', kernel)}, "
            f"padding={pair('padding', 0)}, dilation={pair('dilation', 1)}, "
            f"ceil_mode={changes.get('ceil_mode', False)}"
        )

    def row(text: str, **changes: Any) -> Wrong:
        return Wrong(function, changes, ValueError, text.format(call=call(changes)))

    yield from arrays(function)
    yield from outs(function)
    yield from integers(function, "kernel_size", 2, minimum=1)
    yield from integers(function, "stride", 2, minimum=1, none=True)
    yield from integers(function, "padding", 2, minimum=0)
    yield from integers(function, "dilation", 2, minimum=1)
    for name in ("same", "valid"):
        text = f"padding must be {EACH}, got padding={name!r}"
        yield Wrong(function, {"padding": name}, TypeError, text)
    for value in (0, 1, None, "True", 1.0, [True], np.array(True)):
        text = f"ceil_mode must be a bool, got ceil_mode={value!r}"
        yield Wrong(function, {"ceil_mode": value}, TypeError, text)
    for shape in ((), (6,), (6, 7), (1, 2, 3, 6, 7)):
        text = f"input must have 4 axes, or 3 without a batch axis, got input of shape {shape}"
        yield Wrong(function, {"input": ones(*shape)}, ValueError, text)

    half = "padding must be at most half of the window's extent, got {call}: padding "
    yield row(half + "2 and a window of extent 2", padding=2)
    yield row(half + "1 and a window of extent 1", kernel_size=(2, 1), padding=1)
    yield row(half + "3 and a window of extent 5", kernel_size=3, dilation=2, padding=(2, 3))
    yield row(half + f"{2**31 - 1} and a window of extent 2", padding=(0, 2**31 - 1))
    small = (
        "every spatial size of the output must be at least 1, got {call}: a window of extent {e} "
        "on a padded input of size {p}"
    )
    for extent, padded, changes in (
        (7, 6, {"kernel_size": 7}),
        (8, 7, {"kernel_size": (1, 8)}),
        (9, 8, {"kernel_size": 5, "dilation": 2, "padding": (1, 2)}),
        (2**31, 6, {"dilation": 2**31 - 1}),
        ((2**31 - 1) * (2**31 - 2) + 1, 6, {"dilation": 2**31 - 1, "kernel_size": 2**31 - 1}),
        (8, 6, {"kernel_size": (8, 1), "stride": 2, "ceil_mode": True}),
        (1, 0, {"kernel_size": 1, "input": ones(2, 3, 6, 0)}),
        (1, 0, {"kernel_size": 1, "input": ones(2, 3, 0, 7), "stride": 2, "ceil_mode": True}),
    ):
        yield row(small.replace("{e}", str(extent)).replace("{p}", str(padded)), **changes)
    missed = "every window must hold at least one input, got {call}: the window at {o} holds none"
    far = 2**30
    for start, changes in (
        (-2, {"input": ones(1, 1, 1, 7), "padding": (2, 0), "dilation": 3, "stride": 1}),
        (-1, {"input": ones(1, 1, 0, 7), "padding": 1}),
        (-6, {"input": ones(1, 1, 7), "kernel_size": 4, "dilation": 4, "padding": (6, 0)}),
        (
            -1,  # found without a look at each of 2**28 windows
            {
                "input": huge(1, 1, far, 2),
                "kernel_size": (2, 1),
                "dilation": far + 1,
                "padding": (far // 2 + 1, 0),
                "stride": 2,
            },
        ),
    ):
        yield row(missed.replace("{o}", str(start)), **changes)
    sizes = "sizes must stay below 2**63, counted in bytes at 16 an element, got {call}"
    yield row(sizes, input=huge(2**57, 1, 1, 1, dtype=np.int8), stride=1, padding=1)
    yield row(sizes, input=huge(1, 2**40, 2**22, dtype=np.int8), stride=2**31 - 1)


def fused() -> Iterator[Wrong]:
    function = FUSED
    yield from arrays(function)
    yield from outs(function)
    yield from precisions(function)
    yield from numbers(function)
    yield from paddings(function, 2)
    yield from integers(function, "stride", 2, minimum=1)
    yield from counts(function, "groups")
    yield from output_paddings(function, 2, dilated=False)

    def row(text: str, error: type[Exception] = ValueError, **changes: Any) -> Wrong:
        return Wrong(function, changes, error, text)

    for shape in ((), (4, 3, 3), (1, 2, 4, 3, 3)):
        yield row(f"input must have 4 axes, got input of shape {shape}", input=ones(*shape))
    for shape in ((), (4, 3, 3), (4, 3, 3, 3, 1)):
        yield row(f"kernel must have 4 axes, got kernel of shape {shape}", kernel=ones(*shape))
    shape = (4, 3, 0, 3)
    text = f"kernel must have kernel axes of at least 1, got kernel of shape {shape}"
    yield row(text, kernel=ones(*shape))
    for name in PARAMETERS:
        for shape in ((), (5,), (1,), (6, 1)):
            text = f"{name} must have shape (6,), one value for each channel, got {name} of shape "
            yield row(f"{text}{shape}", **{name: ones(*shape)})
    text = (
        "input must have kernel.shape[0] channels, got 3 channels with kernel of shape (4, 3, 3, 3)"
    )
    yield row(text, input=ones(2, 3, 3, 3))
    text = "groups must divide the input channels, got groups=3 and input of shape (2, 4, 3, 3)"
    yield row(text, groups=3)
    text = "input and kernel must have a common dtype, got bfloat16 and int32"
    changes = {
        "input": ones(2, 4, 3, 3, dtype=BFLOAT16),
        "kernel": ones(4, 3, 3, 3, dtype=np.int32),
    }
    yield row(text, TypeError, **changes)
    call = (
        "kernel of shape (4, 3, {k}, {k}), stride={s}, padding={p}, output_padding=(0, 0), "
        "dilation=(1, 1)"
    )
    text = (
        "every spatial size of the output must be at least 1, got input of shape (2, 4, 3, 3) with "
        f"{call.format(k=3, s=(1, 1), p=((3, 3), (3, 3)))}: output size (-1, -1)"
    )
    yield row(text, padding=3)
    text = (
        f"every spatial size of the output must be at least 1, got {FUSED_CALL}: a convolution "
        "result of shape (2, 6, 1, 1) with kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), "
        "dilation=(1, 1), ceil_mode=False: a window of extent 2 on a padded input of size 1"
    )
    yield row(text, padding=2)
    text = (
        "cannot normalise over no values, got input of shape (0, 4, 3, 3) with kernel of shape "
        "(4, 3, 3, 3): a convolution result of shape (0, 6, 5, 5)"
    )
    yield row(text, input=ones(0, 4, 3, 3), mean=None, var=None)
    none = {name: ones(0) for name in PARAMETERS}
    text = (
        "cannot normalise over no values, got input of shape (2, 4, 3, 3) with kernel of shape "
        "(4, 0, 3, 3): a pooled result of shape (2, 0, 2, 2)"
    )
    yield row(text, kernel=ones(4, 0, 3, 3), **none)
    given = huge(2, 4, 2**20, 2**20)
    text = (
        "sizes must stay below 2**63, counted in bytes at 16 an element, got input of shape "
        f"{given.shape} with {call.format(k=3, s=(2**20, 2**20), p=((0, 0), (0, 0)))}"
    )
    yield row(text, input=given, stride=2**20)


ROWS = [
    *(row for function in CONVOLUTIONS for row in convolutions(function)),
    *(row for function in CONVOLUTIONS for row in overflows(function)),
    *(row for function in FORWARD for row in forward(function)),
    *(row for f in (*FORWARD, "depthwise_conv2d") for row in too_large_kernels(f)),
    *(row for function in TRANSPOSED for row in transposed(function)),
    *depthwise(),
    *(row for function in NORMS for row in norms(function)),
    *batch_norm(),
    *group_norm(),
    *max_pool2d(),
    *fused(),
]


def test_each_argument_of_each_function_is_in_the_table() -> None:
    have_own_tests = {"explain", "precision", "show_config"}
    assert set(FUNCTIONS) == set(cupyconv.__all__) - have_own_tests
    for function in FUNCTIONS:
        arguments = set(inspect.signature(getattr(cupyconv, function)).parameters)
        changed = [set(row.changes) for row in ROWS if row.function == function]
        assert set().union(*changed) == arguments
        alone = {name for names in changed if len(names) == 1 for name in names}
        assert alone == arguments, function


GROUPS: dict[str, list[Wrong]] = {}
for row in ROWS:
    name = row.function if row.function != FUSED else "fused"
    GROUPS.setdefault(f"{name}-{'-'.join(row.changes)}", []).append(row)


def bits(backend: NumpyBackend, out: Any) -> bytes | None:
    """The bytes of an array; None for what is no array that holds numbers."""
    if type(out) is np.ndarray:
        return out.tobytes()
    return backend.to_numpy(out).tobytes() if type(out).__module__.startswith("cupy") else None


def refusal(backend: NumpyBackend, function: str, arguments: Mapping[str, Any]) -> tuple[type, str]:
    """The type and the text of a wrong call's error; ``out`` keeps its contents."""
    before = bits(backend, arguments["out"])
    with pytest.raises(Exception) as caught:
        backend.call(function, **arguments)
    assert bits(backend, arguments["out"]) == before
    return type(caught.value), str(caught.value)


@every_kind
@pytest.mark.parametrize("group", GROUPS)
def test_wrong_calls(backend: NumpyBackend, group: str) -> None:
    for row in GROUPS[group]:
        arguments = on(backend, row.function, {**right_call(row.function), **row.changes})
        error, text = refusal(backend, row.function, arguments)
        rule, _, _ = text.partition("; ")
        assert rule == f"{row.function}: {row.text}"
        assert error is row.error, row
        assert any(name in row.text for name in row.changes)


# Memory that `out` must not share -----------------------------------------------------------

INPUTS = [(f, name) for f in FUNCTIONS for name in shapes_of(f) if name != "out"]
ARRAYS = [(f, name) for f in FUNCTIONS for name in shapes_of(f)]


def neighbours(backend: NumpyBackend, first: Shape, second: Shape, shared: int) -> tuple[Any, Any]:
    """Two arrays in one buffer, the second after the first but for `shared` elements."""
    sizes = math.prod(first), math.prod(second)
    memory = backend.asarray(np.ones(sum(sizes), np.float32))
    behind = sizes[0] - shared
    return memory[: sizes[0]].reshape(first), memory[behind : behind + sizes[1]].reshape(second)


@every_kind
@pytest.mark.parametrize(("function", "name"), INPUTS)
def test_out_that_shares_memory(backend: NumpyBackend, function: str, name: str) -> None:
    shapes = shapes_of(function)
    arguments = on(backend, function, right_call(function))
    for shared in (1, math.prod(shapes["out"])):
        out, argument = neighbours(backend, shapes["out"], shapes[name], shared)
        wrong = {**arguments, "out": out, name: argument}
        text = f"{function}: out must not share memory with {name}"
        assert refusal(backend, function, wrong) == (ValueError, text)


@every_backend
@pytest.mark.parametrize(("function", "name"), INPUTS)
def test_out_beside_an_input(backend: NumpyBackend, function: str, name: str) -> None:
    shapes = shapes_of(function)
    out, argument = neighbours(backend, shapes["out"], shapes[name], 0)
    arguments = on(backend, function, right_call(function))
    backend.call(function, **{**arguments, "out": out, name: argument})


@every_kind
@pytest.mark.parametrize("function", FUNCTIONS)
def test_out_that_overlaps_itself(backend: NumpyBackend, function: str) -> None:
    shape = shapes_of(function)["out"]
    arguments = on(backend, function, right_call(function))
    memory = backend.asarray(np.zeros(math.prod(shape), np.float32))
    steps = memory.reshape(shape).strides
    for strides in ((0, *steps[1:]), (*steps[:-1], 0), (4, *steps[1:])):
        if type(memory) is np.ndarray:
            out = as_strided(memory, shape, strides)
        else:
            import cupy

            out = cupy.lib.stride_tricks.as_strided(memory, shape, strides)
        text = f"{function}: out must not overlap itself, got shape {shape} with strides {strides}"
        assert refusal(backend, function, {**arguments, "out": out}) == (ValueError, text)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_read_only_out(function: str) -> None:
    """CuPy has no read-only arrays."""
    arguments = right_call(function)
    text = f"{function}: out must be writable, got a read-only array"
    frozen = arguments["out"].view()
    frozen.flags.writeable = False
    for out in (frozen, np.broadcast_to(np.float32(1), frozen.shape)):
        wrong = {**arguments, "out": out}
        assert refusal(NumpyBackend(), function, wrong) == (ValueError, text)


# Arrays of several kinds and devices --------------------------------------------------------


@every_cupy
@pytest.mark.parametrize(("function", "name"), ARRAYS)
def test_numpy_beside_cupy(backend: NumpyBackend, function: str, name: str) -> None:
    host = right_call(function)
    device = on(backend, function, host)
    names = shapes_of(function)
    rule = f"{function}: arrays must be all from NumPy or all from CuPy, got "
    for most, one, all_but_one, kind in (
        (device, host, "CuPy", "NumPy"),
        (host, device, "NumPy", "CuPy"),
    ):
        kinds = {**dict.fromkeys(names, all_but_one), name: kind}
        listing = ", ".join(f"{name} from {kind}" for name, kind in kinds.items())
        wrong = {**most, name: one[name]}
        assert refusal(backend, function, wrong) == (TypeError, rule + listing)


@pytest.mark.parametrize(("function", "name"), ARRAYS)
def test_arrays_of_two_devices(function: str, name: str) -> None:
    """Such arrays can be had without two GPUs: nothing looks at their memory."""
    backend = HostBackend()
    arguments = on(backend, function, right_call(function))
    arguments[name] = backend.asarray(right_call(function)[name], device=1)
    devices = {**dict.fromkeys(shapes_of(function), 0), name: 1}
    text = f"{function}: arrays must be on one device, got devices {devices}"
    assert refusal(backend, function, arguments) == (ValueError, text)


@every_cupy
@pytest.mark.parametrize(("function", "name"), ARRAYS)
def test_misaligned_cupy_arrays(backend: NumpyBackend, function: str, name: str) -> None:
    """A GPU reads no number that lies between multiples of its size."""
    import cupy

    shape = shapes_of(function)[name]
    arguments = on(backend, function, right_call(function))
    memory = backend.asarray(np.zeros(8 * math.prod(shape) + 8, np.uint8))
    contiguous = np.empty(shape, np.float32).strides
    for offset, strides in ((2, contiguous), (0, (*contiguous[:-1], 6))):
        wrong = cupy.ndarray(shape, np.float32, memptr=memory.data + offset, strides=strides)
        text = (
            f"{function}: {name} must lie at multiples of its element size, got address "
            f"{wrong.data.ptr} and strides {strides} with dtype float32"
        )
        changed = {**arguments, name: wrong}
        with pytest.raises(ValueError) as caught:
            backend.call(function, **changed)
        assert str(caught.value) == text


@every_cupy
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["input", "weight", "bias", "out"])
def test_complex_cupy_arrays_between_numbers(backend: NumpyBackend, name: str, dtype: str) -> None:
    """CuPy's kernels, which copy the parts of complex numbers, load both by one instruction."""
    import cupy

    right = right_call("conv2d")
    arguments = {
        argument: value.astype(dtype) if isinstance(value, np.ndarray) else value
        for argument, value in right.items()
    }
    arguments = on(backend, "conv2d", arguments)
    shape, part = shapes_of("conv2d")[name], np.dtype(dtype).itemsize // 2
    memory = backend.asarray(np.zeros(2 * math.prod(shape) + 1, f"float{8 * part}"))
    arguments[name] = wrong = cupy.ndarray(shape, dtype, memptr=memory.data + part)
    text = (
        f"conv2d: {name} must lie at multiples of its element size, got address "
        f"{wrong.data.ptr} and strides {wrong.strides} with dtype {dtype}"
    )
    assert refusal(backend, "conv2d", arguments) == (ValueError, text)


@pytest.mark.gpu
@pytest.mark.parametrize("value", [2, [1, 1]])
def test_a_cupy_array_is_no_integer(value: Any) -> None:
    """To read it would wait for the GPU."""
    import cupy

    wrong = cupy.asarray(value)
    x, w = cupy.ones((1, 1, 4, 4)), cupy.ones((1, 1, 2, 2))
    for argument in ("stride", "dilation", "padding", "groups"):
        with pytest.raises(TypeError, match=f"^conv2d: {argument} must be an integer"):
            cupyconv.conv2d(x, w, **{argument: wrong})


# Other wrong calls --------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 1, True, b"tf32", ("tf32",)])
def test_precision_that_is_no_string(value: Any) -> None:
    with pytest.raises(TypeError) as caught, cupyconv.precision(value):
        pass
    assert str(caught.value) == f"precision: precision must be a string, got {value!r}"


@pytest.mark.parametrize("name", ["", "TF32", "float16", "ieee"])
def test_precision_of_an_unknown_name(name: str) -> None:
    text = f"precision: precision must be one of ('float32', 'tf32'), got precision={name!r}"
    with pytest.raises(ValueError) as caught, cupyconv.precision(name):
        pass
    assert str(caught.value) == text


def nested(value: Any, depth: int, kind: type = list) -> Any:
    for _ in range(depth):
        value = kind([value])
    return value


class Speechless:
    """A value without a text."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


ODD = {
    "deep list": nested(1, 1000),
    "deep tuple": nested(1, 1000, tuple),
    "deep pairs": ((nested(1, 1000), 1), (1, 1)),
    "deep array": np.array([nested(1, 1000), 1], object),
    "digits": 10**5000,
    "among others": (1, 10**5000),
    "many": [1] * 1_000_000,
    "range": range(10**15),
    "characters": "x" * 1_000_000,
    "without a text": Speechless(),
    "without a text, in a list": [Speechless()],
}
OPTIONS = [
    (function, name)
    for function in FUNCTIONS
    for name in inspect.signature(getattr(cupyconv, function)).parameters
    if name not in shapes_of(function)
]


@pytest.mark.parametrize(("function", "name"), OPTIONS)
@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_odd_values(function: str, name: str, value: Any) -> None:
    """Nested, long and unprintable values get the errors that others get, and a short text."""
    arguments = {**right_call(function), name: value}
    error, text = refusal(NumpyBackend(), function, arguments)
    assert text.startswith(f"{function}: {name} ") and ", got " in text and len(text) < 500
    assert error in (ValueError, TypeError)
    target = inspect.signature(getattr(cupyconv, function)).bind(**arguments)
    with pytest.raises(error) as caught:
        cupyconv.explain(getattr(cupyconv, function), *target.args, **target.kwargs, target="sm_80")
    assert str(caught.value) == text


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_odd_values_of_a_precision_block(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as caught, cupyconv.precision(value):
        pass
    assert str(caught.value).startswith("precision: precision must be ")
    assert len(str(caught.value)) < 500


def test_an_odd_dtype_of_an_array() -> None:
    dtype = np.dtype("f4")
    for _ in range(1000):
        dtype = np.dtype([("a", dtype)])
    for function in FUNCTIONS:
        error, text = refusal(
            NumpyBackend(), function, {**right_call(function), "input": np.zeros((2, 4, 6), dtype)}
        )
        assert error is TypeError and len(text) < 500
        assert text.startswith(f"{function}: input must have one of the dtypes ")


def test_a_word_of_a_derived_class_is_the_word() -> None:
    class Word(str):
        __slots__ = ()
        __hash__ = None  # type: ignore[assignment]

    x, w = np.ones((1, 1, 5)), np.ones((1, 1, 3))
    with cupyconv.precision(Word("tf32")):
        result = cupyconv.conv1d(x, w, padding=Word("same"), precision=Word("tf32"))
        assert type(cupyconv._precision.current()) is str
    assert result.tolist() == [[[2.0, 3.0, 3.0, 3.0, 2.0]]]


@pytest.mark.parametrize("function", ["conv", "conv_transpose"])
def test_more_spatial_axes_than_kernels_hold(function: str) -> None:
    call = getattr(cupyconv, function)
    most = np.full((1,) * 26, 2.0)
    np.testing.assert_array_equal(call(most, most, most.reshape(1)), 3 * most)
    for axes in (27, 40, 64):
        x = np.ones((1,) * axes)
        with pytest.raises(ValueError) as caught:
            call(x, x)
        assert str(caught.value) == (
            f"{function}: weight must have 1 to 24 spatial axes after its two channel axes, got "
            f"weight of shape {x.shape}"
        )


# Calls that are right, and larger than any memory -------------------------------------------

TOO_LARGE: dict[str, dict[str, Any]] = {
    "conv": {"padding": ((0, 0), (0, 2**48))},
    "conv1d": {"padding": 2**50},
    "conv2d": {"padding": 2**26},
    "conv3d": {"padding": 2**17},
    "conv_transpose": {"stride": 2**25},
    "conv_transpose1d": {"input": huge(2, 4, 2**20), "stride": 2**31 - 1},
    "conv_transpose2d": {"stride": 2**25},
    "conv_transpose3d": {"stride": 2**15},
    "depthwise_conv2d": {"padding": (2**50, 1)},
    "batch_norm": {"input": huge(2, 4, 2**50)},
    "group_norm": {"input": huge(2**50, 4, 3)},
    "max_pool2d": {"input": huge(2**50, 3, 6, 7, dtype=np.int8)},
    FUSED: {"stride": 2**25},
}


@every_backend
@pytest.mark.parametrize("function", FUNCTIONS)
def test_too_large_for_any_memory(backend: NumpyBackend, function: str) -> None:
    """CuPy's OutOfMemoryError is a MemoryError, as NumPy's is; the library works on after it."""
    right = on(backend, function, right_call(function))
    wrong = on(backend, function, {**right_call(function), **TOO_LARGE[function], "out": None})
    for _ in range(2):
        with pytest.raises(MemoryError):
            backend.call(function, **wrong)
        result = backend.to_numpy(backend.call(function, **right))
        assert np.isfinite(result).all()


@every_backend
def test_no_memory_for_a_copy(backend: NumpyBackend) -> None:
    """The result is small and there already, but the input is needed in another dtype."""
    arguments = {
        "input": backend.asarray(huge(1, 4, 2**50, dtype=np.int8)),
        "weight": backend.asarray(ones(6, 4, 1)),
        "stride": 2**31 - 1,
        "out": backend.poisoned((1, 6, 2**19 + 1), np.float32),
    }
    before = bits(backend, arguments["out"])
    with pytest.raises(MemoryError):
        backend.call("conv1d", **arguments)
    assert bits(backend, arguments["out"]) == before
