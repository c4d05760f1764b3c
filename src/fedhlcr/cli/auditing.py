"""`fedhlcr audit`: what a curious server learns, and whether differential privacy holds.

Modules that take long to import are imported inside the command, so that help and usage errors appear at once.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhlcr._support.wording import Noun
from fedhlcr.cli import options
from fedhlcr.cli.shell import FAILED, Shell, plural

if TYPE_CHECKING:
    from fedhlcr.data.hierarchy import Hierarchy
    from fedhlcr.privacy.audit.membership import MembershipResult
    from fedhlcr.privacy.audit.tables import TableAudit, WireAudit

AUDIT = "Audit"
CASE = Noun("case", "cases")
# The verdict on secure aggregation, by whether it took place.
KEPT = {True: "secure aggregation keeps its promise here", False: "secure aggregation did not take place"}
BROKEN = "a promise is broken; see above."
TOO_FEW_RUNS = "too few runs to tell"
# Some of the runs choose a threshold, and the others are counted; fewer runs cannot be divided.
FEWEST_RUNS = 10
# A test tells something if it would notice that the mechanism gives away this many times what it promises.
NOTICEABLE = 2.0
# A p-value of the sampler's test below which the audit fails.
SAMPLER_DOUBT = 1e-6


def audit(
    data: Annotated[
        str | None,
        typer.Argument(metavar="[DATA]", help="A table to audit. Without one, three example tables are audited."),
    ] = None,
    *,
    roles: Annotated[options.Roles, options.roles("target", "entity", "agent")],
    reading: options.ReadingReal,
    rounds: Annotated[
        int, typer.Option("--rounds", min=2, help="Number of rounds to run and attack.", rich_help_panel=AUDIT)
    ] = 60,
    secure_rounds: Annotated[
        int,
        typer.Option(
            "--secure-rounds",
            min=1,
            help="Number of rounds of secure aggregation whose messages are attacked.",
            rich_help_panel=AUDIT,
        ),
    ] = 3,
    participation: Annotated[
        float, options.real("--participation", 1e-6, 1.0, "Share of the agents to ask in each round.", AUDIT)
    ] = 1.0,
    settings: Annotated[dict[str, Any], options.settings("effects", "noise")],
    epsilon: Annotated[
        float, options.real("--epsilon", 0.01, 100.0, "Budget ε of the audit of differential privacy.", AUDIT)
    ] = 3.0,
    runs: Annotated[
        int,
        typer.Option(
            "--runs",
            min=0,
            help="Runs with and without an extra agent, to audit differential privacy. 0 leaves this part out.",
            rich_help_panel=AUDIT,
        ),
    ] = 20_000,
    seed: options.SeedOption = 0,
    shell: options.Output,
) -> None:
    """Attack a simulated federation of a table's agents, as a curious server would, and say what it finds out.

    Plain mode shows the sums of every agent; secure mode shows only their total. The attack searches both for matrices
    of single entities and for single rows, and compares what it finds with the table. Then it tests thousands of times
    whether the noise of differential privacy hides that an agent took part. Nothing leaves this computer.

    Exit code 0: no promise of secure aggregation or differential privacy is broken, as far as the audit can tell. Exit
    code 1: one is broken. What plain mode gives away is no failure: it promises nothing.

    \b
    fedhlcr audit
    fedhlcr audit sales.csv --target sales --agent store --entity product
    """
    from fedhlcr.kernels import ahead
    from fedhlcr.model.choice import chosen_likelihood
    from fedhlcr.model.likelihood import AUTO
    from fedhlcr.privacy.audit.tables import audit_table

    _check_columns(data, target=roles.target, entity=roles.entity, agent=roles.agent)
    if 0 < runs < FEWEST_RUNS:
        raise typer.BadParameter(f"must be 0 or at least {FEWEST_RUNS}, such as 20000.", param_hint="--runs")
    facts: dict[str, Any] = {"tables": {}}
    holds = True
    is_secure = True
    n_agents = 1000
    of_privacy = "differential privacy was not audited."
    with shell.warnings_as_notes():
        ahead.prepare(ahead.for_audits(chosen_likelihood(AUTO, **settings)))
        tables = _examples() if data is None else _own_table(data, roles, shell, **reading)
        for name, hierarchy in tables.items():
            with shell.stage(f"attacking {name}"):
                found = audit_table(
                    hierarchy,
                    secure_rounds=secure_rounds,
                    rounds=rounds,
                    patience=None,
                    participation=participation,
                    seed=seed,
                    **settings,
                )
            _tell_table(shell, name, found)
            facts["tables"][name] = asdict(found) | {"holds": found.holds}
            holds = holds & found.holds
            is_secure = is_secure and found.wire.n_rounds > 0
            n_agents = hierarchy.index.n_agents if data is not None else n_agents
        if runs:
            facts["membership"], sound = _membership(shell, epsilon, max(n_agents, 2), runs)
            holds = holds & sound
            of_privacy = _verdict(facts["membership"]["cases"])
    shell.say(f"Verdict: {f'{KEPT[is_secure]}; {of_privacy}' if holds else BROKEN}")
    shell.result(facts | {"holds": holds})
    if not holds:
        raise typer.Exit(FAILED)


def _check_columns(data: str | None, **columns: str | None) -> None:
    """A table needs its columns named, and columns need a table."""
    for name, value in columns.items():
        if (value is None) != (data is None):
            reason = "is needed with a table." if value is None else "needs a table: name it first."
            raise typer.BadParameter(reason, param_hint=f"--{name}")


def _examples() -> dict[str, Hierarchy]:
    from fedhlcr.privacy.audit.tables import as_hierarchy, example_tables

    return {name: as_hierarchy(table) for name, table in example_tables().items()}


def _own_table(data: str, roles: options.Roles, shell: Shell, **reading: Any) -> dict[str, Hierarchy]:
    import numpy as np

    from fedhlcr.cli.events import training_events
    from fedhlcr.data.hierarchy import build_hierarchy
    from fedhlcr.data.table_files import source_name

    events, _ = training_events(data, roles, family="real", shell=shell, **reading)
    X = events.table.matrix
    y = events.y
    return {source_name(data): build_hierarchy(X, y, np.ones(len(y)), events.agents, events.entities)}


def _tell_table(shell: Shell, name: str, found: TableAudit) -> None:
    sizes = [plural(found.n_entities, "entity", "entities"), plural(found.n_agents, "agent")]
    shell.say(f"{name}: {sizes[0]} of {sizes[1]}, {plural(found.n_events, 'event')}, {plural(found.n_rounds, 'round')}")
    scores = {
        "plain mode: every agent's sums": found.plain,
        "secure mode: what single agents send": found.wire.messages,
        "secure mode: the exact total of all agents": found.total,
    }
    rows = [
        (what, f"{own.entities} of {own.n_entities}", _share(own.rows, own.n_small), str(own.n_wrong))
        for what, own in scores.items()
    ]
    shell.table(("what a curious server can use", "entities found", "rows found *", "wrong claims"), rows)
    shell.say("* rows of entities with one or two events; an entity is found if its matrix of sums is exact")
    _tell_wire(shell, found.wire)
    if found.weighted:
        shell.say(f"Plain mode with weighted sums: exact features of {plural(found.weighted, 'entity', 'entities')}.")
    own = found.exposure
    shell.say(
        f"The total shows an entity that moves alone in {own.rounds} of {plural(own.n_rounds, 'round')} with plain "
        f"sums, {plural(own.entities, 'entity', 'entities')} in all. Secure aggregation does not prevent that, "
        "differential privacy does."
    )
    shell.say()


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "–"


def _tell_wire(shell: Shell, found: WireAudit) -> None:
    if not found.n_rounds:
        shell.say("Secure aggregation did not take place: it needs at least 3 agents in a round.")
        return
    shell.say(
        f"What single agents send: all messages of the survey and of {plural(found.n_rounds, 'round')} with masks."
    )
    shell.say("The total comes from all rounds, without masks: it is the same to the last bit.")
    if found.surveyed:
        shell.say(f"The survey's messages showed the column means of {plural(found.surveyed, 'single agent')}!")
    if found.leaked:
        shell.say(f"{plural(found.leaked, 'number')} of single agents could be read in messages of secure aggregation!")


def _membership(shell: Shell, epsilon: float, n_agents: int, runs: int) -> tuple[dict[str, Any], bool]:
    """Audit differential privacy; return what was found and whether it holds."""
    from fedhlcr.privacy.audit.membership import CASES, MembershipAudit, check_sampler
    from fedhlcr.privacy.audit.run_noise import audit_runs
    from fedhlcr.privacy.differential_privacy import DifferentialPrivacy

    with shell.bar(len(CASES), "auditing differential privacy", CASE) as bar:
        audit = MembershipAudit.of(DifferentialPrivacy(epsilon), n_agents, runs)
        results = audit.run(lambda: bar.advance({}))
    sampler = check_sampler()
    told = [can_tell(result.claimed_mu, runs) for result in results]
    _tell_membership(shell, list(zip(results, told, strict=True)), epsilon, runs)
    sound = sampler > SAMPLER_DOUBT
    shell.say(f"The exact sampler's noise {'has' if sound else 'does NOT have'} the right distribution.")
    faults = audit_runs()
    if not faults:
        shell.say("Whole private runs add the planned noise, anew in every round and run, with and without masks.")
    for fault in faults:
        shell.say(f"Whole private runs fail: {fault}!")
    shell.say()
    facts = {"epsilon": epsilon, "delta": audit.plan.delta, "runs": runs, "sampler_p_value": sampler, "faults": faults}
    cases = [
        asdict(result) | {"holds": result.holds, "can_tell": tells} for result, tells in zip(results, told, strict=True)
    ]
    return facts | {"cases": cases}, sound and not faults and all(result.holds for result in results)


def _verdict(cases: list[dict[str, Any]]) -> str:
    """What the audit says of differential privacy, if it has refuted nothing."""
    n_open = sum(not case["can_tell"] for case in cases)
    if not n_open:
        return "the mechanism of differential privacy keeps its promise."
    tests = f"{n_open} of {plural(len(cases), 'test')}"
    return f"of differential privacy, {tests} had {TOO_FEW_RUNS}, so raise --runs; no test refutes it."


def can_tell(claimed_mu: float, runs: int) -> bool:
    """Whether so many runs suffice to notice that a mechanism gives away `NOTICEABLE` times the μ that it claims.

    The scores of such a mechanism are normal. Here they are evenly spread quantiles instead of draws, in an order in
    which every stretch of them is evenly spread, because the audit uses the first ones to choose its threshold.
    """
    import numpy as np
    from scipy.stats import norm

    from fedhlcr.privacy.audit.membership import lower_bounds

    golden = (np.sqrt(5.0) - 1.0) / 2.0
    scores = norm.ppf((np.arange(runs) * golden + 0.5) % 1.0)
    mu, _ = lower_bounds(scores, scores + NOTICEABLE * claimed_mu, delta=0.0)
    return mu > claimed_mu


def _tell_membership(shell: Shell, results: list[tuple[MembershipResult, bool]], epsilon: float, runs: int) -> None:
    shell.say(f"Differential privacy, ε = {epsilon:g}: can anyone tell whether an agent took part? {runs:,} runs each.")
    rows = []
    for own, tells in results:
        verdict = ("holds" if tells else TOO_FEW_RUNS) if own.holds else "BROKEN"
        rows.append((own.block, own.canary, f"{own.claimed_mu:.3f}", f"{own.mu:.3f}", verdict))
    header = ("what is released", "the agent adds", "μ promised", "μ at least", "")
    shell.table(header, rows, left=(0, 1, 4))
    shell.say("μ measures how well one can tell: 0 not at all, 1 somewhat, 5 for certain. “At least” must stay below.")
    shell.say("This tests the mechanism with made-up agents; of the table it uses only the number of agents.")
