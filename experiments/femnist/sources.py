"""Which files the study reads, by the name of a source."""

from __future__ import annotations

from experiments.data import find_data
from experiments.femnist.loaders import Images, load_leaf, load_npz, load_tff
from experiments.study import MissingDataError

PART = "femnist_107_writers.npz"
TFF_TRAIN, TFF_TEST = "fed_emnist_train.h5", "fed_emnist_test.h5"
LEAF = "femnist_leaf"


def find_images(source: str) -> Images:
    """Of source "part", 107 writers; or "full", all writers: TFF's files if they are here, else LEAF's folder."""
    images = load_npz(find_data(PART)) if source == "part" else _find_full()
    if images.is_letter.all() or not images.is_letter.any():
        raise MissingDataError("The files hold no letters or no digits; take TFF's fed_emnist, not its digitsonly.")
    return images


def _find_full() -> Images:
    try:
        train = find_data(TFF_TRAIN)
    except MissingDataError:
        pass
    else:
        test = train.with_name(TFF_TEST)
        return load_tff(train, test) if test.exists() else load_tff(train)
    try:
        return load_leaf(find_data(LEAF))
    except MissingDataError as missing:
        raise MissingDataError(
            f"neither {TFF_TRAIN} nor {LEAF} is here; experiments/femnist/README.md says where to get them and where "
            "they go."
        ) from missing
