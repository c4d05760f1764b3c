"""What `import fedhlcr` offers."""

from __future__ import annotations

import pytest

import fedhlcr


def test_every_public_name_is_there():
    lazy = set(fedhlcr.__all__) - {"__version__"}
    assert set(fedhlcr._HOMES) == lazy
    found = {name: getattr(fedhlcr, name) for name in lazy}
    assert found.pop("NEW").name == "NEW"
    assert all(value.__name__ == name for name, value in found.items())
    assert isinstance(fedhlcr.__version__, str)


def test_dir_lists_public_names_only():
    assert dir(fedhlcr) == sorted(fedhlcr.__all__)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Regressor'"):
        fedhlcr.Regressor  # noqa: B018
