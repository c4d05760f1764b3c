"""Handwritten characters by writer, from each of the files in which FEMNIST is passed around.

All hold the same: images of 28 × 28 pixels on white paper, classes 0–9 for digits, 10–35 for A–Z, 36–61 for a–z, and
who wrote them. LEAF and TensorFlow Federated (TFF) store pixels as 255ths, from 0, ink, to 1, paper; here they are
bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.study import DataError

SIDE = 28
N_DIGITS, N_CLASSES = 10, 62


class BrokenFileError(DataError):
    """A file is not what it should be; the message names it and the cure, and shows no pixels."""


@dataclass(frozen=True)
class Images:
    """Characters and their writers.

    Attributes
    ----------
    x : (n, 28, 28) from 0, ink, to 255, paper
    y : (n,) class: 0–9 digits, 10–35 A–Z, 36–61 a–z
    writer : (n,) ids, as text
    """

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    writer: NDArray[np.str_]

    @property
    def is_letter(self) -> NDArray[np.bool_]:
        return self.y >= N_DIGITS

    @property
    def writers(self) -> NDArray[np.str_]:
        """Each writer once, in order."""
        return np.unique(self.writer)


@dataclass(frozen=True)
class _Lot:
    """Images of one writer from one file."""

    writer: str
    x: NDArray[np.uint8]
    y: NDArray[np.int64]


def load_npz(path: Path) -> Images:
    """Arrays `x` (n, 28, 28) of bytes with paper 255, `y` and `writer` (n,)."""
    cure = "it should hold arrays `x` (n, 28, 28), `y` (n,) and `writer` (n,)"
    try:
        with path.open("rb") as raw, np.load(raw) as file:
            arrays = {name: file[name] for name in ("x", "y", "writer")}
    except (BadZipFile, ValueError, EOFError) as error:
        raise BrokenFileError(f"{path.name} cannot be read as npz; {cure}. Copy it again.") from error
    except KeyError as error:
        raise BrokenFileError(f"{path.name} lacks an array; {cure}.") from error
    x, y, writer = arrays["x"], arrays["y"], arrays["writer"]
    if x.dtype != np.uint8:
        raise BrokenFileError(f"`x` of {path.name} is {x.dtype}; expected uint8, paper 255.")
    if writer.shape != (len(x),):
        raise BrokenFileError(f"`writer` of {path.name} has shape {writer.shape} for {len(x)} images; {cure}.")
    where = path.name
    return Images(_checked_shape(x, where), _checked_classes(y, len(x), where), writer.astype(str))


def load_leaf(path: Path) -> Images:
    """One JSON file of LEAF, or a folder of them: with JSON files, with `train` and `test`, or with `all_data`.

    A writer's images may be spread over files, as they are over `train` and `test`; files must not repeat each other.
    """
    return _together(lot for file in _leaf_files(path) for lot in _leaf_lots(file))


def load_tff(*paths: Path) -> Images:
    """HDF5 files of TFF, such as fed_emnist_train.h5 and fed_emnist_test.h5, which share their writers."""
    return _together(lot for path in paths for lot in _tff_lots(path))


def _leaf_files(path: Path) -> Sequence[Path]:
    if path.is_file():
        return [path]
    for folders in ([path], [path / "train", path / "test"], [path / "all_data"]):
        files = [file for folder in folders for file in sorted(folder.glob("*.json"))]
        if files:
            return files
    raise BrokenFileError(
        f"The folder {path.name} holds no JSON files, neither itself nor in `train` and `test` or `all_data`; "
        "copy there what LEAF's preprocess.sh writes into data/femnist/data."
    )


def _leaf_lots(path: Path) -> Iterator[_Lot]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise BrokenFileError(f"{path.name} is no whole JSON file; run LEAF's preprocess.sh again.") from error
    users, data = (content.get(key) if isinstance(content, dict) else None for key in ("users", "user_data"))
    if not isinstance(users, list) or not isinstance(data, dict):
        raise BrokenFileError(f"{path.name} lacks `users` or `user_data`; pass files of LEAF's femnist.")
    counts = content.get("num_samples", [None] * len(users))
    if len(counts) != len(users):
        raise BrokenFileError(
            f"{path.name} has {len(users)} `users` but {len(counts)} `num_samples`; expected one for each."
        )
    for user, count in zip(users, counts, strict=True):
        where = f"{path.name}, writer {user}"
        lot = data.get(user, {})
        if not isinstance(lot, dict) or "x" not in lot or "y" not in lot:
            raise BrokenFileError(f"{where}: `user_data` lacks `x` or `y`; pass files of LEAF's femnist.")
        if count is not None and count != len(lot["y"]):
            raise BrokenFileError(
                f"{where}: `num_samples` is {count}, but `y` has {len(lot['y'])} labels; the file was cut."
            )
        yield _lot(str(user), _as_array(lot["x"], where), _as_array(lot["y"], where), where)


def _tff_lots(path: Path) -> Iterator[_Lot]:
    import h5py

    try:
        file = h5py.File(path, "r")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BrokenFileError(f"{path.name} is no whole HDF5 file; unpack fed_emnist.tar.bz2 again.") from error
    with file:
        if "examples" not in file:
            raise BrokenFileError(f"{path.name} lacks the group `examples`; pass a file of TFF's fed_emnist.")
        for writer, group in file["examples"].items():
            where = f"{path.name}, writer {writer}"
            if "pixels" not in group or "label" not in group:
                raise BrokenFileError(f"{where}: `pixels` or `label` is missing; pass a file of TFF's fed_emnist.")
            # labels are (n,) in some releases and (n, 1) in others
            yield _lot(writer, group["pixels"][()], group["label"][()].reshape(-1), where)


def _lot(writer: str, x: NDArray, y: NDArray, where: str) -> _Lot:
    """Of one writer's shares of paper white between 0 and 1, (n, 784) or (n, 28, 28), and classes."""
    if x.dtype.kind not in "fiu" or not (np.all(x >= 0) and np.all(x <= 1)):
        raise BrokenFileError(f"{where}: pixels are not numbers from 0 to 1 (paper); is this femnist?")
    if x.ndim == 2 and x.shape[1] == SIDE * SIDE:
        x = x.reshape(-1, SIDE, SIDE)
    pixels = np.rint(_checked_shape(x, where) * 255.0).astype(np.uint8)
    return _Lot(writer, pixels, _checked_classes(y, len(x), where))


