"""The settings of differential privacy."""

from __future__ import annotations

import pytest

from fedhlcr import DifferentialPrivacy
from fedhlcr.exceptions import ArgumentError, CodecError
from fedhlcr.privacy.differential_privacy import PrivacyPlan


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


def test_one_agent_cannot_hide():
    with pytest.raises(ArgumentError, match="at least 2"):
        DifferentialPrivacy(3).plan(1)


@pytest.mark.parametrize("wrong", [None, {}, {"releases": []}, {"releases": [["a", 1, -1.0]]}, {"delta": 2.0}])
def test_forged_plans_are_refused(wrong):
    values = DifferentialPrivacy(3).plan(10).to_dict()
    forged = wrong if not wrong else values | wrong
    with pytest.raises(CodecError, match="privacy plan"):
        PrivacyPlan.from_dict(forged)
