// The picture that was looked at, in grey, with scores laid over its patches in colour.

import { FAINTEST_WORD, SignedScale } from "./colour";
import { type Context, type HeadView, modeOf, nameOf, type Opened, tokensOf } from "./context";
import { caption, css, fill, h, s } from "./dom";
import { number, word } from "./format";
import { gridOf, limitOf } from "./matrix";
import type { Image, Maps, AnswerSummary } from "./model";

const SIDE = 340; // CSS pixels to the longer side of the picture
const OVER_MEAN = 4; // times the mean of a row: a uniform row is not painted as a strong one
const FAINTEST = 0.04; // share of the scale below which nothing is laid over the picture

type Choose = (position: number) => void;

/** The picture with a score for each position; NaN leaves its patch as it is. */
function draw(scene: Image, grid: number[][], scores: ArrayLike<number>, scale: SignedScale, names: string[], chosen: number, choose?: Choose): SVGElement {
  const factor = SIDE / Math.max(scene.width, scene.height);
  const [width, height] = [scene.width * factor, scene.height * factor];
  const [wide, tall] = [width / grid[0].length, height / grid.length];
  const picture = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": scene.caption });
  const base = s("image", { href: scene.source, width, height, preserveAspectRatio: "none" });
  picture.append(base);
  grid.forEach((row, at) =>
    row.forEach((position, column) => {
      const value = scores[position];
      const strength = Math.abs(SignedScale.position(value, scale.limit));
      picture.append(
        s(
          "rect",
          {
            x: column * wide,
            y: at * tall,
            width: wide,
            height: tall,
            class: position === chosen ? "patch chosen" : "patch",
            "data-position": position,
            fill: scale.css(value),
            "fill-opacity": strength < FAINTEST ? 0 : 0.15 + 0.75 * strength,
            on: choose ? { click: () => choose(position) } : {},
          },
          s("title", {}, `${names[position]}: ${number(value, true)}`),
        ),
      );
    }),
  );
  return picture;
}

/** What the answer took from each patch, all heads together. */
export function sceneScores(context: Context, scene: Image, summary: AnswerSummary): HTMLElement | null {
  const grid = scene.grids[summary.sequence];
  if (!grid || !summary.shares.length) return null;
  const holder = h("div", { class: "scene" });
  const names = tokensOf(context.header, summary.sequence, summary.shares.length);
  const limit = Math.max(...summary.shares.map(Math.abs), FAINTEST_WORD);
  const [low, high] = [Math.min(...grid.flat().map((at) => summary.shares[at])), Math.max(...grid.flat().map((at) => summary.shares[at]))];
  context.store.watch(["token"], () =>
    fill(
      holder,
      draw(scene, grid, summary.shares, new SignedScale(limit, context.isDark()), names, context.store.now.token, (position) =>
        context.store.set({ token: position, query: position }),
      ),
    ),
  );
  return h(
    "section",
    { class: "overlay", "aria-label": "the picture, shaded by contribution" },
    holder,
    caption(`${scene.caption} Orange for, blue against; patches from ${number(low, true)} to ${number(high, true)}.`),
  );
}

/** Where the chosen row of the chosen head looks in the picture; a patch is chosen by a click. */
export function overlayView(context: Context, scene: Image, maps: Maps): HeadView {
  const { store, header } = context;
  let opened: Opened | null = null;
  const title = h("h3", {});
  const holder = h("div", { class: "scene" });
  const others = h("div", { class: "positions" });
  const range = caption();
  const element = h("section", { class: "overlay", "aria-label": "one row over the picture" }, title, others, holder, caption(scene.caption), range);

  function redraw(): void {
    if (!opened) return;
    const { site, head } = opened;
    const grid = scene.grids[site.keys];
    css(element, { display: grid ? "" : "none" });
    if (!grid) return;
    const { mode, slide, ownScale } = store.now;
    const query = Math.min(store.now.query, site.rows - 1);
    const map = gridOf(opened, maps, mode, slide);
    const row = map.values.subarray(query * map.columns, (query + 1) * map.columns);
    const sizes = Array.from(row, Math.abs);
    const mean = sizes.reduce((sum, size) => sum + size, 0) / sizes.length;
    const darkest = Math.max(...sizes, OVER_MEAN * mean, FAINTEST_WORD);
    const limit = Math.min(limitOf(opened, maps, mode, ownScale), darkest);
    const patchValues = grid.flat().map((at) => row[at]);
    const [queries, keys] = [tokensOf(header, site.queries, site.rows), tokensOf(header, site.keys, site.columns)];
    const same = site.queries === site.keys;
    const patches = new Set(same ? grid.flat() : []);
    const choose = (position: number) => store.set({ query: position });
    fill(title, `${modeOf(maps, mode).name} from `, h("q", {}, word(queries[query] ?? "")), `: ${nameOf(site, head)}`);
    fill(
      others,
      ...queries.flatMap((name, at) =>
        patches.has(at)
          ? []
          : [h("button", { type: "button", class: at === query ? "quiet chosen" : "quiet", "aria-pressed": String(at === query), on: { click: () => choose(at) } }, word(name))],
      ),
    );
    fill(holder, draw(scene, grid, row, new SignedScale(limit, context.isDark()), keys, same ? query : -1, same ? choose : undefined));
    const [low, high] = [Math.min(...patchValues), Math.max(...patchValues)];
    fill(range, `Patches from ${number(low)} to ${number(high)}, ${number(mean)} on average; the darkest colour stands for ${number(limit)}.`);
    element.dataset.query = String(query);
    element.dataset.limit = String(limit);
  }

  store.watch(["mode", "query", "slide", "ownScale"], redraw);
  return {
    element,
    show(fresh) {
      opened = fresh;
      redraw();
    },
  };
}
