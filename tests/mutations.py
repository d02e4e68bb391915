"""Mutants of kernel text that patterns make: one small change of one expression or statement.

``mutations`` returns every change that the patterns offer in some files of a kernel, and ``chosen``
a few of them, spread over functions and patterns. A choice depends on a hash of the
changed line and its function's name, so that an edit of another function leaves most of it alone.

The patterns read the bodies of functions, without comments and types (``kernel_code.py``). They
rely on the layout of the kernels: a binary operator stands between spaces, and an angle bracket of
a template does not.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from cupyconv import _compile
from kernel_code import CONTROL, LEVEL, LOWEST, Code

FILE = re.compile(r'^#line \d+ "([^"]+)"$', re.MULTILINE)
SYNCHRONISATION = re.compile(r"sync|barrier|fence|wait|arrive|commit|release|acquire")

BOUND = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
OTHER = {"+": "-", "-": "+", "&&": "||", "||": "&&"}


class Change(NamedTuple):
    """A piece of a text and what takes its position."""

    pattern: str
    start: int
    end: int
    after: str


class Mutation(NamedTuple):
    """A change of a kernel, with a name that says which."""

    file: str  # the kernel, whose text holds all headers
    name: str  # file, function, and the line with the change in the form {before|after}
    change: Change
    group: tuple[str, str, str]  # file, function and pattern

    @property
    def file_changed(self) -> str:
        """The header or kernel file in which the change lies."""
        return self.group[0]

    @property
    def key(self) -> str:
        """A hash of the name, by which the mutation is chosen and its test is named."""
        return hashlib.sha256(self.name.encode()).hexdigest()[:10]

    def patch(self) -> dict[str, str]:
        """The changed text of the kernel, by the kernel's file."""
        text, change = _compile.source(self.file), self.change
        return {self.file: text[: change.start] + change.after + text[change.end :]}


def operands(code: Code, position: int, operator: str) -> tuple[int, int, str]:
    """Return the start and the end of an operator with its operands, and the operator before."""
    level = LEVEL[operator]
    start, before = code.left(code.end_before(position), level)
    return start, code.right(position + len(operator) + 1, level), before


def operator_changes(code: Code) -> Iterator[Change]:
    """Comparisons, terms, factors, bits and conditions."""
    text = code.text
    for position, operator in code.operators.items():
        end = position + len(operator)
        if operator in NEGATED:
            start, stop, _ = operands(code, position, operator)
            if operator in BOUND and not is_choice_of(code, start, position, end, stop):
                yield Change("bound", position, end, BOUND[operator])
            yield Change("comparison", position, end, NEGATED[operator])
        elif operator in LEVEL:
            kind = "condition" if operator in ("&&", "||") else "term"
            if operator in OTHER:
                yield Change(kind, position, end, OTHER[operator])
            start, stop, before = operands(code, position, operator)
            guards = operator == "&" and text[position - 2] == ")" and text[end + 1] == "("
            yield Change("guard" if guards else kind, code.end_before(position), stop, "")
            first = before not in LEVEL or LEVEL[before] != LEVEL[operator]
            if first and (guards or operator in ("&&", "||", "+", "*")):
                operand = end + len(text[end:stop]) - len(text[end:stop].lstrip())
                yield Change("guard" if guards else kind, start, operand, "")
        elif operator in ("+=", "|=", "&=", "^=", "*="):
            if not is_step(code, position):
                yield Change("assignment", position, end, "=")
        elif operator == "?":
            yield from choices(code, position)


def is_choice_of(code: Code, start: int, position: int, end: int, stop: int) -> bool:
    """Whether a comparison chooses between its operands, which makes no difference if equal."""
    rest = re.match(r"\s*\? (.*)", code.text[stop : stop + 200])
    pair = {code.text[start:position].strip(), code.text[end:stop].strip()}
    return rest is not None and all(value and value in rest[1] for value in pair)


def is_step(code: Code, position: int) -> bool:
    """Whether a position lies in the third part of a loop's head."""
    return any(
        start < position < end and code.text.count(";", start, position) == 2
        for start, end in code.loops
    )


def choices(code: Code, position: int) -> Iterator[Change]:
    """One value of two, whatever the condition."""
    start, _ = code.left(code.end_before(position), LOWEST)
    depth, colon = 0, code.right(position + 2, LOWEST)
    while True:
        while code.text[colon].isspace():
            colon += 1
        operator = code.operators.get(colon)
        if operator not in ("?", ":") or (operator == ":" and depth == 0):
            break
        depth += 1 if operator == "?" else -1
        colon = code.right(colon + 2, LOWEST)
    if code.operators.get(colon) != ":":
        return
    yield Change("choice", start, position, "true ")
    yield Change("choice", start, position, "false ")


