// The same map as lines: who looks on the left, what is looked at on the right.

import { SignedScale } from "./colour";
import { type Context, type HeadView, matches, modeOf, nameOf, type Opened, shownOf, tokensOf } from "./context";
import { caption, fill, h, s, set } from "./dom";
import { type Cell, exportsOf } from "./files";
import { number, shorter, word } from "./format";
import { oncePerFrame } from "./frames";
import { type End, type Links, linksOf, type Strand, strandsOf, sums } from "./lines";
import { FORETELLS, gridOf, limitOf } from "./matrix";
import type { Maps } from "./model";
import { type Grid, shown } from "./payload";

const STEP = 19; // CSS pixels a token
const SIDE = 118; // for the tokens of a side
const WIDEST = 620;
const MOST = 900; // lines at once
const FAINTEST = 0.01; // of the scale; fainter links are no lines
const LOOKS = 12; // strengths that can be told apart
const NAMED = 5; // links that are told

export function lineView(context: Context, maps: Maps): HeadView {
  const { store, payload, header } = context;
  let opened: Opened | null = null;
  let grids: Grid[] = []; // of the heads that are drawn
  let places: [number[], number[]] = [[], []];
  let held: End | null = null; // chosen by click, touch or key
  let passing: End | null = null; // under the pointer
  let links: Links = { drawn: [], all: 0 };
  const tokens: Record<End["side"], Map<number, SVGGElement>> = { query: new Map(), key: new Map() };
  const strands = s("g", { class: "strands" });
  const drawing = s("svg", { role: "group", "aria-label": "lines from each token to those it looks at" }, strands);
  const holder = h("div", { class: "lines" }, drawing);
  const said = h("p", { class: "outcome", "aria-live": "polite" });
  const legend = h("ul", { class: "keys" });
  const section = h("section", { class: "line-view", "aria-label": "lines" });

  const names = (side: End["side"]) => {
    const { site } = opened!;
    return side === "query" ? tokensOf(header, site.queries, site.rows) : tokensOf(header, site.keys, site.columns);
  };

  /** The tokens of both sides, made anew where they are other ones. */
  function lay(): void {
    if (!opened) return;
    const { site } = opened;
    places = [shownOf(context, site.queries, site.rows), shownOf(context, site.keys, site.columns)];
    const width = Math.min(Math.max(holder.clientWidth - 4, 260), WIDEST);
    const height = STEP * Math.max(places[0].length, places[1].length) + 8;
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` }))
      drawing.setAttribute(name, String(value));
    tokens.query.clear();
    tokens.key.clear();
    for (const [side, list] of [["query", places[0]], ["key", places[1]]] as const) {
      const written = names(side);
      list.forEach((place, row) => tokens[side].set(place, tokenOf({ side, place }, word(written[place] ?? ""), row, width)));
    }
    drawing.replaceChildren(strands, ...tokens.query.values(), ...tokens.key.values());
    redraw();
  }

  function tokenOf(end: End, name: string, row: number, width: number): SVGGElement {
    const left = end.side === "query";
    const x = left ? 0 : width - SIDE;
    return s(
      "g",
      {
        class: "end",
        role: "button",
        tabindex: -1,
        "aria-label": `${name}, position ${end.place}, ${left ? "looks" : "looked at"}`,
        "data-side": end.side,
        "data-place": end.place,
      },
      s("rect", { x, y: row * STEP + 4, width: SIDE, height: STEP - 2, rx: 3, fill: "transparent" }),
      s("text", { class: "name", x: left ? SIDE - 6 : x + 6, y: row * STEP + 17, "text-anchor": left ? "end" : "start" }, shorter(name, 16)),
    );
  }

  const at = (side: End["side"], place: number) => 4 + STEP * ((side === "query" ? places[0] : places[1]).indexOf(place) + 0.5);

  const redraw = oncePerFrame(() => {
    if (!opened || !grids.length) return;
    const { mode, ownScale } = store.now;
    const limit = limitOf(opened, maps, mode, ownScale);
    const scale = new SignedScale(limit, context.isDark());
    const end = passing ?? held;
    links = linksOf(grids, places, end, MOST, FAINTEST * scale.limit);
    const width = Number(drawing.getAttribute("width"));
    const rows = places.map((list) => new Map(list.map((place, row) => [place, 4 + STEP * (row + 0.5)])));
    const line = (query: number, key: number) => `M${SIDE} ${rows[0].get(query)}L${width - SIDE} ${rows[1].get(key)}`;
    const path = ({ kind, strength, links }: Strand) =>
      s("path", {
        class: kind,
        d: links.map((link) => line(link.query, link.key)).join(""),
        "stroke-opacity": (0.08 + 0.87 * Math.sqrt(strength)).toFixed(3),
        "stroke-width": (0.6 + 2.4 * strength).toFixed(2),
      });
    const kindOf = (link: Links["drawn"][0]) =>
      grids.length > 1 ? `strand tone s${link.head % 8}` : link.value < 0 ? "strand against" : "strand";
    const strongest = Math.max(Math.abs(links.drawn[0]?.value ?? 0), scale.limit * 0.05);
    fill(strands, ...strandsOf(links.drawn, kindOf, strongest, LOOKS).map(path));
    shade(end, scale);
    tell(end);
    section.dataset.lines = String(links.drawn.length);
    section.dataset.all = String(links.all);
    section.dataset.end = end ? `${end.side} ${end.place}` : "";
  });

  function shade(end: End | null, scale: SignedScale): void {
    const other = end?.side === "query" ? "key" : "query";
    const weights = end ? sums(links.drawn, end, names(other).length, grids.length) : null;
    const found = { query: matches(context, opened!.site.queries), key: matches(context, opened!.site.keys) };
    const first = held ?? { side: "query", place: Math.min(store.now.query, opened!.site.rows - 1) };
    for (const side of ["query", "key"] as const)
      tokens[side].forEach((token, place) => {
        const value = weights && side === other ? weights[place] : 0;
        const chosen = end?.side === side && end.place === place;
        const painted = SignedScale.position(value, scale.limit) !== 0;
        set(token, "class", `end${chosen ? " chosen" : ""}${found[side].has(place) ? " found" : ""}`);
        set(token, "tabindex", side === first.side && place === first.place ? "0" : "-1");
        set(token, "aria-pressed", String(held?.side === side && held.place === place));
        set(token.firstElementChild!, "fill", painted ? scale.css(value) : "transparent");
        set(token.lastElementChild!, "fill", painted ? scale.ink(value) : "currentColor");
      });
  }

  function tell(end: End | null): void {
    const what = modeOf(maps, store.now.mode).name;
    if (!end) {
      const count = links.drawn.length < links.all ? `The ${links.drawn.length} strongest of ${links.all} lines` : `All ${links.all} lines`;
      fill(said, `${count} of ${what.toLowerCase()} above 1 % of the scale; fainter ones are not drawn. Choose a token to see its own.`);
      return;
    }
    const other = end.side === "query" ? "key" : "query";
    const best = links.drawn.slice(0, NAMED).map((link) => `${word(names(other)[link[other]])} ${number(link.value, true)}`);
    fill(
      said,
      h("q", {}, word(names(end.side)[end.place])),
      end.side === "query" ? " looks at: " : " is looked at by: ",
      best.length ? best.join(", ") : "nothing that counts",
      ".",
    );
  }

  function load(): void {
    if (!opened) return;
    const asked = opened;
    const { mode, slide, wholeLayer } = store.now;
    const layer = maps.heads.filter((head) => head.site === asked.head.site);
    const alone = !wholeLayer || layer.length < 2;
    fill(legend, ...(alone ? [] : layer.map((head, place) => h("li", {}, h("span", { class: `stroke s${place % 8}` }), `head ${head.head}`))));
    if (alone) {
      grids = [gridOf(asked, maps, mode, slide)];
      redraw();
      return;
    }
    void Promise.all(layer.map(async (head) => shown(await payload.head(maps, head), maps, mode))).then((all) => {
      if (opened !== asked || !store.now.wholeLayer) return; // the reader has gone on
      grids = all;
      redraw();
    });
  }

  function hold(end: End | null): void {
    held = end;
    if (end?.side === "query") store.set({ query: end.place });
    redraw();
  }

  const endOf = (event: Event): End | null => {
    const token = (event.target as Element).closest<SVGGElement>(".end");
    return token && { side: token.dataset.side as End["side"], place: Number(token.dataset.place) };
  };
  drawing.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    passing = endOf(event);
    redraw();
  });
  drawing.addEventListener("pointerleave", () => {
    passing = null;
    redraw();
  });
  drawing.addEventListener("click", (event) => {
    const end = endOf(event);
    const again = end && held?.side === end.side && held.place === end.place;
    passing = null;
    hold(again ? null : end);
  });
  drawing.addEventListener("keydown", (event) => {
    const end = endOf(event);
    if (!end) return;
    const list = end.side === "query" ? places[0] : places[1];
    const other = end.side === "query" ? places[1] : places[0];
    const row = list.indexOf(end.place);
    const next: Record<string, End | null | undefined> = {
      ArrowDown: { side: end.side, place: list[Math.min(row + 1, list.length - 1)] },
      ArrowUp: { side: end.side, place: list[Math.max(row - 1, 0)] },
      ArrowRight: { side: "key", place: end.side === "key" ? end.place : other[Math.min(row, other.length - 1)] },
      ArrowLeft: { side: "query", place: end.side === "query" ? end.place : other[Math.min(row, other.length - 1)] },
      Enter: end,
      " ": end,
      Escape: null,
    };
    if (!(event.key in next)) return;
    event.preventDefault();
    event.stopPropagation();
    const chosen = next[event.key] ?? null;
    hold(chosen);
    if (chosen) tokens[chosen.side].get(chosen.place)?.focus();
  });

  const choice = h(
    "div",
    { class: "segmented", role: "radiogroup", "aria-label": "whose lines" },
    ...([["this head", false], ["whole layer", true]] as const).map(([name, whole]) =>
      h("button", { type: "button", role: "radio", "data-whole": String(whole), on: { click: () => store.set({ wholeLayer: whole }) } }, name),
    ),
  );
  store.watch(["wholeLayer"], () => {
    for (const button of choice.children)
      button.setAttribute("aria-checked", String((button as HTMLElement).dataset.whole === String(store.now.wholeLayer)));
  });
  store.watch(["mode", "slide", "wholeLayer", "ownScale"], load);
  store.watch(["noSpecial"], lay);
  store.watch(["find", "match"], () => {
    if (!opened || !store.now.find) return redraw();
    const [first] = [...matches(context, opened.site.queries)].slice(store.now.match);
    const place = first ?? [...matches(context, opened.site.keys)][store.now.match];
    if (place === undefined) return redraw();
    held = { side: first === undefined ? "key" : "query", place };
    holder.scrollTop = at(held.side, place) - holder.clientHeight / 2;
    redraw();
  });
  store.watch(["query"], () => {
    if (!opened || (held?.side === "query" && held.place === store.now.query)) return;
    if (held) held = { side: "query", place: store.now.query };
    redraw();
  });
  let width = 0;
  new ResizeObserver(() => {
    if (holder.clientWidth === width) return;
    width = holder.clientWidth;
    lay();
  }).observe(holder);

  section.append(
    h("h3", {}, "The same as lines"),
    caption("Left: the words that look. Right: those that are looked at. A stronger line is a larger weight; orange for, blue against."),
    ...(maps.sites.some((site) => site.foretells) ? [caption(FORETELLS)] : []),
    h("div", { class: "options" }, choice, h("button", { type: "button", class: "quiet all", on: { click: () => hold(null) } }, "All lines")),
    legend,
    holder,
    said,
    exportsOf(context, {
      name: () => `${nameOf(opened!.site, opened!.head)} ${store.now.mode} lines`,
      rows: () => [
        ["head", "from", "to", "weight"],
        ...links.drawn.map((link): Cell[] => [
          grids.length > 1 ? link.head : opened!.head.head,
          word(names("query")[link.query]),
          word(names("key")[link.key]),
          Number(link.value.toPrecision(5)),
        ]),
      ],
      drawing: () => drawing,
    }),
  );
  return {
    element: section,
    show(fresh) {
      const same = opened?.site.queries === fresh.site.queries && opened.site.keys === fresh.site.keys && opened.site.rows === fresh.site.rows;
      opened = fresh;
      if (!same) held = null;
      if (!same) lay();
      load();
    },
  };
}
