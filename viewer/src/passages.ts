// Which passage the answer rests on: every passage with what the answer loses without it, its
// sentences shaded by a method of the reader's choice.

import { SignedScale } from "./colour";
import type { Context } from "./context";
import { caption, css, fill, h } from "./dom";
import { type Cell, exportsOf } from "./files";
import { number } from "./format";
import type { Passage, Passages } from "./model";
import { tip } from "./tips";

const FAINT = 1 / 8; // of the largest score; what is fainter is not painted

export function passagesView(context: Context, passages: Passages): HTMLElement {
  const list = h("ol", { class: "texts" });
  const choice = h(
    "select",
    { "aria-label": "sentences shaded by", on: { change: () => draw() } },
    ...passages.methods.map((name, place) => h("option", { value: place }, name)),
  );
  const draw = (): void => {
    const method = Number(choice.value) || 0;
    fill(list, ...passages.passages.map((passage) => item(context, passages, passage, method)));
  };
  context.store.watch([], draw);
  return h(
    "section",
    { class: "passages", "aria-label": "the passages" },
    h("h2", {}, "The passages"),
    caption(passages.caption),
    passages.methods.length > 1 && h("label", { class: "by" }, "Sentences shaded by ", choice),
    list,
    h("p", { class: "asked" }, passages.question),
    h("p", { class: "said" }, passages.answer),
    exportsOf(context, { name: () => "passages", rows: () => rowsOf(passages) }),
  );
}

function rowsOf(all: Passages): Cell[][] {
  return [
    ["passage", "answer loses", "needed", "sentence", ...all.methods],
    ...all.passages.flatMap((passage, place) =>
      passage.sentences.map((one): Cell[] => [place + 1, passage.loss, passage.needed ? "yes" : "no", one.text, ...one.scores]),
    ),
  ];
}

function item(context: Context, all: Passages, passage: Passage, method: number): HTMLElement {
  const most = Math.max(...all.passages.map((one) => Math.abs(one.loss)), 1e-9);
  const scores = all.passages.flatMap((one) => one.sentences.map((sentence) => sentence.scores[method] ?? 0));
  const limit = Math.max(...scores.map(Math.abs), 0);
  const scale = new SignedScale(limit, context.isDark());
  return h(
    "li",
    { "data-needed": String(passage.needed) },
    h(
      "div",
      { class: "loss" },
      css(h("span", { class: passage.loss < 0 ? "bar against" : "bar" }), {
        width: `${Math.round((100 * Math.abs(passage.loss)) / most)}%`,
      }),
      tip(h("span", { class: "figure" }, number(passage.loss, true)), `Without this passage the answer loses ${number(passage.loss, true)} of its log-probability.`),
    ),
    h(
      "p",
      {},
      ...passage.sentences.flatMap((sentence) => {
        const score = sentence.scores[method] ?? 0;
        const element = h("span", { class: "shade", title: `${all.methods[method]}: ${number(score, true)}` }, sentence.text);
        if (limit > 0 && Math.abs(score) >= FAINT * limit) {
          const linear = (score * Math.abs(score)) / limit; // undoes the scale's root
          css(element, { "background-color": scale.css(linear), color: scale.ink(linear) });
        }
        return [element, document.createTextNode(" ")];
      }),
    ),
  );
}
