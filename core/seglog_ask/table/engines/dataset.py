"""Partitions as one Arrow dataset, into which DuckDB, Polars, DataFusion and pyarrow push columns and filters.

A scan plans which bytes the filter can match (`pruning`), reads them (`arrow`), and makes only the columns that are
wanted. The columns that the filter mentions are made first, and the others only of the records that remain: an engine
that pushed a filter does not apply it again, so it is applied exactly here.

`Table` is a dataset of pyarrow's kind because DuckDB, Polars and DataFusion push into nothing else. It replaces every
public method, because those of pyarrow read the C++ object beneath, not this one. That object is a dataset of one file
that does not exist, so what finds its way there raises FileNotFoundError; a dataset without it would crash the process.
pyarrow's own scanner of a dataset, which Lance makes, asks the table for its options first, and is told what to use.

Scanners and fragments are not of pyarrow's classes: nothing in Python makes one of those that reads what it has not
been given whole.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import acero
from pyarrow.fs import LocalFileSystem

from seglog.errors import ConfigError, SeglogError, UnsupportedError
from seglog_ask.table.engines.pruning import Question, matching_partitions, of_partition, planned_pieces
from seglog_ask.table.plan.partition_log import permitted
from seglog_ask.table.plan.splits import SegmentPiece
from seglog_ask.table.read.records import counted, placed_records
from seglog_ask.table.read.source import LeftOut, Source
from seglog_ask.table.values.columns import ColumnBuilder, Output, Part, batch_of, empty_records

if TYPE_CHECKING:
    import pandas
    import polars

_logger = logging.getLogger("seglog.table.dataset")

_NOWHERE = "the records of seglog's tables are not in files of Arrow; use the table's own methods"
_BENEATH = (
    "pyarrow's Scanner.from_dataset reads files, which seglog's tables are not in: use the table's .scanner(), and give"
    " its .reader() to what takes a dataset apart (Lance: lance.write_dataset(table.reader(), uri))"
)
_MEETS = "meets"


class Table(ds.FileSystemDataset):  # type: ignore[misc]
    """Records of partitions as a table. DuckDB, Polars and pyarrow read it, and push columns and filters into it.

    It is a snapshot of which segments there were; reading takes their records from whatever a broker has made of them
    since. `left_out` tells what `on_corrupt="skip"` has left out so far.
    """

    def __init__(self, source: Source, outputs: Sequence[Output], condition: pc.Expression | None = None) -> None:
        self._source, self._outputs, self._condition = source, tuple(outputs), condition
        self._fields = pa.schema([output.field for output in outputs])
        nowhere = ds.IpcFileFormat().make_fragment(_NOWHERE, LocalFileSystem())
        super().__init__([nowhere], self._fields, ds.IpcFileFormat(), LocalFileSystem())

    def __repr__(self) -> str:
        return f"<Table: {len(self._source.logs)} partitions, columns {', '.join(self._fields.names)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a table is not pickled: open it where it is read")

    @property
    def left_out(self) -> LeftOut:
        """The damage that reads have skipped so far."""
        return self._source.left_out

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self._fields

    @property
    def partition_expression(self) -> pc.Expression:
        """What all rows meet: nothing in particular."""
        return pc.scalar(True)

    # --- reading

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **_tuning: Any,
    ) -> TableScanner:
        """Returns a scan of some columns (names, or expressions by name) and of the rows that meet `filter`.

        Batches have at most `batch_size` rows. pyarrow's options about threads and reading ahead have no effect.
        """
        return TableScanner(self._source, self._outputs, columns, _both(self._condition, filter), batch_size)

    def reader(
        self, columns: Any = None, filter: pc.Expression | None = None, batch_size: int | None = None
    ) -> pa.RecordBatchReader:
        """Returns a reader of the rows of a scan, which reads the log as it is consumed: for whoever takes streams of
        Arrow and no datasets.
        """
        return self.scanner(columns, filter, batch_size).to_reader()

    def to_batches(self, columns: Any = None, filter: pc.Expression | None = None, **tuning: Any) -> Iterator[Any]:
        """Yields the rows of a scan as record batches."""
        return self.scanner(columns, filter, **tuning).to_batches()

    def to_table(self, columns: Any = None, filter: pc.Expression | None = None, **tuning: Any) -> pa.Table:
        """Returns all rows of a scan in memory."""
        return self.scanner(columns, filter, **tuning).to_table()

    def to_pandas(self, columns: Any = None, filter: pc.Expression | None = None) -> pandas.DataFrame:
        """Returns all rows of a scan as a pandas DataFrame."""
        return self.to_table(columns, filter).to_pandas()

    def to_polars(self) -> polars.LazyFrame:
        """Returns a Polars LazyFrame over the table: what it collects reads only the columns and rows that it needs."""
        try:
            import polars
        except ModuleNotFoundError as error:
            raise UnsupportedError("to_polars needs Polars: pip install polars") from error
        from polars.io.plugins import register_io_source

        empty = polars.from_arrow(self.schema.empty_table())
        return register_io_source(partial(_polars_frames, self), schema=empty.schema)

    def count_rows(self, filter: pc.Expression | None = None, **_tuning: Any) -> int:
        """Returns the number of rows; without a filter from the headers of batches."""
        return self.scanner([], filter).count_rows()

    def head(self, num_rows: int, columns: Any = None, filter: pc.Expression | None = None, **tuning: Any) -> pa.Table:
        """Returns the first rows of a scan."""
        return self.scanner(columns, filter, **tuning).head(num_rows)

    def take(self, indices: Any, columns: Any = None, filter: pc.Expression | None = None, **tuning: Any) -> pa.Table:
        """Returns the rows with these numbers, counted in the order of a scan."""
        return self.scanner(columns, filter, **tuning).take(indices)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[TableFragment]:
        """Yields the partitions that may hold rows that meet `filter`, each to be scanned by itself."""
        logs = self._source.logs
        for i in matching_partitions(logs, Question(filter, self._fields)):
            yield TableFragment(replace(self._source, logs=[logs[i]]), self._outputs, self._condition)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    def _scanner_options(self, _options: Any) -> NoReturn:
        raise UnsupportedError(_BENEATH)  # pyarrow's own scanner of a dataset asks for these

    # --- other tables

    def filter(self, expression: pc.Expression) -> Table:
        """Returns the table of the rows that meet `expression`."""
        return Table(self._source, self._outputs, _both(self._condition, expression))

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """Returns the rows sorted, in memory."""
        return ds.dataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: Any, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """Returns a join with another table or dataset, in memory."""
        return self._in_memory().join(_joined(right_dataset), *arguments, **options)

    def join_asof(self, right_dataset: Any, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """Returns an asof join with another table or dataset, in memory."""
        return self._in_memory().join_asof(_joined(right_dataset), *arguments, **options)

    def replace_schema(self, *_schema: Any, **_named: Any) -> NoReturn:
        """Raises UnsupportedError: select or cast columns in a scan."""
        raise UnsupportedError("a table has the columns of its log; select or cast them in a scan")

    @classmethod
    def from_paths(cls, *_arguments: Any, **_options: Any) -> NoReturn:
        """Raises UnsupportedError: `seglog.open_table` opens tables."""
        raise UnsupportedError("seglog.open_table opens tables")

    @property
    def files(self) -> NoReturn:
        """Raises UnsupportedError, as do the other properties of datasets of Arrow's files."""
        raise UnsupportedError(_NOWHERE)

    filesystem = format = partitioning = files

    def _in_memory(self) -> ds.InMemoryDataset:
        return ds.dataset(self.to_table())


