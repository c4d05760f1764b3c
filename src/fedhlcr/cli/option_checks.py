"""What commands refuse about their options, and what the texts of options mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fedhlcr.data.recipe import Recipe

# What typer raises where a command line is wrong: `BadParameter`, and others that have no public name in all releases.
UsageError: Any = typer.BadParameter.__base__


def require_apart(option: str, path: Path | None, other_option: str, other: Path | None) -> None:
    """Refuse two outputs to the same file: the second would replace the first."""
    if path is not None and other is not None and path.resolve() == other.resolve():
        raise typer.BadParameter(f"must not be the same file as {other_option}.", param_hint=option)


def require_for(needed: str, is_given: bool, **values: object) -> None:
    """Refuse options that have no effect without another one."""
    for name, value in values.items():
        if value and not is_given:
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(
                f"has no effect without {needed}; add {needed}, or leave {option} out.", param_hint=option
            )


def require_columns(formula: str | None, **given: object) -> None:
    """Refuse a command that names neither columns nor a formula, or that names both."""
    for name, value in given.items():
        if formula is not None and value:
            reason = "is for tables without --formula, which names all columns; leave it out."
            raise typer.BadParameter(reason, param_hint=f"--{name}")
        if formula is None and value is None and name in ("target", "entity"):
            raise UsageError(f"Missing option '--{name}': name a column, or pass --formula.")


def split_names(option: str, values: list[str] | None, columns: tuple[str, ...]) -> list[str]:
    """Return names that an option got one by one or separated by commas. A column's own name may contain commas."""
    names = []
    for value in values or []:
        names += [value] if value in columns else [name.strip() for name in value.split(",") if name.strip()]
    if values and not names:
        raise typer.BadParameter("names no column; name at least one.", param_hint=option)
    return list(dict.fromkeys(names))


def curve_names(values: list[str] | None, recipe: Recipe) -> str | list[str]:
    """Return the parameter `curves` of an estimator: a word, or names of features."""
    if not values:
        return "none"
    if values in (["none"], ["auto"]):
        return values[0]
    names = split_names("--curves", values, recipe.encoded_features)
    if categories := [name for name in names if name in recipe.categorical]:
        raise typer.BadParameter(
            f"names {categories[0]!r}, which is a category; the effect of a category cannot bend. Leave it out.",
            param_hint="--curves",
        )
    return names


def cluster_number(clusters: str) -> int | str:
    if clusters == "auto":
        return clusters
    if not _is_count(clusters):
        raise typer.BadParameter("must be a whole number of at least 1, or auto.", param_hint="--clusters")
    return int(clusters)


def cluster_numbers(clusters: str) -> list[int]:
    numbers = [number.strip() for number in clusters.split(",") if number.strip()]
    if not numbers or not all(map(_is_count, numbers)):
        reason = "must be whole numbers of at least 1, separated by commas; auto is always compared too."
        raise typer.BadParameter(reason, param_hint="--clusters")
    return [int(number) for number in numbers]


def _is_count(text: str) -> bool:
    # Python refuses to convert texts of thousands of digits
    return text.isascii() and text.isdigit() and len(text) < 1000 and int(text) > 0
