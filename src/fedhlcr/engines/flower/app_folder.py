"""Write a Flower app: a folder with a pyproject that names our components and lists every option."""

from __future__ import annotations

import json
import re
from pathlib import Path

from fedhlcr._support.version import __version__
from fedhlcr.engines.flower.options import NODE_OPTIONS, RUN_OPTIONS, Scalar
from fedhlcr.exceptions import ArgumentError, OutputExistsError

# Names of folders that `flwr build` accepts.
APP_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")

PYPROJECT = """\
# A Flower app that trains hierarchical latent class regression. `flwr run` sends this folder to the SuperLink and
# from there to the nodes. The code is in fedhlcr, which must be installed in the same release on all machines.
# Change an option here, or for one run: flwr run . NAME --run-config 'rounds=60 experiment="second"'

[project]
name = {name}
version = "1.0.0"
description = "Federated hierarchical latent class regression"
license = "Apache-2.0"
dependencies = ["fedhlcr[flower]=={version}"]

[tool.flwr.app]
publisher = "fedhlcr"

[tool.flwr.app.components]
serverapp = "fedhlcr.engines.flower.server_app:app"
clientapp = "fedhlcr.engines.flower.client_app:app"

[tool.flwr.app.config]
{options}
# ---- Options of a node. Whoever runs the node sets them when starting it; they do not belong in this file:
#      flower-supernode … --node-config 'data-path="visits.csv" target="cost" agent-name="st-mary" features="age,stay"'
{node_keys}
"""


def write_app(folder: Path, options: dict[str, Scalar] | None = None) -> Path:
    """Write a new app folder, with these values instead of the defaults. Returns the path of the pyproject."""
    if not APP_NAME.fullmatch(folder.name):
        raise ArgumentError(
            f"the name of the app's folder must consist of lower-case letters, digits and dashes, because Flower "
            f"builds the app by this name, but it is {folder.name!r}."
        )
    path = folder / "pyproject.toml"
    if path.exists():
        raise OutputExistsError(f"{path} exists; choose another folder, or remove it first.")
    chosen = dict(options or {})
    text = PYPROJECT.format(
        name=_toml(folder.name),
        version=__version__,
        options=_options_text(chosen),
        node_keys="\n".join(f"#      {key:<14}{comment}" for key, comment in NODE_OPTIONS.items()),
    )
    if chosen:
        raise ArgumentError(f"there is no option {', '.join(map(repr, chosen))}.")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _options_text(chosen: dict[str, Scalar]) -> str:
    lines = []
    for section in RUN_OPTIONS:
        lines += ["", f"# ---- {section.title}"]
        if section.table:
            lines.append(f"[tool.flwr.app.config.{section.table}]")
        prefix = f"{section.table}." if section.table else ""
        for option in section.options:
            value = chosen.pop(prefix + option.name, option.default)
            lines.append(f"# {option.comment}\n{option.name} = {_toml(value)}")
    return "\n".join(lines[1:]) + "\n"


def _toml(value: Scalar) -> str:
    """A value in TOML, which writes texts, numbers and booleans as JSON does."""
    return json.dumps(value, ensure_ascii=False)
