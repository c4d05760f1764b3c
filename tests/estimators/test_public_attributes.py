"""What `dir` lists of a fitted estimator is what its documentation says, and no internals."""

from __future__ import annotations

import inspect
import re

import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

import fedhlcr
from fedhlcr.datasets import make_hlcr

TARGETS = {"Regressor": "real", "Classifier": "binary", "CountRegressor": "count"}
ESTIMATORS = [f"{prefix}HLCR{target}" for target in TARGETS for prefix in ("", "Fed")]
# a name or several, and a colon: the beginning of an entry of a docstring
ENTRY = re.compile(r"^((?:\w+)(?:,\s+\w+)*)(?:, …)? :", re.MULTILINE)


def documented_attributes(kind):
    """The names in the `Attributes` sections of the docstrings of a class, and of those it refers to."""
    names = set()
    for described in {kind, fedhlcr.HLCRRegressor, *(getattr(fedhlcr, name) for name in ESTIMATORS)}:
        section = inspect.getdoc(described).partition("Attributes\n----------\n")[2].partition("\nExamples\n")[0]
        for entry in ENTRY.findall(section):
            names |= {name.strip() for name in entry.split(",")}
    return names


def fitted(name):
    table, _ = make_hlcr(n_agents=8, n_clusters=2, target=TARGETS[name.partition("HLCR")[2]], random_state=1)
    steps = {"rounds": 3} if name.startswith("Fed") else {"n_sweeps": 6}
    model = getattr(fedhlcr, name)(max_clusters=4, **steps)
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_dir_lists_what_is_documented(name):
    model = fitted(name)
    kind = type(model)
    theirs = {*dir(BaseEstimator), *dir(RegressorMixin), *dir(ClassifierMixin)}
    shown = {name for name in dir(model) if not name.startswith("_")} - theirs - set(model.get_params())
    methods = {name for name in shown if callable(getattr(kind, name, None))}
    # scikit-learn makes those of metadata, with docstrings of its own
    undocumented = {name for name in methods if not inspect.getdoc(getattr(kind, name))}
    assert not undocumented
    assert shown - methods <= documented_attributes(kind)


def test_methods_are_those_for_users():
    model = fitted("HLCRRegressor")
    theirs = {name for name in dir(BaseEstimator) if not name.startswith("_")}
    methods = {name for name in dir(model) if not name.startswith("_") and callable(getattr(type(model), name, None))}
    assert methods - theirs == {
        *("adapt", "agent_table", "cluster_table", "coef_table", "curve", "entity_table", "fit", "fit_files"),
        *("from_formula", "log_density", "predict", "predict_interval", "predict_moments", "responsibilities", "save"),
        *("score", "set_fit_request", "set_output", "set_predict_request", "set_score_request", "summary"),
        "to_inference_data",
    }
