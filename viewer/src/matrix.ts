// One head: its map in four lights, on one locked and signed scale.

import { SignedScale } from "./colour";
import {
  type Context,
  type HeadView,
  matches,
  modeOf,
  nameOf,
  type Opened,
  shownOf,
  tokensOf,
} from "./context";
import { css, fill, h, s } from "./dom";
import { cellAt, draw, type Ink, labelled, pixels, type Plan, planned } from "./drawing";
import { exportsOf } from "./files";
import { findBox } from "./find";
import { brief, number, percent, word, yesOrNo } from "./format";
import type { Column, Head, Maps } from "./model";
import { oncePerFrame } from "./frames";
import { latexMap, latexTable } from "./latex";
import { type Grid, shown } from "./payload";
import { tip } from "./tips";

const MOST_SHAPES = 10_000; // beyond, a saved SVG holds one picture instead of squares
const MOST_PLOTTED = 1_600; // entries that pgfplots draws in good time
const TALLEST = 620; // CSS pixels of a zoomed map
const ZOOMS = [0, 6, 12, 18, 24, 32]; // CSS pixels a cell; 0: all of it
export const FORETELLS = "A row is named by the word that was just read: what it looks at serves the word after it.";

/** Whether a column is one end of another column's interval. */
export function isBound(column: Column): boolean {
  return /_(low|high)$/.test(column.key);
}

function interval(head: Head, column: Column): string {
  const [low, high] = ["low", "high"].map((end) => head.numbers[`${column.key}_${end}`]);
  return low === undefined || low === null ? "" : ` (${number(low)} to ${number(high)})`;
}

export function inkOf(element: Element): Ink {
  const style = getComputedStyle(element);
  const read = (name: string) => style.getPropertyValue(name).trim();
  return { text: read("--ink"), faint: read("--line-strong"), accent: read("--accent"), paper: read("--paper") };
}

/** The map that is looked at: a mode of the head, with the slider where it stands. */
export function gridOf(opened: Opened, maps: Maps, key: string, slide: number): Grid {
  const moved = opened.slides && slide > 0 && opened.grids["raw"];
  if (!moved) return shown(opened.grids, maps, key);
  const raw = { value: opened.slides!.moved(opened.grids["raw"], slide) };
  return shown(Object.create(opened.grids, { raw }), maps, key); // a copy would make every map
}

export function limitOf(opened: Opened, maps: Maps, key: string, own: boolean): number {
  const mode = modeOf(maps, key);
  if (!own) return mode.limit;
  const sharing = maps.modes.filter((one) => one.limit === mode.limit).map((one) => one.key);
  return Math.max(...sharing.map((one) => opened.head.scales[one] ?? 0)) || mode.limit;
}

