"""Settings are declared once: constructors, `FederationSettings` and options agree with the table."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields

import pytest
from sklearn.base import clone

import fedhlcr
from fedhlcr.exceptions import ArgumentError
from fedhlcr.federation import FederationSettings, GramLayout
from fedhlcr.settings import LEARNABLE, SETTINGS, settings_of

ESTIMATORS = {
    ("real", False): fedhlcr.HLCRRegressor,
    ("real", True): fedhlcr.FedHLCRRegressor,
    ("binary", False): fedhlcr.HLCRClassifier,
    ("binary", True): fedhlcr.FedHLCRClassifier,
    ("count", False): fedhlcr.HLCRCountRegressor,
    ("count", True): fedhlcr.FedHLCRCountRegressor,
}
# Fields of `FederationSettings` that hold something else than the estimators' parameters of these names.
OWN_FIELDS = {"limits", "curves"}


@pytest.mark.parametrize(("family", "federated"), ESTIMATORS)
def test_constructors_take_the_declared_settings_with_their_defaults(family, federated):
    estimator = ESTIMATORS[family, federated]
    parameters = inspect.signature(estimator).parameters
    declared = settings_of(family, federated=federated)
    assert {name: one.default for name, one in parameters.items()} == {
        name: one.default_for(family) for name, one in declared.items()
    }
    assert set(estimator._parameter_constraints) == set(declared)


def test_defaults_of_a_federation_are_the_declared_ones():
    for own in fields(FederationSettings):
        if own.name in SETTINGS and own.name not in OWN_FIELDS:
            setting = SETTINGS[own.name]
            assert own.default is not MISSING
            assert own.default == (None if setting.default in setting.words else setting.default), own.name


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("n_clusters", 0, "a whole number of at least 1"),
        ("n_clusters", 2.5, "a whole number of at least 1"),
        ("rounds", "ten", "a whole number of at least 1"),
        ("participation", 0.0, "a number of at least 0.000001 and at most 1"),
        ("participation", float("nan"), "a number of at least 0.000001 and at most 1"),
        ("min_cohort", 2, "a whole number of at least 3"),
        ("noise_scale", 0.0, "a number above 0"),
        ("noise_scale", 5e-324, "a number above 0"),
        ("noise_scale", float("inf"), "a number above 0"),
        ("max_clusters", None, "a whole number of at least 1"),
        ("effects", "all", r"one of auto, none, entity, entity\+agent"),
        ("effects", None, "one of auto"),
        ("seed", 2**63, "a whole number"),
    ],
)
def test_a_federation_refuses_values_that_are_not_declared(name, value, expected):
    with pytest.raises(ArgumentError, match=f"`{name}` must be {expected}"):
        FederationSettings(GramLayout(2), **{name: value})


def test_a_federation_holds_python_numbers():
    settings = FederationSettings(GramLayout(2), seed=2**63 - 1, n_draws=7.0, participation=1, standardize=1)
    assert repr(settings.n_draws) == "7"
    assert repr(settings.participation) == "1.0"
    assert settings.standardize is True
    assert settings.seed == 2**63 - 1
    assert all(getattr(settings, name) is None for name in (*LEARNABLE, "n_clusters", "rounds"))


def test_every_meaning_is_a_sentence_of_its_own():
    for setting in SETTINGS.values():
        assert setting.meaning.endswith("."), setting.name
        shown = setting.worded(lambda name: f"--{name}")
        assert "`" not in shown or setting.option is None, setting.name
        assert setting.default is None or setting.choices == () or setting.default in setting.choices


def test_old_words_still_work_and_name_the_new_ones():
    X = [[0.0], [1.0], [2.0], [3.0]]
    y = [0.0, 1.0, 2.1, 2.9]
    old = fedhlcr.HLCRRegressor(1, n_sweeps=4, missing="raise")
    with pytest.warns(FutureWarning, match="missing='refuse'"):
        old.fit(X, y)
    with pytest.raises(ValueError, match="missing"):
        old.predict([[float("nan")]])
    new = fedhlcr.HLCRRegressor(1, n_sweeps=4).fit(X, y)
    assert clone(old).missing == "raise"
    assert old.coef_ == new.coef_


@pytest.mark.parametrize(("family", "federated"), ESTIMATORS)
def test_docstrings_describe_every_parameter_as_declared(family, federated):
    text = inspect.getdoc(ESTIMATORS[family, federated])
    section = text.partition("Parameters\n----------\n")[2].partition("\nAttributes\n")[0]
    named = [name for line in section.splitlines() if not line.startswith(" ") for name in
             line.partition(" : ")[0].split(", ") if name]  # fmt: skip
    assert sorted(named) == sorted(settings_of(family, federated=federated))
