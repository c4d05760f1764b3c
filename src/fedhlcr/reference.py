"""Slow, readable versions of the fast code: start reading here.

The tests compare the kernels with this module, and `make bench` measures how much faster the kernels are. Nothing else
in the package uses it.

    paper         here                             fast code
    Theorem 1     Regression.log_predictive        model.regression.predictive, log_block_likelihood
    Algorithm 1   log_sequential_likelihood        kernels.labels.collapsed_sweep
    Algorithm 2   LiteralHLCR                      samplers.collapsed.step
    Algorithm 3   blend_agents (agents' part)      federation.rules.BlendRule, kernels.labels.blend_agents
    (beyond it)   relabel_agents                   kernels.labels.relabel_agents (blocked sampler)
    (beyond it)   effective_gram, draw_effects     kernels.effective, kernels.effects (effects and noise)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray
from fedhlcr.kernels import agent_effects, effects, evidence, keyed
from fedhlcr.kernels.arguments import EntityArrays, LabelLaw
from fedhlcr.kernels.effects import EffectState, EffectSums
from fedhlcr.kernels.uniforms import keyed_uniforms
from fedhlcr.model.gaussian import GaussianGlobals
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.mixed_globals import MixedGlobals
from fedhlcr.model.regression import CoefPrior, log_block_likelihood
from fedhlcr.model.schema import GRAMS, Stage
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


def log_sequential_likelihood(X: FloatArray, y: FloatArray, current: Regression, noise_scale: float) -> float:
    """log p(y | given), event by event: score first, then update. Paper: Algorithm 1.

    The printed Algorithm 1 updates with an event before it scores it, which counts every event twice.
    """
    log_likelihood = 0.0
    for x_n, y_n in zip(X, y, strict=True):
        log_likelihood += current.log_predictive(x_n, y_n, noise_scale)
        current = current.with_event(x_n, y_n, noise_scale)
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
    entity_counts = np.zeros(n_clusters)
    table_counts = np.zeros(n_clusters)
    log_q = bernoulli = log_prior = 0.0
    for agent, (first, last) in enumerate(zip(entities.agent_start[:-1], entities.agent_start[1:], strict=True)):
        stream = entities.agent_streams[agent]
        agent_labels = labels[first:last].copy()
        seen = np.zeros(n_clusters)
        for j, entity in enumerate(range(first, last)):
            u_label, u_table, u_beta = keyed_uniforms(stream, entities.entity_keys[entity], law.round, np.uint64(0))
            agent_labels[j] = -1
            others = np.bincount(agent_labels[agent_labels >= 0], minlength=n_clusters)
            scores = law.score_rows[:n_clusters] @ entities.grams[entity]
            weights = (others + law.prior_weights) * np.exp(scores - scores[law.prior_weights > 0].max())
            k = int(np.searchsorted(weights.cumsum(), u_label * weights.sum(), side="right"))
            agent_labels[j] = new[entity] = k
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
    current: GaussianGlobals,
    labels: LabelArray,
    sweep: int,
) -> LabelArray:
    """Draw labels under blended statistics, written literally. Paper: Algorithm 3, agents' part.

    The statistics contain the entity that is scored; both counts exclude it.
    """
    n_clusters = blended.n_clusters
    alpha = current.global_concentration
    beta = current.agent_concentration
    new = labels.copy()
    for agent, (first, last) in enumerate(zip(entities.agent_start[:-1], entities.agent_start[1:], strict=True)):
        agent_labels = labels[first:last].copy()
        for j, entity in enumerate(range(first, last)):
            totals = blended.entity_counts.copy()
            if agent_labels[j] >= 0:
                totals[agent_labels[j]] = max(totals[agent_labels[j]] - 1.0, 0.0)
            agent_labels[j] = -1
            own = np.bincount(agent_labels[agent_labels >= 0], minlength=n_clusters)
            prior = own + beta * (totals + alpha / n_clusters) / (totals.sum() + alpha)
            scores = log_block_likelihood(
                layout.normal_equations(entities.grams[entity]),
                layout.normal_equations(blended.grams),
                current.noise_scale,
                current.coef_prior,
            )
            weights = prior * np.exp(scores - scores.max())
            u_label, _, _ = keyed_uniforms(
                entities.agent_streams[agent], entities.entity_keys[entity], sweep, np.uint64(0)
            )
            agent_labels[j] = new[entity] = np.searchsorted(weights.cumsum(), u_label * weights.sum(), side="right")
    return new


def square_roots(layout: GramLayout, grams: FloatArray, coef: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(entities,) √RSS at the best cluster and at the second best, and √tr M: what `kernels.skipping` remembers."""
    roots = np.sort(np.sqrt(layout.rss(grams[:, None], coef[None])), axis=1)
    return roots[:, 0], roots[:, 1], np.sqrt(layout.diagonal(grams).sum(axis=1))


