"""What the two kernels for pointwise convolutions share."""

from __future__ import annotations

from .._axes import has_one_tap
from .modes import unscaled_mode
from .question import MANY_AXES, Question, Refusal, not_multiplied


def not_pointwise(question: Question) -> Refusal | None:
    """Return why a call is not for the pointwise kernels, which multiply by wgmma, or None."""
    geometry, processor = question.geometry, question.processor
    mode = unscaled_mode(question.dtype.name, question.precision)
    if mode is None:
        return not_multiplied(question.dtype)
    if mode.products > 1:
        return "its precision takes three products"
    if not has_one_tap(geometry):
        return "its outputs have several taps, or some have none"
    if geometry.rank > 3:
        return MANY_AXES
    if not geometry.channels:
        return "it has no input channels"
    if not processor.has_wgmma:
        return f"{processor.target} lacks the instructions"
    return None
