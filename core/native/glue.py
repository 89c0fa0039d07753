"""Writes the tables for `glue.c`: kernels, their parameters, the types of items."""

from __future__ import annotations

import json
from collections.abc import Iterator

from native.platforms import ENTRY_PREFIX
from native.signatures import Kernel
from seglog.kernels.arrays import Array

MOST_ARRAYS = 32


def tables(kernels: list[Kernel], results: dict[str, str], sources: str, stamp: str) -> str:
    """Returns the C header `kernels.h`.

    `results` says what each kernel returns (`lowering.Lowered`), `sources` is the digest of the kernels' sources, and
    `stamp` the builder's stamp.
    """
    for kernel in kernels:
        if sum(1 for _ in _arrays(kernel)) > MOST_ARRAYS:
            raise TypeError(f"{kernel.shown} takes more than the {MOST_ARRAYS} arrays that glue.c has room for")
    items = sorted({array.items for kernel in kernels for array in _arrays(kernel)})
    lines = [f"#define SOURCES {_text(sources)}", f"#define STAMP {_text(stamp)}"]
    lines.append(f"#define MOST_ARRAYS {MOST_ARRAYS}")
    lines.append(f"static const char *const ITEM_NAMES[] = {{{', '.join(map(_text, items))}}};")
    lines.append(f"#define ITEMS {len(items)}")
    for kernel in kernels:
        lines.append(f"extern int32_t {ENTRY_PREFIX}{kernel.name}(const int64_t *, int64_t *);")
        lines.append(f"static const Parameter {kernel.name}_parameters[] = {{")
        for parameter in kernel.parameters:
            lines += [f"  {row}," for row in _rows(parameter.name, parameter.kind, items)]
        lines.append("  {0, 0, 0, 0, 0}};")
    lines.append("static const Kernel KERNELS[] = {")
    for kernel in kernels:
        facts = [_text(kernel.shown), ENTRY_PREFIX + kernel.name, str(len(kernel.parameters))]
        facts += [f"{kernel.name}_parameters", _text(results[kernel.name])]
        lines.append(f"  {{{', '.join(facts)}}},")
    lines.append("};")
    for place, kernel in enumerate(kernels):
        lines.append(
            f"static PyObject *call_{kernel.name}(PyObject *module, PyObject *const *given, Py_ssize_t count)"
            f" {{ (void)module; return call(&KERNELS[{place}], given, count); }}"
        )
    lines.append("static PyMethodDef METHODS[] = {")
    for kernel in kernels:
        documentation = _text(kernel.documentation)
        lines.append(f"  {{{_text(kernel.name)}, call_{kernel.name}, METH_FASTCALL, {documentation}}},")
    lines.append('  {"bind", bind, METH_FASTCALL, "bind(types, /)\\n--\\n\\nTakes the dtypes that ITEMS names."},')
    lines.append("  {0, 0, 0, 0}};")
    return "\n".join(lines) + "\n"


def _arrays(kernel: Kernel) -> Iterator[Array]:
    for parameter in kernel.parameters:
        if isinstance(parameter.kind, Array):
            yield parameter.kind
        elif isinstance(parameter.kind, tuple):
            yield from parameter.kind


def _rows(name: str, kind: object, items: list[str]) -> Iterator[str]:
    if isinstance(kind, Array):
        facts = [_text(name), kind.shape.upper(), str(items.index(kind.items)), str(int(kind.writable))]
        yield f"{{{', '.join([*facts, str(kind.width)])}}}"
    elif isinstance(kind, tuple):
        yield f"{{{_text(name)}, TUPLE, 0, 0, {len(kind)}}}"
        for place, part in enumerate(kind):
            yield from _rows(f"{name}[{place}]", part, items)
    else:
        yield f"{{{_text(name)}, {'TRUTH' if kind is bool else 'NUMBER'}, 0, 0, 0}}"


def _text(value: str) -> str:
    """Returns a C string; JSON escapes ASCII as C does."""
    return json.dumps(value.encode("ascii", "replace").decode("ascii"))
