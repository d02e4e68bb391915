"""PyTorch, with cuDNN below it, as a peer. Nothing else in this package imports it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

from .cases import Convolution, Fused
from .data import Array
from .jobs import Job
from .precisions import Precision
from .reference import EPS

EAGER = "torch"
CHANNELS_LAST = "channels-last"
COMPILED = "torch.compile"

Call = Callable[[], Any]


def load() -> Torch | None:
    """Return PyTorch, or None where it is not installed or sees no GPU."""
    try:
        import torch
    except ImportError:
        return None
    return Torch(torch) if torch.cuda.is_available() else None


class Torch:
    """PyTorch on CuPy's arrays, device and stream."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._functions = torch.nn.functional
        torch.backends.cudnn.benchmark = True

    @property
    def versions(self) -> dict[str, str]:
        number = self._torch.backends.cudnn.version()
        cudnn = f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else "none"
        return {"torch": self._torch.__version__, "cudnn": cudnn}

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """Run on a stream of CuPy's, without gradients."""
        cuda = self._torch.cuda
        with cuda.stream(cuda.ExternalStream(stream.ptr)), self._torch.no_grad():
            yield

    def allow_tf32(self, allowed: bool) -> None:
        # torch.compile reads these switches, and fails where newer ones have been set.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._torch.backends.cudnn.allow_tf32 = allowed
            self._torch.backends.cuda.matmul.allow_tf32 = allowed

    def free(self) -> None:
        """Give unused memory back to the driver."""
        self._torch.cuda.empty_cache()

    def tensor(self, array: Array) -> Any:
        """Return a CuPy array as a tensor on the same memory."""
        return self._torch.from_dlpack(array)

    def array(self, tensor: Any) -> Array:
        """Return a tensor as a CuPy array on the same memory."""
        import cupy

        return cupy.from_dlpack(tensor)

    def matrix_product(self, precision: Precision, a: Array, b: Array) -> Call:
        self.allow_tf32(precision.allows_tf32)
        left, right = self.tensor(a), self.tensor(b)
        out = self._torch.empty_like(left)
        return lambda: self._torch.matmul(left, right, out=out)

    def contenders(self, job: Job, compiled: bool) -> dict[str, Callable[[], Call]]:
        """Return what makes a job's peers ready: each value gives a call, and may fail itself."""
        self.allow_tf32(job.precision.allows_tf32)
        result = {EAGER: lambda: self._call(job, None)}
        layout = {4: self._torch.channels_last, 5: self._torch.channels_last_3d}.get(job.out.ndim)
        if layout is not None:
            result[CHANNELS_LAST] = lambda: self._call(job, layout)
        if compiled and isinstance(job.case, Fused):
            result[COMPILED] = lambda: self._call(job, None, compiled=True)
        return result

    def _call(self, job: Job, layout: Any, compiled: bool = False) -> Call:
        tensors: dict[str, Any] = {
            name: None if array is None else self.tensor(array)
            for name, array in job.arrays.items()
        }
        if layout is not None:
            for name in ("input", "weight"):
                tensors[name] = tensors[name].contiguous(memory_format=layout)
        if isinstance(job.case, Fused):
            function = self._fused(job.case)
        else:
            function = self._convolution(job.case)
        if compiled:
            self._torch.compiler.reset()
            function = self._torch.compile(function, dynamic=False)
        return lambda: function(**tensors)

    def _convolution(self, case: Convolution) -> Callable[..., Any]:
        function = getattr(self._functions, case.function)
        options: dict[str, Any] = {
            "stride": case.stride,
            "padding": case.padding,
            "dilation": case.dilation,
            "groups": case.groups,
        }
        if case.transposed:
            options["output_padding"] = case.output_padding
        return lambda input, weight, bias: function(input, weight, bias, **options)

    def _fused(self, case: Fused) -> Callable[..., Any]:
        functions, tanh = self._functions, self._torch.tanh

        def fused(input, weight, bn_weight, bn_bias, gn_weight, gn_bias, mean=None, var=None):  # type: ignore[no-untyped-def]
            y = functions.conv_transpose2d(
                input,
                weight,
                None,
                case.stride,
                case.padding,
                case.output_padding,
                case.groups,
            )
            y = functions.batch_norm(
                y, mean, var, bn_weight, bn_bias, training=mean is None, eps=EPS
            )
            y = functions.max_pool2d(tanh(y), 2)
            return functions.group_norm(y, case.num_groups, gn_weight, gn_bias, EPS)

        return fused

    def gradient(
        self, case: Convolution, precision: Precision, arrays: Sequence[Array], of_weight: bool
    ) -> Call:
        """Return one gradient of a convolution: of its weight, or of its input.

        The arrays are the gradient of the output, the input and the weight. The values of the one
        whose gradient it is do not enter, only its shape.
        """
        self.allow_tf32(precision.allows_tf32)
        tensors = [self.tensor(array) for array in arrays]
        steps = [list(step) for step in (case.stride, case.padding, case.dilation)]
        extra, wanted = list(case.output_padding), [not of_weight, of_weight, False]
        backward = self._torch.ops.aten.convolution_backward
        options = (None, *steps, case.transposed, extra, case.groups, wanted)
        return lambda: backward(*tensors, *options)[of_weight]

    def small_call(self, function: str, arrays: dict[str, Array]) -> Call:
        """Return a convolution with nothing but input and weight."""
        self.allow_tf32(False)
        tensors = map(self.tensor, (arrays["input"], arrays["weight"]))
        return partial(getattr(self._functions, function), *tensors)

    def sequence(
        self, function: str, calls: Sequence[tuple[Sequence[Array], dict[str, Any]]]
    ) -> tuple[Call, Callable[[], list[Array]]]:
        """Return what runs calls of arrays and options in turn, and what returns their results."""
        own, tensors = getattr(self._functions, function), []
        prepared = [([*map(self.tensor, arrays)], options) for arrays, options in calls]

        def run() -> None:
            tensors[:] = [own(*arrays, **options) for arrays, options in prepared]

        return run, lambda: [self.array(tensor) for tensor in tensors]

    def captured(self, run: Call) -> Call:
        """Return the replay of a CUDA graph of what `run` does."""
        graph = self._torch.cuda.CUDAGraph()
        self._torch.cuda.synchronize()
        with self._torch.cuda.graph(graph):
            run()
        replay: Call = graph.replay
        return replay
