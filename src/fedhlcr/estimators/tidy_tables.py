"""Tables of a fitted model as dataframes: coefficients, clusters, agents and entities, with intervals."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

from sklearn.utils.validation import check_is_fitted

from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.analysis.frames import Columns, LibraryName, chosen_library, make_frame
from fedhlcr.analysis.tables import agent_columns, cluster_columns, coef_columns, entity_columns, long_entity_columns
from fedhlcr.exceptions import ArgumentError


def check_probability(level: Any) -> None:
    """Refuse a level outside (0, 1)."""
    if not isinstance(level, Real) or not 0.0 < float(level) < 1.0:
        raise ArgumentError(f"`level` must lie between 0 and 1, but is {level!r}; 0.9 is a usual choice.")


class TidyTables:
    """Tables in the dataframe library of the X that was given to `fit`, or in another one."""

    # pandas, polars or pyarrow; None if X was an array, or if the model was loaded
    frame_library_: str | None = None

    def coef_table(self, level: float = 0.9, *, library: LibraryName | None = None) -> Any:
        """Coefficients of the clusters: one row for each cluster and feature, the intercept included.

        Parameters
        ----------
        level : float, default=0.9
            Probability of the intervals.
        library : {"pandas", "polars", "pyarrow"}, optional
            Dataframe library of the table. None is that of the X given to `fit`; for arrays and loaded models the first
            of these three that is installed.

        Returns
        -------
        dataframe with the columns
            cluster, feature : number of the cluster, and name of the feature or "intercept".
            mean, std : posterior mean, as in `coef_` and `intercept_`, and standard deviation, in the user's units.
            lower, upper : ends of the central interval; NaN if the model has only one draw.
            is_clear : whether the interval leaves out zero.
            change, change_lower, change_upper : of real targets, the change of the target per unit, as in the report.
            It differs from the coefficient for levels of categories, which are compared with all other levels here, and
            with the average event there.
            odds_ratio or rate_ratio, with _lower and _upper : of classes and counts, per unit, as in the summary.
            step, step_ratio, step_ratio_lower, step_ratio_upper : of classes and counts, the ratio for a step of the
            feature, as in the report and in `fedhlcr.plot.ratios`.
        """
        return self._table(coef_columns, level, library)

    def cluster_table(self, level: float = 0.9, *, library: LibraryName | None = None) -> Any:
        """The clusters: one row for each.

        Parameters
        ----------
        level, library : as in `coef_table`

        Returns
        -------
        dataframe with the columns
            cluster : its number.
            share, share_lower, share_upper : share of the fitted entities, mean over the draws, and interval.
            weight, weight_lower, weight_upper : `cluster_weights_`, the expected share of a new agent's entities.
            level, level_lower, level_upper : prediction at average features; of classes and counts the probability or
            the rate of a typical entity.
            n_entities : number of entities with this label in `labels_`; NaN in a public model.
            certainty : mean probability of the label of these entities; NaN where there are none.
        """
        return self._table(cluster_columns, level, library)

    def entity_table(self, level: float = 0.9, *, long: bool = False, library: LibraryName | None = None) -> Any:
        """The entities: one row for each, in the order of `labels_`. `fedhlcr inspect --entities` writes the same.

        Parameters
        ----------
        level, library : as in `coef_table`
        long : bool, default=False
            Whether to return one row for each entity and coefficient: ids, cluster, feature, mean, std, lower, upper.

        Returns
        -------
        dataframe with the columns
            agent, entity : the ids, under the names of their columns if `fit` had columns. A single agent without a
            name has no column.
            cluster, probability : the label in `labels_`, and its probability.
            second_cluster, second_probability : the most probable other cluster; −1 and 0 if there is only one cluster.
            n_events : number of events.
            intercept, and one column for each feature : posterior means, `entity_intercept_` and `entity_coef_`.
            the same with _std, _lower and _upper : standard deviations, and ends of the intervals. These are quantiles
            over draws and labels: where the label is in doubt, they may reach from one cluster to another.
            noise : of real targets, `entity_noise_`.

        Notes
        -----
        A name that a feature or an id has already gets an underscore.
        """
        return self._table(long_entity_columns if long else entity_columns, level, library)

    def agent_table(self, level: float = 0.9, *, library: LibraryName | None = None) -> Any:
        """The agents: one row for each, in the order of `agent_ids_`.

        Parameters
        ----------
        level, library : as in `coef_table`

        Returns
        -------
        dataframe with the columns
            agent : the id, under the name of its column if `fit` had one.
            n_entities, n_events : numbers of entities and events.
            cluster : the cluster with the largest share of the agent's entities.
            effective_clusters : effective number of clusters, 1 / Σ share².
            share_0, share_1, … : shares of the agent's entities in each cluster, mean over the draws, as in the report.
            weight_0, weight_1, … : `agent_weights_`, probabilities of the cluster of the agent's next entity.
            level_effect, …_effect, with _std, _lower and _upper : effects of the agent on the level and on slopes, if
            the model has any.
        """
        return self._table(agent_columns, level, library)

    @single_threaded_blas
    def _table(self, columns: Callable[[Any, float], Columns], level: float, library: Any) -> Any:
        check_is_fitted(self)
        check_probability(level)
        name = chosen_library(library, self.frame_library_)
        return make_frame(columns(self, float(level)), name)
