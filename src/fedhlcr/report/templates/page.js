"use strict";
(() => {
  // a link to a section also opens what is folded in it
  function unfold() {
    const section = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!section) return;
    for (let box = section.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    const folded = section.querySelector("details.fold");
    // the table of clusters stays folded: its section has more to show
    if (folded && !section.querySelector(".card")) folded.open = true;
  }
  addEventListener("hashchange", unfold);
  // the same link twice does not change the address
  for (const link of document.querySelectorAll("nav a")) {
    link.addEventListener("click", () => { if (link.hash === location.hash) unfold(); });
  }
  unfold();
  // on paper everything is unfolded, and afterwards as before
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const box of opened) box.open = true;
  });
  addEventListener("afterprint", () => {
    for (const box of opened) box.open = false;
    opened = [];
  });
})();
