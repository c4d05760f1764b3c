"""Draws of a fitted model as ArviZ takes them: groups of variables by chain and draw, with named axes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.extras import missing_extra
from fedhlcr._support.wording import free_name
from fedhlcr.analysis.effects import feature_names, regressions_by_draw, scales_by_draw
from fedhlcr.analysis.tables import INTERCEPT
from fedhlcr.model.counts import CountGlobals
from fedhlcr.model.schema import COEF
from fedhlcr.posterior.alignment import by_cluster_and_draw
from fedhlcr.posterior.draws import Draws
from fedhlcr.posterior.fitted_model import FittedModel

# Names of axes.
CHAIN = "chain"
DRAW = "draw"
CLUSTER = "cluster"
FEATURE = "feature"
EFFECT = "effect"
COEFFICIENT = "coefficient"
EVENT = "event"
# Below this number of entities a cluster is empty.
SOME = 0.5


class Variable(NamedTuple):
    """A variable: names of its axes, the first of which may be `DRAW`, and its values."""

    dims: tuple[str, ...]
    values: NDArray[Any]


Group = dict[str, Variable]


def kept_draws(draws: Draws) -> IndexArray:
    """(chains, draws) positions of the draws to export: of each chain the last ones, as many as the shortest has."""
    chains = [np.flatnonzero(draws.chain == chain) for chain in range(int(draws.chain.max()) + 1)]
    shortest = min(len(own) for own in chains)
    return np.stack([own[-shortest:] for own in chains])


def posterior_group(model: FittedModel) -> Group:
    """All that the draws say of the clusters and of the scales, in the user's units; the first axis is that of draws.

    Cluster k is that of `coef_`. Coefficients of a draw in which the cluster is empty say nothing about it: they are
    NaN. If it is empty in all draws, they are draws from its prior.
    """
    draws = model.posterior_.draws
    aligned = model.alignment_
    drawn = regressions_by_draw(model)
    unknown = (drawn.mass < SOME) & ((drawn.mass >= SOME).any(axis=0) | (drawn.mass == 0.0))
    group = {
        "coef": Variable((DRAW, CLUSTER, FEATURE), np.where(unknown[..., None], np.nan, drawn.slopes)),
        "intercept": Variable((DRAW, CLUSTER), np.where(unknown, np.nan, drawn.intercepts)),
        "cluster_weights": Variable((DRAW, CLUSTER), aligned.by_draw(np.exp(draws.log_weights))),
        "cluster_sizes": Variable((DRAW, CLUSTER), aligned.by_draw(draws.entity_counts)),
    }
    if not model.posterior_.layout.fit_intercept:
        del group["intercept"]
    return {**group, **_quantities(model, unknown), **_effect_scales(model)}


def _quantities(model: FittedModel, unknown: NDArray[np.bool_]) -> Group:
    """The quantities of the likelihood that models have as attributes, such as noise and concentrations."""
    posterior = model.posterior_
    group = {}
    draws = posterior.draws
    target_scale = float(posterior.standardization.scale[-1])
    for q in draws.stacked.quantities():
        values = np.asarray(getattr(draws.stacked, q.name))
        if q.name in ("coef", "log_weights") or not q.attribute:
            continue
        if q.axes[-1:] == (COEF,):
            values = values[..., : posterior.layout.n_linear]
        dims = (DRAW, *(COEFFICIENT if axis == COEF else CLUSTER for axis in q.axes))
        if q.by_cluster:
            flat = values.reshape(*values.shape[:2], -1)
            aligned, _ = by_cluster_and_draw(draws, model.alignment_, flat)
            values = np.where(unknown[..., None], np.nan, aligned).reshape(*unknown.shape, *values.shape[2:])
        # an infinite shape means that there is none
        if not np.isinf(values).any():
            group[q.name] = Variable(dims, q.reported(values, target_scale))
    if isinstance(draws.stacked, CountGlobals):
        group["dispersion"] = Variable((DRAW,), np.exp(-np.asarray(draws.stacked.log_size_centre)))
    return group


def _effect_scales(model: FittedModel) -> Group:
    found = model.posterior_.likelihood.differences(model.posterior_.draws.stacked)
    if found is None:
        return {}
    of_entities, of_agents = scales_by_draw(model, found)
    both = {"effect_scales": of_entities, "agent_effect_scales": of_agents}
    return {name: Variable((DRAW, EFFECT), values) for name, values in both.items() if values.any()}


def stats_group(model: FittedModel) -> Group:
    """The log joint, and the number of clusters with entities."""
    draws = model.posterior_.draws
    return {
        "lp": Variable((DRAW,), draws.log_joint),
        "n_clusters": Variable((DRAW,), (draws.entity_counts > 0).sum(axis=1)),
    }


def coordinates(model: FittedModel) -> dict[str, Any]:
    """Names along the axes; those of events are the numbers of their rows."""
    names = feature_names(model)
    layout = model.posterior_.layout
    constant = [free_name(INTERCEPT, names)] if layout.fit_intercept else []
    return {
        CLUSTER: np.arange(model.n_clusters_),
        FEATURE: names,
        EFFECT: [free_name("level", names), *names],
        COEFFICIENT: [*constant, *names],
    }


def to_arviz(model: FittedModel, groups: dict[str, Group], facts: dict[str, str]) -> Any:
    """Groups as an `InferenceData`; as a `DataTree` with ArviZ 1, which has no `InferenceData`.

    Parameters
    ----------
    groups : by name; variables with an axis of draws have all draws that are exported, one chain after another
    facts : attributes of all groups
    """
    try:
        import arviz
        import xarray
    except ImportError as missing:
        raise missing_extra("to_inference_data needs ArviZ", "arviz") from missing

    shape = kept_draws(model.posterior_.draws).shape
    names = coordinates(model)

    def dataset(group: Group) -> Any:
        variables: dict[str, Any] = {}
        sizes: dict[str, int] = {}
        for name, (dims, values) in group.items():
            own = np.asarray(values)
            if dims[0] == DRAW:
                own = own.reshape(*shape, *own.shape[1:])
                dims = (CHAIN, *dims)
            variables[name] = (dims, own)
            sizes.update(zip(dims, own.shape, strict=True))
        return xarray.Dataset(variables, {dim: names.get(dim, np.arange(size)) for dim, size in sizes.items()}, facts)

    datasets = {name: dataset(group) for name, group in groups.items() if group}
    if hasattr(arviz, "InferenceData"):
        return arviz.InferenceData(**datasets)
    return xarray.DataTree.from_dict(datasets)


def chosen(group: Group, draws: IndexArray) -> Group:
    """Variables of all draws, cut to some of them."""
    return {name: Variable(dims, np.asarray(values)[draws]) for name, (dims, values) in group.items()}


def event_groups(draws: tuple[FloatArray, FloatArray], observed: NDArray[Any], constant: Group) -> dict[str, Group]:
    """Groups of events: log likelihoods and new targets (draws, events), the targets, and what they depend on."""
    log_likelihood, predictive = draws
    return {
        "log_likelihood": {"y": Variable((DRAW, EVENT), log_likelihood)},
        "posterior_predictive": {"y": Variable((DRAW, EVENT), predictive)},
        "observed_data": {"y": Variable((EVENT,), observed)},
        "constant_data": constant,
    }
