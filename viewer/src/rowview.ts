// One row of the chosen map: from one query to the keys it looks at, in reading order.

import { SignedScale } from "./colour";
import { type Context, type HeadView, modeOf, type Opened, shownOf, tokensOf } from "./context";
import { caption, fill, h, s } from "./dom";
import { type Cell, exportsOf } from "./files";
import { number, shorter, word } from "./format";
import { oncePerFrame } from "./frames";
import { gridOf, limitOf } from "./matrix";
import type { Maps } from "./model";

const HEIGHT = 132;
const LEFT = 34; // room for the first label, which leans out
const NARROWEST = 15; // CSS pixels a bar

export function rowView(context: Context, maps: Maps): HeadView {
  const { store } = context;
  let opened: Opened | null = null;
  const title = h("h3", {});
  const holder = h("div", { class: "bars" });
  const note = caption();
  let picture: SVGSVGElement | null = null;
  let rows: Cell[][] = [["key", "weight"]];

  const redraw = oncePerFrame(() => {
    if (!opened) return;
    const { mode, query, slide, ownScale, hover } = store.now;
    const { site } = opened;
    const grid = gridOf(opened, maps, mode, slide);
    const asked = Math.min(query, site.rows - 1);
    const row = grid.values.subarray(asked * grid.columns, (asked + 1) * grid.columns);
    const queries = tokensOf(context.header, site.queries, site.rows);
    const keys = tokensOf(context.header, site.keys, site.columns);
    const all = shownOf(context, site.keys, site.columns);
    const room = Math.max(holder.clientWidth, 240);
    const fitting = Math.floor((room - LEFT) / NARROWEST);
    const whole = slide > 0 && opened.slides?.rows.includes(asked);
    const bars = largest(all, row, whole ? fitting : Math.min(fitting, storedOf(maps, mode)));
    const limit = limitOf(opened, maps, mode, ownScale);
    const scale = new SignedScale(limit, context.isDark());
    const most = Math.max(...bars.map((key) => Math.abs(row[key])), 1e-12);
    const lowest = Math.min(0, ...bars.map((key) => row[key]));
    const base = lowest < 0 ? HEIGHT * 0.62 : HEIGHT - 6;
    const tall = (base - 16) / most;
    const step = Math.min((room - LEFT) / Math.max(bars.length, 1), 44);
    const own = opened.grids["raw"];
    const ghost = own && mode !== "attribution" && (mode !== "raw" || slide > 0);
    const drawing = s("svg", {
      width: room,
      height: HEIGHT + 62,
      viewBox: `0 0 ${room} ${HEIGHT + 62}`,
      role: "img",
      "aria-label": `weights from ${queries[asked]} to every key`,
    });
    drawing.append(s("line", { class: "axis", x1: LEFT, x2: room, y1: base, y2: base }));
    bars.forEach((key, place) => {
      const value = row[key];
      const x = LEFT + place * step;
      const size = Math.min(Math.abs(value) * tall, value < 0 ? HEIGHT - base : base - 14);
      drawing.append(
        s(
          "rect",
          {
            x: x + 1,
            y: value < 0 ? base : base - size,
            width: Math.max(step - 3, 1),
            height: Math.max(size, 0.5),
            fill: scale.css(Math.sign(value) * Math.max(Math.abs(value), limit * 0.06)),
            class: hover?.[1] === key && hover[0] === asked ? "bar hovered" : "bar",
          },
          s("title", {}, `${word(keys[key])} (${key}): ${number(value, true)}`),
        ),
      );
      if (ghost) {
        const y = base - Math.min(own.values[asked * own.columns + key] * tall, base - 2);
        drawing.append(s("line", { class: "ghost", x1: x, x2: x + step - 1, y1: y, y2: y }));
      }
      if (Math.abs(value) >= most * 0.999)
        drawing.append(
          s(
            "text",
            { class: "value", x: x + step / 2, y: value < 0 ? base - 4 : base - size - 4, "text-anchor": "middle" },
            number(value, true),
          ),
        );
      drawing.append(
        s(
          "text",
          {
            class: key === asked && site.queries === site.keys ? "key own" : "key",
            transform: `translate(${x + step / 2 + 3} ${HEIGHT + 10}) rotate(-52)`,
            "text-anchor": "end",
          },
          shorter(word(keys[key]), 10),
        ),
      );
    });
    fill(title, `${modeOf(maps, mode).name} from `, h("q", {}, word(queries[asked] ?? "")), ` (${asked})`);
    fill(holder, drawing);
    picture = drawing;
    rows = [["key", "weight"], ...all.map((key): Cell[] => [word(keys[key]), Number(row[key].toPrecision(5))])];
    const left = all.filter((key) => !bars.includes(key));
    const rest = left.reduce((sum, key) => sum + Math.abs(row[key]), 0);
    note.textContent = [
      left.length && `The ${bars.length} largest of ${all.length} keys; the others hold ${number(rest)} together.`,
      ghost && "Thin lines: the weights the model used.",
    ]
      .filter(Boolean)
      .join(" ");
  });

  store.watch(["mode", "query", "slide", "noSpecial", "ownScale", "hover"], redraw);
  new ResizeObserver(() => redraw()).observe(holder);
  return {
    element: h(
      "section",
      { class: "row-view", "aria-label": "one row" },
      title,
      holder,
      note,
      exportsOf(context, { name: () => "one row", rows: () => rows, drawing: () => picture }),
    ),
    show(fresh) {
      opened = fresh;
      redraw();
    },
  };
}

/** How many entries of a row are in the page. */
function storedOf(maps: Maps, mode: string): number {
  const stored = modeOf(maps, mode).minus?.[0] ?? mode;
  return maps.groups?.find((group) => group.modes.includes(stored))?.count ?? Infinity;
}

/** The places with the largest values, in their order. */
export function largest(places: number[], values: ArrayLike<number>, count: number): number[] {
  if (places.length <= count) return places;
  const ranked = [...places].sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]));
  return ranked.slice(0, count).sort((a, b) => a - b);
}
