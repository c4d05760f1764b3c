"""The settings of differential privacy."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr import DifferentialPrivacy
from fedhlcr.exceptions import ArgumentError, CodecError
from fedhlcr.privacy.differential_privacy import PrivacyPlan
from fedhlcr.privacy.noise import discrete_gaussian
from fedhlcr.privacy.release import UNIT


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"epsilon": "3"}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
        ({"epsilon": 3, "delta": 0.0}, "delta"),
        ({"epsilon": 3, "delta": 0.9}, "delta"),
        ({"epsilon": 3, "rounds": 1}, "rounds"),
        ({"epsilon": 3, "rounds": 2.5}, "rounds"),
        ({"epsilon": 3, "shares": (0.5, 0.5)}, "shares"),
        ({"epsilon": 3, "shares": (0.5, 0.5, 0.5)}, "shares"),
        ({"epsilon": 3, "shares": None}, "shares"),
        ({"epsilon": 3, "units_share": 0.0}, "units_share"),
    ],
)
def test_wrong_settings_are_refused(wrong, name):
    with pytest.raises(ArgumentError, match=f"`{name}`"):
        DifferentialPrivacy(**wrong)


def test_noise_that_does_not_fit_into_64_bits_is_refused():
    """OpenDP cuts such draws off, and whoever knows where would read the sum."""
    for scale in (1e30, 2.0**57, np.inf, np.nan, 0.0, -1.0):
        with pytest.raises(ArgumentError, match="`scale`"):
            discrete_gaussian(scale, 3)
    tiny = DifferentialPrivacy(3, shares=(1.0 - 2e-30, 1e-30, 1e-30))
    with pytest.raises(ArgumentError, match="`shares`"):
        tiny.plan(100)
    least = DifferentialPrivacy(0.001, 1e-12, 10_000).plan(10**6)
    largest = max(UNIT / release.mu for release in least.releases)
    assert np.abs(discrete_gaussian(largest, 1000).astype(float)).max() < 2.0**62


def test_one_agent_cannot_hide():
    with pytest.raises(ArgumentError, match="at least 2"):
        DifferentialPrivacy(3).plan(1)


@pytest.mark.parametrize(
    "wrong",
    [None, {}, {"releases": []}, {"releases": [["a", 1, -1.0]]}, {"releases": [["a", 1, 1e-30]]}, {"delta": 2.0}],
)
def test_forged_plans_are_refused(wrong):
    values = DifferentialPrivacy(3).plan(10).to_dict()
    forged = wrong if not wrong else values | wrong
    with pytest.raises(CodecError, match="privacy plan"):
        PrivacyPlan.from_dict(forged)
