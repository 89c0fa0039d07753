"""The contract of core/JSON.md: its types, read from the page, and what in a line does not hold to them.

A type is `text`, `integer`, `number`, `boolean`, `null`, `any`, a quoted text, `[TYPE]`, `{text: TYPE}`, or `{"field":
TYPE, "field"?: TYPE}` (one with ? may be missing), or types with | between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "core" / "JSON.md"
_TOKEN = re.compile(r'\s*("[^"]*"|[a-z]+|[{}\[\]:,|?])')
_HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PLAIN: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


@dataclass(frozen=True)
class Plain:
    """A value of a named type, or one text alone."""

    name: str

    def faults(self, value: Any, place: str) -> Iterator[str]:
        if self.name == "any" or self.name == json.dumps(value, ensure_ascii=False):
            return
        is_kind = isinstance(value, _PLAIN.get(self.name, ())) and (
            self.name == "boolean" or not isinstance(value, bool)
        )
        if not is_kind:
            yield f"{place} is {shown(value)}, and the page says {self.name}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Listed:
    """A list of values of a type."""

    item: Type

    def faults(self, value: Any, place: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{place} is {shown(value)}, and the page says {self}"
            return
        for number, item in enumerate(value):
            yield from self.item.faults(item, f"{place}[{number}]")

    def __str__(self) -> str:
        return f"[{self.item}]"


@dataclass(frozen=True)
class Mapped:
    """An object whose fields are names of things, each with a value of a type."""

    item: Type

    def faults(self, value: Any, place: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{place} is {shown(value)}, and the page says {self}"
            return
        for name, item in value.items():
            yield from self.item.faults(item, f"{place}.{name}")

    def __str__(self) -> str:
        return f"{{text: {self.item}}}"


@dataclass(frozen=True)
class Fields:
    """An object with these fields, of which some may be missing."""

    types: Mapping[str, Type]
    optional: frozenset[str]

    def faults(self, value: Any, place: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{place} is {shown(value)}, and the page says an object"
            return
        for name in self.types.keys() - self.optional - value.keys():
            if f"{name}_b64" not in value:
                yield f'{place} has no "{name}": write "{name}"?: {self.types[name]} if it may be missing'
        for name, item in value.items():
            if name in self.types:
                yield from self.types[name].faults(item, f"{place}.{name}")
            elif name.removesuffix("_b64") in self.types:  # of a text that is not UTF-8
                yield from (_BASE64_LIST if isinstance(item, list) else _BASE64).faults(item, f"{place}.{name}")
            else:
                yield f'{place} has a field more: add "{name}": {inferred(item)}'

    def __str__(self) -> str:
        return "{" + ", ".join(f'"{n}"{"?" * (n in self.optional)}: {t}' for n, t in self.types.items()) + "}"


@dataclass(frozen=True)
class Either:
    """A value of one of these types."""

    types: tuple[Type, ...]

    def faults(self, value: Any, place: str) -> Iterator[str]:
        answers = [list(kind.faults(value, place)) for kind in self.types]
        if all(answers):
            same_shape = [faults for kind, faults in zip(self.types, answers, strict=True) if _is_shape_of(kind, value)]
            yield from (
                min(same_shape, key=len) if same_shape else [f"{place} is {shown(value)}, and the page says {self}"]
            )

    def __str__(self) -> str:
        return " | ".join(map(str, self.types))


Type = Plain | Listed | Mapped | Fields | Either


_BASE64 = Plain("text")
_BASE64_LIST = Listed(_BASE64)


def _is_shape_of(kind: Type, value: Any) -> bool:
    """Whether a value of another type inside, or another field, is what is wrong with it."""
    if isinstance(value, dict):
        return isinstance(kind, (Fields, Mapped))
    return isinstance(value, list) and isinstance(kind, Listed)


def shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return f"{inferred(value)} ({text if len(text) <= 60 else text[:60] + '…'})"


def inferred(value: Any, of_type: str | None = None) -> str:
    """The type of a value, as the page writes it; for a field, or a line `of_type`, that is not there yet."""
    if of_type is not None:
        return inferred({**value, "type": ""}).replace('"type": text', f'"type": {of_type}')
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}": {inferred(item)}' for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + " | ".join(dict.fromkeys(map(inferred, value)) or ["any"]) + "]"
    names = {bool: "boolean", int: "integer", float: "number", str: "text"}
    return "null" if value is None else names[type(value)]


class _Reader:
    """Reads types from text by descent."""

    def __init__(self, text: str) -> None:
        self.tokens = [match[1] for match in _TOKEN.finditer(text)]
        if re.sub(r"\s", "", text) != "".join(re.sub(r"\s", "", token) for token in self.tokens):
            raise ValueError(f"not a type: {text}")

    def take(self, expected: str = "") -> str:
        token = self.tokens.pop(0) if self.tokens else "the end"
        if expected and token != expected:
            raise ValueError(f"{expected} expected, {token} found before {' '.join(self.tokens[:6])}")
        return token

    def peek(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def kind(self) -> Type:
        kinds = [self.single()]
        while self.peek() == "|":
            self.take()
            kinds.append(self.single())
        return kinds[0] if len(kinds) == 1 else Either(tuple(kinds))

    def single(self) -> Type:
        token = self.take()
        if token == "[":
            item = self.kind()
            self.take("]")
            return Listed(item)
        if token == "{":
            return self.object()
        if token in _PLAIN or token == "any" or token[0] == '"':
            return Plain(token)
        raise ValueError(f"{token} is not a type")

    def object(self) -> Type:
        if self.peek() == "text":
            self.take()
            self.take(":")
            item = self.kind()
            self.take("}")
            return Mapped(item)
        types: dict[str, Type] = {}
        optional = set()
        while self.peek() != "}":
            name = json.loads(self.take())
            if self.peek() == "?":
                optional.add(name)
                self.take()
            self.take(":")
            if name in types:
                raise ValueError(f"{name} stands twice")
            types[name] = self.kind()
            if self.peek() == ",":
                self.take()
        self.take("}")
        return Fields(types, frozenset(optional))


def read_type(text: str) -> Type:
    """The type that a text on the page writes. Raises ValueError if it is none."""
    reader = _Reader(text)
    kind = reader.kind()
    if reader.tokens:
        raise ValueError(f"{' '.join(reader.tokens[:6])} is left over")
    return kind


def types_in(text: str) -> list[Type]:
    """The types in the fenced blocks of a part of the page, with a blank line between two."""
    return [read_type(kind) for block in _BLOCK.findall(text) for kind in block.strip().split("\n\n")]


def lines_of(page: str) -> dict[str, list[Type]]:
    """Command (as `config show`) → the types of its lines, from the page's sections."""
    parts = _HEADING.split(page.split("\n## Lines\n")[1])[1:]
    lines: dict[str, list[Type]] = {}
    for heading, body in zip(parts[::2], parts[1::2], strict=True):
        for command in heading.split(", "):
            lines.setdefault(command, []).extend(types_in(body))
    return lines


def line_faults(kinds: list[Type], line: Any) -> list[str]:
    """What in a line of a command does not hold to the page, with what to write there."""
    name = json.dumps(line["type"]) if isinstance(line, dict) and "type" in line else None
    typed = [kind for kind in kinds if _type_of(kind) in (name, "any")]
    if not typed:
        return [f"the page has no such line: add {inferred(line, name)}"]
    return min((list(kind.faults(line, "the line" if name is None else name)) for kind in typed), key=len)


def _type_of(kind: Type) -> str | None:
    """The quoted `type` of a line's fields; "any" for rows whose fields are data."""
    if not isinstance(kind, Fields):
        return "any"
    return str(kind.types["type"]) if "type" in kind.types else None


CONTRACT = lines_of(PAGE.read_text())


def output_faults(command: str, stdout: str) -> list[str]:
    """What in the lines of a command (`config show`) does not hold to the page."""
    return [fault for line in stdout.splitlines() for fault in line_faults(CONTRACT[command], json.loads(line))]
