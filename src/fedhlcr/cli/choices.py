"""What options let a user choose from."""

from __future__ import annotations

from enum import StrEnum


class Missing(StrEnum):
    """What to do about missing values."""

    refuse = "refuse"
    drop = "drop"
    impute = "impute"


class Effects(StrEnum):
    """How entities of one cluster may differ."""

    auto = "auto"
    none = "none"
    entity = "entity"
    entity_and_agent = "entity+agent"


class FamilyChoice(StrEnum):
    """What the target is."""

    auto = "auto"
    real = "real"
    binary = "binary"
    counts = "count"


class Aggregation(StrEnum):
    """What the server of a federation sees."""

    plain = "plain"
    secure = "secure"


class Precision(StrEnum):
    """How entities are scored first."""

    double = "double"
    single = "single"


class Noise(StrEnum):
    """Who has noise of its own."""

    entity = "entity"
    common = "common"
    student = "student"
