"use strict";
// The data of tables and explorer: blocks of JSON, compressed by zlib, as base64. They are unpacked once, when the page is shown.
const pageData = (() => {
  const found = new Map();

  // base64 of addresses as bytes
  function bytes(text) {
    const plain = atob(text.replace(/-/g, "+").replace(/_/g, "/")), made = new Uint8Array(plain.length);
    for (let n = 0; n < plain.length; n += 1) made[n] = plain.charCodeAt(n);
    return made;
  }
  async function read(block) {
    const stream = new Blob([bytes(block.textContent)]).stream().pipeThrough(new DecompressionStream("deflate"));
    found.set(block.id.slice("data-".length), JSON.parse(await new Response(stream).text()));
  }
  // words that another table has too are stored there
  function share() {
    for (const { columns } of found.values()) {
      for (const column of columns ?? []) {
        if (typeof column.words === "string") column.words = found.get(column.words).columns[0].words;
      }
    }
  }
  const waiting = [];
  async function start() {
    if (!("DecompressionStream" in window)) {
      for (const note of document.querySelectorAll(".too-old")) note.hidden = false;
      return;
    }
    await Promise.all([...document.querySelectorAll("script[id^='data-']")].map(read));
    share();
    for (const then of waiting) then();
    document.documentElement.dataset.ready = "";
  }
  addEventListener("load", start);
  // data of a block by its name; `whenReady` calls back as soon as they are there
  return { bytes, of: (name) => found.get(name), whenReady: (then) => waiting.push(then) };
})();
