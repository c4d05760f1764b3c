"""Write a fitted model to a file, with what `fedhlcr inspect` shows of it. `model_file` has the layout."""

from __future__ import annotations

import json
from typing import Any, BinaryIO

from fedhlcr._support.plain import plain
from fedhlcr.analysis.facts import model_facts
from fedhlcr.analysis.summary import describe_model
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.storage import atomic, pages
from fedhlcr.storage.atomic import PathLike
from fedhlcr.storage.model_facts import FACTS, KIND, VERSION
from fedhlcr.storage.model_file import UNSAVED, plain_settings, to_record, with_later_settings


def save(model: FittedModel, path: PathLike, *, public: bool = False) -> None:
    """Write a model to a file, completely or not at all; `public` leaves out what is private to the agents."""
    atomic.replace_file(path, lambda file: write(model, file, public=public))


def write(model: FittedModel, file: BinaryIO, *, public: bool = False) -> None:
    """Write a model to an open file, page by page."""
    model = model.without_agents() if public else model
    record = to_record(model)
    facts = json.dumps(_facts(model, json.loads(record["about"])))
    pages.write(file, KIND, VERSION, {FACTS: facts, **record})


def _facts(model: FittedModel, about: dict[str, Any]) -> dict[str, Any]:
    """What is told of the model that will be loaded from the file."""
    machine = {name: value for name, value in UNSAVED.items() if name in model.settings}
    settings = {**plain_settings(model.settings), **machine, **with_later_settings(about), "random_state": model.seed_}
    facts = model_facts(model, about["provenance"], settings)
    return {"description": plain(describe_model(model)), "facts": plain(facts)}
