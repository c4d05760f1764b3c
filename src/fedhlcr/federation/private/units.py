"""Units of a private run: four noisy sums tell where columns lie, how far they spread and how they correlate.

    votes      each agent votes for the power of two of its mean of each column, and of its number of events
    locations  each agent votes for one of a grid of places of its mean, between the limits that the votes gave
    spreads    each agent votes for the power of two of its root mean square around the place
    moments    each agent sends its matrix of second moments, in units of these places and spreads

A vote is a one among zeros. An agent has one vote for each column, so its vector has the same norm whatever its data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.checks import finite, positive
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.storage.records import stored

# Powers of two that can be voted for.
LEAST_EXPONENT = -60
MOST_EXPONENT = 60
N_EXPONENTS = MOST_EXPONENT - LEAST_EXPONENT + 1
# Noise looks like votes; votes for 2^15 and 2^-15 need to stand out by a standard deviation more than those for 1.
USUAL_EXPONENTS = 15.0
# Numbers of events are voted for in powers of two.
N_SIZES = 30
# The grid of places, and how many of its cells are looked at together first.
N_CELLS = 256
CELLS_TOGETHER = 16
# An agent with more events than this share of the agents counts as if it had so many.
CAP_SHARE = 0.8
# The number of events that counts is at most this multiple of that of a typical agent.
MOST_TYPICAL = 1.1
# The norm at which moments are clipped, in multiples of that of uncorrelated columns.
MOMENT_CLIP = 1.5


@dataclass(frozen=True)
class AgentMoments:
    """What agents know of their own columns.

    Attributes
    ----------
    n_events : (agents,)
    means : (agents, columns) of features and target
    grams : (agents, packed) augmented Gram matrices around these means
    """

    n_events: FloatArray
    means: FloatArray
    grams: FloatArray


def _one_hot(choice: NDArray[np.int64], size: int, present: NDArray[np.bool_]) -> FloatArray:
    """(agents, columns · size) votes; an agent without events does not vote."""
    votes = (choice[..., None] == np.arange(size)) & present[:, None, None]
    return votes.reshape(len(choice), -1).astype(np.float64)


def _exponents(values: FloatArray) -> NDArray[np.int64]:
    """Position of ⌊log2 |value|⌋ among the powers that can be voted for; values near zero count as the least."""
    with np.errstate(divide="ignore"):
        powers = np.floor(np.log2(np.abs(values)))
    return (np.clip(powers, LEAST_EXPONENT, MOST_EXPONENT) - LEAST_EXPONENT).astype(np.int64)


def votes(own: AgentMoments) -> FloatArray:
    """(agents, size) votes for sign and power of two of each column's mean, and for the number of events."""
    present = own.n_events > 0
    n_columns = own.means.shape[1]
    signed = np.where(own.means < 0, 0, N_EXPONENTS) + _exponents(own.means)
    sizes = np.clip(np.floor(np.log2(np.maximum(own.n_events, 1.0))), 0, N_SIZES - 1).astype(np.int64)
    cast = np.column_stack([_one_hot(signed, 2 * N_EXPONENTS, present), _one_hot(sizes[:, None], N_SIZES, present)])
    return cast / np.sqrt(n_columns + 1)


def _doubt() -> FloatArray:
    """(exponents,) how far votes for a power of two must stand out, in standard deviations: more for unusual ones."""
    return np.abs(np.arange(LEAST_EXPONENT, MOST_EXPONENT + 1)) / USUAL_EXPONENTS


def votes_size(n_columns: int) -> int:
    return n_columns * 2 * N_EXPONENTS + N_SIZES


@dataclass(frozen=True)
class Limits:
    """What the votes tell: limits of the columns' means, (columns,) each, and the number of events that counts.

    `are_clear` says whether votes for every column stand out of the noise.
    """

    low: FloatArray = stored("f8", "columns", possible=finite)
    high: FloatArray = stored("f8", "columns", possible=finite)
    most_events: float = stored(float, possible=positive)
    are_clear: bool = True


