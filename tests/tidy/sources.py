"""What the rules ask about the sources of the project: each file is parsed once in a process, and its tree let go."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("seglog", "seglog_ask", "seglog_rescue", "seglog_stores")  # of the library
ENGINE = sorted(path for package in PACKAGES for path in (ROOT / "core" / package).rglob("*.py"))
BUILDER = sorted((ROOT / "core" / "native").rglob("*.py"))
COMMAND_LINE = sorted((ROOT / "seglog_cli").rglob("*.py"))
SOURCES = [*ENGINE, *BUILDER, *COMMAND_LINE]
TESTS = sorted((ROOT / "tests").rglob("*.py"))

BY_GRAMMAR = frozenset({"found", "one", "each", "known", "wanted", "shown", "kept"})


@dataclass(frozen=True, slots=True)
class Import:
    """`import names`, or `from module import names`: at the top of the file, or for type checkers alone."""

    module: str | None
    names: tuple[str, ...]
    at_top: bool
    for_types: bool


@dataclass(slots=True)
class Source:
    """A file: the dotted names that it calls, (name, lines of its body without the docstring) of its functions, the
    variables by grammar that statements bind, and the lines of handlers that do nothing.
    """

    documented: bool
    calls: set[str] = field(default_factory=set)
    imports: list[Import] = field(default_factory=list)
    functions: list[tuple[str, int]] = field(default_factory=list)
    bindings: list[str] = field(default_factory=list)
    swallowed: list[int] = field(default_factory=list)

    def modules(self, *, at_top: bool = False) -> Iterator[str]:
        """The modules that it imports; with `at_top` those outside functions and `if TYPE_CHECKING`."""
        for statement in self.imports:
            if statement.at_top or not at_top:
                yield from statement.names if statement.module is None else (statement.module,)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def source(path: Path) -> Source:
    tree = ast.parse(path.read_text())
    result = Source(documented=not tree.body or ast.get_docstring(tree) is not None)
    top = {id(statement) for statement in tree.body}
    brief: set[int] = set()  # names of a comprehension, which live for its line only; it comes before them
    for node, for_types in _nodes(tree, False):
        match node:
            case ast.Import(names):
                names_ = tuple(alias.name for alias in names)
                result.imports.append(Import(None, names_, id(node) in top, for_types))
            case ast.ImportFrom(module, names):
                names_ = tuple(alias.name for alias in names)
                result.imports.append(Import(module or "", names_, id(node) in top, for_types))
            case ast.Call(function):
                result.calls.add(ast.unparse(function))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                result.functions.append((node.name, _body_lines(node)))
            case ast.ExceptHandler(body=[ast.Pass()]):
                result.swallowed.append(node.lineno)
            case ast.comprehension():
                brief |= {id(name) for name in ast.walk(node.target)}
            case ast.arg(name) if name in BY_GRAMMAR:
                result.bindings.append(name)
            case ast.Name(name, ast.Store()) if name in BY_GRAMMAR and id(node) not in brief:
                result.bindings.append(name)
    return result


def _nodes(node: ast.AST, for_types: bool) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes below, outermost first, and whether `if TYPE_CHECKING` holds them."""
    is_guard = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    guarded = {id(statement) for statement in node.body} if isinstance(node, ast.If) and is_guard else set()
    for part in ast.iter_child_nodes(node):
        within = for_types or id(part) in guarded
        yield part, within
        yield from _nodes(part, within)


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """A command's signature is its table of options, and a kernel's its columns: they do not count."""
    documented = ast.get_docstring(function) is not None and len(function.body) > 1
    first = function.body[1 if documented else 0]
    return (function.end_lineno or function.lineno) - first.lineno + 1
