"""Arguments are packed by the names of the members of ``struct Arguments``, in its order."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

import cupyconv
import cupyconv.grad
from cupyconv import _compile
from cupyconv._kernels import choice
from cupyconv._kernels.members import CALL, Template
from planning import forget

_STRUCT = r"^struct (?:__align__\(\d+\) )?{} {{\n(?P<body>.*?)^}};"
_MEMBER = re.compile(
    r"^    (?:const )?(?P<type>(?:unsigned )?\w+)(?:<[^<>]*>)?\*? (?P<names>[^;()]*);"
)


def members_of(text: str, name: str) -> Iterator[tuple[str, str, str]]:
    """The members of a struct in order: type, name, and the macro that a member depends on."""
    found = re.search(_STRUCT.format(re.escape(name)), text, re.MULTILINE | re.DOTALL)
    assert found, name
    macro = ""
    for line in found["body"].splitlines():
        if line.startswith("#"):
            macro = line.removeprefix("#if").strip() if line.startswith("#if") else ""
        member = _MEMBER.match(line.split("//")[0].rstrip())
        if member:
            for one in member["names"].split(","):
                yield member["type"], one.strip(" *").split("[")[0], macro


def compare(text: str, struct: str, members: Mapping[str, Any]) -> None:
    """Assert that these are the members, where each macro is set or not."""
    declared = list(members_of(text, struct))
    macros = sorted({macro for *_, macro in declared if macro})
    variants = [
        [(kind, name) for kind, name, macro in declared if macro in ("", *chosen)]
        for n in range(len(macros) + 1)
        for chosen in itertools.combinations(macros, n)
    ]
    names = list(members)
    found = [one for one in variants if [name for _, name in one] == names]
    assert found, (struct, names, [name for _, name, _ in declared])
    for (kind, _), member in zip(found[0], members.values(), strict=True):
        for one in structs_in(member):
            compare(text, kind, one)


def structs_in(member: Any) -> Iterator[Mapping[str, Any]]:
    """The structs that a member is, or that an array of any number of axes has."""
    if isinstance(member, Mapping):
        yield member
    elif isinstance(member, Sequence):
        for one in member:
            yield from structs_in(one)


# Calls that each of the kernels takes, if it is forced.
CALLS: list[tuple[Any, ...]] = [
    (cupyconv.conv2d, (2, 16, 12, 12), (24, 16, 3, 3)),
    (cupyconv.conv2d, (2, 160, 12, 12), (24, 160, 1, 1)),
    (cupyconv.conv_transpose2d, (2, 16, 12, 12), (16, 24, 3, 3)),
    (cupyconv.depthwise_conv2d, (2, 16, 12, 12), (16, 1, 3, 3)),
    (cupyconv.conv1d, (2, 1, 500), (24, 1, 128)),
]
# Calls of the other kernels: sets that fit in shared memory and others, given statistics; windows
# of a thread, of a warp, and in parts.
OTHER_CALLS: list[tuple[str, Callable[..., Any], tuple[int, ...], dict[str, Any]]] = [
    ("normalize.cu", cupyconv.group_norm, (2, 16, 12, 12), {"num_groups": 4}),
    ("normalize.cu", cupyconv.group_norm, (2, 4, 300, 400), {"num_groups": 2}),
    ("normalize.cu", cupyconv.batch_norm, (2, 16, 12, 12), {}),
    ("normalize.cu", cupyconv.batch_norm, (2, 16, 12, 12), {"mean": (16,), "var": (16,)}),
    ("max_pool2d.cu", cupyconv.max_pool2d, (2, 3, 12, 12), {"kernel_size": 2}),
    ("max_pool2d.cu", cupyconv.max_pool2d, (2, 3, 120, 120), {"kernel_size": 120}),
    ("max_pool2d.cu", cupyconv.max_pool2d, (1, 1, 1, 18_000), {"kernel_size": (1, 18_000)}),
]


@pytest.fixture
def templates(monkeypatch: pytest.MonkeyPatch) -> list[Template]:
    """The templates that are made in a test."""
    made: list[Template] = []
    original = Template.__init__

    def init(self: Template, *arguments: Any) -> None:
        made.append(self)
        original(self, *arguments)

    monkeypatch.setattr(Template, "__init__", init)
    forget()
    return made


@pytest.mark.parametrize("kernel", choice.KERNELS)
def test_names_are_those_of_the_struct(kernel: str, templates: list[Template]) -> None:
    for function, *shapes in CALLS:
        for dtype in ("float32", "float16"):
            for precision in ("float32", "tf32"):
                with choice.forced(kernel):
                    cupyconv.explain(
                        function, *shapes, dtype=dtype, precision=precision, target="sm_90a"
                    )
    for template in templates:
        compare(_compile.source(template.source), "Arguments", template.members)
    sources = {template.source for template in templates}
    _, name = choice.UNFOLDED.get(kernel, (None, kernel))
    modules = [module for module in choice.CONVOLUTIONS if name in module.PLANS]
    assert sources >= {source for module in modules for source in module.SOURCES}


@pytest.mark.parametrize(("source", "function", "shape", "options"), OTHER_CALLS)
def test_names_of_norms_and_poolings(
    source: str,
    function: Callable[..., Any],
    shape: tuple[int, ...],
    options: dict[str, Any],
    templates: list[Template],
) -> None:
    cupyconv.explain(function, shape, target="sm_90a", **options)
    assert {template.source for template in templates} == {source}
    for template in templates:
        compare(_compile.source(source), "Arguments", template.members)


@pytest.mark.parametrize("given", [False, True])
def test_names_of_the_fused_operation(given: bool, templates: list[Template]) -> None:
    statistics = {"mean": (128,), "var": (128,)} if given else {}
    cupyconv.explain(
        cupyconv.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm,
        *((2, 64, 32, 32), (64, 128, 5, 5), *[(128,)] * 4),
        num_groups=4,
        target="sm_90a",
        **statistics,
    )
    sources = [template.source for template in templates]
    assert sources == ["pack_weights.cu", "matrix_conv.cu", "pooled_norm.cu"]
    for template in templates:
        compare(_compile.source(template.source), "Arguments", template.members)


@pytest.mark.parametrize("name", choice.GRADIENTS)
def test_names_of_gradients(name: str, templates: list[Template]) -> None:
    kernel = "portable" if name == "matrix" else name
    dtype = "float16" if name == "im2col" else "float32"
    groups, channels = (16, 1) if kernel == "depthwise" else (1, 16)
    shapes = (2, 16, 12, 12), (16, channels, 3, 3), (2, 16, 10, 10)
    for precision in ("float32", "tf32"):
        with choice.forced(kernel):
            call = cupyconv.explain(
                cupyconv.grad.conv2d_weight, *shapes, groups=groups, precision=precision,
                dtype=dtype, target="sm_90a",
            )  # fmt: skip
        assert call.kernel == name
    for template in templates:
        compare(_compile.source(template.source), "Arguments", template.members)
    launched = {launch.instance.source for launch in call.launches}
    assert {template.source for template in templates} == launched


def test_a_wrong_name_is_found(templates: list[Template]) -> None:
    with choice.forced("direct"):
        cupyconv.explain(cupyconv.depthwise_conv2d, *CALLS[3][1:], target="sm_90a")
    (template,) = templates
    members = dict(template.members)
    text = _compile.source(template.source)
    swapped = {**members, "axis": [dict(reversed(one.items())) for one in members["axis"]]}
    for wrong in (dict(reversed(members.items())), {**members, "more": 0}, swapped):
        with pytest.raises(AssertionError):
            compare(text, "Arguments", wrong)


def test_a_call_puts_its_values_in_their_places() -> None:
    members = {"input": CALL, "out": CALL, "sizes": [2, 3], "bias": {"data": CALL, "type": 4}}
    template = Template("some.cu", members)
    assert list(template.fill(10, 20, 30)) == [10, 20, 2, 3, 30, 4]
    assert list(template.fill(11, 21, 31)) == [11, 21, 2, 3, 31, 4]
    assert list(Template("some.cu", {"input": CALL, "size": 5}).fill(10)) == [10, 5]
    for wrong in ((), (10, 20), (10, 20, 30, 40)):
        with pytest.raises(TypeError):
            template.fill(*wrong)
