"""Do the chains agree? R-hat and effective sample size of quantities that relabelling does not change.

Rank-normalised split R-hat and bulk effective sample size after Vehtari, Gelman, Simpson, Carpenter
and Bürkner, "Rank-normalization, folding, and localization" (2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.special import ndtri
from fedhlcr._support.wording import listed
from fedhlcr.posterior.prediction import Posterior, Profiles

# Above this R-hat, chains are reported to disagree.
R_HAT_LIMIT = 1.1
# Number of entities whose predictions are compared.
N_PROBES = 32


class Diagnostic(NamedTuple):
    """R-hat (near 1 when chains agree) and effective number of independent draws of one quantity."""

    quantity: str
    r_hat: float
    effective_size: float

    @property
    def text(self) -> str:
        """R-hat with two decimals, or with as many as it takes to show that it is above the limit."""
        texts = [f"{self.r_hat:.{n}f}" for n in (2, 3, 4, 5)]
        return next((text for text in texts if (float(text) > R_HAT_LIMIT) == (self.r_hat > R_HAT_LIMIT)), texts[0])


def all_agree(diagnostics: Sequence[Diagnostic]) -> bool:
    """Whether R-hat of every quantity is known and within the limit."""
    return bool(diagnostics) and all(d.r_hat <= R_HAT_LIMIT for d in diagnostics)


def disagreement(diagnostics: Sequence[Diagnostic]) -> str:
    """The quantities whose R-hat is above the limit, as every output writes them: "predictions 1.65"; empty if none."""
    return listed([f"{d.quantity} {d.text}" for d in diagnostics if d.r_hat > R_HAT_LIMIT])


def diagnose(posterior: Posterior) -> tuple[Diagnostic, ...]:
    """Diagnose the log joint, traced scales, and predictions for some entities, of which the median is returned.

    With effects, chains may agree in what they predict and differ in which effects they have switched on; then neither
    the log joint nor the noise can be compared.
    """
    draws = posterior.draws
    watched = {"log joint": draws.log_joint}
    watched |= {q.words: draws.stacked.traced_value(q) for q in draws.stacked.traced_scales()}
    if posterior.likelihood.has_stages:
        watched = {}
    values = np.column_stack([*watched.values(), _probe_predictions(posterior)])
    n_chains = int(draws.chain.max()) + 1
    shortest = min(int((draws.chain == chain).sum()) for chain in range(n_chains))
    chains = np.stack([values[draws.chain == chain][-shortest:] for chain in range(n_chains)])
    figures = [(r_hat(chains[:, :, q]), effective_size(chains[:, :, q])) for q in range(values.shape[1])]
    names = list(watched)
    probe_figures = np.median(np.array(figures[len(names) :]), axis=0)
    return (
        *(Diagnostic(name, *figure) for name, figure in zip(names, figures, strict=False)),
        Diagnostic("predictions", float(probe_figures[0]), float(probe_figures[1])),
    )


def _probe_predictions(posterior: Posterior) -> FloatArray:
    """(draws, probes) each draw's prediction for some entities, at the mean x of each."""
    store = posterior.memory.entities
    entities = np.unique(np.linspace(0, len(store) - 1, N_PROBES).astype(np.int64))
    profiles = Profiles.of(store.index.agent_of[entities], entities)
    weights = posterior.label_weights(profiles.agents, profiles.entities)
    normal = store.grams[profiles.entities]
    means = posterior.layout.unpack(normal)[:, 0, posterior.layout.first_regressor : -1] / normal[:, :1]
    return np.einsum("pdk,dkc,pc->dp", weights, posterior.draws.coef, means)


def r_hat(chains: FloatArray) -> float:
    """Rank-normalised split R-hat of (chains, draws); NaN with fewer than four draws per chain."""
    halves = _split(chains)
    if halves is None:
        return float("nan")
    folded = np.abs(halves - np.median(halves))
    return max(_plain_r_hat(_rank_normalize(halves)), _plain_r_hat(_rank_normalize(folded)))


def effective_size(chains: FloatArray) -> float:
    """Bulk effective sample size of (chains, draws); NaN with fewer than four draws per chain."""
    halves = _split(chains)
    if halves is None:
        return float("nan")
    z = _rank_normalize(halves)
    n_chains, n_draws = z.shape
    if np.ptp(z) == 0.0:
        return float(n_chains * n_draws)
    within = z.var(axis=1, ddof=1).mean()
    total = within * (n_draws - 1) / n_draws + z.mean(axis=1).var(ddof=1)
    correlation = 1.0 - (within - _autocovariance(z).mean(axis=0) * n_draws / (n_draws - 1)) / total
    correlation[0] = 1.0
    # Geyer's initial monotone sequence: sums of neighbouring pairs until one is not positive, made non-increasing
    pairs = correlation[: n_draws // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else len(pairs)
    time = -1.0 + 2.0 * np.minimum.accumulate(pairs[:stop]).sum()
    return float(n_chains * n_draws / max(time, 1.0 / np.log10(n_chains * n_draws)))


def _split(chains: FloatArray) -> FloatArray | None:
    half = chains.shape[1] // 2
    return None if half < 2 else np.concatenate([chains[:, :half], chains[:, -half:]])


def _rank_normalize(values: FloatArray) -> FloatArray:
    # imported here, because it takes half a second to import
    from scipy.stats import rankdata

    ranks = rankdata(values).reshape(values.shape)
    return ndtri((ranks - 0.375) / (values.size + 0.25))


def _plain_r_hat(halves: FloatArray) -> float:
    n_draws = halves.shape[1]
    within = halves.var(axis=1, ddof=1).mean()
    if within == 0.0:
        return 1.0 if np.ptp(halves) == 0.0 else float("inf")
    between = halves.mean(axis=1).var(ddof=1)
    return float(np.sqrt((n_draws - 1) / n_draws + between / within))


def _autocovariance(chains: FloatArray) -> FloatArray:
    """(chains, lags), biased, by the fast Fourier transform."""
    n_draws = chains.shape[1]
    spectrum = np.fft.rfft(chains - chains.mean(axis=1, keepdims=True), 2 * n_draws, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n_draws] / n_draws
