"""The cluster that records go into: what is said where none is."""

from __future__ import annotations

import socket

import pytest

from seglog.errors import IncompleteError
from seglog_rescue.serve.replay.target import TargetCluster


@pytest.mark.slow
def test_servers_that_turn_the_client_away_are_named_with_the_reason() -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else takes the port meanwhile
        taken.bind(("127.0.0.1", 0))
        bootstrap = f"127.0.0.1:{taken.getsockname()[1]}"
        with TargetCluster(bootstrap, {}) as cluster, pytest.raises(IncompleteError, match="no answer") as caught:
            cluster.topics()
    assert str(caught.value).startswith(f"{bootstrap}: no answer: ")
    assert "Connection refused" in str(caught.value)
