"""`fedhlcr simulate --epsilon`: what budgets of differential privacy would cost in accuracy, before one is spent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import typer

from fedhlcr._support.wording import listed
from fedhlcr.cli.events import Events
from fedhlcr.cli.scoring import compared, score
from fedhlcr.cli.shell import Shell
from fedhlcr.data.families import REAL, Family
from fedhlcr.exceptions import ArgumentError

# What the model is without noise: the one that private runs fit.
PLAIN_MODEL = {"effects": "none", "noise": "common", "curves": "none"}
# A budget whose held-out error is at most this multiple of the error without noise costs little.
LITTLE = 1.05
MUCH = 1.5


def budgets(text: str | None, delta: float | None) -> list[Any]:
    """Read --epsilon and --delta; an empty list if no budget is given."""
    from fedhlcr import DifferentialPrivacy

    if text is None:
        if delta is not None:
            raise typer.BadParameter("needs --epsilon.", param_hint="--delta")
        return []
    try:
        values = [float(part) for part in text.split(",") if part.strip()]
        found = [DifferentialPrivacy(epsilon, delta) for epsilon in values]
    except (ValueError, ArgumentError):
        found = []
    if not found:
        reason = "must be numbers from 0.001 to 1000, separated by commas, such as 3 or 8,3,1."
        raise typer.BadParameter(reason, param_hint="--epsilon")
    return found


def require_budgets_possible(found: list[Any], family: Family, *, hold_out: float) -> None:
    """Refuse budgets where there is nothing to compare."""
    if found and family.has_link:
        raise typer.BadParameter(
            f"is for real targets, but the target is {family}; leave it out, or add --family real.",
            param_hint="--epsilon",
        )
    if found and not hold_out:
        raise typer.BadParameter("compares errors on held-out events; pass --hold-out above 0.", param_hint="--epsilon")


def note_ignored(shell: Shell, found: list[Any], *, rounds: int | None, participation: float) -> None:
    """Say which options of the simulation do not apply to private runs, if they are given."""
    given = {"--rounds": rounds is not None, "--participation": participation != 1.0}
    if found and (names := [name for name, is_given in given.items() if is_given]):
        verb = "does" if len(names) == 1 else "do"
        shell.note(
            f"{listed(names)} {verb} not apply to private runs: all agents take part in all {found[0].rounds} rounds."
        )


def tell_budgets(
    shell: Shell, found: list[Any], parts: tuple[Events, Events], settings: dict[str, Any], aggregation: str
) -> dict[str, Any]:
    """Fit a private model for each budget, and one without noise, and compare their held-out errors.

    Parameters
    ----------
    parts : the events to fit, and those to predict
    settings : of the estimator: number of clusters, seed, failures
    aggregation : of the private fits; it decides who adds the noise, and how much
    """
    from fedhlcr import FedHLCRRegressor
    from fedhlcr.estimators.private import plan_shown_already

    train, test = parts
    # the command may take levels from rows, because it saves none of these models
    table = replace(train.table, undeclared=())

    def fitted(**own: Any) -> Any:
        model = FedHLCRRegressor(**settings, **own)
        agent = train.recipe.agent
        entity = train.recipe.entity
        return model.fit(table, train.y, agent=agent, entity=entity)

    assert train.agents is not None
    n_agents = len(np.unique(train.agents.codes))
    scores: dict[str, Any] = {"without noise": score(fitted(**PLAIN_MODEL), test, shell=shell)}
    facts = []
    for privacy in found:
        plan = privacy.plan(n_agents)
        shell.say()
        for line in str(plan).splitlines():
            shell.say(line)
        name = f"epsilon {privacy.epsilon:g}"
        # with --quiet it is shown nowhere, and with --json at the end
        with plan_shown_already():
            model = fitted(privacy=privacy, aggregation=aggregation)
        scores[name] = score(model, test, shell=shell)
        facts.append(plan.to_dict() | {"held_out": scores[name].to_dict()})
    shell.say()
    shell.table(*compared("held-out events, plain model", REAL, scores))
    without = scores["without noise"]["mse"]
    for privacy in found:
        ratio = scores[f"epsilon {privacy.epsilon:g}"]["mse"] / without
        shell.say(f"epsilon {privacy.epsilon:g}: {_in_words(ratio)}.")
    shell.say(
        "This simulation saw all events in one place, and its figures have no noise: they are for whoever may see the "
        "table. To publish a figure or a model, fit once, with the budget you have chosen."
    )
    return {"without_noise": scores["without noise"].to_dict(), "budgets": facts}


def _in_words(ratio: float) -> str:
    """What a ratio of mean squared errors means."""
    change = f"the held-out error (MSE) is {ratio:.2f} times the error without noise"
    if ratio <= LITTLE:
        return f"{change}; privacy costs little here"
    if ratio <= MUCH:
        return f"{change}; a larger epsilon or more agents would come closer"
    return f"{change}; this budget is too small for so few agents"
