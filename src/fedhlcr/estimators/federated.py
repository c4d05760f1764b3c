"""Fit a model by a federation in this process, for any target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr._support.wording import AGENT, DRAW, ROUND
from fedhlcr.analysis.fit_comparison import Sample, compare_with_simpler, take_sample
from fedhlcr.data.events import EventStore
from fedhlcr.data.frames import Given
from fedhlcr.data.hierarchy import EntityIndex, Hierarchy
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.engines.ray import RayCluster
from fedhlcr.estimators.parameters import curve_columns, federation_settings, make_curves, model_settings, saved_as
from fedhlcr.estimators.private import check_private, settle_privately, simulate_private
from fedhlcr.estimators.progress import FitClock, RoundProgress
from fedhlcr.estimators.sharing import SharedTable
from fedhlcr.estimators.streamed import StreamedEvents
from fedhlcr.estimators.tables import TableToFit, check_features, missing_policy, thread_count
from fedhlcr.estimators.training import EventsInMemory
from fedhlcr.exceptions import ArgumentError, FitInterruptedWarning, warn_user
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.convergence import in_view_of
from fedhlcr.federation.held_out import HeldOutErrors
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.run import (
    INTERRUPTED,
    Checkpoints,
    Closes,
    EngineFactory,
    run_federation,
    server_for,
    settings_for,
)
from fedhlcr.federation.server import Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.posterior import AgentMemory, Posterior
from fedhlcr.posterior.diagnostics import diagnose
from fedhlcr.posterior.event_rows import UNSCORED, Schema, read_rows
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.samplers.state import EntityData

# Engines by the names that users give them.
ENGINES: dict[str, EngineFactory] = {"in_process": InProcessEngine.from_hierarchy, "ray": RayCluster()}


# Called after each round with whether the history must now have the errors of all rounds, `run_federation`.
Scoring = Callable[[Server, bool], None]
# Rounds that are scored together.
SCORED_AT_ONCE = 16
# About what an entity takes in the index that workers are sent.
BYTES_PER_ENTITY = 100


class FederatedFit(NamedTuple):
    """What a federation ends with."""

    model: FittedModel
    server: Server | PrivateServer


@dataclass(frozen=True)
class Simulation:
    """The agents of a table, which an estimator plays.

    Attributes
    ----------
    engine : has the agents
    index : the agents and entities
    schema, seed : of the fit
    sample : some events to compare models on
    events_in : returns all events in the units of a run, if the likelihood needs events
    """

    engine: Any
    index: EntityIndex
    schema: Schema
    seed: int
    sample: Sample | None = None
    events_in: Callable[[AnyLikelihood, Standardization], EventStore] | None = None


def fit_federated(estimator: Any, table: TableToFit, validation: Any, resume: bool, clock: FitClock) -> FederatedFit:
    """Run the federation that an estimator's parameters ask for, with the agents of a table in memory."""
    settings = _settings(estimator, table)
    assert isinstance(table.data, EventsInMemory)
    hierarchy = table.data.hierarchy
    schema = table.schema
    seed = table.seed
    del table
    _require_cohort(settings, hierarchy.index.n_agents)
    if settings.privacy is not None:
        return _fit_privately(estimator, hierarchy, settings, schema, validation)
    make_engine = _engine_factory(estimator)
    if settings.is_secure and isinstance(make_engine, RayCluster):
        raise ArgumentError("aggregation='secure' needs engine='in_process': a cluster's driver sees its agents.")
    n_threads = thread_count(estimator)
    engine = make_engine(hierarchy, failure_rate=estimator.failure_rate, seed=seed, n_threads=n_threads)
    # from here on only the agents have the events, and only as long as they need them; a simulation plays the
    # agents, so at the end it predicts from their events, and compares models on a sample of these
    events = hierarchy.events if settings.make_likelihood().needs_events else None
    index = hierarchy.index
    sample = take_sample(hierarchy)
    del hierarchy
    simulation = Simulation(engine, index, schema, seed, sample, None if events is None else _converter(events))

    def evaluation() -> Scoring | None:
        if validation is None:
            return None
        return _scoring(_validation(estimator, validation, simulation, events), clock, n_threads)

    return _run(estimator, settings, simulation, evaluation, resume)


