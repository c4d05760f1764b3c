"""Slow, readable twins of the fast code: the paper's algorithms as they are written, and the kernels' oracles.

Nothing else in the package uses this module. The tests hold the kernels against it; `make bench`
measures by how much they are faster; a reader may start here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray
from fedhlcr.kernels.arguments import EntityArrays, LabelLaw
from fedhlcr.kernels.labels import keyed_uniforms
from fedhlcr.model.gaussian import GaussianGlobals
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.regression import CoefPrior, log_block_likelihood
from fedhlcr.model.schema import GRAMS
from fedhlcr.model.sums import ClusterSums


class Regression(NamedTuple):
    """The running regression of one cluster: H = A⁻¹ and c = b, so that the mean of w is Hc."""

    H: FloatArray  # (n_coef, n_coef) posterior covariance
    c: FloatArray  # (n_coef,)

    @classmethod
    def empty(cls, prior: CoefPrior) -> Regression:
        return cls(np.diag(prior.scale**2), prior.mean / prior.scale**2)

    def with_event(self, x: FloatArray, y: float, noise_scale: float, sign: int = 1) -> Regression:
        """Rank-one update of H by one event (Sherman–Morrison), or its removal with sign = −1."""
        Hx = self.H @ x
        H = self.H - sign * np.outer(Hx, Hx) / (noise_scale**2 + sign * (x @ Hx))
        return Regression(H, self.c + sign * x * y / noise_scale**2)

    def log_predictive(self, x: FloatArray, y: float, noise_scale: float) -> float:
        """log N(y; cᵀHx, σ² + xᵀHx). Paper: Theorem 1."""
        variance = noise_scale**2 + x @ self.H @ x
        return float(-0.5 * np.log(2 * np.pi * variance) - 0.5 * (y - self.c @ self.H @ x) ** 2 / variance)


def log_sequential_likelihood(X: FloatArray, y: FloatArray, given: Regression, noise_scale: float) -> float:
    """log p(y | given), event by event: score first, then update. Paper: Theorem 1, Algorithm 1.

    The paper's Algorithm 1 updates with an event before scoring it, which counts it twice.
    """
    log_likelihood = 0.0
    for x_n, y_n in zip(X, y, strict=True):
        log_likelihood += given.log_predictive(x_n, y_n, noise_scale)
        given = given.with_event(x_n, y_n, noise_scale)
    return log_likelihood


@dataclass
class LiteralHLCR:
    """The paper's collapsed sampler, written literally: rank-one updates event by event. Paper: Algorithm 2.

    Attributes
    ----------
    X, y : for each entity, its design (with the constant, if any) and targets
    agent_of : (entities,)
    labels : (entities,), changed in place
    """

    X: list[FloatArray]
    y: list[FloatArray]
    agent_of: IndexArray
    labels: LabelArray
    n_clusters: int
    noise_scale: float
    coef_prior: CoefPrior
    global_concentration: float
    agent_concentration: float

    def __post_init__(self) -> None:
        self.regressions = [Regression.empty(self.coef_prior) for _ in range(self.n_clusters)]
        for entity, label in enumerate(self.labels):
            self._move(entity, int(label), 1)

    def sweep(self, uniforms: FloatArray, entities: range | None = None) -> None:
        """Draw the label of each entity in turn from its conditional, with a uniform for each."""
        for entity in range(len(self.y)) if entities is None else entities:
            self._move(entity, int(self.labels[entity]), -1)
            self.labels[entity] = -1
            log_weights = np.log(self.prior_weights(entity)) + self.log_likelihoods(entity)
            weights = np.exp(log_weights - log_weights.max())
            label = int(np.searchsorted(weights.cumsum(), uniforms[entity] * weights.sum(), side="right"))
            self.labels[entity] = label
            self._move(entity, label, 1)

    def log_likelihoods(self, entity: int) -> FloatArray:
        """log p(y_ij | k) of every cluster. Paper: Algorithm 1."""
        return np.array(
            [log_sequential_likelihood(self.X[entity], self.y[entity], r, self.noise_scale) for r in self.regressions]
        )

    def prior_weights(self, entity: int) -> FloatArray:
        """N_i^(k) + β (N^(k) + α/K) / (N + α), own label removed from both counts. Paper: eq. (prior)."""
        own_agent = self.agent_of == self.agent_of[entity]
        totals = np.bincount(self.labels[self.labels >= 0], minlength=self.n_clusters)
        own = np.bincount(self.labels[own_agent & (self.labels >= 0)], minlength=self.n_clusters)
        share = totals + self.global_concentration / self.n_clusters
        return own + self.agent_concentration * share / (totals.sum() + self.global_concentration)

    def _move(self, entity: int, label: int, sign: int) -> None:
        for x_n, y_n in zip(self.X[entity], self.y[entity], strict=True):
            self.regressions[label] = self.regressions[label].with_event(x_n, y_n, self.noise_scale, sign)


def relabel_agents(entities: EntityArrays, law: LabelLaw, labels: LabelArray) -> tuple[LabelArray, ClusterSums]:
    """Twin of the blocked sampler's kernel, over all agents: same keys, same draws, plain loops."""
    n_clusters = len(law.prior_weights)
    beta = law.agent_concentration
    new = np.empty_like(labels)
    grams = np.zeros((n_clusters, entities.grams.shape[1]))
    entity_counts, table_counts = np.zeros(n_clusters), np.zeros(n_clusters)
    log_q = bernoulli = log_prior = 0.0
    for agent, (first, last) in enumerate(zip(entities.agent_start[:-1], entities.agent_start[1:], strict=True)):
        stream = entities.agent_streams[agent]
        current = labels[first:last].copy()
        seen = np.zeros(n_clusters)
        for j, entity in enumerate(range(first, last)):
            u_label, u_table, u_beta = keyed_uniforms(stream, entities.entity_keys[entity], law.round, np.uint64(0))
            current[j] = -1
            others = np.bincount(current[current >= 0], minlength=n_clusters)
            scores = law.score_rows[:n_clusters] @ entities.grams[entity]
            weights = (others + law.prior_weights) * np.exp(scores - scores[law.prior_weights > 0].max())
            k = int(np.searchsorted(weights.cumsum(), u_label * weights.sum(), side="right"))
            current[j] = new[entity] = k
            grams[k] += entities.grams[entity]
            opens_table = seen[k] == 0 or u_table < law.prior_weights[k] / (law.prior_weights[k] + seen[k])
            table_counts[k] += opens_table
            log_prior += np.log((law.prior_weights[k] + seen[k]) / (beta + j))
            log_q += np.log(u_beta) / (beta + 1 + j)
            seen[k] += 1
        u_agent, _, _ = keyed_uniforms(stream, np.uint64(0), law.round, np.uint64(1))
        n_entities = last - first
        bernoulli += u_agent < n_entities / (n_entities + beta)
        entity_counts += seen
    scalars = {
        "log_beta_draws": float(log_q),
        "bernoulli_draws": float(bernoulli),
        "log_label_prior": float(log_prior),
        "labels_changed": float((new != labels).sum()),
    }
    return new, ClusterSums({GRAMS: grams}, entity_counts, table_counts, scalars)


