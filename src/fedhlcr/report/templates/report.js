(() => {
  const { element, figure, percent, shape, whole } = pageText;
  const N_COLORS = 8, NAMED_MIX = 3;
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  const colorClass = (k) => `c${k % N_COLORS}${k < N_COLORS ? "" : " again"}`;
  function mixText(mix) {
    const text = mix.slice(0, NAMED_MIX).map(([k, share]) => `${k}: ${percent(share / 100)}`).join(", ");
    return mix.length > NAMED_MIX ? `${text}, …` : text;
  }

  function mixBar(mix) {
    const svg = shape("svg", { class: "mix", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    let left = 0;
    for (const [k, share] of mix) {
      svg.append(shape("rect", { class: colorClass(k), x: left, y: 0, width: share, height: 10 }));
      left += share;
    }
    return svg;
  }

  // a name that opens the explorer
  function linked(column, row, text) {
    if (!column.link) return text;
    const made = element("a");
    made.href = `#${column.link}=${column.link === "entity" ? row : column.values[row]}`;
    made.append(text);
    return made;
  }

  const NUMERIC = new Set(["count", "number", "share", "effect"]);
  function cell(column, row, first) {
    const made = element(first ? "th" : "td", NUMERIC.has(column.kind) ? "n" : "");
    const value = column.values[row];
    if (first) made.scope = "row";
    if (column.kind === "text") made.append(linked(column, row, element("bdi", "", column.words[value])));
    else if (column.kind === "mix") made.append(mixBar(value), element("small", "", mixText(value)));
    else if (value === null) made.textContent = "–";
    else if (column.kind === "cluster") made.append(element("i", `tag ${colorClass(value)}`, String(value)));
    else if (column.kind === "share") made.textContent = percent(value);
    else made.textContent = column.kind === "count" ? whole(value) : figure(value);
    if (column.ranges.length) made.append(element("small", "range", column.ranges[row].map(figure).join(" to ")));
    if (column.tints.length) {
      made.classList.add("tinted");
      made.style.setProperty("--t", column.tints[row]);
    }
    return made;
  }

  // Sort keys of a column: numbers as they are, texts by their rank among the distinct texts.
  function sortKeys(column) {
    if (column.kind !== "text") return column.values;
    const order = column.words.map((_, n) => n).sort((a, b) => collator.compare(column.words[a], column.words[b]));
    const rank = new Array(order.length);
    order.forEach((word, place) => { rank[word] = place; });
    return column.values.map((word) => rank[word]);
  }

  class Listing {
    constructor(box) {
      this.data = pageData.of(box.dataset.listing);
      this.columns = this.data.columns;
      this.n = this.columns[0].values.length;
      this.order = Array.from({ length: this.n }, (_, row) => row);
      this.matches = this.order;
      this.page = 0;
      this.sorted = { column: -1, sign: 1 };
      this.keys = [];
      this.box = box;
      this.body = box.querySelector("tbody");
      this.search = box.querySelector("input[type=search]");
      this.uncertain = box.querySelector("[data-uncertain]");
      this.selects = [...box.querySelectorAll("select")];
      this.count = box.querySelector(".count");
      this.pager = box.querySelector(".pager");
      this.makeHeaders();
      this.fillSelects();
      for (const control of [this.search, this.uncertain, ...this.selects]) {
        if (control) control.addEventListener("input", () => this.filter());
      }
      for (const button of this.pager.querySelectorAll("button")) {
        button.addEventListener("click", () => this.turn(Number(button.dataset.step)));
      }
      box.querySelector(".controls").hidden = false;
      const rest = box.querySelector(".rest");
      if (rest) rest.classList.add("print-only");
      this.show();
    }

    makeHeaders() {
      this.headers = [...this.box.querySelectorAll("thead th")];
      this.headers.forEach((header, number) => {
        if (this.columns[number].kind === "mix") return;
        const button = element("button");
        button.append(...header.childNodes);
        button.type = "button";
        button.addEventListener("click", () => this.sortBy(number));
        header.replaceChildren(button);
        header.setAttribute("aria-sort", "none");
      });
    }

    fillSelects() {
      for (const select of this.selects) {
        const present = [...new Set(this.columns[select.dataset.column].values)].sort((a, b) => a - b);
        for (const k of present) {
          const option = element("option", "", String(k));
          option.value = String(k);
          select.append(option);
        }
      }
    }

    sortBy(number) {
      const again = this.sorted.column === number;
      this.sorted = { column: number, sign: again ? -this.sorted.sign : 1 };
      this.headers.forEach((header, other) => {
        if (!header.hasAttribute("aria-sort")) return;
        const direction = this.sorted.sign > 0 ? "ascending" : "descending";
        header.setAttribute("aria-sort", other === number ? direction : "none");
      });
      const keys = (this.keys[number] ??= sortKeys(this.columns[number]));
      const sign = this.sorted.sign;
      this.order = Array.from({ length: this.n }, (_, row) => row).sort((a, b) => {
        // unknown values come last in both directions
        if (keys[a] === null || keys[b] === null) return (keys[a] === null) - (keys[b] === null) || a - b;
        return sign * (keys[a] - keys[b]) || a - b;
      });
      this.filter();
    }

    haystack() {
      const texts = this.columns.filter((column) => column.kind === "text");
      // a table without names is searched by cluster
      const text = (row) => texts.map((column) => column.words[column.values[row]]).join(" ");
      const named = texts.length ? text : (row) => `cluster ${this.columns[0].values[row]}`;
      return Array.from({ length: this.n }, (_, row) => named(row).toLowerCase());
    }

    filter() {
      const terms = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const tests = [];
      if (terms.length) {
        this.texts ??= this.haystack();
        tests.push((row) => terms.every((term) => this.texts[row].includes(term)));
      }
      for (const select of this.selects) {
        const values = this.columns[select.dataset.column].values;
        if (select.value !== "") tests.push((row) => values[row] === Number(select.value));
      }
      if (this.uncertain && this.uncertain.checked) {
        const certainty = this.columns[this.data.uncertain].values;
        tests.push((row) => certainty[row] < this.data.sure);
      }
      this.matches = tests.length ? this.order.filter((row) => tests.every((test) => test(row))) : this.order;
      this.page = 0;
      this.show();
    }

    turn(step) {
      this.page += step;
      this.show();
    }

    show() {
      const size = this.data.pageRows, first = this.page * size;
      const rows = this.matches.slice(first, first + size);
      this.body.replaceChildren(...rows.map((row) => {
        const line = element("tr");
        line.append(...this.columns.map((column, number) => cell(column, row, number === 0)));
        return line;
      }));
      const found = this.matches.length;
      const rowsOf = (n) => `${whole(n)} ${n === 1 ? "row" : "rows"}`;
      this.count.textContent = found === this.n ? rowsOf(found) : `${whole(found)} of ${rowsOf(this.n)} match`;
      this.pager.hidden = found <= size;
      this.pager.querySelector("span").textContent = `${whole(first + 1)}–${whole(first + rows.length)} of ${whole(found)}`;
      const [previous, next] = this.pager.querySelectorAll("button");
      const focused = document.activeElement;
      previous.disabled = first === 0;
      next.disabled = first + size >= found;
      // a disabled button loses the focus: move it to the other one
      if (focused === next && next.disabled) previous.focus();
      else if (focused === previous && previous.disabled) next.focus();
    }
  }

  function themeButton() {
    const button = document.getElementById("theme"), system = matchMedia("(prefers-color-scheme: dark)");
    const isScheme = (rule) => rule.media && rule.media.mediaText.includes("prefers-color-scheme");
    const darkRule = [...document.styleSheets[0].cssRules].find(isScheme);
    let chosen = null;
    const isDark = () => chosen ?? system.matches;
    const label = () => { button.textContent = isDark() ? "Light theme" : "Dark theme"; };
    button.addEventListener("click", () => {
      chosen = !isDark();
      // the dark colours are defined once, in the media rule for dark systems; here that rule is switched on or off
      darkRule.media.mediaText = chosen ? "screen" : "not all";
      label();
    });
    system.addEventListener("change", label);
    label();
    button.hidden = false;
  }

  themeButton();
  pageData.whenReady(() => { for (const box of document.querySelectorAll("[data-listing]")) new Listing(box); });
})();
