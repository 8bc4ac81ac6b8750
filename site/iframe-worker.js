// Search runs in a worker, which a browser refuses to a page that is read from the disk. There
// a hidden frame stands for it, with as much of a worker as the theme's search asks for.
class IFrameWorker extends EventTarget {
  constructor(address) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inner = this.frame.contentWindow;
    inner.postMessage = (data) => this.tell(data);
    inner.document.open();
    inner.document.write(`<script src="${address}"></` + "script>");
    this.loaded = new Promise((done) => (inner.onload = done));
    inner.document.close();
    inner.postMessage = (data) => this.tell(data);
  }
  tell(data) {
    const event = new MessageEvent("message", { data });
    this.dispatchEvent(event);
    this.onmessage?.(event);
  }
  postMessage(data) {
    this.loaded.then(() =>
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })),
    );
  }
  terminate() {
    this.frame.remove();
  }
}
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = IFrameWorker;
}
