"""What notebooks show of an estimator: its results if it is fitted, else scikit-learn's diagram."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator

from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.analysis.summary import model_html


class NotebookResults(BaseEstimator):
    """An estimator that shows results. `sklearn.set_config(display="text")` turns all HTML off, as usual."""

    @property
    def _repr_html_(self) -> Callable[[], str]:
        # scikit-learn's raises an AttributeError if HTML is off
        diagram: Callable[[], str] = super()._repr_html_
        return self._results_html if self.__sklearn_is_fitted__() else diagram

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle and self.__sklearn_is_fitted__():
            bundle["text/html"] = self._results_html()
        return bundle

    @single_threaded_blas
    def _results_html(self) -> str:
        return model_html(self)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")
