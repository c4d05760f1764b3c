"""A collapsed sweep against the paper's algorithm written literally."""

from __future__ import annotations

import numpy as np

from benchmarks.problems import N_CLUSTERS, NOISE_SCALE, draw_m, entities_of, hierarchy_of
from benchmarks.report import Options, Row, at_least, say
from benchmarks.timing import Side, alternate
from fedhlcr._support.streams import Stream
from fedhlcr.data.hierarchy import Hierarchy
from fedhlcr.kernels.labels import keyed_uniforms
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPrior
from fedhlcr.reference import LiteralHLCR
from fedhlcr.samplers import blocked, collapsed
from fedhlcr.samplers.state import ChainState, EntityData

BOUND = 60
COEF_SCALE, GLOBAL_CONCENTRATION, AGENT_CONCENTRATION = 1.0, float(N_CLUSTERS), 1.0
SPEC = ModelSpec(NOISE_SCALE, COEF_SCALE, GLOBAL_CONCENTRATION, AGENT_CONCENTRATION)
# The literal sweep goes over the entities in pieces of this many; its time is scaled to all of them.
PIECE = 100


def run(options: Options) -> list[Row]:
    split = draw_m(options.seed)
    hierarchy = hierarchy_of(split.train)
    entities = entities_of(hierarchy, options.threads, standardize=False)
    stream = Stream(options.seed)
    start = blocked.state_from_labels(entities, SPEC, split.truth.labels.astype(np.int32), N_CLUSTERS, stream)
    say("collapsed", f"{len(entities)} entities, {hierarchy.n_events} events; building the literal twin")
    literal = literal_twin(hierarchy, start)
    uniforms = label_uniforms(entities, stream, start.round + 1)
    done = 0

    def literal_piece() -> None:
        nonlocal done
        literal.sweep(uniforms, range(done, done + PIECE))
        done += PIECE

    def fast_sweep() -> ChainState:
        return collapsed.step(entities, SPEC, start, stream, label_prior="paper")

    fast_seconds, piece_seconds = alternate(Side(fast_sweep), Side(literal_piece), rounds=3 if options.quick else 10)
    literal_seconds = piece_seconds * len(entities) / PIECE
    equal = int((fast_sweep().labels[:done] == literal.labels[:done]).sum())
    say("collapsed", f"sweep {fast_seconds:.3f} s; literally {literal_seconds:.1f} s, scaled up from {done} entities")
    say("collapsed", f"of the {done} labels that both drew, {equal} are equal")
    return [at_least("collapsed sweep, faster than the paper's algorithm", literal_seconds / fast_seconds, BOUND)]


def literal_twin(hierarchy: Hierarchy, start: ChainState) -> LiteralHLCR:
    """The literal sampler at the same labels, with the clusters of all entities built."""
    design = np.column_stack([np.ones(hierarchy.n_events), hierarchy.X])
    cuts = hierarchy.event_start[1:-1]
    return LiteralHLCR(
        np.split(design, cuts),
        np.split(hierarchy.y, cuts),
        hierarchy.index.agent_of,
        start.labels.copy(),
        N_CLUSTERS,
        NOISE_SCALE,
        CoefPrior(np.zeros(design.shape[1]), np.full(design.shape[1], COEF_SCALE)),
        GLOBAL_CONCENTRATION,
        AGENT_CONCENTRATION,
    )


def label_uniforms(entities: EntityData, stream: Stream, round_number: int) -> np.ndarray:
    """The uniforms by which the kernel draws the labels of a round, so that both sides draw the same."""
    arrays = entities.arrays(stream)
    streams = arrays.agent_streams[entities.index.agent_of]
    return np.array(
        [
            keyed_uniforms(own, key, round_number, np.uint64(0))[0]
            for own, key in zip(streams, arrays.entity_keys, strict=True)
        ]
    )
