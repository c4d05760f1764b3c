"""Records on disk, one line each: what is measured is never measured twice, however often a run is interrupted."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import fedhlcr
from experiments.study import Figures, Record, Settings


class RecordFile:
    """The records of one study, in JSON lines after a line that says what they are.

    Records of another revision of the study are set aside, not mixed in. The file is only added to, unless a line is
    torn or records are to go: runs of other studies, which look at it, are not in the way.

    Parameters
    ----------
    path : of the file
    revision : of the study
    """

    def __init__(self, path: Path, revision: int) -> None:
        self._path = path
        self._header = {"revision": revision, "fedhlcr": fedhlcr.__version__}
        self._known: dict[str, Record] = {}
        if path.exists():
            self._read()

    def find(self, settings: Settings) -> Record | None:
        return self._known.get(_key(settings))

    def add(self, settings: Settings, figures: Figures) -> None:
        record = Record(settings, figures)
        self._known[_key(settings)] = record
        if not self._path.exists():
            self._rewrite([])
        with self._path.open("a") as file:
            file.write(_line(record))

    def tidy(self, wanted: Sequence[Settings]) -> list[Record]:
        """The records of these settings, which the file then holds in this order and no others."""
        records = [self._known[_key(settings)] for settings in wanted]
        if records != list(self._known.values()):
            self._known = {_key(record.settings): record for record in records}
            self._rewrite(records)
        return records

    def _read(self) -> None:
        first, *lines = [_parse(line) for line in self._path.read_text().splitlines()] or [{}]
        revision = first.get("revision", "unknown")
        if revision != self._header["revision"]:
            self._path.rename(self._path.with_suffix(f".revision-{revision}.jsonl"))
            return
        self._header = first
        for line in lines:
            if "figures" in line:
                self._known[_key(line["settings"])] = Record(line["settings"], line["figures"])
        if len(self._known) < len(lines):
            # a line that was being written when the run was killed is measured again
            self._rewrite(list(self._known.values()))

    def _rewrite(self, records: Sequence[Record]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(f".draft-{os.getpid()}")
        draft.write_text(json.dumps(self._header) + "\n" + "".join(map(_line, records)))
        draft.replace(self._path)


def _key(settings: Settings) -> str:
    return json.dumps(settings, sort_keys=True)


def _line(record: Record) -> str:
    return json.dumps({"settings": record.settings, "figures": record.figures}) + "\n"


def _parse(line: str) -> dict:
    try:
        parsed = json.loads(line)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