def fit_federated_files(estimator: Any, table: TableToFit) -> FederatedFit:
    """Run a federation on a cluster whose workers read the files of a table in a work folder."""
    cluster = cluster_for_files(estimator)
    assert isinstance(table.data, StreamedEvents)
    data = table.data
    shared = SharedTable(data)
    settings = _settings(estimator, table)
    index = data.index
    engine = cluster.engine(index, shared.parts, BYTES_PER_ENTITY * index.n_entities, seed=table.seed)
    needs_events = settings.make_likelihood().needs_events
    events_in = partial(engine.entity_events, data.sorter.event_start) if needs_events else None
    return _run(estimator, settings, Simulation(engine, index, table.schema, table.seed, shared.sample, events_in))


def _engine_factory(estimator: Any) -> EngineFactory:
    return ENGINES[estimator.engine] if isinstance(estimator.engine, str) else estimator.engine


def cluster_for_files(estimator: Any) -> RayCluster:
    """The cluster whose workers read files; refuse settings that need the table in one process."""
    cluster = _engine_factory(estimator)
    if not isinstance(cluster, RayCluster):
        raise ArgumentError("`fit_files` of a federation needs engine='ray'; otherwise pass the table to `fit`.")
    private = getattr(estimator, "privacy", None) is not None
    if private or estimator.aggregation == "secure" or estimator.failure_rate:
        raise ArgumentError(
            "`privacy`, aggregation='secure' and `failure_rate` need engine='in_process' and a table in memory; "
            "leave them out, or pass the table to `fit`."
        )
    return cluster


def _run(
    estimator: Any,
    settings: FederationSettings,
    simulation: Simulation,
    evaluation: Callable[[], Scoring | None] = lambda: None,
    resume: bool = False,
) -> FederatedFit:
    """Run the federation, and find everything that follows from it."""
    engine = simulation.engine
    settings = settings_for(settings, engine)
    checkpoints = (
        None if estimator.checkpoint is None else Checkpoints(estimator.checkpoint, estimator.checkpoint_every)
    )
    try:
        evaluate = evaluation()
        if checkpoints is None or not resume:
            server = server_for(settings, engine)
        else:
            server = checkpoints.resume(settings, engine)
        with RoundProgress(settings.rounds, estimator.verbose) as progress:
            run_federation(server, engine, checkpoints=checkpoints, evaluate=evaluate, progress=progress)
        model = with_diagnostics(replace(_settled(estimator, server, simulation), **_history(server, simulation)))
    finally:
        if isinstance(engine, Closes):
            engine.close()
    comparison = compare_with_simpler(model.posterior_, simulation.sample)
    model.posterior_.memory.release()
    return FederatedFit(replace(model, comparison_=comparison), server)


def _settings(estimator: Any, table: TableToFit) -> FederationSettings:
    n_features = table.data.shape().n_features
    names = table.schema.feature_names
    columns = curve_columns(estimator.curves, n_features, names)
    if columns and not isinstance(estimator.curves, str):
        # refuse columns that cannot have a curve before the run, as a centralised fit does
        make_curves(estimator.curves, columns, table.data.quantiles(columns), names)
    limits = ReplyLimits() if estimator.limits is None else estimator.limits
    if table.is_weighted:
        limits = replace(limits, min_events_per_entity=0.0)
    own = federation_settings(estimator) | {"limits": limits, "curves": tuple(columns)}
    own["likelihood"] = estimator.family.likelihood or own["likelihood"]
    return FederationSettings(GramLayout(n_features, table.fits_intercept), seed=table.seed, **own)


def _fit_privately(
    estimator: Any, hierarchy: Hierarchy, settings: FederationSettings, schema: Schema, validation: Any
) -> FederatedFit:
    """Run a federation under differential privacy. Nothing public is computed from anything but noisy sums."""
    check_private(estimator, validation)
    with RoundProgress(settings.most_rounds, estimator.verbose) as progress:
        server, agents = simulate_private(
            hierarchy,
            settings,
            failure_rate=estimator.failure_rate,
            n_threads=thread_count(estimator),
            progress=progress,
        )
    simulation = Simulation(agents, hierarchy.index, schema, settings.seed)
    model = settle_privately(estimator, _posterior(estimator, server, simulation), server, schema)
    return FederatedFit(replace(model, **_history(server, simulation)), server)


