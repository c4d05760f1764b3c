"""Figures, described once: `figure` has the parts of a description, `svg` draws them on pages, `plot` with matplotlib.

Each function `…_panel` or `…_panels` describes one picture of a fitted model as plain data. It knows neither
matplotlib nor HTML.
"""
