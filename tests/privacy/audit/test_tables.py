"""Audits of whole tables: plain mode gives most entities away, the messages of secure mode give away none."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.privacy.audit.tables import as_hierarchy, audit_table, example_tables

pytest.importorskip("cryptography", reason="the privacy extra is not installed")

# Columns that are no features: ids, context, and splits.
NO_FEATURES = ("agent", "entity", "target", "week", "full", "few")


def check(found, least):
    """At least this share of the entities is found in plain mode, and none in the messages of secure mode."""
    assert found.plain.entities >= least * found.n_entities
    assert found.plain.n_wrong <= 0.02 * found.plain.n_claims
    assert found.wire.n_rounds == 2
    assert found.wire.messages.entities == found.wire.messages.n_claims == 0
    assert found.holds
    # open: the exact total shows some entities, but fewer
    assert found.total.entities < found.plain.entities
    assert found.total.n_wrong <= 0.3 * found.total.n_claims


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("few events (made up)", 0.7),
        pytest.param("overlapping clusters (made up)", 0.8, marks=pytest.mark.ci),
        ("flights (bundled)", 0.6),
    ],
)
def test_example_tables(name, least):
    hierarchy = as_hierarchy(example_tables()[name])
    check(audit_table(hierarchy, secure_rounds=2, rounds=60, patience=None), least)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [("cheese_city_retailer_week", 1.0), ("egsingle_school_child_visit", 0.85), ("league/gapminder", 0.7)],
)
def test_real_tables(shared_data, name, least):
    import pandas as pd

    frame = pd.read_parquet(shared_data / f"{name}.parquet")
    features = [column for column in frame.select_dtypes("number") if not column.startswith(NO_FEATURES)]
    X, y = frame[features].to_numpy(float), frame["target"].to_numpy(float)
    hierarchy = build_hierarchy(X, y, np.ones(len(y)), frame["agent"].to_numpy(), frame["entity"].to_numpy())
    check(
        audit_table(hierarchy, secure_rounds=2, rounds=60, patience=None, effects="none", noise="common"),
        least,
    )
