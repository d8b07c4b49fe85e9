// Which heat maps of this text may be shown: a row for every picture, its words shaded as it would.

import { SignedScale } from "./colour";
import { type Context, meaning } from "./context";
import { caption, css, fill, h } from "./dom";
import { type Cell, exportsOf } from "./files";
import { number, word } from "./format";
import type { HeatMap, HeatMaps } from "./model";
import { tip } from "./tips";

const FAINT = 1 / 8; // of the largest score; what is fainter is not painted
const HEADINGS = [
  ["Picture", "picture"],
  ["Advice", "advice"],
  ["p", "p"],
  ["Answer loses", "answer loses"],
  ["As it would be shown", ""],
] as const;
const MOST_WORDS = 60; // in a row; of longer texts the strongest, in reading order

export function picturesView(context: Context, pictures: HeatMaps): HTMLElement {
  const body = h("tbody", {});
  context.store.watch([], () =>
    fill(body, ...pictures.pictures.map((picture) => line(context, pictures.words, picture))),
  );
  return h(
    "section",
    { class: "pictures", "aria-label": "pictures of the text" },
    h("h2", {}, "Which pictures may be shown"),
    caption(pictures.caption),
    h(
      "div",
      { class: "scroll whole", tabindex: 0, role: "group", "aria-label": "pictures" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ...HEADINGS.map(([name, term]) => h("th", { scope: "col" }, tip(h("span", {}, name), meaning(context, term)))),
          ),
        ),
        body,
      ),
    ),
    exportsOf(context, { name: () => "pictures", rows: () => rowsOf(pictures) }),
  );
}

function rowsOf(pictures: HeatMaps): Cell[][] {
  return [
    ["picture", "advice", "p", "answer loses", ...pictures.words],
    ...pictures.pictures.map((one): Cell[] => [one.label, one.advice, one.p, one.probability, ...one.scores]),
  ];
}

function line(context: Context, words: string[], picture: HeatMap): HTMLElement {
  return h(
    "tr",
    { "data-advice": picture.advice },
    h("td", {}, picture.label),
    h("td", {}, tip(h("span", { class: "advised", "data-advice": picture.advice }, `${picture.mark} ${picture.advice}`), picture.reason)),
    tip(h("td", { class: "figure" }, number(picture.p)), meaning(context, "p"), false),
    tip(h("td", { class: "figure" }, lost(picture.probability)), `${meaning(context, "answer loses") ?? ""} In log-odds ${number(picture.loss)}.`, false),
    h("td", { class: "shades" }, ...shades(context, words, picture)),
  );
}

/** What the answer loses, as a probability without its nought. */
export function lost(probability: number): string {
  const text = Math.abs(probability).toFixed(2).replace(/^0/u, "");
  return probability <= -0.005 ? `+${text} gained` : text;
}

function shades(context: Context, words: string[], picture: HeatMap): Node[] {
  const limit = Math.max(...picture.scores.map(Math.abs), 0);
  const scale = new SignedScale(limit, context.isDark());
  const advised = picture.advice !== "do not show";
  return kept(picture.scores).flatMap((place, order, places) => {
    const score = picture.scores[place];
    const element = h("span", { class: "shade", title: `${words[place]}: ${number(score, true)}` }, word(words[place]));
    const share = limit > 0 ? score / limit : 0;
    if (Math.abs(share) >= FAINT && advised) {
      const linear = share * Math.abs(share) * limit; // undoes the scale's root
      css(element, { "background-color": scale.css(linear), color: scale.ink(linear) });
    } else if (Math.abs(share) >= FAINT) {
      element.classList.add("grey");
      css(element, { "--share": `${Math.round(100 * Math.abs(share))}%` });
    }
    const skipped = order > 0 && place > places[order - 1] + 1;
    return [document.createTextNode(skipped ? " … " : " "), element];
  });
}

/** The places that are written out: all, or the strongest of a long text. */
export function kept(scores: number[]): number[] {
  const places = scores.map((_, place) => place);
  if (places.length <= MOST_WORDS) return places;
  places.sort((one, two) => Math.abs(scores[two]) - Math.abs(scores[one]));
  return places.slice(0, MOST_WORDS).sort((one, two) => one - two);
}
