"""`make demo-flower`: what it says of the model when the network is gone."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr.datasets import load_flights
from fedhlcr.engines.flower import demo
from fedhlcr.federation.run import run_federation
from tests.federations import OneByOneEngine, agents_of, server_for

ROUNDS = 70


@pytest.mark.slow
@pytest.mark.ci
def test_demo_compares_its_model_with_one_that_has_the_limits_of_a_network(capsys):
    flights = load_flights()
    flights = flights[np.arange(0, len(flights), 5)]
    server = server_for(flights.X.shape[1], rounds=ROUNDS, seed=demo.SEED)
    run_federation(server, OneByOneEngine(agents_of(flights), shuffle=1))
    demo.check(flights, server.model(), ROUNDS)
    same = "gives the same coefficients: the largest difference is 0.\n"
    assert capsys.readouterr().out.endswith(same)
    demo.check(flights[:-400], server.model(), ROUNDS)
    assert not capsys.readouterr().out.endswith(same)
