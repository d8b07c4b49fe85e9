// The first screen: the text as it was written, the answer, what to do, and the heads that carry it.

import { type Context, meaning, nameOf } from "./context";
import { caption, css, h } from "./dom";
import { number, percent } from "./format";
import type { AnswerSummary } from "./model";
import { sceneScores } from "./overlay";
import { tip } from "./tips";
import { textView } from "./words";

const NAMED = 8; // heads that get a button

/** ``heading`` is h1, or lower where the page has another. */
export function summaryView(context: Context, heading: "h1" | "h3" = "h1"): HTMLElement {
  const { header } = context;
  const summary = header.summary;
  const model = header.about.find(([name]) => name === "model")?.[1] ?? "";
  if (!summary)
    return h(
      "header",
      { class: "summary" },
      h("p", { class: "kicker" }, header.kind, " · ", model),
      h(heading, {}, header.title),
    );
  return h(
    "header",
    { class: "summary" },
    h("p", { class: "kicker" }, header.title),
    h("div", { class: "case" }, texts(context, summary), answered(context, summary)),
    h(heading, { class: "advice" }, summary.advice || summary.verdict),
    carriers(context, summary),
    summary.advice && summary.verdict && rests(context, summary),
    summary.skipped.length > 0 &&
      h(
        "details",
        { class: "skipped" },
        h("summary", {}, summary.skipped.length === 1 ? "1 method did not apply" : `${summary.skipped.length} methods did not apply`),
        h(
          "dl",
          {},
          ...summary.skipped.flatMap(([name, reason]) => [h("dt", {}, name), h("dd", {}, reason)]),
        ),
      ),
  );
}

/** What the model was given, and what it said where that is a text of its own. */
function texts(context: Context, summary: AnswerSummary): HTMLElement | null {
  const { header } = context;
  if (!summary.shares.length && summary.verdict === "") return null;
  const given = summary.texts ?? [["The text", summary.sequence] as [string, string]];
  return h(
    "div",
    {},
    header.scene && sceneScores(context, header.scene, summary),
    ...given.flatMap(([title, sequence]) => {
      const main = sequence === summary.sequence;
      return [
        h("h2", { class: "label" }, header.scene && given.length === 1 ? "Beside the picture" : title),
        textView(context, sequence, main ? summary.shares : [], title, main ? caption(summary.caption) : null),
      ];
    }),
  );
}

function answered(context: Context, summary: AnswerSummary): HTMLElement | null {
  if (!summary.answer.length && !summary.reliance.length && summary.verdict === "") return null;
  return h(
    "div",
    {},
    h("h2", { class: "label" }, "The answer"),
    answer(context, summary),
    summary.reliance.length > 0 &&
      h("div", { class: "rests" }, ...summary.reliance.map((sentence) => h("p", {}, sentence))),
    caption(summary.target && `Explained below: the ${summary.target}.`),
  );
}

/** The heads that carry the answer, each a way to its map. */
function carriers(context: Context, summary: AnswerSummary): HTMLElement | null {
  const { header, store } = context;
  const maps = header.maps;
  if (!summary.carriers) return null;
  const heads = (summary.carrying ?? []).slice(0, NAMED).map(([site, head]) =>
    (maps?.heads ?? []).findIndex((one) => one.site === site && one.head === head),
  );
  const open = (event: Event, place: number) => {
    store.set({ head: place });
    ((event.target as HTMLElement).getRootNode() as ShadowRoot).querySelector("section.head")?.scrollIntoView({ block: "start" });
  };
  return h(
    "div",
    { class: "carrying" },
    h("h2", { class: "label" }, "The heads that carry it"),
    h("p", { class: "carriers" }, summary.carriers),
    h(
      "div",
      { class: "chips" },
      ...heads
        .filter((place) => place >= 0)
        .map((place) => {
          const head = maps!.heads[place];
          const name = nameOf(maps!.sites[head.site], head);
          return h("button", { type: "button", class: "quiet chip", "data-word": head.word ?? "", on: { click: (event) => open(event, place) } }, name);
        }),
    ),
  );
}

/** Whether the answer rests on attention: the word, and the sentence behind it. */
function rests(context: Context, summary: AnswerSummary): HTMLElement {
  return h(
    "div",
    { class: "finding" },
    h("h2", { class: "label" }, "Is the attention evidence?"),
    h(
      "p",
      { class: "counts" },
      tip(h("span", { class: "verdict", "data-word": summary.word }, summary.word), meaning(context, summary.word)),
      " ",
      summary.verdict,
    ),
  );
}

function answer(context: Context, summary: AnswerSummary): HTMLElement {
  const shares = summary.answer;
  const probable = shares.every(([, share]) => share >= 0 && share <= 1);
  const says = meaning(context, probable ? "probability" : "answer");
  const { truth } = summary;
  const best = shares.reduce((top, one) => (one[1] > top[1] ? one : top), shares[0] ?? ["", 0]);
  return h(
    "div",
    {},
    h(
      "dl",
      { class: "answer" },
      ...shares.flatMap(([label, share]) => [
        h("dt", {}, label, label === truth && tip(h("span", { class: "truth" }, "true label"), meaning(context, "true label"))),
        h(
          "dd",
          {},
          probable && css(h("span", { class: "bar" }), { width: `${Math.max(100 * share, 0.5)}%` }),
          tip(h("span", { class: "figure" }, probable ? percent(share) : number(share, true)), says),
        ),
      ]),
    ),
    truth &&
      h("p", { class: "judged", "data-right": String(best[0] === truth) }, best[0] === truth ? `✓ right: the true label is ${truth}.` : `✗ wrong: the true label is ${truth}.`),
  );
}
