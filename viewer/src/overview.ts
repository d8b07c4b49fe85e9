// All heads at once: a row for every layer, a square for every head, coloured by its verdict.

import { SignedScale } from "./colour";
import { type Context, nameOf } from "./context";
import { caption, css, fill, h, s } from "./dom";
import { type Cell, exportsOf } from "./files";
import { number } from "./format";
import { isBound } from "./matrix";
import type { Head, Maps } from "./model";

export function overviewView(context: Context, maps: Maps): HTMLElement {
  const { store } = context;
  const judged = maps.heads.some((head) => head.word);
  const grid = h("div", { class: "grid", role: "grid", "aria-label": "heads by layer" });
  const cells = new Map<number, HTMLButtonElement>();
  const most = Math.max(...maps.sites.map((site) => site.heads));
  const longest = Math.max(...maps.sites.map((site) => site.short.length));
  css(grid, { "--heads": String(most), "--names": `${Math.min(0.56 * longest + 0.8, 12)}em` });
  grid.append(
    h(
      "div",
      { class: "row numbers", "aria-hidden": "true" },
      h("span", { class: "layer" }),
      ...Array.from({ length: most }, (_, head) =>
        h("span", { class: "number" }, most <= 16 || head % 4 === 0 ? head : ""),
      ),
    ),
  );
  maps.sites.forEach((site, place) => {
    const row = h("div", { class: "row", role: "row" });
    row.append(h("span", { class: "layer", role: "rowheader", title: site.name }, site.short));
    maps.heads.forEach((head, index) => {
      if (head.site !== place) return;
      const cell = h("button", {
        class: "cell",
        type: "button",
        role: "gridcell",
        tabindex: -1,
        "aria-label": `${nameOf(site, head)}${head.word ? `: ${head.word}` : ""}`,
        "data-shared": head.answers?.["shared"] === true,
        on: { click: () => store.set({ head: index }) },
      });
      cell.title = described(maps, head, nameOf(site, head));
      cells.set(index, cell);
      row.append(cell);
    });
    grid.append(row);
  });
  store.watch(["colourBy"], () => {
    const column = store.now.colourBy;
    const sizes = maps.heads.map((head) => Math.abs(head.numbers[column] ?? 0));
    const scale = new SignedScale(Math.max(...sizes, 0), context.isDark());
    cells.forEach((cell, index) => {
      const head = maps.heads[index];
      cell.dataset.word = column ? "" : (head.word ?? "");
      cell.style.backgroundColor = column ? scale.css(head.numbers[column] ?? 0) : "";
    });
  });
  store.watch(["head"], () => {
    cells.forEach((cell, index) => {
      const chosen = index === store.now.head;
      cell.tabIndex = chosen ? 0 : -1;
      cell.setAttribute("aria-selected", String(chosen));
      if (chosen && cell.getRootNode() instanceof ShadowRoot) {
        const active = (cell.getRootNode() as ShadowRoot).activeElement;
        if (active?.classList.contains("cell")) cell.focus();
      }
    });
  });
  const legend = h("ul", { class: "words" });
  store.watch(["colourBy"], () => fill(legend, ...legendOf(context, maps)));
  const choice = h(
    "select",
    {
      "aria-label": "colour the heads by",
      on: { change: (event) => store.set({ colourBy: (event.target as HTMLSelectElement).value }) },
    },
    judged && h("option", { value: "" }, "verdict"),
    ...maps.columns.filter((one) => !isBound(one)).map((column) => h("option", { value: column.key }, column.name)),
  );
  choice.value = store.now.colourBy;
  const chosen = h("div", { class: "chosen", "aria-live": "polite" });
  store.watch(["head"], () => fill(chosen, ...chosenHead(maps, maps.heads[store.now.head])));
  return h(
    "section",
    { class: "overview", "aria-label": "overview of all heads" },
    h(
      "div",
      {},
      h("h2", {}, maps.words.length ? "Every head, and its verdict" : "Every head"),
      caption("A row is a layer, a square is a head. Choose one, or walk with the arrow keys."),
      (judged || maps.columns.length > 0) && h("label", { class: "choice" }, "Colour by ", choice),
      grid,
      exportsOf(context, { name: () => "heads", rows: () => rowsOf(maps), drawing: () => drawn(maps, cells) }),
    ),
    h("div", { class: "beside" }, legend, judged && chosen),
  );
}

