"""Arguments are packed by the names of the members of ``struct Arguments``, in its order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import cupyconv
from cupyconv import _calls, _compile, _plan
from cupyconv._kernels.members import CALL, Template

_STRUCT = r"^struct (?:__align__\(\d+\) )?{} {{\n(?P<body>.*?)^}};"
_MEMBER = re.compile(r"^    (?:const )?(?P<type>[\w<>]+)\*? (?P<names>[^;()]*);")


def members_of(text: str, name: str) -> list[tuple[str, str]]:
    """The members of a struct: type and name, in order."""
    found = re.search(_STRUCT.format(re.escape(name)), text, re.MULTILINE | re.DOTALL)
    assert found, name
    members = []
    for line in found["body"].splitlines():
        member = _MEMBER.match(line.split("//")[0].rstrip())
        if member:
            names = (one.strip(" *").split("[")[0] for one in member["names"].split(","))
            members += [(member["type"], one) for one in names]
    return members


def compare(text: str, struct: str, members: Mapping[str, Any]) -> None:
    declared = members_of(text, struct)
    assert [name for _, name in declared] == list(members), struct
    for (kind, _), member in zip(declared, members.values(), strict=True):
        structs = member if isinstance(member, Sequence) else [member]
        for one in structs:
            if isinstance(one, Mapping):
                compare(text, kind, one)


# Calls that each of the kernels takes, if it is forced.
CALLS: list[tuple[Any, ...]] = [
    (cupyconv.conv2d, (2, 16, 12, 12), (24, 16, 3, 3)),
    (cupyconv.conv2d, (2, 160, 12, 12), (24, 160, 1, 1)),
    (cupyconv.conv_transpose2d, (2, 16, 12, 12), (16, 24, 3, 3)),
    (cupyconv.depthwise_conv2d, (2, 16, 12, 12), (16, 1, 3, 3)),
]
# Files whose arguments are packed by name.
PACKED = {"depthwise_conv.cu", "direct_conv.cu", "gather_conv.cu"}


@pytest.fixture
def templates(monkeypatch: pytest.MonkeyPatch) -> list[Template]:
    """The templates that are made in a test."""
    made: list[Template] = []
    original = Template.__init__

    def init(self: Template, *arguments: Any) -> None:
        made.append(self)
        original(self, *arguments)

    monkeypatch.setattr(Template, "__init__", init)
    return made


@pytest.mark.parametrize("kernel", _plan.KERNELS)
def test_names_are_those_of_the_struct(kernel: str, templates: list[Template]) -> None:
    _calls.kept.clear()
    for function, *shapes in CALLS:
        for dtype in ("float32", "float16"):
            for precision in ("float32", "tf32"):
                with _plan.forced(kernel):
                    cupyconv.explain(
                        function, *shapes, dtype=dtype, precision=precision, target="sm_90a"
                    )
    for template in templates:
        compare(_compile.source(template.source), "Arguments", template.members)
    assert {template.source for template in templates} <= PACKED


def test_a_wrong_name_is_found(templates: list[Template]) -> None:
    with _plan.forced("gather"):
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
    assert list(template(10, 20, 30)) == [10, 20, 2, 3, 30, 4]
    assert list(template(11, 21, 31)) == [11, 21, 2, 3, 31, 4]
    assert list(Template("some.cu", {"input": CALL, "size": 5})(10)) == [10, 5]
    for wrong in ((), (10, 20), (10, 20, 30, 40)):
        with pytest.raises(ValueError, match=r"^some.cu takes 3 values, got \d$"):
            template(*wrong)
