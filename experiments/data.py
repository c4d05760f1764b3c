"""Where data are that are not bundled."""

from __future__ import annotations

import os
from pathlib import Path

from experiments.study import MissingDataError

FOLDER_VARIABLE = "FEDHLCR_DATA"
PROJECT = Path(__file__).resolve().parents[1]
USUAL_FOLDERS = (PROJECT / "data", PROJECT.parent / "shared" / "data")


def find_data(name: str) -> Path:
    """The file or folder of this name in the folder of `--data`, or else in `data`."""
    given = os.environ.get(FOLDER_VARIABLE)
    folders = (Path(given),) if given else USUAL_FOLDERS
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    raise MissingDataError(f"{name} is not here; put it into the folder `data`, or pass its folder with --data.")
