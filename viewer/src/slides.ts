// The way from the model's weights to other valid ones, along which a head's output stays put.

import type { Slide } from "./model";
import type { Grid, Payload } from "./payload";

export class Slides {
  constructor(
    readonly rows: number[], // queries that can move
    private readonly own: Float32Array,
    private readonly other: Float32Array,
    private readonly values: Float32Array,
    private readonly keys: number,
    readonly width: number,
    readonly bits: number, // of the values
  ) {}

  static async load(payload: Payload, slide: Slide): Promise<Slides> {
    const bytes = await payload.bytes(slide.block);
    const size = slide.rows * slide.keys;
    const rows = new Float32Array(bytes.buffer, 0, slide.rows + 2 * size);
    const count = slide.keys * slide.width;
    const values =
      slide.bits === 32
        ? new Float32Array(bytes.buffer, rows.byteLength, count)
        : Float32Array.from(
            new Int16Array(bytes.buffer, rows.byteLength, count),
            (step) => (step / 32767) * slide.scale,
          );
    return new Slides(
      Array.from(rows.subarray(0, slide.rows)),
      rows.subarray(slide.rows, slide.rows + size),
      rows.subarray(slide.rows + size),
      values,
      slide.keys,
      slide.width,
      slide.bits,
    );
  }

  /** One row of weights, a share of the way to the alternative. */
  row(query: number, share: number): Float32Array | null {
    const place = this.rows.indexOf(query);
    if (place < 0) return null;
    const start = place * this.keys;
    return Float32Array.from({ length: this.keys }, (_, key) => {
      const from = this.own[start + key];
      return from + share * (this.other[start + key] - from);
    });
  }

  /** What the head makes of a row of weights: their average of the values. */
  output(row: Float32Array): Float64Array {
    const sum = new Float64Array(this.width);
    for (let key = 0; key < this.keys; key++)
      for (let part = 0; part < this.width; part++)
        sum[part] += row[key] * this.values[key * this.width + part];
    return sum;
  }

  /** The whole map with all its movable rows moved. */
  moved(grid: Grid, share: number): Grid {
    if (share === 0) return grid;
    const values = grid.values.slice();
    for (const query of this.rows) values.set(this.row(query, share)!, query * grid.columns);
    return { ...grid, values };
  }
}

/** Half the sum of absolute differences: the weight that has moved. */
export function distance(one: ArrayLike<number>, two: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < one.length; i++) sum += Math.abs(one[i] - two[i]);
  return sum / 2;
}

export function largestChange(one: ArrayLike<number>, two: ArrayLike<number>): number {
  let most = 0;
  for (let i = 0; i < one.length; i++) most = Math.max(most, Math.abs(one[i] - two[i]));
  return most;
}
