"""Beside a broker, what is grave counts when it stays for some seconds."""

from __future__ import annotations

from collections.abc import Sequence

from seglog.verification.second_look import SettledRows, look_until_settled
from tests.support.manual_clock import ManualClock


def looked(*looks: list[str]) -> tuple[SettledRows[str], int]:
    """The verdict over these looks (the last one stays); grave rows are in capitals."""
    seen: list[Sequence[str] | None] = []

    def look(grave: Sequence[str] | None) -> list[str]:
        seen.append(grave)
        return looks[min(len(seen), len(looks)) - 1]

    settled = look_until_settled(look, lambda row: row, str.isupper, ManualClock())
    return settled, len(seen)


def test_without_anything_grave_one_look_is_enough() -> None:
    assert looked(["note"]) == (SettledRows(["note"], []), 1)


def test_findings_that_stay_are_reported_with_the_notes_of_the_first_look() -> None:
    settled, looks = looked(["note", "WRONG"], ["WRONG"])
    assert settled == SettledRows(["note", "WRONG"], []) and looks > 2


def test_what_goes_is_not_reported() -> None:
    assert looked(["WRONG"], []) == (SettledRows([], []), 2)
    assert looked(["A", "B"], ["B"], ["B"])[0] == SettledRows(["B"], [])


def test_what_comes_later_must_stay_too() -> None:
    settled, _ = looked(["A"], ["B"])
    assert settled == SettledRows(["B"], [])


def test_what_is_always_something_else_is_restless() -> None:
    settled, looks = looked(*([letter] for letter in "ABCDEFGHIJKL"))
    assert settled.rows == [] and len(settled.restless) == 1 and looks < 10


def test_later_looks_receive_the_findings_in_question() -> None:
    asked: list[Sequence[str] | None] = []

    def look(grave: Sequence[str] | None) -> list[str]:
        asked.append(grave)
        return ["note", "WRONG"] if len(asked) < 2 else []

    look_until_settled(look, lambda row: row, str.isupper, ManualClock())
    assert asked == [None, ["WRONG"]]


class SlowClock(ManualClock):
    """That of a process which hardly gets to run: three seconds go by between any two moments."""

    def monotonic(self) -> float:
        self.sleep(3)
        return super().monotonic()


def test_time_that_passes_without_another_look_shows_nothing() -> None:
    looks = iter([["WRONG"], [], []])
    settled = look_until_settled(lambda grave: next(looks), lambda row: row, str.isupper, SlowClock())
    assert settled == SettledRows([], [])