def _joined(other: Any) -> Any:
    return other._in_memory() if isinstance(other, Table) else other


def _both(condition: pc.Expression | None, other: pc.Expression | None) -> pc.Expression | None:
    if condition is None or other is None:
        return other if condition is None else condition
    return condition & other


class TableFragment:
    """One partition of a table, with the methods of pyarrow's Fragment. DataFusion scans them beside each other."""

    def __init__(self, source: Source, outputs: Sequence[Output], condition: pc.Expression | None) -> None:
        self._source, self._outputs, self._condition = source, outputs, condition

    def __repr__(self) -> str:
        return f"<TableFragment: {self._source.logs[0].topic_partition}>"

    @property
    def physical_schema(self) -> pa.Schema:
        """The columns and their types: those of the table."""
        return pa.schema([output.field for output in self._outputs])

    @property
    def partition_expression(self) -> pc.Expression:
        """What all rows meet: their topic and partition, if the table has these columns."""
        return of_partition(self._source.logs[0], self.physical_schema.names)

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **_tuning: Any,
    ) -> TableScanner:
        """Returns a scan, as `Table.scanner` does. Raises ConfigError for a schema that the table has not."""
        if schema is not None and not schema.equals(self.physical_schema):
            raise ConfigError("a partition has the schema of its table; select or cast columns in a scan")
        return TableScanner(self._source, self._outputs, columns, _both(self._condition, filter), batch_size)

    def to_batches(self, schema: pa.Schema | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a scan as record batches."""
        return self.scanner(schema, **options).to_batches()

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """Returns all rows of a scan in memory."""
        return self.scanner(schema, **options).to_table()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Returns the first rows of a scan."""
        return self.scanner(**options).head(num_rows)

    def take(self, indices: Any, **options: Any) -> pa.Table:
        """Returns the rows with these numbers, counted in the order of a scan."""
        return self.scanner(**options).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **_tuning: Any) -> int:
        """Returns the number of rows; without a filter from the headers of batches."""
        return self.scanner(columns=[], filter=filter).count_rows()


