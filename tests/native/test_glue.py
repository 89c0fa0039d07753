"""The door of the native library: what does not fit a kernel is refused by name, and no kernel sees it."""

from __future__ import annotations

import ctypes
import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from native.signatures import Parameter, parameters_of
from seglog import layout
from seglog.kernels import batches, gather, row_keys, runs, validate, varint
from seglog.kernels._mode import MODE, NATIVE
from seglog.kernels.arrays import COLUMN, ROW, TABLE, Array
from tests.support.interpreted import interpreted

pytestmark = pytest.mark.skipif(MODE.name != NATIVE, reason="this run has no native library")

LIBRARY: Any = MODE.library
NAMES = sorted(name for name in dir(LIBRARY) if "__" in name.strip("_"))


def parameters(name: str) -> tuple[Parameter, ...]:
    module, _, function = name.rpartition("__")
    return parameters_of(getattr(interpreted(module.replace("__", ".")), function))


def dtype_of(array: Array) -> np.dtype[Any]:
    return getattr(layout, array.items) if array.items.isupper() else np.dtype(array.items)  # type: ignore[no-any-return]


def right(kind: Any) -> Any:
    """A value that fits. No kernel is run with it: one of its neighbours does not."""
    if isinstance(kind, tuple):
        return tuple(right(part) for part in kind)
    if not isinstance(kind, Array):
        return kind(0)
    if kind.shape == ROW:
        return np.zeros(1, dtype=dtype_of(kind))[0]
    return np.zeros((4, kind.width) if kind.shape == TABLE else 4, dtype=dtype_of(kind))


def wrong(kind: Any) -> Iterator[tuple[str, Any]]:
    """(what it is, a value that does not fit)."""
    for value in (None, "text", b"bytes", [0], 1.5, memoryview(bytearray(16)), object(), {}):
        if not (kind is bool and value == 1.5):
            yield repr(value), value
    if kind is int:
        yield "an array", np.zeros(2, dtype=np.int64)
    elif kind is bool:
        yield "an array of truths", np.zeros(2, dtype=np.bool_)
    elif isinstance(kind, tuple):
        yield "a shorter tuple", right(kind)[:-1]
        yield "a longer tuple", (*right(kind), right(kind)[0])
        yield "a list", list(right(kind))
        for place, part in enumerate(kind):
            for what, value in wrong(part):
                yield f"{what} as [{place}]", (*right(kind)[:place], value, *right(kind)[place + 1 :])
    elif isinstance(kind, Array):
        yield from wrong_arrays(kind)


def wrong_arrays(kind: Array) -> Iterator[tuple[str, Any]]:
    dtype, fits = dtype_of(kind), right(kind)
    for other in ("int8", "uint8", "bool", "int16", ">i4", "int32", "uint32", "float32", ">i8", "int64", "uint64"):
        if np.dtype(other) != dtype:
            yield f"items {other}", np.zeros(fits.shape, dtype=other)
    for other in ("float64", "complex128", "datetime64[s]", "O", "S1", "V1", f"V{dtype.itemsize}"):
        yield f"items {other}", np.zeros(fits.shape, dtype=other)
    for table in (layout.BATCH, layout.RECORD, layout.SNAPSHOT_ENTRY):
        if table != dtype:
            yield f"items {table}", np.zeros(fits.shape, dtype=table)
    yield "a number of the type", 0 if dtype.names else dtype.type(0)
    if kind.shape == ROW:
        yield "a table", np.zeros(2, dtype=dtype)
        frozen = np.zeros(1, dtype=dtype)
    else:
        yield "no dimension", np.zeros((), dtype=dtype)
        yield "another dimension", np.zeros((2, 2, 2), dtype=dtype)
        yield "one dimension for two, or two for one", np.zeros(4 if kind.shape == TABLE else (2, 2), dtype=dtype)
        frozen = right(kind)
    if kind.shape == TABLE:
        yield "another width", np.zeros((4, kind.width + 1), dtype=dtype)
        yield "columns first", np.zeros((kind.width, kind.width), dtype=dtype, order="F")
    if kind.shape not in (COLUMN, ROW):
        yield "every other item", np.zeros((8, *fits.shape[1:]), dtype=dtype)[::2]
        yield "the last item first", right(kind)[::-1]
        shape, strides = (1 << 40, *fits.shape[1:]), (0, *fits.strides[1:])
        yield "one item many times", np.lib.stride_tricks.as_strided(fits, shape, strides)
    if dtype.alignment > 1 and kind.shape != TABLE:
        shifted = np.zeros(dtype.itemsize * 4 + 1, dtype=np.uint8)[1:].view(dtype)
        yield "not aligned", shifted[0] if kind.shape == ROW else shifted
    if kind.writable:
        frozen.flags.writeable = False
        yield "read-only", frozen[0] if kind.shape == ROW else frozen
        if kind.shape != ROW:
            yield "read-only bytes", np.frombuffer(bytes(frozen.nbytes), dtype=dtype).reshape(frozen.shape)


def refusal(call: Callable[..., Any], values: list[Any]) -> str:
    with pytest.raises(TypeError) as raised:
        call(*values)
    return str(raised.value)


