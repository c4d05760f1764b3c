"""The report of the study on FEMNIST: tables, picture, and what they say of the paper's claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from experiments.femnist import paper
from experiments.femnist.cluster_picture import draw_clusters
from experiments.femnist.findings import findings, range_of
from experiments.femnist.picture import draw
from experiments.femnist.results import HIDDEN, HLCR, STAGES, TWINS, Results, label, percent
from experiments.markdown import Gallery, mean_and_error, table
from experiments.study import Figures, Record, Report

REGRESSIONS = ("linear", "lr", *HLCR)
NETWORK = ("argmax", "soft")
TIMED = (*STAGES, "lr", *HLCR, *(method + HIDDEN for method in ("lr", *HLCR)))
TEXT = """\
The network of the paper's footnote (two 5 × 5 convolutions of 32 and 64 channels, each with 2 × 2 max-pooling, 512
ReLU, softmax over 62 classes) is trained by FedAvg on a share of {n_writers:,} writers with {n_images:,} images; then
every image of *all* writers is classified as a letter or a digit. A fifth of each writer's images (about
{n_held_out:,}) are held out and used only for the AUC.

- *CNN, argmax*: 1 if the likeliest class is a letter, else 0, as in the paper. *CNN, all letters*: the summed
  probabilities of the 52 letters.
- *LR*: logistic regression on standardised features; *linear regression*: least squares on 0 and 1. The paper's LR may
  be either.
- *HLCR₄, HLCR₈*: `HLCRRegressor(n_clusters=4)` and `8` on 0 and 1, as in the paper, without effects; a writer is an
  agent with one entity. *Classifier₄, classifier₈*: `HLCRClassifier` with the same settings, where each cluster is a
  logistic regression.
- These are trained with the training images of all writers, on the CNN's *output vector*, the 62 probabilities of
  its softmax, as in the paper; and, as a variation without classifiers (*+ hidden*), on these and the first
  {n_components} principal components of its hidden layer (512 ReLU), which describe what an image looks like.

FedAvg: {n_rounds} rounds, each with {writers_per_round} of the training writers drawn at random, {local_epochs} local
epochs of plain SGD in batches of {batch_size}, learning rate {learning_rate} falling linearly to 0, means weighted by
images. A seed draws the held-out images, the training writers, the initial weights and the sampler; figures are means ±
standard errors over {n_seeds} seeds. All settings were chosen on other seeds, that is, other splits of the same images.
The CNN classifies {accuracy} of the held-out images correctly among 62 classes.
"""


def report(records: Sequence[Record], gallery: Gallery) -> Report:
    results = Results(records)
    name = "femnist" if records[0].settings["source"] == "part" else "femnist-full"
    draw(results, gallery.path(name))
    with_hidden = [method + HIDDEN for method in REGRESSIONS]
    parts = [
        introduction(results),
        gallery.show(name, "FEMNIST: AUC by share of writers who trained the CNN, HLCR's gain over LR, and seconds"),
        "AUC of all held-out images together, on the output vector:",
        by_fraction(results, (*NETWORK, *REGRESSIONS), lambda f, m: mean_and_error(results.figures(f, m))),
        "The same with components of the hidden layer in addition:",
        by_fraction(results, with_hidden, lambda f, m: mean_and_error(results.figures(f, m))),
        variation(results),
        "HLCR minus LR (logistic), seed by seed, on the same features:",
        by_fraction(
            results,
            (*HLCR, *(method + HIDDEN for method in HLCR)),
            lambda f, m: str(results.difference(f, m, "lr" + HIDDEN * m.endswith(HIDDEN))),
        ),
        "AUC within single writers, mean over those whose held-out images have both letters and digits. Here it does "
        "not help to know how many letters a writer writes, which HLCR's clusters also learn:",
        by_fraction(
            results,
            ("argmax", "soft", "lr", *HLCR, *(method + HIDDEN for method in ("lr", *HLCR))),
            lambda f, m: mean_and_error(results.figures(f, m, "auc_by_writer")),
        ),
        "Seconds of one core, without compilation of HLCR's kernels:",
        seconds_table(results, TIMED),
        "### Beside the paper's table",
        beside_the_paper(results),
        "### Two classes in place of 0 and 1",
        *classifiers(results),
        "### Clusters of writers",
        clusters_of_writers(results, name, gallery),
    ]
    return Report("\n\n".join(parts), findings(results))


def introduction(results: Results) -> str:
    first = results.records[0]
    found = map(results.at, results.fractions)
    accuracy = [percent(fmean(record.figures["accuracy"] for record in records)) for records in found]
    extra = {"n_seeds": len(results.at(results.fractions[0])), "accuracy": f"{', '.join(accuracy)} (by share)"}
    return TEXT.format(**(first.settings | first.figures | extra))


def variation(results: Results) -> str:
    """What the hidden layer's components change, method by method."""
    changes = [
        f"{label(method)}'s by "
        + ", ".join(f"{results.difference(f, method + HIDDEN, method)} ({percent(f)})" for f in results.fractions)
        for method in ("lr", *HLCR)
    ]
    return f"Against the output vector alone, they change {'; '.join(changes)}."


