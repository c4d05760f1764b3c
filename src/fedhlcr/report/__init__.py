"""One HTML file that a person would rather read than the numbers.

Takes jinja2, which nothing else of the package needs.
"""

from fedhlcr.analysis.evaluation import HeldOut
from fedhlcr.report.page import render_report

__all__ = ["HeldOut", "render_report"]
