// Everything can be reached without a mouse.

import type { Context } from "./context";

/** Listen for keys; what it returns stops listening. */
export function listen(context: Context, where: EventTarget, theme: () => void): () => void {
  const handle = (event: Event) => {
    if (event instanceof KeyboardEvent && act(context, event, theme)) event.preventDefault();
  };
  where.addEventListener("keydown", handle);
  return () => where.removeEventListener("keydown", handle);
}

function act(context: Context, event: KeyboardEvent, theme: () => void): boolean {
  const { store, header } = context;
  const maps = header.maps;
  const target = event.composedPath()[0];
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const writes = target instanceof HTMLInputElement && target.type !== "checkbox";
  if (writes || target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement) return false;
  if (event.key === "t") return done(theme);
  if (!maps) return false;
  const now = maps.heads[store.now.head];
  const rows = maps.sites[now.site].rows;
  switch (event.key) {
    case "ArrowLeft":
      return go(context, now.site, now.head - 1);
    case "ArrowRight":
      return go(context, now.site, now.head + 1);
    case "ArrowUp":
      return go(context, now.site - 1, now.head);
    case "ArrowDown":
      return go(context, now.site + 1, now.head);
    case "j":
      return done(() => store.set({ query: Math.min(store.now.query + 1, rows - 1) }));
    case "k":
      return done(() => store.set({ query: Math.max(store.now.query - 1, 0) }));
    case "l":
      return done(() => store.set({ wholeLayer: !store.now.wholeLayer }));
    case "/":
      return press(event, ".find input", (input) => input.focus());
    case "+":
      return press(event, "[aria-label=larger]", (button) => button.click());
    case "-":
      return press(event, "[aria-label=smaller]", (button) => button.click());
    case "s":
      return done(() => store.set({ noSpecial: !store.now.noSpecial }));
    case "[":
    case "]": {
      const step = event.key === "]" ? 0.1 : -0.1;
      const slide = Math.min(1, Math.max(0, Math.round(10 * (store.now.slide + step)) / 10));
      return done(() => store.set({ slide, mode: header.slider ? "raw" : store.now.mode }));
    }
  }
  const mode = maps.modes[Number(event.key) - 1];
  return mode ? done(() => store.set({ mode: mode.key })) : false;
}

/** Use a control of the page that the key was pressed in. */
function press(event: KeyboardEvent, selector: string, run: (control: HTMLElement) => void): boolean {
  const root = (event.composedPath()[0] as Node).getRootNode();
  const page = root instanceof ShadowRoot ? root : document.querySelector("[data-exhibit-a]")?.shadowRoot;
  const control = page?.querySelector<HTMLElement>(selector);
  return control ? done(() => run(control)) : false;
}

function go(context: Context, site: number, head: number): boolean {
  const maps = context.header.maps!;
  const inRow = maps.heads.filter((one) => one.site === site);
  if (!inRow.length) return false;
  const wanted = Math.min(Math.max(head, 0), inRow.length - 1);
  return done(() => context.store.set({ head: maps.heads.indexOf(inRow[wanted]) }));
}

function done(run: () => void): true {
  run();
  return true;
}
