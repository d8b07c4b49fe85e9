// A map of numbers on a canvas: one pixel a cell, enlarged without blur, with its tokens beside it.

import type { SignedScale } from "./colour";
import { shorter, word } from "./format";
import type { Grid } from "./payload";

export interface Plan {
  left: number;
  top: number;
  cell: number; // side of a cell in CSS pixels
  width: number; // of what is seen
  height: number;
  whole: [number, number]; // width and height if everything were seen
  rows: number[]; // positions shown
  columns: number[];
}

export interface Window {
  zoom: number; // CSS pixels a cell; 0: as large as there is room
  tallest: number; // CSS pixels a zoomed map may take
}

const FIT: Window = { zoom: 0, tallest: Infinity };
const LARGEST_CELL = 32;
const LINE = 10.5; // CSS pixels a label needs
const LONGEST = 12; // letters of a label
const FONT = '"Avenir Next", "Segoe UI", system-ui, sans-serif';

/** How large everything is drawn in the room there is; labels always have theirs. */
export function planned(
  room: number,
  rows: number[],
  columns: number[],
  names: [string[], string[]],
  window: Window = FIT,
): Plan {
  const longest = (tokens: string[], places: number[]) =>
    Math.max(0, ...places.map((place) => Math.min(word(tokens[place]).length, LONGEST)));
  const letters = [longest(names[0], rows), longest(names[1], columns)];
  const sides = (cell: number) => letters.map((count) => 12 + 0.58 * letterSize(cell) * count);
  let cell = window.zoom || Math.min(LARGEST_CELL, room / Math.max(columns.length, 1));
  for (let pass = 0; pass < 3 && !window.zoom; pass++)
    cell = Math.min(LARGEST_CELL, (room - sides(cell)[0] - 2) / Math.max(columns.length, 1));
  if (cell > 3 && !window.zoom) cell = Math.floor(cell * 4) / 4;
  const [left, top] = sides(cell);
  const whole: [number, number] = [left + cell * columns.length + 2, top + cell * rows.length + 2];
  return {
    left,
    top,
    cell,
    width: Math.min(whole[0], Math.max(room, left + cell)),
    height: window.zoom ? Math.min(whole[1], window.tallest) : whole[1],
    whole,
    rows,
    columns,
  };
}

function letterSize(cell: number): number {
  return Math.min(12, Math.max(9, cell * 0.62));
}

export interface Ink {
  text: string;
  faint: string;
  accent: string;
  paper: string;
}

export interface Marks {
  query: number;
  hover: [number, number] | null;
  found?: [Set<number>, Set<number>]; // positions of a word that is looked for, as query and key
  scrolled?: [number, number]; // how far the reader has gone, in CSS pixels
}

export function draw(
  canvas: HTMLCanvasElement,
  plan: Plan,
  grid: Grid,
  scale: SignedScale,
  names: [string[], string[]],
  ink: Ink,
  marks: Marks,
): void {
  const ratio = Math.max(window.devicePixelRatio || 1, 1);
  canvas.width = Math.round(plan.width * ratio);
  canvas.height = Math.round(plan.height * ratio);
  canvas.style.width = `${plan.width}px`;
  canvas.style.height = `${plan.height}px`;
  const pen = canvas.getContext("2d")!;
  pen.scale(ratio, ratio);
  if (!plan.rows.length || !plan.columns.length) return;
  const seen = seenOf(plan, marks.scrolled ?? [0, 0]);
  pen.save();
  pen.beginPath();
  pen.rect(plan.left - 2, plan.top - 2, plan.width - plan.left + 2, plan.height - plan.top + 2);
  pen.clip();
  pen.imageSmoothingEnabled = plan.cell < 1;
  const [wide, high] = [plan.cell * seen.columns.length, plan.cell * seen.rows.length];
  pen.drawImage(pixels(grid, seen, scale), seen.left, seen.top, wide, high);
  if (plan.cell >= 7) lattice(pen, seen, ink);
  pen.strokeStyle = ink.faint;
  pen.lineWidth = 1;
  pen.strokeRect(seen.left - 0.5, seen.top - 0.5, wide + 1, high + 1);
  outline(pen, seen, ink, marks);
  pen.restore();
  labels(pen, seen, plan, names, ink, marks);
}

/** What is seen of a map: its first row and column may begin outside. */
type Seen = Pick<Plan, "left" | "top" | "cell" | "rows" | "columns">;

function seenOf(plan: Plan, [right, down]: [number, number]): Seen {
  const { cell } = plan;
  const [column, row] = [Math.floor(right / cell), Math.floor(down / cell)];
  return {
    cell,
    left: plan.left - right + column * cell,
    top: plan.top - down + row * cell,
    rows: plan.rows.slice(row, row + Math.ceil((plan.height - plan.top) / cell) + 1),
    columns: plan.columns.slice(column, column + Math.ceil((plan.width - plan.left) / cell) + 1),
  };
}

