"""Draw the pictures of the gallery and of the page about models: `python docs/images/draw_gallery.py`, in some minutes.

The pages of the gallery draw their own pictures: their code runs here, and what it saves is kept. `MORE` adds pictures
that take more drawing than thinking. The league's figures are read from RESULTS.md. The picture of a report needs
playwright and chromium; without these it stays as it is.
`python docs/images/draw_gallery.py sales league` draws some only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from PIL import Image

from fedhlcr import plot

DOCS = Path(__file__).parents[1]
ROOT, FOLDER = DOCS.parent, DOCS / "images" / "gallery"
PAGES = ("flights", "growth", "sales", "clinic")
FENCED = re.compile(r"^```(?P<language>python|sh)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
# Colours of a picture with lines, dots and letters; more would double the size of the file.
N_COLOURS = 128
LEAGUE = "## The league: real tables, all events and few"
PANELS = {"### With all training events": "all events", "### With at most four training events": "at most four events"}
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#888888"


def main(wanted: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for page in PAGES:
        if not wanted or page in wanted:
            draw_page(page)
    if not wanted or "league" in wanted:
        with mpl.rc_context({"svg.hashsalt": "fedhlcr", "svg.fonttype": "path", "font.size": 9}):
            league().savefig(FOLDER / "league.svg", metadata={"Date": None})


# Pages and their reports


def draw_page(name: str) -> None:
    """Run the code of a page in a folder of its own, and keep the pictures that it saves."""
    text = (DOCS / "gallery" / f"{name}.md").read_text()
    with tempfile.TemporaryDirectory() as folder:
        for number, block in enumerate(FENCED.finditer(text)):
            suffix = "py" if block["language"] == "python" else "sh"
            Path(folder, f"{number:02}.{suffix}").write_text(block["body"])
        page = run_blocks(Path(folder))
        for picture, draw in MORE[name].items():
            draw(page).savefig(Path(folder, picture), dpi=110)
        for picture in sorted(Path(folder).glob("*.png")):
            shrink(picture, FOLDER / picture.name)
        if name == "sales":
            photograph_report(Path(folder))


def run_blocks(folder: Path) -> SimpleNamespace:
    """Python blocks share their names, which are returned. Shell blocks run between them, in the same folder."""
    names: dict[str, object] = {}
    home = Path.cwd()
    os.chdir(folder)
    try:
        for block in sorted(folder.glob("[0-9][0-9].*")):
            if block.suffix == ".py":
                exec(compile(block.read_text(), block.name, "exec"), names)
            else:
                subprocess.run(["bash", "-euo", "pipefail", str(block)], env=environment(), check=True)
    finally:
        os.chdir(home)
        plt.close("all")
    return SimpleNamespace(**names)


def environment() -> dict[str, str]:
    """That of this process, with the commands beside this Python and the code of this checkout first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}


def shrink(source: Path, target: Path, n_colours: int = N_COLOURS) -> None:
    """Write a picture with few colours, which makes it a third of the size."""
    picture = Image.open(source).convert("RGB")
    picture.quantize(n_colours, dither=Image.Dither.NONE).save(target, optimize=True)


