"""One cell of the table: some writers train the network, then letters against digits for all writers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from experiments.femnist import stages
from experiments.femnist.fedavg import FedAvgPlan, Shard, federated_averaging
from experiments.femnist.loaders import Images
from experiments.femnist.network import Outputs, as_input, build_network, outputs
from experiments.femnist.sources import find_images
from experiments.femnist.stages import Scores, Task
from experiments.methods import compile_kernels
from experiments.study import Figures

N_CLUSTERS = (4, 8)


def measure_cell(source: str, fraction: float, seed: int, n_components: int, **plan: Any) -> Figures:
    """AUC of every method and seconds of every stage; `plan` are the fields of FedAvgPlan."""
    images = find_images(source)
    task = stages.make_task(images, seed)
    clock = Clock()
    with one_thread():
        chosen = training_writers(images, fraction, seed)
        said = train_and_look(images, task, chosen, FedAvgPlan(**plan), seed, clock)
        scores = all_scores(task, said, n_components, seed, clock)
    likeliest = said.probabilities[task.test].argmax(axis=1)
    return {
        "auc": {name: stages.pooled_auc(task, score) for name, score in scores.items()},
        "auc_by_writer": {name: stages.mean_auc_by_writer(task, score) for name, score in scores.items()},
        "seconds": clock.seconds,
        "accuracy": float(np.mean(likeliest == images.y[task.test])),
        "n_writers": len(images.writers),
        "n_training_writers": len(chosen),
        "n_images": len(images.y),
        "n_held_out": len(task.test),
    }


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


def all_scores(task: Task, said: Outputs, n_components: int, seed: int, clock: Clock) -> dict[str, Scores]:
    """Scores of the held-out images by method; `…_hidden` know the hidden layer beside the output vector."""
    compile_kernels()
    scores = {
        "argmax": stages.argmax_scores(task, said.probabilities),
        "soft": stages.letter_scores(task, said.probabilities),
    }
    with clock.stage("pca"):
        components = stages.principal_components(task, said.hidden, n_components)
    both = np.hstack([said.probabilities, components])
    for suffix, features in (("", said.probabilities), ("_hidden", both)):
        with clock.stage(f"lr{suffix}"):
            scores[f"lr{suffix}"] = stages.logistic_scores(task, features)
        with clock.stage(f"linear{suffix}"):
            scores[f"linear{suffix}"] = stages.linear_scores(task, features)
        for n_clusters in N_CLUSTERS:
            with clock.stage(f"hlcr_{n_clusters}{suffix}"):
                scores[f"hlcr_{n_clusters}{suffix}"] = stages.hlcr_scores(task, features, n_clusters, seed)
    return scores
