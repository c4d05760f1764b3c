// A box that suggests names of agents and entities: arrows choose, Enter opens, Escape closes.
const explorerFinder = (find, options, status, { data, noun, open, most }) => {
  let names = null, matches = [], active = -1;

  function index() {
    const own = data(), made = [];
    for (let agent = 0; agent < own.nAgents; agent += 1) made.push(["agent", agent, own.agentName(agent), ""]);
    for (let row = 0; row < own.n; row += 1) {
      made.push(["entity", row, own.entityName(row), own.agentOf(row) < 0 ? "" : own.agentName(own.agentOf(row))]);
    }
    for (const entry of made) entry.push(`${entry[2]} ${entry[3]}`.toLowerCase());
    return made;
  }

  // names that start with the text come first, then those with a word that does
  function search(text) {
    const terms = text.toLowerCase().split(/\s+/).filter(Boolean);
    const groups = [[], [], []];
    for (const entry of (names ??= index())) {
      const hay = entry[4];
      if (!terms.every((term) => hay.includes(term))) continue;
      const at = hay.indexOf(terms[0] ?? "");
      groups[at === 0 ? 0 : /[\p{L}\p{N}]/u.test(hay[at - 1]) ? 2 : 1].push(entry);
    }
    return groups.flat();
  }

  function close() {
    options.hidden = true;
    options.replaceChildren();
    matches = [];
    active = -1;
    find.setAttribute("aria-expanded", "false");
    find.removeAttribute("aria-activedescendant");
  }
  function choose(n) {
    const entry = matches[n];
    close();
    find.value = "";
    if (entry) open(entry[0], entry[1]);
  }
  function mark(n) {
    active = n;
    [...options.children].forEach((option, other) => option.setAttribute("aria-selected", String(other === n)));
    find.setAttribute("aria-activedescendant", options.children[n].id);
    options.children[n].scrollIntoView({ block: "nearest" });
  }
  function suggest() {
    const found = search(find.value);
    close();
    if (!find.value.trim()) { status.textContent = ""; return; }
    matches = found.slice(0, most);
    status.textContent = found.length ? `${found.length.toLocaleString("en-US")} ${found.length === 1 ? "name matches" : "names match"}. Use the arrow keys.` : "No name matches.";
    options.append(...matches.map(([kind, , name, agent], n) => {
      const option = document.createElement("li"), text = document.createElement("bdi"), note = document.createElement("small");
      option.id = `explorer-option-${n}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      text.textContent = name;
      note.append(agent ? `${noun(kind)} of ` : noun(kind));
      if (agent) {
        const own = document.createElement("bdi");
        own.textContent = agent;
        note.append(own);
      }
      option.append(text, " ", note);
      option.addEventListener("pointerdown", (event) => event.preventDefault());
      option.addEventListener("click", () => choose(n));
      return option;
    }));
    if (!matches.length) {
      const none = document.createElement("li");
      none.textContent = "No name matches.";
      none.setAttribute("role", "presentation");
      options.append(none);
    }
    options.hidden = false;
    find.setAttribute("aria-expanded", "true");
  }

  find.addEventListener("input", suggest);
  find.addEventListener("blur", close);
  find.addEventListener("keydown", (event) => {
    const n = matches.length, { key } = event;
    if (key === "Escape") {
      if (options.hidden) find.value = "";
      close();
    } else if (key === "Enter") {
      if (n) choose(Math.max(0, active));
    } else if (key === "ArrowDown" || key === "ArrowUp") {
      if (!n) suggest();
      else mark((active + (key === "ArrowDown" ? 1 : active < 0 ? 0 : -1) + n) % n);
    } else return;
    event.preventDefault();
  });
};
