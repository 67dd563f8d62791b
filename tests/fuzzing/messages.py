"""Changes to a protocol buffer message, by what its fields are."""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

WHOLE = (0, 1, -1, 2, 3, 7, 8, 16, 17, 22, 65, 255, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63))
TEXTS = ("", "x", "y", "w", "Relu", "Add", "Reshape", "Conv", "Gather", "Concat", "axis", "ai.onnx.ml", "a b", "α", "../x", "x" * 300, "N")


def broken(message: Message, random: Random) -> None:
    """Change one field of a message or of one inside of it."""
    places = list(_places(message))
    owner, field = random.choice(places)
    if field.is_repeated:
        _repeated(owner, field, random)
    elif random.random() < 0.2:
        owner.ClearField(field.name)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        broken_or_made(getattr(owner, field.name), random)
    else:
        _set(owner, field, random)


def broken_or_made(message: Message, random: Random) -> None:
    """Change a field of a message that may be empty."""
    field = random.choice(message.DESCRIPTOR.fields)
    if field.is_repeated:
        _repeated(message, field, random)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(message, field.name).SetInParent()
    else:
        _set(message, field, random)


def _places(message: Message) -> Any:
    """Yield every field of the message and of those inside that are there, those that could be there now and then."""
    for field in message.DESCRIPTOR.fields:
        present = len(getattr(message, field.name)) > 0 if field.is_repeated else message.HasField(field.name)
        if present or field.name in ("name", "op_type", "domain", "i", "ints", "type", "dims", "data_location", "attribute"):
            yield message, field
        if present and field.type == FieldDescriptor.TYPE_MESSAGE:
            inner = getattr(message, field.name)
            for each in inner if field.is_repeated else (inner,):
                yield from _places(each)


def _set(owner: Message, field: FieldDescriptor, random: Random) -> None:
    value = _value(owner, field, random)
    try:
        setattr(owner, field.name, value)
    except (ValueError, TypeError):
        owner.ClearField(field.name)


def _repeated(owner: Message, field: FieldDescriptor, random: Random) -> None:
    items = getattr(owner, field.name)
    k = random.randrange(len(items)) if len(items) else 0
    match random.randrange(4):
        case 0 if len(items):
            del items[k]
        case 1 if len(items):
            items.append(items[k]) if field.type != FieldDescriptor.TYPE_MESSAGE else items.add().CopyFrom(items[k])
        case 2 if len(items) > 1:
            order = list(items)
            random.shuffle(order)
            del items[:]
            items.extend(order)
        case _ if field.type == FieldDescriptor.TYPE_MESSAGE:
            broken_or_made(items[k] if len(items) else items.add(), random)
        case _:
            value = _value(owner, field, random)
            try:
                if len(items):
                    items[k] = value
                else:
                    items.append(value)
            except (ValueError, TypeError):
                return


def _value(owner: Message, field: FieldDescriptor, random: Random) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return random.choice(TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return random.choice((b"", random.randbytes(3), getattr(owner, field.name)[:-1] if not field.is_repeated else b"x"))
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return random.choice((0.0, -1.0, 1e38, float("nan"), float("inf"), 0.5))
    return random.choice(WHOLE)
