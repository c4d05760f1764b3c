"""Records that follow from declared fields: each is declared once, and written, read and checked by its declaration.

    @dataclass(frozen=True)
    class Membership:
        present: NDArray[np.bool_] = stored("?", "parties")
        group: IndexArray = stored("i8", "group", possible=Below("parties"))
        keys: NDArray[np.uint8] = stored("u1", "group", KEY_BYTES)
        digest: bytes = stored(bytes, DIGEST_BYTES)

    to_record(member)                         the fields of a record, in the order of their declaration
    from_record(Membership, reader)           the value; CodecError if a field is missing or wrong
    from_record(Membership, reader, sizes)    the same where the sizes of some axes are known already

An axis is a number, None for any size, or a name: wherever a name occurs, the axis has the same size. A rule about
several fields is a method `check_record` of the class. A class that is not a dataclass declares its fields in a table,
by the names of its attributes, and is read by `restore`:

    class Merger:
        STORED: ClassVar = {"idle": Stored(int, possible=not_negative), "over": Stored(bool)}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedhlcr._support.checks import Check, within
from fedhlcr.storage.codec import Record
from fedhlcr.storage.reader import RecordReader

T = TypeVar("T")
Axis = int | str | None
Sizes = Mapping[str, int]
NO_SIZES: Sizes = {}


class Below(NamedTuple):
    """The whole numbers from `least` to below the size of the axis of this name, such as positions on it."""

    axis: str
    least: int = 0


@dataclass(frozen=True)
class Stored:
    """The declaration of a field of a record.

    Attributes
    ----------
    kind : of the value: the type of an array's numbers ("f8"); bool, int, float or str; bytes; list, for texts without
        duplicates; tuple, for whole numbers; an Enum; or a class with declared fields, which become fields of the same
        record
    axes : of an array, of bytes (in which the record has an array), of a tuple and, if its length matters, of a list
    possible : check of the values
    name : in the record, if it is not the attribute's. For a class it is what the names of its fields begin with, by
        default the attribute's name and a dot; "" if they are fields like all others. A part knows the axes of the
        whole; the whole knows those of a part only if the part's fields are fields like all others
    optional : whether the field may be absent; then its value is None
    """

    kind: Any
    axes: tuple[Axis, ...] = ()
    possible: Check | Below | None = None
    name: str | None = None
    optional: bool = False

    @property
    def is_part(self) -> bool:
        return isinstance(self.kind, type) and bool(stored_fields(self.kind))

    def name_in_record(self, attribute: str) -> str:
        if self.name is not None:
            return self.name
        return f"{attribute}." if self.is_part else attribute

    @property
    def check(self) -> Check | None:
        """The check of the values, if it can be made before all axes are known."""
        return None if isinstance(self.possible, Below) else self.possible


def stored(
    kind: Any,
    *axes: Axis,
    possible: Check | Below | None = None,
    name: str | None = None,
    optional: bool = False,
    **options: Any,
) -> Any:
    """A dataclass field that is stored in records, see `Stored`; `options` are those of `dataclasses.field`."""
    return field(metadata={"stored": Stored(kind, axes, possible, name, optional)}, **options)


@cache
def stored_fields(kind: Any) -> dict[str, Stored]:
    """All declarations of a class, by attribute."""
    table: dict[str, Stored] = getattr(kind, "STORED", {})
    declared = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return table | {f.name: f.metadata["stored"] for f in declared if "stored" in f.metadata}


def field_names(kind: type) -> frozenset[str]:
    """The names in a record of all fields of a class, those that may be absent too."""
    names: set[str] = set()
    for attribute, declared in stored_fields(kind).items():
        name = declared.name_in_record(attribute)
        names |= {name + inner for inner in field_names(declared.kind)} if declared.is_part else {name}
    return frozenset(names)


def under(prefix: str, record: Record) -> Record:
    """Return a record whose names all begin with a prefix, as a part of a larger one: `RecordReader.part`."""
    return {prefix + name: value for name, value in record.items()}


def to_record(value: Any) -> Record:
    """Return the declared fields of a value as fields of a record."""
    record: Record = {}
    kind: Any = type(value)
    for attribute, declared in stored_fields(kind).items():
        own = getattr(value, attribute)
        if own is None and declared.optional:
            continue
        name = declared.name_in_record(attribute)
        if declared.is_part:
            record |= under(name, to_record(own))
        else:
            record[name] = _plain(declared, own)
    return record


def _plain(declared: Stored, value: Any) -> Any:
    """A value as records hold it."""
    kind = declared.kind
    if kind is bytes:
        data = np.frombuffer(value, dtype=np.uint8)
        return data.reshape([axis if isinstance(axis, int) else -1 for axis in declared.axes])
    if kind is tuple:
        return np.array(value, dtype=np.int64)
    if isinstance(value, Enum):
        return value.value
    return value if isinstance(kind, str) else kind(value)


def from_record(kind: type[T], reader: RecordReader, sizes: Sizes = NO_SIZES, **given: Any) -> T:
    """Read a value from the fields of `to_record`, and check all of them.

    Parameters
    ----------
    sizes : of axes that are known already
    given : values of the fields that are not stored
    """
    value: T = _value(kind, reader, dict(sizes), given)
    return value


def _value(kind: Any, reader: RecordReader, sizes: dict[str, int], given: Mapping[str, Any]) -> Any:
    value = kind(**given, **read_fields(stored_fields(kind), reader, sizes))
    _check_together(value, reader, sizes)
    return value


def read_fields(
    declarations: Mapping[str, Stored], reader: RecordReader, sizes: dict[str, int] | None = None
) -> dict[str, Any]:
    """Return the values of fields that are declared in a table; `sizes` learns those of their axes."""
    sizes = {} if sizes is None else sizes
    values = {attribute: _read(declared, reader, attribute, sizes) for attribute, declared in declarations.items()}
    for attribute, declared in declarations.items():
        if isinstance(declared.possible, Below) and (value := values[attribute]) is not None:
            is_below = within(declared.possible.least, sizes[declared.possible.axis])
            reader.require_all(np.asarray(value), is_below, declared.name_in_record(attribute))
    return values


def restore(value: Any, reader: RecordReader, sizes: Sizes = NO_SIZES) -> None:
    """Set the declared attributes of a value to those in a record, checked as in `from_record`."""
    known = dict(sizes)
    kind: Any = type(value)
    for attribute, own in read_fields(stored_fields(kind), reader, known).items():
        setattr(value, attribute, own)
    _check_together(value, reader, known)


def _check_together(value: Any, reader: RecordReader, sizes: Sizes) -> None:
    if (check := getattr(value, "check_record", None)) is not None:
        check(reader, sizes)


def _read(declared: Stored, reader: RecordReader, attribute: str, sizes: dict[str, int]) -> Any:
    """Read one field. Axes that were not known before become known."""
    name = declared.name_in_record(attribute)
    kind = declared.kind
    if declared.is_part:
        own = reader.part(name)
        if declared.optional and own.is_empty:
            return None
        # fields among those of the whole share the sizes of its axes
        return _value(kind, own, dict(sizes) if name else sizes, {})
    if declared.optional and name not in reader:
        return None
    if not isinstance(kind, type) or kind in (bytes, tuple):
        return _read_array(declared, reader, name, sizes)
    if kind is list:
        texts = reader.texts(name)
        _know_axes(declared, reader, name, (len(texts),), sizes)
        return texts
    if issubclass(kind, Enum):
        value = reader.value(name, type(next(iter(kind)).value))
        reader.require(value in {member.value for member in kind}, name)
        return kind(value)
    return reader.value(name, kind, declared.check)


def _read_array(declared: Stored, reader: RecordReader, name: str, sizes: dict[str, int]) -> Any:
    dtype = {bytes: "u1", tuple: "i8"}.get(declared.kind, declared.kind)
    axes = [_parsed(axis) if isinstance(axis, str) else (axis, 0) for axis in declared.axes]
    shape = tuple(sizes[of] + more if of in sizes else None if isinstance(of, str) else of for of, more in axes)
    array = reader.array(name, dtype, shape, declared.check)
    _know_axes(declared, reader, name, array.shape, sizes)
    if declared.kind is bytes:
        return array.tobytes()
    return tuple(array.tolist()) if declared.kind is tuple else array


def _know_axes(
    declared: Stored, reader: RecordReader, name: str, shape: tuple[int, ...], sizes: dict[str, int]
) -> None:
    """Note the sizes of the named axes of a field, which must agree with those that are known."""
    for of, size in zip(declared.axes, shape, strict=False):
        if isinstance(of, str):
            axis, more = _parsed(of)
            reader.require(sizes.setdefault(axis, size - more) == size - more >= 0, name)


def _parsed(axis: str) -> tuple[str, int]:
    """The name of an axis, and by how much this one is longer: "agents + 1"."""
    name, _, more = axis.partition("+")
    return name.strip(), int(more or 0)
