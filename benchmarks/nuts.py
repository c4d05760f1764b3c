"""HLCR in NumPyro: what a general sampler makes of the same model.

    w_k ~ N(0, I), ψ ~ Dirichlet(1), θ_i | ψ ~ Dirichlet(K ψ), σ ~ HalfNormal(1),
    p(y of entity ij) = Σ_k θ_ik Π_events N(y | w_kᵀx, σ²),

with the label of each entity summed out, and the weights θ_i of every agent explicit. Imported only where NumPyro is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, init_to_median

from benchmarks.problems import Split
from fedhlcr.datasets import HierarchicalData

jax.config.update("jax_enable_x64", True)


def sample(split: Split, seed: int, n_warmup: int, n_draws: int) -> dict[str, np.ndarray]:
    """Draws of w (draws, K, F + 1), θ (draws, agents, K) and σ (draws,)."""
    agents, agent_of, entity_of = _positions(split.train)
    n_clusters = len(split.truth.coef)
    kernel = NUTS(_model, init_strategy=init_to_median, max_tree_depth=7)
    chain = MCMC(kernel, num_warmup=n_warmup, num_samples=n_draws, progress_bar=False)
    X = np.column_stack([np.ones(len(split.train)), split.train.X])
    chain.run(jax.random.PRNGKey(seed), X, split.train.y, entity_of, agent_of, len(agents), n_clusters)
    return {name: np.asarray(value) for name, value in chain.get_samples().items()}


def predict(split: Split, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """Mean over draws and labels, given each entity's training events."""
    _, agent_of, entity_of = _positions(split.train)
    X = np.column_stack([np.ones(len(split.train)), split.train.X])
    position = {pair: number for number, pair in enumerate(_sorted_pairs(split.train))}
    known = [position[pair] for pair in zip(split.test.agent, split.test.entity, strict=True)]
    test = np.column_stack([np.ones(len(split.test)), split.test.X])
    total = np.zeros(len(test))
    for coef, weights, noise in zip(draws["coef"], draws["agent_weights"], draws["noise"], strict=True):
        scores = _entity_scores(jnp.asarray(coef), jnp.asarray(noise), X, split.train.y, entity_of, len(agent_of))
        belief = np.asarray(jax.nn.softmax(scores + jnp.log(weights[agent_of]), axis=1))
        total += (test @ coef.T * belief[known]).sum(axis=1)
    return total / len(draws["coef"])


def _model(X: Any, y: Any, entity_of: Any, agent_of: Any, n_agents: int, n_clusters: int) -> None:
    coef = numpyro.sample("coef", dist.Normal(0.0, 1.0).expand([n_clusters, X.shape[1]]).to_event(2))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    cluster_weights = numpyro.sample("cluster_weights", dist.Dirichlet(jnp.ones(n_clusters)))
    concentration = n_clusters * cluster_weights + 1e-6
    with numpyro.plate("agents", n_agents):
        agent_weights = numpyro.sample("agent_weights", dist.Dirichlet(concentration))
    scores = _entity_scores(coef, noise, X, y, entity_of, len(agent_of))
    log_density = jax.scipy.special.logsumexp(scores + jnp.log(agent_weights[agent_of] + 1e-12), axis=1)
    numpyro.factor("events", log_density.sum())


def _entity_scores(coef: Any, noise: Any, X: Any, y: Any, entity_of: Any, n_entities: int) -> Any:
    """(entities, K) log densities of an entity's events in each cluster."""
    log_densities = dist.Normal(X @ coef.T, noise).log_prob(y[:, None])
    return jax.ops.segment_sum(log_densities, entity_of, num_segments=n_entities)


def _sorted_pairs(table: HierarchicalData) -> list[tuple[Any, Any]]:
    return sorted(set(zip(table.agent, table.entity, strict=True)))


def _positions(table: HierarchicalData) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """The agents; the agent of each entity; the entity of each event."""
    agents = sorted(set(table.agent))
    pairs = _sorted_pairs(table)
    agent_at, pair_at = ({one: number for number, one in enumerate(some)} for some in (agents, pairs))
    entity_of = [pair_at[pair] for pair in zip(table.agent, table.entity, strict=True)]
    return agents, np.array([agent_at[agent] for agent, _ in pairs]), np.array(entity_of)
