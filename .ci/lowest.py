"""Print the lowest allowed version of every dependency, as constraints for pip.

    python .ci/lowest.py pyproject.toml [extra ...]

`numpy>=1.26` becomes `numpy==1.26`. Lists the core dependencies and those of the named extras; extras of extras are
not followed. A dependency without a lower bound is an error: nobody could test it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[.*\])?\s*(?:>=|==)\s*(?P<version>[0-9][^,;\s]*)")


def lowest(requirement: str) -> str:
    found = REQUIREMENT.match(requirement)
    if found is None:
        sys.exit(f"{requirement!r} has no lower bound; write it as name>=version.")
    return f"{found['name']}=={found['version']}"


def main(pyproject: str, *extras: str) -> None:
    project = tomllib.loads(Path(pyproject).read_text())["project"]
    requirements = [*project["dependencies"]]
    for extra in extras:
        requirements += project["optional-dependencies"][extra]
    for requirement in requirements:
        if not requirement.startswith(f"{project['name']}["):
            print(lowest(requirement))


if __name__ == "__main__":
    main(*sys.argv[1:])
