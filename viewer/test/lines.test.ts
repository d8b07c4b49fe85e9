import { describe, expect, it } from "vitest";
import { inkOn, SignedScale } from "../src/colour";
import { labelled } from "../src/drawing";
import { escaped, latexMap, latexTable, latexWords } from "../src/latex";
import { linksOf, strandsOf, sums } from "../src/lines";

const grid = { rows: 2, columns: 3, values: new Float32Array([0.7, 0.2, 0.001, 0.1, -0.6, 0.3]) };
const all: [number[], number[]] = [
  [0, 1],
  [0, 1, 2],
];

describe("lines", () => {
  it("are the links of one token, or of all, strongest first and none that is faint", () => {
    expect(linksOf([grid], all, null, 10, 0.01).drawn.map((link) => [link.query, link.key])).toEqual([
      [0, 0],
      [1, 1],
      [1, 2],
      [0, 1],
      [1, 0],
    ]);
    expect(linksOf([grid], all, { side: "query", place: 0 }, 10, 0.01).drawn.map((link) => link.key)).toEqual([0, 1]);
    expect(linksOf([grid], all, { side: "key", place: 1 }, 1, 0.01).drawn.map((link) => link.query)).toEqual([1]);
  });

  it("are found by counting where they are very many, and are the same", () => {
    const values = Float32Array.from({ length: 100 * 100 }, (_, i) => ((i * 7919) % 10_007) / 10_007);
    const many = { rows: 100, columns: 100, values };
    const places = Array.from({ length: 100 }, (_, i) => i);
    const links = linksOf([many], [places, places], null, 50, 1e-6);
    const best = [...values].sort((one, two) => two - one).slice(0, 50);
    expect(links.drawn.map((link) => link.value)).toEqual(best);
    expect(links.all).toBe([...values].filter((value) => value >= 1e-6).length);
  });

  it("of one look are one path, and none is lost", () => {
    const links = linksOf([grid], all, null, 10, 0.01).drawn;
    const strands = strandsOf(links, (link) => (link.value < 0 ? "against" : "for"), 0.7, 3);
    expect(strands.map((strand) => [strand.kind, strand.links.length])).toEqual([
      ["for", 2],
      ["for", 1],
      ["for", 1],
      ["against", 1],
    ]);
    expect(strands.flatMap((strand) => strand.links)).toHaveLength(links.length);
    expect(strandsOf(links, () => "for", 0.7, 1)).toHaveLength(1);
  });

  it("give the other side what all maps give it together", () => {
    const end = { side: "query", place: 1 } as const;
    const links = linksOf([grid, grid], all, end, 10, 0.01);
    expect([...sums(links.drawn, end, 3, 2)].map((value) => Number(value.toFixed(3)))).toEqual([0.1, -0.6, 0.3]);
  });
});

describe("colours", () => {
  it("have an absolute floor: noise is not painted, however alone it is", () => {
    const scale = new SignedScale(3e-8, false);
    expect(scale.pixel(3e-8)).toBe(scale.pixel(0));
    expect(scale.css(-3e-8)).toBe(scale.css(0));
    expect(scale.pixel(1e-3)).not.toBe(scale.pixel(0));
  });

  it("carry letters that can be read", () => {
    const light = (colour: number[]) => {
      const [r, g, b] = colour.map((part) => (part /= 255) && (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    for (const dark of [false, true])
      for (let value = -1; value <= 1; value += 0.01) {
        const colour = new SignedScale(1, dark).rgb(value);
        const [paper, ink] = [light(colour), inkOn(colour) === "#ffffff" ? 1 : 0];
        expect((Math.max(paper, ink) + 0.05) / (Math.min(paper, ink) + 0.05)).toBeGreaterThan(4.5);
      }
  });
});

describe("labels", () => {
  it("never vanish: they thin out, and what is marked keeps its own", () => {
    const places = Array.from({ length: 512 }, (_, i) => i);
    const written = labelled(places, 1.4, (place) => place === 301);
    expect(written.length).toBeGreaterThan(40);
    expect(written).toContain(301);
    const gaps = [...written].sort((one, two) => one - two).map((place, i, list) => (i ? place - list[i - 1] : 99));
    expect(Math.min(...gaps) * 1.4).toBeGreaterThan(9);
    expect(labelled(places.slice(0, 30), 12, () => false)).toHaveLength(30);
  });
});

describe("LaTeX", () => {
  it("escapes what is a command", () => {
    expect(escaped("50 % of_it & {x} #1 \\")).toBe("50 \\% of\\_it \\& \\{x\\} \\#1 \\textbackslash{}");
  });

  it("writes tables, maps and words", () => {
    expect(latexTable([["head", "share"], ["layer 1", 0.25], ["layer 2", null]])).toContain("layer 1 & 0.25 \\\\\nlayer 2 & -- \\\\");
    const map = latexMap([["", "a", "b"], ["a", 0.1, 0.9]], 1);
    expect(map).toContain("mesh/cols=2");
    expect(map).toContain("1 0 0.9");
    expect(latexWords([{ text: "a_b", colour: [1, 2, 3] }, { text: "c", colour: null }])).toContain("\\colorbox[RGB]{1,2,3}{\\strut a\\_b} c");
  });
});
