// The server's page: type a sentence, wait in line, see the result in place.

import { mount } from "./app";
import { h } from "./dom";
import type { Header } from "./model";
import style from "./style.css?inline";

interface News {
  state: "waiting" | "working" | "done" | "failed";
  ahead?: number;
  stage?: string;
  step?: number;
  steps?: number;
  id?: string;
  error?: string;
}

export function ask(host: HTMLElement): void {
  const models = (host.dataset.models ?? "").split("\n").filter(Boolean);
  const shadow = host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(style);
  shadow.adoptedStyleSheets = [sheet];
  const text = h("textarea", {
    name: "text",
    rows: 2,
    required: true,
    maxlength: host.dataset.longest ?? "4000",
    placeholder: "a gripping , beautifully shot film",
    "aria-label": "the text",
  });
  const pair = h("input", { name: "pair", "aria-label": "the second text, for models of pairs", placeholder: "second text, for models of pairs" });
  const model = h("select", { "aria-label": "model" }, ...models.map((name) => h("option", { value: name }, name)));
  const button = h("button", { type: "submit", class: "primary" }, "Examine");
  const stop = h("button", { type: "button", class: "quiet", hidden: true }, "Stop");
  const status = h("p", { class: "status", role: "status", "aria-live": "polite" });
  const progress = h("progress", { max: 1, value: 0, hidden: true });
  const keep = h("a", { class: "quiet", hidden: true }, "Save this page");
  const result = h("div", { class: "result" });
  let leave: AbortController | null = null;

  const form = h(
    "form",
    {
      class: "ask",
      on: {
        submit: (event) => {
          event.preventDefault();
          void examine();
        },
      },
    },
    h("div", { class: "fields" }, text, pair),
    h("div", { class: "actions" }, h("label", { class: "choice" }, "Model ", model), button, stop, keep),
    progress,
    status,
  );
  stop.addEventListener("click", () => leave?.abort());
  shadow.append(h("div", { class: "page serve" }, form), result);

  async function examine(): Promise<void> {
    leave = new AbortController();
    busy(true);
    try {
      const asked = { text: text.value, pair: pair.value || null, model: model.value };
      const answer = await fetch("explain", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(asked),
        signal: leave.signal,
      });
      if (!answer.ok || !answer.body) throw new Error((await answer.text()) || answer.statusText);
      for await (const news of lines(answer.body)) await tell(news);
    } catch (problem) {
      status.textContent = leave.signal.aborted ? "Stopped." : `${(problem as Error).message}`;
    } finally {
      busy(false);
    }
  }

  async function tell(news: News): Promise<void> {
    if (news.state === "waiting")
      status.textContent = news.ahead ? `Waiting: ${news.ahead} before you.` : "Waiting.";
    if (news.state === "working") {
      progress.value = (news.step ?? 0) / (news.steps ?? 1);
      status.textContent = `Working: ${news.stage} (${(news.step ?? 0) + 1} of ${news.steps}).`;
    }
    if (news.state === "failed") status.textContent = news.error ?? "It failed.";
    if (news.state === "done") {
      const payload = (await (await fetch(`result/${news.id}`)).json()) as { header: Header; blocks: string };
      const fresh = h("div", {});
      result.replaceChildren(fresh);
      mount(fresh, payload.header, payload.blocks, { alone: false });
      keep.href = `page/${news.id}`;
      keep.download = "exhibit-a.html";
      keep.hidden = false;
      status.textContent = "Done.";
    }
  }

  function busy(now: boolean): void {
    button.disabled = now;
    stop.hidden = !now;
    progress.hidden = !now;
    if (now) progress.value = 0;
  }
}

/** News as it arrives, one JSON object a line. */
async function* lines(body: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<News> {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts.filter(Boolean)) yield JSON.parse(part) as News;
  }
}
