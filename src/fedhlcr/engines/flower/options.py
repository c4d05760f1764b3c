"""What can be set: the run's options, in the app's pyproject, and a node's, in its node-config.

`RUN_OPTIONS` is the one list of the former: an app folder is written from it, and a run is read by it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from fedhlcr.exceptions import ArgumentError, Refusal
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import GAUSSIAN
from fedhlcr.model.priors import LEARNABLE

Scalar = bool | int | float | str


class Option(NamedTuple):
    """One line of an app's configuration."""

    name: str
    default: Scalar
    comment: str


class Section(NamedTuple):
    """Lines that belong together; `table` is the TOML table they stand in, below the app's config."""

    title: str
    options: tuple[Option, ...]
    table: str = ""


RUN_OPTIONS = (
    Section(
        "The run",
        (
            Option("experiment", "experiment", "its name: files at the server and at the nodes are called so"),
            Option(
                "output-dir",
                "fedhlcr-output",
                "folder at the server; a relative one begins where SuperLink was started",
            ),
            Option(
                "resume", False, "go on from the checkpoint of this experiment, with the settings it was started with"
            ),
            Option("min-nodes", 2, "nodes that must be there before the first round"),
            Option("wait-for-nodes", 600.0, "seconds to wait for them; and later, for any node at all"),
            Option(
                "round-timeout", 300.0, "seconds to wait for replies in a round; it goes on without those that are late"
            ),
            Option("features", "", "columns, in order, with commas between; empty is what most nodes are told to use"),
            Option(
                "evaluate", True, "send the nodes the model at the end, to keep it and to score it on their test-path"
            ),
        ),
    ),
    Section(
        "The federation",
        (
            Option("seed", 0, "of all draws; the model depends on it and on who took part"),
            Option(
                "rounds", 30, "the most rounds; 0 is as many as it takes. A round takes some seconds whatever the data"
            ),
            Option("patience", 10, "a run ends when so many rounds are like as many before; 0 never ends it early"),
            Option("participation", 1.0, "share of the agents asked in each round"),
            Option("rule", "delta", "delta, exact, which learns everything; or blend, the paper's Algorithm 3"),
            Option("learning-rate", 0.2, "of the blend rule"),
            Option("participation-scaling", True, "of the blend rule; as published it is false"),
        ),
    ),
    Section(
        "The model",
        (
            Option("clusters", 0, "number of clusters; 0 finds it"),
            Option("max-clusters", 64, "clusters to start with where the number is to be found"),
            Option("fit-intercept", True, "whether clusters have an intercept"),
            Option("standardize", True, "bring columns to unit scale, by what the first agents report"),
            Option("noise-scale", 0.0, "in units of the target; 0 learns it, and so for the next three"),
            Option("coef-scale", 0.0, "spread of the clusters' coefficients, in standardised units"),
            Option("global-concentration", 0.0, "how evenly clusters are used by all"),
            Option("agent-concentration", 0.0, "how alike agents are in which clusters they use"),
            Option("likelihood", GAUSSIAN, "how targets vary around their regressions; see fedhlcr.model.likelihood"),
            Option("coef-prior", "adaptive", "adaptive, common_mean, or zero_mean as in the paper"),
            Option("draws", 100, "the most posterior draws that are kept"),
        ),
    ),
    Section(
        "What a reply may hold at most before it is refused",
        (
            Option("max-events", 1e7, "events of one agent"),
            Option("max-entities", 1e6, "entities of one agent"),
            Option("max-mean-square", 1e8, "mean square of a column, in multiples of what is usual"),
            Option("min-events-per-entity", 1.0, "fewer than so many events per entity cannot be"),
            Option("tolerance", 1e-8, "how far from positive semi-definite rounding may leave a matrix"),
        ),
        "limits",
    ),
    Section(
        "Only for the simulation runtime, whose nodes have no node-config: what each would be told otherwise",
        (
            Option(
                "data-path", "", "a file whose agents are dealt out to the nodes, or a folder with a file for each node"
            ),
            Option("test-path", "", "the same with events that are not fitted; empty for none"),
            Option("target", "", "column to predict"),
            Option("agent", "", "column of agent ids"),
            Option("entity", "", "column of entity ids; empty makes each event an entity of its own"),
            Option("features", "", "feature columns, with commas between"),
        ),
        "simulation",
    ),
)
SIMULATION_PREFIX = "simulation."
# Options for which 0 stands for None.
ZERO_IS_NONE = ("clusters", "rounds", "patience", *(name.replace("_", "-") for name in LEARNABLE))
# Options that the settings call otherwise.
SETTING_NAMES = {"clusters": "n_clusters", "draws": "n_draws"}
EXPERIMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def full_names() -> dict[str, Option]:
    """All options of a run by the names under which Flower hands them over."""
    return {f"{part.table}.{o.name}" if part.table else o.name: o for part in RUN_OPTIONS for o in part.options}


