import { describe, expect, it } from "vitest";
import type { Head, Maps, Site } from "../src/model";
import { dense, shown, sparse } from "../src/payload";

const site: Site = { name: "", short: "", queries: "", keys: "", rows: 2, columns: 4, heads: 1 };
const head = (scales: Record<string, number>, rests = {}): Head => ({
  site: 0,
  head: 0,
  block: "",
  scales,
  rests,
  kept: {},
  numbers: {},
});
const mode = (key: string, minus?: [string, string]) => ({
  key,
  name: key,
  caption: "",
  limit: 1,
  signed: true,
  ...(minus ? { minus } : {}),
});
const maps = (more: Partial<Maps>): Maps => ({
  modes: [mode("raw"), mode("effective"), mode("difference", ["effective", "raw"])],
  sites: [site],
  heads: [],
  columns: [],
  questions: [],
  words: [],
  bits: 8,
  groups: null,
  note: "",
  ...more,
});

describe("dense maps", () => {
  it("are steps of the head's scale, and the lowest step is no number", () => {
    const bytes = new Uint8Array(new Int8Array([127, -127, 0, -128, 1, 2, 3, 4, ...Array(8).fill(127)]).buffer);
    const grids = dense(bytes, maps({}), head({ raw: 2, effective: 1 }), site);
    expect(Array.from(grids.raw.values.slice(0, 3))).toEqual([2, -2, 0]);
    expect(grids.raw.values[3]).toBeNaN();
    expect(grids.effective.values[7]).toBe(1);
  });

  it("may be finer", () => {
    const bytes = new Uint8Array(new Int16Array([32767, ...Array(15).fill(0)]).buffer);
    const grids = dense(bytes, maps({ bits: 16 }), head({ raw: 0.5, effective: 1 }), site);
    expect(grids.raw.values[0]).toBe(0.5);
  });

  it("give a difference that is not stored", () => {
    const bytes = new Uint8Array(new Int8Array([...Array(8).fill(127), ...Array(8).fill(-127)]).buffer);
    const grids = dense(bytes, maps({}), head({ raw: 1, effective: 1 }), site);
    expect(Array.from(shown(grids, maps({}), "difference").values)).toEqual(Array(8).fill(-2));
  });
});

describe("sparse maps", () => {
  it("keep the largest entries and spread the rest over what a row can see", () => {
    const one = maps({ modes: [mode("raw")], groups: [{ modes: ["raw"], count: 1 }] });
    const bytes = new Uint8Array([0, 0, 2, 1, 127, 64, 127, 0]); // high, low, values, rests
    const range = new Uint16Array([0, 2, 0, 3]);
    const grids = sparse(bytes, one, head({ raw: 1 }, { raw: 0.1 }), site, range);
    const [first, second] = [grids.raw.values.slice(0, 4), grids.raw.values.slice(4)];
    expect(Array.from(first, (value) => Number(value.toFixed(3)))).toEqual([0.1, 0.1, 1, 0]);
    expect(Array.from(second, (value) => Number(value.toFixed(3)))).toEqual([0, 0.504, 0, 0]);
  });
});