def effective_gram(layout: GramLayout, gram: FloatArray, variance: float, covariance: FloatArray) -> FloatArray:
    """(packed,) M̃ = M − [G g]ᵀ (I + DG)⁻¹ D [G g], with M the Gram matrix over σ²: b ~ N(0, D) is integrated out."""
    matrix = layout.unpack(gram) / variance
    first = layout.first_regressor
    rows = matrix[first:-1, first:]
    inner = np.linalg.solve(np.eye(len(covariance)) + covariance @ rows[:, :-1], covariance)
    matrix[first:, first:] -= rows.T @ inner @ rows
    return layout.pack(matrix)


def draw_effects(
    layout: GramLayout, entities: EntityArrays, current: MixedGlobals, labels: LabelArray, old: EffectState, sweep: int
) -> tuple[EffectState, EffectSums]:
    """Effects and noise of all agents given the labels, one entity at a time: same keys, same draws as the kernel.

    For each agent: a | z, w, σ with b integrated out; then b | a; then σ | a, b. Sums have a row for each cluster.
    """
    n_clusters = current.n_clusters
    n_linear = layout.n_linear
    coefs = np.empty((len(labels), layout.n_coef))
    new = EffectState(old.variance.copy(), old.agent_effects.copy(), coefs)
    data = np.zeros((n_clusters, layout.packed_size))
    moments = np.zeros((n_clusters, n_linear + 1, n_linear + 1))
    scalars = np.zeros((len(entities.agent_streams), evidence.N_SCALARS + layout.n_coef))
    units = current.noise_unit**2
    for agent, (first, last) in enumerate(zip(entities.agent_start[:-1], entities.agent_start[1:], strict=True)):
        stream = entities.agent_streams[agent]
        own = range(first, last)
        effective = [effective_gram(layout, entities.grams[e], old.variance[e], current.effect_covariance) for e in own]
        if (current.agent_effect_scale > 0).any() and first < last:
            new.agent_effects[agent] = draw_agent_effect(layout, effective, current, labels[first:last], stream, sweep)
            scalars[agent, evidence.HAS_EFFECT] = 1.0
        scalars[agent, evidence.N_SCALARS :] = new.agent_effects[agent] ** 2
        for e in own:
            coef = current.coef[labels[e]] + new.agent_effects[agent]
            key = entities.entity_keys[e]
            effect = draw_effect(layout, entities.grams[e] / old.variance[e], current, coef, stream, key, sweep)
            new.coef[e] = coef + effect
            squares = float(layout.rss(entities.grams[e], new.coef[e]))
            n = entities.grams[e][0]
            new.variance[e] = draw_noise(current, squares, n, stream, key, sweep)
            scalars[agent, : evidence.EVENTS] += noise_scalars(current, new.variance[e] / units, squares, n)
            if current.stage == Stage.EXACT:
                around = gram_around(layout, entities.grams[e] / new.variance[e], new.agent_effects[agent] + effect)
            else:
                around = gram_around(layout, effective[e - first], new.agent_effects[agent])
            data[labels[e]] += units * around
            if len(current.effect_columns):
                moments[labels[e]] += np.outer(np.append(1.0, effect[:n_linear]), np.append(1.0, effect[:n_linear]))
    rows, columns = np.tril_indices(n_linear + 1)
    return new, EffectSums(data, moments[:, rows, columns], scalars)


