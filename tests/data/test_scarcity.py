"""Warnings about tables that are too small or too plain."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fedhlcr import FedHLCRRegressor, HLCRRegressor
from fedhlcr.cli.shell import option_text
from fedhlcr.data.scarcity import TableShape, find_scarcity
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import DataWarning
from fedhlcr.federation import FederationSettings, GramLayout, Server
from fedhlcr.federation.run import run_federation
from tests.federations import in_process

GOOD = TableShape(n_events=60, n_entities=12, n_features=3, target_varies=True)
ONE_EVENT, CONSTANT, FEW_ENTITIES, MANY_FEATURES = "only one event", "same value", "only 4 entities", "more features"
ONE_AGENT = "one agent"


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (GOOD, []),
        (GOOD._replace(n_features=60), []),
        (GOOD._replace(n_features=61), [MANY_FEATURES]),
        (GOOD._replace(target_varies=False), [CONSTANT]),
        (GOOD._replace(n_entities=5), []),
        (GOOD._replace(n_entities=4), [FEW_ENTITIES]),
        (GOOD._replace(n_entities=60), [ONE_EVENT]),
        (GOOD._replace(n_entities=60, has_entity_ids=False), []),
        (GOOD._replace(n_events=4, n_entities=4), [FEW_ENTITIES]),
        (GOOD._replace(lacks_agents=True), [ONE_AGENT]),
        (GOOD._replace(n_entities=4, n_features=99, target_varies=False), [CONSTANT, MANY_FEATURES, FEW_ENTITIES]),
    ],
)
def test_each_weakness_has_its_warning(shape, said):
    found = [str(warning) for warning in find_scarcity(shape)]
    assert len(found) == len(said)
    assert all(words in text for words, text in zip(said, found, strict=True))


def test_advice_names_the_option_on_the_command_line():
    (warning,) = find_scarcity(GOOD._replace(n_entities=60))
    assert "Check that entity is" in str(warning)
    assert "Check that --entity is" in warning.worded(option_text)


def table(n_entities, n_events, n_features):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n_entities * n_events, n_features))
    entity = np.repeat(np.arange(n_entities), n_events)
    return X, X[:, 0] + rng.normal(size=len(X)), entity % 2, entity


ESTIMATORS = [HLCRRegressor(n_sweeps=4, max_clusters=3), FedHLCRRegressor(rounds=4, max_clusters=3)]


@pytest.mark.parametrize("model", ESTIMATORS)
@pytest.mark.parametrize(
    ("size", "words"), [((8, 1, 2), ONE_EVENT), ((4, 6, 2), FEW_ENTITIES), ((6, 2, 13), MANY_FEATURES)]
)
def test_fit_warns(model, size, words):
    X, y, agent, entity = table(*size)
    with pytest.warns(DataWarning, match=words):
        model.fit(X, y, agent=agent, entity=entity)


@pytest.mark.parametrize("model", ESTIMATORS)
def test_fit_warns_of_constant_target_at_the_caller(model):
    X, y, agent, entity = table(8, 4, 2)
    with pytest.warns(DataWarning, match=CONSTANT) as caught:
        model.fit(X, np.full(len(y), 3.5), agent=agent, entity=entity)
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("model", ESTIMATORS)
def test_rows_without_entity_ids_are_clustered_quietly(model):
    X, y, agent, _ = table(8, 1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        model.fit(X, y, agent=agent)


def test_server_knows_the_shape_from_sums():
    data, _ = make_hlcr(6, 3, 4, 3, random_state=3)
    server = Server(FederationSettings(GramLayout(3), seed=1, rounds=3, max_clusters=4))
    run_federation(server, in_process(data))
    pairs = {*zip(data.agent, data.entity, strict=True)}
    assert server.table_shape() == TableShape(len(data), len(pairs), 3, target_varies=True)


def test_server_does_not_guess_the_number_of_events():
    """Some agents do not answer the survey."""
    data, _ = make_hlcr(6, 3, 4, 3, random_state=3)
    server = Server(FederationSettings(GramLayout(3), seed=1, rounds=30, max_clusters=4))
    run_federation(server, in_process(data, failure_rate=0.7, seed=5))
    assert server.table_shape().n_events == float("inf")


@pytest.mark.parametrize("make", [HLCRRegressor, FedHLCRRegressor])
def test_one_agent_has_no_effects_of_agents(make):
    table, _ = make_hlcr(n_agents=1, n_clusters=2, entities_per_agent=12, random_state=3)
    short = {"n_sweeps": 30} if make is HLCRRegressor else {"rounds": 30}
    model = make(n_clusters=2, effects="entity+agent", **short)
    with pytest.warns(DataWarning, match="The table has one agent"):
        model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    assert not model.agent_effect_scales_.any()
