"""How the elements of an array lie in a larger one, with a border or with zeros around them."""

from __future__ import annotations

from dataclasses import dataclass

from ._shape_rules import Shape


@dataclass(frozen=True)
class Placement:
    """A larger array, in which the elements of an array lie apart or side by side.

    An axis with a stride has every ``stride``-th place alone: a polyphase component. Component m
    begins ``m * shift`` places after the first one. The components of all axes make larger arrays
    of their own, which follow each other in C order.

    Attributes
    ----------
    sizes, padded : tuple of int
        Shapes of the array and of the larger one.
    before : tuple of int
        Place of the first element on each axis, which may lie ahead of the larger array.
    steps : tuple of int
        From one element to the next.
    strides, components, shifts : tuple of int
        The polyphase components of each axis.
    mode : str, optional
        Padding mode that tells what other places show. By default they are zero.
    """

    sizes: Shape
    padded: Shape
    before: Shape
    steps: Shape
    strides: Shape
    components: Shape
    shifts: Shape
    mode: str | None = None

    @property
    def whole(self) -> Shape:
        """Shape of the array that the polyphase components are taken from."""
        axes = zip(self.padded, self.strides, self.components, self.shifts, strict=True)
        return tuple(
            (size - 1) * stride + (count - 1) * shift + 1 for size, stride, count, shift in axes
        )
