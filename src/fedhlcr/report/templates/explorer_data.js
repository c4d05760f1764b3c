// What the explorer knows of entities and agents. Nothing is read before it is asked for.
const explorerData = (() => {
  const SHARE_STEPS = 10000, STEPS = 65534, NO_VALUE = 65535;

  // [bytes per number, base64] as whole numbers
  function numbers([width, text]) {
    const bytes = pageData.bytes(text);
    if (width === 1) return bytes;
    const view = new DataView(bytes.buffer);
    const made = width === 2 ? new Uint16Array(bytes.length / 2) : new Uint32Array(bytes.length / 4);
    for (let n = 0; n < made.length; n += 1) {
      made[n] = width === 2 ? view.getUint16(2 * n, true) : view.getUint32(4 * n, true);
    }
    return made;
  }
  // where the values of each row start, from the numbers of values
  function starts(counts) {
    const made = new Uint32Array(counts.length + 1);
    for (let n = 0; n < counts.length; n += 1) made[n + 1] = made[n] + counts[n];
    return made;
  }
  function shareReader(packed) {
    const first = starts(numbers(packed.counts)), clusters = numbers(packed.clusters), shares = numbers(packed.shares);
    return (row) => {
      const made = [];
      for (let n = first[row]; n < first[row + 1]; n += 1) made.push([clusters[n], shares[n] / SHARE_STEPS]);
      return made;
    };
  }
  function neighbourReader(packed, n) {
    const found = numbers(packed), size = n > 1 ? found.length / n : 0;
    return (row) => Array.from(found.subarray(row * size, (row + 1) * size));
  }

  class ExplorerData {
    constructor() {
      const raw = pageData.of("explorer"), { columns } = pageData.of("entities");
      this.raw = raw;
      this.entity = columns.find((column) => column.link === "entity");
      this.agent = columns.find((column) => column.link === "agent") ?? null;
      this.label = columns.find((column) => column.kind === "cluster").values;
      this.nEvents = columns.find((column) => column.label === "events").values;
      this.n = this.label.length;
      this.isAlone = raw.colors.length === 1; // there is only one cluster
      this.nAgents = raw.agents ? this.agent.words.length : 0;
      this.shares = shareReader(raw.shares);
      const detailed = raw.detailed ? numbers(raw.detailed) : null;
      this.rowOf = (place) => (detailed ? detailed[place] : place);
      this.places = detailed ? new Map(Array.from(detailed, (row, place) => [row, place])) : null;
      const near = neighbourReader(raw.neighbours, detailed ? detailed.length : this.n);
      this.neighbours = (row) => (this.place(row) < 0 ? [] : near(this.place(row)).map(this.rowOf));
      this.offsets = starts(raw.axes.map((axis) => axis.points.length));
      if (raw.lines) this.lines = { own: numbers(raw.lines.entities), clusters: numbers(raw.lines.clusters) };
      if (raw.events) this.readEvents(raw.events);
      if (raw.agents) this.readAgents(raw.agents);
    }

    readEvents(events) {
      this.events = { first: starts(numbers(events.counts)), at: events.at.map(numbers), values: numbers(events.values) };
    }

    readAgents(agents) {
      this.agentShares = shareReader(agents.shares);
      this.agentNeighbours = agents.neighbours ? neighbourReader(agents.neighbours, this.nAgents) : () => [];
      if (agents.errors) this.agentEvents = numbers(agents.errors.counts);
      this.rowsOfAgents = Array.from({ length: this.nAgents }, () => []);
      this.agent.values.forEach((agent, row) => this.rowsOfAgents[agent].push(row));
    }

    // the place of an entity among those with details, or −1
    place(row) { return this.places ? this.places.get(row) ?? -1 : row; }
    entityName(row) { return this.entity.words[this.entity.values[row]]; }
    agentName(agent) { return this.agent.words[agent]; }
    agentOf(row) { return this.agent ? this.agent.values[row] : -1; }
    certainty(row) { return (this.shares(row).find(([k]) => k === this.label[row]) ?? [0, 0.001])[1]; }

    // mean, lower and upper ends along an axis, and the mean of its cluster; null if the entity has no details
    line(row, axis) {
      const place = this.place(row);
      return place < 0 || !this.lines ? null : this.values(this.lines.own, place, axis, 4);
    }
    clusterLine(k, axis) { return this.values(this.lines.clusters, k, axis, 3); }
    values(packed, owner, axis, size) {
      const { low, high } = this.raw.lines, n = this.offsets.at(-1);
      const value = (step) => (step === NO_VALUE ? NaN : low + (high - low) * step / STEPS);
      const [first, last] = [this.offsets[axis], this.offsets[axis + 1]];
      const column = (c) => Array.from({ length: last - first }, (_, p) => value(packed[size * (owner * n + first + p) + c]));
      return { mean: column(0), lower: column(1), upper: column(2), shared: size > 3 ? column(3) : null };
    }

    // [fraction of the axis, residual or target] of the events of an entity
    dots(row, axis) {
      const place = this.place(row);
      if (place < 0 || !this.events) return [];
      const { first, at, values } = this.events, { low, high } = this.raw.events, made = [];
      for (let n = first[place]; n < first[place + 1]; n += 1) {
        if (at[axis][n] !== NO_VALUE) made.push([at[axis][n] / STEPS, low + (high - low) * values[n] / STEPS]);
      }
      return made;
    }
  }

  let found = null;
  return () => (found ??= new ExplorerData());
})();
