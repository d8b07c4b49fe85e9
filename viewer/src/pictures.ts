// Which heat maps of this text may be shown: a row for every picture, its words shaded as it would.

import { SignedScale } from "./colour";
import type { Context } from "./context";
import { caption, css, fill, h } from "./dom";
import { number, word } from "./format";
import type { Picture, Pictures } from "./model";

const FAINT = 1 / 8; // of the largest score; what is fainter is not painted
const MOST_WORDS = 60; // in a row; of longer texts the strongest, in reading order

export function picturesView(context: Context, pictures: Pictures): HTMLElement {
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
      { class: "scroll whole", tabindex: 0 },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ...["Picture", "Advice", "p", "Answer loses", "As it would be shown"].map((name) =>
              h("th", { scope: "col" }, name),
            ),
          ),
        ),
        body,
      ),
    ),
  );
}

function line(context: Context, words: string[], picture: Picture): HTMLElement {
  return h(
    "tr",
    { "data-advice": picture.advice, title: picture.reason },
    h("td", {}, picture.label),
    h("td", {}, h("span", { class: "advised", "data-advice": picture.advice }, `${picture.mark} ${picture.advice}`)),
    h("td", { class: "figure" }, number(picture.p)),
    h("td", { class: "figure", title: `${number(picture.loss)} in log-odds` }, lost(picture.probability)),
    h("td", { class: "shades" }, ...shades(context, words, picture)),
  );
}

/** What the answer loses, as a probability without its nought. */
export function lost(probability: number): string {
  const text = Math.abs(probability).toFixed(2).replace(/^0/u, "");
  return probability <= -0.005 ? `+${text} gained` : text;
}

function shades(context: Context, words: string[], picture: Picture): Node[] {
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
