"""One cell of the table: some writers train the network, then letters against digits for all writers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from experiments.femnist import clusters, stages
from experiments.femnist.fedavg import FedAvgPlan, Shard, federated_averaging
from experiments.femnist.loaders import Images
from experiments.femnist.network import Outputs, as_input, build_network, outputs
from experiments.femnist.results import HIDDEN
from experiments.femnist.sources import find_images
from experiments.femnist.stages import Features, Scores, Task
from experiments.methods import compile_kernels
from experiments.study import Figures
from fedhlcr import HLCRClassifier, HLCRRegressor
from fedhlcr.datasets import make_hlcr

# The models that are also fitted with the hidden layer, and the one whose clusters are shown.
WITH_HIDDEN, SHOWN = ("hlcr_4", "hlcr_8"), "class_4"


def measure_cell(source: str, fraction: float, seed: int, n_components: int, **plan: Any) -> Figures:
    """AUC of every method and seconds of every stage; `plan` are the fields of FedAvgPlan."""
    images = find_images(source)
    task = stages.make_task(images, seed)
    clock = Clock()
    with one_thread():
        chosen = training_writers(images, fraction, seed)
        said = train_and_look(images, task, chosen, FedAvgPlan(**plan), seed, clock)
        scores = network_scores(task, said)
        models = fit_models(task, said.probabilities, seed, clock, scores)
        add_hidden_scores(task, said, n_components, seed, clock, scores)
    likeliest = said.probabilities[task.test].argmax(axis=1)
    return {
        "auc": {name: stages.pooled_auc(task, score) for name, score in scores.items()},
        "auc_by_writer": {name: stages.mean_auc_by_writer(task, score) for name, score in scores.items()},
        "seconds": clock.seconds,
        "n_clusters": {name: model.n_clusters_ for name, model in models.items()},
        "clusters": clusters.describe(models[SHOWN], task, images, said.probabilities),
        "accuracy": float(np.mean(likeliest == images.y[task.test])),
        "n_writers": len(images.writers),
        "n_training_writers": len(chosen),
        "n_images": len(images.y),
        "n_held_out": len(task.test),
    }


@cache
def compile_classifier() -> None:
    """Fit a small table once per process, so that timings do not include compilation."""
    toy, _ = make_hlcr(n_agents=6, entities_per_agent=2, n_features=2, n_clusters=2, target="binary", random_state=0)
    model = HLCRClassifier(2, effects="none", n_sweeps=20, n_threads=1).fit(toy.X, toy.y, toy.agent, toy.entity)
    model.predict_proba(toy.X, toy.agent, toy.entity)


class Clock:
    """Seconds of this process's core by stage, which what else runs on the machine hardly changes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds[name] = time.process_time() - start


@contextmanager
def one_thread() -> Iterator[None]:
    """Cells run side by side, one core each; sums then have one order, and figures come out the same again."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def training_writers(images: Images, fraction: float, seed: int) -> NDArray[np.str_]:
    """A share of all writers, drawn at random; at least one."""
    writers = images.writers
    n_chosen = max(1, round(fraction * len(writers)))
    return np.random.default_rng([seed, 0]).choice(writers, n_chosen, replace=False)


def train_and_look(
    images: Images, task: Task, chosen: NDArray[np.str_], plan: FedAvgPlan, seed: int, clock: Clock
) -> Outputs:
    """Train on the chosen writers' training images; then what the network says of all images."""
    network = build_network(seed)
    lots = [task.train[images.writer[task.train] == writer] for writer in chosen]
    shards = [Shard(as_input(images.x[rows]), torch.from_numpy(images.y[rows])) for rows in lots]
    with clock.stage("cnn"):
        federated_averaging(network, shards, plan, np.random.default_rng([seed, 1]))
    with clock.stage("outputs"):
        return outputs(network, images.x)


def network_scores(task: Task, said: Outputs) -> dict[str, Scores]:
    """Scores of the held-out images by the network alone."""
    return {
        "argmax": stages.argmax_scores(task, said.probabilities),
        "soft": stages.letter_scores(task, said.probabilities),
    }


def fit_models(
    task: Task, features: Features, seed: int, clock: Clock, scores: dict[str, Scores]
) -> dict[str, HLCRRegressor | HLCRClassifier]:
    """All models of the output vector, by name; their scores are added to `scores`."""
    compile_kernels()
    compile_classifier()
    _add_simple_scores(task, features, "", clock, scores)
    return {name: _fit_and_score(task, features, name, "", seed, clock, scores) for name in stages.MODELS}


def add_hidden_scores(
    task: Task, said: Outputs, n_components: int, seed: int, clock: Clock, scores: dict[str, Scores]
) -> None:
    """Scores `…_hidden` of methods that know the hidden layer beside the output vector."""
    with clock.stage("pca"):
        components = stages.principal_components(task, said.hidden, n_components)
    both = np.hstack([said.probabilities, components])
    _add_simple_scores(task, both, HIDDEN, clock, scores)
    for name in WITH_HIDDEN:
        _fit_and_score(task, both, name, HIDDEN, seed, clock, scores)


def _add_simple_scores(task: Task, features: Features, suffix: str, clock: Clock, scores: dict[str, Scores]) -> None:
    for name, score in (("lr", stages.logistic_scores), ("linear", stages.linear_scores)):
        with clock.stage(name + suffix):
            scores[name + suffix] = score(task, features)


def _fit_and_score(
    task: Task, features: Features, name: str, suffix: str, seed: int, clock: Clock, scores: dict[str, Scores]
) -> HLCRRegressor | HLCRClassifier:
    with clock.stage(name + suffix):
        model = stages.fit_hlcr(task, features, name, seed)
        scores[name + suffix] = stages.scores_of(model, task, features)
    return model
