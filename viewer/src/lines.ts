// Which links of a map are drawn as lines: those of one token, or the strongest of all.

import type { Grid } from "./payload";

export interface Link {
  query: number;
  key: number;
  value: number;
  head: number; // which of the maps it is of
}

/** A token on one side: as one that looks, or as one that is looked at. */
export interface End {
  side: "query" | "key";
  place: number;
}

/** The links that are drawn, strongest first, and how many there are that are not too faint. */
export interface Links {
  drawn: Link[];
  all: number;
}

/** The links at one end, or those of all tokens; of very many, the strongest. */
export function linksOf(maps: Grid[], shown: [number[], number[]], end: End | null, most: number, faintest: number): Links {
  const [queries, keys] = [
    end?.side === "query" ? [end.place] : shown[0],
    end?.side === "key" ? [end.place] : shown[1],
  ];
  const [floor, all] = thinned(maps, queries, keys, most, faintest);
  const links: Link[] = [];
  maps.forEach((grid, head) => {
    for (const query of queries) {
      const start = query * grid.columns;
      for (const key of keys) {
        const value = grid.values[start + key];
        if (value >= floor || -value >= floor) links.push({ query, key, value, head });
      }
    }
  });
  return { drawn: links.sort((one, two) => Math.abs(two.value) - Math.abs(one.value)).slice(0, most), all };
}

const STEPS = 1024;

/** A size that at least ``most`` entries reach, if there are so many; found by counting, not sorting. */
function thinned(maps: Grid[], queries: number[], keys: number[], most: number, faintest: number): [number, number] {
  const counts = new Uint32Array(STEPS); // by the fourth root of the size, up to one
  for (const { columns, values } of maps)
    for (const query of queries) {
      const start = query * columns;
      for (const key of keys) {
        const size = Math.abs(values[start + key]);
        if (size >= faintest) counts[Math.min(STEPS - 1, Math.floor(STEPS * Math.sqrt(Math.sqrt(size))))]++;
      }
    }
  const all = counts.reduce((sum, count) => sum + count, 0);
  let [left, place] = [most, STEPS];
  while (place > 0 && left > 0) left -= counts[--place];
  return [left > 0 ? faintest : Math.max(faintest, (place / STEPS) ** 4), all];
}

/** Lines of one look: a path for each, so that a thousand lines are a few dozen elements. */
export interface Strand {
  kind: string;
  strength: number; // of the strongest link, in steps
  links: Link[];
}

/** The links by kind and strength, the faintest first: what is drawn later lies above. */
export function strandsOf(links: Link[], kindOf: (link: Link) => string, strongest: number, steps: number): Strand[] {
  const strands = new Map<string, Strand>();
  for (const link of links) {
    const kind = kindOf(link);
    const step = Math.max(1, Math.ceil((steps * Math.abs(link.value)) / strongest));
    const name = `${step} ${kind}`;
    if (!strands.has(name)) strands.set(name, { kind, strength: step / steps, links: [] });
    strands.get(name)!.links.push(link);
  }
  return [...strands.values()].sort((one, two) => one.strength - two.strength);
}

/** What every token on the other side gets, all maps together. */
export function sums(links: Link[], end: End, count: number, maps: number): Float32Array {
  const total = new Float32Array(count);
  for (const link of links) total[end.side === "query" ? link.key : link.query] += link.value / maps;
  return total;
}
