"""Libraries and programs that call cupyconv: SigPy, PyLops, a training loop.

The environment variable CLIENT_EXAMPLES says on how many random shapes SigPy's functions run.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import textwrap
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cupyconv
import cupyconv.cudnn
from cupyconv import grad
from reference import Array, Shape
from strategies import values
from test_import import python

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Numba, which it imports where it is there, warns of NumPy
    import pylops

# SigPy -----------------------------------------------------------------------------------------

some = settings(max_examples=int(os.environ.get("CLIENT_EXAMPLES", 40)))


class _Elsewhere(types.ModuleType):
    """NumPy under another name: SigPy takes the arrays of this module for CuPy's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


@pytest.fixture(scope="module")
def sigpy_conv() -> Iterator[Any]:
    """Module sigpy.conv on the path that it has for CuPy arrays, here with NumPy arrays.

    SigPy looks for CuPy's module as it is imported.
    """
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its import warns where NCCL or SciPy's parts are missing
        for name in ("cupy.cudnn", "cupy.cuda.cudnn"):
            patch.setitem(sys.modules, name, cupyconv.cudnn)
        import sigpy.conv

        assert sigpy.conv.cudnn is cupyconv.cudnn
        yield sigpy.conv


@st.composite
def sigpy_calls(draw: st.DrawFn) -> tuple[Shape, Shape, np.dtype[Any], dict[str, Any]]:
    """Shapes of data and filter, their dtype, and options of SigPy's convolutions."""
    rank = draw(st.integers(1, 3))
    largest = {1: 30, 2: 12, 3: 6}[rank]
    mode = draw(st.sampled_from(["full", "valid"]))
    kernel = tuple(draw(st.integers(1, largest // 2)) for _ in range(rank))
    # In its mode "valid" SigPy has the right size of the result for filters that fit the data only.
    least = kernel if mode == "valid" else (1,) * rank
    data = tuple(draw(st.integers(n, largest)) for n in least)
    each = st.integers(1, 3)
    batch = tuple(draw(each) for _ in range(draw(st.integers(0, 2))))
    multi_channel = draw(st.booleans())
    if multi_channel:
        channels = draw(each)
        kernel, data = (draw(each), channels, *kernel), (channels, *data)
    strides = draw(st.one_of(st.none(), st.tuples(*[each] * rank)))
    dtype = np.dtype(draw(st.sampled_from(["float32", "float64", "complex64", "complex128"])))
    options = {"mode": mode, "strides": strides, "multi_channel": multi_channel}
    return (*batch, *data), kernel, dtype, options


@pytest.mark.sigpy
@some
@given(sigpy_calls(), st.integers(0, 2**32 - 1))
def test_sigpy(sigpy_conv: Any, drawn: Any, seed: int) -> None:
    """Its three functions give the numbers that SciPy gives.

    The numbers are small integers. SciPy may take an FFT, whose error is far below one half.
    """
    shape, kernel, dtype, options = drawn
    rng = np.random.default_rng(seed)
    data, filt = (values(rng, size, dtype, "whole") for size in (shape, kernel))

    def on_both_paths(name: str, *arguments: Any) -> Array:
        """The result with SciPy, which the one through cupyconv must equal."""
        function = getattr(sigpy_conv, name)
        expected = np.rint(function(*arguments, **options))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sigpy_conv.backend, "get_array_module", lambda _: _Elsewhere("cupy"))
            result = function(*arguments, **options)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected)
        return expected

    output = values(rng, on_both_paths("convolve", data, filt).shape, dtype, "whole")
    on_both_paths("convolve_data_adjoint", output, filt, shape)
    on_both_paths("convolve_filter_adjoint", output, data, kernel)


@pytest.mark.sigpy
def test_lines_of_the_page_for_sigpy() -> None:
    """They turn SigPy's flag on, in a Python in which SigPy has not been imported."""
    page = (Path(__file__).parents[1] / "docs" / "cudnn.rst").read_text("utf-8")
    (lines,) = re.findall(r":name: sigpy-lines\n\n((?:(?: {3}.*)?\n)+)", page)
    code = "import warnings\nwarnings.simplefilter('ignore')\n" + textwrap.dedent(lines)
    assert python(code + "print(sigpy.config.cudnn_enabled, sigpy.conv.cudnn)") == (
        f"True {cupyconv.cudnn}"
    )


# PyLops ----------------------------------------------------------------------------------------


class Convolution(pylops.LinearOperator):  # type: ignore[misc]
    """A convolution as an operator on arrays of a given shape."""

    def __init__(self, weight: Array, dims: Shape, **options: Any) -> None:
        self.weight, self.options = weight, options
        dimsd = cupyconv.conv(np.zeros(dims), weight, **options).shape
        super().__init__(dtype=weight.dtype, dims=dims, dimsd=dimsd)

    def _matvec(self, x: Array) -> Array:
        return cupyconv.conv(x.reshape(self.dims), self.weight, **self.options).ravel()

    def _rmatvec(self, y: Array) -> Array:
        y = y.reshape(self.dimsd)
        return grad.conv_input(self.dims, self.weight.conj(), y, **self.options).ravel()


OPTIONS: list[dict[str, Any]] = [
    {"stride": 3, "padding": ((2, 1), (0, 3)), "dilation": (1, 2), "groups": 2},
    {"stride": (2, 3), "padding": "same", "dilation": 2, "groups": 4},
    {"stride": (5, 1), "padding": 1, "groups": 1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_pylops_dot_test(dtype: str, options: dict[str, Any]) -> None:
    """For every size: the stride divides some of them, and of others it leaves a remainder."""
    rng = np.random.default_rng(0)
    weight = values(rng, (8, 4 // options["groups"], 3, 2), dtype)
    for height, width in itertools.product(range(5, 18), range(5, 12)):
        operator = Convolution(weight, (4, height, width), **options)
        complex_both = 3 if operator.dtype.kind == "c" else 0
        assert pylops.utils.dottest(operator, rtol=1e-9, complexflag=complex_both)


def test_pylops_solves() -> None:
    """Its conjugate gradients find the image from an operator that has an inverse."""
    rng = np.random.default_rng(0)
    weight = np.zeros((1, 1, 3, 3))
    weight[0, 0] = [[0, 1, 0], [1, 8, 1], [0, 1, 0]]
    operator = Convolution(weight, (2, 1, 9, 10), padding=1)
    image = rng.standard_normal((2, 1, 9, 10))
    found = pylops.cgls(operator, operator @ image, x0=np.zeros_like(image), niter=60, tol=0)[0]
    np.testing.assert_allclose(found, image, rtol=0, atol=1e-9)


# A training loop -------------------------------------------------------------------------------

Parameters = dict[str, Array]
STRIDED, GROUPED = {"stride": 2, "padding": 1}, {"padding": "same", "groups": 2}


def loss_and_gradients(p: Parameters, x: Array, target: Array) -> tuple[float, Parameters]:
    """The squared error of two convolutions and a transposed one, and its gradients."""
    hidden = np.tanh(cupyconv.conv2d(x, p["first"], p["first_bias"], **STRIDED))
    middle = np.tanh(cupyconv.conv2d(hidden, p["second"], p["second_bias"], **GROUPED))
    result = cupyconv.conv_transpose2d(middle, p["last"], **STRIDED, output_padding=(0, 1))
    error = result - target
    loss = float((error**2).mean())

    gradients = {}
    upstream = 2 * error / error.size
    gradients["last"] = grad.conv2d_weight(upstream, p["last"].shape, middle, **STRIDED)
    upstream = cupyconv.conv2d(upstream, p["last"], **STRIDED) * (1 - middle**2)
    gradients["second_bias"] = upstream.sum((0, 2, 3))
    gradients["second"] = grad.conv2d_weight(hidden, p["second"].shape, upstream, **GROUPED)
    upstream = grad.conv2d_input(hidden.shape, p["second"], upstream, **GROUPED) * (1 - hidden**2)
    gradients["first_bias"] = upstream.sum((0, 2, 3))
    gradients["first"] = grad.conv2d_weight(x, p["first"].shape, upstream, **STRIDED)
    return loss, gradients


@pytest.fixture
def training() -> tuple[Parameters, Callable[[Parameters], tuple[float, Parameters]]]:
    """Parameters to begin with, and the loss of images against their blurred selves."""
    rng = np.random.default_rng(0)
    shapes = {"first": (8, 1, 3, 3), "second": (8, 4, 3, 3), "last": (8, 1, 3, 3)}
    parameters = {name: 0.2 * rng.standard_normal(shape) for name, shape in shapes.items()}
    parameters |= {f"{name}_bias": 0.1 * rng.standard_normal(8) for name in ("first", "second")}
    x = rng.standard_normal((6, 1, 13, 16))
    target = cupyconv.conv2d(x, np.full((1, 1, 3, 3), 1 / 9), padding=1)
    return parameters, lambda p: loss_and_gradients(p, x, target)


def test_gradients_equal_finite_differences(training: Any) -> None:
    """Central differences along random directions in each parameter, before and after steps."""
    parameters, evaluate = training
    rng = np.random.default_rng(1)
    for _ in range(3):
        _, gradients = evaluate(parameters)
        assert gradients.keys() == parameters.keys()
        for name, gradient in gradients.items():
            direction = rng.standard_normal(gradient.shape)
            h = 1e-5
            ahead, behind = (
                evaluate({**parameters, name: parameters[name] + step * direction})[0]
                for step in (h, -h)
            )
            slope = (ahead - behind) / (2 * h)
            scale = np.linalg.norm(gradient) * np.linalg.norm(direction)
            assert abs(slope - (gradient * direction).sum()) <= 1e-8 * scale, name
        parameters = {name: p - 0.5 * gradients[name] for name, p in parameters.items()}


def test_training_decreases_the_loss(training: Any) -> None:
    """Plain gradient descent, in which each of its steps is downhill."""
    parameters, evaluate = training
    losses = []
    for _ in range(60):
        loss, gradients = evaluate(parameters)
        losses.append(loss)
        parameters = {name: p - 0.5 * gradients[name] for name, p in parameters.items()}
    assert all(after < before for before, after in itertools.pairwise(losses))
    assert losses[-1] < losses[0] / 5
