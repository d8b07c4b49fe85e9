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

/** The links at one end, strongest first, or those of all tokens; faint ones are left out. */
export function linksOf(
  maps: Grid[],
  shown: [number[], number[]],
  end: End | null,
  most: number,
  faintest: number,
): Link[] {
  const [queries, keys] = [
    end?.side === "query" ? [end.place] : shown[0],
    end?.side === "key" ? [end.place] : shown[1],
  ];
  const links: Link[] = [];
  const floor = queries.length * keys.length * maps.length > 4 * most ? thinned(maps, queries, keys, most, faintest) : faintest;
  maps.forEach((grid, head) => {
    for (const query of queries) {
      const start = query * grid.columns;
      for (const key of keys) {
        const value = grid.values[start + key];
        if (Math.abs(value) >= floor) links.push({ query, key, value, head });
      }
    }
  });
  return links.sort((one, two) => Math.abs(two.value) - Math.abs(one.value)).slice(0, most);
}

/** A size that about ``most`` of very many entries exceed, found by counting. */
function thinned(maps: Grid[], queries: number[], keys: number[], most: number, faintest: number): number {
  const counts = new Uint32Array(1024); // by the root of the size, up to one
  for (const grid of maps)
    for (const query of queries) {
      const start = query * grid.columns;
      for (const key of keys) {
        const size = Math.abs(grid.values[start + key]);
        if (size >= faintest) counts[Math.min(1023, Math.floor(1024 * size ** 0.25))]++;
      }
    }
  let [left, place] = [most, 1023];
  while (place > 0 && left > 0) left -= counts[place--];
  return Math.max(faintest, (place / 1024) ** 4);
}

/** What every token on the other side gets, all maps together. */
export function sums(links: Link[], end: End, count: number, maps: number): Float32Array {
  const total = new Float32Array(count);
  for (const link of links) total[end.side === "query" ? link.key : link.query] += link.value / maps;
  return total;
}