def read_votes(total: FloatArray, n_columns: int, noise_scale: float) -> Limits:
    """Limits from noisy votes. `noise_scale` is in units of the clip."""
    counts = total * np.sqrt(n_columns + 1)
    noise = noise_scale * np.sqrt(n_columns + 1)
    powers = 2.0 ** np.arange(LEAST_EXPONENT, MOST_EXPONENT + 1)
    lower = np.concatenate([-2 * powers, powers])
    upper = np.concatenate([-powers, 2 * powers])
    # the least power stands for everything nearer to zero
    upper[0] = 0.0
    lower[N_EXPONENTS] = 0.0
    columns = counts[:-N_SIZES].reshape(n_columns, -1) - noise * np.tile(_doubt(), 2)
    chosen = columns >= np.minimum(4.0 * noise, columns.max(axis=1))[:, None]
    low = np.where(chosen, lower, np.inf).min(axis=1)
    high = np.where(chosen, upper, -np.inf).max(axis=1)
    sizes = counts[-N_SIZES:]
    sizes = np.where(sizes >= min(4.0 * noise, sizes.max()), np.maximum(sizes, 1.0), 0.0)
    cap = np.searchsorted(np.cumsum(sizes), CAP_SHARE * sizes.sum())
    are_clear = bool((columns.max(axis=1) >= 4.0 * noise).all())
    return Limits(low, high, float(2.0 ** (cap + 1)), are_clear)


def locations(own: AgentMoments, limits: Limits) -> FloatArray:
    """(agents, size) votes for the cell of the grid that holds an agent's mean."""
    width = np.maximum(limits.high - limits.low, 1e-300)
    cells = np.clip(np.floor((own.means - limits.low) / width * N_CELLS), 0, N_CELLS - 1).astype(np.int64)
    return _one_hot(cells, N_CELLS, own.n_events > 0) / np.sqrt(own.means.shape[1])


def read_locations(total: FloatArray, limits: Limits, noise_scale: float) -> FloatArray:
    """(columns,) places: the median of the votes, among groups of cells, then within the group if a cell stands out."""
    n_columns = len(limits.low)
    counts = total.reshape(n_columns, N_CELLS) * np.sqrt(n_columns)
    noise = noise_scale * np.sqrt(n_columns)
    places = np.empty(n_columns)
    for column, own in enumerate(counts):
        together = own.reshape(-1, CELLS_TOGETHER).sum(axis=1)
        group = _median(together, noise * np.sqrt(CELLS_TOGETHER))
        cells = own[group * CELLS_TOGETHER : (group + 1) * CELLS_TOGETHER]
        place = (group + 0.5) * CELLS_TOGETHER
        if cells.max() > 4.0 * noise:
            place = group * CELLS_TOGETHER + _median(cells, noise) + 0.5
        places[column] = limits.low[column] + (limits.high[column] - limits.low[column]) * place / N_CELLS
    return places


def _median(counts: FloatArray, noise: float) -> int:
    """The median position of votes, of which only those that stand out of the noise count."""
    weight = np.where(counts > 2.0 * noise, counts, 0.0)
    if not weight.any():
        return int(counts.argmax())
    return int(np.searchsorted(np.cumsum(weight), 0.5 * weight.sum()))


def spreads(own: AgentMoments, layout: GramLayout, places: FloatArray) -> FloatArray:
    """(agents, size) votes for the power of two of each column's root mean square around its place."""
    n_events = np.maximum(own.n_events, 1e-300)[:, None]
    squares = layout.diagonal(own.grams)[:, 1:] / n_events + (own.means - places) ** 2
    cast = _one_hot(_exponents(np.sqrt(squares)), N_EXPONENTS, own.n_events > 0)
    return cast / np.sqrt(own.means.shape[1])


