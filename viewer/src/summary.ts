// The top of the page: what was examined, what the model answered, what the verdict is.

import { SignedScale } from "./colour";
import type { Context } from "./context";
import { css, fill, h } from "./dom";
import { number, percent, word } from "./format";

export function summaryView(context: Context): HTMLElement {
  const { header, store } = context;
  const summary = header.summary;
  const model = header.about.find(([name]) => name === "model")?.[1] ?? "";
  if (!summary)
    return h(
      "header",
      { class: "summary" },
      h("p", { class: "kicker" }, header.kind, " · ", model),
      h("h1", {}, header.title),
    );
  const [verdict, counts] = summary.verdict.split(/(?<=[.!?]) (?=Of )/u);
  const text = h("p", { class: "text", "aria-label": "the text, shaded by contribution" });
  store.watch(["token", "noSpecial"], () => fill(text, ...words(context)));
  return h(
    "header",
    { class: "summary" },
    h("p", { class: "kicker" }, header.title),
    h("h1", {}, verdict),
    counts && h("p", { class: "counts" }, counts),
    h(
      "div",
      { class: "case" },
      h(
        "div",
        {},
        h("h2", { class: "label" }, "The text"),
        text,
        h("p", { class: "caption" }, summary.caption),
      ),
      h(
        "div",
        {},
        h("h2", { class: "label" }, "The answer"),
        answer(summary.answer),
        h("p", { class: "caption" }, summary.target && `Explained below: the ${summary.target}.`),
      ),
    ),
    summary.skipped.length > 0 &&
      h(
        "details",
        { class: "skipped" },
        h("summary", {}, `${summary.skipped.length} methods did not apply`),
        h(
          "dl",
          {},
          ...summary.skipped.flatMap(([name, reason]) => [h("dt", {}, name), h("dd", {}, reason)]),
        ),
      ),
  );
}

function words(context: Context): Node[] {
  const { header, store } = context;
  const summary = header.summary!;
  const sequence = header.sequences[summary.sequence];
  const limit = Math.max(...summary.shares.map(Math.abs), 0);
  const scale = new SignedScale(limit, context.isDark());
  return sequence.tokens.flatMap((token, place) => {
    if (store.now.noSpecial && sequence.special[place]) return [];
    const share = summary.shares[place] ?? 0;
    const button = h(
      "button",
      {
        class: "token",
        type: "button",
        title: `${token}: ${number(share, true)}`,
        "aria-pressed": String(store.now.token === place),
        on: { click: () => store.set({ token: place, query: place }) },
      },
      word(token),
    );
    const linear = limit > 0 ? (share * Math.abs(share)) / limit : 0; // undoes the scale's root
    if (linear) css(button, { "background-color": scale.css(linear), color: scale.ink(linear) });
    return [button, document.createTextNode(" ")];
  });
}

function answer(shares: [string, number][]): HTMLElement {
  const probable = shares.every(([, share]) => share >= 0 && share <= 1);
  return h(
    "dl",
    { class: "answer" },
    ...shares.flatMap(([label, share]) => [
      h("dt", {}, label),
      h(
        "dd",
        {},
        probable && css(h("span", { class: "bar" }), { width: `${Math.max(100 * share, 0.5)}%` }),
        h("span", { class: "figure" }, probable ? percent(share) : number(share, true)),
      ),
    ]),
  );
}
