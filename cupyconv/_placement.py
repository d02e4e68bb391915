"""How the elements of an array lie in a larger one, with a border or with zeros around them."""

from __future__ import annotations

from dataclasses import dataclass

from ._shape_rules import Shape


@dataclass(frozen=True)
class Placement:
    """A larger array, in which the elements of an array lie apart or side by side.

    Attributes
    ----------
    sizes, padded : tuple of int
        Shapes of the array and of the larger one.
    before : tuple of int
        Place of the first element on each axis, which may lie ahead of the larger array.
    steps : tuple of int
        From one element to the next.
    mode : str, optional
        Padding mode that tells what other places show. By default they are zero.
    """

    sizes: Shape
    padded: Shape
    before: Shape
    steps: Shape
    mode: str | None = None
