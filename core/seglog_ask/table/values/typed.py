"""Columns of decoded keys and values with types: what a kernel decodes, at once; the rest, a value at a time.

`value` has the type of the topic's schemas (`values.column_types`). A value that does not decode is null, and so is a
field that the column cannot hold; then `value_error` says why, and `value_bytes` has the value's bytes. `value_schema`
is the id of the schema that it names.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from seglog.format.columns import Records
from seglog.kernels import value_slots
from seglog_ask.table.values.columns import Part
from seglog_ask.table.values.slotted import (
    UnreadableError,
    array_of_slots,
    array_of_values,
    can_become,
    fitted,
    type_of,
)
from seglog_ask.values import schemas as kinds
from seglog_ask.values.column_types import ColumnType, Written
from seglog_ask.values.forms import Column, Tally, are_control, naming_headers
from seglog_ask.values.frames import (
    PATH_BEFORE,
    PLAIN_FRAME_BYTES,
    ZERO_FRAME,
    named_in_headers,
    other_frames,
    path_bytes,
)
from seglog_ask.values.schemas import Remarks, SchemaId
from seglog_ask.values.shapes import Program, Shape, Struct
from seglog_ask.values.single_object import MARK

# Numbers in the slots of a program at once: 12 bytes each.
_MOST_SLOTS = 1 << 20
_PARTS = 8  # of values that have too many items


class Shown(NamedTuple):
    """The columns of a part: the values, and of each its schema's id, and the reason and bytes if it is not decoded."""

    values: pa.Array
    schemas: pa.Array
    errors: pa.Array
    undecoded: pa.Array


class _Chosen(NamedTuple):
    """Rows of one schema, the id that they name, and how many bytes of a value come before what a program decodes."""

    rows: np.ndarray
    id: SchemaId | None
    written: Written
    program: Program
    skipped: int = 0


class _Group(NamedTuple):
    """Rows of one schema that a kernel decoded: `array` has the values of `rows`."""

    rows: np.ndarray
    array: pa.Array
    id: SchemaId | None


