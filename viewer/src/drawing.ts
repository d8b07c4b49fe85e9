// A map of numbers on a canvas: one pixel a cell, enlarged without blur, with its tokens beside it.

import type { SignedScale } from "./colour";
import { shorter, word } from "./format";
import type { Grid } from "./payload";

export interface Plan {
  left: number;
  top: number;
  cell: number; // side of a cell in CSS pixels
  width: number;
  height: number;
  rows: number[]; // positions shown
  columns: number[];
  labelled: boolean;
}

const LARGEST_CELL = 32;
const LABELLED_FROM = 8.5; // CSS pixels a cell
const FONT = '"Avenir Next", "Segoe UI", system-ui, sans-serif';

/** How large everything is drawn in the room there is. */
export function planned(
  room: number,
  rows: number[],
  columns: number[],
  names: [string[], string[]],
): Plan {
  const longest = (tokens: string[], places: number[]) =>
    Math.max(0, ...places.map((place) => Math.min(word(tokens[place]).length, 12)));
  const size = (cell: number) => Math.min(12, Math.max(8, cell * 0.62));
  const sides = (cell: number) => {
    const letter = 0.58 * size(cell);
    const text = cell >= LABELLED_FROM;
    return [
      text ? 12 + letter * longest(names[0], rows) : 2,
      text ? 12 + letter * longest(names[1], columns) : 2,
    ];
  };
  let cell = Math.min(LARGEST_CELL, room / Math.max(columns.length, 1));
  for (let pass = 0; pass < 3; pass++)
    cell = Math.min(LARGEST_CELL, (room - sides(cell)[0] - 2) / Math.max(columns.length, 1));
  if (cell > 3) cell = Math.floor(cell * 4) / 4;
  const [left, top] = sides(cell);
  return {
    left,
    top,
    cell,
    width: left + cell * columns.length + 2,
    height: top + cell * rows.length + 2,
    rows,
    columns,
    labelled: cell >= LABELLED_FROM,
  };
}

export interface Ink {
  text: string;
  faint: string;
  accent: string;
}

export function draw(
  canvas: HTMLCanvasElement,
  plan: Plan,
  grid: Grid,
  scale: SignedScale,
  names: [string[], string[]],
  ink: Ink,
  marks: { query: number; hover: [number, number] | null },
): void {
  const ratio = Math.max(window.devicePixelRatio || 1, 1);
  canvas.width = Math.round(plan.width * ratio);
  canvas.height = Math.round(plan.height * ratio);
  canvas.style.width = `${plan.width}px`;
  canvas.style.height = `${plan.height}px`;
  const pen = canvas.getContext("2d")!;
  pen.scale(ratio, ratio);
  const wide = plan.cell * plan.columns.length;
  const high = plan.cell * plan.rows.length;
  if (!plan.rows.length || !plan.columns.length) return;
  pen.imageSmoothingEnabled = plan.cell < 1;
  pen.drawImage(pixels(grid, plan, scale), plan.left, plan.top, wide, high);
  if (plan.cell >= 7) lattice(pen, plan, ink);
  pen.strokeStyle = ink.faint;
  pen.lineWidth = 1;
  pen.strokeRect(plan.left - 0.5, plan.top - 0.5, wide + 1, high + 1);
  const chosen = plan.rows.indexOf(marks.query);
  if (plan.labelled) labels(pen, plan, names, ink, chosen, marks.hover);
  pen.strokeStyle = ink.accent;
  pen.lineWidth = 1.5;
  if (chosen >= 0)
    pen.strokeRect(plan.left - 1, plan.top + chosen * plan.cell - 0.5, wide + 2, plan.cell + 1);
  if (marks.hover) {
    const row = plan.rows.indexOf(marks.hover[0]);
    const column = plan.columns.indexOf(marks.hover[1]);
    const side = Math.max(plan.cell, 4);
    if (row >= 0 && column >= 0)
      pen.strokeRect(
        plan.left + column * plan.cell - (side - plan.cell) / 2,
        plan.top + row * plan.cell - (side - plan.cell) / 2,
        side,
        side,
      );
  }
}

/** The cell of the map under a point of the canvas. */
export function cellAt(plan: Plan, x: number, y: number): [number, number] | null {
  const column = Math.floor((x - plan.left) / plan.cell);
  const row = Math.floor((y - plan.top) / plan.cell);
  if (row < 0 || column < 0 || row >= plan.rows.length || column >= plan.columns.length) return null;
  return [plan.rows[row], plan.columns[column]];
}

export function pixels(grid: Grid, plan: Plan, scale: SignedScale): HTMLCanvasElement {
  const sheet = document.createElement("canvas");
  sheet.width = plan.columns.length;
  sheet.height = plan.rows.length;
  const pen = sheet.getContext("2d")!;
  const image = pen.createImageData(sheet.width, sheet.height);
  const whole = new Uint32Array(image.data.buffer); // a pixel at a time: half a million are many
  let at = 0;
  for (const row of plan.rows) {
    const start = row * grid.columns;
    for (const column of plan.columns) whole[at++] = scale.pixel(grid.values[start + column]);
  }
  pen.putImageData(image, 0, 0);
  return sheet;
}

function lattice(pen: CanvasRenderingContext2D, plan: Plan, ink: Ink): void {
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

function labels(
  pen: CanvasRenderingContext2D,
  plan: Plan,
  names: [string[], string[]],
  ink: Ink,
  chosen: number,
  hover: [number, number] | null,
): void {
  const size = Math.min(12, Math.max(8, plan.cell * 0.62));
  const font = (strong: boolean) => `${strong ? 700 : 400} ${size}px ${FONT}`;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  plan.rows.forEach((position, row) => {
    const strong = row === chosen || hover?.[0] === position;
    pen.font = font(strong);
    pen.fillStyle = strong ? ink.accent : ink.text;
    const name = shorter(word(names[0][position]), 12);
    pen.fillText(name, plan.left - 6, plan.top + (row + 0.5) * plan.cell);
  });
  pen.textAlign = "left";
  plan.columns.forEach((position, column) => {
    pen.font = font(hover?.[1] === position);
    pen.fillStyle = hover?.[1] === position ? ink.accent : ink.text;
    pen.save();
    pen.translate(plan.left + (column + 0.5) * plan.cell, plan.top - 6);
    pen.rotate(-Math.PI / 2);
    pen.fillText(shorter(word(names[1][position]), 12), 0, 0);
    pen.restore();
  });
}
