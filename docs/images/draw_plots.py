"""Draw the pictures of docs/how-to/plots.md with the page's own code: `python docs/images/draw_plots.py`.

Each picture is the current figure after the code block above it. It takes about a minute.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from PIL import Image

PAGE = Path(__file__).parents[1] / "how-to" / "plots.md"
STEP = re.compile(r"^```python\n(?P<code>.*?)^```$|^!\[[^\]]*\]\((?P<picture>[^)]+)\)$", re.DOTALL | re.MULTILINE)
# The same picture is the same file.
SETTINGS = {"svg.hashsalt": "fedhlcr", "svg.fonttype": "path", "figure.facecolor": "white"}
DOTS_PER_INCH, N_COLOURS = 150, 64
PATH, LONG = re.compile(r'\bd="[^"]*"'), re.compile(r"(\d+\.\d\d)\d+")


def main() -> None:
    names: dict[str, Any] = {}
    with mpl.rc_context(SETTINGS):
        for step in STEP.finditer(PAGE.read_text()):
            if step["picture"] is None:
                plt.close("all")
                exec(compile(step["code"], str(PAGE), "exec"), names)
            else:
                save(PAGE.parent / step["picture"])


def save(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    plt.gcf().savefig(path, metadata=metadata, dpi=DOTS_PER_INCH)
    if path.suffix == ".svg":
        # a hundredth of a point is enough
        path.write_text(PATH.sub(lambda found: LONG.sub(r"\1", found[0]), path.read_text()))
    else:
        Image.open(path).convert("RGB").quantize(N_COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    main()
