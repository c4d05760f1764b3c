"""The exact posterior over all labelings of tiny data, by brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.special import gammaln, logsumexp

from fedhlcr.model.regression import CoefPrior, log_evidence


def stirling(n: int) -> np.ndarray:
    """Unsigned Stirling numbers of the first kind s(n, m), m = 0..n."""
    row = np.array([1.0])
    for i in range(n):
        row = np.append(0.0, row) + np.append(i * row, 0.0)
    return row


def log_label_prior(labels, agent_of, n_clusters, alpha, beta) -> float:
    """log p(z) with θ and ψ integrated out exactly, by a sum over all table counts."""
    n_agents = int(agent_of.max()) + 1
    counts = np.zeros((n_agents, n_clusters), dtype=int)
    np.add.at(counts, (agent_of, labels), 1)
    sizes = counts.sum(axis=1)
    constant = (gammaln(beta) - gammaln(beta + sizes)).sum()
    cells = [(i, k) for i in range(n_agents) for k in range(n_clusters) if counts[i, k] > 0]
    terms = []
    for tables in product(*[range(1, counts[cell] + 1) for cell in cells]):
        m = np.zeros(n_clusters)
        log_term = 0.0
        for (i, k), t in zip(cells, tables, strict=True):
            m[k] += t
            log_term += np.log(stirling(counts[i, k])[t]) + t * np.log(beta)
        log_term += gammaln(alpha) - gammaln(alpha + m.sum())
        log_term += (gammaln(alpha / n_clusters + m) - gammaln(alpha / n_clusters)).sum()
        terms.append(log_term)
    return float(constant + logsumexp(terms))


def exact_posterior(entities, n_clusters, noise_scale, coef_scale, alpha, beta):
    """All labelings, (labelings, entities), and their posterior probabilities."""
    layout, agent_of = entities.layout, entities.index.agent_of
    prior = CoefPrior(np.zeros(layout.n_coef), np.full(layout.n_coef, coef_scale))
    labelings = np.array(list(product(range(n_clusters), repeat=len(entities))))
    log_p = []
    for labels in labelings:
        sums = np.zeros((n_clusters, layout.packed_size))
        np.add.at(sums, labels, entities.grams)
        evidence = log_evidence(layout.normal_equations(sums), noise_scale, prior).sum()
        log_p.append(evidence + log_label_prior(labels, agent_of, n_clusters, alpha, beta))
    log_p = np.array(log_p)
    return labelings, np.exp(log_p - logsumexp(log_p))


def labeling_index(labels, n_clusters) -> int:
    """Row of `exact_posterior`'s labelings."""
    return int(sum(int(k) * n_clusters**i for i, k in enumerate(labels[::-1])))
