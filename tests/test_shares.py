"""Each test of which a day runs a share has its turn."""

from __future__ import annotations

from conftest import in_share


def test_each_test_is_in_the_share_of_one_day() -> None:
    names = [f"tests/test_mutants.py::test_is_rejected[{i}]" for i in range(600)]
    for shares in (1, 2, 3, 6):
        turns = [[in_share(name, shares, day) for name in names] for day in range(7, 7 + shares)]
        assert [sum(turn) for turn in zip(*turns, strict=True)] == [1] * len(names)
        assert all(sum(turn) > 0.8 * len(names) / shares for turn in turns)