/** The chosen row, the cell under the pointer, and the rows and columns of a word that was found. */
function outline(pen: CanvasRenderingContext2D, seen: Seen, ink: Ink, marks: Marks): void {
  const { left, top, cell } = seen;
  const [wide, high] = [cell * seen.columns.length, cell * seen.rows.length];
  pen.strokeStyle = ink.accent;
  pen.fillStyle = ink.accent;
  pen.globalAlpha = 0.18;
  const thick = Math.max(cell, 2);
  seen.rows.forEach((position, row) => marks.found?.[0].has(position) && pen.fillRect(left, top + row * cell, wide, thick));
  seen.columns.forEach((position, column) => marks.found?.[1].has(position) && pen.fillRect(left + column * cell, top, thick, high));
  pen.globalAlpha = 1;
  pen.lineWidth = 1.5;
  const chosen = seen.rows.indexOf(marks.query);
  if (chosen >= 0) pen.strokeRect(left - 1, top + chosen * cell - 0.5, wide + 2, cell + 1);
  const row = seen.rows.indexOf(marks.hover?.[0] ?? -1);
  const column = seen.columns.indexOf(marks.hover?.[1] ?? -1);
  if (row < 0 || column < 0) return;
  const side = Math.max(cell, 4);
  const inset = (side - cell) / 2;
  pen.strokeRect(left + column * cell - inset, top + row * cell - inset, side, side);
}

/** The cell of the map under a point of the canvas. */
export function cellAt(plan: Plan, x: number, y: number, [right, down]: [number, number] = [0, 0]): [number, number] | null {
  if (x < plan.left || y < plan.top) return null;
  const column = Math.floor((x - plan.left + right) / plan.cell);
  const row = Math.floor((y - plan.top + down) / plan.cell);
  if (row >= plan.rows.length || column >= plan.columns.length) return null;
  return [plan.rows[row], plan.columns[column]];
}

export function pixels(grid: Grid, seen: Pick<Plan, "rows" | "columns">, scale: SignedScale): HTMLCanvasElement {
  const sheet = document.createElement("canvas");
  sheet.width = seen.columns.length;
  sheet.height = seen.rows.length;
  const pen = sheet.getContext("2d")!;
  const image = pen.createImageData(sheet.width, sheet.height);
  const whole = new Uint32Array(image.data.buffer); // a pixel at a time: half a million are many
  let at = 0;
  for (const row of seen.rows) {
    const start = row * grid.columns;
    for (const column of seen.columns) whole[at++] = scale.pixel(grid.values[start + column]);
  }
  pen.putImageData(image, 0, 0);
  return sheet;
}

function lattice(pen: CanvasRenderingContext2D, plan: Seen, ink: Ink): void {
  pen.strokeStyle = ink.faint;
  pen.globalAlpha = 0.35;
  pen.lineWidth = 0.5;
  pen.beginPath();
  for (let i = 1; i < plan.columns.length; i++) {
    pen.moveTo(plan.left + i * plan.cell, plan.top);
    pen.lineTo(plan.left + i * plan.cell, plan.top + plan.cell * plan.rows.length);
  }
  for (let i = 1; i < plan.rows.length; i++) {
    pen.moveTo(plan.left, plan.top + i * plan.cell);
    pen.lineTo(plan.left + plan.cell * plan.columns.length, plan.top + i * plan.cell);
  }
  pen.stroke();
  pen.globalAlpha = 1;
}

/** The labels that are written: all where there is room, otherwise some, and always the marked. */
export function labelled(positions: number[], cell: number, strong: (position: number) => boolean): number[] {
  const step = Math.max(1, Math.ceil(LINE / cell));
  const marked = positions.flatMap((position, place) => (strong(position) ? [place] : []));
  const written = new Set<number>();
  let last = -step;
  for (const place of marked)
    if (place - last >= step) {
      written.add(place);
      last = place;
    }
  const near = (place: number) => marked.some((one) => one !== place && Math.abs(one - place) < step && written.has(one));
  positions.forEach((position, place) => position % step === 0 && !near(place) && written.add(place));
  return [...written];
}

function labels(
  pen: CanvasRenderingContext2D,
  seen: Seen,
  plan: Plan,
  names: [string[], string[]],
  ink: Ink,
  marks: Marks,
): void {
  const { cell } = seen;
  const { hover, found } = marks;
  const font = (strong: boolean) => `${strong ? 700 : 400} ${letterSize(cell)}px ${FONT}`;
  const ready = (strong: boolean) => {
    pen.font = font(strong);
    pen.fillStyle = strong ? ink.accent : ink.text;
  };
  const strongRow = (position: number) => position === marks.query || position === hover?.[0] || Boolean(found?.[0].has(position));
  const strongColumn = (position: number) => position === hover?.[1] || Boolean(found?.[1].has(position));
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (const row of labelled(seen.rows, cell, strongRow)) {
    const y = seen.top + (row + 0.5) * cell;
    if (y < plan.top || y > plan.height) continue;
    ready(strongRow(seen.rows[row]));
    pen.fillText(shorter(word(names[0][seen.rows[row]]), LONGEST), plan.left - 6, y);
  }
  pen.textAlign = "left";
  for (const column of labelled(seen.columns, cell, strongColumn)) {
    const x = seen.left + (column + 0.5) * cell;
    if (x < plan.left || x > plan.width) continue;
    ready(strongColumn(seen.columns[column]));
    pen.save();
    pen.translate(x, plan.top - 6);
    pen.rotate(-Math.PI / 2);
    pen.fillText(shorter(word(names[1][seen.columns[column]]), LONGEST), 0, 0);
    pen.restore();
  }
}
