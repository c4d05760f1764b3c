"""Draw the pictures of the docs from real fits: `python docs/images/draw.py`, in about ten seconds.

The tutorial has two more: `select.png` is the file it writes, `report.png` shows the top of its report in a browser.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from fedhlcr import HLCRRegressor, hold_out_events, plot
from fedhlcr._support.streams import Stream
from fedhlcr.baselines import GroupedRidge
from fedhlcr.datasets import HierarchicalData, load_airports, load_flights, make_hlcr
from fedhlcr.federation import Agent, FederationSettings, GramLayout, Server
from fedhlcr.figures.palette import GREY, PALE, PALETTE
from fedhlcr.model.priors import ModelSpec
from fedhlcr.samplers.chain import ChainPlan, run_chain
from fedhlcr.samplers.state import ChainState

FOLDER = Path(__file__).parent
COLOURS = dict(zip(("bargain", "staple", "treat"), PALETTE[:3], strict=True))
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "svg.hashsalt": "fedhlcr",  # the same picture is the same file
}


def main() -> None:
    with mpl.rc_context(STYLE):
        for draw in (hierarchy, ridges, merging, messages, flights):
            figure = draw()
            figure.savefig(FOLDER / f"{draw.__name__}.svg", metadata={"Date": None})
            plt.close(figure)


# The hierarchy


def hierarchy() -> plt.Figure:
    """Stores, their products, their weeks: products of one colour behave alike in all stores."""
    figure = plt.figure(figsize=(7.2, 3.5))
    ax = figure.add_axes((0.0, 0.0, 0.66, 1.0))
    ax.set(xlim=(0, 10), ylim=(-0.25, 7.4))
    ax.axis("off")
    stores = {
        "store 1": (("coffee", "staple"), ("crisps", "bargain"), ("cider", "treat")),
        "store 2": (("coffee", "bargain"), ("crisps", "bargain"), ("soap", "staple"), ("beer", "bargain")),
        "store 3": (("wine", "treat"), ("coffee", "staple"), ("soap", "staple")),
    }
    rng = np.random.default_rng(3)
    for x, words in ((0.85, "agent"), (3.4, "entity"), (7.4, "event: a week")):
        ax.text(x, 7.05, words, ha="center", color="black", weight="bold")
    top = 6.55
    for store, products in stores.items():
        middle = top - 0.6 * (len(products) - 1) / 2 - 0.2
        _box(ax, (0.1, middle - 0.27), 1.5, 0.54, "white", GREY)
        ax.text(0.85, middle, store, ha="center", va="center")
        for product, cluster in products:
            ax.plot([1.6, 2.5], [middle, top - 0.2], color=GREY, linewidth=0.8)
            _box(ax, (2.5, top - 0.42), 1.8, 0.46, COLOURS[cluster], COLOURS[cluster])
            ax.text(
                3.4,
                top - 0.2,
                product,
                ha="center",
                va="center",
                color="black" if cluster == "staple" else "white",
                weight="bold",
            )
            weeks = rng.integers(3, 11)
            ax.plot(
                4.85 + 0.5 * np.arange(weeks), np.full(weeks, top - 0.2), "o", color=COLOURS[cluster], markersize=4.5
            )
            top -= 0.6
        top -= 0.35
    lines = {"bargain": (8.5, -0.95), "staple": (6.2, -0.08), "treat": (2.2, 0.18)}
    price = np.array([0.0, 8.0])
    for number, (cluster, (level, slope)) in enumerate(lines.items()):
        panel = figure.add_axes((0.71, 0.70 - 0.275 * number, 0.27, 0.18))
        x = rng.uniform(0, 8, 26)
        panel.plot(x, level + slope * x + 0.5 * rng.standard_normal(26), ".", color=COLOURS[cluster], markersize=4)
        panel.plot(price, level + slope * price, color=COLOURS[cluster], linewidth=2)
        panel.set(xticks=[], yticks=[], ylim=(0, 10), title=f"cluster “{cluster}”")
        panel.title.set_color("black")
        if number == 2:
            panel.set_xlabel("price")
        panel.set_ylabel("sales")
    return figure


def _box(ax: Axes, corner: tuple[float, float], width: float, height: float, face: str, edge: str) -> None:
    ax.add_patch(
        FancyBboxPatch(corner, width, height, "round,pad=0,rounding_size=0.12", facecolor=face, edgecolor=edge)
    )


# One ridge, many ridges, clusters


def ridges() -> plt.Figure:
    """The same events under three models: one line, a line per entity, a line per cluster."""
    rng = np.random.default_rng(4)
    agent = np.repeat(np.arange(50), 16)
    entity = np.tile(np.repeat(np.arange(4), 4), 50)
    label = np.array([rng.choice(3, 4, p=rng.dirichlet(np.ones(3))) for _ in range(50)])[agent, entity]
    x, noise = rng.uniform(-2, 2, len(agent)), 0.6
    y = np.array([1.0, 0.2, -0.6])[label] + np.array([-1.6, 0.1, 1.5])[label] * x + noise * rng.standard_normal(len(x))
    table = HierarchicalData(x[:, None], y, agent, entity, ("x",))
    train, test = hold_out_events(table.agent, table.entity, fraction=0.25)
    a, b = table[train], table[test]
    models = {
        "one ridge for all": GroupedRidge("all"),
        "one ridge per entity": GroupedRidge("entity"),
        "clusters (HLCR)": HLCRRegressor(),
    }
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.7), sharey=True, sharex=True, layout="constrained")
    ends = np.array([-2.1, 2.1])
    pairs = list(dict.fromkeys(zip(a.agent.tolist(), a.entity.tolist(), strict=True)))
    for ax, (name, model) in zip(axes, models.items(), strict=True):
        model.fit(a.X, a.y, agent=a.agent, entity=a.entity)
        mse = np.mean((model.predict(b.X, agent=b.agent, entity=b.entity) - b.y) ** 2)
        ax.set_title(f"{name}\nheld-out error {mse / noise**2:.1f} σ²")
        if name == "clusters (HLCR)":
            labels = dict(zip(model.pair_ids_, model.labels_, strict=True))
            found = np.array([labels[pair] for pair in zip(a.agent.tolist(), a.entity.tolist(), strict=True)])
            for k in range(model.n_clusters_):
                ax.plot(a.X[found == k, 0], a.y[found == k], ".", color=PALETTE[k], markersize=3)
                ax.plot(ends, model.intercept_[k] + model.coef_[k] * ends, color="white", linewidth=4)
                ax.plot(ends, model.intercept_[k] + model.coef_[k] * ends, color=PALETTE[k], linewidth=2.2)
        else:
            ax.plot(a.X[:, 0], a.y, ".", color=GREY, markersize=3)
            shown = pairs[:1] if name == "one ridge for all" else pairs[:70]
            for agent, entity in shown:
                y = model.predict(ends[:, None], agent=np.repeat(agent, 2), entity=np.repeat(entity, 2))
                many = len(shown) > 1
                ax.plot(ends, y, color=PALETTE[3], linewidth=0.7 if many else 2, alpha=0.6 if many else 1)
        ax.set(xlabel="x", xlim=(-2.2, 2.2), ylim=(-6, 6))
    axes[0].set_ylabel("y")
    return figure


# Over-fit and merge


def merging() -> plt.Figure:
    """Clusters by sweep of three chains that must find their number, and the clusters before and after merging."""
    table, truth = make_hlcr(random_state=5)
    model = HLCRRegressor(n_chains=3).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(7.6, 2.7), layout="constrained", width_ratios=(1.4, 1, 1)
    )
    plot.traces(model, ax=left, quantity="n_clusters")
    n_true = len(np.unique(truth.labels))
    left.axhline(n_true, color=GREY, linestyle=":", linewidth=1)
    left.text(198, n_true + 1.2, f"true number, {n_true}", ha="right", fontsize=8)
    left.set_ylim(0, 60)
    posterior = model.posterior_
    states: dict[int, ChainState] = {}
    run_chain(
        posterior.memory.entities,
        ModelSpec(),
        ChainPlan(),
        Stream(0),
        lambda state: states.update({state.round: state}),
    )
    for ax, sweep in ((middle, 14), (right, 16)):
        state = states[sweep]
        used = state.sums.occupied
        coef, _ = posterior.standardization.to_user_units(posterior.layout, state.globals.coef[used])
        ax.plot(*truth.coef[np.unique(truth.labels), :2].T, "+", color="black", markersize=9, label="true")
        sizes = 1.3 * state.sums.entity_counts[used] + 6
        ax.scatter(*coef[:, :2].T, s=sizes, facecolors="none", edgecolors=PALETTE[3], linewidths=1.2, label="drawn")
        ax.set(title=f"sweep {sweep}: {used.sum()} clusters", xlabel="coefficient of x0")
        ax.set(xlim=(-2.9, 2.9), ylim=(-2.9, 2.9))
    middle.set_ylabel("coefficient of x1")
    right.legend(frameon=False, fontsize=8, loc="lower left", handletextpad=0.2)
    return figure


# What travels


def messages() -> plt.Figure:
    """Rows stay; sums by cluster go up, coefficients come down. The matrices are those of a real contribution."""
    table, _ = make_hlcr(30, 8, 12, 3, 3, 0.5, random_state=2)
    agents = [_agent(table, i) for i in np.unique(table.agent)]
    server = Server(FederationSettings(GramLayout(3), seed=1, n_clusters=3))
    while not server.finished:
        call = server.open_round([agent.name for agent in agents])
        replies = [
            agent.round(call.broadcast.acknowledging(last))
            for agent, last in zip(agents, call.acknowledged, strict=True)
        ]
        for reply in replies:
            server.accept(reply)
        server.close_round()
    reply = max(replies, key=lambda r: (r.entity_counts > 0).sum())
    own = table[table.agent == int(reply.agent)]
    some = np.sort(np.random.default_rng(0).choice(len(own), 11, replace=False))
    layout, law = server.settings.layout, call.broadcast.law

    figure = plt.figure(figsize=(7.2, 3.3))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 100), ylim=(0, 46))
    ax.axis("off")
    _box(ax, (1.5, 3), 27, 40, "#f6f6f6", GREY)
    _box(ax, (74.5, 3), 24, 40, "#f6f6f6", GREY)
    ax.text(15, 39.6, "an agent", ha="center", weight="bold")
    ax.text(86.5, 39.6, "the server", ha="center", weight="bold")
    ax.text(15, 35.6, f"{len(own)} events, which stay", ha="center", fontsize=8)
    header = f"{'entity':>6} {'x1':>5} {'x2':>5} {'x3':>5} {'y':>5}"
    rows = [
        f"{e:>6} " + " ".join(f"{v:5.1f}" for v in (*x, y))
        for e, x, y in zip(own.entity[some], own.X[some], own.y[some], strict=True)
    ]
    ax.text(3.4, 33.2, "\n".join([header, *rows, "     …"]), va="top", family="monospace", fontsize=6.6)
    _arrow(ax, (29.5, 24.6), (73.5, 24.6))
    _arrow(ax, (73.5, 5.8), (29.5, 5.8))
    up, down = len(reply.to_bytes()), len(call.broadcast.to_bytes())
    ax.text(51.5, 42.2, f"up, {up:,} bytes: sums by cluster", ha="center", weight="bold")
    ax.text(51.5, 2.4, f"down, {down:,} bytes: coefficients, weights, noise", ha="center", weight="bold", va="center")
    biggest = max(np.abs(layout.unpack(m)).max() for m in reply.blocks["grams"])
    for k, (gram, count) in enumerate(zip(reply.blocks["grams"], reply.entity_counts, strict=True)):
        inset = figure.add_axes((0.325 + 0.135 * k, 0.64, 0.1, 0.22))
        shown = layout.unpack(gram)
        inset.imshow(np.sign(shown) * np.sqrt(np.abs(shown)), cmap="PuOr_r", vmin=-(biggest**0.5), vmax=biggest**0.5)
        inset.set(xticks=[], yticks=[])
        for spine in inset.spines.values():
            spine.set_visible(True)
            spine.set_color(GREY)
        inset.set_xlabel(f"{count} {'entity' if count == 1 else 'entities'}", fontsize=7.5, labelpad=1.5)
        inset.set_ylabel(f"$M_{k + 1}$", fontsize=8, labelpad=1)
    inset = figure.add_axes((0.40, 0.215, 0.24, 0.2))
    for k, w in enumerate(law.coef):
        inset.bar(np.arange(len(w)) + 0.27 * (k - 1), w, 0.25, color=PALETTE[k])
    inset.axhline(0, color=GREY, linewidth=0.6)
    inset.set(yticks=[], xticks=np.arange(len(law.coef[0])))
    inset.set_xticklabels(["1", "x1", "x2", "x3"][-len(law.coef[0]) :], fontsize=7)
    inset.set_ylabel("$w_k$", fontsize=8)
    steps = (
        "keeps each agent's\nlast sums",
        "adds them up",
        "draws new regressions,\nweights and noise",
        "merges clusters\nthat are the same",
    )
    for number, step in enumerate(steps):
        ax.text(86.5, 33.5 - 8.2 * number, step, ha="center", va="center", fontsize=8)
    return figure


def _agent(table, i) -> Agent:
    own = table[table.agent == i]
    return Agent(int(i), own.X, own.y, own.entity)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=14, color="black", linewidth=1.2))


# The flights


def flights() -> plt.Figure:
    """The clusters of routes in the README's model, on a map that the model never saw."""
    flights = load_flights()
    data = flights[hold_out_events(flights.agent, flights.entity)[0]]
    model = HLCRRegressor().fit(data.X, data.y, agent=data.agent, entity=data.entity)
    # Honolulu would make all others small
    place = {code: at[:2] for code, at in load_airports().items() if code != "HNL"}
    sizes = np.bincount(model.labels_, minlength=model.n_clusters_)
    shown = np.sort(np.argsort(-sizes, kind="stable")[:5])
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.7), layout="constrained", width_ratios=(2.1, 1))
    routes: dict[str, list[int]] = {}
    for (_, route), label in zip(model.pair_ids_, model.labels_, strict=True):
        routes.setdefault(route[-3:], []).append(int(label))
    points: dict[int, list[tuple[float, float]]] = {}
    for name in sorted(routes.keys() & place.keys()):
        north, east = place[name]
        # the routes to one place lie around it
        for n, label in enumerate(sorted(routes[name])):
            angle, radius = 2.4 * n, 0.34 * np.sqrt(n)
            points.setdefault(label if label in shown else -1, []).append(
                (east + radius * np.cos(angle) / 0.8, north + radius * np.sin(angle))
            )
    month = np.linspace(0, 1, 100)
    for n, k in enumerate([-1, *shown]):
        color = "#c8c8c8" if k < 0 else PALETTE[n - 1]
        words = f"{len(model.labels_) - sizes[shown].sum()} others" if k < 0 else f"{sizes[k]} routes"
        left.plot(*zip(*points[k], strict=True), "o", color=color, markersize=4, markeredgewidth=0, label=words)
        if k >= 0:
            wave = model.coef_[k, 3] * np.sin(2 * np.pi * month) + model.coef_[k, 4] * np.cos(2 * np.pi * month)
            right.plot(12 * month, wave, color=color, linewidth=2)
    beside = {"SEA": (9, -3), "DEN": (9, -3), "DFW": (-37, -3), "MIA": (9, -14), "SJU": (-22, -16), "LAX": (-8, -20)}
    cities = ("Seattle", "Denver", "Dallas", "Miami", "San Juan", "Los Angeles")
    for (name, offset), words in zip(beside.items(), cities, strict=True):
        left.annotate(words, place[name][::-1], offset, textcoords="offset points", fontsize=8)
    left.plot(-73.9, 40.7, "*", color="black", markersize=11)
    left.annotate("New York", (-73.9, 40.7), (10, -8), textcoords="offset points", fontsize=8)
    left.set_aspect(1 / 0.8)
    left.set(
        xticks=[],
        yticks=[],
        xlim=(-125.5, -62),
        title="each dot is a route of an airline from New York, coloured by its cluster",
    )
    left.spines[:].set_visible(False)
    handles, words = left.get_legend_handles_labels()
    left.legend(
        handles[1:] + handles[:1],
        words[1:] + words[:1],
        frameon=False,
        fontsize=8,
        loc="lower left",
        handletextpad=0.1,
        borderaxespad=0,
    )
    right.set_xticks(np.arange(0.5, 12, 1), list("JFMAMJJASOND"))
    right.set(xlim=(0, 12), title="their seasons", ylabel="minutes per 100 miles, over the year’s mean")
    right.axhline(0, color=PALE, linewidth=0.8, zorder=0)
    return figure


if __name__ == "__main__":
    main()
