"""The network that a federation averages: against gradients by hand, and functions no line follows."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone

from fedhlcr._support.extras import install_command
from fedhlcr.baselines import FedAvgNetworkRegressor, GroupedRidge
from fedhlcr.baselines.averaging import LARGEST_GRADIENT, Network
from fedhlcr.baselines.rival import Rows

torch = pytest.importorskip("torch")


def bends(rng, sizes=(30, 60, 120)):
    """y = |x| with little noise, agents of different sizes."""
    agent = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(len(agent), 1))
    return X, np.abs(X[:, 0]) + 0.05 * rng.normal(size=len(X)), agent


def step_by_hand(network, X, y, rate):
    """Layers after one step on half the mean squared error, by the chain rule."""
    first, first_bias, last, last_bias = (layer.astype(float) for layer in network.layers)
    inner = X @ first + first_bias
    hidden = np.maximum(inner, 0.0)
    error = (hidden @ last + last_bias - y[:, None]) / len(y)
    back = error @ last.T * (inner > 0.0)
    gradients = [X.T @ back, back.sum(axis=0, keepdims=True), hidden.T @ error, error.sum(axis=0, keepdims=True)]
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
    rate /= max(1.0, norm / LARGEST_GRADIENT)
    layers = (first, first_bias, last, last_bias)
    return [layer - rate * gradient for layer, gradient in zip(layers, gradients, strict=True)]


def before_the_first_round(X, y, agent, hidden):
    """The network a federation starts from: one that is not moved."""
    still = FedAvgNetworkRegressor(hidden, 1, local_steps=1, batch_size=None, learning_rate=0.0)
    return still.fit(X, y, agent=agent).model_


def standardized(model, X, y):
    units = model.standardization_
    return units.apply(X), (y - units.shift[-1]) / units.scale[-1]


@pytest.mark.slow
def test_network_learns_a_nonlinear_function():
    X, y, agent = bends(np.random.default_rng(0))
    assert GroupedRidge("agent").fit(X, y, agent=agent).score(X, y, agent=agent) < 0.2
    model = FedAvgNetworkRegressor().fit(X, y, agent=agent)
    assert model.score(X, y) > 0.95
    np.testing.assert_array_equal(model.predict(X, agent=agent, entity=agent), model.predict(X))


def test_one_agent_with_one_step_on_all_events_descends_the_gradient():
    X, y, _ = bends(np.random.default_rng(1))
    agent = np.zeros(len(y))
    model = FedAvgNetworkRegressor((4,), 3, 1, batch_size=None, learning_rate=0.2).fit(X, y, agent=agent)
    network = before_the_first_round(X, y, agent, (4,))
    for after in model.rounds_:
        expected = step_by_hand(network, *standardized(model, X, y), rate=0.2)
        for layer, by_hand in zip(after.model.layers, expected, strict=True):
            np.testing.assert_allclose(layer, by_hand, atol=1e-5)
        network = after.model


def test_agents_count_as_much_as_they_have_events():
    X, y, agent = bends(np.random.default_rng(2), sizes=(10, 90))
    model = FedAvgNetworkRegressor((4,), 1, 1, batch_size=None, learning_rate=0.2).fit(X, y, agent=agent)
    network = before_the_first_round(X, y, agent, (4,))
    features, target = standardized(model, X, y)
    own = [step_by_hand(network, features[agent == a], target[agent == a], rate=0.2) for a in (0, 1)]
    for layer, small, large in zip(model.model_.layers, *own, strict=True):
        np.testing.assert_allclose(layer, 0.1 * small + 0.9 * large, atol=1e-5)


def test_a_strong_proximal_term_holds_agents_back():
    X, y, agent = bends(np.random.default_rng(3))
    start = before_the_first_round(X, y, agent, (8,)).layers[0]
    moved = [
        np.abs(
            FedAvgNetworkRegressor((8,), 5, learning_rate=0.1, proximal=weight).fit(X, y, agent=agent).model_.layers[0]
            - start
        ).max()
        for weight in (0.0, 10.0, 1e6)
    ]
    assert moved[0] > 1.5 * moved[1] > 0.0
    assert moved[2] < 1e-4


def test_a_seed_gives_the_same_network_and_leaves_torch_as_it_was():
    X, y, agent = bends(np.random.default_rng(4))
    state, n_threads = torch.random.get_rng_state(), torch.get_num_threads()
    rival = FedAvgNetworkRegressor(n_rounds=5, learning_rate=0.1, participation=0.7, random_state=3)
    first, second = (clone(rival).fit(X, y, agent=agent).predict(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.abs(clone(rival).set_params(random_state=4).fit(X, y, agent=agent).predict(X) - first).max() > 1e-3
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == n_threads


def test_rounds_and_bytes():
    """One feature, 8 and 4 units: 16 + 36 + 5 weights, down and up, and a number of events; 4 bytes each; 2 agents."""
    X, y, agent = bends(np.random.default_rng(5))
    model = FedAvgNetworkRegressor((8, 4), 7, learning_rate=0.3, participation=0.67).fit(X, y, agent=agent)
    np.testing.assert_array_equal(model.bytes_per_round_, [2 * (2 * 57 + 1) * 4] * 7)
    stages = list(model.staged_predict(X, agent=agent))
    assert len(stages) == model.n_rounds_ == 7
    np.testing.assert_array_equal(stages[-1], model.predict(X))
    errors = [np.square(stage - y).mean() for stage in stages]
    assert errors[-1] < 0.8 * errors[0]


def test_the_rate_is_chosen_and_what_diverges_is_not():
    X, y, agent = bends(np.random.default_rng(6))
    model = FedAvgNetworkRegressor(n_rounds=10).fit(X, y, agent=agent)
    assert model.learning_rate_ in (0.03, 0.1, 0.3)
    assert model.proximal_ == 0.0
    both = FedAvgNetworkRegressor(n_rounds=3, learning_rate=0.1, proximal="auto").fit(X, y, agent=agent)
    assert both.proximal_ in (0.01, 0.1, 1.0)

    class Wild(FedAvgNetworkRegressor):
        _grid = {"learning_rate": (1e30, 0.0, 0.1), "proximal": (0.0,)}  # noqa: RUF012

    assert Wild(n_rounds=3).fit(X, y, agent=agent).learning_rate_ == 0.1
    with pytest.raises(ValueError, match="diverged with a `learning_rate` of 1e\\+30; give a smaller one"):
        FedAvgNetworkRegressor(n_rounds=5, learning_rate=1e30).fit(X, y, agent=agent)


@pytest.mark.parametrize("hidden", [(8, 0), [2.5], ("many",)])
def test_hidden_layers_need_whole_numbers_of_units(hidden):
    X, y, agent = bends(np.random.default_rng(7))
    with pytest.raises(ValueError, match="`hidden` must hold whole numbers of at least 1, but is"):
        FedAvgNetworkRegressor(hidden).fit(X, y, agent=agent)


def test_a_network_is_its_layers():
    network = Network(
        (
            np.array([[1.0, -1.0]], np.float32),
            np.zeros((1, 2), np.float32),
            np.ones((2, 1), np.float32),
            np.full((1, 1), 0.5, np.float32),
        )
    )
    rows = Rows(np.array([[1.0, -2.0], [1.0, 3.0]]), np.zeros(2, int), np.zeros(2, int))
    np.testing.assert_allclose(network.predict(rows), [2.5, 3.5])


@pytest.mark.slow
def test_the_rivals_load_without_torch_and_tell_what_to_install():
    program = """
import sys
from importlib.abc import MetaPathFinder

class NoTorch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'")

sys.meta_path.insert(0, NoTorch())
import numpy as np
from fedhlcr._support.extras import install_command
from fedhlcr.baselines import FedAvgNetworkRegressor, FedAvgRegressor
X = np.arange(20.0)[:, None]
FedAvgRegressor(3).fit(X, X[:, 0])
try:
    FedAvgNetworkRegressor().fit(X, X[:, 0])
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert install_command("torch") in done.stdout
