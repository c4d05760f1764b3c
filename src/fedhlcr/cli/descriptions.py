"""Print what a model file says of its model. This module imports nothing that takes long to import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedhlcr.cli.shell import Shell, in_shell_words
from fedhlcr.exceptions import Advice


def show_description(shell: Shell, description: Mapping[str, Any]) -> None:
    """Print a few facts, the table of clusters, and a sentence on each of the largest clusters."""
    width = max(len(what) for what, _ in description["facts"])
    for what, value in description["facts"]:
        shell.say(f"{what:<{width}}  {_worded(value)}")
    shell.say()
    shell.table(description["header"], description["rows"])
    for note in description["notes"]:
        shell.say(_worded(note))
    shell.say()
    for sentence in description["sentences"]:
        shell.say(sentence)
    if description["more"]:
        shell.say(f"… and {description['more']} more.")
    shell.say()


def model_facts(model: Any) -> dict[str, Any]:
    """Return a description of a model for programs."""
    from fedhlcr.analysis import facts
    from fedhlcr.storage.model_file import provenance_of

    return facts.model_facts(model, provenance_of(model))


def tell_model(shell: Shell, model: Any) -> None:
    """Print what `show_description` shows of a model in memory."""
    from fedhlcr.analysis.summary import describe_model

    show_description(shell, describe_model(model))


def show_facts(shell: Shell, facts: Mapping[str, Any]) -> None:
    """Print where a model comes from, or, with `--json`, all facts."""
    shell.table(("provenance", ""), [(name, str(value)) for name, value in facts["provenance"].items()], left=(0, 1))
    shell.result(facts)


def _worded(text: str | Mapping[str, Any]) -> str:
    return in_shell_words(text if isinstance(text, str) else Advice(text["text"], **text["settings"]))