@dataclass(frozen=True)
class RunOptions:
    """The options of a run, checked."""

    values: dict[str, Any]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> RunOptions:
        known = full_names()
        _refuse_unknown(config, known, "run-config")
        values: dict[str, Any] = {
            name: _checked(name, config.get(name, option.default), option) for name, option in known.items()
        }
        check_experiment(values["experiment"])
        for name, least in (("min-nodes", 1), ("wait-for-nodes", 0.0), ("round-timeout", 1.0)):
            if not least <= values[name] < math.inf:
                raise ArgumentError(f"`{name}` must be a finite number of at least {least}, but is {values[name]!r}.")
        if not values["output-dir"].strip():
            raise ArgumentError("`output-dir` is empty; name a folder at the server.")
        names = split_names(values["features"])
        if len(set(names)) < len(names):
            raise ArgumentError("`features` names a column twice; name each once.")
        options = cls(values)
        # what is wrong is said before anyone is waited for
        options.settings(1)
        return options

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def features(self) -> tuple[str, ...]:
        return split_names(self["features"])

    @property
    def output_dir(self) -> Path:
        return Path(self["output-dir"]).expanduser().absolute()

    def settings(self, n_features: int) -> FederationSettings:
        """What the server of the federation is to do."""
        taken = {f.name for f in fields(FederationSettings)} - {"layout", "limits"}
        chosen: dict[str, Any] = {}
        for name, value in self.values.items():
            field = SETTING_NAMES.get(name, name.replace("-", "_"))
            if field in taken:
                chosen[field] = None if name in ZERO_IS_NONE and value == 0 else value
        limits = ReplyLimits(**{f.name: self[f"limits.{f.name.replace('_', '-')}"] for f in fields(ReplyLimits)})
        return FederationSettings(GramLayout(n_features, self["fit-intercept"]), **chosen, limits=limits)


@dataclass(frozen=True)
class NodeOptions:
    """What a node is told of its own data.

    Attributes
    ----------
    data_path, test_path : CSV or Parquet; the latter for events that are not fitted, if there are any
    target, entity, agent : columns; without `entity` each event is one of its own
    agent_name : the one agent of the node, where there is no column of agents
    features : columns, in the node's own order
    state_dir : where the node keeps its state
    share : of a simulated node, which of how many it is
    """

    data_path: Path
    target: str
    features: tuple[str, ...]
    state_dir: Path
    agent: str = ""
    agent_name: str = ""
    entity: str = ""
    test_path: Path | None = None
    share: tuple[int, int] | None = None

    @classmethod
    def from_context(
        cls, node_config: Mapping[str, Any], run_config: Mapping[str, Any], *, simulated: bool = False
    ) -> NodeOptions:
        """Of a real node by its own config alone; only a simulated one, which has none, is told by the run."""
        if not simulated:
            return cls._from_config(node_config, None)
        told = {
            name.removeprefix(SIMULATION_PREFIX): value
            for name, value in run_config.items()
            if name.startswith(SIMULATION_PREFIX) and value
        }
        share = int(node_config["partition-id"]), int(node_config["num-partitions"])
        output_dir = RunOptions.from_config(run_config).output_dir
        return cls._from_config(told | {"state-dir": str(output_dir / "simulated-nodes" / str(share[0]))}, share)

    @classmethod
    def _from_config(cls, config: Mapping[str, Any], share: tuple[int, int] | None) -> NodeOptions:
        try:
            _refuse_unknown(config, NODE_KEYS, "node-config", only_typos=True)
        except ValueError as error:
            raise Refusal("NodeConfigError", str(error)) from None
        text = {key: str(config.get(key, "")).strip() for key in NODE_KEYS}
        missing = [key for key in ("data-path", "target", "features") if not text[key]]
        if missing:
            cure = f"the node is not told {', '.join(f'`{key}`' for key in missing)}; pass them in its node-config"
            raise Refusal("NodeConfigError", cure)
        if bool(text["agent"]) == bool(text["agent-name"]):
            cure = "pass either `agent`, a column of the node's table, or `agent-name`, one name for all its events"
            raise Refusal("NodeConfigError", cure)
        names = split_names(text["features"])
        roles = [name for name in (text["target"], text["agent"], text["entity"], *names) if name]
        if len(set(roles)) < len(roles):
            raise Refusal("NodeConfigError", "a column is named twice in the node-config; name each once")
        data_path = Path(text["data-path"]).expanduser().absolute()
        own_folder = data_path.with_name(f"{data_path.name}.state")
        return cls(
            data_path,
            text["target"],
            names,
            Path(text["state-dir"]).expanduser().absolute() if text["state-dir"] else own_folder,
            text["agent"],
            text["agent-name"],
            text["entity"],
            Path(text["test-path"]).expanduser().absolute() if text["test-path"] else None,
            share,
        )


NODE_KEYS = ("data-path", "target", "agent", "agent-name", "entity", "features", "test-path", "state-dir")


def split_names(text: str) -> tuple[str, ...]:
    """Column names between commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def check_experiment(name: str) -> None:
    """It becomes the name of files, at the server and at nodes that the server does not own."""
    if not EXPERIMENT_NAME.fullmatch(name):
        raise ArgumentError(
            "`experiment` must be at most 64 letters, digits, dots, dashes and underscores, and begin with one of the "
            f"first two, for files are named by it; it has {len(name)} characters."
        )


def _refuse_unknown(config: Mapping[str, Any], known: Collection[str], what: str, *, only_typos: bool = False) -> None:
    """A misspelt option would be ignored in silence; `only_typos` lets others' options pass."""
    for name in config:
        if name in known:
            continue
        similar = get_close_matches(name, known, n=1)
        if similar or not only_typos:
            hint = f"; did you mean `{similar[0]}`?" if similar else f"; known are {', '.join(known)}."
            raise ArgumentError(f"there is no option `{name}` in the {what}{hint}")


def _checked(name: str, value: Any, option: Option) -> Scalar:
    kind = type(option.default)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        expected = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}[kind]
        raise ArgumentError(f"`{name}` must be {expected}, but is {value!r}.")
    return value
