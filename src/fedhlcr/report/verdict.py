"""The verdict at the top of a report: is the model better than simpler ones, and what to use if it is not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedhlcr._support.wording import EVENT, capital, fine_percent, listed, number, percent
from fedhlcr.analysis.axis_lines import target_axis
from fedhlcr.analysis.evaluation import Evaluation
from fedhlcr.analysis.simpler import MIXED_MODEL
from fedhlcr.analysis.verdict import RIVALS, FitComparison, VerdictName, rival_name
from fedhlcr.data.families import FamilyName
from fedhlcr.report.findings import Findings

BADGES = {"better": "Better", "about the same": "About the same", "worse": "Worse", "unknown": "Not evaluated"}
# Badges where accuracy and log density tell different stories, by the two verdicts.
SPLIT = {
    ("about the same", "better"): ("About as accurate", "and better at saying how sure it is"),
    ("about the same", "worse"): ("About as accurate", "but worse at saying how sure it is"),
    ("better", "worse"): ("More accurate", "but worse at saying how sure it is"),
    ("worse", "better"): ("Less accurate", "but better at saying how sure it is"),
}
# Verdicts by errors and by log densities of which neither outweighs the other.
SPLIT_EVENLY = (("better", "worse"), ("worse", "better"))
# What the bars of each family show, and what a mixed model of it is made of.
MEASURED: dict[FamilyName, tuple[str, str]] = {
    "real": ("differences in {target} each explains (share of the variance)", "regression"),
    "binary": ("uncertainty about the outcomes each removes (share of the log loss)", "logistic regression"),
    "count": ("differences between counts each explains (share of the deviance)", "regression of counts"),
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


def find_verdict(findings: Findings, scores: Evaluation | None) -> Verdict:
    """The verdict by held-out events if there are any, else by the fitted events, each predicted from the others."""
    if scores is not None and not scores.was_fitted and scores.densities is not None:
        return _of_events(findings, scores, scores.densities)
    found = findings.model.comparison_
    if found is None:
        return Verdict("unknown", (_why_unknown(findings, scores),))
    told = capital(_told(findings, findings.names.target, found, found, "better"))
    how = "Judged by the fitted events, each predicted from all others."
    advice = _advice(findings, found.strongest.rival) if found.verdict == "worse" else ""
    return Verdict(found.verdict, (told, how), advice)


def _why_unknown(findings: Findings, scores: Evaluation | None) -> str:
    if findings.entities is None:
        return "The model is public: it holds no data to fit simpler models to, so it cannot be compared with them."
    if scores is None:
        return (
            "No held-out events were given, so it is not known how well the model predicts new events. Give the report "
            "a table of events that were not fitted."
        )
    return "The events given were fitted, so they cannot tell whether the model predicts better than simpler models."


def _of_events(findings: Findings, scores: Evaluation, densities: FitComparison) -> Verdict:
    """By the held-out events: how accurate predictions are and, of real targets, how honest about their errors."""
    names = findings.names
    family = scores.family
    errors = scores.errors or densities
    verdicts = (errors.verdict, densities.verdict)
    name: VerdictName = "about the same"
    if verdicts not in SPLIT_EVENLY:
        name = next((own for own in ("worse", "better") if own in verdicts), name)
    slight = is_slight(scores, errors)
    label, hint = SPLIT.get(verdicts, ("", ""))
    if not label and slight and name != "about the same":
        label = f"Slightly {name}"
    what = f"the {family.outcomes}" if family.has_link else names.target
    told = _told(findings, what, errors, densities, "slightly better" if slight else "better")
    sentences = [f"On {EVENT.count(scores.n_events)} that it was not fitted to, {told}", _typically(findings, scores)]
    terms = "" if family.has_link else "A ridge is a plain regression. "
    if MIXED_MODEL in [difference.rival for difference in densities.differences]:
        one = MEASURED[family.name][1]
        terms += f"A mixed model is one {one} from which each {names.entity.one} may deviate."
    else:
        sentences.append("It was not compared with a mixed model.")
    stronger = (errors if errors.verdict == "worse" else densities).strongest.rival
    methods = {"this model": scores.model}
    methods |= {rival_name(rival, names.entity.one): own for rival, own in scores.rivals.items()}
    return Verdict(
        name,
        tuple(sentences),
        advice=_advice(findings, stronger) if "worse" in (name, errors.verdict) else "",
        bars=tuple(
            (method, min(1.0, max(0.0, own.explained)), fine_percent(own.explained) if own.explained > 0.0 else "none")
            for method, own in methods.items()
            if math.isfinite(own.explained)
        ),
        measure=f"how much of the {MEASURED[family.name][0].format(target=names.target)}",
        label=label,
        hint=hint,
        terms=terms,
    )


def _told(findings: Findings, what: str, errors: FitComparison, densities: FitComparison, better: str) -> str:
    """The verdict by errors and by log densities in a sentence that begins in lower case."""
    entity = findings.names.entity.one
    everyone = listed([rival_name(d.rival, entity) for d in densities.differences], "or")
    accurate, honest = (rival_name(found.strongest.rival, entity) for found in (errors, densities))
    sure = "how far off its predictions may be"
    alike = f"the model is about as accurate as {accurate} (the difference may be chance)"
    same = "The difference between the two may be chance."
    differ = findings.differences is not None and bool(findings.differences.has_entity_effect.any())
    if errors.strongest.rival == MIXED_MODEL and len(findings.clusters) == 1 and differ:
        same = "With one cluster it is a mixed model itself."
    by_errors = {
        "better": f"the model predicts {what} {better} than {everyone}.",
        "about the same": f"the model predicts {what} about as well as {accurate}. {same}",
        "worse": f"{accurate} predicts {what} {better} than the model does.",
    }
    by_both = {
        ("better", "worse"): f"the model’s predictions are more accurate than those of {everyone}, but {honest} says "
        f"better {sure}.",
        ("worse", "better"): f"the model’s predictions are less accurate than those of {accurate}, but it says better "
        f"{sure}.",
        ("about the same", "worse"): f"{alike}, but {honest} says better {sure}.",
        ("about the same", "better"): f"{alike}. It says better than {everyone} {sure}.",
    }
    return by_both.get((errors.verdict, densities.verdict), by_errors[errors.verdict])


def is_slight(scores: Evaluation, errors: FitComparison) -> bool:
    """Whether model and best simpler model explain nearly the same share of the variance, though not by chance."""
    rival = scores.scores.get(errors.strongest.rival)
    return rival is not None and abs(scores.model.explained - rival.explained) < SLIGHT


def _typically(findings: Findings, scores: Evaluation) -> str:
    """How good single predictions are; the error of a logarithm is told in per cent."""
    own = scores.model
    if scores.family.has_classes:
        usual = max(own["share"], 1.0 - own["share"])
        return (
            f"The outcome that it takes as more likely is right for {fine_percent(own['accuracy'])} of them; always "
            f"naming the more frequent outcome is right for {fine_percent(usual)}."
        )
    base = target_axis(findings.model).base
    if base is None:
        return f"The model is typically off by {number(own['mae'])} (mean absolute error)."
    return f"The model is typically off by about {percent(float(base ** own['mae']) - 1.0)}."


def _advice(findings: Findings, rival: str) -> str:
    """What to use instead of the model."""
    entity = findings.names.entity.one
    _, use = RIVALS.get(rival, ("", ""))
    if rival == MIXED_MODEL and findings.link.family.has_link:
        use = f'`{findings.model.saved_as}(n_clusters=1, effects="entity")`'
    words = f": {use.format(entity=entity)}" if use else ""
    return f"If you want predictions, use {rival_name(rival, entity)}{words}."