@pytest.mark.parametrize("name", NAMES)
def test_whatever_does_not_fit_is_refused_by_the_names_of_kernel_and_parameter(name: str) -> None:
    kernel, taken = getattr(LIBRARY, name), parameters(name)
    assert list(inspect.signature(kernel).parameters) == [parameter.name for parameter in taken]
    for place, parameter in enumerate(taken):
        for what, value in wrong(parameter.kind):
            values = [right(other.kind) for other in taken]
            values[place] = value
            said = refusal(kernel, values)
            assert said.startswith(f"{name.replace('__', '.')}: {parameter.name}"), what
    values = [right(parameter.kind) for parameter in taken]
    for given in ([*values, 0], values[:-1]):
        wanted = f"{len(taken)} arguments are wanted, not {len(given)}"
        assert refusal(kernel, given) == f"{name.replace('__', '.')}: {wanted}"


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 1 << 200])
def test_a_number_beyond_64_bits_is_an_overflow(number: int) -> None:
    with pytest.raises(OverflowError, match=r"varint\.varint_size: value: the number does not fit 64 bits"):
        varint.varint_size(number)


@pytest.mark.slow
def test_a_mixture_of_right_and_wrong_never_reaches_a_kernel() -> None:
    chance = random.Random(3)
    for _ in range(3000):
        name = chance.choice(NAMES)
        taken = parameters(name)
        if not taken:
            continue
        values = [right(parameter.kind) for parameter in taken]
        for place in chance.sample(range(len(taken)), chance.randint(1, len(taken))):
            values[place] = chance.choice(list(wrong(taken[place].kind)))[1]
        refusal(getattr(LIBRARY, name), values)


def test_numbers_and_truths_may_be_numpys_own() -> None:
    rows = np.zeros(2, dtype=layout.RECORD)
    check = interpreted("encode").check_rows(0, rows, True)
    for size, truth in ((np.int32(0), np.bool_(True)), (np.uint8(0), np.int64(1)), (False, 1)):
        assert LIBRARY.encode__check_rows(size, rows, truth) == check
    assert varint.varint_size(np.int64(-(1 << 63))) == 10
    assert varint.varint_size((1 << 63) - 1) == 10


def test_empty_arrays_fit_whatever_they_were_cut_from() -> None:
    base = np.zeros(9, dtype=np.uint8)
    data, out = base[5:5], np.zeros(0, dtype=layout.BATCH)
    assert batches.walk_batches(data, 0, 0, 0, out) == (0, 0, batches.WALK_COMPLETE)
    assert validate.find_entry(base[::2][:1], 0, 0, 0, 0, 0) == -1, "one item is side by side with nothing"
    empty = np.zeros(0, dtype=layout.RECORD)
    assert row_keys.match_keys(data, empty[::3], base[:0], np.zeros(0, dtype=np.bool_)) == 0
    assert row_keys.match_keys(data, np.frombuffer(b"", dtype=layout.RECORD), data, np.zeros(0, dtype=np.bool_)) == 0


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2])
def test_a_column_may_have_any_stride(step: int) -> None:
    arena = np.arange(50, dtype=np.uint8)
    table = np.zeros((20, 2), dtype=np.int32)
    table[:, 0], table[:, 1] = np.arange(20) * 2, 2
    positions, sizes = table[::step, 0], table[::step, 1]
    out, offsets = np.zeros(40, dtype=np.uint8), np.zeros(len(positions) + 1, dtype=np.int32)
    assert gather.gather_spans(arena, positions, sizes, out, offsets, np.zeros(3, dtype=np.uint8)) == 0
    wanted = [value for at in positions.tolist() for value in (at, at + 1)]
    assert out[: len(wanted)].tolist() == wanted


def test_read_only_arrays_fit_where_nothing_is_written() -> None:
    data = np.frombuffer(bytes(100), dtype=np.uint8)
    assert not data.flags.writeable
    assert validate.find_entry(data, 0, 100, 0, 0, 0) == -1


def test_a_row_of_a_table_is_written_in_place() -> None:
    rows = np.zeros(2, dtype=layout.BATCH)
    data = np.arange(61, dtype=np.uint8)
    batches.read_batch_row(data, 0, 61, 7, rows[1])
    assert rows["position"].tolist() == [0, 7]
    assert rows["crc"].tolist() == [0, 0x11121314]


def test_kernels_run_without_the_gil() -> None:
    """The codec is a function of Python's that returns 1 with the GIL held: so many bytes would have been written."""
    frame = np.frombuffer(b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00", dtype=np.uint8)
    assert runs.is_plain_zstd(frame, 0, len(frame))
    batch = np.zeros(1, dtype=layout.BATCH)
    batch["attributes"], batch["magic"], batch["count"] = 4, 2, 1
    zstd = np.zeros(runs.ZSTD_SLOTS, dtype=np.int64)
    zstd[runs.DECOMPRESS] = ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p).value
    ends, bounds = np.array([len(frame)], dtype=np.int64), np.zeros(1, dtype=np.int64)
    status, out = np.zeros(1, dtype=np.int8), np.zeros(16, dtype=np.uint8)
    arguments = (frame, np.zeros(1, dtype=np.int64), ends, batch, 0, 1, status, 1, zstd, out, 0, 16, 16, bounds)
    assert runs.decompress_run(*arguments) == (1, 0)
    ctypes.pythonapi.PyGILState_Check.restype = ctypes.c_int
    assert ctypes.pythonapi.PyGILState_Check() == 1


def test_help_knows_a_kernel() -> None:
    assert inspect.getdoc(batches.walk_batches) == inspect.getdoc(interpreted("batches").walk_batches)
