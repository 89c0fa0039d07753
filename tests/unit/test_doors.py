"""Every door of the engine leads to a function; names that the engine says for a room are those of the room."""

from __future__ import annotations

import pytest

from seglog.configuration.settings import OTHER_VARIABLES
from seglog.doors import DOORS, door
from seglog_stores.remote.limits import VARIABLES


@pytest.mark.parametrize("name", DOORS)
def test_a_door_leads_out_of_the_engine_to_a_function(name: str) -> None:
    assert callable(door(name)) and not DOORS[name][0].startswith("seglog.")


def test_the_variables_of_object_stores_are_not_taken_for_keys() -> None:
    assert set(VARIABLES) <= OTHER_VARIABLES
