"""Make the rule of a run and its account, once the survey has fixed the units."""

from __future__ import annotations

from fedhlcr._support.streams import Stream
from fedhlcr.federation.account import Account, AccountFactory
from fedhlcr.federation.fixed_accounts import FixedLedger, RunningTotal
from fedhlcr.federation.ledger import Ledger
from fedhlcr.federation.rules import BlendRule, DeltaRule, Rule
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.survey import Units
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.priors import ModelSpec
from fedhlcr.settings import LEARNABLE


def make_rule(
    settings: FederationSettings,
    units: Units,
    likelihood: AnyLikelihood,
    stream: Stream,
    make_account: AccountFactory | None = None,
) -> Rule:
    """The rule that the settings ask for; `make_account` replaces the account of the settings."""
    spec = ModelSpec.in_units(
        float(units.standardization.scale[-1]),
        **{name: getattr(settings, name) for name in LEARNABLE},
        coef_prior=settings.coef_prior,
        effects=settings.effects,
        target_spread=units.target_spread,
    )
    n_clusters = settings.start_clusters
    if settings.rule == "blend":
        scaling = settings.participation_scaling
        rate = settings.learning_rate
        most = settings.max_weight
        return BlendRule(settings.layout, spec, n_clusters, rate, scaling, stream, most)
    if make_account is None:
        account = _account(settings, likelihood)
    else:
        account = make_account(n_clusters, likelihood.sum_schema)
    return DeltaRule(likelihood, spec, n_clusters, settings.merger(spec), stream, account, settings.settling)


def _account(settings: FederationSettings, likelihood: AnyLikelihood) -> Account:
    n_clusters = settings.start_clusters
    if settings.is_secure:
        return RunningTotal(n_clusters, likelihood)
    if settings.fixed_point:
        return FixedLedger(n_clusters, likelihood)
    return Ledger(n_clusters, likelihood.sum_schema, settings.max_weight)
