"""Whether there is room is known before anything is written, and an error says what makes some."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.storage.room import check_space, freeing, room_for_indexes, salvaging
from tests.support.small_disk import SmallDisk


@pytest.mark.parametrize(("needed", "wanted"), [(0, 0), (19, 19), (20, 21), (1000, 1050)])
def test_a_twentieth_more_than_is_needed_has_to_be_free(tmp_path: Path, needed: int, wanted: int) -> None:
    check_space(SmallDisk(tmp_path, wanted), tmp_path, needed)
    if wanted:
        with pytest.raises(
            RefusedError,
            match=f"{wanted} bytes .* needed, and {wanted - 1} are free; nothing was changed$",
        ):
            check_space(SmallDisk(tmp_path, wanted - 1), tmp_path, needed)


def test_where_there_is_no_room_the_error_says_what_makes_some(tmp_path: Path) -> None:
    logs = tmp_path / "the logs"
    with pytest.raises(RefusedError) as refused:
        check_space(SmallDisk(tmp_path, 0), tmp_path, 100, logs, "Or another way")
    assert str(refused.value).endswith(
        f"; nothing was changed. `seglog retain --free 105 '{logs}'` deletes the oldest closed segments to make"
        " room, and needs none itself. Or another way"
    )


def test_paths_in_advised_commands_are_quoted() -> None:
    assert "`seglog retain --free 7 '/a b'`" in freeing(Path("/a b"), 7)
    assert "`seglog salvage '/a b' --output DIR`" in salvaging(Path("/a b"))


def test_indexes_take_a_sixty_fourth_of_their_log_and_64_kib() -> None:
    assert [room_for_indexes(size) for size in (0, 63, 64, 1 << 30)] == [65536, 65536, 65537, 65536 + (1 << 24)]
