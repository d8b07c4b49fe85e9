// Taking things away: tables to the clipboard, pictures to files.

import type { Context } from "./context";

/** Rows as CSV, quoted where a cell needs it. */
export function csv(rows: (string | number | null)[][]): string {
  const cell = (value: string | number | null) => {
    const text = value === null ? "" : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

export async function copy(context: Context, text: string): Promise<void> {
  const lines = text.split("\n").length - 1;
  try {
    await navigator.clipboard.writeText(text);
    context.say(`Copied ${lines} lines of CSV.`);
  } catch {
    save(new Blob([text], { type: "text/csv" }), "exhibit-a.csv");
    context.say(`The clipboard is closed to this page, so ${lines} lines were saved to a file.`);
  }
}

export function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export function savePng(canvas: HTMLCanvasElement, name: string): void {
  canvas.toBlob((blob) => blob && save(blob, name), "image/png");
}

export function saveSvg(drawing: SVGSVGElement, name: string): void {
  const own = drawing.cloneNode(true) as SVGSVGElement;
  own.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  own.setAttribute("font-family", "system-ui, sans-serif");
  const resolved = getComputedStyle(drawing);
  own.setAttribute("color", resolved.color);
  own.setAttribute("fill", resolved.color);
  const originals = [drawing, ...drawing.querySelectorAll("*")];
  [own, ...own.querySelectorAll("*")].forEach((element, place) => {
    const style = getComputedStyle(originals[place]);
    for (const name of ["fill", "stroke", "stroke-width", "font-size", "opacity"])
      element.setAttribute(name, style.getPropertyValue(name));
    element.removeAttribute("class");
  });
  const text = new XMLSerializer().serializeToString(own);
  save(new Blob([text], { type: "image/svg+xml" }), name);
}
