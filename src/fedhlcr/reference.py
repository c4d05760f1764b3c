"""Slow, readable versions of the fast code: start reading here.

The tests compare the kernels with this module, and `make bench` measures how much faster the kernels are. Nothing else
in the package uses it.

    paper         here                             fast code
    Theorem 1     Regression.log_predictive        model.regression.predictive, log_block_likelihood
    Algorithm 1   log_sequential_likelihood        kernels.labels.collapsed_sweep
    Algorithm 2   LiteralHLCR                      samplers.collapsed.step
    Algorithm 3   blend_agents (agents' part)      federation.rules.BlendRule, kernels.labels.blend_agents
    (beyond it)   relabel_agents                   kernels.labels.relabel_agents (blocked sampler)
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
    """The posterior of one cluster's coefficients, in the paper's letters: H = A⁻¹ and c = b, with mean Hc."""

    H: FloatArray  # (n_coef, n_coef) posterior covariance
    c: FloatArray  # (n_coef,)

    @classmethod
    def empty(cls, prior: CoefPrior) -> Regression:
        return cls(np.diag(prior.scale**2), prior.mean / prior.scale**2)

    def with_event(self, x: FloatArray, y: float, noise_scale: float, sign: int = 1) -> Regression:
        """Add one event, by a rank-one update of H (Sherman–Morrison); sign = −1 removes it."""
        Hx = self.H @ x
        H = self.H - sign * np.outer(Hx, Hx) / (noise_scale**2 + sign * (x @ Hx))
        return Regression(H, self.c + sign * x * y / noise_scale**2)

    def log_predictive(self, x: FloatArray, y: float, noise_scale: float) -> float:
        """log N(y; cᵀHx, σ² + xᵀHx). Paper: Theorem 1."""
        variance = noise_scale**2 + x @ self.H @ x
        return float(-0.5 * np.log(2 * np.pi * variance) - 0.5 * (y - self.c @ self.H @ x) ** 2 / variance)


def log_sequential_likelihood(X: FloatArray, y: FloatArray, given: Regression, noise_scale: float) -> float:
    """log p(y | given), event by event: score first, then update. Paper: Algorithm 1.

    The printed Algorithm 1 updates with an event before it scores it, which counts every event twice.
    """
    log_likelihood = 0.0
    for x_n, y_n in zip(X, y, strict=True):
        log_likelihood += given.log_predictive(x_n, y_n, noise_scale)
        given = given.with_event(x_n, y_n, noise_scale)
    return log_likelihood


@dataclass
class LiteralHLCR:
    """The paper's collapsed sampler, written literally, with rank-one updates for each event. Paper: Algorithm 2.

    Attributes
    ----------
    X, y : for each entity, its design (with the constant, if any) and targets
    agent_of : (entities,) position of each entity's agent
    labels : (entities,) changed in place
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
        """Draw the label of each entity in turn, given all others; `uniforms` (entities,) are on (0, 1)."""
        for entity in range(len(self.y)) if entities is None else entities:
            self._move(entity, int(self.labels[entity]), -1)
            self.labels[entity] = -1
            log_weights = np.log(self.prior_weights(entity)) + self.log_likelihoods(entity)
            weights = np.exp(log_weights - log_weights.max())
            label = int(np.searchsorted(weights.cumsum(), uniforms[entity] * weights.sum(), side="right"))
            self.labels[entity] = label
            self._move(entity, label, 1)

    def log_likelihoods(self, entity: int) -> FloatArray:
        """(clusters,) log p(y_ij | k)."""
        return np.array(
            [log_sequential_likelihood(self.X[entity], self.y[entity], r, self.noise_scale) for r in self.regressions]
        )

    def prior_weights(self, entity: int) -> FloatArray:
        """N_i^(k) + β (N^(k) + α/K) / (N + α); both counts exclude the entity itself. Paper: eq. (prior)."""
        own_agent = self.agent_of == self.agent_of[entity]
        totals = np.bincount(self.labels[self.labels >= 0], minlength=self.n_clusters)
        own = np.bincount(self.labels[own_agent & (self.labels >= 0)], minlength=self.n_clusters)
        share = totals + self.global_concentration / self.n_clusters
        return own + self.agent_concentration * share / (totals.sum() + self.global_concentration)

    def _move(self, entity: int, label: int, sign: int) -> None:
        for x_n, y_n in zip(self.X[entity], self.y[entity], strict=True):
            self.regressions[label] = self.regressions[label].with_event(x_n, y_n, self.noise_scale, sign)


def relabel_agents(entities: EntityArrays, law: LabelLaw, labels: LabelArray) -> tuple[LabelArray, ClusterSums]:
    """The blocked sampler's kernel for all agents, in plain loops: same keys, same draws."""
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
    """Draw labels under blended statistics, written literally. Paper: Algorithm 3, agents' part.

    The statistics contain the entity that is scored; both counts exclude it.
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
