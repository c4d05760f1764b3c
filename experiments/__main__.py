"""`python -m experiments [STUDY …] [--full]`: measure what is missing, then write the page of results."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from experiments.data import FOLDER_VARIABLE, PROJECT
from experiments.femnist import STUDIES as FEMNIST
from experiments.league import STUDIES as LEAGUE
from experiments.markdown import Gallery
from experiments.page import write_page
from experiments.real import STUDIES as REAL
from experiments.records import RecordFile
from experiments.running import run_study
from experiments.study import DataError, Report, Study
from experiments.synthetic import STUDIES as SYNTHETIC

STUDIES: tuple[Study, ...] = (*SYNTHETIC, *FEMNIST, *REAL, *LEAGUE)
RESULTS = PROJECT / "experiments" / "results"


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    names = [study.name for study in STUDIES]
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("study", nargs="*", help=f"all, if none is named: {', '.join(names)}")
    parser.add_argument("--full", action="store_true", help="as RESULTS.md shows it; else in minutes")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where tables and images are that are not bundled")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER", help="where records and pictures go")
    parsed = parser.parse_args(arguments)
    unknown = sorted(set(parsed.study) - set(names))
    if unknown:
        parser.error(f"there is no study {', '.join(unknown)}; there are {', '.join(names)}")
    if parsed.data is not None and not parsed.data.is_dir():
        parser.error("--data is not a folder")
    return parsed


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    if options.data is not None:
        os.environ[FOLDER_VARIABLE] = str(options.data.resolve())
    folder = options.out / ("full" if options.full else "quick")
    page = PROJECT / "RESULTS.md" if options.full and options.out == RESULTS else folder / "RESULTS.md"
    reports = {}
    for study in STUDIES:
        wanted = not options.study or study.name in options.study
        reports[study.name] = report_of(study, folder, page, full=options.full, measure=wanted)
        if wanted and isinstance(reports[study.name], str):
            print(f"{study.name}: {reports[study.name]}", file=sys.stderr)
    write_page(page, STUDIES, reports, full=options.full, records=Path(os.path.relpath(folder, page.parent)))
    print(f"Wrote {os.path.relpath(page)}.")


def report_of(study: Study, folder: Path, page: Path, *, full: bool, measure: bool) -> Report | str:
    """The study's report, measured first if wanted; or why there is none."""
    settings, records = study.settings(full), RecordFile(folder / f"{study.name}.jsonl", study.revision)
    if not measure and not all(records.find(cell) for cell in settings):
        return "not run yet."
    try:
        measured = run_study(study, settings, records)
    except DataError as error:
        return str(error)
    return study.report(measured, Gallery(folder, page))


if __name__ == "__main__":
    main()
