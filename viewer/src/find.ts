// Find a word: it is marked in the text, the map and the lines, and the map goes where it is.

import { type Context, matches, type Opened } from "./context";
import { h } from "./dom";

/** A box to type into; the site that is open says which tokens can be found. */
export function findBox(context: Context, opened: () => Opened | null): HTMLElement {
  const { store } = context;
  const count = h("output", { class: "caption count", "aria-live": "polite" });
  const input = h("input", {
    type: "search",
    placeholder: "find a word",
    "aria-label": "find a word",
    on: {
      input: () => {
        store.set({ find: input.value, match: 0 });
        go(0);
      },
      keydown: (event) => {
        if (event.key === "Enter") go(event.shiftKey ? -1 : 1);
        if (event.key === "Escape") store.set({ find: "", match: 0 });
        else if (event.key !== "Enter") return;
        event.preventDefault();
      },
    },
  });

  function places(): number[] {
    const site = opened()?.site;
    if (!site) return [];
    const queries = [...matches(context, site.queries)];
    return queries.length ? queries : [...matches(context, site.keys)];
  }

  function go(step: number): void {
    const found = places();
    if (!found.length) return;
    const match = (store.now.match + step + found.length) % found.length;
    const site = opened()!.site;
    const asQuery = matches(context, site.queries).has(found[match]);
    store.set({ match, ...(asQuery ? { query: found[match] } : {}) });
  }

  store.watch(["find", "match", "head"], () => {
    if (input.value !== store.now.find) input.value = store.now.find;
    const found = places();
    count.textContent = !store.now.find ? "" : found.length ? `${Math.min(store.now.match + 1, found.length)} of ${found.length}` : "not in this text";
  });
  const step = (name: string, by: number, sign: string) =>
    h("button", { type: "button", class: "quiet step", "aria-label": name, on: { click: () => go(by) } }, sign);
  return h("div", { class: "find", role: "search" }, input, step("previous place", -1, "↑"), step("next place", 1, "↓"), count);
}
