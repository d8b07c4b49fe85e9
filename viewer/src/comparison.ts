// Two results side by side: what differs, then both, so that a choice in one is made in the other.

import { FAINTEST_WORD, SignedScale } from "./colour";
import type { Context } from "./context";
import { caption, css, fill, h } from "./dom";
import { beginning, exhibit } from "./exhibit";
import { type Cell, exportsOf } from "./files";
import { number, percent } from "./format";
import { matrixView } from "./matrix";
import type { Comparison, Head, Header, Maps } from "./model";
import { type Grids, Payload } from "./payload";
import { type State, Store } from "./state";
import { summaryView } from "./summary";
import { sortable } from "./tableview";
import { tip } from "./tips";
import { wordsOf } from "./words";

const LINKED = ["mode", "noSpecial", "ownScale", "find", "match", "zoom", "wholeLayer", "layer"] as const;

export function comparisonView(context: Context, comparison: Comparison, text: string): HTMLElement {
  const sides = [comparison.first, comparison.second].map((header): Context => {
    const whole: Header = { ...header, glossary: context.header.glossary };
    return { ...context, header: whole, payload: new Payload(whole, text), store: new Store(beginning(whole)) };
  }) as [Context, Context];
  linked(sides, comparison);
  const heads = comparison.heads.length > 0 && headsView(context, comparison, sides[0]);
  return h(
    "div",
    { class: "comparison" },
    h(
      "header",
      { class: "summary" },
      h("p", { class: "kicker" }, context.header.title),
      h("h1", { class: "advice" }, comparison.sentence),
      answersView(comparison),
      comparison.words.length > 0 && wordsView(context, comparison),
    ),
    heads,
    difference(context, sides),
    h("div", { class: "pair" }, ...sides.map((side, place) => half(side, comparison.names[place], place))),
  );
}

function half(side: Context, name: string, place: number): HTMLElement {
  const { maps } = side.header;
  return h(
    "section",
    { class: "half", "aria-label": place ? "the second" : "the first" },
    h("h2", {}, `${place ? "Second" : "First"}: ${name}`),
    side.header.summary && summaryView(side, "h3"),
    maps && exhibit(side, maps),
  );
}

/** What is chosen on one side is chosen on the other, where that has it. */
function linked(sides: [Context, Context], comparison: Comparison): void {
  const pairs = tokenPairs(sides, comparison);
  for (const [from, to, places] of [
    [sides[0], sides[1], new Map(pairs)],
    [sides[1], sides[0], new Map(pairs.map(([one, two]): [number, number] => [two, one]))],
  ] as const) {
    const [maps, others] = [from.header.maps, to.header.maps];
    from.store.watch([...LINKED], () => {
      const known = others?.modes.some((mode) => mode.key === from.store.now.mode);
      const change = Object.fromEntries(LINKED.map((key) => [key, from.store.now[key]])) as Partial<State>;
      to.store.set(known ? change : { ...change, mode: to.store.now.mode });
    });
    from.store.watch(["head"], () => {
      const head = maps?.heads[from.store.now.head];
      const place = others?.heads.findIndex((one) => one.site === head?.site && one.head === head.head) ?? -1;
      if (place >= 0) to.store.set({ head: place });
    });
    for (const key of ["query", "token"] as const)
      from.store.watch([key], () => {
        const place = places.get(from.store.now[key]);
        if (place !== undefined) to.store.set({ [key]: place });
      });
  }
}

/** Tokens that stand for the same word of both texts: the first of each. */
function tokenPairs(sides: [Context, Context], comparison: Comparison): [number, number][] {
  const [first, second] = sides.map((side) => wordsOf(side, side.header.summary?.sequence ?? Object.keys(side.header.sequences)[0]));
  if (!comparison.words.length) return first.map((one, place) => [one.places[0], second[place]?.places[0] ?? -1]);
  const pairs: [number, number][] = [];
  let [left, right] = [0, 0];
  for (const [one, two] of comparison.words) {
    if (one !== null && two !== null) pairs.push([first[left]?.places[0] ?? -1, second[right]?.places[0] ?? -1]);
    if (one !== null) left++;
    if (two !== null) right++;
  }
  return pairs.filter(([one, two]) => one >= 0 && two >= 0);
}

function answersView(comparison: Comparison): HTMLElement | null {
  if (!comparison.answers.length) return null;
  const bar = (share: number | null) =>
    h(
      "td",
      { class: "share" },
      share !== null && share >= 0 && share <= 1 && css(h("span", { class: "bar" }), { width: `${Math.max(60 * share, 0.5)}%` }),
      h("span", { class: "figure" }, share === null ? "–" : share >= 0 && share <= 1 ? percent(share) : number(share, true)),
    );
  return h(
    "table",
    { class: "answers" },
    h("thead", {}, h("tr", {}, ...["Answer", ...comparison.names, "difference"].map((name) => h("th", { scope: "col" }, name)))),
    h(
      "tbody",
      {},
      ...comparison.answers.map(([label, first, second]) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, label),
          bar(first),
          bar(second),
          tip(h("td", { class: "figure" }, first === null || second === null ? "–" : number(second - first, true)), "The share in the second answer less that in the first.", false),
        ),
      ),
    ),
  );
}

