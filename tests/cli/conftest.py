import pytest

from tests.commands import FIT, call, shop_table


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """A folder with a table, a part to judge by, and a model that was fitted to the rest."""
    folder = tmp_path_factory.mktemp("shop")
    shop_table().to_csv(folder / "all.csv", index=False)
    split = ["split", folder / "all.csv", "--agent", "store", "--entity", "product", "-q"]
    assert call(*split, "--train", folder / "train.csv", "--test", folder / "test.csv") == 0
    assert call("fit", folder / "train.csv", *FIT, "--out", folder / "shop.fedhlcr", "-q") == 0
    return folder
