"""What to install where an optional package is missing: the only place that words it.

A command that works depends on where fedhlcr was installed from, which pip notes in `direct_url.json` (PEP 610).
"""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

from fedhlcr.exceptions import MissingDependencyError

PACKAGE = "fedhlcr"


def missing_extra(need: str, extra: str) -> MissingDependencyError:
    """Return the error that something needs an extra, as in `missing_extra("a formula needs formulaic", "formula")`."""
    return MissingDependencyError(f"{need}: {install_command(extra)}.")


def install_command(extra: str) -> str:
    """Return the command that installs what an extra needs into this environment.

    It names the extra in the clone that fedhlcr runs from, or of the index that it came from. A wheel or an archive may
    be gone by now, so the command for these names the packages that the extra stands for.
    """
    try:
        installed = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        return _from_clone(extra) if _runs_in_clone() else _from_index(extra)
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if "dir_info" in origin:
        return _from_clone(extra)
    return _packages(installed, extra) if origin else _from_index(extra)


def _runs_in_clone() -> bool:
    return (Path(__file__).parents[3] / "pyproject.toml").is_file()


def _from_clone(extra: str) -> str:
    return f'pip install ".[{extra}]" in the clone of {PACKAGE}'


def _from_index(extra: str) -> str:
    return f'pip install "{PACKAGE}[{extra}]"'


def _packages(installed: metadata.Distribution, extra: str) -> str:
    return " ".join(["pip install", *(f'"{requirement}"' for requirement in _requirements(installed, extra))])


def _requirements(installed: metadata.Distribution, extra: str) -> list[str]:
    """The requirements of an extra; those that are extras of fedhlcr are replaced by their own."""
    found: list[str] = []
    for line in installed.requires or ():
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        if not re.search(rf"""extra == ['"]{re.escape(extra)}['"]""", marker):
            continue
        inner = re.fullmatch(rf"{PACKAGE}\[(.+)\]", requirement)
        if inner is None:
            found.append(requirement)
        else:
            found += [name for part in inner[1].split(",") for name in _requirements(installed, part.strip())]
    return list(dict.fromkeys(found))