class TypedColumn:
    """Decodes keys or values of one topic to a column of their type. Counts in `tally`. `shape` has the fields of the
    column that are made, by default all: what the others hold is then not looked at.
    """

    def __init__(self, column: ColumnType, tally: Tally, shape: Shape | None = None) -> None:
        self.column, self._tally, self._shape = column, tally, column.shape if shape is None else shape
        self.type = type_of(self._shape)
        self._reader = column.reader()
        self._programs: dict[SchemaId | None, list[tuple[Written, Program]]] = {}

    def of_fields(self, paths: Collection[tuple[str, ...]] | None) -> TypedColumn:
        """Returns the same with only the fields at these paths, in lower case, and what is below them; with all for
        None. Where there is no such field for one of them, all that are beside it are kept.
        """
        return self if paths is None else TypedColumn(self.column, self._tally, _at(self.column.shape, paths))

    def of(self, part: Part) -> Shown:
        """Returns the columns of a part."""
        rows = part.records.rows
        positions, sizes = rows[f"{self.column.side}_position"], rows[f"{self.column.side}_size"]
        left = (sizes >= 0) & ~are_control(part.records)
        groups = []
        for chosen in self._groups(part, left):
            for group in self._decoded(part.records.arena, positions, sizes, chosen):
                left[group.rows] = False
                groups.append(group)
        return self._put_together(part, groups, np.flatnonzero(left))

    # --- by kernels

    def _groups(self, part: Part, left: np.ndarray) -> Iterator[_Chosen]:
        """Yields the rows that a schema has, and its program."""
        records, side = part.records, self.column.side
        unframed = self.column.unframed
        if unframed is not None:
            for decoder in self._programs_of(None):
                bare = self._not_beginning(part, np.flatnonzero(left), MARK)  # others may name the schema
                yield _Chosen(bare, unframed.schema.id, *decoder)
            return
        rows = records.rows
        positions, sizes = rows[f"{side}_position"], rows[f"{side}_size"]
        ids = np.empty(len(rows), dtype=np.int64)
        value_slots.frame_ids(records.arena, positions, sizes, ids)
        ids[~left] = value_slots.NULL_VALUE
        if rows["header_count"].any() and named_in_headers(_bytes_of(records), side):
            ids[rows["header_count"] > 0] = value_slots.NULL_VALUE
        is_one = len(ids) > 0 and bool((ids == ids[0]).all())
        numbers = ids[:1].tolist() if is_one else np.unique(ids).tolist()
        for number in numbers:
            if number > 0:
                yield from self._messages(part, np.flatnonzero(ids == number), number, PLAIN_FRAME_BYTES)
        if value_slots.NO_PLAIN_FRAME not in numbers:
            return
        others = np.flatnonzero(ids == value_slots.NO_PLAIN_FRAME)
        begins_as_long = not self._reader.has_zero()  # else values with the id 0 are left to the reader
        others = others if begins_as_long else self._not_beginning(part, others, ZERO_FRAME)
        for frame, places in other_frames(records.arena, positions, sizes, others, side):
            yield from self._messages(part, places, frame.id, frame.start, has_path=frame.naming is PATH_BEFORE)

    def _messages(
        self, part: Part, chosen: np.ndarray, number: SchemaId, skipped: int, *, has_path: bool = True
    ) -> Iterator[_Chosen]:
        """Yields rows with a frame of `skipped` bytes; of Protobuf those of each message, the path of which follows."""
        for written, program in self._programs_of(number):
            if written.schema.type != kinds.PROTOBUF:
                yield _Chosen(chosen, number, written, program, skipped)
            elif has_path and isinstance(written.path, tuple):
                path = path_bytes(written.path)
                yield _Chosen(
                    self._beginning(part, chosen, skipped, path), number, written, program, skipped + len(path)
                )

    def _beginning(self, part: Part, chosen: np.ndarray, skipped: int, path: bytes) -> np.ndarray:
        """Returns the rows that have a path after their first bytes."""
        rows, side = part.records.rows, self.column.side
        chosen = chosen[rows[f"{side}_size"][chosen] >= skipped + len(path)]
        at = rows[f"{side}_position"][chosen].astype(np.int64) + skipped
        for i, byte in enumerate(path):
            same = part.records.arena[at + i] == byte
            chosen, at = chosen[same], at[same]
        return chosen

    def _not_beginning(self, part: Part, chosen: np.ndarray, head: bytes) -> np.ndarray:
        """Returns the rows that do not begin with some bytes."""
        return np.setdiff1d(chosen, self._beginning(part, chosen, 0, head))

    def _programs_of(self, number: SchemaId | None) -> list[tuple[Written, Program]]:
        """Returns the schemas that an id means, or those of values without a frame, that kernels decode."""
        if number not in self._programs:
            unframed = self.column.unframed
            written = self.column.of_id(number) if number is not None else [unframed] if unframed else []
            programs = ((one, one.described.program) for one in written)
            self._programs[number] = [
                (one, program)
                for one, program in programs
                if program is not None and can_become(program.root, self.column.shape)
            ]
        return self._programs[number]

    def _decoded(
        self, arena: np.ndarray, positions: np.ndarray, sizes: np.ndarray, chosen: _Chosen
    ) -> Iterator[_Group]:
        program = chosen.program
        most = max(1, _MOST_SLOTS // max(program.slots, 1))
        waiting = [chosen.rows[first : first + most] for first in range(0, len(chosen.rows), most)][::-1]
        while waiting:
            rows = waiting.pop()
            slots = program.run(arena, positions[rows], sizes[rows], chosen.skipped)
            if slots is None:  # one value alone is left to its library, which may refuse it
                waiting += np.array_split(rows, min(len(rows), _PARTS))[::-1] if len(rows) > 1 else []
                continue
            while True:
                try:
                    array = array_of_slots(program.root, slots, self._shape)
                    break
                except UnreadableError as error:
                    slots.give_up(error.rows)
            good = slots.statuses == value_slots.DECODED
            if not good.all():
                rows, array = rows[good], array.filter(pa.array(good))
            self._tally.add({(self.column.side, chosen.written.schema.label): len(rows)})
            yield _Group(rows, array, chosen.id)

    # --- a value at a time, and all together

    def _slowly(self, part: Part, rows: np.ndarray) -> tuple[pa.Array, Column]:
        """Returns the values of rows, and what else is known of them."""
        side, records = self.column.side, part.chosen(rows).records
        column = Column.of(records.parts(side))
        self._reader.decode(column, range(len(rows)), naming_headers(records, side))
        values = [None if text is None else json.loads(text) for text in column.texts]
        try:
            array = array_of_values(values, self._shape)
        except UnreadableError as error:
            for i in error.rows.tolist():
                values[i] = fitted(values[i], self._shape, remarks := Remarks())
                column.errors.setdefault(i, remarks.why)
                column.partial.add(i)
            array = array_of_values(values, self._shape)
        self._tally.add_column(side, column, self._reader.label)
        undecoded = (column.data[i] for i in column.errors if i not in column.partial and column.schemas[i] is None)
        self._tally.add_texts(side, (data for data in undecoded if data is not None))
        return array, column

    def _put_together(self, part: Part, groups: list[_Group], rest: np.ndarray) -> Shown:
        count = len(part)
        slow, told = self._slowly(part, rest) if len(rest) else (None, Column.of([]))
        numbers = [None if one.id is None else str(one.id) for one in groups]
        errors = pa.nulls(count, pa.string())
        undecoded = pa.nulls(count, pa.binary())
        if slow is None and len(groups) == 1 and len(groups[0].rows) == count:
            return Shown(groups[0].array, pa.array(numbers, pa.string()).take(_zeros(count)), errors, undecoded)
        places, of_schema = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
        arrays = [group.array for group in groups]
        at = 0
        for i, group in enumerate(groups):
            places[group.rows] = np.arange(at, at + len(group.rows))
            of_schema[group.rows] = i
            at += len(group.rows)
        if slow is not None:
            arrays.append(slow)
            places[rest] = np.arange(at, at + len(rest))
            of_schema[rest] = np.arange(len(numbers), len(numbers) + len(rest))
            numbers += [None if one is None else str(one) for one in told.schemas]
            errors, undecoded = self._failed(part, rest, told.errors, count)
        values = pa.concat_arrays([*arrays, pa.nulls(0, self.type)])
        return Shown(
            values.take(_or_null(places)), pa.array(numbers, pa.string()).take(_or_null(of_schema)), errors, undecoded
        )

    def _failed(self, part: Part, rest: np.ndarray, errors: Mapping[int, str], count: int) -> tuple[pa.Array, pa.Array]:
        """Returns the reasons and the bytes of what is not decoded; `errors` are by place in `rest`."""
        places = np.full(count, -1, dtype=np.int64)
        rows = rest[list(errors)]
        places[rows] = np.arange(len(rows))
        reasons = pa.array(list(errors.values()), pa.string()).take(_or_null(places))
        return reasons, part.chosen(rows).spans(self.column.side).take(_or_null(places))


def _at(shape: Shape, paths: Collection[tuple[str, ...]]) -> Shape:
    """Returns a shape with only what is at some paths, or below them."""
    below: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in filter(None, paths):
        below.setdefault(first, []).append(tuple(rest))
    if not isinstance(shape, Struct) or () in paths or not below.keys() <= {name.lower() for name, _ in shape.fields}:
        return shape
    fields = ((name, child, below.get(name.lower())) for name, child in shape.fields)
    return Struct(tuple((name, _at(child, within)) for name, child, within in fields if within is not None))


def _zeros(count: int) -> pa.Array:
    return pa.array(np.zeros(count, dtype=np.int32))


def _or_null(places: np.ndarray) -> pa.Array:
    return pa.array(places, mask=places < 0)


def _bytes_of(records: Records) -> bytes:
    """Returns the records as they are written, with what lies between them."""
    first, end = records.rows["position"].min(), (records.rows["position"] + records.rows["size"]).max()
    return records.arena[int(first) : int(end)].tobytes()
