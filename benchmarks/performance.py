"""`python -m benchmarks.performance [results.json]`: write the measured parts of docs/explanation/performance.md.

Fits the cost model, draws the picture, and replaces what stands between `<!-- measured: name -->` and `<!-- end -->`.
All else on the page is written by hand.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

from benchmarks import picture
from benchmarks.cost_model import CHECK, StageCost, Term, fit_parallel, fit_stage, stages_in
from benchmarks.extrapolation import duration, extrapolate, shape_of_size
from benchmarks.report import Row
from benchmarks.results import Results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "explanation" / "performance.md"
PICTURE = ROOT / "docs" / "images" / "performance.svg"
PART = re.compile(r"(<!-- measured: (?P<name>[\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Models = dict[str, StageCost]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance", description=__doc__.partition("\n")[0])
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS, help="default: benchmarks/results.json")
    results = Results.read(parser.parse_args().results)
    models = models_of(results)
    picture.draw(results.timings, models, PICTURE)
    PAGE.write_text(update(PAGE.read_text(), results))


def models_of(results: Results) -> Models:
    return {stage: fit_stage(stage, results.timings) for stage in stages_in(results.timings)}


def update(page: str, results: Results) -> str:
    """The page with its marked parts replaced; a part nobody knows is an error."""
    models = models_of(results)

    def part(found: re.Match[str]) -> str:
        return f"{found[1]}\n{SECTIONS[found['name']](results, models)}\n\n{found[3]}"

    return PART.sub(part, page)


def headline(results: Results, models: Models) -> str:
    """What a million events cost."""
    shape = shape_of_size(1e6)
    wanted = {
        "default fit": "a default fit takes",
        "predictions": "predictions of all of them",
        "intervals": "intervals",
    }
    costs = [f"{text} {duration(models[stage].seconds(shape))}" for stage, text in wanted.items() if stage in models]
    if not costs:
        return "The cost model has not been measured."
    start = f"**A million events** in memory, ten per entity, with 8 features and 8 clusters, on {_threads(results)}: "
    return _wrapped(f"{start}{', '.join(costs)}. These are figures of the cost model below.")


def machine(results: Results, models: Models) -> str:
    """The machine, its versions, and how noisy it was."""
    del models
    m = results.machine
    versions = ", ".join(f"{name} {number}" for name, number in m["versions"].items())
    text = (
        f"{m['cores']} cores ({m['processor']}), {m['gigabytes']} GB of memory, {m['system']}, Python {m['python']}, "
        f"{versions}, {m['blas']}; {_threads(results)} unless it says otherwise. {_noise(results)}"
    )
    if results.quick:
        text += f" **Small tables and few repetitions** (`--quick`) in: {', '.join(results.quick)}."
    if results.busy:
        text += f" **The machine was busy** with other work before: {', '.join(results.busy)}."
    return _wrapped(text)


def _noise(results: Results) -> str:
    spreads = sorted((t.high - t.low) / t.seconds for t in results.timings if t.high > t.low)
    if not spreads:
        return "Every timing was taken once."
    middle, worst = spreads[len(spreads) // 2], spreads[int(0.9 * len(spreads))]
    return (
        f"The slowest and the fastest repetition of a timing differed by {middle:.0%} of the median or less in half "
        f"of the cases, and by {worst:.0%} or less in nine of ten."
    )


def limits(results: Results, models: Models) -> str:
    del models
    rows = [f"| {limit.what} | {limit.value:,.3g} {limit.unit} |" for limit in results.limits]
    return "\n".join(["| the machine's limits | |", "|---|---|", *rows])


def ratios(results: Results, models: Models) -> str:
    del models
    lines = [f"| {row.what} | {row.measured} | {row.bound} | {_verdict(row)} |" for _, row in results.rows]
    return "\n".join(["| what | measured | bound | |", "|---|---|---|---|", *lines])


def _verdict(row: Row) -> str:
    return "**missed**" if row.verdict == "MISSED" else row.verdict


def cost(results: Results, models: Models) -> str:
    """The formula of each stage, and how well it fits."""
    del results
    lines = ["| stage | seconds | typical error |", "|---|---|---|"]
    for stage, model in models.items():
        terms = " + ".join(f"{_in_words(value)} × {_name(term)}" if term else _in_words(value)
                           for term, value in model.coefficients.items())  # fmt: skip
        lines.append(f"| {stage} | {terms} | {model.error:.0%} |")
    return "\n".join(lines)


def checks(results: Results, models: Models) -> str:
    lines = ["| stage | table | measured | predicted | predicted / measured |", "|---|---|---|---|---|"]
    for t in results.timings:
        if t.varied == CHECK and t.stage in models:
            s, seconds = t.shape, models[t.stage].seconds(t.shape)
            sizes = f"{s['events']:,.0f} events, {s['entities']:,.0f} entities"
            table = f"{sizes}, F = {s['features']:.0f}, K = {s['clusters']:.0f}"
            lines.append(f"| {t.stage} | {table} | {t.seconds:.3g} s | {seconds:.3g} s | {seconds / t.seconds:.2f} |")
    return "\n".join(lines)


def parallel(results: Results, models: Models) -> str:
    """Amdahl's law by stage, of threads and of workers."""
    del models
    lines = ["| stage | | seconds | shortened by more of them |", "|---|---|---|---|"]
    for varied in ("threads", "workers"):
        for stage in dict.fromkeys(t.stage for t in results.timings if t.varied == varied):
            points = [t for t in results.timings if t.stage == stage and t.varied == varied]
            counts, seconds = [t.shape[varied] for t in points], [t.seconds for t in points]
            share = f"{fit_parallel(counts, seconds).share:.0%}" if len(points) > 1 else ""
            names, values = (", ".join(f"{one:.3g}" for one in some) for some in (counts, seconds))
            lines.append(f"| {stage} | {names} {varied} | {values} | {share} |")
    return "\n".join(lines)


def billion(results: Results, models: Models) -> str:
    lines = extrapolate(models, results.limits, results.timings)
    return "\n".join(["| a billion events | | from |", "|---|---|---|", *(f"| {' | '.join(line)} |" for line in lines)])


def rivals(results: Results, models: Models) -> str:
    del models
    lines = ["| table | method | seconds | held-out MSE | |", "|---|---|---|---|---|"]
    ordered = sorted(results.contenders, key=lambda one: (one.table != "S", one.mse is None, one.mse))
    for one in ordered:
        seconds = "" if one.seconds is None else f"{one.seconds:.2f}"
        mse = "" if one.mse is None else f"{one.mse:.3f}"
        lines.append(f"| {one.table} | {one.name} | {seconds} | {mse} | {one.note} |")
    return "\n".join(lines)


SECTIONS: dict[str, Callable[[Results, Models], str]] = {
    "headline": headline,
    "machine": machine,
    "limits": limits,
    "ratios": ratios,
    "cost model": cost,
    "checks": checks,
    "parallel": parallel,
    "a billion events": billion,
    "rivals": rivals,
}


def _threads(results: Results) -> str:
    count = results.machine["threads"]
    return "1 thread" if count == 1 else f"{count} threads"


def _name(term: Term) -> str:
    return " × ".join(term)


def _in_words(seconds: float) -> str:
    """A small time with its unit: "1.3 ns"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= size:
            return f"{_two_digits(seconds / size)} {unit}"
    return f"{_two_digits(seconds / 1e-12)} ps"


def _two_digits(value: float) -> str:
    """Two significant digits without an exponent: "350", "35", "3.5", "0.35"."""
    return f"{float(f'{value:.2g}'):g}"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 110, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
