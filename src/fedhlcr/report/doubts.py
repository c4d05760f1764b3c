"""Checks of a model: what a reader should doubt, and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedhlcr._support.wording import CLUSTER, ROUND, Noun, capital, listed, number, percent
from fedhlcr.analysis.evaluation import LEVEL, Evaluation, coverage_gap
from fedhlcr.analysis.facts import SURE
from fedhlcr.analysis.scores import BIN_LEVEL, SHOWN, calibration_bins
from fedhlcr.analysis.verdict import rival_name
from fedhlcr.analysis.words import cluster_numbers, few_events
from fedhlcr.exceptions import name_in_python
from fedhlcr.federation.convergence import ended_at_limit, ended_stable
from fedhlcr.federation.run import INTERRUPTED
from fedhlcr.posterior import alignment
from fedhlcr.posterior.diagnostics import R_HAT_LIMIT, disagreement
from fedhlcr.report.findings import Findings

ANSWER = Noun("answer", "answers")
# A cluster of fewer entities is small.
FEW = 5
# Two clusters are alike if their predictions differ by less than this share of the noise, on average over all events.
ALIKE = 0.25
# Most pairs of alike clusters to name.
PAIRS_NAMED = 5
# An entity scatters widely if its events scatter by this factor more than the noise, and there are enough of them.
WIDE = 2.0
ENOUGH_EVENTS = 5
# From these shares on a doubt is serious: it concerns the whole model.
MANY_UNCERTAIN = 0.2
MANY_WIDE = 0.05
# So many groups of events may miss their observed share by chance.
MISSED_BINS = 3
# At this share of the target's standard deviation, noise is half of the variance.
MUCH_NOISE = 0.7


class Doubt(NamedTuple):
    """One doubt. A serious one concerns everything in the report."""

    headline: str
    text: str
    serious: bool = False
    is_told: bool = False  # whether the top of the page says it anyway


def find_doubts(findings: Findings, scores: Evaluation | None) -> tuple[Doubt, ...]:
    """All doubts, the serious ones first."""
    found = [
        *_interruption(findings),
        *_agreement(findings),
        *_limits(findings),
        *_held_out(findings, scores),
        *_simpler(findings, scores),
        *_memberships(findings),
        *_alike(findings),
        *_noise(findings),
        *_federation(findings),
    ]
    return tuple(sorted(found, key=lambda doubt: not doubt.serious))


def _interruption(findings: Findings) -> Iterator[Doubt]:
    model = findings.model
    if (run := findings.run) is not None:
        if run.stop_reason == INTERRUPTED:
            text = "The model uses the draws kept so far. Fit it again, or resume from its checkpoint."
            yield Doubt(f"The run was interrupted after {ROUND.count(run.n_rounds)}", text, serious=True)
        elif ended_at_limit(run.stop_reason):
            text = "Its log joint was not stable yet. Allow more rounds with `rounds`, or leave that parameter out."
            yield Doubt(f"The run ended at its limit of {ROUND.count(run.n_rounds)}", text)
        return
    # the model of a federation on Flower does not record how the run went
    trace = getattr(model, "trace_", None)
    if trace is None:
        return
    planned = model.n_chains * model.n_sweeps
    done = len(trace)
    if done < planned:
        text = "The model uses the draws kept so far. Fit it again to get all of them."
        yield Doubt(f"The fit was interrupted after {done:,} of {planned:,} sweeps", text, serious=True)


def _agreement(findings: Findings) -> Iterator[Doubt]:
    model = findings.model
    run = findings.run
    figures = disagreement(model.diagnostics_)
    if findings.n_chains > 1:
        if figures:
            longer = f"Run longer chains (`n_sweeps={2 * model.n_sweeps}`), or fix `n_clusters`." if not run else ""
            text = (
                f"R-hat is 1 if chains agree. It is above {R_HAT_LIMIT} for: {figures}. The chains found different "
                f"clusters. The clusters shown are a compromise; predictions average over all chains. {longer}"
            )
            yield Doubt(f"The {findings.n_chains} chains disagree", text, serious=True)
        return
    if figures:
        headline = "The fit had not settled, so its figures may still change"
        longer = "Let it run longer."
        if run is not None and ended_stable(run.stop_reason):
            # the run ended because the log joint was stable; other quantities may not have been
            headline = "Not everything had settled when the run ended"
            longer = "A run ends when its log joint is stable. Let it run longer with a larger `patience`."
        text = f"{longer} (R-hat compares the two halves of the draws. It is above {R_HAT_LIMIT} for: {figures}.)"
        yield Doubt(headline, text, serious="predictions" in figures)
    if hasattr(model, "n_chains"):
        text = "One chain may have found one of several solutions. Fit with `n_chains=4` to see if chains disagree."
    else:
        text = "A federation runs one chain. Run it again with another `random_state`, and compare the clusters."
    yield Doubt("Only one chain was run, so it is unknown if another one would find the same clusters", text)


def _limits(findings: Findings) -> Iterator[Doubt]:
    """Too few events, or too few clusters to choose from."""
    model = findings.model
    if scarce := few_events(findings):
        text = "Intervals are too narrow. Fit more events, or fewer features."
        yield Doubt(f"Only {scarce} were fitted", text, serious=True)
    if findings.is_near_limit:
        text = f"There may be more. Try `max_clusters={2 * model.max_clusters}`."
        headline = f"The number of clusters, {model.n_clusters_}, is close to the limit of {model.max_clusters}"
        yield Doubt(headline, text, serious=True)


def _held_out(findings: Findings, scores: Evaluation | None) -> Iterator[Doubt]:
    if scores is None:
        return
    if scores.was_fitted:
        text = "Every method looks better on such events. Hold out events before the fit, and evaluate on those."
        yield Doubt("It was evaluated on the events it was fitted with", text, serious=True)
    yield from _bins(scores) if scores.family.has_classes else _coverage(scores.model["coverage"], scores.n_events)
    # on fitted events the most flexible method always has the smallest error
    if scores.was_fitted:
        return
    compared = scores.errors or scores.densities
    better = [] if compared is None else [d.rival for d in compared.differences if d.verdict == "worse"]
    if better:
        names = listed([rival_name(name, findings.names.entity.one) for name in better])
        headline = f"On held-out events {names} {'predicts' if len(better) == 1 else 'predict'} better than HLCR"
        yield Doubt(headline, _use_of_clusters(findings), is_told=True)
    worst = SHOWN[scores.family.name].worst_first
    if scores.constant is not None and scores.constant[worst] < scores.model[worst]:
        text = "Do not use its predictions for such events. Check that they come from where the fitted ones do."
        yield Doubt("On held-out events the same prediction for all is better", text, serious=True)


def _bins(scores: Evaluation) -> Iterator[Doubt]:
    """Probabilities that are not what was observed."""
    bins = calibration_bins(scores.observed, scores.predicted)
    off = [part for part in bins if not part.lower <= part.predicted <= part.upper]
    # of ten intervals of 90 %, one misses by chance; two or three may
    if len(off) > MISSED_BINS:
        text = (
            f"In {len(off)} of {len(bins)} groups of events with similar predictions, the predicted probability is "
            f"outside the {percent(BIN_LEVEL)} interval of the observed share. See the diagram."
        )
        yield Doubt("Some probabilities are not what was observed", text, serious=True)


def _coverage(coverage: float, n_events: int) -> Iterator[Doubt]:
    if abs(coverage - LEVEL) > coverage_gap(LEVEL, n_events):
        narrow = coverage < LEVEL
        text = (
            f"{percent(coverage)} of the events it was evaluated on lie in their {percent(LEVEL)} intervals. "
            f"{'Do not rely on them.' if narrow else 'They are on the safe side.'}"
        )
        yield Doubt(f"Intervals are too {'narrow' if narrow else 'wide'}", text, serious=narrow)


def _simpler(findings: Findings, scores: Evaluation | None) -> Iterator[Doubt]:
    comparison = findings.model.comparison_
    if comparison is None or comparison.verdict != "worse":
        return
    # held-out events decide, by the same criterion: the log density
    held_out = None if scores is None or scores.was_fitted else scores.densities
    if held_out is not None and held_out.verdict != "worse":
        text = f"{comparison.told} On held-out events no simpler model has a clearly higher log density than HLCR."
        yield Doubt("Held-out events do not confirm that a simpler model predicts better", text)
        return
    cure = "The top of the page says what to use."
    if held_out is None:
        advice = comparison.advice(
            fit_intercept=findings.model.posterior_.layout.fit_intercept, has_one_cluster=len(findings.clusters) == 1
        )
        named = advice.worded(lambda name, value: f"`{name_in_python(name, value)}`")
        cure = f"{named} {advice.python_only}"
    text = f"{comparison.told} {_use_of_clusters(findings)} {cure}"
    yield Doubt("A simpler model predicts better", text, serious=True, is_told=True)


def _use_of_clusters(findings: Findings) -> str:
    """What a model is good for if another predicts better."""
    if len(findings.clusters) == 1:
        return "There is only one cluster, so clusters are no reason to prefer HLCR."
    return f"The clusters still show which {findings.names.entity.many} are alike, but they do not predict best."


def _memberships(findings: Findings) -> Iterator[Doubt]:
    """Uncertain labels, and clusters of few entities."""
    certainty = findings.certainty
    nouns = findings.names.entity
    if not certainty.n_all or certainty.n_clusters == 1:
        return
    if n_uncertain := certainty.n_all - certainty.n_sure:
        share = n_uncertain / certainty.n_all
        text = (
            f"The probability of the cluster shown is below {percent(SURE)} for {percent(share)} of all {nouns.many}. "
            "They have few events, or several clusters fit them equally well. Predictions average over all clusters."
        )
        headline = f"The cluster of {nouns.count(n_uncertain)} is uncertain"
        yield Doubt(headline, text, serious=share > MANY_UNCERTAIN, is_told=True)
    few = tuple(c.number for c in findings.clusters if c.share * certainty.n_all < FEW)
    if few:
        have = "has" if len(few) == 1 else "have"
        text = f"{capital(cluster_numbers(few))}. Small clusters may be chance findings or real outliers."
        yield Doubt(f"{CLUSTER.count(len(few))} {have} fewer than {FEW} {nouns.many} on average", text)


def _alike(findings: Findings) -> Iterator[Doubt]:
    model = findings.model
    if not findings.holds_entities or len(findings.clusters) < 2:
        return
    posterior = model.posterior_
    coef = alignment.mean_coef(posterior.draws, model.alignment_)
    pooled = posterior.layout.normal_equations(posterior.memory.entities.pooled_gram)
    first, second = np.triu_indices(len(coef), 1)
    apart = coef[first] - coef[second]
    squares = np.einsum("pc,cd,pd->p", apart, pooled.xx / pooled.n, apart)
    distance = np.sqrt(np.maximum(squares, 0.0)) * posterior.standardization.scale[-1]
    link = findings.link
    limit = ALIKE * findings.noise
    near = f"Their predictions differ by less than {percent(ALIKE)} of the noise."
    if link.family.has_link:
        # log odds and logarithms of rates are compared with 1
        limit = ALIKE
        near = f"Their {link.linear} differ{link.verb('', 's')} by less than {ALIKE:g}."
    pairs = np.flatnonzero(distance < limit)
    if len(pairs):
        closest = pairs[np.argsort(distance[pairs], kind="stable")]
        named = listed([f"{first[p]} with {second[p]}" for p in closest[:PAIRS_NAMED]])
        more = f" and {len(pairs) - PAIRS_NAMED} more pairs" if len(pairs) > PAIRS_NAMED else ""
        text = f"Compare {named}{more}. {near} They may be one cluster that was split."
        yield Doubt("Some clusters are nearly alike", text)


def _noise(findings: Findings) -> Iterator[Doubt]:
    """Entities that scatter more than the model assumes, and targets that are mostly noise."""
    entities = findings.entities
    nouns = findings.names.entity
    # a list of the least certain entities only says nothing about all of them
    if entities is not None and entities.scatter is not None and len(entities) == entities.n_all:
        assert entities.noise is not None
        wide = (entities.scatter > WIDE * entities.noise) & (entities.n_events >= ENOUGH_EVENTS)
        if n := int(wide.sum()):
            have, whose = ("has", "its") if n == 1 else ("have", "their")
            text = (
                f"The scatter of {whose} events is more than {WIDE:g} times the {findings.noise_name}, which is "
                f"{number(findings.noise)}. The intervals of {whose} predictions are too narrow. Sort the table of "
                f"{nouns.many} by scatter to see which."
            )
            headline = f"{nouns.count(n)} {have} much more noise than the model assumes"
            yield Doubt(headline, text, serious=wide.mean() > MANY_WIDE)
    spread = findings.target_spread
    if spread and findings.noise > MUCH_NOISE * spread:
        text = (
            f"The {findings.noise_name} is {number(findings.noise)}, and the standard deviation of the target is "
            f"{number(spread)}. Single events cannot be predicted well, even if the clusters' regressions are right."
        )
        yield Doubt("Most of the variance is noise", text)


def _federation(findings: Findings) -> Iterator[Doubt]:
    if (run := findings.run) is None:
        return
    if n_refused := run.n_refused:
        text = (
            "They came too late or did not pass the server’s checks. The log of a server gives the reasons; in a "
            "simulation with a failure rate, they are its failures."
        )
        yield Doubt(f"{ANSWER.count(n_refused)} {'was' if n_refused == 1 else 'were'} refused", text)
    none = int((run.rounds["n_accepted"] == 0).sum())
    if none:
        text = f"Nothing was learned in {'it' if none == 1 else 'them'}."
        yield Doubt(f"In {none:,} of {ROUND.count(len(run.rounds))} nobody answered", text)
    if run.answered < 0.5:
        text = f"{percent(run.answered)} of the requests were answered in time. The run needed more rounds for it."
        yield Doubt("Most requests were not answered in time", text)
