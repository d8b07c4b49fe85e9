// The attribution tree, drawn: words along the bottom in reading order, layers upwards.

import { type Context, tokensOf } from "./context";
import { caption, fill, h, s } from "./dom";
import { type Cell, exportsOf } from "./files";
import { number, shorter, word } from "./format";
import type { Tree } from "./model";
import { type Edge, edgesOf, greedy } from "./tree";

const RISE = 40;
const LEFT = 58;
const WIDEST = 96; // CSS pixels a word
const MOST_COLUMNS = 40; // beyond, only the words in the tree get a place

export function treeView(context: Context, tree: Tree): HTMLElement {
  const { store, payload, header } = context;
  const tokens = tokensOf(header, tree.sequence, 0);
  const several = Object.keys(header.sequences).length > 1;
  const layer = several ? `${tree.sequence} layer` : "layer";
  const left = several ? 106 : LEFT;
  let edges: Edge[] = [];
  let kept: Edge[] = [];
  let drawing: SVGSVGElement | null = null;
  const holder = h("div", { class: "drawing", tabindex: 0, role: "group", "aria-label": "attribution tree" });
  const said = h("p", { class: "outcome", "aria-live": "polite" });
  const values = { threshold: h("b", { class: "figure" }), penalty: h("b", { class: "figure" }) };
  const ranges = {
    threshold: range("threshold τ", 100, (place) => store.set({ threshold: tree.lowest + (0.98 - tree.lowest) * place })),
    penalty: range("penalty λ", 100, (place) => store.set({ penalty: penaltyAt(place) })),
  };
  const most = () => Math.max(...edges.map((edge) => edge.score), 1e-12);
  const penaltyAt = (place: number) => (place === 0 ? 0 : most() * 10 ** (4 * (place - 1)));

  function redraw(): void {
    const { threshold, penalty, token } = store.now;
    kept = greedy(edges, tree.root, threshold, penalty);
    values.threshold.textContent = number(threshold);
    values.penalty.textContent = number(penalty);
    ranges.threshold.value = String(Math.round((100 * (threshold - tree.lowest)) / (0.98 - tree.lowest)));
    ranges.penalty.value = String(
      penalty > 0 ? Math.max(1, Math.round(100 * (1 + Math.log10(penalty / most()) / 4))) : 0,
    );
    drawing = drawn(token);
    fill(holder, drawing);
    const worth = kept.reduce((sum, edge) => sum + edge.score - penalty, 0);
    section.dataset.penalty = String(penalty);
    section.dataset.threshold = String(threshold);
    fill(
      said,
      h("b", { class: "figure" }, kept.length),
      ` of ${edges.length} possible edges; together, less the penalty, they contribute `,
      h("b", { class: "figure" }, number(worth, true)),
      ` to the ${tree.target}. Root: `,
      h("q", {}, word(tokens[tree.root])),
      ".",
    );
  }

  function drawn(chosen: number): SVGSVGElement {
    const entered = new Map<number, number>(kept.map((edge) => [edge.child, edge.layer]));
    entered.set(tree.root, tree.layers);
    const shown = tokens.map((_, place) => place).filter((place) => tokens.length <= MOST_COLUMNS || entered.has(place));
    const room = Math.max(holder.clientWidth, 300);
    const step = Math.min(Math.max((room - left - 12) / Math.max(shown.length, 1), 22), WIDEST);
    const width = Math.max(left + step * shown.length + 12, 240);
    const foot = 24 + RISE * (tree.layers + 1);
    const at = (place: number): [number, number] => [
      left + step * (shown.indexOf(place) + 0.5),
      24 + RISE * (tree.layers - (entered.get(place) ?? 0)),
    ];
    const picture = s("svg", { width, height: foot + 64, viewBox: `0 0 ${width} ${foot + 64}` });
    for (let level = 0; level <= tree.layers; level++) {
      const y = 24 + RISE * (tree.layers - level);
      picture.append(
        s("line", { class: "rule", x1: left - 8, x2: width - 6, y1: y, y2: y }),
        s("text", { class: "level", x: 0, y: y + 4 }, level === tree.layers ? "answer" : `${layer} ${level}`),
      );
    }
    const strongest = Math.max(...kept.map((edge) => edge.score), 1e-12);
    for (const edge of kept) {
      const [[x1, y1], [x2, y2]] = [at(edge.parent), at(edge.child)];
      const middle = (y1 + y2) / 2;
      picture.append(
        s(
          "path",
          {
            class: edge.child === chosen ? "edge chosen" : "edge",
            d: `M${x1} ${y1} C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`,
            "stroke-width": (1 + 4.5 * Math.sqrt(edge.score / strongest)).toFixed(2),
          },
          s("title", {}, `${word(tokens[edge.parent])} ← ${word(tokens[edge.child])}, ${layer} ${edge.layer}, ${number(edge.score, true)}`),
        ),
      );
    }
    for (const place of shown) {
      const inside = entered.has(place);
      const [x, y] = at(place);
      if (inside)
        picture.append(
          s("line", { class: "drop", x1: x, x2: x, y1: y + 5, y2: foot - 12 }),
          s("circle", {
            class: place === tree.root ? "node root" : place === chosen ? "node chosen" : "node",
            cx: x,
            cy: y,
            r: place === tree.root ? 7 : 5,
          }),
        );
      picture.append(
        s(
          "text",
          {
            class: inside ? "word inside" : "word",
            transform: `translate(${x + 4} ${foot}) rotate(-48)`,
            "text-anchor": "end",
            on: { click: () => store.set({ token: place }) },
          },
          shorter(word(tokens[place]), 11),
        ),
      );
    }
    return picture;
  }

  const section = h("section", { class: "tree", "aria-label": "attribution tree" });
  void payload.doubles(tree.edges).then((numbers) => {
    edges = edgesOf(numbers);
    redraw();
  });
  store.watch(["threshold", "penalty", "token"], redraw);
  new ResizeObserver(() => redraw()).observe(holder);
  const rows = (): Cell[][] => [
    ["layer", "parent", "child", "score"],
    ...kept.map((edge): Cell[] => [edge.layer, tokens[edge.parent], tokens[edge.child], edge.score]),
  ];
  section.append(
    h("h2", {}, "By what way did the words reach the answer?"),
    caption("Edges of all heads together that contributed to the answer. τ: share of the layer’s largest edge that an edge must exceed. λ: what an edge must be worth."),
    h(
      "div",
      { class: "options" },
      h("label", { class: "choice wide" }, "τ ", ranges.threshold, values.threshold),
      h("label", { class: "choice wide" }, "λ ", ranges.penalty, values.penalty),
    ),
    holder,
    said,
    caption(tree.note),
    exportsOf(context, { name: () => "attribution tree", rows, drawing: () => drawing }),
  );
  return section;
}

function range(name: string, steps: number, run: (place: number) => void): HTMLInputElement {
  const input = h("input", {
    type: "range",
    min: 0,
    max: steps,
    step: 1,
    "aria-label": name,
    on: { input: () => run(Number(input.value) / steps) },
  });
  return input;
}