def by_fraction(results: Results, methods: Sequence[str], entry: Callable[[float, str], str]) -> str:
    """One row per fraction of training writers, one column per method."""
    rows = [[writers(results, f), *(entry(f, method) for method in methods)] for f in results.fractions]
    return table(["writers who trained the CNN", *map(label, methods)], rows)


def seconds_table(results: Results, stages: Sequence[str]) -> str:
    return by_fraction(results, stages, lambda f, stage: mean_and_error(results.figures(f, stage, "seconds"), 2))


def beside_the_paper(results: Results) -> str:
    """The printed figures and ours, by share of writers."""
    ours = ("argmax", "lr", *HLCR, *(one for one, other in TWINS.items() if other in HLCR))
    rows = []
    for fraction in sorted({*paper.AUC, *results.fractions}):
        printed = paper.AUC.get(fraction, ("–",) * len(paper.METHODS))
        measured = fraction in results.fractions
        own = [f"{100 * results.figures(fraction, name).mean():.2f}" if measured else "–" for name in ours]
        rows.append([percent(fraction), *printed, *own])
    header = [f"paper: {name}" for name in paper.METHODS] + [f"ours: {label(name)}" for name in ours]
    first = results.records[0]
    text = paper.TEXT.format(**(first.settings | first.figures))
    return f"{text}\n{table(['writers who trained the CNN', *header], rows)}"


def classifiers(results: Results) -> list[str]:
    """The classifiers beside regressions of 0 and 1 with the same settings."""
    both = (*TWINS.values(), *TWINS)
    gains = [results.difference(f, *pair) for pair in TWINS.items() for f in results.fractions]
    found = {name: results.every(name, "n_clusters") for name in both if name.endswith("auto")}
    return [
        "`HLCRClassifier` and `HLCRRegressor` with the same settings, without effects: 4 clusters, 8 clusters, and "
        "as many as the fit finds (*K found*). AUC of all held-out images together, on the output vector:",
        by_fraction(results, both, lambda f, m: mean_and_error(results.figures(f, m))),
        f"The classifier's AUC is higher by more than one standard error in {sum(gain.better for gain in gains)} of "
        f"{len(gains)} comparisons with the regression of the same settings, seed by seed, and lower in "
        f"{sum(not gain.at_least for gain in gains)}; the differences are {range_of(gains)}. Clusters found: "
        f"{'; '.join(f'{label(name)} {n.min():.0f} to {n.max():.0f}' for name, n in found.items())}.",
        "AUC within single writers:",
        by_fraction(results, both, lambda f, m: mean_and_error(results.figures(f, m, "auc_by_writer"))),
        "Seconds of one core, fit and prediction:",
        seconds_table(results, both),
    ]


def clusters_of_writers(results: Results, name: str, gallery: Gallery) -> str:
    """The clusters of classifier₄ in the first seed of one row of the table."""
    fraction = results.fractions[len(results.fractions) // 2]
    figures = results.at(fraction)[0].figures["clusters"]
    shown = f"{name}-clusters"
    draw_clusters(figures, gallery.path(shown))
    sizes = [figures["label"].count(cluster) for cluster in range(len(figures["answers"]))]
    sure = sum(value > 0.95 for value in figures["certainty"])
    letters, read = (_by_cluster(figures, of) for of in ("letters", "read"))
    text = (
        f"The clusters of classifier₄ with {percent(fraction)} of the writers, first seed: {_listed(sizes)} writers. "
        f"{sure} of {len(figures['label'])} writers are in their cluster with a probability above 95 %. Letters "
        f"are {letters} of their images, by cluster, and the network reads {read} as the right sort. Left: each "
        "dot is a writer. Right: what each cluster's regression answers for the *same* images, all training images of "
        "a character. The clusters were found from the network's output and from letter or digit alone."
    )
    caption = "Clusters of writers: what they write, how well the network reads them, and what each cluster answers"
    return f"{text}\n\n{gallery.show(shown, caption)}"


def _by_cluster(figures: Figures, of: str) -> str:
    """Means over the writers of each cluster, in words; clusters without writers are left out."""
    own = zip(figures["label"], figures[of], strict=True)
    by_label: dict[int, list[float]] = {}
    for cluster, value in own:
        by_label.setdefault(cluster, []).append(value)
    return _listed([percent(fmean(by_label[cluster])) for cluster in sorted(by_label)])


def _listed(things: Sequence[object]) -> str:
    *first, last = map(str, things)
    return f"{', '.join(first)} and {last}" if first else last


def writers(results: Results, fraction: float) -> str:
    return f"{percent(fraction)} ({results.at(fraction)[0].figures['n_training_writers']})"
