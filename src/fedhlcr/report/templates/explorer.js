// The explorer: shows one entity or agent, chosen by name, by a link such as #entity=12, or with Previous and Next.
(() => {
  const section = document.getElementById("explorer");
  if (!section) return;
  const { Chart } = explorerChart, { element, percent, whole } = pageText;
  const MOST_OPTIONS = 10, ENTITIES_AT_ONCE = 10;
  const [box, find, options, status] = ["explored", "explorer-find", "explorer-options", "explorer-status"].map((id) => document.getElementById(id));
  let data = null, shown = null, axis = 0;

  const noun = (kind, n = 1) => data.raw.nouns[kind][n === 1 ? 0 : 1];
  const nameOf = (kind, n) => (kind === "entity" ? data.entityName(n) : data.agentName(n));
  const countOf = (kind) => (kind === "entity" ? data.n : data.nAgents);

  function link(kind, n) {
    const made = element("a");
    made.href = `#${kind}=${n}`;
    made.append(element("bdi", "", nameOf(kind, n)));
    return made;
  }
  // A cluster's number on its colour.
  function tag(k) { return element("i", `tag ${data.raw.colors[k]}`, String(k)); }
  function titled(title, ...content) {
    const made = element("div");
    made.append(element("h4", "", title), ...content);
    return made;
  }

  // A bar for each cluster; what is left of 100 % belongs to clusters that are not named.
  function bars(shares) {
    const list = element("ul", "probabilities");
    const add = (name, share, color) => {
      const row = element("li"), label = element("span"), bar = element("span", "bar"), fill = element("i", color);
      label.append(...name);
      fill.style.width = `${100 * share}%`;
      bar.setAttribute("aria-hidden", "true");
      bar.append(fill);
      row.append(label, bar, element("span", "n", percent(share)));
      list.append(row);
    };
    for (const [k, share] of shares) add(["cluster ", tag(k)], share, data.raw.colors[k]);
    const rest = 1 - shares.reduce((sum, [, share]) => sum + share, 0);
    if (rest >= 0.01) add(["other clusters"], rest, "");
    return list;
  }

  function likes(kind, numbers, detail) {
    const list = element("ul", "likes");
    for (const n of numbers) {
      const row = element("li"), note = element("small");
      note.append(...detail(n));
      row.append(link(kind, n), " ", note);
      list.append(row);
    }
    return list;
  }
  // a name behind its noun, unless it begins with it: "store 7", "Store 7"
  function named(kind, n) {
    const name = nameOf(kind, n), word = noun(kind).toLowerCase();
    const has = name.toLowerCase().startsWith(word) && !/^\p{L}/u.test(name.slice(word.length));
    return [has ? "" : `${noun(kind)} `, element("bdi", "", name)];
  }
  function entityDetail(row) {
    const agent = data.agentOf(row), parts = data.isAlone ? [] : ["cluster ", tag(data.label[row])];
    if (agent >= 0) {
      parts.push(parts.length ? ", " : "", ...named("agent", agent));
    }
    return parts;
  }
  function agentDetail(agent) {
    const [[k, share]] = data.agentShares(agent);
    return ["cluster ", tag(k), ` ${percent(share)}`];
  }

  function heading(kind, n, facts) {
    const made = element("header"), title = element("h3"), line = element("p", "facts-line");
    title.tabIndex = -1;
    const [before, name] = named(kind, n);
    title.append(`${before.slice(0, 1).toUpperCase()}${before.slice(1)}`, name);
    line.append(...facts);
    made.append(title, line);
    return made;
  }

  // Line and events against one axis, and the choice of the axis.
  function picture(row) {
    const made = element("div"), { axes } = data.raw;
    if (!axes.length) return made;
    axis = Math.min(axis, axes.length - 1);
    const choice = element("label", "axis-choice", `${data.raw.target.name} against`), select = element("select"), place = element("div");
    axes.forEach((own, n) => {
      const option = element("option", "", own.name);
      option.value = String(n);
      select.append(option);
    });
    select.value = String(axis);
    const draw = () => {
      const chart = new Chart(data, row, axis);
      place.replaceChildren(chart.draw(noun("entity")), chart.legend(noun("entity")), element("p", "note told", chart.words(noun("entity"))));
      if (!chart.own) place.append(element("p", "note", `This ${noun("entity")} has no line of its own on this page. The line is that of its cluster.`));
      else if (data.raw.events && !chart.dots.length) place.append(element("p", "note", `None of its events are among those given to the report.`));
    };
    select.addEventListener("input", () => { axis = Number(select.value); draw(); });
    choice.append(select);
    draw();
    made.append(choice, place);
    return made;
  }

  function showEntity(row) {
    const agent = data.agentOf(row), label = data.label[row], facts = [];
    if (agent >= 0) facts.push(`of ${named("agent", agent)[0]}`, link("agent", agent), " · ");
    const n = data.nEvents[row];
    facts.push(`${whole(n)} ${n === 1 ? "event" : "events"} fitted`);
    const side = element("div"), near = data.neighbours(row), shares = data.shares(row), [first] = shares[0];
    if (!data.isAlone) {
      if (first === label) facts.push(" · cluster ", tag(label), ` with probability ${percent(data.certainty(row))}`);
      else facts.push(" · unclear: cluster ", tag(first), " or ", tag(label));
      side.append(titled("Probability of each cluster", bars(shares)));
    }
    if (first !== label) side.append(element("p", "note", `Tables and counts put it into cluster ${label}, where it was most often. Over all draws, cluster ${first} is more probable. Do not rely on either.`));
    if (near.length) side.append(titled(`${noun("entity", 2)[0].toUpperCase()}${noun("entity", 2).slice(1)} most like it`, likes("entity", near, entityDetail)));
    box.replaceChildren(heading("entity", row, facts), picture(row), side);
  }

  // The entities of an agent by cluster, most certain first, a page at a time.
  function entityTable(agent) {
    const rows = [...data.rowsOfAgents[agent]].sort((a, b) => data.label[a] - data.label[b] || data.certainty(b) - data.certainty(a) || a - b);
    const made = element("div"), table = element("table", "agent-entities"), head = element("tr"), body = element("tbody"), scroll = element("div", "scroll");
    [[noun("entity"), ""], ["events", "n"], ["cluster", ""], ["certainty", "n"]].forEach(([text, name]) => {
      const cell = element("th", name, text);
      cell.scope = "col";
      head.append(cell);
    });
    table.append(element("thead"), body);
    table.tHead.append(head);
    scroll.append(table);
    made.append(scroll);
    const pager = element("p", "pager"), place = element("span");
    const [previous, next] = ["Previous", "Next"].map((text) => element("button", "control", text));
    let first = 0;
    const draw = () => {
      body.replaceChildren(...rows.slice(first, first + ENTITIES_AT_ONCE).map((row) => {
        const line = element("tr"), name = element("th"), cluster = element("td");
        name.scope = "row";
        name.append(link("entity", row));
        cluster.append(tag(data.label[row]));
        line.append(name, element("td", "n", whole(data.nEvents[row])), cluster, element("td", "n", percent(data.certainty(row))));
        return line;
      }));
      place.textContent = `${whole(first + 1)}–${whole(Math.min(rows.length, first + ENTITIES_AT_ONCE))} of ${whole(rows.length)}`;
      const focused = document.activeElement;
      previous.disabled = first === 0;
      next.disabled = first + ENTITIES_AT_ONCE >= rows.length;
      // a disabled button loses the focus: move it to the other one
      if (focused === next && next.disabled) previous.focus();
      else if (focused === previous && previous.disabled) next.focus();
    };
    [[previous, -1], [next, 1]].forEach(([button, sign]) => {
      button.type = "button";
      button.addEventListener("click", () => { first += sign * ENTITIES_AT_ONCE; draw(); });
    });
    pager.append(previous, place, next);
    if (rows.length > ENTITIES_AT_ONCE) made.append(pager);
    draw();
    return made;
  }

  function showAgent(agent) {
    const rows = data.rowsOfAgents[agent], { errors } = data.raw.agents;
    const facts = [`${whole(rows.length)} ${noun("entity", rows.length)}`];
    const side = element("div"), left = element("div");
    left.append(titled(`Its ${noun("entity", 2)}`, entityTable(agent)));
    if (!data.isAlone) side.append(titled(`Share of its ${noun("entity", 2)} in each cluster`, bars(data.agentShares(agent))));
    if (errors && errors.own[agent]) {
      const n = data.agentEvents[agent];
      const text = `Its error is ${errors.own[agent]} on ${whole(n)} ${n === 1 ? "event" : "events"} given to the report. That of all events is ${errors.all}. (Root mean squared error${data.raw.target.percent ? " of the probability" : ""}.)`;
      side.append(titled("How well it is predicted", element("p", "note", text)));
    }
    const near = data.isAlone ? [] : data.agentNeighbours(agent);
    if (near.length) side.append(titled(`${noun("agent", 2)[0].toUpperCase()}${noun("agent", 2).slice(1)} with the most similar shares`, likes("agent", near, agentDetail)));
    box.replaceChildren(heading("agent", agent, facts), left, side);
  }

  function show(kind, n) {
    shown = { kind, n };
    (kind === "entity" ? showEntity : showAgent)(n);
    const last = countOf(kind) - 1;
    document.getElementById("explorer-previous").disabled = n === 0;
    document.getElementById("explorer-next").disabled = n === last;
    box.hidden = false;
  }
  function start() {
    if (data || !pageData.of("explorer")) return;
    data = explorerData();
    document.getElementById("explorer-controls").hidden = false;
    if (!follow()) show("entity", data.raw.first);
  }

  // Show what the address names, such as #agent=3; false if it names nothing that there is.
  function follow() {
    const [, kind, number] = /^#(entity|agent)=(\d+)$/.exec(location.hash) ?? [];
    if (!kind) return false;
    if (!data) return false;
    const n = Number(number);
    if (n >= countOf(kind)) return false;
    const typed = document.activeElement?.matches("#explorer-previous, #explorer-next");
    show(kind, n);
    section.scrollIntoView({ block: "start" });
    if (!typed || document.activeElement.disabled) box.querySelector("h3").focus({ preventScroll: true });
    status.textContent = `${noun(kind)} ${nameOf(kind, n)}`;
    return true;
  }
  function open(kind, n) {
    const address = `#${kind}=${n}`;
    if (location.hash === address) follow();
    else location.hash = address;
  }

  addEventListener("hashchange", () => {
    // back to a page without a choice: show what was there first
    if (!follow() && data && location.hash === "") show("entity", data.raw.first);
  });
  document.addEventListener("click", (event) => {
    const target = event.target.closest("a[href^='#entity='], a[href^='#agent=']");
    // the address does not change when it is followed again
    if (target && target.getAttribute("href") === location.hash) follow();
  });
  for (const [id, step] of [["explorer-previous", -1], ["explorer-next", 1]]) {
    document.getElementById(id).addEventListener("click", () => open(shown.kind, shown.n + step));
  }
  addEventListener("beforeprint", start);

  explorerFinder(find, options, status, { data: () => { start(); return data; }, noun, open, most: MOST_OPTIONS });
  pageData.whenReady(() => {
    if (/^#(entity|agent)=/.test(location.hash)) start();
    else (window.requestIdleCallback ?? ((then) => setTimeout(then, 50)))(start, { timeout: 1500 });
  });
})();
