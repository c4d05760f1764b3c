/* Search from disk. Browsers start no worker for a page that was opened as a file; on such a page its script runs in a hidden frame instead.
   mkdocs-material knows this by the names IFrameWorker (here) and iframe-worker (in its plugin `offline`, which would fetch one from another host). */
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inner = frame.contentWindow;
      inner.document.open();
      inner.document.write("<!doctype html><html><head></head><body></body></html>");
      inner.document.close();
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = (...urls) =>
        urls.reduce((before, next) => before.then(() => run(inner.document, next)), Promise.resolve());
      this.ready = run(inner.document, url).then(() => inner);
    }

    postMessage(data) {
      this.ready.then((inner) => inner.dispatchEvent(new inner.MessageEvent("message", { data })));
    }

    terminate() {}
  }

  const run = (place, url) =>
    new Promise((resolve, reject) => {
      const script = place.createElement("script");
      script.src = url;
      script.onload = () => resolve();
      script.onerror = reject;
      place.body.appendChild(script);
    });

  window.IFrameWorker = window.Worker = IFrameWorker;
}