def blend_agents(
    layout: GramLayout,
    entities: EntityArrays,
    blended: ClusterSums,
    given: GaussianGlobals,
    labels: LabelArray,
    sweep: int,
) -> LabelArray:
    """Labels under blended statistics, written literally: the agents' part of the federation. Paper: Algorithm 3.

    The statistics contain the entity that is scored; own labels are removed from both counts.
    """
    n_clusters, alpha, beta = blended.n_clusters, given.global_concentration, given.agent_concentration
    new = labels.copy()
    for agent, (first, last) in enumerate(zip(entities.agent_start[:-1], entities.agent_start[1:], strict=True)):
        current = labels[first:last].copy()
        for j, entity in enumerate(range(first, last)):
            totals = blended.entity_counts.copy()
            if current[j] >= 0:
                totals[current[j]] = max(totals[current[j]] - 1.0, 0.0)
            current[j] = -1
            own = np.bincount(current[current >= 0], minlength=n_clusters)
            prior = own + beta * (totals + alpha / n_clusters) / (totals.sum() + alpha)
            scores = log_block_likelihood(
                layout.normal_equations(entities.grams[entity]),
                layout.normal_equations(blended.grams),
                given.noise_scale,
                given.coef_prior,
            )
            weights = prior * np.exp(scores - scores.max())
            u_label, _, _ = keyed_uniforms(
                entities.agent_streams[agent], entities.entity_keys[entity], sweep, np.uint64(0)
            )
            current[j] = new[entity] = np.searchsorted(weights.cumsum(), u_label * weights.sum(), side="right")
    return new