def read_spreads(total: FloatArray, n_columns: int, noise_scale: float) -> FloatArray:
    """(columns,) scales; 1 for a column that does not vary."""
    noise = noise_scale * np.sqrt(n_columns)
    counts = total.reshape(n_columns, N_EXPONENTS) * np.sqrt(n_columns) - noise * _doubt()
    positions = np.array([_median(own, noise) for own in counts])
    scales = 2.0 ** (positions + LEAST_EXPONENT + 0.5)
    return np.where(positions == 0, 1.0, scales)


def moments(own: AgentMoments, layout: GramLayout, units: Standardization, most_events: float) -> FloatArray:
    """(agents, size) second moments of (1, x, y) in the given units, weighted by the events that count.

    Entries off the diagonal count twice in the norm of a matrix. The last number is the square of the weight.
    """
    weight = np.minimum(own.n_events / most_events, 1.0)
    offset = (own.means - units.shift) / units.scale
    inverse = np.concatenate([[1.0], 1.0 / units.scale])
    full = layout.unpack(own.grams) * np.outer(inverse, inverse) / np.maximum(own.n_events, 1e-300)[:, None, None]
    around = np.concatenate([np.ones((len(offset), 1)), offset], axis=1)
    full[:, 0, 1:] = 0.0
    full[:, 1:, 0] = 0.0
    full[:, 0, 0] = 0.0
    full += around[:, :, None] * around[:, None, :]
    packed = layout.pack(full) * _multiplicity(layout) * weight[:, None]
    return np.column_stack([packed, weight**2]) / moment_clip(layout)


def moment_clip(layout: GramLayout) -> float:
    return MOMENT_CLIP * float(np.sqrt(layout.width))


def moments_size(layout: GramLayout) -> int:
    return layout.packed_size + 1


def _multiplicity(layout: GramLayout) -> FloatArray:
    """(packed,) √2 off the diagonal, so that the norm of the packed matrix is that of the full one."""
    return np.where(layout.pack(np.eye(layout.width)) > 0, 1.0, np.sqrt(2.0))


@dataclass(frozen=True)
class PrivateUnits:
    """The units of a run, from noisy sums.

    Attributes
    ----------
    standardization : shift and scale of all columns
    second_moments : (n_coef, n_coef) of the regressors in these units; positive definite
    typical_events : events of a typical agent
    most_events : events with which a larger agent counts
    """

    standardization: Standardization
    second_moments: FloatArray
    typical_events: float
    most_events: float


def read_moments(
    total: FloatArray, layout: GramLayout, units: Standardization, most_events: float, noise_scale: float
) -> PrivateUnits:
    """Refine the units, and estimate the second moments in them."""
    clip = moment_clip(layout)
    sums = layout.unpack(total[:-1] / _multiplicity(layout)) * clip
    # noise must not make the number of agents vanish
    weight = max(sums[0, 0], 2.0 * noise_scale * clip, 1e-9)
    typical = most_events * float(np.clip(total[-1] * clip / weight, 0.05, 1.0))
    means = sums[0, 1:] / weight
    squares = sums[1:, 1:] / weight
    error = noise_scale * clip / weight
    means = np.clip(means, -2.0, 2.0)
    if not layout.fit_intercept:
        means = np.zeros_like(means)
    covariance = squares - np.outer(means, means)
    variances = np.clip(np.diag(covariance), max(0.02, error), 8.0)
    spread = np.sqrt(variances)
    correlation = covariance / np.outer(spread, spread)
    np.fill_diagonal(correlation, 1.0)
    whole = np.eye(layout.width - 1)
    whole[1:, 1:] = correlation[:-1, :-1]
    values, vectors = np.linalg.eigh(whole[layout.first_regressor :, layout.first_regressor :])
    least = max(0.02, 2.0 * error * np.sqrt(layout.n_coef))
    moments_in_units = (vectors * np.clip(values, least, None)) @ vectors.T
    refined = Standardization(units.shift + units.scale * means, units.scale * spread)
    return PrivateUnits(refined, moments_in_units, typical, min(most_events, MOST_TYPICAL * typical))
