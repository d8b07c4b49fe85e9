// One page: all views on one set of choices, inside a shadow root so that nothing leaks.

import { chartView } from "./chart";
import { type Context, meaning, type Opened } from "./context";
import { caption, h } from "./dom";
import { listen } from "./keyboard";
import { lineView } from "./lineview";
import { matrixView } from "./matrix";
import type { Header, Maps } from "./model";
import { overlayView } from "./overlay";
import { overviewView } from "./overview";
import { passagesView } from "./passages";
import { Payload } from "./payload";
import { picturesView } from "./pictures";
import { rowView } from "./rowview";
import { Slides } from "./slides";
import { slideView } from "./slideview";
import { Store } from "./state";
import { storyView } from "./storyview";
import style from "./style.css?inline";
import { summaryView } from "./summary";
import { headTable, tableView } from "./tableview";
import { themed } from "./theme";
import { bubbles, tip } from "./tips";
import { treeView } from "./treeview";

export interface Options {
  alone: boolean; // the page is ours: keys work wherever the focus is
}

/** Draw a result into an element; what it returns takes it away again. */
export function mount(host: HTMLElement, header: Header, text: string, options: Options): () => void {
  const shadow = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(style);
  shadow.adoptedStyleSheets = [sheet];
  const store = new Store(beginning(header));
  const toast = h("p", { class: "toast", role: "status" });
  const workshop = h("div", { class: "workshop", "aria-hidden": "true" });
  const theme = themed(host, () => store.refresh());
  const context: Context = {
    payload: new Payload(header, text),
    header,
    store,
    isDark: theme.isDark,
    workshop,
    say: (message) => {
      toast.textContent = message;
      setTimeout(() => toast.textContent === message && (toast.textContent = ""), 4000);
    },
  };
  const page = h(
    "main",
    { class: "page" },
    h(
      "nav",
      { class: "bar" },
      h("span", { class: "mark" }, h("b", {}, "Exhibit A"), h("span", {}, "attention, on the stand")),
      theme.button,
    ),
    summaryView(context),
    header.maps && apart(header) ? overviewView(context, header.maps) : null,
    header.passages ? passagesView(context, header.passages) : null,
    header.pictures ? picturesView(context, header.pictures) : null,
    header.maps ? exhibit(context, header.maps) : null,
    header.story ? storyView(context, header.story) : null,
    header.tree ? treeView(context, header.tree) : null,
    ...header.charts.map((chart) => chartView(context, chart)),
    header.maps && header.maps.columns.length > 0 ? headTable(context, header.maps) : null,
    ...header.tables.map((table) => tableView(context, table)),
    origin(context),
    toast,
    workshop,
  );
  shadow.replaceChildren(page);
  const quiet = bubbles(page);
  const silence = listen(context, options.alone ? document : page, theme.toggle);
  return () => {
    silence();
    quiet();
    theme.forget();
    shadow.replaceChildren();
  };
}

function exhibit(context: Context, maps: Maps): HTMLElement {
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

/** Whether the heads stand by themselves, before the pictures, and not beside the map of one. */
function apart(header: Header): boolean {
  return header.pictures !== undefined && (header.maps?.heads.length ?? 0) > 1;
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
function beginning(header: Header): State {
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

function origin(context: Context): HTMLElement {
  const { header } = context;
  const list = (rows: [string, string][]) =>
    h(
      "dl",
      { class: "origin" },
      ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, tip(h("span", {}, value), meaning(context, name)))]),
    );
  return h(
    "footer",
    {},
    h(
      "section",
      { "aria-label": "checks" },
      h("h2", {}, "How far to trust these numbers"),
      header.checks.length ? list(header.checks) : caption("This result carries no checks."),
    ),
    h("section", { "aria-label": "origin" }, h("h2", {}, "Where they come from"), list(header.about)),
    h(
      "p",
      { class: "keys-help caption" },
      "Keys: ",
      ...([
        ["← → ↑ ↓", "heads"],
        ["1–5", "what the map shows"],
        ["j k", "rows"],
        ["/", "find a word"],
        ["+ −", "size of the map"],
        ["l", "lines of the layer"],
        ["[ ]", "slide"],
        ["s", "special tokens"],
        ["t", "light or dark"],
      ] as const).flatMap(([key, what]) => [h("kbd", {}, key), ` ${what}  `]),
    ),
  );
}

type State = ConstructorParameters<typeof Store>[0];
