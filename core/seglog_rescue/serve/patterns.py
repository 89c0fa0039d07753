"""Patterns of topic names in the syntax of RE2, matched in time that grows with the name only (Kafka: RE2/J).

Python's own engine backtracks: forty characters of pattern can keep it busy for years. So a pattern is compiled to the
steps of a nondeterministic automaton, which looks at each character once (Thompson's construction, as in RE2). A name
must match as a whole. Names of topics are ASCII, so a class of characters is a number of 128 bits.

As in RE2 there are no references to groups and no looking ahead or behind; classes of Unicode, which no name needs, are
refused too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

_MOST_STEPS = 1000
_MOST_CHARACTERS = 1000  # of a pattern
_MOST_REPEATS = 1000  # as in RE2
_DEEPEST = 50
_ALL = (1 << 128) - 1


def _bits(characters: str) -> int:
    return sum(1 << ord(each) for each in set(characters) if ord(each) < 128)


_DIGITS = _bits("0123456789")
_LOWER = _bits("abcdefghijklmnopqrstuvwxyz")
_UPPER = _bits("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_WORD = _DIGITS | _LOWER | _UPPER | _bits("_")
_SPACE = _bits(" \t\n\f\r")
_CLASSES = MappingProxyType({"d": _DIGITS, "w": _WORD, "s": _SPACE})
_NAMED = MappingProxyType(
    {
        "alnum": _DIGITS | _LOWER | _UPPER,
        "alpha": _LOWER | _UPPER,
        "ascii": _ALL,
        "digit": _DIGITS,
        "lower": _LOWER,
        "punct": _bits("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        "space": _SPACE | _bits("\v"),
        "upper": _UPPER,
        "word": _WORD,
        "xdigit": _DIGITS | _bits("abcdefABCDEF"),
    }
)
_CONTROLS = MappingProxyType({"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"})
_EDGES = MappingProxyType({"A": "start", "z": "end", "b": "edge", "B": "no edge"})


class PatternError(ValueError):
    """Raised for a pattern that cannot be read, or that would take too long to match. Its text says why."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a pattern: `kind` is "class" (of `bits`), "assertion" (`name`), "sequence", "choice" or "repeat"."""

    kind: str
    bits: int = 0
    name: str = ""
    parts: tuple[Node, ...] = ()
    least: int = 0
    most: int | None = None


