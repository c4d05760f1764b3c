"""Usual values in sentences and on axes are values that can be, also where only sums are known."""

from __future__ import annotations

import copy
import re

import numpy as np
import pandas as pd
import pytest

from fedhlcr import FedHLCRRegressor, HLCRRegressor, load
from fedhlcr.analysis.axes import feature_axes, is_whole, known_quantiles, usual_ends
from fedhlcr.analysis.axis_words import describe_effects
from fedhlcr.analysis.contrasts import contrasts_of, usual_range
from fedhlcr.analysis.words import describe_clusters
from fedhlcr.model.curves import N_QUANTILES, QUANTILE_LEVELS
from fedhlcr.report import render_report
from tests.reports import Page, public

N = 3_000


@pytest.fixture(scope="module")
def frame():
    """Skewed, counted, rare, normal and centred features, and a logarithm around zero."""
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "listings": np.exp(rng.normal(7.0, 1.5, N)),
            "colds": rng.poisson(1.2, N).astype(float),
            "strikes": rng.poisson(0.06, N).astype(float),
            "age": rng.normal(40.0, 10.0, N),
            "centred": rng.normal(0.0, 3.0, N),
            "log_price": rng.normal(0.2, 1.0, N),
        }
    )


def target(frame):
    weights = [0.001, 1.0, 2.0, 0.2, 0.5, 3.0]
    return frame.to_numpy() @ weights + np.random.default_rng(0).normal(0.0, 0.3, len(frame))


def fit(frame, kind=HLCRRegressor, **parameters):
    ids = {"agent": np.arange(N) % 10, "entity": np.arange(N) % 40}
    sweeps = {"rounds": 30} if kind is FedHLCRRegressor else {"n_sweeps": 30}
    return kind(1, **sweeps, **parameters).fit(frame, target(frame), **ids)


@pytest.fixture(scope="module")
def model(frame):
    return fit(frame)


@pytest.fixture(scope="module")
def federated(frame):
    return fit(frame, FedHLCRRegressor)


def ranges(model):
    axes = [axis for axis in feature_axes(model) if not axis.is_discrete]
    return {axis.name: usual_range(model, axis) for axis in axes}


def test_a_fit_keeps_quantiles_of_its_features(model, frame):
    found = model.feature_quantiles_
    assert found.shape == (6, N_QUANTILES)
    np.testing.assert_allclose(found, np.quantile(frame, QUANTILE_LEVELS, axis=0, method="inverted_cdf").T)


def test_usual_ranges_hold_two_thirds_of_the_events(model, frame):
    for f, name in enumerate(frame):
        low, high = usual_ends(model, f)
        assert frame[name].min() <= low < high <= frame[name].max()
        if name != "strikes":
            assert ((frame[name] >= low) & (frame[name] <= high)).mean() == pytest.approx(0.68, abs=0.2)
    # nearly all events have none
    assert usual_ends(model, 2) == (0.0, 1.0)


def test_ranges_in_sentences_are_possible_and_normal_ones_are_as_before(model, frame):
    found = ranges(model)
    assert found["age"] == (30.0, 50.0)
    assert found["centred"] == (-3.0, 3.0)
    assert found["colds"] == (0.0, 2.0)
    assert found["strikes"] == (0.0, 1.0)
    low, high = found["listings"]
    assert 0.0 <= low < 1_000.0 < high < 10_000.0
    # a logarithm around zero is not cut at zero
    assert found["price"][0] < 1.0 < found["price"][1]


def test_no_sentence_has_an_impossible_value(model, federated):
    for own in (model, federated, public(model)):
        told = [words for words in describe_effects(own, 6)[0] if re.search("listings|colds|strikes", words)]
        assert len(told) == 3
        words = [contrast.words for axis in feature_axes(own) for contrast in contrasts_of(own, axis)]
        compared = [own_words for own_words in words if own_words.split()[0] in ("listings", "colds", "strikes")]
        assert len(compared) == 3
        assert not any("from −" in own_words for own_words in (*told, *compared))


def test_counts_have_whole_numbers(model, frame):
    assert [is_whole(model, f) for f in range(6)] == [False, True, True, False, False, False]
    for name in ("colds", "strikes"):
        assert all(end == round(end) for end in ranges(model)[name])


def test_a_turning_point_of_a_count_is_a_whole_number():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"visits": rng.integers(0, 30, N).astype(float)})
    y = -((frame["visits"] - 13.4) ** 2) / 20.0 + rng.normal(0.0, 0.2, N)
    ids = {"agent": np.arange(N) % 10, "entity": np.arange(N) % 40}
    own = HLCRRegressor(1, n_sweeps=30, curves=["visits"]).fit(frame, y, **ids)
    ((words,),) = describe_effects(own, 1)
    assert re.match(r"is highest near visits \d+ \(", words)


def test_a_federation_keeps_no_values_of_events(federated):
    assert federated.feature_quantiles_ is None
    assert known_quantiles(federated, 0) is None
    assert not is_whole(federated, 1)
    found = ranges(federated)
    # from the mean on, because nothing says that values below zero can be
    mean, spread = federated.feature_means_[0], federated.feature_spreads_[0]
    assert found["listings"] == pytest.approx((mean, mean + spread), rel=0.5)
    assert found["age"] == (30.0, 50.0)
    assert found["centred"] == (-3.0, 3.0)
    assert found["price"][0] < 1.0 < found["price"][1]


def test_a_negative_skewed_feature_ends_at_its_mean(federated):
    turned = copy.copy(federated)
    turned.feature_means_ = -federated.feature_means_
    low, high = usual_ends(turned, 0)
    assert (low, high) == tuple(-end for end in reversed(usual_ends(federated, 0)))
    assert high < 0.0


def test_public_files_hold_no_quantiles_and_loaded_ones_say_the_same(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.feature_quantiles_, model.feature_quantiles_)
    assert describe_effects(loaded, 6) == describe_effects(model, 6)
    assert public(model).feature_quantiles_ is None


def test_terminal_and_report_have_the_same_ranges(model):
    told = describe_effects(model, 3)[0]
    text, sentence = Page(render_report(model)).text, describe_clusters(model, "y")[0]
    for words in told:
        assert f"It {words}." in text
        assert words in sentence


def test_axes_without_events_cover_values_that_are_there(model, frame):
    for axis in feature_axes(model):
        if axis.name in ("listings", "colds"):
            assert frame[axis.name].min() <= axis.low < axis.high <= frame[axis.name].max()


def test_a_range_is_not_that_of_a_few_digits_beside_zero():
    """Most have none, some have a little, and a tenth has one: what matters is none against one."""
    rng = np.random.default_rng(6)
    limits = np.where(rng.random(N) < 0.1, 1.0, np.where(rng.random(N) < 0.3, 0.03, 0.0))
    frame = pd.DataFrame({"limits": limits, "x": rng.normal(size=N)})
    own = HLCRRegressor(1, n_sweeps=20).fit(frame, 2.0 * limits + rng.normal(size=N), entity=np.arange(N) % 40)
    assert usual_ends(own, 0) == (0.0, 1.0)
