"""Options of a run, set in the app's pyproject. Those of a node are in `node_options`.

`RUN_OPTIONS` lists the options of a run once: app folders are written from it, and run-configs are checked by it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from fedhlcr.data.families import FAMILIES
from fedhlcr.exceptions import ArgumentError
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.claims import MAX_CHANGE
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.weights import MAX_WEIGHT
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import AUTO
from fedhlcr.privacy.differential_privacy import DifferentialPrivacy
from fedhlcr.settings import LEARNABLE, MIN_COHORT, SETTINGS, DeclaredSetting

Scalar = bool | int | float | str
# The largest number of agents that a node may have by default.
MOST_AGENTS = 1_000


class Option(NamedTuple):
    """One line of an app's configuration."""

    name: str
    default: Scalar
    comment: str


class Section(NamedTuple):
    """Options that belong together. `table` is their TOML table below the app's config."""

    title: str
    options: tuple[Option, ...]
    table: str = ""


# Options of a node, and what they say. Whoever runs the node sets them in its node-config.
NODE_OPTIONS = {
    "data-path": "CSV or Parquet; only the columns named below are read",
    "target": "column to predict",
    "agent": "column of agent ids, if the node has several agents",
    "agent-name": "name of the node's agent, if it has one only",
    "entity": "column of entity ids; without it each event is an entity of its own",
    "features": "feature columns, separated by commas; they must be numeric",
    "positive": "for family binary: the class of the target that counts as 1, the same at all nodes",
    "exposure": "for family count: column with the exposure of each event",
    "test-path": "file of test events; the node reports how well the model predicts them",
    "state-dir": "folder for labels and the model; by default beside the data",
    "aggregation": "secure: take part in secure aggregation only",
    "min-cohort": "secure aggregation: fewest nodes of a sum, whatever the run says",
    "key-path": "secure aggregation: the node's private key, the one that SuperNode uses",
    "peers-path": "secure aggregation: public keys of the other nodes; without it, those seen first",
    "min-events": "agents with fewer events stay out; 3 (features + 2) by default. See: fedhlcr flower preview",
    "min-entities": "agents with fewer entities stay out; 5 by default",
    "max-epsilon": "take part in private runs only, and in no more than cost this epsilon together",
    "max-delta": "with max-epsilon: the largest delta of a run; 0.01 by default",
}


def _of_setting(name: str, *, default: Scalar | None = None) -> Option:
    """The option of a setting of models or federations. Numbers that are not known are 0 on Flower."""
    setting = SETTINGS[name]
    assert setting.on_flower is not None
    words = setting.worded(lambda other: f"`{SETTINGS[other].on_flower or other}`")
    if setting.others and setting.choices:
        words = f"{words} They are separated by commas."
    if _has_zero(setting):
        words = f"{words} 0: {setting.words[0] if setting.words else 'without it'}."
        known = 0 if setting.kind is int else 0.0
        default = known if default is None and setting.default in (None, *setting.words) else default
    return Option(setting.on_flower, setting.default if default is None else default, words)


def _has_zero(setting: DeclaredSetting) -> bool:
    """Whether 0 stands for a number that is not known, because it is no value itself."""
    return setting.may_be_unknown and not setting.allows(0)


