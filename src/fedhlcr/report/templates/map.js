// The map: names on hover and focus, and arrow keys from dot to dot, so that the map is one stop of the Tab key.
(() => {
  const map = document.querySelector("svg.places"), readout = document.getElementById("map-readout");
  if (!map) return;
  const dots = [...map.querySelectorAll("a")];
  const tell = (dot) => { readout.textContent = dot ? dot.getAttribute("aria-label") : "\u00a0"; };
  const dotOf = (event) => event.target.closest("a");

  const stop = (dot) => dots.forEach((other) => other.setAttribute("tabindex", other === dot ? "0" : "-1"));
  if (dots.length) stop(dots[0]);
  map.addEventListener("pointerover", (event) => tell(dotOf(event)));
  map.addEventListener("pointerleave", () => tell(null));
  map.addEventListener("focusin", (event) => { tell(dotOf(event)); stop(dotOf(event)); });
  map.addEventListener("focusout", () => tell(null));

  // the nearest dot in a direction; what lies aside counts double
  function next(from, dx, dy) {
    const place = (dot) => ["cx", "cy"].map((name) => Number(dot.firstChild.getAttribute(name)));
    const [x, y] = place(from);
    let best = null, least = Infinity;
    for (const dot of dots) {
      const [ox, oy] = place(dot), ahead = dx * (ox - x) + dy * (oy - y), aside = Math.abs(dx * (oy - y)) + Math.abs(dy * (ox - x));
      if (ahead > 0.01 && ahead + 2 * aside < least) [best, least] = [dot, ahead + 2 * aside];
    }
    return best;
  }
  const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  map.addEventListener("keydown", (event) => {
    const direction = DIRECTIONS[event.key], from = dotOf(event);
    if (!direction || !from) return;
    event.preventDefault();
    next(from, ...direction)?.focus();
  });

  // the entity in the explorer is marked
  const mark = () => {
    for (const dot of dots) {
      if (dot.getAttribute("href") === location.hash) dot.setAttribute("aria-current", "true");
      else dot.removeAttribute("aria-current");
    }
  };
  addEventListener("hashchange", mark);
  mark();
})();