def draw_agent_effect(
    layout: GramLayout,
    effective: list[FloatArray],
    current: MixedGlobals,
    labels: LabelArray,
    stream: np.uint64,
    sweep: int,
) -> FloatArray:
    """a = τα, with α | z, w, σ of precision I + τ(ΣQ)τ and right side τΣ(r − Qw); Q and r are blocks of the M̃."""
    first = layout.first_regressor
    used = np.flatnonzero(current.agent_effect_scale)
    matrices = np.array([layout.unpack(gram) for gram in effective])
    Q = matrices[:, first:-1, first:-1]
    r = matrices[:, -1, first:-1]
    residual = (r - np.einsum("eij,ej->ei", Q, current.coef[labels])).sum(axis=0)
    scale = current.agent_effect_scale[used]
    effect = np.zeros(layout.n_coef)
    precision = np.eye(len(used)) + np.outer(scale, scale) * Q.sum(axis=0)[np.ix_(used, used)]
    normals = np.empty(len(used))
    keyed.keyed_normals(stream, np.uint64(0), sweep, agent_effects.AGENT_EFFECT, normals)
    effect[used] = scale * normal_draw(precision, scale * residual[used], normals)
    return effect


def draw_effect(
    layout: GramLayout,
    gram: FloatArray,
    current: MixedGlobals,
    coef: FloatArray,
    stream: np.uint64,
    key: np.uint64,
    sweep: int,
) -> FloatArray:
    """b = Λc, with c of precision I + ΛᵀGΛ and right side Λᵀ(g − Gβ)."""
    used = current.effect_columns
    root = current.effect_root
    data = layout.normal_equations(gram)
    normals = np.empty(len(used))
    effect = np.zeros(layout.n_coef)
    keyed.keyed_normals(stream, key, sweep, effects.EFFECT, normals)
    precision = np.eye(len(used)) + root.T @ data.xx[np.ix_(used, used)] @ root
    effect[used] = root @ normal_draw(precision, root.T @ (data.xy - data.xx @ coef)[used], normals)
    return effect


def normal_draw(precision: FloatArray, linear: FloatArray, normals: FloatArray) -> FloatArray:
    """A draw from N(P⁻¹ linear, P⁻¹): L⁻ᵀ(L⁻¹ linear + ε) with P = LLᵀ."""
    lower = np.linalg.cholesky(precision)
    return np.linalg.solve(lower.T, np.linalg.solve(lower, linear) + normals)


def draw_noise(
    current: MixedGlobals, squares: float, n_events: float, stream: np.uint64, key: np.uint64, sweep: int
) -> float:
    """σ² ~ IG((ν + n)/2, (νs² + squares)/2), or s² for all entities."""
    if np.isinf(current.noise_shape):
        return current.noise_scale**2
    gamma = keyed.keyed_gamma(stream, key, sweep, effects.NOISE, 0.5 * (current.noise_shape + n_events))
    return 0.5 * (current.noise_shape * current.noise_scale**2 + squares) / gamma


def noise_scalars(current: MixedGlobals, variance: float, squares: float, n_events: float) -> FloatArray:
    """What an entity adds to its agent's scalars, in their order up to the squared events.

    The variance is in units of noise_unit².
    """
    own = [np.log(variance), 1.0 / variance, 1.0, n_events * np.log(variance)]
    return np.array([*(own if np.isfinite(current.noise_shape) else np.zeros(4)), squares / variance, n_events])


def gram_around(layout: GramLayout, gram: FloatArray, step: FloatArray) -> FloatArray:
    """(packed,) the Gram matrix of (x, y − xᵀstep)."""
    change = np.eye(layout.width)
    change[layout.first_regressor : -1, -1] = -step
    return layout.pack(change.T @ layout.unpack(gram) @ change)
