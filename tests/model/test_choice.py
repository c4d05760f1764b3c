"""Which likelihood follows from effects and noise, and what contradicts one that is given."""

from __future__ import annotations

import pytest

from fedhlcr import FedHLCRRegressor, HLCRRegressor
from fedhlcr.exceptions import ArgumentError
from fedhlcr.model.choice import chosen_likelihood


@pytest.mark.parametrize(
    ("effects", "noise", "name"),
    [
        ("none", "common", "gaussian"),
        ("auto", "common", "mixed, common noise"),
        ("none", "entity", "mixed, entity noise"),
        ("auto", "student", "mixed, student noise"),
    ],
)
def test_the_likelihood_follows_from_effects_and_noise(effects, noise, name):
    assert chosen_likelihood("auto", effects, noise) == name


@pytest.mark.parametrize(
    ("likelihood", "effects", "noise", "named"),
    [
        ("gaussian", "entity", "entity", "effects"),
        ("gaussian", "auto", "student", "noise"),
        ("mixed, common noise", "auto", "student", "noise"),
        ("mixed, entity noise", "auto", "common", "noise"),
    ],
)
@pytest.mark.parametrize("make", [HLCRRegressor, FedHLCRRegressor])
def test_a_likelihood_that_contradicts_effects_or_noise_is_refused(make, likelihood, effects, noise, named):
    with pytest.warns(FutureWarning), pytest.raises(ArgumentError, match=f"has its own {named}, but `{named}` is"):
        make(likelihood=likelihood, effects=effects, noise=noise).fit([[1.0], [2.0], [4.0]], [1.0, 2.0, 3.0])


def test_a_likelihood_of_ones_own_is_taken_as_it_is():
    assert chosen_likelihood("mine", "entity", "student") == "mine"
    assert chosen_likelihood("gaussian", "none", "common") == "gaussian"