RUN_OPTIONS = (
    Section(
        "The run",
        (
            Option(
                "experiment", "experiment", "name of the experiment; files at the server and at the nodes get this name"
            ),
            Option(
                "output-dir",
                "fedhlcr-output",
                "folder at the server; a relative path starts at the folder where SuperLink was started",
            ),
            Option(
                "resume",
                False,
                "continue from the checkpoint of this experiment; all other settings must be those of its start",
            ),
            Option("min-nodes", 2, "number of nodes that must be ready before the first round"),
            Option(
                "wait-for-nodes",
                600.0,
                "seconds to wait for them; in later rounds, seconds to wait if no node is ready",
            ),
            Option("round-timeout", 300.0, "seconds to wait for replies in a round; late replies do not count"),
            Option(
                "bind-agents",
                True,
                "an agent's name belongs to the key of the node that had it first, also after a restart; false if "
                "nodes have no keys of their own, because SuperLink was started without --enable-supernode-auth",
            ),
            Option(
                "agents-file",
                "",
                "file at the server that lists which node may hold which agents; empty: whoever has them first",
            ),
            Option("max-agents-per-node", MOST_AGENTS, "maximum number of agents of one node"),
            Option("features", "", "feature columns in order, separated by commas; empty: those that most nodes have"),
            Option(
                "evaluate", True, "send the model to the nodes at the end; they keep it and score it on their test-path"
            ),
        ),
    ),
    Section(
        "The federation",
        (
            _of_setting("random_state"),
            _of_setting("rounds", default=60),
            *map(_of_setting, ("patience", "participation", "aggregation")),
            Option("min-cohort", MIN_COHORT, "secure aggregation: fewest nodes whose sum the server may learn"),
            Option(
                "epsilon",
                0.0,
                "differential privacy: the budget of all noisy sums together; 0: none. It needs the plain model, and "
                "excludes resume, participation and test scores",
            ),
            Option("delta", 0.0, "differential privacy: the probability with which epsilon may not hold; 0: N^-1.1"),
            Option("privacy-rounds", 20, "differential privacy: the number of rounds, in the place of `rounds`"),
            *map(_of_setting, ("fixed_point", "rule", "learning_rate", "participation_scaling")),
        ),
    ),
    Section(
        "The model",
        (
            *map(_of_setting, ("n_clusters", "max_clusters", "fit_intercept", "standardize", *LEARNABLE)),
            *map(_of_setting, ("effects", "noise")),
            Option(
                "family",
                "real",
                "what the target is: real; binary, that is 0 or 1, or two classes if the nodes set `positive`; count",
            ),
            *map(_of_setting, ("likelihood", "curves", "coef_prior", "n_draws")),
        ),
    ),
    Section(
        "Limits: replies beyond these are refused",
        (
            Option("max-events", 1e7, "maximum number of events of one agent"),
            Option("max-entities", 1e6, "maximum number of entities of one agent"),
            Option(
                "max-event-ratio", 1e5, "maximum number of events of one agent, as a multiple of the median agent's"
            ),
            Option(
                "max-mean-square",
                1e8,
                "maximum mean square of an agent's column, as a multiple of that over all agents",
            ),
            Option("max-target-square", 1e3, "the same for the target, unless it is binary or a count"),
            Option(
                "max-weight",
                MAX_WEIGHT,
                "how many times the median agent an agent may count; beyond it, if that is also unusual among the "
                "agents, its sums are scaled down",
            ),
            Option(
                "max-change",
                MAX_CHANGE,
                "how far an agent's events may differ from those of its earlier replies; inf if mods change sums",
            ),
            Option("min-events-per-entity", 1.0, "minimum number of events per entity; below 1 for fractional weights"),
            Option("tolerance", 1e-8, "how far from positive semi-definite a matrix may be because of rounding"),
        ),
        "limits",
    ),
    Section(
        "Only for Flower's simulation runtime, whose nodes have no node-config",
        (
            Option(
                "data-path",
                "",
                "a file whose agents are distributed over the nodes, or a folder with a file for each node",
            ),
            Option("test-path", "", "the same for test events; empty for none"),
            *(Option(name, "", NODE_OPTIONS[name]) for name in ("target", "agent", "entity", "features")),
            *(Option(name, "", NODE_OPTIONS[name]) for name in ("positive", "exposure")),
            Option("min-events", "", "fewest events with which an agent takes part; empty: any number"),
            Option("min-entities", "", "fewest entities with which an agent takes part; empty: any number"),
        ),
        "simulation",
    ),
)
SIMULATION_PREFIX = "simulation."
# The likelihood of each family of targets; that of real ones follows from other options.
LIKELIHOODS = {family.name: family.likelihood or AUTO for family in FAMILIES.values()}
# The settings by the names of their options.
BY_OPTION = {setting.on_flower: setting for setting in SETTINGS.values() if setting.on_flower is not None}
EXPERIMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def full_names() -> dict[str, Option]:
    """All options of a run, by the names under which Flower passes them."""
    return {f"{part.table}.{o.name}" if part.table else o.name: o for part in RUN_OPTIONS for o in part.options}