export function matrixView(context: Context, maps: Maps): HeadView {
  const { store } = context;
  let opened: Opened | null = null;
  let plan: Plan | null = null;
  let grid: Grid | null = null;

  const title = h("h2", { class: "head-name", "aria-live": "polite" });
  const facts = h("p", { class: "facts" });
  const canvas = h("canvas", { role: "img", tabindex: 0 });
  const sizer = h("div", { class: "sizer" }, canvas);
  const frame = h("div", { class: "frame", on: { scroll: () => redraw() } }, sizer);
  const readout = h("p", { class: "readout", "aria-live": "off" });
  const caption = h("p", { class: "caption" });
  const legend = h("div", { class: "legend" });
  const note = h("p", { class: "caption" }, maps.note);

  const names = (): [string[], string[]] => [
    tokensOf(context.header, opened!.site.queries, opened!.site.rows),
    tokensOf(context.header, opened!.site.keys, opened!.site.columns),
  ];

  const redraw = oncePerFrame(() => {
    if (!opened) return;
    const { mode, slide, ownScale, query, hover } = store.now;
    grid = gridOf(opened, maps, mode, slide);
    const rows = shownOf(context, opened.site.queries, opened.site.rows);
    const columns = shownOf(context, opened.site.keys, opened.site.columns);
    plan = planned(Math.max(frame.clientWidth, 240), rows, columns, names(), { zoom: store.now.zoom, tallest: TALLEST });
    css(sizer, { width: `${plan.whole[0]}px`, height: `${plan.whole[1]}px` });
    css(frame, { height: `${plan.height + 2}px` });
    const limit = limitOf(opened, maps, mode, ownScale);
    const scale = new SignedScale(limit, context.isDark());
    const found: [Set<number>, Set<number>] = [matches(context, opened.site.queries), matches(context, opened.site.keys)];
    draw(canvas, plan, grid, scale, names(), inkOf(frame), { query, hover, found, scrolled: scrolled() });
    canvas.dataset.shown = `${opened.site.name} ${opened.head.head} ${mode}`;
    tell();
  });

  const scrolled = (): [number, number] => [frame.scrollLeft, frame.scrollTop];

  /** Bring a position into sight: as a row, and as a column where both axes are of one text. */
  function seek(position: number): void {
    if (!opened || !plan) return;
    const middle = (places: number[], room: number) => (places.indexOf(position) + 0.5) * plan!.cell - room / 2;
    const found = matches(context, opened.site.queries);
    const isRow = !found.size || found.has(position);
    if (isRow) frame.scrollTop = middle(plan.rows, plan.height - plan.top);
    if (!isRow || opened.site.queries === opened.site.keys) frame.scrollLeft = middle(plan.columns, plan.width - plan.left);
  }

  function zoomed(step: number): void {
    if (!plan) return;
    const before = plan.cell;
    const sizes = step > 0 ? ZOOMS.filter((size) => size > before + 0.5) : ZOOMS.filter((size) => size < before - 0.5);
    const zoom = step > 0 ? (sizes[0] ?? store.now.zoom) : (sizes.at(-1) ?? 0);
    const fit = planned(Math.max(frame.clientWidth, 240), plan.rows, plan.columns, names()).cell;
    store.set({ zoom: zoom <= fit ? 0 : zoom });
  }

  function tell(): void {
    if (!opened || !grid) return;
    const { mode, hover, query, slide } = store.now;
    const [queries, keys] = names();
    const said = modeOf(maps, mode);
    canvas.setAttribute(
      "aria-label",
      `${said.name} of ${nameOf(opened.site, opened.head)}: ${grid.rows} queries by ${grid.columns} keys`,
    );
    if (!hover) {
      readout.textContent = `Point at a cell for its number; choose a row to read it below. Row: “${word(queries[query] ?? "")}”.`;
      return;
    }
    const value = grid.values[hover[0] * grid.columns + hover[1]];
    const parts = said.minus ?? [said.key];
    const step = parts.reduce((sum, key) => sum + (opened!.head.scales[key] ?? 0), 0);
    const doubt = maps.bits === 16 ? step / 65534 : step / 254;
    fill(
      readout,
      h("b", {}, word(queries[hover[0]])),
      " → ",
      h("b", {}, word(keys[hover[1]])),
      ` (${hover[0]} → ${hover[1]}): `,
      h("b", { class: "figure" }, number(value, said.signed)),
      ` ± ${number(doubt)} from storage`,
      slide > 0 && opened.slides && ", slider moved",
    );
  }

  function drawLegend(): void {
    if (!opened) return;
    const { mode, ownScale } = store.now;
    const limit = limitOf(opened, maps, mode, ownScale);
    const scale = new SignedScale(limit, context.isDark());
    const bar = h("canvas", { width: 256, height: 1, class: "ramp", "aria-hidden": "true" });
    const pen = bar.getContext("2d")!;
    for (let x = 0; x < 256; x++) {
      const place = (2 * x) / 255 - 1;
      pen.fillStyle = scale.css(Math.sign(place) * place * place * limit);
      pen.fillRect(x, 0, 1, 1);
    }
    const ticks = [-1, -0.5, 0, 0.5, 1].map((place) =>
      css(h("span", {}, brief(Math.sign(place) * place * place * limit)), {
        left: `${50 * (place + 1)}%`,
      }),
    );
    fill(
      legend,
      bar,
      h("div", { class: "ticks" }, ...ticks),
      h(
        "p",
        { class: "caption" },
        `Root scale, zero in the middle, locked ${ownScale ? "for this head" : "across all heads"}.`,
      ),
    );
  }

  function describe(): void {
    if (!opened) return;
    const { head, site } = opened;
    fill(
      title,
      nameOf(site, head),
      head.word && h("span", { class: "verdict", "data-word": head.word }, head.word),
    );
    fill(
      facts,
      head.reason && h("span", { class: "reason" }, head.reason),
      ...maps.columns
        .filter((column) => !isBound(column))
        .map((column) =>
          h(
            "span",
            { class: "fact" },
            `${column.name} `,
            tip(h("b", { class: "figure" }, number(head.numbers[column.key])), column.help),
            interval(head, column),
          ),
        ),
      ...maps.questions.map((one) =>
        h("span", { class: "fact" }, `${one.name} `, tip(h("b", {}, yesOrNo(head.answers?.[one.key] ?? null)), one.help)),
      ),
    );
    const mode = modeOf(maps, store.now.mode);
    const kept = head.kept[mode.minus?.[0] ?? mode.key];
    const { slide } = store.now;
    const moved = slide > 0 && opened.slides && [mode.key, ...(mode.minus ?? [])].includes("raw");
    fill(
      caption,
      moved
        ? `Not what the model used: ${percent(slide)} of the way from its weights to other valid ones with the same output.`
        : mode.caption,
      site.foretells && ` ${FORETELLS}`,
      kept !== undefined && kept < 0.9995 && ` Kept here: ${percent(kept)} of the absolute weight.`,
    );
  }

  const modes = h(
    "div",
    { class: "segmented", role: "radiogroup", "aria-label": "what the map shows" },
    ...maps.modes.map((mode, place) =>
      h(
        "button",
        {
          type: "button",
          role: "radio",
          "data-mode": mode.key,
          title: `${mode.caption} (key ${place + 1})`,
          on: { click: () => store.set({ mode: mode.key }) },
        },
        mode.name,
      ),
    ),
  );
  store.watch(["mode"], () => {
    for (const button of modes.children)
      button.setAttribute("aria-checked", String((button as HTMLElement).dataset.mode === store.now.mode));
    describe();
    drawLegend();
  });
  store.watch(["mode", "slide", "noSpecial", "ownScale", "query", "hover", "find", "zoom"], redraw);
  store.watch(["zoom"], () => requestAnimationFrame(() => requestAnimationFrame(() => seek(store.now.query))));
  store.watch(["find", "match"], () => {
    if (!opened || !store.now.find) return;
    const found = matches(context, opened.site.queries);
    const place = [...(found.size ? found : matches(context, opened.site.keys))][store.now.match];
    if (place !== undefined) seek(place);
  });
  store.watch(["ownScale"], drawLegend);
  store.watch(["slide"], describe);

  canvas.addEventListener("pointermove", (event) => {
    const cell = plan && cellAt(plan, event.offsetX, event.offsetY, scrolled());
    const before = store.now.hover;
    if (cell?.[0] !== before?.[0] || cell?.[1] !== before?.[1]) store.set({ hover: cell });
  });
  canvas.addEventListener("pointerleave", () => store.set({ hover: null }));
  canvas.addEventListener("click", (event) => {
    const cell = plan && cellAt(plan, event.offsetX, event.offsetY, scrolled());
    if (cell) store.set({ query: cell[0] });
  });
  new ResizeObserver(() => redraw()).observe(frame);

  const check = (name: string, key: "noSpecial" | "ownScale") => {
    const box = h("input", {
      type: "checkbox",
      on: { change: () => store.set({ [key]: box.checked }) },
    });
    store.watch([key], () => (box.checked = store.now[key]));
    return h("label", { class: "check" }, box, ` ${name}`);
  };
  const zoomButton = (name: string, sign: string, run: () => void) =>
    h("button", { type: "button", class: "quiet step", "aria-label": name, on: { click: run } }, sign);
  const special = Object.values(context.header.sequences).some((one) => one.special.some(Boolean));
  const element = h(
    "section",
    { class: "head", "aria-label": "one head" },
    title,
    facts,
    h(
      "div",
      { class: "controls" },
      h(
        "div",
        {},
        modes,
        h(
          "div",
          { class: "options" },
          special && check("hide special tokens", "noSpecial"),
          maps.heads.length > 1 && check("scale of this head alone", "ownScale"),
        ),
      ),
      legend,
    ),
    caption,
    h(
      "div",
      { class: "options" },
      findBox(context, () => opened),
      h(
        "span",
        { class: "zoom", role: "group", "aria-label": "size of the map" },
        zoomButton("smaller", "−", () => zoomed(-1)),
        zoomButton("larger", "+", () => zoomed(1)),
        zoomButton("fit all of it", "fit", () => store.set({ zoom: 0 })),
      ),
    ),
    frame,
    readout,
    note,
    exportsOf(context, {
      name: () => `${nameOf(opened!.site, opened!.head)} ${store.now.mode}`,
      rows: () => table(grid!, plan!, names()),
      latex: () => latexOf(table(grid!, plan!, names())),
      drawing: () => drawn(grid!),
      canvas,
    }),
  );

  const latexOf = (rows: (string | number)[][]) =>
    plan!.rows.length * plan!.columns.length > MOST_PLOTTED
      ? latexTable(rows)
      : latexMap(rows, limitOf(opened!, maps, store.now.mode, store.now.ownScale));

  /** All of the map, however much of it is in sight. */
  function drawn(map: Grid): SVGSVGElement {
    const limit = limitOf(opened!, maps, store.now.mode, store.now.ownScale);
    const [width, height] = plan!.whole;
    const box = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
    box.append(...shapes(map, plan!, new SignedScale(limit, context.isDark()), names()));
    return box;
  }

  return {
    element,
    show(fresh) {
      opened = fresh;
      describe();
      drawLegend();
      redraw();
    },
  };
}

