// From the text in the page to numbers: base64, then deflate, then 8- or 16-bit steps of a scale.

import type { Head, Header, Maps, Site } from "./model";

/** The numbers of one map, row by row. */
export interface Grid {
  rows: number;
  columns: number;
  values: Float32Array;
}

export type Grids = Record<string, Grid>;

const REMEMBERED = 32; // heads kept decoded

export class Payload {
  private readonly decoded = new Map<string, Promise<Grids>>();

  constructor(
    readonly header: Header,
    private readonly text: string,
  ) {}

  /** The bytes of a block. */
  async bytes(name: string): Promise<Uint8Array<ArrayBuffer>> {
    const place = this.header.blocks[name];
    if (!place) throw new Error(`the page has no block ${name}`);
    const packed = atob(this.text.slice(place[0], place[0] + place[1]));
    const bytes = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
    return inflated(bytes);
  }

  async floats(name: string): Promise<Float32Array> {
    return new Float32Array((await this.bytes(name)).buffer);
  }

  async doubles(name: string): Promise<Float64Array> {
    return new Float64Array((await this.bytes(name)).buffer);
  }

  /** All stored modes of one head, decoded when first asked for. */
  head(maps: Maps, head: Head): Promise<Grids> {
    const known = this.decoded.get(head.block);
    if (known) {
      this.decoded.delete(head.block);
      this.decoded.set(head.block, known);
      return known;
    }
    const fresh = this.decode(maps, head);
    this.decoded.set(head.block, fresh);
    const oldest = this.decoded.keys().next().value;
    if (this.decoded.size > REMEMBERED && oldest !== undefined) this.decoded.delete(oldest);
    return fresh;
  }

  private async decode(maps: Maps, head: Head): Promise<Grids> {
    const site = maps.sites[head.site];
    const bytes = await this.bytes(head.block);
    if (!maps.groups) return dense(bytes, maps, head, site);
    const range = site.visible ? new Uint16Array((await this.bytes(site.visible)).buffer) : null;
    return sparse(bytes, maps, head, site, range);
  }
}

/** Written straight into the stream: a Blob would make a round trip to another process. */
async function inflated(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const stream = new DecompressionStream("deflate");
  const writer = stream.writable.getWriter();
  const written = writer.write(bytes).then(() => writer.close());
  const parts: Uint8Array[] = [];
  let length = 0;
  const reader = stream.readable.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    parts.push(value);
    length += value.length;
  }
  await written;
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Every entry of every stored mode, one mode after the other. */
export function dense(
  bytes: Uint8Array<ArrayBuffer>,
  maps: Maps,
  head: Head,
  site: Site,
): Grids {
  const size = site.rows * site.columns;
  const grids: Grids = {};
  let at = 0;
  for (const mode of maps.modes) {
    if (mode.minus) continue;
    const steps =
      maps.bits === 16
        ? new Int16Array(bytes.buffer, at, size)
        : new Int8Array(bytes.buffer, at, size);
    at += steps.byteLength;
    grids[mode.key] = {
      rows: site.rows,
      columns: site.columns,
      values: unscaled(steps, maps.bits, head.scales[mode.key] ?? 0),
    };
  }
  return grids;
}

/**
 * The largest entries of every row. Modes of a group share their places: steps from place to place
 * (high bytes, low bytes), then for each mode its values and, row by row, the mean of the rest,
 * which is drawn where the row can see and nothing was kept.
 */
export function sparse(
  bytes: Uint8Array<ArrayBuffer>,
  maps: Maps,
  head: Head,
  site: Site,
  range: Uint16Array | null,
): Grids {
  const grids: Grids = {};
  let at = 0;
  for (const group of maps.groups ?? []) {
    const count = group.count;
    const entries = site.rows * count;
    const places = new Uint16Array(entries);
    for (let row = 0; row < site.rows; row++) {
      let place = 0;
      for (let entry = row * count; entry < (row + 1) * count; entry++) {
        place += bytes[at + entry] * 256 + bytes[at + entries + entry];
        places[entry] = place;
      }
    }
    at += 2 * entries;
    for (const key of group.modes) {
      const kept = new Int8Array(bytes.buffer, at, entries);
      const rests = new Int8Array(bytes.buffer, at + entries, site.rows);
      at += entries + site.rows;
      const scales: [number, number] = [head.scales[key] ?? 0, head.rests[key] ?? 0];
      whenAsked(grids, key, () => spread(site, places, kept, rests, scales, range));
    }
  }
  return grids;
}

/** A map that is made when it is first looked at: a layer of long texts has millions of numbers. */
function whenAsked(grids: Grids, key: string, make: () => Grid): void {
  let made: Grid | null = null;
  Object.defineProperty(grids, key, { enumerable: true, get: () => (made ??= make()) });
}

/** Kept entries at their places, and elsewhere the mean of the rest of the row. */
function spread(
  site: Site,
  places: Uint16Array,
  kept: Int8Array,
  rests: Int8Array,
  scales: [number, number],
  range: Uint16Array | null,
): Grid {
  const count = kept.length / site.rows;
  const [large, small] = [unscaled(kept, 8, scales[0]), unscaled(rests, 8, scales[1])];
  const values = new Float32Array(site.rows * site.columns);
  for (let row = 0; row < site.rows; row++) {
    const start = row * site.columns;
    const first = range ? range[2 * row] : 0;
    const last = range ? range[2 * row + 1] : site.columns - 1;
    values.fill(small[row], start + first, start + last + 1);
    for (let entry = row * count; entry < (row + 1) * count; entry++) values[start + places[entry]] = large[entry];
  }
  return { rows: site.rows, columns: site.columns, values };
}

function unscaled(steps: Int8Array | Int16Array, bits: number, scale: number): Float32Array {
  const most = 2 ** (bits - 1) - 1;
  const values = new Float32Array(steps.length);
  for (let at = 0; at < steps.length; at++)
    values[at] = steps[at] < -most ? NaN : (steps[at] / most) * scale;
  return values;
}

/** A mode of a head, also one that is the difference of two others. */
export function shown(grids: Grids, maps: Maps, key: string): Grid {
  const mode = maps.modes.find((one) => one.key === key);
  if (!mode?.minus) return grids[key];
  const [left, right] = mode.minus.map((part) => grids[part]);
  return {
    rows: left.rows,
    columns: left.columns,
    values: left.values.map((value, place) => value - right.values[place]),
  };
}
