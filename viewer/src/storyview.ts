// Who is in this vector? The story of one token, layer by layer.

import { SignedScale } from "./colour";
import { type Context, shownOf, tokensOf } from "./context";
import { caption, fill, h } from "./dom";
import { cellAt, draw, type Plan, planned } from "./drawing";
import { type Cell, exportsOf } from "./files";
import { percent, word } from "./format";
import { oncePerFrame } from "./frames";
import { inkOf } from "./matrix";
import type { Story } from "./model";
import type { Grid } from "./payload";
import { largest } from "./rowview";

const NARROWEST = 13; // CSS pixels a source
const NAMED = 5; // contributors that are told by name

export function storyView(context: Context, story: Story): HTMLElement {
  const { store, payload, header } = context;
  const site = story.maps.sites[0];
  const layers = story.maps.heads.length;
  const targets = tokensOf(header, story.targets, site.rows);
  const sources = tokensOf(header, story.sources, site.columns);
  const limit = story.maps.modes[0].limit;
  let contribution: Grid[] = [];
  let errors: Float32Array | null = null;
  let plan: Plan | null = null;

  const canvas = h("canvas", { role: "img" });
  const frame = h("div", { class: "frame" }, canvas);
  const said = h("p", { class: "outcome", "aria-live": "polite" });
  const pick = h(
    "select",
    {
      "aria-label": "whose story",
      on: { change: () => store.set({ token: Number(pick.value) }) },
    },
    ...targets.map((token, place) => h("option", { value: place }, `${place} · ${word(token)}`)),
  );
  const slide = h("input", {
    type: "range",
    min: 0,
    max: layers - 1,
    step: 1,
    "aria-label": "layer",
    on: { input: () => store.set({ layer: Number(slide.value) }) },
  });
  const layerName = h("b", { class: "figure" });

  const names = (): [string[], string[]] => [
    contribution.map((_, layer) => (layer ? `after ${layer - 1}` : "input")),
    sources,
  ];
  const told = (): Grid => {
    const values = new Float32Array(layers * site.columns);
    const token = Math.min(store.now.token, site.rows - 1);
    contribution.forEach((grid, layer) =>
      values.set(
        grid.values.subarray(token * site.columns, (token + 1) * site.columns),
        layer * site.columns,
      ),
    );
    return { rows: layers, columns: site.columns, values };
  };

  const redraw = oncePerFrame(() => {
    if (!contribution.length) return;
    const { token: chosen, layer } = store.now;
    const token = Math.min(chosen, site.rows - 1);
    const grid = told();
    const room = Math.max(frame.clientWidth, 240);
    const total = Float32Array.from({ length: site.columns }, (_, source) =>
      Math.max(...contribution.map((_, l) => grid.values[l * site.columns + source])),
    );
    const all = shownOf(context, story.sources, site.columns);
    const columns = largest(all, total, Math.floor((room - 64) / NARROWEST));
    plan = planned(room, contribution.map((_, l) => l), columns, names());
    const scale = new SignedScale(limit, context.isDark());
    draw(canvas, plan, grid, scale, names(), inkOf(frame), { query: layer, hover: null });
    canvas.setAttribute("aria-label", `who is in ${targets[token]}, by layer`);
    pick.value = String(token);
    slide.value = String(layer);
    layerName.textContent = layer ? `after layer ${layer - 1}` : "at the input";
    const row = grid.values.subarray(layer * site.columns, (layer + 1) * site.columns);
    const ranked = Array.from(row.keys()).sort((a, b) => row[b] - row[a]).slice(0, NAMED);
    const own = story.targets === story.sources ? row[token] : NaN;
    const doubt = errors ? errors[layer * site.rows + token] : 0;
    fill(
      said,
      `${layer ? `After layer ${layer - 1}` : "At the input"}, the vector of `,
      h("q", {}, word(targets[token])),
      !Number.isNaN(own) && " is ",
      !Number.isNaN(own) && h("b", { class: "figure" }, percent(own)),
      !Number.isNaN(own) && (doubt > 0 ? ` itself (± ${percent(2 * doubt)}, two standard errors). ` : " itself. "),
      "Most in it: ",
      ...ranked.flatMap((source, place) => [
        place ? ", " : "",
        h("q", {}, word(sources[source])),
        ` ${percent(row[source])}`,
      ]),
      columns.length < all.length && `. Drawn: the ${columns.length} largest of ${all.length} sources`,
      ".",
    );
  });

  const ready = Promise.all([
    ...story.maps.heads.map(async (head) => (await payload.head(story.maps, head))[story.maps.modes[0].key]),
  ]).then(async (grids) => {
    contribution = grids;
    errors = story.errors ? await payload.floats(story.errors) : null;
    redraw();
  });
  void ready;
  store.watch(["token", "layer", "noSpecial"], redraw);
  new ResizeObserver(() => redraw()).observe(frame);
  canvas.addEventListener("click", (event) => {
    const cell = plan && cellAt(plan, event.offsetX, event.offsetY);
    if (cell) store.set({ layer: cell[0] });
  });
  const rows = (): Cell[][] => [
    ["layer", ...sources],
    ...contribution.map((_, layer): Cell[] => [
      names()[0][layer],
      ...told().values.subarray(layer * site.columns, (layer + 1) * site.columns),
    ]),
  ];
  return h(
    "section",
    { class: "story", "aria-label": "token story" },
    h("h2", {}, "Who is in this vector?"),
    caption("How strongly a hidden vector reacts to every input token, as shares of one. A token’s own share falls as layers mix their neighbours in."),
    h(
      "div",
      { class: "options" },
      h("label", { class: "choice" }, "Token ", pick),
      h("label", { class: "choice wide" }, "Layer ", slide, layerName),
    ),
    frame,
    said,
    story.note && caption(story.note),
    exportsOf(context, { name: () => "token story", rows, canvas }),
  );
}
