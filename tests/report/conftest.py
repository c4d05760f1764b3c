import pytest

from fedhlcr import hold_out_events
from tests.browsers import started
from tests.reports import fitted


@pytest.fixture(scope="module")
def split(small):
    """Events to fit, and events to judge the model by."""
    table, _ = small
    train, test = hold_out_events(table.agent, table.entity)
    return table[train], table[test]


@pytest.fixture(scope="module")
def model(split):
    return fitted(split[0])


@pytest.fixture(scope="module")
def browser():
    with started() as browser:
        yield browser