/** Both texts, word under word; what only one of them has, or what changed, is marked. */
function wordsView(context: Context, comparison: Comparison): HTMLElement {
  const scores = comparison.words.flatMap(([, , first, second]) => [first ?? 0, second ?? 0]);
  const limit = Math.max(...scores.map(Math.abs), FAINTEST_WORD);
  const line = h("div", { class: "aligned" });
  context.store.watch([], () => {
    const scale = new SignedScale(limit, context.isDark());
    const shade = (word: string | null, score: number | null, side: string) => {
      const element = h("span", { class: word === null ? "shade missing" : "shade" }, word ?? "·");
      const linear = ((score ?? 0) * Math.abs(score ?? 0)) / limit; // undoes the scale's root
      if (SignedScale.position(linear, limit)) css(element, { "background-color": scale.css(linear), color: scale.ink(linear) });
      return word === null ? element : tip(element, `“${word}” in the ${side}: ${number(score, true)}.`, false);
    };
    fill(
      line,
      ...comparison.words.map(([first, second, one, two]) =>
        h("span", { class: first === second ? "column" : "column changed" }, shade(first, one, "first"), shade(second, two, "second")),
      ),
    );
  });
  return h(
    "div",
    { class: "written" },
    h("h2", { class: "label" }, "Both texts, word under word"),
    line,
    caption("Above the first, below the second, both shaded on one scale by what the answer took from each word: orange for, blue against. Framed words differ."),
    exportsOf(context, {
      name: () => "words compared",
      rows: () => [["first", "second", "first score", "second score"], ...comparison.words.map((row): Cell[] => [row[0] ?? "", row[1] ?? "", row[2], row[3]])],
    }),
  );
}

/** The heads, those that changed most first; a row opens its head on both sides. */
function headsView(context: Context, comparison: Comparison, side: Context): HTMLElement {
  const changed = (place: number) => {
    const [, one, two, first, second] = comparison.heads[place];
    return Math.abs((second ?? 0) - (first ?? 0)) + (one === two ? 0 : 1e-6);
  };
  const order = comparison.heads.map((_, place) => place).sort((one, two) => changed(two) - changed(one));
  const sameTokens = comparison.moved.some((moved) => moved !== null);
  const columns = ["head", "first", "second", "first share", "second share", "difference", ...(sameTokens ? ["moved"] : [])];
  const helps = [
    "",
    "Verdict on the head in the first.",
    "Verdict on the head in the second.",
    "The head’s share of the margin in the first.",
    "The head’s share of the margin in the second.",
    "The second share less the first.",
    "How far its attention moved: half the sum of absolute differences of a row, mean over rows.",
  ];
  const rows = order.map((place): Cell[] => {
    const [name, one, two, first, second] = comparison.heads[place];
    const gap = first === null || second === null ? null : second - first;
    const moved = sameTokens ? [comparison.moved[place]] : [];
    return [name, one, one === two ? two : `→ ${two}`, first, second, gap, ...moved];
  });
  const choose = (row: number) => side.store.set({ head: order[row] });
  const { element } = sortable(context, "heads compared", columns, rows, helps, choose);
  return h(
    "section",
    { class: "heads changed-heads", "aria-label": "heads compared" },
    h("h2", {}, "Which heads changed"),
    caption("Those whose share of the margin changed most stand first. Choose a row to open the head in both."),
    element,
  );
}

/** The map of the chosen head in the second less that in the first, where both are of one shape. */
function difference(context: Context, sides: [Context, Context]): HTMLElement | null {
  const [first, second] = sides.map((side) => side.header.maps);
  if (!first || !second || !sameShape(first, second)) return null;
  const payload = new DifferencePayload(sides[0].header, sides[1].payload, second, sides[0].payload);
  const maps: Maps = {
    ...first,
    words: [],
    columns: [],
    questions: [],
    note: "The second less the first: orange where the second is larger, blue where it is smaller.",
    heads: first.heads.map(({ word: _, reason: __, answers: ___, ...head }) => ({ ...head, kept: {}, numbers: {} })),
  };
  const own: Context = { ...context, header: { ...sides[0].header, slider: undefined, scene: undefined, maps }, payload, store: sides[0].store };
  const view = matrixView(own, maps);
  own.store.watch(["head"], () => {
    const head = maps.heads[own.store.now.head];
    void payload.head(maps, head).then((grids) => {
      if (maps.heads[own.store.now.head] === head) view.show({ head, site: maps.sites[head.site], grids, slides: null });
    });
  });
  return h("section", { class: "difference", "aria-label": "the difference" }, h("h2", {}, "What moved between them"), view.element);
}

function sameShape(first: Maps, second: Maps): boolean {
  const shape = (maps: Maps) => JSON.stringify([maps.modes.map((mode) => mode.key), maps.sites.map((site) => [site.rows, site.columns, site.heads])]);
  return shape(first) === shape(second);
}

/** Gives of every head the difference of two pages. */
class DifferencePayload extends Payload {
  constructor(
    header: Header,
    private readonly second: Payload,
    private readonly secondMaps: Maps,
    private readonly first: Payload,
  ) {
    super(header, "");
  }

  override async head(_: Maps, head: Head): Promise<Grids> {
    const other = this.secondMaps.heads.find((one) => one.site === head.site && one.head === head.head)!;
    const own = this.header.maps!.heads.find((one) => one.site === head.site && one.head === head.head)!;
    const [one, two] = await Promise.all([this.first.head(this.header.maps!, own), this.second.head(this.secondMaps, other)]);
    return Object.fromEntries(
      Object.entries(one).map(([key, grid]) => [key, { ...grid, values: grid.values.map((value, at) => two[key].values[at] - value) }]),
    );
  }
}
