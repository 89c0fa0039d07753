"""`seglog.dataclass` makes the classes that the standard library's decorator makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Hashable
from functools import cached_property
from typing import Any, ClassVar

import pytest

import seglog.dataclass as lazy

FORMS: list[dict[str, bool]] = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "order": True},
    {"eq": False},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "repr": False},
]


def point_of(decorator: Any, form: dict[str, bool]) -> Any:
    """A class with all kinds of fields."""

    class Point:
        """A point."""

        kinds: ClassVar[int] = 2
        x: int
        y: int = 0
        names: list[str] = dataclasses.field(default_factory=list, compare=False)
        hidden: int = dataclasses.field(default=7, repr=False)
        total: int = dataclasses.field(init=False, default=-1)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y)

    Point.__qualname__ = "Point"
    return decorator(**form)(Point)


def told(make: Any) -> Any:
    """What a call says: its result, or its error."""
    try:
        return make()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_class_does_what_the_standard_one_does(form: dict[str, bool]) -> None:
    def answers(decorator: Any) -> list[object]:
        cls = point_of(decorator, form)
        a, b, c = cls(1), cls(1, 0, ["n"]), cls(2, y=3)
        return [
            str(inspect.signature(point_of(decorator, form))),
            [repr(each).replace(hex(id(each)), "") for each in (a, b, c)],
            [a == b, a == c, a != b, a == 1],
            isinstance(a, Hashable),
            told(lambda: hash(a) == hash(b)),
            told(lambda: a < c),
            [told(lambda order=order: getattr(a, order)(c)) for order in ("__lt__", "__le__", "__gt__", "__ge__")],
            told(lambda: setattr(a, "x", 5)),
            told(lambda: delattr(c, "x")),
            told(lambda: setattr(c, "other", 5)) if "slots" not in form else None,
            told(cls),
            told(lambda: cls(1, 2, 3, 4, 5, 6)),
            dataclasses.asdict(cls(4, 5)),
            [each.name for each in dataclasses.fields(cls)],
            dataclasses.replace(b, x=9).total,
            cls.__match_args__,
            cls.__doc__,
            copy.deepcopy(b).names,
            [hasattr(cls, "__dict__") and "__dict__" in dir(b)],
        ]

    assert answers(lazy.dataclass) == answers(dataclasses.dataclass)


@lazy.dataclass(frozen=True, slots=True)
class Base:
    """At module level, so that it can be pickled."""

    x: int

    def __repr__(self) -> str:
        return f"<{self.x}>"


@lazy.dataclass(frozen=True, slots=True)
class Derived(Base):
    y: int = 3


@lazy.dataclass(frozen=True)
class Remembering(Base):
    @cached_property
    def twice(self) -> int:
        return 2 * self.x


def test_objects_of_frozen_classes_are_pickled() -> None:
    for made in (Base(1), Derived(1, 2), Remembering(4)):
        assert pickle.loads(pickle.dumps(made)) == made


def test_classes_derive_from_each_other_in_any_order_of_use() -> None:
    derived = Derived(1)
    assert repr(Base(1)) == "<1>"
    assert (derived.x, derived.y, repr(derived), derived != Base(1)) == (1, 3, "Derived(x=1, y=3)", True)
    assert derived == Derived(1, 3) and len({derived, Derived(1, 3), Derived(2)}) == 2
    assert Remembering(4).twice == 8


def test_own_methods_stay() -> None:
    @lazy.dataclass(frozen=True)
    class Own:
        x: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 5

    assert Own(1) == Own(2) and hash(Own(1)) == 5


def test_a_method_is_written_when_it_is_first_used() -> None:
    cls = point_of(lazy.dataclass, {"frozen": True, "slots": True})
    unwritten = [name for name, method in vars(cls).items() if isinstance(method, lazy._Unwritten)]
    assert set(unwritten) == {"__init__", "__repr__", "__eq__", "__hash__"}
    assert cls(1) == cls(1)
    unwritten = [name for name, method in vars(cls).items() if isinstance(method, lazy._Unwritten)]
    assert set(unwritten) == {"__repr__", "__hash__"}
