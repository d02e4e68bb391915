"""What `explain` returns: a record of a call, printed as a table."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ._kernels.launches import Launch
from ._shape_rules import Shape


@dataclass(frozen=True, repr=False)
class Explanation:
    """What a call would do; ``print`` it, or read its fields.

    Attributes
    ----------
    function : str
        Name of the function.
    shapes : dict of str to tuple of int
        Shapes of the arrays of the call.
    out_shape : tuple of int
        Shape of the result.
    dtype : numpy.dtype
        Dtype of the result.
    gpu, target : str
        The GPU, and the target that its kernels are compiled for.
    multiprocessors : int
        Multiprocessors of the GPU.
    kernel : str
        What does the work: for convolutions the name of a kernel, such as ``"hopper"`` or
        ``"direct"``, else ``"fused"``, ``"normalize"`` or ``"max_pool2d"``; several of them are
        joined by ``" + "``, and a result without elements has ``"none"``.
    refused : dict of str to str
        Other kernels, each with the reason why it does not run the call, and
        as ``"parts"`` why a complex64 call does not run as a real one. They are printed if
        `explain` was called with ``verbose=True``.
    plans : tuple of str
        The plans, with tiles.
    launches : tuple of Launch
        The launches in order, each with its ``instance`` (``source``, ``function`` and macros),
        ``grid``, ``block`` and ``shared``, the bytes of shared memory.
    operations : int
        Multiplications and additions of the convolution, as they are usually counted.
    bytes : int
        Bytes of all arrays of the call, the result among them, each counted once.
    limit_ms : float
        The shortest time that the GPU could take, in milliseconds, see `explain`.
    limited_by : str
        ``"bytes"`` or ``"operations"``.
    expected_ms : float
        The time that the planner's model gives the call and its launches, in milliseconds, and at
        least `limit_ms`.
    workspace : int
        Most bytes of memory beside arrays and result at any time.
    """

    function: str
    shapes: dict[str, Shape]
    out_shape: Shape
    dtype: np.dtype
    gpu: str
    target: str
    multiprocessors: int
    kernel: str
    refused: dict[str, str]
    plans: tuple[str, ...]
    launches: tuple[Launch, ...]
    operations: int
    bytes: int
    limit_ms: float
    limited_by: str
    expected_ms: float
    workspace: int
    verbose: bool = field(default=False, compare=False)

    @property
    def expected_share(self) -> float:
        """The limit over the expected time, at most 1, which is as fast as can be."""
        return self.limit_ms / self.expected_ms if self.expected_ms else 1.0

    def __repr__(self) -> str:
        gpu = f"{self.gpu} ({self.target}, {self.multiprocessors} multiprocessors)"
        unit = "OP" if self.dtype.kind in "iu" else "FLOP"
        work = [_scaled(self.bytes, "B")]
        if self.operations:
            intensity = f"{self.operations / self.bytes:.3g} {unit} a byte"
            work = [_scaled(self.operations, unit), *work, intensity]
        refused = self.refused.items() if self.verbose else ()
        rows = [
            ("kernel", self.kernel),
            (
                "expected",
                f"{_time(self.expected_ms)}, {_percent(self.expected_share)} of the limit",
            ),
            ("limit", f"{_time(self.limit_ms)}, by {self.limited_by}"),
            ("workspace", _scaled(self.workspace, "B")),
            ("work", ", ".join(work)),
            *((name, str(shape)) for name, shape in self.shapes.items()),
            ("result", f"{self.out_shape}, {self.dtype}"),
            *(("plan", plan) for plan in self.plans),
            *(("launch", _brief(launch)) for launch in self.launches),
            *(("refused", f"{name}: {reason}") for name, reason in refused),
        ]
        width = max(len(name) for name, _ in rows)
        lines = (f"  {name:{width}}  {text}" for name, text in rows)
        return "\n".join((f"{self.function} on {gpu}", *lines))


def _brief(launch: Launch) -> str:
    shared = f", {launch.shared} bytes of shared memory" if launch.shared else ""
    kernel = f"{launch.instance.source}:{launch.instance.function}"
    return f"{kernel}, {launch.grid} blocks of {launch.block} threads{shared}"


def _scaled(number: float, unit: str) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}"


def _time(ms: float) -> str:
    for factor, unit in ((1, "ms"), (1e-3, "us")):
        if ms >= factor:
            return f"{ms / factor:.3g} {unit}"
    return f"{1e6 * ms:.3g} ns"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "less than 1%"
