// One page: all views on one set of choices, inside a shadow root so that nothing leaks.

import { chartView } from "./chart";
import { comparisonView } from "./comparison";
import { type Context, meaning } from "./context";
import { caption, h } from "./dom";
import { apart, beginning, exhibit } from "./exhibit";
import { listen } from "./keyboard";
import type { Header } from "./model";
import { overviewView } from "./overview";
import { passagesView } from "./passages";
import { Payload } from "./payload";
import { heatMapsView } from "./heatmaps";
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

/** Draw a result into an element, over words or tokens; what it returns takes it away again. */
export function mount(host: HTMLElement, header: Header, text: string, options: Options): () => void {
  const ofTokens = header.tokens && { ...header, ...header.tokens, unit: "token" };
  const draw = (now: Header): (() => void) => drawn(host, now, text, options, ofTokens ? units(now, change) : null);
  const change = () => {
    forget();
    forget = draw(shown === header && ofTokens ? ofTokens : header);
    shown = shown === header && ofTokens ? ofTokens : header;
  };
  let shown = header;
  let forget = draw(header);
  return () => forget();
}

/** Words as they were written, or the tokens that the model reads. */
function units(header: Header, change: () => void): HTMLElement {
  const isTokens = header.unit === "token";
  return h(
    "div",
    { class: "segmented units", role: "radiogroup", "aria-label": "what the numbers are about" },
    ...([["words", !isTokens], ["tokens", isTokens]] as const).map(([name, chosen]) =>
      h("button", { type: "button", role: "radio", "aria-checked": String(chosen), on: { click: () => !chosen && change() } }, name),
    ),
  );
}

function drawn(host: HTMLElement, header: Header, text: string, options: Options, choice: HTMLElement | null): () => void {
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
      h("span", { class: "mark" }, h("b", {}, "Exhibit A"), h("span", {}, "what an attention map can and cannot tell")),
      h("span", { class: "choices" }, choice, theme.button),
    ),
    header.comparison ? comparisonView(context, header.comparison, text) : summaryView(context),
    header.maps && apart(header) ? overviewView(context, header.maps) : null,
    header.passages ? passagesView(context, header.passages) : null,
    header.heat_maps ? heatMapsView(context, header.heat_maps) : null,
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