def _validation(estimator: Any, validation: Any, simulation: Simulation, events: EventStore | None) -> HeldOutErrors:
    if not isinstance(validation, tuple) or not 2 <= len(validation) <= 5:
        raise ArgumentError(
            "`validation` must be a tuple (X, y), (X, y, agent) or (X, y, agent, entity); for counts the exposure "
            "may come behind these."
        )
    X, y, agent, entity, exposure = (*validation, None, None, None)[:5]
    rows = read_rows(
        simulation.schema,
        simulation.index,
        Given(X, y, agent, entity, exposure=exposure),
        UNSCORED,
        missing=missing_policy(estimator),
        target=True,
        check=partial(check_features, estimator),
    ).required()
    engine = simulation.engine
    return HeldOutErrors(engine, simulation.index, rows.matrix, rows.target, rows.profiles, events, rows.offset)


def _scoring(validation: HeldOutErrors, clock: FitClock, n_threads: int) -> Scoring:
    """Writes the errors of rounds to the history, some at a time, and has the clock count that as scoring."""

    def score(server: Server, now: bool) -> None:
        if server.has_draws:
            validation.note(server)
        if now or validation.n_noted >= SCORED_AT_ONCE:
            with clock.scoring():
                server.history.set_validation(validation.errors(server, n_threads))

    return score


def _posterior(estimator: Any, server: Server | PrivateServer, simulation: Simulation) -> Posterior:
    """The public draws, and every agent's labels under them."""
    model = server.model()
    grams = simulation.engine.entity_grams(server.run, model.layout, model.standardization)
    events_in = simulation.events_in
    events = None if events_in is None else events_in(model.likelihood, model.standardization)
    entities = EntityData(model.likelihood, simulation.index, grams, thread_count(estimator), events)
    memory = AgentMemory.from_draws(entities, model.draws, Stream(simulation.seed, ReservedChain.PREDICTION))
    memory.release()
    return Posterior(model.likelihood, model.standardization, model.draws, memory)


def _settled(estimator: Any, server: Server, simulation: Simulation) -> FittedModel:
    settings = model_settings(estimator)
    posterior = _posterior(estimator, server, simulation)
    return FittedModel.settled(saved_as(estimator), settings, simulation.schema, simulation.seed, posterior)


def _history(server: Server | PrivateServer, simulation: Simulation) -> dict[str, Any]:
    """The rounds of a federation, and why it ended, as fields of its model."""
    index = simulation.index
    # the agents' ids as the user wrote them, in the server's order
    ids = dict(zip(index.agents.texts, index.agent_ids, strict=True))
    names = np.empty(len(server.registry), dtype=object)
    names[:] = [ids[name] for name in server.registry.names]
    kept = {draw.round for draw in server.kept_draws}
    return {"history_": server.history.table(names, kept), "stop_reason_": server.stop_reason}


def with_diagnostics(model: FittedModel) -> FittedModel:
    """The same model with its diagnostics; its run has "converged" only if R-hat agrees."""
    diagnostics = diagnose(model.posterior_)
    stop_reason = None if model.stop_reason_ is None else in_view_of(str(model.stop_reason_), diagnostics)
    return replace(model, diagnostics_=diagnostics, stop_reason_=stop_reason)


def warn_of_interruption(model: FittedModel, server: Server | PrivateServer) -> None:
    """Warn of a run that was interrupted."""
    if server.stop_reason == INTERRUPTED:
        warn_user(
            f"The run was interrupted after {server.round} of at most {ROUND.count(server.settings.most_rounds)}; "
            f"the model uses the {DRAW.count(len(model.posterior_.draws))} kept so far.",
            FitInterruptedWarning,
        )


def _converter(events: EventStore) -> Callable[[AnyLikelihood, Standardization], EventStore]:
    return lambda likelihood, units: likelihood.events_in(events, units)


def _require_cohort(settings: FederationSettings, n_agents: int) -> None:
    """Refuse a run under secure aggregation in which no round could ever succeed."""
    n_asked = max(1, round(settings.participation * n_agents))
    if settings.is_secure and n_asked < settings.min_cohort:
        raise ArgumentError(
            f"`min_cohort` is {settings.min_cohort}, but {n_asked} of {AGENT.count(n_agents)} are asked in a round; "
            "raise `participation`, add agents, or lower `min_cohort` (at least 3)."
        )