function table(grid: Grid, plan: Plan, names: [string[], string[]]): (string | number)[][] {
  const head = ["query \\ key", ...plan.columns.map((key) => names[1][key])];
  const rows = plan.rows.map((query) => [
    names[0][query],
    ...plan.columns.map((key) => Number(grid.values[query * grid.columns + key].toPrecision(5))),
  ]);
  return [head, ...rows];
}

function shapes(grid: Grid, plan: Plan, scale: SignedScale, names: [string[], string[]]): SVGElement[] {
  const { cell, rows, columns } = plan;
  const size = Math.min(12, Math.max(9, cell * 0.62));
  const no = () => false;
  return [
    ...(rows.length * columns.length > MOST_SHAPES ? [painted(grid, plan, scale)] : squares(grid, plan, scale)),
    ...labelled(rows, cell, no).map((row) => {
      const y = plan.top + (row + 0.7) * cell;
      return s("text", { x: plan.left - 6, y, "text-anchor": "end", "font-size": size }, word(names[0][rows[row]]));
    }),
    ...labelled(columns, cell, no).map((column) => {
      const turn = `translate(${plan.left + (column + 0.7) * cell} ${plan.top - 6}) rotate(-90)`;
      return s("text", { transform: turn, "font-size": size }, word(names[1][columns[column]]));
    }),
  ];
}

function painted(grid: Grid, plan: Plan, scale: SignedScale): SVGElement {
  const href = pixels(grid, plan, scale).toDataURL("image/png");
  const [width, height] = [plan.cell * plan.columns.length, plan.cell * plan.rows.length];
  return s("image", { href, x: plan.left, y: plan.top, width, height });
}

function squares(grid: Grid, plan: Plan, scale: SignedScale): SVGElement[] {
  const { cell } = plan;
  return plan.rows.flatMap((query, row) =>
    plan.columns.flatMap((key, column) => {
      const value = grid.values[query * grid.columns + key];
      if (Math.abs(SignedScale.position(value, scale.limit)) < 1 / 255) return [];
      const [x, y] = [plan.left + column * cell, plan.top + row * cell];
      return [s("rect", { x, y, width: cell, height: cell, fill: scale.css(value) })];
    }),
  );
}
