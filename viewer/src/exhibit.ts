// One head in every light: its map, its lines, one of its rows, and the slider that no output feels.

import { type Context, type Opened } from "./context";
import { caption, h } from "./dom";
import { lineView } from "./lineview";
import { matrixView } from "./matrix";
import type { Header, Maps } from "./model";
import { overlayView } from "./overlay";
import { overviewView } from "./overview";
import { rowView } from "./rowview";
import { Slides } from "./slides";
import { slideView } from "./slideview";
import type { State } from "./state";

export function exhibit(context: Context, maps: Maps): HTMLElement {
  const { store, payload, header } = context;
  const views = [
    matrixView(context, maps),
    lineView(context, maps),
    rowView(context, maps),
    ...(header.slider ? [slideView(context, header.slider)] : []),
  ];
  const overlay = header.scene ? overlayView(context, header.scene, maps) : null;
  const unique = maps.words.length > 0 && !header.slider;
  const [matrix, ...beside] = views.map((view) => view.element);
  store.watch(["head"], () => {
    const asked = store.now.head;
    const head = maps.heads[asked];
    const site = maps.sites[head.site];
    const slide = header.slider?.heads.find((one) => one.site === head.site && one.head === head.head);
    void Promise.all([
      payload.head(maps, head),
      slide ? Slides.load(payload, slide) : null,
    ]).then(([grids, slides]) => {
      if (store.now.head !== asked) return; // the reader has gone on
      const opened: Opened = { head, site, grids, slides };
      const query = Math.min(store.now.query, site.rows - 1);
      store.set({ slide: 0, hover: null, query });
      for (const view of views) view.show(opened);
      overlay?.show(opened);
      matrix.dataset.shown = String(asked);
    });
  });
  return h(
    "div",
    { class: "exhibit" },
    h(
      "div",
      { class: "side" },
      maps.heads.length > 1 && !apart(header) && overviewView(context, maps),
      ...beside.slice(2),
      unique && nothingToSlide(),
    ),
    h("div", { class: "centre" }, overlay?.element, matrix, beside[0], beside[1]),
  );
}

/** Whether the heads stand by themselves, before the heat maps, and not beside the map of one. */
export function apart(header: Header): boolean {
  return header.heat_maps !== undefined && (header.maps?.heads.length ?? 0) > 1;
}

function nothingToSlide(): HTMLElement {
  return h(
    "section",
    { class: "slide", "aria-label": "same output, other attention" },
    h("h3", {}, "Same output, other attention"),
    caption("None was found: no row of this text could be moved without changing what its head passes on."),
  );
}

/** The choices a page opens with: the head and the row that say most. */
export function beginning(header: Header): State {
  const heads = header.maps?.heads ?? [];
  const weight = (place: number) => Math.abs(heads[place].numbers["share"] ?? 0);
  const head = heads.reduce((best, _, place) => (weight(place) > weight(best) ? place : best), 0);
  const token = header.tree?.root ?? 0;
  return {
    head,
    mode: header.maps?.modes[0]?.key ?? "",
    query: header.tree?.reader ?? 0,
    hover: null,
    noSpecial: false,
    ownScale: false,
    slide: 0,
    token,
    layer: (header.story?.maps.heads.length ?? 1) - 1,
    threshold: header.tree?.threshold ?? 0,
    penalty: header.tree?.penalty ?? 0,
    colourBy: heads.some((one) => one.word) ? "" : (header.maps?.columns[0]?.key ?? ""),
    find: "",
    match: 0,
    zoom: 0,
    wholeLayer: false,
  };
}
