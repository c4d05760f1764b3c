"""What was measured, as a file: `python -m benchmarks --json FILE` writes it, `benchmarks/performance.py` reads it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_info

from benchmarks.report import Contender, Findings, Limit, Options, Row, Timing
from fedhlcr._support.threads import available_threads

PACKAGES = ("numpy", "scipy", "numba", "pyarrow", "ray", "lightgbm", "statsmodels", "numpyro")
LOAD_LIMIT = 0.3  # before a run; beyond, the machine does something else too


class Entry(NamedTuple):
    """One benchmark's findings, the load of the machine before its run, and how long it took."""

    findings: Findings
    quick: bool
    load: float
    seconds: float


@dataclass
class Results:
    """The findings of all benchmarks by name, and the machine they ran on."""

    machine: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Results:
        content = json.loads(path.read_text())
        return cls(content["machine"], {name: _entry(record) for name, record in content["entries"].items()})

    def write(self, path: Path) -> None:
        entries = {
            name: {**entry._asdict(), "findings": {key: list(value) for key, value in _parts(entry.findings)}}
            for name, entry in self.entries.items()
        }
        unfinished = path.with_name(f"{path.name}.new")
        unfinished.write_text(_compact({"machine": self.machine, "entries": entries}))
        unfinished.replace(path)

    @property
    def rows(self) -> list[tuple[str, Row]]:
        return [(name, row) for name, entry in self.entries.items() for row in entry.findings.rows]

    @property
    def limits(self) -> list[Limit]:
        return [limit for entry in self.entries.values() for limit in entry.findings.limits]

    @property
    def timings(self) -> list[Timing]:
        return [timing for entry in self.entries.values() for timing in entry.findings.timings]

    @property
    def contenders(self) -> list[Contender]:
        return [contender for entry in self.entries.values() for contender in entry.findings.contenders]

    @property
    def quick(self) -> list[str]:
        """Benchmarks that ran with few repetitions, on small tables."""
        return [name for name, entry in self.entries.items() if entry.quick]

    @property
    def busy(self) -> list[str]:
        """Benchmarks before which the machine was not idle."""
        return [name for name, entry in self.entries.items() if entry.load > LOAD_LIMIT]


def describe_machine(options: Options) -> dict[str, Any]:
    """Processor, cores, memory and versions: what the seconds depend on, and nothing that names the machine."""
    blas = {f"{pool['internal_api']} {pool['version']}" for pool in threadpool_info() if pool["user_api"] == "blas"}
    return {
        "processor": _processor(),
        "cores": available_threads(),
        "gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.system(),
        "python": platform.python_version(),
        "blas": ", ".join(sorted(blas)),
        "threads": options.threads,
        "seed": options.seed,
        "versions": dict(_versions()),
    }


def _versions() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
    if shutil.which("Rscript") is not None:
        code = (
            'for (p in c("flexmix", "lme4")) cat(p, tryCatch(format(packageVersion(p)), error = function(e) "-"), "")'
        )
        done = subprocess.run(["Rscript", "-e", code], capture_output=True, text=True, check=False)
        words = done.stdout.split()
        yield from ((name, found) for name, found in zip(words[::2], words[1::2], strict=True) if found != "-")


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _parts(findings: Findings) -> Iterator[tuple[str, Sequence[Any]]]:
    for name, value in findings._asdict().items():
        yield name, [one._asdict() for one in value]


def _entry(record: dict[str, Any]) -> Entry:
    kinds = {"rows": Row, "limits": Limit, "timings": Timing, "contenders": Contender}
    parts: dict[str, Any] = {
        name: [kind(**one) for one in record["findings"].get(name, [])] for name, kind in kinds.items()
    }
    return Entry(Findings(**parts), record["quick"], record["load"], record["seconds"])


def _compact(content: dict[str, Any]) -> str:
    """One line per measurement, so that a new run is a readable difference. Six digits are more than enough."""
    rounded = json.loads(json.dumps(content), parse_float=lambda text: float(f"{float(text):.6g}"))
    lines = ["{", f' "machine": {json.dumps(rounded["machine"])},', ' "entries": {']
    for number, (name, entry) in enumerate(rounded["entries"].items()):
        findings = entry.pop("findings")
        lines.append(f'  {json.dumps(name)}: {json.dumps(entry)[:-1]}, "findings": {{')
        for position, (key, values) in enumerate(findings.items()):
            body = ",\n".join(f"     {json.dumps(value)}" for value in values)
            lines.append(f'   "{key}": [{chr(10) + body if body else ""}]{"," if position < len(findings) - 1 else ""}')
        lines.append("  }}" + ("," if number < len(rounded["entries"]) - 1 else ""))
    return "\n".join([*lines, " }", "}"]) + "\n"
