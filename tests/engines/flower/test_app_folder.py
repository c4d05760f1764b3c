"""The folder of a Flower app."""

import tomllib
from dataclasses import replace

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.common.config import flatten_dict, validate_config

from fedhlcr.engines.flower.app_folder import write_app
from fedhlcr.engines.flower.options import RunOptions, full_names
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout


def config_of(path):
    return flatten_dict(tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"])


def test_app_declares_every_option_with_a_comment(tmp_path):
    path = write_app(tmp_path / "my-app")
    config = config_of(path)
    assert config == {name: option.default for name, option in full_names().items()}
    valid, errors, warnings = validate_config(tomllib.loads(path.read_text()), project_dir=path.parent)
    assert valid, errors
    assert not warnings
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if " = " in line and not line.startswith("#") and number > lines.index("[tool.flwr.app.config]"):
            assert lines[number - 1].startswith("# "), line


def test_app_options_are_the_federation_defaults(tmp_path):
    """But for the rounds, which take seconds here."""
    settings = RunOptions.from_config(config_of(write_app(tmp_path / "my-app"))).settings(4)
    default = FederationSettings(GramLayout(4), rounds=60)
    assert settings.max_weight == default.max_weight
    assert replace(settings, limits=default.limits) == default


@pytest.mark.parametrize("name", ["my_app", "My-App", "-app", "a b"])
def test_folder_name_that_flower_cannot_build_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match="lower-case letters, digits and dashes"):
        write_app(tmp_path / name)


def test_app_is_not_overwritten_and_has_no_unknown_options(tmp_path):
    write_app(tmp_path / "app", {"rounds": 3})
    with pytest.raises(FileExistsError, match="exists"):
        write_app(tmp_path / "app")
    assert config_of(tmp_path / "app" / "pyproject.toml")["rounds"] == 3
    with pytest.raises(ValueError, match="'ruonds'"):
        write_app(tmp_path / "other", {"ruonds": 3})
    assert not (tmp_path / "other").exists()
