// The top of the page: what to do, what the model answered, and whether that rests on attention.

import { SignedScale } from "./colour";
import type { Context } from "./context";
import { caption, css, fill, h } from "./dom";
import { number, percent, word } from "./format";
import type { Summary } from "./model";
import { sceneScores } from "./overlay";

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
  const text = h("p", { class: "text", "aria-label": "the text, shaded by contribution" });
  store.watch(["token", "noSpecial"], () => fill(text, ...words(context)));
  const shaded = summary.shares.length > 0 || summary.verdict !== "";
  return h(
    "header",
    { class: "summary" },
    h("p", { class: "kicker" }, header.title),
    h("h1", { class: "advice" }, summary.advice || summary.verdict),
    h(
      "div",
      { class: "case" },
      shaded &&
        h(
          "div",
          {},
          h("h2", { class: "label" }, header.scene ? "What the model was given" : "The text"),
          header.scene && sceneScores(context, header.scene, summary),
          text,
          caption(summary.caption),
        ),
      (summary.answer.length > 0 || summary.reliance.length > 0 || summary.verdict !== "") &&
        h(
          "div",
          {},
          h("h2", { class: "label" }, "The answer"),
          answer(summary.answer),
          summary.reliance.length > 0 &&
            h("div", { class: "rests" }, ...summary.reliance.map((sentence) => h("p", {}, sentence))),
          caption(summary.target && `Explained below: the ${summary.target}.`),
        ),
    ),
    summary.advice && summary.verdict && rests(summary),
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

/** Whether the answer rests on attention: the word, and the sentence behind it. */
function rests(summary: Summary): HTMLElement {
  return h(
    "div",
    { class: "finding" },
    h("h2", { class: "label" }, "Is the attention evidence?"),
    h(
      "p",
      { class: "counts" },
      h("span", { class: "verdict", "data-word": summary.word }, summary.word),
      " ",
      summary.verdict,
    ),
  );
}

function words(context: Context): Node[] {
  const { header, store } = context;
  const summary = header.summary!;
  const sequence = header.sequences[summary.sequence];
  const limit = Math.max(...summary.shares.map(Math.abs), 0);
  const scale = new SignedScale(limit, context.isDark());
  const patches = new Set(header.scene?.grids[summary.sequence]?.flat()); // shown in the picture
  return sequence.tokens.flatMap((token, place) => {
    if (patches.has(place) || (store.now.noSpecial && sequence.special[place])) return [];
    const share = summary.shares[place] ?? 0;
    const button = h(
      "button",
      {
        class: "token",
        type: "button",
        title: summary.shares.length ? `${token}: ${number(share, true)}` : token,
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
