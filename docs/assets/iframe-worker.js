// Search in pages that are opened from the disk. Browsers start no worker there, so a hidden frame
// takes its place: the search of Material for MkDocs looks for the name IFrameWorker in its scope,
// and then finds its languages beside the first script of the frame. Loaded by every page
// (mkdocs.yml, extra.polyfills), so that nothing has to be fetched from elsewhere.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const scope = frame.contentWindow;
      const base = new URL(url, document.baseURI);
      const loaded = (source) =>
        new Promise((resolve, reject) => {
          const script = frame.contentDocument.createElement("script");
          script.onload = resolve;
          script.onerror = reject;
          script.src = new URL(source, base);
          frame.contentDocument.head.append(script);
        });
      scope.IFrameWorker = IFrameWorker;
      scope.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => loaded(source)), Promise.resolve());
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.scope = scope;
      this.ready = loaded(base);
    }

    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  }

  window.IFrameWorker = window.Worker = IFrameWorker;
}
