// One signed scale for all maps. Blue and orange differ for every common kind of colour blindness;
// the way between two anchors is taken in OKLab, so that equal steps look equal.

type Triple = [number, number, number];
type Anchors = [number, string][];

const LIGHT: Anchors = [
  [-1, "#0b2d5b"],
  [-0.66, "#1f6db3"],
  [-0.3, "#94c1e4"],
  [0, "#fbfaf6"],
  [0.3, "#f7c48f"],
  [0.66, "#d8611b"],
  [1, "#6d1b05"],
];
const DARK: Anchors = [
  [-1, "#d8ebff"],
  [-0.66, "#4d9ced"],
  [-0.3, "#214e7f"],
  [0, "#191b21"],
  [0.3, "#74401a"],
  [0.66, "#f28c3e"],
  [1, "#ffe6cb"],
];
const STEPS = 255; // on each side of zero
const NOISE = 1e-6; // rounding of numbers of size one: never painted
const SMALLEST = 1e-5; // no scale is stretched further, so that noise stays pale however alone it is

/** The smallest scale of words and patches: what moves an answer by a thousandth is not dark. */
export const FAINTEST_WORD = 0.01;

export class SignedScale {
  private readonly table: Uint8ClampedArray;
  private readonly pixels: Uint32Array;

  readonly limit: number;

  constructor(limit: number, dark: boolean) {
    this.limit = Math.max(limit, SMALLEST);
    this.table = tableOf(dark);
    this.pixels = pixelsOf(dark);
  }

  /** The colour of a value as one number, bytes in the order of an image; nothing for no number. */
  pixel(value: number): number {
    if (Number.isNaN(value)) return 0;
    const size = Math.abs(value);
    const share = size < NOISE ? 0 : Math.sqrt(Math.min(size / this.limit, 1));
    return this.pixels[STEPS + Math.round(STEPS * (value < 0 ? -share : share))];
  }

  /** Where on the scale a value lies, −1 to 1: the root keeps small weights visible. */
  static position(value: number, limit: number): number {
    if (!(limit > 0) || !(Math.abs(value) >= NOISE)) return 0;
    return Math.sign(value) * Math.sqrt(Math.min(Math.abs(value) / limit, 1));
  }

  rgb(value: number): Triple {
    const place = 3 * (STEPS + Math.round(STEPS * SignedScale.position(value, this.limit)));
    return [this.table[place], this.table[place + 1], this.table[place + 2]];
  }

  css(value: number): string {
    return `rgb(${this.rgb(value).join(" ")})`;
  }

  /** Ink that can be read on the colour of a value. */
  ink(value: number): string {
    return inkOn(this.rgb(value));
  }
}

/** Black or white, whichever stands out more (at least 4.5 to 1, as WCAG asks). */
export function inkOn(colour: number[]): string {
  const [red, green, blue] = colour.map((part) => linear(part / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

function linear(part: number): number {
  return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
}

const tables = new Map<boolean, Uint8ClampedArray>();

function tableOf(dark: boolean): Uint8ClampedArray {
  const known = tables.get(dark);
  if (known) return known;
  const anchors = (dark ? DARK : LIGHT).map(
    ([at, colour]) => [at, toLab(parse(colour))] as [number, Triple],
  );
  const table = new Uint8ClampedArray(3 * (2 * STEPS + 1));
  for (let step = -STEPS; step <= STEPS; step++) {
    const at = step / STEPS;
    const right = Math.max(1, anchors.findIndex(([place]) => place >= at));
    const [from, start] = anchors[right - 1];
    const [to, end] = anchors[right];
    const share = (at - from) / (to - from);
    const mixed = start.map((part, i) => part + share * (end[i] - part)) as Triple;
    table.set(fromLab(mixed), 3 * (step + STEPS));
  }
  tables.set(dark, table);
  return table;
}

const words = new Map<boolean, Uint32Array>();

function pixelsOf(dark: boolean): Uint32Array {
  const known = words.get(dark);
  if (known) return known;
  const table = tableOf(dark);
  const bytes = new Uint8Array((4 * table.length) / 3).fill(255);
  for (let at = 0; at < table.length; at++) bytes[at + Math.floor(at / 3)] = table[at];
  const pixels = new Uint32Array(bytes.buffer);
  words.set(dark, pixels);
  return pixels;
}

function parse(colour: string): Triple {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255) as Triple;
}

function toLab(rgb: Triple): Triple {
  const [r, g, b] = rgb.map(linear) as Triple;
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function fromLab([L, a, b]: Triple): Triple {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear: Triple = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((c) => 255 * (c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055)) as Triple;
}
