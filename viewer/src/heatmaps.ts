// Which heat maps of this text may be shown: a row for each, its words shaded as it would.

import { SignedScale } from "./colour";
import { type Context, meaning } from "./context";
import { caption, css, fill, h } from "./dom";
import { type Cell, exportsOf } from "./files";
import { number, word } from "./format";
import type { HeatMapPanel, HeatMapRow } from "./model";
import { tip } from "./tips";

const FAINT = 1 / 8; // of the largest score; what is fainter is not painted
const HEADINGS = [
  ["Heat map", "heat map"],
  ["Advice", "advice"],
  ["p", "p"],
  ["Answer loses", "answer loses"],
  ["As it would be shown", ""],
] as const;
const MOST_WORDS = 60; // in a row; of longer texts the strongest, in reading order

export function heatMapsView(context: Context, panel: HeatMapPanel): HTMLElement {
  const body = h("tbody", {});
  context.store.watch([], () =>
    fill(body, ...panel.rows.map((row) => line(context, panel.words, row))),
  );
  return h(
    "section",
    { class: "heat-maps", "aria-label": "heat maps of the text" },
    h("h2", {}, "Which heat maps may be shown"),
    caption(panel.caption),
    h(
      "div",
      { class: "scroll whole", tabindex: 0, role: "group", "aria-label": "heat maps" },
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
    exportsOf(context, { name: () => "heat maps", rows: () => rowsOf(panel) }),
  );
}

function rowsOf(panel: HeatMapPanel): Cell[][] {
  return [
    ["heat map", "advice", "p", "answer loses", ...panel.words],
    ...panel.rows.map((one): Cell[] => [one.label, one.advice, one.p, one.probability, ...one.scores]),
  ];
}

function line(context: Context, words: string[], row: HeatMapRow): HTMLElement {
  return h(
    "tr",
    { "data-advice": row.advice },
    h("td", {}, row.label),
    h("td", {}, tip(h("span", { class: "advised", "data-advice": row.advice }, `${row.mark} ${row.advice}`), row.reason)),
    tip(h("td", { class: "figure" }, number(row.p)), meaning(context, "p"), false),
    tip(h("td", { class: "figure" }, lost(row.probability)), `${meaning(context, "answer loses") ?? ""} In log-odds ${number(row.loss)}.`, false),
    h("td", { class: "shades" }, ...shades(context, words, row)),
  );
}

/** What the answer loses, as a probability without its nought. */
export function lost(probability: number): string {
  const text = Math.abs(probability).toFixed(2).replace(/^0/u, "");
  return probability <= -0.005 ? `+${text} gained` : text;
}

function shades(context: Context, words: string[], row: HeatMapRow): Node[] {
  const limit = Math.max(...row.scores.map(Math.abs), 0);
  const scale = new SignedScale(limit, context.isDark());
  const advised = row.advice !== "do not show";
  return kept(row.scores).flatMap((place, order, places) => {
    const score = row.scores[place];
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
