// The chart of one entity: its line with an interval, the line of its cluster, its events. Ticks come with the page.
const explorerChart = (() => {
  const { element, figure, shape } = pageText;
  const SAMPLES = 60, MOST_TICKS = 6;
  // an interval is shown up to so many times the height of line and dots beyond them
  const WIDEST = 3;

  // the ticks between two values: of the steps that the page brings, the finest that is not too many
  function targetTicks(steps, low, high) {
    const inside = steps.map((ticks) => ticks.filter(([value]) => value >= low && value <= high));
    return inside.findLast((ticks) => ticks.length <= MOST_TICKS) ?? inside[0];
  }
  // a value in a sentence
  function inWords(target, value) {
    if (target.percent) return `${figure(100 * value)}\u00a0%`;
    return figure(target.base === null ? value : target.base ** value - target.offset);
  }

  // a smooth curve through points: cubic pieces with the slope of the chord between the neighbours
  function interpolate(points, values, at) {
    const last = points.length - 1;
    let n = 0;
    while (n < last - 1 && points[n + 1] < at) n += 1;
    const slope = (m) => {
      const before = Math.max(0, m - 1), after = Math.min(last, m + 1);
      return (values[after] - values[before]) / (points[after] - points[before]);
    };
    const width = points[n + 1] - points[n], t = Math.min(1, Math.max(0, (at - points[n]) / width));
    const [a, b] = [values[n], values[n + 1]], [p, q] = [slope(n) * width, slope(n + 1) * width];
    return a + t * (p + t * (3 * (b - a) - 2 * p - q + t * (2 * (a - b) + p + q)));
  }

  // in per cent of the width; dots at the ends are not cut
  const across = (fraction) => 1.5 + 97 * fraction;
  const spread = (n) => ((n * 0.618034) % 1) - 0.5;

  class Chart {
    constructor(data, row, axis) {
      this.data = data;
      this.axis = data.raw.axes[axis];
      this.k = data.label[row];
      this.own = data.line(row, axis);
      // beside its own line, that of its cluster at the entity's own averages of all other features
      this.cluster = this.own ? { mean: this.own.shared } : data.clusterLine(this.k, axis);
      this.isDiscrete = this.axis.levels.length > 0;
      const events = data.raw.events, line = this.own;
      // events show what would have been observed at the entity's averages of other features: the line plus the residual
      this.dots = data.dots(row, axis).map(([x, value], n) => {
        const y = events.adjusted ? this.at(line.mean, x) + value : value;
        if (data.raw.target.percent) return [x, y + 0.06 * Math.abs(spread(n)) * (y > 0.5 ? -1 : 1)];
        return [this.isDiscrete ? x + 0.3 * spread(n) / this.axis.levels.length : x, y];
      });
      this.setRange();
    }

    at(values, x) {
      if (this.isDiscrete) return values[Math.min(values.length - 1, Math.floor(x * values.length))];
      return interpolate(this.axis.points, values, x);
    }

    // whose line is dashed: that of the cluster, or of all if there is only one
    group() { return this.data.isAlone ? `all ${this.data.raw.nouns.entity[1]}` : `cluster ${this.k}`; }

    setRange() {
      const lines = [this.cluster.mean, ...(this.own ? [this.own.mean] : [])].flat();
      const every = [...lines, ...this.dots.map(([, y]) => y)].filter(Number.isFinite);
      let [low, high] = [Math.min(...every), Math.max(...every)];
      const span = high - low || 1, shown = this.own ?? this.cluster;
      // a very wide interval may leave the chart
      low = Math.min(low, Math.max(low - WIDEST * span, ...[Math.min(...shown.lower.filter(Number.isFinite))]));
      high = Math.max(high, Math.min(high + WIDEST * span, ...[Math.max(...shown.upper.filter(Number.isFinite))]));
      // at least so much that there are ticks
      const margin = Math.max(0.05 * (high - low), (this.data.raw.target.least - (high - low)) / 2);
      [this.low, this.high] = [low - margin, high + margin];
    }

    y(value) { return (100 * (this.high - value) / (this.high - this.low)).toFixed(2); }

    path(values) {
      const parts = [];
      for (let n = 0; n <= SAMPLES; n += 1) {
        parts.push(`${across(n / SAMPLES).toFixed(2)} ${this.y(interpolate(this.axis.points, values, n / SAMPLES))}`);
      }
      return parts;
    }

    marks() {
      const made = [], line = (name, d) => made.push(shape("path", { class: name, d, "vector-effect": "non-scaling-stroke" }));
      const shown = this.own ?? this.cluster, isKnown = shown.lower.every(Number.isFinite);
      if (this.isDiscrete) {
        const n = this.axis.levels.length, half = 36 / n;
        this.cluster.mean.forEach((value, level) => line("cluster-line", `M${across((level + 0.5) / n) - half} ${this.y(value)}h${2 * half}`));
        shown.mean.forEach((value, level) => {
          const x = across((level + 0.5) / n);
          if (isKnown) line("own-whisker", `M${x} ${this.y(shown.lower[level])}V${this.y(shown.upper[level])}`);
          if (this.own) line("own-spot", `M${x} ${this.y(value)}h0`);
        });
      } else {
        if (isKnown) made.push(shape("path", { class: "own-band", d: `M${this.path(shown.upper).join("L")}L${this.path(shown.lower).reverse().join("L")}Z` }));
        line("cluster-line", `M${this.path(this.cluster.mean).join("L")}`);
        if (this.own) line("own-line", `M${this.path(this.own.mean).join("L")}`);
      }
      if (this.dots.length) line("event", this.dots.map(([x, y]) => `M${across(x).toFixed(2)} ${this.y(y)}h0`).join(""));
      return made;
    }

    // the line in words, also for screen readers
    words(noun) {
      const { target } = this.data.raw, shown = this.own ?? this.cluster;
      const who = this.own ? `this ${noun}` : this.group();
      if (this.isDiscrete) {
        const parts = shown.mean.slice(0, 4).map((value, level) => `${this.axis.levels[level]} ${inWords(target, value)}`);
        return `For ${who}, by ${this.axis.name}: ${parts.join("; ")}${shown.mean.length > 4 ? "; …" : ""}.`;
      }
      const peak = shown.mean.indexOf(Math.max(...shown.mean)), dip = shown.mean.indexOf(Math.min(...shown.mean));
      const [first, last] = [Math.min(peak, dip), Math.max(peak, dip)], ends = shown.mean.length - 1;
      const [start, end] = [shown.mean[0], shown.mean[ends]].map((value) => inWords(target, value));
      if (inWords(target, shown.mean[peak]) === inWords(target, shown.mean[dip])) {
        return `For ${who}, ${target.name} is about ${start} all along ${this.axis.name}.`;
      }
      if (first === 0 && last === ends) {
        return `For ${who}, ${target.name} ${peak ? "rises" : "falls"} from ${start} to ${end} along ${this.axis.name}.`;
      }
      return `For ${who}, ${target.name} lies between ${inWords(target, shown.mean[dip])} and ${inWords(target, shown.mean[peak])} along ${this.axis.name}.`;
    }

    // the same frame as that of the other pictures of the page
    draw(noun) {
      const box = element("div", "own-plot"), framed = element("div", "framed"), { raw } = this.data;
      const ys = element("div", "y-ticks"), xs = element("div", "x-ticks");
      const svg = shape("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", class: `frame ${raw.colors[this.k]}` });
      svg.append(shape("title", {}));
      svg.firstChild.textContent = this.words(noun);
      for (const [value, text] of targetTicks(raw.target.ticks, this.low, this.high)) {
        const label = element("span", "", text);
        label.style.bottom = `${100 - this.y(value)}%`;
        ys.append(label);
        if (text.length > raw.target.longest) framed.classList.add("roomy");
        svg.append(shape("path", { class: "grid", d: `M0 ${this.y(value)}h100`, "vector-effect": "non-scaling-stroke" }));
      }
      for (const [at, text] of this.axis.ticks) {
        const label = element("span", at < 0.03 ? "first" : at > 0.97 ? "last" : "", text);
        label.style.left = `${across(at)}%`;
        label.title = text;
        if (this.isDiscrete) label.style.maxWidth = `${96 / this.axis.levels.length}%`;
        xs.append(label);
      }
      svg.append(...this.marks());
      framed.append(ys, svg, xs, element("div", "x-label", this.axis.name));
      box.append(element("div", "y-label", raw.target.name), framed);
      return box;
    }

    legend(noun) {
      const made = element("p", "own-legend"), color = this.data.raw.colors[this.k];
      const entry = (name, d, text) => {
        const svg = shape("svg", { viewBox: "0 0 16 8", class: color, "aria-hidden": "true" });
        svg.append(shape("path", { class: name, d }));
        const part = element("span");
        part.append(svg, text);
        made.append(part);
      };
      const level = `${100 * this.data.raw.level} % interval`;
      if (this.own) entry("own-line", "M0 4h16", `this ${noun}, with ${level}`);
      entry("cluster-line", "M0 4h16", `${this.group()}${this.own ? "" : `, with ${level}`}`);
      if (this.dots.length) {
        const adjusted = this.data.raw.events.adjusted ? ", as if all else were at its average" : "";
        entry("event", "M8 4h0", `${this.dots.length} of its events${adjusted}`);
      }
      return made;
    }
  }

  return { Chart };
})();
