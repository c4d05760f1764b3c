"""Synthetic data drawn from the model, with the truth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils import check_random_state

from fedhlcr._support.arrays import FloatArray
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.exceptions import ArgumentError

TargetKind = Literal["real", "binary", "count"]
# The default scale of coefficients of counts: their means would be astronomic with a scale of 1.
COUNT_COEF_SCALE = 0.3


@dataclass(frozen=True)
class HLCRTruth:
    """The parameters and labels that generated a synthetic table.

    Attributes
    ----------
    labels : (entities,) cluster of each agent–entity pair, sorted by agent and entity
    event_labels : (events,) the same for each row of the table
    coef : (clusters, features) slopes
    intercept : (clusters,)
    cluster_weights : (clusters,) ψ
    agent_weights : (agents, clusters) θ
    noise_scale : σ
    """

    labels: NDArray[np.int64]
    event_labels: NDArray[np.int64]
    coef: FloatArray
    intercept: FloatArray
    cluster_weights: FloatArray
    agent_weights: FloatArray
    noise_scale: float

    def predict(self, X: FloatArray, event_labels: NDArray[np.int64]) -> FloatArray:
        """The noiseless target of events whose clusters are known: the log odds of a 1, or the log mean of a count."""
        return self.intercept[event_labels] + (self.coef[event_labels] * X).sum(axis=1)


def make_hlcr(
    n_agents: int = 128,
    entities_per_agent: float = 8,
    events_per_entity: float = 5,
    n_features: int = 7,
    n_clusters: int = 8,
    noise_scale: float = 0.5,
    *,
    coef_scale: float | None = None,
    global_concentration: float | None = None,
    agent_concentration: float = 1.0,
    balanced: bool = False,
    target: TargetKind = "real",
    dispersion: float = 0.2,
    random_state: Any = 0,
) -> tuple[HierarchicalData, HLCRTruth]:
    """Draw a hierarchical table from the HLCR model.

    Parameters
    ----------
    n_agents : number of agents
    entities_per_agent, events_per_entity : means; the numbers are 1 + Poisson(mean − 1), unless `balanced`
    n_features : number of features, without the constant; x ~ N(0, I)
    n_clusters : K; some may stay empty
    noise_scale : σ, of real targets
    coef_scale : δ, of slopes and intercepts; None is 1, or 0.3 for counts
    global_concentration : α; None is n_clusters
    agent_concentration : β
    balanced : whether every agent has exactly the mean number of entities, and every entity of events
    target : "real", "binary" (0 or 1, with linear log odds) or "count" (negative binomial, with a linear log mean)
    dispersion : of counts; one of mean μ has variance μ + dispersion·μ²
    random_state : seed

    Returns
    -------
    table : HierarchicalData
        Arrays X, y, agent, entity; `table.to_arrow()` is a dataframe.
    truth : HLCRTruth
        Labels, coefficients, weights.

    Examples
    --------
    >>> from fedhlcr.datasets import make_hlcr
    >>> table, truth = make_hlcr(n_agents=4, n_clusters=3, random_state=1)
    >>> truth.coef.shape
    (3, 7)
    """
    alpha = float(n_clusters if global_concentration is None else global_concentration)
    sizes = {"n_agents": n_agents, "entities_per_agent": entities_per_agent, "events_per_entity": events_per_entity}
    _check_sizes({**sizes, "n_clusters": n_clusters}, balanced=balanced)
    _check_positive(global_concentration=alpha, agent_concentration=agent_concentration)
    if target not in get_args(TargetKind):
        raise ArgumentError(f"`target` must be one of {', '.join(map(repr, get_args(TargetKind)))}, but is {target!r}.")
    coef_scale = (COUNT_COEF_SCALE if target == "count" else 1.0) if coef_scale is None else coef_scale
    _check_not_negative(noise_scale=noise_scale, coef_scale=coef_scale, n_features=n_features, dispersion=dispersion)
    fixed = isinstance(random_state, Integral)
    seed = int(random_state) if fixed else check_random_state(random_state).randint(2**31)
    rng = np.random.default_rng(seed)
    coef = coef_scale * rng.standard_normal((n_clusters, n_features + 1))
    cluster_weights = rng.dirichlet(np.full(n_clusters, alpha / n_clusters))
    # a weight that underflowed to zero must stay a valid Dirichlet parameter
    agent_weights = rng.dirichlet(np.maximum(agent_concentration * cluster_weights, 1e-12), size=n_agents)

    n_entities = _numbers(rng, entities_per_agent, n_agents, balanced)
    entity_agent = np.repeat(np.arange(n_agents), n_entities)
    entity = np.concatenate([np.arange(n) for n in n_entities])
    cumulative = agent_weights.cumsum(axis=1)[entity_agent]
    labels = np.minimum((rng.random((len(entity), 1)) > cumulative).sum(axis=1), n_clusters - 1)

    n_events = _numbers(rng, events_per_entity, len(entity), balanced)
    pair = np.repeat(np.arange(len(entity)), n_events)
    event_labels = labels[pair]
    X = rng.standard_normal((len(pair), n_features))
    truth = HLCRTruth(labels, event_labels, coef[:, 1:], coef[:, 0], cluster_weights, agent_weights, noise_scale)
    y = _targets(rng, truth.predict(X, event_labels), target, noise_scale, dispersion)
    names = tuple(f"x{f}" for f in range(n_features))
    return HierarchicalData(X, y, entity_agent[pair], entity[pair], names), truth


def _targets(
    rng: np.random.Generator, linear: FloatArray, target: TargetKind, noise_scale: float, dispersion: float
) -> NDArray[Any]:
    if target == "binary":
        return (rng.random(len(linear)) < expit(linear)).astype(np.int64)
    if target == "count":
        # a Gamma variable of mean 1 and variance `dispersion` makes a Poisson count a negative binomial one
        extra = rng.gamma(1.0 / dispersion, dispersion, len(linear)) if dispersion > 0.0 else 1.0
        return rng.poisson(np.exp(linear) * extra)
    return linear + noise_scale * rng.standard_normal(len(linear))


def _check_sizes(sizes: dict[str, float], *, balanced: bool) -> None:
    for name, value in sizes.items():
        if not 1 <= value < math.inf:
            raise ArgumentError(f"`{name}` must be finite and at least 1, but is {value}.")
        if balanced and value != round(value):
            raise ArgumentError(f"`{name}` must be a whole number if `balanced` is True, but is {value}.")


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ArgumentError(f"`{name}` must be finite and greater than 0, but is {value}.")


def _check_not_negative(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ArgumentError(f"`{name}` must be finite and not negative, but is {value}.")


def _numbers(rng: np.random.Generator, mean: float, size: int, balanced: bool) -> NDArray[np.int64]:
    return np.full(size, round(mean)) if balanced else 1 + rng.poisson(mean - 1, size)