@dataclass(frozen=True)
class RunOptions:
    """The options of a run, after all checks."""

    values: dict[str, Any]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> RunOptions:
        known = full_names()
        refuse_unknown(config, known, "run-config")
        values: dict[str, Any] = {
            name: _checked(name, config.get(name, option.default), option) for name, option in known.items()
        }
        check_experiment(values["experiment"])
        for name, least in (
            ("min-nodes", 1),
            ("wait-for-nodes", 0.0),
            ("round-timeout", 1.0),
            ("max-agents-per-node", 1),
        ):
            if not least <= values[name] < math.inf:
                raise ArgumentError(f"`{name}` must be a finite number of at least {least}, but is {values[name]!r}.")
        if not values["output-dir"].strip():
            raise ArgumentError("`output-dir` is empty; name a folder at the server.")
        names = split_names(values["features"])
        if len(set(names)) < len(names):
            raise ArgumentError("`features` names a column twice; name each once.")
        if values["family"] not in LIKELIHOODS:
            raise ArgumentError(f"`family` must be one of {', '.join(LIKELIHOODS)}, but is {values['family']!r}.")
        if values["family"] != "real" and values["likelihood"] != AUTO:
            raise ArgumentError(
                f"`family` is {values['family']!r}, which has its own likelihood, but `likelihood` is "
                f"{values['likelihood']!r}; set only one of them."
            )
        options = cls(values)
        options._check_privacy()
        # raises errors now, before the server waits for nodes
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

    @property
    def privacy(self) -> DifferentialPrivacy | None:
        """Differential privacy, if the run has some."""
        if self["epsilon"] == 0.0:
            return None
        return DifferentialPrivacy(self["epsilon"], self["delta"] or None, self["privacy-rounds"])

    def _check_privacy(self) -> None:
        """Refuse what a private run cannot do, and options that only a private run has."""
        if self.privacy is None:
            if self["delta"] != 0.0:
                raise ArgumentError("`delta` is set, but `epsilon` is not; set `epsilon` too, or leave out `delta`.")
            return
        if self["resume"]:
            raise ArgumentError(
                "`resume` is not supported with `epsilon`: nodes answer each query of a private run once. Start "
                "another run; its budget adds to what the first one has spent, which its log says."
            )
        for name in ("noise-scale", "coef-scale"):
            if self[name] != 0.0:
                raise ArgumentError(f"`{name}` cannot be fixed together with `epsilon`; leave it at 0.")

    def settings(self, n_features: int, features: tuple[str, ...] = ()) -> FederationSettings:
        """The settings of the federation; `features` are the names of its columns, once they are agreed on."""
        taken = {f.name for f in fields(FederationSettings)} - {"layout", "limits", "curves", "privacy", "simulated"}
        chosen: dict[str, Any] = {}
        for name, setting in BY_OPTION.items():
            field = "seed" if setting.name == "random_state" else setting.name
            if field in taken:
                chosen[field] = None if _has_zero(setting) and self[name] == 0 else self[name]
        if self["likelihood"] == AUTO:
            chosen["likelihood"] = LIKELIHOODS[self["family"]]
        chosen["privacy"] = self.privacy
        if self.privacy is not None:
            chosen["rounds"] = None
        limits = ReplyLimits(**{f.name: self[f"limits.{f.name.replace('_', '-')}"] for f in fields(ReplyLimits)})
        curves = self._curve_positions(n_features, features)
        return FederationSettings(GramLayout(n_features, self["fit-intercept"]), **chosen, limits=limits, curves=curves)

    def _curve_positions(self, n_features: int, features: tuple[str, ...]) -> tuple[int, ...]:
        """Positions of the columns of the option `curves`; none of its names are known before `features` are."""
        if self["curves"] in ("none", "auto") or not features:
            return tuple(range(n_features)) if self["curves"] == "auto" else ()
        names = split_names(self["curves"])
        if unknown := [name for name in names if name not in features]:
            raise ArgumentError(
                f"`curves` names the column {unknown[0]!r}, but the federation uses the columns {', '.join(features)}."
            )
        return tuple(features.index(name) for name in names)


def option_text(argument: str) -> str:
    """An argument `name=value` of the command line as Flower reads it: texts have quotes, everything else has none."""
    name, equals, value = argument.partition("=")
    option = full_names().get(name)
    if option is None or not equals:
        refuse_unknown([name], full_names(), "run-config")
        raise ArgumentError(f"{argument!r} must be an option and its value, such as rounds=60.")
    if isinstance(option.default, str):
        return f"{name}={json.dumps(value, ensure_ascii=False)}"
    return argument


def split_names(text: str) -> tuple[str, ...]:
    """Names of columns from a text with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def check_experiment(name: str) -> None:
    """Check the name of an experiment: it becomes the name of files at the server and at the nodes."""
    if not EXPERIMENT_NAME.fullmatch(name):
        raise ArgumentError(
            "`experiment` must consist of at most 64 letters, digits, dots, dashes and underscores, and start with a "
            f"letter or digit, because files get this name; it has {len(name)} characters."
        )


def refuse_unknown(config: Iterable[str], known: Collection[str], what: str, *, only_typos: bool = False) -> None:
    """Refuse unknown options, which would be ignored silently. With `only_typos`, refuse only misspelt ones."""
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
