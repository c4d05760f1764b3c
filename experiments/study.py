"""A study: many independent cells, each a pure function of its settings, and a report of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.markdown import Gallery

Settings = dict[str, Any]
Figures = dict[str, Any]


class DataError(Exception):
    """A study cannot read its data; the message names the cure."""


class MissingDataError(DataError):
    """Data are missing; the message says where to get them."""


@dataclass(frozen=True)
class Record:
    """What was measured (figures) with which settings; both of plain numbers, texts and lists."""

    settings: Settings
    figures: Figures


@dataclass(frozen=True)
class Finding:
    """A claim in a few words, whether it holds, and the figures that show it."""

    claim: str
    verdict: str
    why: str


HOLDS, PARTLY, FAILS = "holds", "holds partly", "does not hold"


@dataclass(frozen=True)
class Report:
    """A study's part of RESULTS.md: text with its tables and pictures, and what it says of the paper's claims."""

    text: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Study:
    """One figure or table.

    Attributes
    ----------
    name : as on the command line
    title : of its section in RESULTS.md
    settings : in full or quick form → the settings of each cell
    measure : settings of one cell → its figures; importable by name, for it runs in other processes
    report : records, gallery for pictures → the report
    n_jobs : cells at once at most; None is as many as there are cores
    revision : raised when `measure` comes to give other figures for the same settings: old records are then set aside
    """

    name: str
    title: str
    settings: Callable[[bool], Sequence[Settings]]
    measure: Callable[..., Figures]
    report: Callable[[Sequence[Record], Gallery], Report]
    n_jobs: int | None = None
    revision: int = 1
