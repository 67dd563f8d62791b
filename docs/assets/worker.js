// Search without a server: pages that are opened as files may start no workers, so there a hidden frame does the work of one.
"use strict";

if (location.protocol === "file:") {
    window.Worker = class extends EventTarget {
        constructor(url) {
            super();
            this.frame = document.createElement("iframe");
            this.frame.hidden = true;
            document.body.appendChild(this.frame);
            const inside = this.frame.contentWindow;
            inside.postMessage = (data) => {
                const message = new MessageEvent("message", { data });
                this.dispatchEvent(message);
                if (typeof this.onmessage === "function") this.onmessage(message);
            };
            inside.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => this.load(next)), Promise.resolve());
            this.ready = this.load(new URL(url, document.baseURI).href);
        }

        load(url) {
            const page = this.frame.contentDocument;
            return new Promise((done, failed) => {
                const script = page.createElement("script");
                script.onload = done;
                script.onerror = failed;
                script.src = url;
                page.body.appendChild(script);
            });
        }

        postMessage(data) {
            this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
        }

        terminate() {
            this.frame.remove();
        }
    };
}
