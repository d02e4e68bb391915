"""The accuracy of float32 convolutions, set for one call or for a block of code."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ._arguments import shown
from ._signatures import readable

if TYPE_CHECKING:
    import numpy as np

NAMES = ("float32", "tf32")

Function = TypeVar("Function", bound=Callable[..., Any])

_current: ContextVar[str] = ContextVar("cupyconv_precision", default=NAMES[0])
current = _current.get  # the precision of the enclosing block
# The enclosing blocks, the innermost one last.
_blocks: ContextVar[tuple[precision, ...]] = ContextVar("cupyconv_precision_blocks", default=())


def _check(name: str, value: object) -> str:
    """Return `value` as a plain string; raise unless it names a precision."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: precision must be a string, got {shown(value)}")
    if value not in NAMES:
        got = f"precision={shown(value)}"
        raise ValueError(f"{name}: precision must be one of {NAMES}, got {got}")
    return NAMES[NAMES.index(value)]  # a plain string, also if `value` is of a derived class


def resolve(name: str, value: object) -> str:
    """Return the precision of a call: its argument `value`, or if None the enclosing block's."""
    return _current.get() if value is None else _check(name, value)


def of_partial_sums(dtype: np.dtype, precision: str) -> str:
    """Return the precision of operands that are cast from `dtype` for sums that are rounded later.

    It loses nothing of 16-bit numbers. float16 numbers are exact in TF32, even where scaled float16
    numbers stand for TF32 ones. bfloat16 numbers have a wider range than these.
    """
    return {"float16": "tf32", "bfloat16": "float32"}.get(dtype.name, precision)


@readable
class precision:
    """Set the precision of float32 convolutions for a block, or for each call of a function.

    The setting is a context variable: it holds for this thread or task only, and ends with the
    block. The ``precision`` argument of a call takes precedence.

    Parameters
    ----------
    name : {"float32", "tf32"}
        ``"float32"`` (the default outside of any block) gives float32 accuracy. ``"tf32"`` allows
        the faster mode of Tensor Cores, which rounds float32 inputs to 10-bit mantissas. Other
        dtypes ignore the setting.

    Raises
    ------
    TypeError
        If `name` is not a string.
    ValueError
        If `name` is not a known precision.

    Warns
    -----
    RuntimeWarning
        If nothing uses the object: the statement ``cupyconv.precision("tf32")`` alone sets nothing.

    See Also
    --------
    conv : takes the precision of one call as an argument.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> with cupyconv.precision("tf32") as block:
    ...     y = cupyconv.conv1d(np.ones((1, 5), np.float32), np.ones((1, 1, 3), np.float32))
    ...     print(block)
    <precision 'tf32' for a block; 'tf32' is in force>
    >>> print(block)
    <precision 'tf32' for a block; 'float32' is in force>
    >>> @cupyconv.precision("tf32")
    ... def smooth(signal):
    ...     return cupyconv.conv1d(signal, np.ones((1, 1, 3), np.float32))
    >>> smooth(np.ones((1, 5), np.float32))
    array([[3., 3., 3.]], dtype=float32)
    """

    # Where the object was made: the file, the line, and the module with its registry of warnings.
    # It is None once the object is in use, and if the arguments were wrong.
    _unused: tuple[str, int, str, dict[Any, Any]] | None = None

    def __init__(self, name: str) -> None:
        self._name = _check("precision", name)
        caller = sys._getframe(1)
        names = caller.f_globals
        registry = names.setdefault("__warningregistry__", {})
        place = caller.f_code.co_filename, caller.f_lineno
        self._unused = *place, names.get("__name__", "<string>"), registry

    def __enter__(self) -> precision:
        """Begin a block."""
        self._unused = None
        _blocks.set((*_blocks.get(), self))
        _current.set(self._name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the block; an inner block that is still open, in a generator say, stays in force."""
        blocks = list(_blocks.get())
        for index in reversed(range(len(blocks))):
            if blocks[index] is self:
                del blocks[index]
                break
        _blocks.set(tuple(blocks))
        _current.set(blocks[-1]._name if blocks else NAMES[0])

    def __call__(self, function: Function) -> Function:
        """Return `function` with each of its calls in a block of this precision."""
        self._unused = None
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                "precision: function must not be a generator, whose body runs after its call: "
                f"write `with cupyconv.precision({self._name!r}):` in it, got {shown(function)}"
            )

        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with self:
                return await function(*args, **kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        wrapper = coroutine if inspect.iscoroutinefunction(function) else call
        return wraps(function)(wrapper)  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<precision {self._name!r} for a block; {current()!r} is in force>"

    def __del__(self) -> None:
        if self._unused is None or sys.is_finalizing():
            return
        file, line, module, registry = self._unused
        text = (
            f"precision: cupyconv.precision({self._name!r}) alone sets nothing, write "
            f"`with cupyconv.precision({self._name!r}):` or pass precision={self._name!r} to a call"
        )
        warnings.warn_explicit(text, RuntimeWarning, file, line, module, registry)