def photograph_report(folder: Path) -> None:
    """The top of the report about sales, for the first page and the gallery."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("no browser here, so the picture of the report stays as it is")
        return
    arguments = ["fedhlcr", "report", "sales.fedhlcr", "test.parquet", "--out", "report.html"]
    subprocess.run(arguments, cwd=folder, env=environment(), check=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1180, "height": 940}, color_scheme="light")
        page.goto((folder / "report.html").as_uri())
        page.wait_for_timeout(500)
        page.screenshot(path=folder / "report.png")
        browser.close()
    shrink(folder / "report.png", FOLDER / "report.png")


# Pictures from what a page has computed


def sales_gain(page: SimpleNamespace) -> plt.Figure:
    figure, ax = plt.subplots(figsize=(8, 2.8), layout="constrained")
    order = np.argsort(page.gain(page.products["elasticity"]).to_numpy())
    low_end = page.cautious.to_numpy()[order]
    high_end = page.gain(page.products["elasticity_lower"]).to_numpy()[order]
    colours = np.where(page.cut.to_numpy()[order], BLUE, "#bbbbbb")
    ax.vlines(range(len(order)), low_end, high_end, color=colours, linewidth=1)
    ax.plot(page.gain(page.own).to_numpy()[order], ".", color="black", markersize=2.5, label="truth")
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set(xlabel="300 products, ordered by expected gain", ylabel="gain per week", xlim=(-2, 301), xticks=[])
    ax.legend(frameon=False, loc="upper left")
    return figure


def flights_map(page: SimpleNamespace) -> plt.Figure:
    place = [page.airports[route[-3:]] for route in page.routes["entity"]]
    beside = np.random.default_rng(0).normal(0, 0.35, (2, len(place)))  # routes to one airport lie around it
    east = np.array([airport.longitude for airport in place]) + beside[0]
    north = np.array([airport.latitude for airport in place]) + beside[1]
    figure, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
    dots = ax.scatter(east, north, c=page.routes["extra"], s=14, cmap="viridis")
    ax.plot(-73.9, 40.7, "*", color="black", markersize=12)
    names = (("New York", -72.8, 39.2), ("San Diego", -119, 30.6), ("Houston", -98, 27.2), ("Puerto Rico", -69, 20))
    for name, x, y in names:
        ax.text(x, y, name, fontsize=9)
    ax.set(xlim=(-126, -61), ylim=(16, 49), xticks=[], yticks=[], aspect=1.25)
    ax.spines[:].set_visible(False)
    figure.colorbar(dots, ax=ax, label="minutes more in January than in July")
    return figure


def growth_children(page: SimpleNamespace) -> plt.Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", width_ratios=(1.5, 1))
    order = np.argsort(page.children["rate"].to_numpy())
    rate, spread = (page.children[name].to_numpy()[order] for name in ("rate", "age_std"))
    colours = np.where(page.children["slow"].to_numpy()[order] > 0.5, ORANGE, "#cccccc")
    left.vlines(range(300), rate - 1.645 * spread, rate + 1.645 * spread, color=colours, linewidth=1)
    left.plot(page.true_rate.to_numpy()[order], ".", color="black", markersize=2.5, label="truth")
    left.axhline(-0.8, color="black", linewidth=0.8, linestyle=":")
    left.set(xlabel="300 children, ordered by rate", ylabel="cm a year more than others", xticks=[], xlim=(-2, 301))
    left.legend(frameon=False, loc="upper left")
    first, study = page.chosen.iloc[0], page.study
    drawn = {"X": study, "y": study["height"], "ax": right, "target": "height in cm"}
    plot.entity(page.model, first["clinic"], first["child"], "age", **drawn)
    return figure


def clinic_hospitals(page: SimpleNamespace) -> plt.Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    gain = page.gain
    left.errorbar(page.sizes, gain["mean"], yerr=gain["sem"], fmt="o", color=BLUE, ecolor="#bbbbbb", markersize=4)
    left.axhline(0, color="black", linewidth=0.8)
    left.set(xlabel="patients of the hospital", ylabel="gain in log loss over being alone")
    plot.reliability(page.federated, page.test, page.test["attack"], ax=right)
    return figure


MORE: dict[str, dict[str, Callable[[SimpleNamespace], plt.Figure]]] = {
    "flights": {"flights-map.png": flights_map},
    "growth": {"growth-children.png": growth_children},
    "sales": {"sales-gain.png": sales_gain},
    "clinic": {"clinic-hospitals.png": clinic_hospitals},
}

# The league


def league() -> plt.Figure:
    """R² of the default and of curves minus that of lme4, by table, from RESULTS.md."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.3), layout="constrained", sharex=True)
    text = (ROOT / "RESULTS.md").read_text().partition(LEAGUE)[2]
    for ax, (heading, title) in zip(axes, PANELS.items(), strict=True):
        draw_league(ax, read_table(text.partition(heading)[2]))
        ax.set_title(title, fontsize=9)
    axes[1].plot([], [], "o", color=BLUE, markersize=4, label="HLCRRegressor(), ± 2 s.e.")
    axes[1].plot([], [], "D", color=ORANGE, markerfacecolor="none", markersize=4, label='curves="auto"')
    axes[1].legend(frameon=False, fontsize=8, loc="upper right")
    figure.supxlabel("R² minus that of lme4: to the right of 0, fedhlcr predicts better", fontsize=9)
    return figure


def read_table(text: str) -> list[dict[str, str]]:
    """The rows of the first table of a text, without the row of means."""
    lines = [line for line in text.partition("\n\n###")[0].splitlines() if line.startswith("|")]
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(header, row, strict=True)) for row in rows if not row[0].startswith("**")]


def draw_league(ax: Axes, rows: list[dict[str, str]]) -> None:
    places = range(len(rows), 0, -1)
    ax.axvline(0, color="black", linewidth=0.8)
    for place, row in zip(places, rows, strict=True):
        error = 2 * float(row["± s.e."])
        ax.errorbar(float(row["default"]), place, xerr=error, fmt="o", color=BLUE, markersize=4, linewidth=1.5)
        ax.plot(float(row["curves"]), place - 0.25, "D", color=ORANGE, markerfacecolor="none", markersize=4)
    ax.set_yticks(list(places), [f"{row['table']}  ({float(row['lme4']):.2f})" for row in rows])
    ax.grid(axis="x", color="#e6e6e6", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_ylabel("table (R² of lme4)", color=GREY)


if __name__ == "__main__":
    main(sys.argv[1:])
