"""Print the requirement of one development tool, as pyproject.toml pins it.

python .ci/pinned.py pyproject.toml ruff
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

pyproject, tool = sys.argv[1:]
extras = tomllib.loads(Path(pyproject).read_text())["project"]["optional-dependencies"]
print(next(requirement for requirement in extras["lint"] if requirement.startswith(f"{tool}==")))
