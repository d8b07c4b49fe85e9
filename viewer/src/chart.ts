// Lines, dots and bars over one axis, of numbers or of names, with a rule where something changes.

import type { Context } from "./context";
import { caption, fill, h, s } from "./dom";
import { type Cell, exportsOf } from "./files";
import { number } from "./format";
import { latexChart } from "./latex";
import type { Chart } from "./model";

const HEIGHT = 260;
const NAME_WIDTH = 72; // pixels that a name takes below the axis
const LETTERS = 12; // of such a name
const GROUP = 0.8; // of the room between two names that their bars take
const EDGE = { left: 52, right: 16, top: 18, bottom: 40 };

export function chartView(context: Context, chart: Chart): HTMLElement {
  const holder = h("div", { class: "drawing" });
  let drawing: SVGSVGElement | null = null;
  const redraw = () => {
    drawing = drawn(chart, Math.max(holder.clientWidth, 280));
    fill(holder, drawing);
  };
  new ResizeObserver(redraw).observe(holder);
  const rows = (): Cell[][] => [
    ["series", chart.x, chart.y],
    ...chart.series.flatMap((one) => one.points.map(([x, y]): Cell[] => [one.name, chart.names[x] ?? x, y])),
  ];
  return h(
    "section",
    { class: "chart", "aria-label": chart.title },
    h("h2", {}, chart.title),
    caption(chart.caption),
    holder,
    h(
      "ul",
      { class: "keys" },
      ...chart.series.slice(0, 16).map((one, place) =>
        h("li", {}, h("span", { class: `stroke s${place % 8}${one.dashed ? " dashed" : ""}` }), one.name),
      ),
    ),
    exportsOf(context, {
      name: () => chart.title,
      rows,
      latex: () => latexChart(chart.x, chart.y, chart.series),
      drawing: () => drawing,
    }),
  );
}

function drawn(chart: Chart, width: number): SVGSVGElement {
  const points = chart.series.flatMap((one) => [
    ...one.points,
    ...(one.band ?? []).flatMap(([low, high], i) => [
      [one.points[i][0], low],
      [one.points[i][0], high],
    ]),
  ]);
  const at = (level: boolean) => chart.lines.filter((line) => (line.level ?? false) === level).map((line) => line.at);
  const named = chart.names.length > 0;
  const xs = [...points.map(([x]) => x), ...at(false), ...(named ? [-0.6, chart.names.length - 0.4] : [])];
  const ys = [...points.map(([, y]) => y), ...at(true)];
  const [x0, x1] = span(Math.min(...xs), Math.max(...xs));
  const [y0, y1] = span(Math.min(0, ...ys), Math.max(...ys));
  const x = (value: number) => EDGE.left + ((value - x0) / (x1 - x0)) * (width - EDGE.left - EDGE.right);
  const y = (value: number) => HEIGHT - EDGE.bottom - ((value - y0) / (y1 - y0)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const picture = s("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": chart.title });
  for (const tick of ticks(y0, y1))
    picture.append(
      s("line", { class: "rule", x1: EDGE.left, x2: width - EDGE.right, y1: y(tick), y2: y(tick) }),
      s("text", { class: "level", x: EDGE.left - 8, y: y(tick) + 4, "text-anchor": "end" }, number(tick)),
    );
  const every = Math.ceil((chart.names.length * NAME_WIDTH) / width) || 1;
  for (const tick of named ? chart.names.keys() : ticks(x0, x1))
    if (!named || tick % every === 0)
      picture.append(
        s(
          "text",
          { class: "level", x: x(tick), y: HEIGHT - EDGE.bottom + 16, "text-anchor": "middle" },
          named ? shortened(chart.names[tick]) : number(tick),
        ),
      );
  picture.append(
    s("text", { class: "level", x: width - EDGE.right, y: HEIGHT - 6, "text-anchor": "end" }, chart.x && `${chart.x} →`),
    s("text", { class: "level", x: 0, y: 11 }, `↑ ${chart.y}`),
  );
  for (const { at, name, level } of chart.lines)
    picture.append(
      level
        ? s("line", { class: "mark", x1: EDGE.left, x2: width - EDGE.right, y1: y(at), y2: y(at) })
        : s("line", { class: "mark", x1: x(at), x2: x(at), y1: EDGE.top, y2: HEIGHT - EDGE.bottom }),
      s("text", { class: "mark-name", x: (level ? EDGE.left : x(at)) + 5, y: (level ? y(at) - 14 : EDGE.top) + 10 }, name),
    );
  const bars = chart.series.filter((one) => one.mark === "bars" && !one.band);
  const breadth = x(GROUP / Math.max(bars.length, 1)) - x(0);
  chart.series.forEach((one, place) => {
    const tone = `s${place % 8}`;
    const says = (at: number, value: number) => s("title", {}, `${one.name}: ${chart.names[at] ?? number(at)}, ${number(value)}`);
    if (one.mark === "bars") {
      one.points.forEach(([at, value], i) => {
        const [low, high] = one.band?.[i] ?? [Math.min(0, value), Math.max(0, value)];
        const left = one.band ? x(at - GROUP / 2) : x(at) + (bars.indexOf(one) - bars.length / 2) * breadth;
        const side = one.band ? x(GROUP) - x(0) : breadth;
        picture.append(s("rect", { class: `column ${tone}`, x: left, y: y(high), width: side, height: Math.max(y(low) - y(high), 0.5) }, says(at, value)));
      });
      return;
    }
    const scattered = one.mark === "dots" || one.mark === "levels" || one.mark === "boxes";
    if (one.band && scattered)
      one.points.forEach(([at], i) =>
        picture.append(s("line", { class: `line ${tone}`, x1: x(at), x2: x(at), y1: y(one.band![i][0]), y2: y(one.band![i][1]) })),
      );
    else if (one.band) {
      const upper = one.points.map(([at], i) => `${x(at)} ${y(one.band![i][1])}`);
      const lower = one.points.map(([at], i) => `${x(at)} ${y(one.band![i][0])}`).reverse();
      picture.append(s("path", { class: `band ${tone}`, d: `M${[...upper, ...lower].join("L")}Z` }));
    }
    const path = one.points.map(([at, value]) => `${x(at)} ${y(value)}`).join("L");
    if (!scattered) picture.append(s("path", { class: `line ${tone}${one.dashed ? " dashed" : ""}`, d: `M${path}` }));
    for (const [at, value] of one.dashed ? [] : one.points)
      picture.append(
        one.mark === "levels"
          ? s("line", { class: `line ${tone}`, x1: x(at) - 9, x2: x(at) + 9, y1: y(value), y2: y(value) }, says(at, value))
          : s("circle", { class: `dot ${tone}`, cx: x(at), cy: y(value), r: 3 }, says(at, value)),
      );
  });
  return picture;
}

function shortened(name: string): string {
  return name.length > LETTERS ? `${name.slice(0, LETTERS - 1)}…` : name;
}

function span(low: number, high: number): [number, number] {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const room = 0.04 * (high - low || 1);
  return [low === 0 ? 0 : low - room, high + room];
}

export function ticks(low: number, high: number): number[] {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough)!;
  const first = Math.ceil(low / step);
  const count = Math.floor(high / step) - first + 1;
  return Array.from({ length: count }, (_, i) => Number(((first + i) * step).toPrecision(6)));
}
