"""The verdict at the top of a report: is the model better than simpler ones, and what to use if it is not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedhlcr._support.wording import EVENT, capital, fine_percent, listed, number, percent
from fedhlcr.analysis.axis_lines import TargetAxis, target_axis
from fedhlcr.analysis.evaluation import Evaluation
from fedhlcr.analysis.facts import UserNames
from fedhlcr.analysis.simpler import (
    LOGISTIC_PER_ENTITY,
    MIXED_MODEL,
    ONE_LOGISTIC,
    ONE_POISSON,
    ONE_RIDGE,
    POISSON_PER_ENTITY,
    RATE_PER_ENTITY,
    RIDGE_PER_ENTITY,
)
from fedhlcr.analysis.verdict import FitComparison, VerdictName
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.report.findings import Findings

BADGES = {"better": "Better", "about the same": "About the same", "worse": "Worse", "unknown": "Not evaluated"}
NO_MIXED_MODEL = "It was not compared with a mixed model."
CHANCE_TOO = "(the difference may be chance)"
CHANCE = "The difference between the two may be chance."
IS_MIXED_MODEL = "With one cluster it is a mixed model itself."
# Badges where accuracy and log density tell different stories, by the two verdicts.
SPLIT = {
    ("about the same", "better"): ("About as accurate", "and better at saying how sure it is"),
    ("about the same", "worse"): ("About as accurate", "but worse at saying how sure it is"),
    ("better", "worse"): ("More accurate", "but worse at saying how sure it is"),
    ("worse", "better"): ("Less accurate", "but better at saying how sure it is"),
}
# Differences of R² below this are called slight.
SLIGHT = 0.01
SIGNS = {"better": "▲", "about the same": "≈", "worse": "▼", "unknown": "?"}


@dataclass(frozen=True)
class Verdict:
    """Whether to trust the model's predictions more than those of simpler models.

    Attributes
    ----------
    name : of the verdict
    sentences : why, in one or two sentences
    advice : what to use instead; empty unless the model is worse or less accurate
    label, hint : on the badge and behind it, where the name of the verdict would say too much
    bars : name, share (0 to 1) and figure of each method, for a small chart; the model first
    measure : what the bars show
    terms : what the methods are, for readers who do not know their names
    """

    name: VerdictName | Literal["unknown"]
    sentences: tuple[str, ...]
    advice: str = ""
    bars: tuple[tuple[str, float, str], ...] = ()
    measure: str = ""
    label: str = ""
    hint: str = ""
    terms: str = ""

    @property
    def badge(self) -> str:
        return self.label or BADGES[self.name]

    @property
    def sign(self) -> str:
        return SIGNS["about the same" if self.is_split else self.name]

    @property
    def is_split(self) -> bool:
        """Whether accuracy and honesty differ, so that neither better nor worse is the whole truth."""
        return bool(self.hint)

    @property
    def badge_hint(self) -> str:
        """What stands behind the badge."""
        than = {
            "better": "than simpler models",
            "worse": "than a simpler model",
            "about the same": "as a simpler model",
        }
        return self.hint or than.get(self.name, "")

    @property
    def css(self) -> str:
        return "about" if self.is_split else self.name.split()[0]


def find_verdict(model: HierarchicalPredictor, findings: Findings, scores: Evaluation | None) -> Verdict:
    """The verdict by held-out events if there are any, else by the fitted events, each predicted from the others."""
    if scores is not None and not scores.was_fitted:
        if scores.densities is not None and scores.errors is not None:
            return _of_events(model, findings, scores, scores.densities, scores.errors)
        if scores.densities is not None:
            return _of_responses(model, findings, scores, scores.densities)
    if model.comparison_ is not None:
        return _of_fit(findings, model.comparison_)
    return Verdict("unknown", (_why_unknown(findings, scores),))


def _why_unknown(findings: Findings, scores: Evaluation | None) -> str:
    if findings.entities is None:
        return "The model is public: it holds no data to fit simpler models to, so it cannot be compared with them."
    if scores is None:
        return (
            "No held-out events were given, so it is not known how well the model predicts new events. Give the report "
            "a table of events that were not fitted."
        )
    return "The events given were fitted, so they cannot tell whether the model predicts better than simpler models."


def _of_events(
    model: HierarchicalPredictor,
    findings: Findings,
    scores: Evaluation,
    densities: FitComparison,
    errors: FitComparison,
) -> Verdict:
    names = findings.names
    target = findings.names.target
    name, told = _judged(findings, scores, densities, errors)
    label, hint = SPLIT.get((errors.verdict, densities.verdict), ("", ""))
    if not label and name != "about the same" and is_slight(scores, errors):
        label = f"Slightly {name}"
    rival = (errors if errors.verdict == "worse" else densities).strongest.rival
    return Verdict(
        name,
        (told, _typical_error(target_axis(model), scores.model["mae"])),
        advice=_advice(rival, names) if "worse" in (name, errors.verdict) else "",
        bars=_bars(scores, names),
        measure=f"how much of the differences in {target} each explains (share of the variance)",
        label=label,
        hint=hint,
        terms=(
            f"A ridge is a plain regression. A mixed model is one regression from which each {names.entity.one} may "
            "deviate."
        ),
    )


def _judged(
    findings: Findings, scores: Evaluation, densities: FitComparison, errors: FitComparison
) -> tuple[VerdictName, str]:
    """The verdict by errors and log densities, and the sentence that tells it."""
    names = findings.names
    target = findings.names.target
    of_errors = errors.verdict
    of_densities = densities.verdict
    everyone = listed([rival_name(d.rival, names) for d in densities.differences], "or")
    on = f"On {EVENT.count(scores.n_events)} that it was not fitted to,"
    accurate, honest = (rival_name(c.strongest.rival, names) for c in (errors, densities))
    better = "slightly better" if is_slight(scores, errors) else "better"
    sure = "how far off its predictions may be"
    if of_errors == of_densities == "about the same":
        why = _why_same(findings, errors)
        return "about the same", f"{on} the model predicts {target} about as well as {accurate}. {why}"
    if of_errors == "better" and of_densities == "worse":
        but = f"are more accurate than those of {everyone}, but {honest} says better {sure}"
        return "about the same", f"{on} the model’s predictions {but}."
    if of_errors == "worse" and of_densities == "better":
        but = f"are less accurate than those of {accurate}, but it says better {sure}"
        return "about the same", f"{on} the model’s predictions {but}."
    if of_errors == "worse":
        return "worse", f"{on} {accurate} predicts {target} {better} than the model does."
    if of_densities == "worse":
        return (
            "worse",
            f"{on} the model is about as accurate as {accurate} {CHANCE_TOO}, but {honest} says better {sure}.",
        )
    if of_errors == "better":
        return "better", f"{on} the model predicts {target} {better} than {everyone}."
    return (
        "better",
        f"{on} the model is about as accurate as {accurate} {CHANCE_TOO}. It says better than {everyone} {sure}.",
    )


def _why_same(findings: Findings, found: FitComparison) -> str:
    """Why the model and the strongest simpler model predict about equally well."""
    differ = findings.differences is not None and bool(findings.differences.has_entity_effect.any())
    if found.strongest.rival == MIXED_MODEL and len(findings.clusters) == 1 and differ:
        return IS_MIXED_MODEL
    return CHANCE


def is_slight(scores: Evaluation, errors: FitComparison) -> bool:
    """Whether model and best simpler model explain nearly the same share of the variance, though not by chance."""
    rival = scores.scores.get(errors.strongest.rival)
    return rival is not None and abs(scores.model.explained - rival.explained) < SLIGHT


def _bars(scores: Evaluation, names: UserNames) -> tuple[tuple[str, float, str], ...]:
    """Name, share explained and figure of each method, the model first."""
    methods = {"this model": scores.model, **{rival_name(name, names): own for name, own in scores.rivals.items()}}
    return tuple(
        (name, _bar(own.explained), _percent(own.explained))
        for name, own in methods.items()
        if math.isfinite(own.explained)
    )


def _typical_error(target: TargetAxis, error: float) -> str:
    """How far off predictions are; of a logarithm, in per cent."""
    if target.base is None:
        return f"The model is typically off by {number(error)} (mean absolute error)."
    return f"The model is typically off by about {percent(float(target.base**error) - 1.0)}."


def _of_responses(
    model: HierarchicalPredictor, findings: Findings, scores: Evaluation, found: FitComparison
) -> Verdict:
    names = findings.names
    strongest = found.strongest.rival
    slight = found.verdict != "about the same" and is_slight(scores, found)
    sentences = [_told_of_responses(findings, scores, found, slight=slight), _typically(scores)]
    is_mixed = MIXED_MODEL in [difference.rival for difference in found.differences]
    binary = scores.family.has_classes
    one = "logistic regression" if binary else "regression of counts"
    what = "uncertainty about the outcomes each removes (share of the log loss)"
    if not binary:
        what = "differences between counts each explains (share of the deviance)"
    return Verdict(
        found.verdict,
        (*sentences, *([] if is_mixed else [NO_MIXED_MODEL])),
        advice=_advice_on_responses(model, strongest, names) if found.verdict == "worse" else "",
        bars=_bars(scores, names),
        measure=f"how much of the {what}",
        label=f"Slightly {found.verdict}" if slight else "",
        terms=f"A mixed model is one {one} from which each {names.entity.one} may deviate." if is_mixed else "",
    )


def _told_of_responses(findings: Findings, scores: Evaluation, found: FitComparison, *, slight: bool) -> str:
    names = findings.names
    what = f"the {scores.family.outcomes}"
    on = f"On {EVENT.count(scores.n_events)} that it was not fitted to,"
    everyone = listed([rival_name(d.rival, names) for d in found.differences], "or")
    best = rival_name(found.strongest.rival, names)
    better = "slightly better" if slight else "better"
    return {
        "better": f"{on} the model predicts {what} {better} than {everyone}.",
        "about the same": f"{on} the model predicts {what} about as well as {best}. {_why_same(findings, found)}",
        "worse": f"{on} {best} predicts {what} {better} than the model does.",
    }[found.verdict]


def _typically(scores: Evaluation) -> str:
    """How good single predictions are."""
    own = scores.model
    if not scores.family.has_classes:
        return f"The model is typically off by {number(own['mae'])} (mean absolute error)."
    usual = max(own["share"], 1.0 - own["share"])
    return (
        f"The outcome that it takes as more likely is right for {fine_percent(own['accuracy'])} of them; always naming "
        f"the more frequent outcome is right for {fine_percent(usual)}."
    )


def _of_fit(findings: Findings, found: FitComparison) -> Verdict:
    """By the fitted events."""
    names = findings.names
    target = findings.names.target
    everyone = listed([rival_name(d.rival, names) for d in found.differences], "or")
    best = rival_name(found.strongest.rival, names)
    told = {
        "better": f"The model predicts {target} better than {everyone}.",
        "about the same": f"The model predicts {target} about as well as {best}.",
        "worse": f"{capital(best)} predicts {target} better than the model does.",
    }[found.verdict]
    how = "Judged by the fitted events, each predicted from all others."
    advice = _advice(found.strongest.rival, names) if found.verdict == "worse" else ""
    return Verdict(found.verdict, (told, how), advice)


def rival_name(name: str, names: UserNames) -> str:
    """A simpler model in a sentence."""
    entity = names.entity.one
    return {
        ONE_RIDGE: "one ridge for all",
        RIDGE_PER_ENTITY: f"a ridge per {entity}",
        MIXED_MODEL: "a mixed model",
        ONE_LOGISTIC: "one logistic regression for all",
        ONE_POISSON: "one Poisson regression for all",
        RATE_PER_ENTITY: f"the mean of each {entity}",
        LOGISTIC_PER_ENTITY: f"a logistic regression per {entity}",
        POISSON_PER_ENTITY: f"a Poisson regression per {entity}",
    }.get(name, f"a {name}")


def _advice(rival: str, names: UserNames) -> str:
    """What to use instead of the model."""
    use = {
        ONE_RIDGE: "`fedhlcr.baselines.GroupedRidge()`",
        RIDGE_PER_ENTITY: '`fedhlcr.baselines.GroupedRidge(level="entity")`',
        MIXED_MODEL: "`fedhlcr.baselines.MixedModelRegressor()`",
    }.get(rival)
    return f"If you want predictions, use {rival_name(rival, names)}{f': {use}' if use else ''}."


def _advice_on_responses(model: HierarchicalPredictor, rival: str, names: UserNames) -> str:
    """The same for classes and counts."""
    of_each = f" for the events of each {names.entity.one}"
    use = {
        MIXED_MODEL: f'`{type(model).__name__}(n_clusters=1, effects="entity")`',
        ONE_LOGISTIC: "`sklearn.linear_model.LogisticRegression()`",
        ONE_POISSON: "`sklearn.linear_model.PoissonRegressor()`",
        LOGISTIC_PER_ENTITY: f"`sklearn.linear_model.LogisticRegression()`{of_each}",
        POISSON_PER_ENTITY: f"`sklearn.linear_model.PoissonRegressor()`{of_each}",
    }.get(rival)
    return f"If you want predictions, use {rival_name(rival, names)}{f': {use}' if use else ''}."


def _percent(share: float) -> str:
    """A share explained; a model that predicts worse than the mean explains nothing."""
    return fine_percent(share) if share > 0.0 else "none"


def _bar(share: float) -> float:
    return min(1.0, max(0.0, share))