function rowsOf(maps: Maps): Cell[][] {
  return [
    ["head", "verdict", ...maps.columns.map((column) => column.name)],
    ...maps.heads.map((head): Cell[] => [
      nameOf(maps.sites[head.site], head),
      head.word ?? "",
      ...maps.columns.map((column) => head.numbers[column.key] ?? null),
    ]),
  ];
}

const SQUARE = 24;
const NAMES = 150;

/** The squares as a drawing, in the colours they have now. */
function drawn(maps: Maps, cells: Map<number, HTMLButtonElement>): SVGSVGElement {
  const most = Math.max(...maps.sites.map((site) => site.heads));
  const [width, height] = [NAMES + SQUARE * most + 8, SQUARE * (maps.sites.length + 1) + 8];
  const box = s("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  for (let head = 0; head < most; head++)
    box.append(s("text", { x: NAMES + SQUARE * (head + 0.5), y: 16, "text-anchor": "middle" }, String(head)));
  maps.sites.forEach((site, row) => box.append(s("text", { x: 4, y: SQUARE * (row + 1) + 16 }, site.short)));
  cells.forEach((cell, place) => {
    const head = maps.heads[place];
    const [x, y] = [NAMES + SQUARE * head.head, SQUARE * (head.site + 1)];
    const fill = getComputedStyle(cell).backgroundColor;
    box.append(s("rect", { x, y, width: SQUARE - 3, height: SQUARE - 3, rx: 3, fill }));
  });
  return box;
}

function chosenHead(maps: Maps, head: Head): Node[] {
  const toMap = (event: Event) => {
    const root = (event.target as HTMLElement).getRootNode() as ShadowRoot;
    root.querySelector("section.head")?.scrollIntoView({ block: "start" });
  };
  return [
    h("b", {}, `${nameOf(maps.sites[head.site], head)}: `),
    document.createTextNode(`${head.reason ?? ""}. `),
    h("button", { type: "button", class: "quiet", on: { click: toMap } }, "See its map"),
  ];
}

function legendOf(context: Context, maps: Maps): Node[] {
  const { colourBy } = context.store.now;
  if (!colourBy) {
    const shared = maps.heads.filter((head) => head.answers?.["shared"]).length;
    const list = maps.words.map(({ word, meaning }) => {
      const count = maps.heads.filter((head) => head.word === word).length;
      return h(
        "li",
        {},
        h("span", { class: "swatch", "data-word": word }),
        h("b", {}, `${word} `),
        h("span", { class: "count" }, `${count} · `),
        meaning,
      );
    });
    if (shared)
      list.push(
        h(
          "li",
          {},
          h("span", { class: "swatch shared" }),
          h("b", {}, "shared "),
          h("span", { class: "count" }, `${shared} · `),
          "other heads stand in for it when it alone is levelled",
        ),
      );
    return list;
  }
  const column = maps.columns.find((one) => one.key === colourBy)!;
  const values = maps.heads.map((head) => head.numbers[colourBy] ?? 0);
  const range = `${number(Math.min(...values))} to ${number(Math.max(...values))}`;
  return [h("li", {}, h("b", {}, `${column.name}: `), `${column.help} Here ${range}.`)];
}

function described(maps: Maps, head: Head, name: string): string {
  const parts = maps.columns.map((column) => `${column.name} ${number(head.numbers[column.key])}`);
  return [head.word ? `${name}: ${head.word}` : name, ...parts].join("\n");
}
