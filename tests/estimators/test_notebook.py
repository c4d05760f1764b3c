"""What a notebook shows: results of fitted estimators, scikit-learn's diagram of others, and comparisons."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.utils import estimator_html_repr

from fedhlcr import FedHLCRRegressor, HLCRClassifier, HLCRCountRegressor, HLCRRegressor, compare_cluster_counts
from fedhlcr._support.wording import percent
from fedhlcr.analysis.effects import entity_shares
from fedhlcr.datasets import make_hlcr

HOSTILE = "<script>alert(1)</script>"


class Page(HTMLParser):
    """Tags and text of a page, and whether every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.text, self._open = [], "", []
        self.feed(html)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += f"{data} "


@pytest.fixture(scope="module", params=["real", "binary", "count", "federated"])
def model(request):
    kinds = {"real": HLCRRegressor, "binary": HLCRClassifier, "count": HLCRCountRegressor}
    target = "real" if request.param == "federated" else request.param
    table, _ = make_hlcr(n_agents=8, n_features=2, n_clusters=2, random_state=3, target=target)
    X = pd.DataFrame(table.X, columns=[HOSTILE, "age"])
    y = np.where(table.y == 1, HOSTILE, "no") if target == "binary" else table.y
    estimator = kinds[target](2, n_sweeps=40) if request.param in kinds else FedHLCRRegressor(n_clusters=2, rounds=40)
    return estimator.fit(X, y, agent=[f"{HOSTILE}{a}" for a in table.agent], entity=table.entity)


def test_fitted_estimators_show_results(model):
    html = model._repr_html_()
    assert model._repr_mimebundle_() == {"text/plain": repr(model), "text/html": html}
    assert len(html) < 50_000
    page = Page(html)
    assert "script" not in page.tags
    for share in entity_shares(model):
        assert percent(float(share)) in page.text
    assert type(model).__name__ in page.text
    assert "entity_table()" in page.text
    if model.comparison_ is not None:
        assert model.comparison_.sentence in page.text
        own = Page(model.comparison_._repr_html_())
        assert model.comparison_.sentence in own.text
        assert all(d.rival in own.text for d in model.comparison_.differences)


def test_terminals_and_text_displays_stay_as_they_are(model):
    assert repr(model).startswith(f"{type(model).__name__}(")
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert model._repr_mimebundle_() == {"text/plain": repr(model)}


def test_unfitted_estimators_show_the_diagram():
    estimator = HLCRRegressor(n_sweeps=7)
    assert "sk-container" in estimator._repr_html_()
    assert "sk-container" in estimator._repr_mimebundle_()["text/html"]
    assert "n_sweeps" in estimator_html_repr(estimator)


def test_many_clusters_stay_small():
    table, _ = make_hlcr(n_agents=30, n_features=2, n_clusters=2, random_state=3)
    model = HLCRRegressor(30, n_sweeps=10).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    page = Page(model._repr_html_())
    assert "And 18 smaller clusters." in page.text
    assert len(model._repr_html_()) < 50_000


def test_comparison_of_numbers_of_clusters():
    table, _ = make_hlcr(n_agents=8, n_features=2, n_clusters=2, random_state=3)
    found = compare_cluster_counts(
        *(table.X, table.y, table.agent, table.entity),
        counts=[1, 2],
        n_splits=1,
        estimator=HLCRRegressor(n_sweeps=10, max_clusters=4),
    )
    page = Page(found._repr_html_())
    assert found.verdict in page.text
    assert page.tags.count("tr") == 4
