// Taking things away: tables to the clipboard, pictures to files.

import type { Context } from "./context";
import { h, s } from "./dom";
import { number } from "./format";
import { latexTable } from "./latex";

export type Cell = string | number | null;

/** What of a panel can be taken away; a picture is a drawing, or a canvas that is there anyway. */
export interface Taken {
  name: () => string; // of the file, without its ending
  rows: () => Cell[][];
  latex?: () => string; // where a table is not the best
  drawing?: () => SVGSVGElement | null; // where a picture of the table is not the best
  canvas?: HTMLCanvasElement;
}

/** The buttons below a panel: CSV and LaTeX to the clipboard, SVG and PNG to files. */
export function exportsOf(context: Context, taken: Taken): HTMLElement {
  const button = (label: string, run: () => void) =>
    h("button", { type: "button", class: "quiet", on: { click: run } }, label);
  const file = (ending: string) => `${taken.name().replace(/[^\w-]+/gu, "-")}.${ending}`;
  const drawn = (use: (drawing: SVGSVGElement) => void) => {
    const drawing = taken.drawing ? taken.drawing() : tableDrawing(taken.rows());
    if (drawing) inPage(context, drawing, use);
  };
  const png = () =>
    taken.canvas ? savePng(taken.canvas, file("png")) : drawn((drawing) => void saveDrawingAsPng(drawing, file("png")));
  return h(
    "div",
    { class: "exports" },
    button("Copy CSV", () => void copy(context, csv(taken.rows()), "CSV")),
    button("Copy LaTeX", () => void copy(context, taken.latex ? taken.latex() : latexTable(taken.rows()), "LaTeX")),
    button("Save SVG", () => drawn((drawing) => save(new Blob([svgText(drawing)], { type: "image/svg+xml" }), file("svg")))),
    button("Save PNG", png),
  );
}

/** Rows as CSV, quoted where a cell needs it. */
export function csv(rows: Cell[][]): string {
  const cell = (value: Cell) => {
    const text = value === null ? "" : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

export async function copy(context: Context, text: string, kind: "CSV" | "LaTeX"): Promise<void> {
  const lines = text.split("\n").length - 1;
  try {
    await navigator.clipboard.writeText(text);
    context.say(`Copied ${lines} lines of ${kind}.`);
  } catch {
    const ending = kind === "CSV" ? "csv" : "tex";
    save(new Blob([text], { type: kind === "CSV" ? "text/csv" : "text/x-tex" }), `exhibit-a.${ending}`);
    context.say(`The clipboard is closed to this page, so ${lines} lines were saved to a file.`);
  }
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function savePng(canvas: HTMLCanvasElement, name: string): void {
  canvas.toBlob((blob) => blob && save(blob, name), "image/png");
}

const SHARP = 2; // pixels of a saved picture to a CSS pixel

async function saveDrawingAsPng(drawing: SVGSVGElement, name: string): Promise<void> {
  const { width, height } = drawing.viewBox.baseVal;
  const paper = getComputedStyle(drawing).getPropertyValue("--paper").trim();
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(drawing))}`;
  await image.decode();
  const canvas = h("canvas", { width: Math.ceil(SHARP * width), height: Math.ceil(SHARP * height) });
  const pen = canvas.getContext("2d")!;
  pen.fillStyle = paper || "#fff";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  savePng(canvas, name);
}

/** Styles are only known of what is in the page: a drawing that is not gets a place for a moment. */
function inPage(context: Context, drawing: SVGSVGElement, use: (drawing: SVGSVGElement) => void): void {
  const guest = !drawing.isConnected;
  if (guest) context.workshop.append(drawing);
  use(drawing);
  if (guest) drawing.remove();
}

function svgText(drawing: SVGSVGElement): string {
  const own = drawing.cloneNode(true) as SVGSVGElement;
  own.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  own.setAttribute("font-family", "system-ui, sans-serif");
  const resolved = getComputedStyle(drawing);
  own.setAttribute("color", resolved.color);
  own.setAttribute("fill", resolved.color);
  const originals = [drawing, ...drawing.querySelectorAll("*")];
  [own, ...own.querySelectorAll("*")].forEach((element, place) => {
    const style = getComputedStyle(originals[place]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-opacity", "font-size", "font-weight", "opacity"])
      element.setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "role"]) element.removeAttribute(name);
  });
  return new XMLSerializer().serializeToString(own);
}

const LETTER = 6.6; // CSS pixels, about
const ROW = 20;

/** A table as a drawing: text in columns, the first row above a rule. */
function tableDrawing(rows: Cell[][]): SVGSVGElement {
  const texts = rows.map((row) => row.map((cell) => (typeof cell === "string" ? cell : number(cell))));
  const widths = texts[0].map((_, column) => LETTER * Math.max(...texts.map((row) => (row[column] ?? "").length)) + 18);
  const lefts = widths.map((_, column) => widths.slice(0, column).reduce((sum, width) => sum + width, 8));
  const [width, height] = [lefts.at(-1)! + widths.at(-1)!, ROW * texts.length + 12];
  const drawing = s("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  texts.forEach((row, place) =>
    row.forEach((text, column) =>
      drawing.append(s("text", { class: place ? "key" : "value", x: lefts[column], y: ROW * (place + 1) - 4 }, text)),
    ),
  );
  drawing.append(s("line", { class: "axis", x1: 8, x2: width - 8, y1: ROW + 2, y2: ROW + 2 }));
  return drawing;
}
