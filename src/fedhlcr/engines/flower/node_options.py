"""Options of a node, set in its node-config."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedhlcr.engines.flower.options import NODE_OPTIONS, SIMULATION_PREFIX, RunOptions, refuse_unknown, split_names
from fedhlcr.exceptions import Refusal
from fedhlcr.privacy.differential_privacy import LARGEST_DELTA, MOST_DELTA, MOST_EPSILON
from fedhlcr.privacy.disclosure import DEFAULT_RULE, NO_RULE, DisclosureRule
from fedhlcr.settings import FEWEST_IN_COHORT


@dataclass(frozen=True)
class NodeOptions:
    """The options of a node: where its data are, and what the columns mean.

    Attributes
    ----------
    data_path, test_path : CSV or Parquet files; test events are optional
    target, entity, agent : names of columns; without `entity` each event is an entity of its own
    agent_name : name of the node's only agent, if there is no column of agents
    features : names of columns, in the node's own order
    state_dir : folder of the node's state
    share : for a simulated node its number and the number of nodes; None for a real node
    positive : the class of the target that counts as 1, the same at all nodes; without it the target is a number
    exposure : column with the exposure of each event, for counts
    is_secure : whether the node takes part in secure aggregation only
    min_cohort : fewest nodes of a sum under secure aggregation
    key_path, peers_path : the node's private key, and the public keys of the other nodes
    disclosure : the fewest events and entities with which an agent of the node takes part
    max_epsilon : the most that all private runs of the node may cost its agents together; then it takes part in no
        others. None for no limit
    max_delta : the largest δ of a private run, if there is a limit
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
    positive: str = ""
    exposure: str = ""
    is_secure: bool = False
    min_cohort: int = FEWEST_IN_COHORT
    key_path: Path | None = None
    peers_path: Path | None = None
    disclosure: DisclosureRule = DEFAULT_RULE
    max_epsilon: float | None = None
    max_delta: float = LARGEST_DELTA

    @classmethod
    def from_context(
        cls, node_config: Mapping[str, Any], run_config: Mapping[str, Any], *, simulated: bool = False
    ) -> NodeOptions:
        """Read the options of a real node from its node-config only; of a simulated node, from the run-config."""
        if not simulated:
            return cls._from_config(node_config, None)
        given = {
            name.removeprefix(SIMULATION_PREFIX): value
            for name, value in run_config.items()
            if name.startswith(SIMULATION_PREFIX) and value
        }
        share = int(node_config["partition-id"]), int(node_config["num-partitions"])
        output_dir = RunOptions.from_config(run_config).output_dir
        return cls._from_config(given | {"state-dir": str(output_dir / "simulated-nodes" / str(share[0]))}, share)

    @classmethod
    def _from_config(cls, config: Mapping[str, Any], share: tuple[int, int] | None) -> NodeOptions:
        try:
            refuse_unknown(config, NODE_OPTIONS, "node-config", only_typos=True)
        except ValueError as error:
            raise Refusal("NodeConfigError", str(error)) from None
        text = {key: str(config.get(key, "")).strip() for key in NODE_OPTIONS}
        missing = [key for key in ("data-path", "target", "features") if not text[key]]
        if missing:
            cure = f"the node-config lacks {', '.join(f'`{key}`' for key in missing)}; set them"
            raise Refusal("NodeConfigError", cure)
        if bool(text["agent"]) == bool(text["agent-name"]):
            cure = "set either `agent`, a column of the node's table, or `agent-name`, one name for all its events"
            raise Refusal("NodeConfigError", cure)
        names = split_names(text["features"])
        roles = [name for name in (*(text[key] for key in ("target", "agent", "entity", "exposure")), *names) if name]
        if len(set(roles)) < len(roles):
            raise Refusal("NodeConfigError", "a column is named twice in the node-config; name each once")
        if text["aggregation"] not in ("", "plain", "secure"):
            cure = "`aggregation` must be secure, or plain to also take part in runs without masks"
            raise Refusal("NodeConfigError", cure)
        if text["min-cohort"] and not (text["min-cohort"].isdecimal() and int(text["min-cohort"]) >= FEWEST_IN_COHORT):
            cure = f"`min-cohort` of the node must be a whole number of at least {FEWEST_IN_COHORT}"
            raise Refusal("NodeConfigError", cure)
        data_path = _path(text["data-path"])
        assert data_path is not None
        own_folder = data_path.with_name(f"{data_path.name}.state")
        return cls(
            data_path,
            text["target"],
            names,
            _path(text["state-dir"]) or own_folder,
            text["agent"],
            text["agent-name"],
            text["entity"],
            _path(text["test-path"]),
            share,
            text["positive"],
            text["exposure"],
            text["aggregation"] == "secure",
            int(text["min-cohort"] or FEWEST_IN_COHORT),
            _path(text["key-path"]),
            _path(text["peers-path"]),
            _disclosure_rule(text, NO_RULE if share else DEFAULT_RULE),
            _number("max-epsilon", text["max-epsilon"], MOST_EPSILON, "3"),
            _number("max-delta", text["max-delta"], MOST_DELTA, "0.001") or LARGEST_DELTA,
        )


def _path(text: str) -> Path | None:
    return Path(text).expanduser().absolute() if text else None


def _disclosure_rule(text: Mapping[str, str], default: DisclosureRule) -> DisclosureRule:
    """The rule of a node-config; options that are not set have the values of the default."""
    numbers: dict[str, int] = {}
    for key in ("min-events", "min-entities"):
        if not text[key]:
            continue
        if not text[key].isdigit():
            raise Refusal("NodeConfigError", f"`{key}` of the node-config must be a whole number of at least 0")
        numbers[key.replace("-", "_")] = int(text[key])
    return replace(default, **numbers)


def _number(name: str, text: str, most: float, example: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 < value <= most:
        cure = f"`{name}` of the node must be a number above 0 and at most {most:g}, such as {example}"
        raise Refusal("NodeConfigError", cure)
    return value
