// Same output, other attention: the slider that no output can feel.

import { SignedScale } from "./colour";
import { type Context, type HeadView, nameOf, type Opened, tokensOf } from "./context";
import { caption, fill, h } from "./dom";
import { number, word } from "./format";
import type { Slider } from "./model";
import { distance, largestChange } from "./slides";

export function slideView(context: Context, slider: Slider): HeadView {
  const { store } = context;
  let opened: Opened | null = null;
  const range = h("input", {
    type: "range",
    min: 0,
    max: 100,
    step: 1,
    "aria-label": "from the model's attention to another with the same output",
    on: {
      input: () => {
        const mode = store.now.mode === "raw" || store.now.mode === "difference" ? {} : { mode: "raw" };
        store.set({ slide: Number(range.value) / 100, ...mode });
      },
    },
  });
  const before = h("canvas", { class: "strip", height: 1, "aria-hidden": "true" });
  const after = h("canvas", { class: "strip", height: 1, "aria-hidden": "true" });
  const said = h("p", { class: "outcome", "aria-live": "polite" });
  const body = h(
    "div",
    {},
    h(
      "div",
      { class: "ends" },
      h("span", {}, "the model’s weights"),
      h("span", {}, "other valid weights"),
    ),
    range,
    h("div", { class: "strips" }, h("span", {}, "output"), before, h("span", {}, "output now"), after),
    said,
  );
  const missing = caption();

  function redraw(): void {
    if (!opened) return;
    const { query, slide } = store.now;
    const slides = opened.slides;
    body.hidden = !slides;
    missing.hidden = Boolean(slides);
    if (!slides) {
      const offered = slider.heads.length;
      fill(
        missing,
        offered > 0 &&
          `${nameOf(opened.site, opened.head)} offers nothing to slide: its rows are the only valid ones, or it was left out. ${offered} heads can slide.`,
      );
      return;
    }
    range.value = String(Math.round(100 * slide));
    const asked = slides.rows.includes(query) ? query : slides.rows[0];
    const own = slides.row(asked, 0)!;
    const now = slides.row(asked, slide)!;
    const [first, second] = [slides.output(own), slides.output(now)];
    const size = Math.max(...Array.from(first, Math.abs), 1e-12);
    strip(before, first, size);
    strip(after, second, size);
    const change = largestChange(first, second);
    const name = word(tokensOf(context.header, opened.site.queries, opened.site.rows)[asked]);
    said.dataset.change = String(change / size);
    said.dataset.moved = String(distance(own, now));
    fill(
      said,
      "Row of ",
      h("q", {}, name),
      ": weight moved ",
      h("b", { class: "figure" }, number(distance(own, now))),
      ", output changed by ",
      h("b", { class: "figure" }, number(change / size)),
      ` of its largest part (computed here, from ${slides.bits}-bit values). ${slides.rows.length} rows of this head move together.`,
      asked !== query && " The chosen row is not among them.",
    );
  }

  function strip(canvas: HTMLCanvasElement, output: Float64Array, size: number): void {
    canvas.width = output.length;
    const scale = new SignedScale(size, context.isDark());
    const pen = canvas.getContext("2d")!;
    output.forEach((value, place) => {
      pen.fillStyle = scale.css(value);
      pen.fillRect(place, 0, 1, 1);
    });
  }

  store.watch(["query", "slide"], redraw);
  return {
    element: h(
      "section",
      { class: "slide", "aria-label": "same output, other attention" },
      h("h3", {}, "Same output, other attention"),
      caption("Each step is a proper attention map: no weight is negative, rows keep their sum. What the head passes on does not move."),
      body,
      missing,
      slider.note && caption(slider.note),
    ),
    show(fresh) {
      opened = fresh;
      redraw();
    },
  };
}
