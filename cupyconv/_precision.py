"""The accuracy of float32 convolutions, set for one call or for a block of code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ._arguments import shown
from ._signatures import readable

NAMES = ("float32", "tf32")

_current: ContextVar[str] = ContextVar("cupyconv_precision", default="float32")
current = _current.get  # the precision of the enclosing block


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


@readable
@contextmanager
def precision(name: str) -> Iterator[None]:
    """Set the precision of float32 convolutions for a block.

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

    See Also
    --------
    conv : takes the precision of one call as an argument.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> with cupyconv.precision("tf32"):
    ...     y = cupyconv.conv1d(np.ones((1, 5), np.float32), np.ones((1, 1, 3), np.float32))
    >>> y
    array([[3., 3., 3.]], dtype=float32)
    """
    token = _current.set(_check("precision", name))
    try:
        yield
    finally:
        _current.reset(token)
