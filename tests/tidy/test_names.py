"""Variables are named by the thing, not by grammar: a ratchet on those that are not."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.tidy.sources import SOURCES, name_of, source

pytestmark = pytest.mark.xdist_group("tidy")  # one process parses the sources

# They may only become fewer. A function of a few lines whose docstring says what it returns loses little by `found`;
# a longer one is renamed when it is changed.
BINDINGS = 1060


def test_variables_named_by_grammar_become_fewer_only() -> None:
    counts = Counter({name_of(path): len(source(path).bindings) for path in SOURCES})
    assert sum(counts.values()) <= BINDINGS, counts.most_common(20)
