// One head: its map in four lights, on one locked and signed scale.

import { SignedScale } from "./colour";
import {
  type Context,
  type HeadView,
  modeOf,
  nameOf,
  type Opened,
  shownOf,
  tokensOf,
} from "./context";
import { css, fill, h, s } from "./dom";
import { cellAt, draw, type Ink, pixels, type Plan, planned } from "./drawing";
import { copy, csv, savePng, saveSvg } from "./files";
import { brief, number, percent, word, yesOrNo } from "./format";
import type { Column, Head, Maps } from "./model";
import { oncePerFrame } from "./frames";
import { type Grid, shown } from "./payload";

const MOST_SHAPES = 10_000; // beyond, a saved SVG holds one picture instead of squares

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
  return { text: read("--ink"), faint: read("--line-strong"), accent: read("--accent") };
}

/** The map that is looked at: a mode of the head, with the slider where it stands. */
export function gridOf(opened: Opened, maps: Maps, key: string, slide: number): Grid {
  const moved = opened.slides && slide > 0 && opened.grids["raw"];
  if (!moved) return shown(opened.grids, maps, key);
  const raw = opened.slides!.moved(opened.grids["raw"], slide);
  return shown({ ...opened.grids, raw }, maps, key);
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
  const frame = h("div", { class: "frame" }, canvas);
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
    plan = planned(Math.max(frame.clientWidth, 240), rows, columns, names());
    const limit = limitOf(opened, maps, mode, ownScale);
    const scale = new SignedScale(limit, context.isDark());
    draw(canvas, plan, grid, scale, names(), inkOf(frame), { query, hover });
    canvas.dataset.shown = `${opened.site.name} ${opened.head.head} ${mode}`;
    tell();
  });

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
            { class: "fact", title: column.help },
            `${column.name} `,
            h("b", { class: "figure" }, number(head.numbers[column.key])),
            interval(head, column),
          ),
        ),
      ...Object.entries(head.answers ?? {}).map(([name, answer]) =>
        h("span", { class: "fact" }, `${name} `, h("b", {}, yesOrNo(answer))),
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
  store.watch(["mode", "slide", "noSpecial", "ownScale", "query", "hover"], redraw);
  store.watch(["ownScale"], drawLegend);
  store.watch(["slide"], describe);

  canvas.addEventListener("pointermove", (event) => {
    const cell = plan && cellAt(plan, event.offsetX, event.offsetY);
    const before = store.now.hover;
    if (cell?.[0] !== before?.[0] || cell?.[1] !== before?.[1]) store.set({ hover: cell });
  });
  canvas.addEventListener("pointerleave", () => store.set({ hover: null }));
  canvas.addEventListener("click", (event) => {
    const cell = plan && cellAt(plan, event.offsetX, event.offsetY);
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
  const fileName = () => `${nameOf(opened!.site, opened!.head)} ${store.now.mode}`.replace(/[^\w-]+/g, "-");
  const special = Object.values(context.header.sequences).some((one) => one.special.some(Boolean));
  const button = (name: string, run: () => void) =>
    h("button", { type: "button", class: "quiet", on: { click: run } }, name);
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
    frame,
    readout,
    note,
    h(
      "div",
      { class: "exports" },
      button("Copy CSV", () => grid && void copy(context, csv(table(grid, plan!, names())))),
      button("Save SVG", () => grid && saveSvg(drawn(grid), `${fileName()}.svg`)),
      button("Save PNG", () => savePng(canvas, `${fileName()}.png`)),
    ),
  );

  function drawn(map: Grid): SVGSVGElement {
    const scale = new SignedScale(
      limitOf(opened!, maps, store.now.mode, store.now.ownScale),
      context.isDark(),
    );
    const box = s("svg", {
      viewBox: `0 0 ${plan!.width} ${plan!.height}`,
      width: plan!.width,
      height: plan!.height,
    });
    frame.append(box); // styles are only known of what is in the page
    box.append(...shapes(map, plan!, scale, names()));
    queueMicrotask(() => box.remove());
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

function shapes(
  grid: Grid,
  plan: Plan,
  scale: SignedScale,
  names: [string[], string[]],
): SVGElement[] {
  const cell = plan.cell;
  const size = Math.min(12, Math.max(8, cell * 0.62));
  const parts: SVGElement[] = [];
  if (plan.rows.length * plan.columns.length > MOST_SHAPES) {
    const picture = pixels(grid, plan, scale).toDataURL("image/png");
    const [width, height] = [cell * plan.columns.length, cell * plan.rows.length];
    return [s("image", { href: picture, x: plan.left, y: plan.top, width, height })];
  }
  plan.rows.forEach((query, row) => {
    plan.columns.forEach((key, column) => {
      const value = grid.values[query * grid.columns + key];
      if (Math.abs(SignedScale.position(value, scale.limit)) < 1 / 255) return;
      parts.push(
        s("rect", {
          x: plan.left + column * cell,
          y: plan.top + row * cell,
          width: cell,
          height: cell,
          fill: scale.css(value),
        }),
      );
    });
  });
  if (!plan.labelled) return parts;
  plan.rows.forEach((query, row) => {
    const y = plan.top + (row + 0.7) * cell;
    parts.push(
      s("text", { x: plan.left - 6, y, "text-anchor": "end", "font-size": size }, word(names[0][query])),
    );
  });
  plan.columns.forEach((key, column) => {
    const turn = `translate(${plan.left + (column + 0.7) * cell} ${plan.top - 6}) rotate(-90)`;
    parts.push(s("text", { transform: turn, "font-size": size }, word(names[1][key])));
  });
  return parts;
}
