"""A case made ready on the GPU: its arrays, our call, and what its result must be."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import cupyconv
from cupyconv._explanation import Explanation

from . import reference
from .cases import Case, Convolution, Fused
from .data import Array, count_nan, poison, uniform, with_channels_last
from .precisions import Precision
from .reference import Exact

SAMPLES = 4096  # outputs of a convolution that are compared


class NotTimed(Exception):
    """A call that must not be timed, as its result is wrong or another kernel gave it."""


@dataclass(frozen=True)
class Job:
    """A case in one precision.

    Attributes
    ----------
    arrays : dict
        Inputs, by the names of the call's arguments.
    call : callable
        Runs our function, which writes `out`.
    explained : callable
        Explains it, for the kernel that is forced.
    sample : callable
        Takes from a result, ours or a peer's, what is compared, in float64.
    exact : Exact
        What that must be.
    """

    case: Case
    precision: Precision
    arrays: dict[str, Array]
    out: Array
    call: Callable[[], Any]
    explained: Callable[[], Explanation]
    sample: Callable[[Array], Array]
    exact: Exact

    def kernel(self) -> str:
        """Return the kernel that the call runs on."""
        return self.explained().kernel

    def checked(self) -> Array:
        """Run our call on a poisoned output and return its sample; raise where it is wrong."""
        poison(self.out)
        self.call()
        unwritten = count_nan(self.out.ravel(order="K"))
        if unwritten:
            raise NotTimed(f"{unwritten} of {self.out.size} outputs are NaN or were not written")
        values = self.sample(self.out)
        wrong = reference.complaint(values, self.exact)
        if wrong:
            raise NotTimed(wrong)
        return values

    def check_again(self, before: Array) -> None:
        """Raise unless our last call gave the same bits as the checked one."""
        after = self.sample(self.out)
        if not (after == before).all():
            raise NotTimed("repeated calls gave different results")


def prepare(
    case: Case,
    precision: Precision,
    seed: int,
    low: float,
    samples: int = SAMPLES,
    channels_last: bool = False,
) -> Job:
    """Return a case with fresh random arrays between `low` and 1, checked at so many outputs.

    The arrays of a convolution may be `channels_last`: views of memory in which channels lie
    innermost, as PyTorch has them in this format.
    """
    rng = np.random.default_rng([seed, zlib.crc32(case.id.encode())])
    if isinstance(case, Fused):
        return _fused(case, precision, rng, low)
    return _convolution(case, precision, rng, low, samples, channels_last)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**32))


def _convolution(
    case: Convolution,
    precision: Precision,
    rng: np.random.Generator,
    low: float,
    samples: int,
    channels_last: bool,
) -> Job:
    import cupy

    dtype = precision.numpy_dtype()
    x = uniform(case.input, dtype, _seed(rng), low)
    w = uniform(case.weight, dtype, _seed(rng), low)
    bias = uniform(case.output[1:2], dtype, _seed(rng), low) if case.bias else None
    out = cupy.empty(case.output, dtype)
    if channels_last:
        x, w, out = map(with_channels_last, (x, w, out))
    options: dict[str, Any] = {
        "stride": case.stride,
        "padding": case.padding,
        "dilation": case.dilation,
        "groups": case.groups,
        "precision": precision.mode,
        "out": out,
    }
    if case.transposed:
        options["output_padding"] = case.output_padding
    function = getattr(cupyconv, case.function)

    where = tuple(map(cupy.asarray, reference.places(case.output, samples, rng)))
    sums = reference.sums_at(case, where, x, w, bias, cupy)
    return Job(
        case,
        precision,
        {"input": x, "weight": w, "bias": bias},
        out,
        call=lambda: function(x, w, bias, **options),
        explained=lambda: cupyconv.explain(function, x, w, bias, **options),
        sample=lambda y: y[where].astype(np.float64),
        exact=Exact(sums.values, reference.bound(sums, precision), precision.error),
    )


def _fused(case: Fused, precision: Precision, rng: np.random.Generator, low: float) -> Job:
    import cupy

    dtype = precision.numpy_dtype()
    x = uniform(case.input, dtype, _seed(rng), low)
    w = uniform(case.weight, dtype, _seed(rng), low)
    names = ("bn_weight", "bn_bias", "gn_weight", "gn_bias")
    parameters = {name: uniform(case.output[1:2], dtype, _seed(rng)) for name in names}
    out = cupy.empty(case.output, dtype)

    convolved = reference.transposed(case.convolution, x, w, cupy)
    mean, var = reference.statistics(convolved)
    # The batch norm sets the convolution's error, which is relative to its values, against their
    # deviation; the rest raises it a few times at most.
    raised = 10 * math.sqrt(((mean * mean + var) / var).mean())
    given = {}
    if case.statistics == "given":
        mean, var = mean.astype(dtype), var.astype(dtype)
        given = {"mean": mean, "var": var}
    exact = reference.fused_rest(case, convolved, mean, var, parameters, cupy)

    function = cupyconv.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm
    options: dict[str, Any] = {
        **parameters,
        **given,
        "num_groups": case.num_groups,
        "stride": case.stride,
        "padding": case.padding,
        "output_padding": case.output_padding,
        "groups": case.groups,
        "eps": reference.EPS,
        "precision": precision.mode,
        "out": out,
    }
    return Job(
        case,
        precision,
        {"input": x, "weight": w, **parameters, **given},
        out,
        call=lambda: function(x, w, **options),
        explained=lambda: cupyconv.explain(function, x, w, **options),
        sample=lambda y: y.astype(np.float64),
        exact=Exact(exact, None, raised * precision.error),
    )
