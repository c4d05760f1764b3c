"""A sweep with effects of entities on all columns against the matrix product that scores the entities once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.blocked import threads_each
from benchmarks.problems import N_CLUSTERS, NOISE_SCALE, entities_of, hierarchy_of
from benchmarks.report import Options, Row, at_most, say, void
from benchmarks.timing import Side, alternate
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.data.hierarchy import Hierarchy
from fedhlcr.datasets import make_hlcr
from fedhlcr.model.mixed import MixedEntityNoise
from fedhlcr.model.mixed_globals import MixedGlobals
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import Stage
from fedhlcr.samplers import blocked
from fedhlcr.samplers.state import ChainState, EntityData, label_law

BOUND = 6
N_FEATURES = 15
# Standard deviation of the effects, and the part of it that all effects of an entity share.
EFFECT_SCALE, SHARED_SCALE = 0.3, 0.2
SETTLING_SWEEPS = 10
BATCH_SECONDS = 1.0
SPEC = ModelSpec(effects="entity")


def run(options: Options) -> list[Row]:
    n_agents = 1_000 if options.quick else 10_000
    hierarchy, labels = _draw_problem(n_agents, options.seed)
    plain = entities_of(hierarchy, options.threads, standardize=True)
    mixed = replace(plain, likelihood=MixedEntityNoise(plain.layout))
    stream = Stream(options.seed)
    plain_state = _plain_start(plain, labels, stream)
    state = _mixed_start(mixed, plain_state, stream)
    score_matrix = np.ascontiguousarray(label_law(plain.likelihood, plain_state.globals, 0).score_rows.T)
    say("effects", f"{len(plain)} entities; {_covariance_of(state)}")

    thread_counts = sorted({1, options.threads})
    sides = []
    for n_threads in thread_counts:
        limited = partial(threadpool_limits, n_threads, user_api="blas")
        sides.append(Side(_chain(replace(mixed, n_threads=n_threads), state, stream)))
        sides.append(Side(lambda: plain.grams @ score_matrix, limited))
    seconds = alternate(*sides, rounds=3 if options.quick else 5, batch_seconds=BATCH_SECONDS)
    rows = []
    for n_threads, sweep, product in zip(thread_counts, seconds[::2], seconds[1::2], strict=True):
        each = f"product {1e6 * product / len(plain):.2f} µs, sweep with effects {1e6 * sweep / len(plain):.2f} µs"
        say("effects", f"time per entity: {each} on {threads_each(n_threads)}")
        what = f"sweep with effects, time over that of the matrix product, {threads_each(n_threads)}"
        row = at_most(what, sweep / product, BOUND)
        # see `benchmarks.blocked`: BLAS on several threads waits for a core
        rows.append(void(row) if product > seconds[1] else row)
    return rows


def _draw_problem(n_agents: int, seed: int) -> tuple[Hierarchy, np.ndarray]:
    """Entities of 10 events on average, whose coefficients differ from their clusters', with correlations."""
    table, truth = make_hlcr(n_agents, 16, 10, N_FEATURES, N_CLUSTERS, NOISE_SCALE, random_state=seed)
    hierarchy = hierarchy_of(table)
    rng, n_entities = np.random.default_rng(seed), hierarchy.index.n_entities
    effects = EFFECT_SCALE * rng.standard_normal((n_entities, N_FEATURES + 1))
    effects += SHARED_SCALE * rng.standard_normal((n_entities, 1))
    own = np.repeat(effects, np.diff(hierarchy.event_start), axis=0)
    y = hierarchy.y + own[:, 0] + (own[:, 1:] * hierarchy.X).sum(axis=1)
    return replace(hierarchy, y=y), truth.labels.astype(np.int32)


def _plain_start(entities: EntityData, labels: np.ndarray, stream: Stream) -> ChainState:
    """A chain of plain clusters that starts at the true labels."""
    return _settled(entities, blocked.state_from_labels(entities, SPEC, labels, N_CLUSTERS, stream), stream)


def _mixed_start(entities: EntityData, plain: ChainState, stream: Stream) -> ChainState:
    """A chain with effects and noise of entities that starts at the clusters of a plain one."""
    likelihood = entities.likelihood
    found = {name: getattr(plain.globals, name) for name in ("coef", "log_weights", "noise_scale")}
    current = replace(likelihood.start(SPEC, N_CLUSTERS), **found, noise_unit=found["noise_scale"])
    agents, sums = blocked.relabel(entities, current, blocked.AgentStates.unlabelled(entities), 0, stream)
    state = ChainState.of(likelihood, 0, agents.labels, sums, current, agents.agent_state)
    return _settled(entities, state.at(Stage.EXACT, likelihood, SPEC), stream)


def _settled(entities: EntityData, state: ChainState, stream: Stream) -> ChainState:
    sweep = _chain(entities, state, stream)
    for _ in range(SETTLING_SWEEPS - 1):
        sweep()
    return sweep()


def _covariance_of(state: ChainState) -> str:
    """Whether the effects are correlated, which takes longer than if they are not."""
    assert isinstance(state.globals, MixedGlobals)
    covariance = state.globals.effect_covariance
    correlated = np.count_nonzero(covariance) > len(covariance)
    return f"effects on {np.count_nonzero(np.diag(covariance))} columns, {'' if correlated else 'not '}correlated"


def _chain(entities: EntityData, state: ChainState, stream: Stream) -> Callable[[], ChainState]:
    """A call that makes one more sweep and returns the new state, as the estimators make it."""

    @single_threaded_blas
    def sweep() -> ChainState:
        nonlocal state
        state = blocked.step(entities, SPEC, state, stream)
        return state

    return sweep
