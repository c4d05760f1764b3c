"""Fit a model to a table in files, which may be larger than memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Self

from fedhlcr.data.categories import Categories
from fedhlcr.data.families import COUNT
from fedhlcr.data.recipe_plan import plan_recipe
from fedhlcr.data.table_files import open_table
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.estimators.files import open_work, read_table
from fedhlcr.estimators.streamed import StreamedEvents
from fedhlcr.exceptions import ArgumentError
from fedhlcr.kernels import ahead
from fedhlcr.settings import MissingPolicy


class FileFitter(HierarchicalPredictor):
    """An estimator that can be fitted to files. A subclass fits what has been read from them."""

    verbose: bool
    _is_federated: ClassVar[bool] = False

    @abstractmethod
    def likelihood_name(self) -> str:
        """The name of the likelihood that `fit` uses."""

    @abstractmethod
    def fit_streamed(self, data: StreamedEvents) -> Self:
        """Fit the model to a table that has been read into a work folder; see `fit_files`."""

    def _require_files(self) -> None:
        """Refuse settings that need the table in memory."""

    def fit_files(
        self,
        path: str | Path,
        *,
        target: str,
        entity: str,
        agent: str | None = None,
        features: Sequence[str] = (),
        categorical: Categories | None = None,
        missing: MissingPolicy | None = None,
        exposure: str | None = None,
        folder: str | Path | None = None,
    ) -> Self:
        """Fit the model to a table in files that may be larger than memory, as `fedhlcr fit` does.

        The table is read once, and its events are sorted by entity in files. The model is the same as that of `fit` for
        the same rows, bit for bit. Ids that are neither texts nor whole numbers below 2⁶³ are known by their texts.

        Parameters
        ----------
        path : file, or folder of Parquet files
            Parquet and CSV are read in pieces, other formats at once.
        target, entity, agent, exposure : names of columns; without `agent` all rows are of one agent; `exposure` is for
            counts
        features : names of columns; by default all others
        categorical : names of features that are categories, or their levels by name; each level becomes a feature.
            None takes those of the parameter `categories`; there is no "auto" for files
        missing : {"refuse", "drop", "impute"}, optional
            What to do about rows with missing values: refuse the table, drop them, or replace missing features by the
            median or the most common level. None takes the parameter `missing`.
        folder : path, optional
            Folder for temporary files, about twice the size of the table in memory. If the process is killed, the
            same call goes on where it stopped. At the end the folder is removed. None takes one of the system's, and
            starts again.

        Returns
        -------
        self
        """
        self._validate_params()
        self._require_files()
        if self.formula is not None:
            raise ArgumentError(
                "`formula` is for tables in memory; pass the table to `fit`, or leave `formula` out and name columns."
            )
        if exposure is not None:
            # only models of counts have exposures
            self._offset(1.0, 1)
        file = open_table(path)
        plan = plan_recipe(
            file,
            target=target,
            agent=agent,
            entity=entity,
            features=features,
            categorical=self._named_categories() if categorical is None else categorical,
            missing=self._missing() if missing is None else missing,
            has_classes=self.family.has_classes,
            has_counts=self.family is COUNT,
            exposure=exposure,
        )
        names = ("curves", "fit_intercept", "standardize")
        settings = {"model": type(self).__name__, "likelihood": self.likelihood_name()}
        settings |= {name: str(getattr(self, name)) for name in names}
        with ExitStack() as at_end:
            if folder is None:
                folder = Path(at_end.enter_context(TemporaryDirectory(prefix="fedhlcr-"))) / "fit"
            work = at_end.enter_context(open_work(Path(folder), file, plan, settings))
            ahead.prepare(ahead.for_files(self.likelihood_name(), federated=self._is_federated))
            self.fit_streamed(read_table(file, plan, work, shows_progress=self.verbose).events)
            work.remove()
        return self

    def _named_categories(self) -> Categories:
        return () if isinstance(self.categories, str) else self.categories
