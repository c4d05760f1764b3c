"""Records on disk, one line each: what is measured is never measured twice, however often a run is interrupted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import fedhlcr
from experiments.study import Figures, Record, Settings


class RecordFile:
    """The records of one study, in JSON lines after a line that names the version they were measured with.

    Records of another version are set aside, not mixed in.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header = {"fedhlcr": fedhlcr.__version__}
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
        self._rewrite(records)
        return records

    def _read(self) -> None:
        first, *lines = self._path.read_text().splitlines(keepends=True) or [""]
        version = _parse(first).get("fedhlcr", "unknown")
        if version != self._header["fedhlcr"]:
            self._path.rename(self._path.with_suffix(f".{version}.jsonl"))
            return
        # a line that was being written when the run was killed is measured again
        parsed = [_parse(line) for line in lines]
        for record in (Record(line["settings"], line["figures"]) for line in parsed if "figures" in line):
            self._known[_key(record.settings)] = record
        self._rewrite(list(self._known.values()))

    def _rewrite(self, records: Sequence[Record]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".draft")
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
