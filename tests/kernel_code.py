"""The text of a kernel as the patterns of ``mutations.py`` see it."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Text that the patterns do not see: comments, strings and preprocessor lines; calls that only the
# compiler evaluates or that change speed alone; template headers and constants of the compiler.
HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*',
    re.DOTALL | re.MULTILINE,
)
HIDDEN_CALLS = re.compile(
    r"\b(?:static_assert|asm(?: volatile)?|alignas|__align__|__launch_bounds__|DYNAMIC_SHARED"
    r"|if constexpr|\w*prefetch\w*|\w*registers)\s*(?=\()"
)
TEMPLATE = re.compile(r"\btemplate <(?:[^<>()]|\([^()]*\)|<[^<>]*>)*>|\bconstexpr [^;{(]*=[^;]*;")
LOOP = re.compile(r"\bfor \(")
CONTROL = {"if", "for", "while", "switch", "return"}

# Binary operators by how tightly they bind; assignments and the conditional operator come last.
LEVELS = [["*", "/", "%"], ["+", "-"], ["<<", ">>"], ["<", "<=", ">", ">="], ["==", "!="]]
LEVELS += [["&"], ["^"], ["|"], ["&&"], ["||"]]
LEVEL = {operator: -level for level, group in enumerate(LEVELS) for operator in group}
LOWEST = -len(LEVELS)
OPERATOR = re.compile(r"(?<=\s)(?:<<=|>>=|[-+*/%&|^<>=!]=|&&|\|\||<<|>>|[-+*/%&|^<>=?:])(?=\s)")
CLOSING = {"(": ")", "[": "]", "{": "}"}


class Code:
    """A text in which all that the patterns do not see is blank, at the same positions.

    Attributes
    ----------
    text, shown : str
        The text for the patterns, and the text for names of mutants, in which calls are not blank.
    pairs : dict
        From the position of each bracket to the position of its partner.
    operators, ending : dict
        The binary and the conditional operators by their positions, and by their ends.
    functions : list of tuple
        The start of each function after its parameters, its end and its name.
    loops : list of tuple
        The start and the end of the head of each ``for`` loop.
    """

    def __init__(self, text: str) -> None:
        self.text = self.shown = HIDDEN.sub(blank, text)
        self.pairs: dict[int, int] = {}
        for hidden in (TEMPLATE, HIDDEN_CALLS):
            self.match_brackets()
            for match in reversed(list(hidden.finditer(self.text))):
                end = self.pairs.get(match.end(), match.end() - 1) + 1
                self.hide(match.start(), end)
        self.match_brackets()
        self.operators = {m.start(): m[0] for m in OPERATOR.finditer(self.text)}
        self.ending = {start + len(name): name for start, name in self.operators.items()}
        self.functions = sorted(self.find_functions())
        self.loops = [(m.end(), self.pairs[m.end() - 1]) for m in LOOP.finditer(self.text)]

    def hide(self, start: int, end: int) -> None:
        self.text = self.text[:start] + blank(self.text[start:end]) + self.text[end:]

    def match_brackets(self) -> None:
        self.pairs.clear()
        opened: list[int] = []
        for bracket in re.finditer(r"[()\[\]{}]", self.text):
            if bracket[0] in CLOSING:
                opened.append(bracket.start())
            elif opened:
                other = opened.pop()
                self.pairs[other], self.pairs[bracket.start()] = bracket.start(), other

    def find_functions(self) -> Iterator[tuple[int, int, str]]:
        """Yield the start of each function after its parameters, its end and its name."""
        for brace in re.finditer(r"\{", self.text):
            start = max(self.text.rfind(c, 0, brace.start()) for c in ";{}") + 1
            head = self.text[start : brace.start()]
            if head.lstrip().startswith(",") or head.count("(") != head.count(")"):
                continue  # a brace in a member's initial value, the body of a loop, a lambda
            name = re.search(r"(\w+)\s*\(", head)
            if name is None or name[1] in CONTROL:
                continue
            parameters = self.pairs.get(start + name.end() - 1, brace.start())
            if parameters < brace.start():
                yield parameters + 1, self.pairs[brace.start()], name[1]

    def function_at(self, position: int) -> str | None:
        """Return the name of the innermost function around a position."""
        inside = [name for start, end, name in self.functions if start <= position < end]
        return inside[-1] if inside else None

    def right(self, position: int, level: int) -> int:
        """Return the end of an operand that begins at a position.

        It ends at an operator of the same level or a lower one.
        """
        while position < len(self.text):
            c = self.text[position]
            operator = self.operators.get(position)
            if c in CLOSING:
                position = self.pairs.get(position, position)
            elif c in ")]},;" or (operator and LEVEL.get(operator, LOWEST) <= level):
                break
            position += len(operator or " ")
        return self.end_before(position)

    def end_before(self, position: int) -> int:
        """Return the end of the last word before a position."""
        while self.text[position - 1].isspace():
            position -= 1
        return position

    def left(self, position: int, level: int) -> tuple[int, str]:
        """Return the start of an operand that ends at a position, and the operator before it."""
        operator = ""
        while position > 0:
            c = self.text[position - 1]
            if c in ")]" and position - 1 in self.pairs:
                position = self.pairs[position - 1]
                continue
            operator = self.ending.get(position, "")
            if operator and LEVEL.get(operator, level - 1) <= level:
                break
            if c in "([{};," or self.text.startswith("return", position - 6):
                break
            position -= 1
        while position < len(self.text) and self.text[position].isspace():
            position += 1
        return position, operator


def blank(match: re.Match[str] | str) -> str:
    """Return as many spaces, with the same ends of lines."""
    return re.sub(r"[^\n]", " ", match if isinstance(match, str) else match[0])