def _as_array(rows: ArrayLike, where: str) -> NDArray:
    try:
        return np.array(rows)
    except ValueError as error:
        raise BrokenFileError(
            f"{where}: rows differ in length; expected 784 pixels and one class per image."
        ) from error


def _checked_shape(x: NDArray, where: str) -> NDArray:
    if x.ndim != 3 or x.shape[1:] != (SIDE, SIDE):
        raise BrokenFileError(f"{where}: images have shape {x.shape}; expected (n, 784) or (n, 28, 28).")
    return x


def _checked_classes(y: NDArray, n_images: int, where: str) -> NDArray[np.int64]:
    if y.shape != (n_images,):
        raise BrokenFileError(f"{where}: classes have shape {y.shape} for {n_images} images; expected one per image.")
    if y.dtype.kind not in "iu" or np.any(y < 0) or np.any(y >= N_CLASSES):
        raise BrokenFileError(f"{where}: classes are not whole numbers from 0 to 61 (digits, A–Z, a–z).")
    return y.astype(np.int64)


def _together(lots: Iterator[_Lot]) -> Images:
    by_writer: dict[str, list[_Lot]] = {}
    for lot in lots:
        parts = by_writer.setdefault(lot.writer, [])
        if any(_repeats(lot, part) for part in parts):
            raise BrokenFileError(
                f"The same images of writer {lot.writer} are in two files; keep either `all_data` or `train` and "
                "`test`, lest images that are held out are also trained with."
            )
        parts.append(lot)
    every = [lot for parts in by_writer.values() for lot in parts]
    if not sum(len(lot.y) for lot in every):
        raise BrokenFileError("There are no images in these files; get them again.")
    return Images(
        np.concatenate([lot.x for lot in every]),
        np.concatenate([lot.y for lot in every]),
        np.repeat([lot.writer for lot in every], [len(lot.y) for lot in every]),
    )


def _repeats(one: _Lot, other: _Lot) -> bool:
    """Whether all images of one are in the other; single images may be alike, whole lots are not."""
    few, many = ({image.tobytes() for image in lot.x} for lot in (one, other))
    return bool(few and many) and (few <= many or many <= few)
