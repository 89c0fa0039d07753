"""seglog: Apache Kafka's log engine outside the broker.

>>> import tempfile, seglog
>>> directory = tempfile.TemporaryDirectory()
>>> with seglog.open_log(directory.name + "/clicks-0", create=True) as log:
...     info = log.append([seglog.Record(b"one", timestamp=1000), seglog.Record(b"two", timestamp=2000)])
...     log.flush()
...     columns = next(log.columns())
...     columns.rows["timestamp"].tolist()
...     for record in log.records(1):
...         print(record.offset, record.value)
[1000, 2000]
1 b'two'
>>> directory.cleanup()

The names in `__init__.pyi` are the public API. They are imported when first used, so that `import seglog` costs next to
nothing. Everything else may change.
"""

from __future__ import annotations

import importlib
from functools import cache

__version__ = "0.1.0"


@cache
def _homes() -> dict[str, str]:
    """Returns the module that defines each public name, as the stub beside this file says, in a zip too."""
    stub = __spec__.loader.get_data(f"{__file__}i").decode()
    imports = (line.split() for line in stub.splitlines() if line.startswith("from "))
    return {name: module for _from, module, _import, name, *_as in imports}


def __getattr__(name: str) -> object:
    if name == "__all__":
        value: object = sorted(_homes())
    elif name.startswith("_") or (home := _homes().get(name)) is None:
        raise AttributeError(f"module 'seglog' has no attribute {name!r}")
    else:
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes()})
