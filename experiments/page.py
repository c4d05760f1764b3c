"""RESULTS.md: all reports on one page, written by the studies themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import fedhlcr
from experiments import markdown
from experiments.study import Report, Study

HEAD = """# Results

This page repeats the figures and tables of "Federated Latent Class Regression for Hierarchical Data" (Yang, Carette,
Jimbo, Maruyama, 2022) with fedhlcr, and compares HLCR with other methods. It was written by

    {command}

with fedhlcr {version}; each section names the command that makes it alone. A measurement is a pure function of its
settings and seed, which are recorded in `{records}`. Running it again gives the same figures, except times.
"""


CLAIMS = """The paper's claims in our words, each tested with its algorithm as published. Rates and methods are compared
seed by seed. *More* and *better* mean by more than two standard errors, unless figures are given."""


def write_page(
    page: Path, studies: Sequence[Study], reports: dict[str, Report | str], *, full: bool, records: Path
) -> None:
    """Reports by name of study, or why there is none."""
    flag = " --full" if full else ""
    parts = [HEAD.format(command=f"python -m experiments{flag}", version=fedhlcr.__version__, records=records)]
    if not full:
        parts.append(
            "*This is the quick form: fewer seeds, settings and rounds. RESULTS.md of the project is the full one.*"
        )
    shown = [reports[study.name] for study in studies]
    findings = [finding for report in shown if isinstance(report, Report) for finding in report.findings]
    if findings:
        rows = [(finding.claim, f"**{finding.verdict}**", finding.why) for finding in findings]
        parts += ["## What the paper says, and what we find", CLAIMS, markdown.table(("claim", "", "we find"), rows)]
    lacking = []
    for study in studies:
        report = reports[study.name]
        if isinstance(report, Report):
            parts += [f"## {study.title}", f"`python -m experiments {study.name}{flag}`", report.text]
        else:
            lacking.append(f"- `{study.name}`, {study.title}: {report}")
    if lacking:
        parts += ["## Not shown here", "\n".join(lacking)]
    page.write_text(markdown.wrap("\n\n".join(part.strip("\n") for part in parts)) + "\n")
