"""Fit under differential privacy in this process: what is refused, the run, and attributes that reveal nothing more."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from fedhlcr.data.hierarchy import Hierarchy
from fedhlcr.estimators.parameters import model_settings, saved_as
from fedhlcr.exceptions import ArgumentError, DataWarning, warn_user
from fedhlcr.federation.history import RoundRecord
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.run import AgentsHere, run_private
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.posterior import Posterior, alignment
from fedhlcr.posterior.event_rows import Schema
from fedhlcr.posterior.fitted_model import FittedModel

logger = logging.getLogger(__name__)
# Whether a fit prints its plan. Only whoever shows the plan in another way may switch it off.
_prints_plan = ContextVar("_prints_plan", default=True)


def check_private(estimator: Any, validation: Any) -> None:
    """Refuse what a private fit cannot do."""
    if validation is not None:
        raise ArgumentError(
            "`validation` would release errors of each round without noise; with `privacy`, leave it out and score "
            "the fitted model with events of your own."
        )
    if estimator.checkpoint is not None:
        raise ArgumentError(
            "`checkpoint` is not supported with `privacy`: a run that went on from an older file would release sums "
            "that the plan does not count. Leave it out."
        )
    if estimator.engine != "in_process":
        raise ArgumentError(
            "`privacy` needs engine='in_process'; other engines of an estimator cannot carry private rounds. On "
            "Flower, start a run with `epsilon`."
        )
    for name in ("noise_scale", "coef_scale"):
        if not isinstance(getattr(estimator, name), str):
            raise ArgumentError(f"`{name}` cannot be fixed together with `privacy`; leave it at 'learn'.")


@contextmanager
def plan_shown_already() -> Iterator[None]:
    """Let fits not print their plan, because it was shown before."""
    token = _prints_plan.set(False)
    try:
        yield
    finally:
        _prints_plan.reset(token)


def simulate_private(
    hierarchy: Hierarchy,
    settings: FederationSettings,
    *,
    failure_rate: float,
    n_threads: int,
    progress: Callable[[RoundRecord], None],
) -> tuple[PrivateServer, PrivateAgents]:
    """Show what the run will cost, then run it."""
    assert settings.privacy is not None
    plan = settings.privacy.plan(hierarchy.index.n_agents)
    logger.info("%s", plan)
    if _prints_plan.get():
        print(plan, file=sys.stderr)
    if plan.warning:
        warn_user(plan.warning, DataWarning)
    agents = PrivateAgents(AgentShard.from_hierarchy(hierarchy, n_threads), n_threads=n_threads)
    server = PrivateServer(settings, plan, agents.names)
    run_private(server, AgentsHere.of(server, agents, failure_rate=failure_rate), progress=progress)
    if server.warning:
        warn_user(server.warning, DataWarning)
    return server, agents


def settle_privately(estimator: Any, posterior: Posterior, server: PrivateServer, schema: Schema) -> FittedModel:
    """The model of a run. What a public file holds of it follows from noisy sums alone.

    It has no diagnostics, and no comparison with simpler models: they would be computed from events.
    """
    units = posterior.standardization
    n_inputs = posterior.layout.n_inputs
    found = isinstance(estimator.n_clusters, str)
    return FittedModel(
        saved_as(estimator),
        model_settings(estimator),
        schema,
        server.settings.seed,
        posterior,
        alignment.align(posterior.draws, server.second_moments, drop_empty=found),
        feature_means_=units.shift[:n_inputs].copy(),
        feature_spreads_=np.where(np.isfinite(units.scale), units.scale, 0.0)[:n_inputs],
        privacy_=server.plan,
    )