def expression_changes(code: Code) -> Iterator[Change]:
    """Conditions, subscripts, small numbers, minima and what a function returns."""
    text = code.text
    for match in re.finditer(r"\bif \(", text):
        start, end = match.end(), code.pairs[match.end() - 1]
        yield Change("condition", start, end, "true")
        yield Change("condition", start, end, "false")
    for match in re.finditer(r"(?<=[\w\])])\[(?!\])", text):
        if not declares(text, match.start()):
            end = code.pairs[match.start()]
            yield Change("subscript", end, end, " + 1")
    for match in re.finditer(r"(?<![\w.<])[01](?![\w.])", text):
        if not text[match.start() - 2 : match.start()].endswith(("% ", "/ ", "[")):
            yield Change("number", match.start(), match.end(), "10"[int(match[0])])
    for match in re.finditer(r"wait<(\d)>", text):
        yield Change("synchronisation", match.start(1), match.end(1), str(int(match[1]) + 1))
    for match in re.finditer(r"\b(?:true|false)\b", text):
        after = "false" if match[0] == "true" else "true"
        yield Change("truth", match.start(), match.end(), after)
    for match in re.finditer(r"!(?=[\w(])", text):
        yield Change("truth", match.start(), match.end(), "")
    for match in re.finditer(r"\b__\w+_(?:or|and)\(", text):
        yield Change("synchronisation", match.start(), match.end() - 1, "")
    for match in re.finditer(r"\b(?:least|min|max|larger_of|smaller_of)\(", text):
        comma = code.right(match.end(), LOWEST - 1)
        end = code.pairs[match.end() - 1]
        yield Change("choice", comma, end, "")
        yield Change("choice", match.end(), min(comma + 2, end), "")
    for match in re.finditer(r"\breturn ([^;]*(?:[<>=!]=|&&|\|\|| < | > )[^;?]*);", text):
        yield Change("truth", match.start(1), match.end(1), f"!({match[1]})")


SIZES = r"\w+(?:\[[^=]*\])*"
DECLARED = re.compile(rf"\s*(?:\w+ )*\w[\w:]*(?:<[^=;()]*>)?[*&]? {SIZES}(?:, {SIZES})*$")


def declares(text: str, bracket: int) -> bool:
    """Whether a subscript is the size of an array that its statement declares."""
    start = max(text.rfind(c, 0, bracket) for c in ";{}") + 1
    head = text[start:bracket]
    return DECLARED.match(head) is not None


# A call or an assignment, from its first word on.
STATEMENT = re.compile(
    r"""(?<=[;{})]) \s* (?:else\s+)? (
        (?: [\w.] | -> | :: | \(\) | \[ [^\[\]]* (?: \[[^\[\]]*\] [^\[\]]* )* \] )+ (?: <[^<>;]*> )?
        (?= \( | [ ][-+*/%&|^]?=[ ] )
        | \+\+ | -- | \*
    )""",
    re.VERBOSE,
)
CONDITION = re.compile(r"\b(?:if|for|while) ?$")


def statement_changes(code: Code) -> Iterator[Change]:
    """A call, an assignment or a jump that is left out."""
    text = code.text
    for match in STATEMENT.finditer(text):
        end = text.find(";", match.end())
        opened = text.find("{", match.end(), end)
        if opened >= 0:  # a function as an argument
            end = text.find(";", code.pairs.get(opened, opened))
        if match[1] in CONTROL or end < 0:
            continue
        if any(start < match.start(1) < close for start, close in code.loops):
            continue
        before = match.start() - 1
        if text[before] == ")" and not CONDITION.search(
            text[code.pairs[before] - 7 : code.pairs[before]]
        ):
            continue  # after a cast
        wait = SYNCHRONISATION.search(match[1])
        yield Change("synchronisation" if wait else "statement", match.start(1), end, "")
    for match in re.finditer(r"\b(?:break|continue|return)(?=;)", text):
        yield Change("jump", match.start(), match.end(), "")


PATTERNS: list[Callable[[Code], Iterator[Change]]] = [
    operator_changes,
    expression_changes,
    statement_changes,
]


@lru_cache(maxsize=64)
def mutations(kernel: str) -> tuple[Mutation, ...]:
    """All mutations of a kernel file, with the headers that it includes."""
    text = _compile.source(kernel)
    code = Code(text)
    lines = [(match.start(), match[1]) for match in FILE.finditer(text)]
    results, seen, times = [], set(), Counter[str]()
    changes = (change for pattern in PATTERNS for change in pattern(code))
    for change in sorted(changes, key=lambda change: change[1:]):
        function = code.function_at(change.start)
        if function is None or change[1:] in seen:
            continue
        seen.add(change[1:])
        header = next(name for start, name in reversed(lines) if start <= change.start)
        name = f"{header}, {function}: {marked(code, change)}"
        times[name] += 1
        if times[name] > 1:
            name += f" ({times[name]})"
        results.append(Mutation(kernel, name, change, (header, function, change.pattern)))
    return tuple(results)


def marked(code: Code, change: Change) -> str:
    """The line of a change, or its lines as one, with the change as {before|after}."""
    start = code.shown.rfind("\n", 0, change.start) + 1
    end = code.shown.find("\n", change.end)
    pieces = (start, change.start), (change.start, change.end), (change.end, end)
    before, changed, behind = (re.sub(r"\s+", " ", code.shown[a:b]) for a, b in pieces)
    return f"{before}{{{changed}|{change.after}}}{behind}".strip()


def chosen(offered: Iterable[Mutation], most: int) -> list[Mutation]:
    """At most so many: of each pattern in turn, the first in each function before any second.

    Of synchronisations there are twice as many: they are what a test by values alone would miss.
    """
    ranks, turns = Counter[tuple[str, str, str]](), Counter[str]()
    order = []
    for mutation in sorted(offered, key=lambda mutation: mutation.key):
        order.append((ranks[mutation.group], mutation.key, mutation))
        ranks[mutation.group] += 1
    taken = []
    for _, key, mutation in sorted(order):
        pattern = mutation.change.pattern
        taken.append((turns[pattern], key, mutation))
        turns[pattern] += 1 if pattern == "synchronisation" else 2
    return [mutation for _, _, mutation in sorted(taken)[:most]]
