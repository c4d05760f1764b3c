"""What the records say of the paper's claims."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from experiments.femnist.results import HIDDEN, HLCR, Difference, Results
from experiments.study import FAILS, HOLDS, PARTLY, Finding

# of the seconds that training the network takes; more is not "little"
LITTLE = 0.1


def findings(results: Results) -> tuple[Finding, ...]:
    return beats_the_network(results), no_worse_than_lr(results), little_time(results)


def beats_the_network(results: Results) -> Finding:
    hard, soft = (_over_all_rows(results, HLCR, (rival,)) for rival in ("argmax", "soft"))
    why = (
        f"AUC higher than the argmax's by {range_of(hard)} (means of a row); than that of the probabilities of all "
        f"letters together, a fairer use of the same network, by {range_of(soft)}."
    )
    verdict = _verdict([gain.better for gain in hard])
    return Finding("After the CNN, HLCR has a higher AUC than the CNN alone", verdict, why)


def no_worse_than_lr(results: Results) -> Finding:
    rivals = ("lr", "linear")
    pooled = _over_all_rows(results, HLCR, rivals)
    with_hidden = _over_all_rows(results, [name + HIDDEN for name in HLCR], [name + HIDDEN for name in rivals])
    within = _over_all_rows(results, HLCR, rivals, "auc_by_writer")
    n_fine, n_hidden, n_within = (sum(gain.at_least for gain in gains) for gains in (pooled, with_hidden, within))
    why = (
        f"At least as high within one standard error in {n_fine} of {len(pooled)} comparisons (row × HLCR₄, HLCR₈ × "
        f"logistic, linear regression), by {range_of(pooled)}; with the hidden layer in "
        f"{n_hidden} of {len(with_hidden)}, by {range_of(with_hidden)}. Within single writers' images, where it is no "
        f"help to know how many letters a writer writes, in {n_within} of {len(within)}, by {range_of(within)}."
    )
    verdict = _verdict([gain.at_least for gain in pooled])
    return Finding("After the CNN, HLCR's AUC is at least that of LR", verdict, why)


def little_time(results: Results) -> Finding:
    training = results.every("cnn", "seconds").mean()
    hlcr = [results.every(name, "seconds").mean() for name in HLCR]
    verdict = HOLDS if max(hlcr) <= LITTLE * training else PARTLY if max(hlcr) <= training else FAILS
    why = (
        f"HLCR₄ takes {hlcr[0]:.1f} s and HLCR₈ {hlcr[1]:.1f} s of one core for all writers, fit and prediction; "
        f"training the network took {training:.0f} s."
    )
    return Finding("HLCR takes little time beside the CNN", verdict, why)


def _over_all_rows(results: Results, ours: Sequence[str], rivals: Sequence[str], kind: str = "auc") -> list[Difference]:
    cases = product(results.fractions, ours, rivals)
    return [results.difference(fraction, one, other, kind) for fraction, one, other in cases]


def range_of(gains: Sequence[Difference]) -> str:
    """From the smallest to the largest mean."""
    low, high = (f"{pick(gain.mean for gain in gains):+.3f}".replace("-", "−") for pick in (min, max))
    return f"{low} to {high}"


def _verdict(fine: Sequence[bool]) -> str:
    return HOLDS if all(fine) else PARTLY if any(fine) else FAILS