class TableScanner:
    """One scan of a table, with the methods of pyarrow's Scanner. Each method reads anew."""

    def __init__(
        self,
        source: Source,
        outputs: Sequence[Output],
        columns: Sequence[str] | Mapping[str, pc.Expression] | None,
        condition: pc.Expression | None,
        batch_size: int | None,
    ) -> None:
        self._source, self._batch_size, self._expressions = source, batch_size, None
        known = {output.field.name: output for output in outputs}
        self.dataset_schema = pa.schema([output.field for output in outputs])
        self._question = Question(condition, self.dataset_schema)
        names = list(known) if columns is None else list(columns)
        if isinstance(columns, Mapping):
            self._expressions = dict(columns)
            needed = [Question(each, self.dataset_schema).mentioned for each in columns.values()]
            names = list(dict.fromkeys(name for mentioned in needed for name in mentioned))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ConfigError(f"the table has no column '{unknown[0]}'; its columns are {', '.join(known)}")
        self._outputs = [known[name] for name in names]
        self._asked = [known[name] for name in self._question.mentioned]
        self._tried = pa.schema([output.field for output in self._asked])
        self._schema = pa.schema([output.field for output in self._outputs])

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self._schema if self._expressions is None else self.to_reader().schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns a reader of the batches, which reads the log as it is consumed."""
        if self._expressions is not None:
            scanner = ds.Scanner.from_batches(
                self._batches(), schema=self._schema, columns=self._expressions, use_threads=False
            )
            return scanner.to_reader()
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the batches."""
        return iter(self._batches() if self._expressions is None else self.to_reader())

    def scan_batches(self) -> Iterator[ds.TaggedRecordBatch]:
        """Yields the batches, tagged with no fragment."""
        for batch in self.to_batches():
            yield ds.TaggedRecordBatch(record_batch=batch, fragment=None)

    def to_table(self) -> pa.Table:
        """Returns all rows in memory."""
        return self.to_reader().read_all()

    def count_rows(self) -> int:
        """Returns the number of rows."""
        return sum(batch.num_rows for batch in self._batches())

    def head(self, num_rows: int) -> pa.Table:
        """Returns the first rows."""
        taken: list[pa.RecordBatch] = []
        missing, reader = num_rows, self.to_reader()
        while missing > 0 and (batch := next(reader, None)) is not None:
            taken.append(batch.slice(0, missing))
            missing -= taken[-1].num_rows
        return pa.Table.from_batches(taken, reader.schema)

    def take(self, indices: Any) -> pa.Table:
        """Returns the rows with these numbers, counted in the order of the scan."""
        return self.to_table().take(indices)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    # --- rows

    def _batches(self) -> Iterator[pa.RecordBatch]:
        before, told = self._source.left_out.ranges, self._source.distant.first
        try:
            for batch in self._rows():
                if self._batch_size is None:
                    yield batch
                    continue
                for first in range(0, batch.num_rows, self._batch_size):
                    yield batch.slice(first, self._batch_size)
        except (SeglogError, OSError) as error:
            self._source.failures.append(error)
            raise
        if self._source.left_out.ranges > before:
            _logger.warning("%s", self._source.left_out)
        if self._source.distant.first and not told:
            _logger.warning("%s", self._source.distant)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        source, options = self._source, self._source.options
        by_headers = all(output.is_constant for output in (*self._outputs, *self._asked))
        for piece in pieces_of_source(source, self._question):
            builder = ColumnBuilder(self._outputs, piece.topic, piece.partition, piece.path)
            if by_headers:
                for path, count in counted(source.fs, piece, options, source.left_out.add):
                    for records in empty_records(count):
                        for part in builder.parts(records, path):
                            yield from self._matching(part)
                continue
            for path, records in placed_records(source.fs, piece, options, source.left_out.add):
                for part in builder.parts(records, path):
                    yield from self._matching(part)

    def _matching(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a part that meet the filter. Columns that it does not mention are made of these alone."""
        made: dict[str, pa.Array] = {}
        if self._question.condition is not None:
            tried = batch_of([output.make(part) for output in self._asked], self._tried, len(part))
            rows = _matching_rows(tried, self._question.condition)
            if not len(rows):
                return
            made = {name: tried[name] for name in self._schema.names if name in self._question.mentioned}
            if len(rows) < len(part):
                part = part.chosen(rows)
                taken = pa.array(rows)
                made = {name: array.take(taken) for name, array in made.items()}
        arrays = [
            made[output.field.name] if output.field.name in made else output.make(part) for output in self._outputs
        ]
        self._source.distant.first = self._source.distant.first or part.place.distant or ""
        yield batch_of(arrays, self._schema, len(part))


def _matching_rows(batch: pa.RecordBatch, condition: pc.Expression) -> np.ndarray:
    """Returns the numbers of the rows that meet a condition. RecordBatch.filter would do it in a pool of threads."""
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
    steps = [source, acero.Declaration("project", acero.ProjectNodeOptions([condition], [_MEETS]))]
    meets = acero.Declaration.from_sequence(steps).to_table(use_threads=False)[_MEETS]
    matching: np.ndarray = np.flatnonzero(pc.fill_null(meets, False).to_numpy())
    return matching


def _polars_frames(
    table: Table,
    columns: Sequence[str] | None,
    predicate: polars.Expr | None,
    most_rows: int | None,
    batch_size: int | None,
) -> Iterator[polars.DataFrame]:
    """Yields what Polars asks of a scan.

    Polars' own scan of a dataset takes Arrow's word for its filter, but for Arrow `is_in` of null is false, and not
    null. So the filter in Arrow's form only leaves out what cannot match, and Polars applies its own after that.
    """
    import polars

    condition = None if predicate is None or most_rows is not None else _as_arrow(table.schema, predicate)
    missing = most_rows  # rows are counted before the filter
    for batch in table.to_batches(columns, condition, batch_size=batch_size):
        if missing is not None:
            batch = batch.slice(0, missing)
            missing -= batch.num_rows
        frame = polars.from_arrow(batch)
        yield frame if predicate is None else frame.filter(predicate)
        if missing == 0:
            return


def _as_arrow(schema: pa.Schema, predicate: polars.Expr) -> pc.Expression | None:
    """Returns a filter of Polars as Polars itself gives it to a dataset of Arrow's. None if it has no such form, or if
    a null of `is_in` may be what is asked for.
    """
    import polars

    asked = _Asked(schema)
    polars.scan_pyarrow_dataset(asked).filter(predicate).collect()
    text = str(asked.condition)
    return None if "is_in(" in text and "is_null(" in text else asked.condition


class _Asked:
    """A dataset without rows, which remembers the filter of its scan."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema, self.condition = schema, None

    def to_batches(self, filter: pc.Expression | None = None, **_options: Any) -> Iterator[pa.RecordBatch]:
        self.condition = filter
        return iter(())


@permitted()
def pieces_of_source(source: Source, question: Question) -> Iterator[SegmentPiece]:
    """Yields the bytes that the filter may match, in order. A partition that was listed again stays so."""
    places = {log.topic_partition: i for i, log in enumerate(source.logs)}
    for log, pieces in planned_pieces(list(source.logs), question, source.options):
        source.logs[places[log.topic_partition]] = log
        yield from pieces