@dataclass(slots=True)
class _Parser:
    """Reads a pattern by recursive descent. `flags` are those of (?i) and (?s) that apply here."""

    text: str
    position: int = 0
    depth: int = 0
    flags: frozenset[str] = field(default_factory=frozenset)

    def parsed(self) -> Node:
        node = self._choice()
        if self.position < len(self.text):
            raise PatternError(f"there is a ')' too many at character {self.position + 1}")
        return node

    def _peek(self, text: str) -> bool:
        return self.text.startswith(text, self.position)

    def _take(self, text: str) -> bool:
        if not self._peek(text):
            return False
        self.position += len(text)
        return True

    def _next(self, what: str) -> str:
        if self.position >= len(self.text):
            raise PatternError(f"it ends within {what}")
        self.position += 1
        return self.text[self.position - 1]

    def _choice(self) -> Node:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise PatternError(f"its groups are nested more than {_DEEPEST} deep")
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        self.depth -= 1
        return parts[0] if len(parts) == 1 else Node("choice", parts=tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self.position < len(self.text) and not self._peek("|") and not self._peek(")"):
            if self._take("\\Q"):
                end = self.text.find("\\E", self.position)
                quoted = self.text[self.position : end if end >= 0 else len(self.text)]
                self.position += len(quoted) + (2 if end >= 0 else 0)
                parts += map(self._literal, quoted)
            else:
                parts.append(self._repeated(self._atom()))
        return Node("sequence", parts=tuple(parts))

    def _repeated(self, node: Node) -> Node:
        repeated = False
        while (bounds := self._bounds()) is not None:
            if repeated:
                raise PatternError(f"a repetition is repeated at character {self.position}")
            self._take("?")  # whether it is greedy makes no difference to a whole match
            node, repeated = Node("repeat", parts=(node,), least=bounds[0], most=bounds[1]), True
        return node

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        end = self.text.find("}", self.position)
        if not self._peek("{") or end < 0:
            return None
        least, comma, most = self.text[self.position + 1 : end].partition(",")
        if not _is_number(least) or not (_is_number(most) or not most):
            return None  # a literal brace, as in RE2
        self.position = end + 1
        low, high = int(least), None if comma and not most else int(most or least)
        if low > _MOST_REPEATS or (high is not None and not low <= high <= _MOST_REPEATS):
            raise PatternError(f"{{{least}{comma}{most}}} is not a repetition of up to {_MOST_REPEATS}")
        return low, high

    def _atom(self) -> Node:
        character = self._next("a pattern")
        if character == "(":
            return self._group()
        if character == "[":
            return Node("class", self._folded(self._class()))
        if character == ".":
            return Node("class", _ALL if "s" in self.flags else _ALL & ~_bits("\n"))
        if character in "^$":
            return Node("assertion", name="start" if character == "^" else "end")
        if character in "*+?":
            raise PatternError(f"there is nothing to repeat before character {self.position}")
        if character == "\\":
            if self.position < len(self.text) and self.text[self.position] in _EDGES:
                return Node("assertion", name=_EDGES[self._next("an escape")])
            return Node("class", self._folded(self._escape()))
        return self._literal(character)

    def _literal(self, character: str) -> Node:
        return Node("class", self._folded(_bits(character)))

    def _folded(self, bits: int) -> int:
        if "i" not in self.flags:
            return bits
        lower, upper = bits & _LOWER, bits & _UPPER
        return bits | lower >> 32 | upper << 32

    def _group(self) -> Node:
        outer = self.flags
        if self._take("?"):
            named = next((each for each in ("P<", "<") if self._peek(each)), None)
            if named is not None:
                self._take(named)
                self._name()
            elif self._flags():
                return Node("sequence")  # (?i) applies to the rest of the group around it
        node = self._choice()
        if not self._take(")"):
            raise PatternError("a group does not end")
        self.flags = outer
        return node

    def _name(self) -> None:
        name = ""
        while (character := self._next("a group's name")) != ">":
            name += character
        if not name.isidentifier():
            raise PatternError("looking ahead or behind, and names that are not words, are not supported by RE2")

    def _flags(self) -> bool:
        """Reads the flags after `(?`; returns True if they stand alone."""
        flags, setting = set(self.flags), True
        while (character := self._next("a group")) not in ":)":
            if character == "-" and setting:
                setting = False
            elif character in "imsU":
                (flags.add if setting else flags.discard)(character)
            else:
                raise PatternError(f"(?{character} is not supported by RE2")
        self.flags = frozenset(flags)
        return character == ")"

    def _class(self) -> int:
        negated, bits, first = self._take("^"), 0, True
        while first or not self._take("]"):
            first = False
            if self._take("[:"):
                bits |= self._named_class()
                continue
            low = self._member()
            if self._peek("-") and not self._peek("-]"):
                self._take("-")
                bits |= _span(low, self._member())
            else:
                bits |= low
        return _ALL & ~bits if negated else bits

    def _member(self) -> int:
        character = self._next("a class of characters")
        return self._escape() if character == "\\" else _bits(character)

    def _named_class(self) -> int:
        end = self.text.find(":]", self.position)
        name = self.text[self.position : max(end, self.position)]
        bits = _NAMED.get(name.removeprefix("^"))
        if bits is None:
            raise PatternError(f"[:{name[:20]}:] is not a class of characters")
        self.position = end + 2
        return _ALL & ~bits if name.startswith("^") else bits

    def _escape(self) -> int:
        character = self._next("an escape")
        if character.lower() in _CLASSES:
            bits = _CLASSES[character.lower()]
            return bits if character.islower() else _ALL & ~bits
        if character in _CONTROLS:
            return _bits(_CONTROLS[character])
        if character == "x":
            braced = self._take("{")
            digits = self._next("an escape") + self._next("an escape")
            while braced and not self._take("}"):
                digits += self._next("an escape")
            if not set(digits) <= set("0123456789abcdefABCDEF"):
                raise PatternError(f"\\x{digits[:20]} is not a character")
            return 1 << int(digits, 16) if len(digits) <= 8 and int(digits, 16) < 128 else 0
        if character.isalnum():
            raise PatternError(f"\\{character} is not supported: not by RE2, or not in names of topics")
        return _bits(character)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _span(low: int, high: int) -> int:
    """Returns the characters from `low` to `high`, each the bit of one character."""
    if low.bit_count() > 1 or high.bit_count() > 1 or low > high > 0:
        raise PatternError("a range of characters has a class as an end, or is the wrong way around")
    return (high << 1) - low if low and high else _ALL + 1 - low if low else 0


_Step = tuple[str, int, tuple[int, ...]]  # kind, bits or 0, the next steps


@dataclass(slots=True)
class _Compiler:
    """Makes the steps of a pattern, from its end to its beginning. Step 0 is the match."""

    steps: list[_Step] = field(default_factory=lambda: [("match", 0, ())])

    def _add(self, kind: str, bits: int, *following: int) -> int:
        if len(self.steps) >= _MOST_STEPS:
            raise PatternError(f"it has more than {_MOST_STEPS} steps, with what is repeated counted each time")
        self.steps.append((kind, bits, following))
        return len(self.steps) - 1

    def compile(self, node: Node, after: int) -> int:
        """Adds the steps of a part that goes on with the step `after`; returns the first."""
        if node.kind == "class":
            return self._add("class", node.bits, after)
        if node.kind == "assertion":
            return self._add(node.name, 0, after)
        if node.kind == "sequence":
            for part in reversed(node.parts):
                after = self.compile(part, after)
            return after
        if node.kind == "choice":
            return self._add("choice", 0, *(self.compile(part, after) for part in node.parts))
        return self._repeat(node, after)

    def _repeat(self, node: Node, after: int) -> int:
        (part,) = node.parts
        first = after
        if node.most is None:
            first = self._add("choice", 0, after)
            self.steps[first] = ("choice", 0, (self.compile(part, first), after))
        else:
            for _ in range(node.most - node.least):
                first = self._add("choice", 0, self.compile(part, first), after)
        for _ in range(node.least):
            before = len(self.steps)
            first = self.compile(part, first)
            if len(self.steps) == before:  # of an empty part, a thousand million repetitions take no step
                break
        return first


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern."""

    steps: tuple[_Step, ...]
    first: int

    def matches(self, name: str) -> bool:
        """Returns True if the whole name matches."""
        current = self._reached([self.first], name, 0)
        for position, character in enumerate(name):
            if not current:
                return False
            bit = _bits(character)
            after = [following[0] for kind, bits, following in map(self.steps.__getitem__, current) if bits & bit]
            current = self._reached(after, name, position + 1)
        return 0 in current

    def _reached(self, steps: list[int], name: str, position: int) -> set[int]:
        """Returns the steps that wait for a character at a position, or for the end."""
        seen: set[int] = set()
        waiting: set[int] = set()
        stack = list(steps)
        while stack:
            step = stack.pop()
            if step in seen:
                continue
            seen.add(step)
            kind, _, following = self.steps[step]
            if kind in ("class", "match"):
                waiting.add(step)
            elif kind == "choice" or _HOLDS[kind](name, position):
                stack += following
        return waiting


def _is_edge(name: str, position: int) -> bool:
    around = name[max(position - 1, 0) : position], name[position : position + 1]
    before, after = (bool(each) and bool(_bits(each) & _WORD) for each in around)
    return before != after


_HOLDS: MappingProxyType[str, Callable[[str, int], bool]] = MappingProxyType(
    {
        "start": lambda _name, position: position == 0,
        "end": lambda name, position: position == len(name),
        "edge": _is_edge,
        "no edge": lambda name, position: not _is_edge(name, position),
    }
)


@lru_cache(maxsize=256)
def compiled(text: str) -> Pattern:
    """Compiles a pattern. Raises PatternError."""
    if len(text) > _MOST_CHARACTERS:
        raise PatternError(f"it has {len(text)} characters; at most {_MOST_CHARACTERS} are read")
    compiler = _Compiler()
    first = compiler.compile(_Parser(text).parsed(), 0)
    return Pattern(tuple(compiler.steps), first)
