// Tables: all heads, sortable; and the numbers of results that have no picture.

import { type Context, meaning, nameOf } from "./context";
import { caption, fill, h } from "./dom";
import { type Cell, exportsOf } from "./files";
import { number, yesOrNo } from "./format";
import type { Maps, Table } from "./model";
import { tip } from "./tips";

export function headTable(context: Context, maps: Maps): HTMLElement {
  const { store } = context;
  const known = [...maps.columns, ...maps.questions].filter((one) => one.help);
  const judged = maps.heads.some((head) => head.word);
  const columns = ["head", ...(judged ? ["verdict"] : []), ...maps.columns.map((one) => one.name), ...maps.questions.map((one) => one.name)];
  const rows = maps.heads.map((head) => [
    nameOf(maps.sites[head.site], head),
    ...(judged ? [head.word ?? ""] : []),
    ...maps.columns.map((one) => head.numbers[one.key] ?? null),
    ...maps.questions.map((one) => yesOrNo(head.answers?.[one.key] ?? null)),
  ]);
  const helps = ["", ...(judged ? [""] : []), ...[...maps.columns, ...maps.questions].map((one) => one.help)];
  const { element, body } = sortable(context, "heads", columns, rows, helps, (place) => store.set({ head: place }));
  store.watch(["head"], () => {
    for (const row of body.children)
      row.setAttribute("aria-selected", String((row as HTMLElement).dataset.place === String(store.now.head)));
  });
  return h(
    "section",
    { class: "heads", "aria-label": "table of heads" },
    h("h2", {}, "All heads in numbers"),
    caption("Choose a heading to sort by it, a row to open its head."),
    element,
    known.length > 0 &&
      h(
        "dl",
        { class: "glossary" },
        ...known.flatMap((one) => [h("dt", {}, one.name), h("dd", {}, one.help)]),
      ),
  );
}

export function tableView(context: Context, table: Table): HTMLElement {
  return h(
    "section",
    { class: "table", "aria-label": table.title },
    h("h2", {}, table.title),
    table.caption && caption(table.caption),
    sortable(context, table.title, table.columns, table.rows, table.columns.map((name) => meaning(context, name) ?? ""), null).element,
  );
}

export function sortable(
  context: Context,
  title: string,
  columns: string[],
  rows: Cell[][],
  helps: string[],
  choose: ((place: number) => void) | null,
): { element: HTMLElement; body: HTMLElement } {
  let by = -1;
  let falling = true;
  const body = h("tbody", {});
  const headings = columns.map((name, place) =>
    h(
      "th",
      { scope: "col" },
      tip(h("button", { type: "button", on: { click: () => sort(place) } }, name), helps[place]),
    ),
  );
  const lines = rows.map((row, place) => {
    const line = h(
      "tr",
      { "data-place": place },
      ...row.map((cell, column) =>
        tip(h(
          "td",
          { class: typeof cell === "string" ? "" : "figure", "data-word": columns[column] === "verdict" ? cell : null },
          typeof cell === "string"
            ? column === 0 && choose
              ? h("button", { type: "button", class: "link", on: { click: () => choose(place) } }, cell)
              : cell
            : number(cell),
        ), typeof cell === "number" ? helps[column] : "", false),
      ),
    );
    if (choose) line.addEventListener("click", () => choose(place));
    return line;
  });

  function sort(column: number): void {
    falling = by === column ? !falling : typeof rows[0]?.[column] !== "string";
    by = column;
    const order = rows.map((_, place) => place).sort((a, b) => {
      const difference = compared(rows[a][column], rows[b][column]);
      return falling ? -difference : difference;
    });
    headings.forEach((heading, place) =>
      place === column
        ? heading.setAttribute("aria-sort", falling ? "descending" : "ascending")
        : heading.removeAttribute("aria-sort"),
    );
    fill(body, ...order.map((place) => lines[place]));
  }

  fill(body, ...lines);
  const element = h(
    "div",
    {},
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title }, h("table", {}, h("thead", {}, h("tr", {}, ...headings)), body)),
    exportsOf(context, { name: () => title, rows: () => [columns, ...rows] }),
  );
  return { element, body };
}

export function compared(one: Cell, two: Cell): number {
  if (typeof one === "number" && typeof two === "number") return one - two;
  if (one === null || two === null) return (two === null ? 1 : 0) - (one === null ? 1 : 0);
  return String(one).localeCompare(String(two), "en", { numeric: true });
}
