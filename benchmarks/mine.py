"""A user's own cases, a line of text for each:

    conv2d 8x64x56x56 128x64x3x3 stride=2 padding=1

The function, the shapes of input and weight, and options by the names that they have in a call.
What does not fit is refused by cupyconv's own geometry.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cupyconv import _geometry
from cupyconv._arguments import per_axis

from .cases import Case, Convolution, Fused, Shape

SECTION = "mine"
DEPTHWISE = "depthwise_conv2d"
FUSED = "conv_transpose2d_batchnorm_tanh_maxpool_groupnorm"
SHORT = {"fused": FUSED}

_CONV = ("stride", "padding", "dilation", "groups", "bias")
OPTIONS = {
    **{f"conv{rank}d": _CONV for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": (*_CONV, "output_padding") for rank in (1, 2, 3)},
    DEPTHWISE: ("stride", "padding", "dilation", "bias"),
    FUSED: ("num_groups", "stride", "padding", "output_padding", "groups", "statistics"),
}
STEPS = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1}  # with their defaults

# What an option may be, in words and as a pattern.
_INTEGER = "-?[0-9]+"
RULES = {
    **dict.fromkeys(
        STEPS,
        (
            "an integer, or one for each spatial axis, such as 2,1",
            f"{_INTEGER}([x×,]{_INTEGER})*",
        ),
    ),
    **dict.fromkeys(("groups", "num_groups"), ("an integer", _INTEGER)),
    "bias": ("yes or no", "yes|no"),
    "statistics": ("batch or given", "batch|given"),
}
_SHAPE = re.compile("[1-9][0-9]*([x×,][1-9][0-9]*)+")


def load(arguments: Sequence[str]) -> list[Case]:
    """Return the cases of lines and of files; a `ValueError` names the line and what is wrong."""
    cases: list[Case] = []
    for place, line in _lines(arguments):
        try:
            cases.append(parse(line, f"{SECTION}/{len(cases) + 1}"))
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
    return cases


def _lines(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield lines that say something, each after the place that it is from."""
    for argument in arguments:
        if not os.path.isfile(argument):
            yield f"--mine {argument!r}", argument
            continue
        text = Path(argument).read_text(encoding="utf-8")
        lines = [line.partition("#")[0].strip() for line in text.splitlines()]
        if not any(lines):
            raise ValueError(f"{argument}: there is no case in this file")
        yield from ((f"{argument}, line {i}", line) for i, line in enumerate(lines, 1) if line)


def parse(line: str, id: str) -> Case:
    """Return the case of a line."""
    first, *words = line.split() or [""]
    name = SHORT.get(first, first)
    if name not in OPTIONS:
        known = ", ".join([*OPTIONS, *SHORT])
        raise ValueError(f"{first!r} is no file and no function; there are {known}")
    shapes = [_shape(name, word) for word in words if "=" not in word]
    if len(shapes) != 2:
        raise ValueError(
            f"{name}: needs two shapes, of input and weight, such as 8x64x56x56 128x64x3x3, "
            f"got {len(shapes)}"
        )
    input, weight = shapes
    rank = 2 if name == FUSED else int(name[-2])
    if len(input) != rank + 2:
        raise ValueError(
            f"{name}: input must have {rank + 2} axes, the batch first, got input of shape {input}"
        )
    options = _options(name, [word for word in words if "=" in word])
    steps = {
        key: per_axis(name, key, options.get(key, default), rank, minimum=min(default, 1))
        for key, default in STEPS.items()
    }
    make = _fused if name == FUSED else _convolution
    return make(name, id, input, weight, steps, options)


def line(case: Convolution) -> str:
    """Return the line of a convolution; `parse` returns the case again."""
    words = [case.function, *("x".join(map(str, shape)) for shape in (case.input, case.weight))]
    for key, default in STEPS.items():
        values = getattr(case, key)
        if set(values) != {default}:
            words.append(f"{key}={','.join(map(str, values))}")
    if case.groups > 1:
        words.append(f"groups={case.groups}")
    return " ".join([*words, "bias=yes"] if case.bias else words)


def _shape(name: str, word: str) -> Shape:
    if not _SHAPE.fullmatch(word):
        raise ValueError(f"{name}: {word!r} is no shape of positive sizes, such as 8x64x56x56")
    return tuple(map(int, re.findall("[0-9]+", word)))


def _options(name: str, words: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for word in words:
        key, _, text = word.partition("=")
        if key not in OPTIONS[name]:
            raise ValueError(f"{name}: has no option {key!r}; it has {', '.join(OPTIONS[name])}")
        if key in options:
            raise ValueError(f"{name}: {key} is given twice")
        options[key] = _value(name, key, text)
    return options


def _value(name: str, key: str, text: str) -> int | Shape | str:
    rule, pattern = RULES[key]
    if not re.fullmatch(pattern, text):
        raise ValueError(f"{name}: {key} must be {rule}, got {key}={text}")
    numbers = tuple(map(int, re.findall(_INTEGER, text)))
    if len(numbers) > 1:
        return numbers
    return numbers[0] if numbers else text


def _convolution(
    name: str,
    id: str,
    input: Shape,
    weight: Shape,
    steps: dict[str, Shape],
    options: dict[str, Any],
) -> Convolution:
    stride, padding, output_padding, dilation = steps.values()
    rank, groups = len(stride), options.get("groups", 1)
    call = (name, input, weight, None, stride, padding)
    transposed = "output_padding" in OPTIONS[name]
    if name == DEPTHWISE:
        groups = input[1]
        _geometry.depthwise_conv(*call, dilation, rank)
    elif transposed:
        _geometry.conv_transpose(*call, output_padding, groups, dilation, rank)
    else:
        _geometry.conv(*call, dilation, groups, rank)
    bias = options.get("bias") == "yes"
    return Convolution(SECTION, id, transposed, input, weight, **steps, groups=groups, bias=bias)


def _fused(
    name: str,
    id: str,
    input: Shape,
    weight: Shape,
    steps: dict[str, Shape],
    options: dict[str, Any],
) -> Fused:
    if "num_groups" not in options:
        raise ValueError(f"{name}: needs num_groups, the groups of its group norm")
    stride, padding, output_padding, dilation = steps.values()
    groups, num_groups = options.get("groups", 1), options["num_groups"]
    convolved = _geometry.conv_transpose(
        name,
        input,
        weight,
        None,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
        2,
        weight="kernel",
    ).out_shape
    pooled = _geometry.max_pool2d(
        name, convolved, 2, None, 0, 1, False, subject="a convolution result"
    ).out_shape
    _geometry.group_norm(name, pooled, num_groups, {}, subject="a pooled result")
    statistics = options.get("statistics", "batch")
    return Fused(
        SECTION,
        id,
        input,
        weight,
        stride,
        padding,
        output_padding,
        groups,
        num_groups,
        statistics,
    )
