import { describe, expect, it } from "vitest";
import { ticks } from "../src/chart";
import { SignedScale } from "../src/colour";
import { csv } from "../src/files";
import { number, percent, word } from "../src/format";
import { largest } from "../src/rowview";
import { distance, largestChange, Slides } from "../src/slides";
import { compared } from "../src/tableview";
import { type Edge, greedy } from "../src/tree";

describe("the scale", () => {
  it("has zero in the middle and is the same size both ways", () => {
    expect(SignedScale.position(0, 1)).toBe(0);
    expect(SignedScale.position(-0.25, 1)).toBe(-SignedScale.position(0.25, 1));
    expect(SignedScale.position(7, 1)).toBe(1);
  });

  it("tells for from against by blue and red, in light and in dark", () => {
    for (const dark of [false, true]) {
      const scale = new SignedScale(1, dark);
      const [warm, cold] = [scale.rgb(0.4), scale.rgb(-0.4)];
      expect(warm[0]).toBeGreaterThan(warm[2]);
      expect(cold[2]).toBeGreaterThan(cold[0]);
    }
  });

  it("writes whole pixels", () => {
    const scale = new SignedScale(1, false);
    const [red, green, blue] = scale.rgb(0.3);
    expect(scale.pixel(0.3)).toBe(((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0);
    expect(scale.pixel(NaN)).toBe(0);
  });
});

describe("the tree", () => {
  const edge = (layer: number, parent: number, child: number, score: number): Edge => ({
    layer,
    parent,
    child,
    score,
    share: score,
  });

  it("takes a token in once, below one that came in higher", () => {
    const edges = [edge(2, 0, 1, 0.9), edge(2, 1, 2, 0.9), edge(1, 1, 2, 0.5), edge(0, 0, 2, 1)];
    expect(greedy(edges, 0, 0.4, 0).map((one) => [one.layer, one.child])).toEqual([
      [2, 1],
      [1, 2],
    ]);
  });

  it("drops what is below the threshold or not worth the penalty", () => {
    const edges = [edge(2, 0, 1, 0.9), edge(1, 1, 2, 0.5)];
    expect(greedy(edges, 0, 0.5, 0)).toHaveLength(1);
    expect(greedy(edges, 0, 0, 0.95)).toHaveLength(0);
  });
});

describe("the slider", () => {
  it("moves a row between two that have the same output", () => {
    const values = new Float32Array([1, 2, 3]);
    const slides = new Slides([4], new Float32Array([0.2, 0.6, 0.2]), new Float32Array([0.5, 0, 0.5]), values, 3, 1, 32);
    const [own, other] = [slides.row(4, 0)!, slides.row(4, 1)!];
    expect(distance(own, other)).toBeCloseTo(0.6);
    expect(largestChange(slides.output(own), slides.output(other))).toBeLessThan(1e-6);
    expect(slides.row(0, 1)).toBeNull();
  });
});

describe("what people read", () => {
  it("has few digits", () => {
    expect([number(0.12345), number(-12.345), number(0), number(2e-7), number(null)]).toEqual([
      "0.123",
      "−12.3",
      "0",
      "2.0 × 10⁻⁷",
      "–",
    ]);
    expect([percent(0.123), percent(0.0123), percent(0)]).toEqual(["12 %", "1.2 %", "0 %"]);
  });

  it("has no marks of tokenizers", () => {
    expect(["Ġfilm", "▁film", "Ċ", "Ġ"].map(word)).toEqual(["film", "film", "⏎", "␣"]);
  });

  it("is quoted in CSV where it must be", () => {
    expect(csv([["a", 'say "so"', ","], [1, null, "x"]])).toBe('a,"say ""so""",","\n1,,x\n');
  });

  it("is sorted as numbers where it is numbers, with gaps first", () => {
    expect([10, null, 3].sort(compared)).toEqual([null, 3, 10]);
    expect(compared("head 2", "head 10")).toBeLessThan(0);
    expect(largest([0, 1, 2, 3], [0.1, -0.9, 0.2, 0.5], 2)).toEqual([1, 3]);
    expect(ticks(0, 10)).toEqual([0, 2, 4, 6, 8, 10]);
  });
});
