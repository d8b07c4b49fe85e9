// Three homes, one bundle: a page that carries its numbers, a server's page, a notebook cell.

import { mount } from "./app";
import type { Header } from "./model";
import { ask } from "./serve";

interface Model {
  get(name: string): unknown;
  on(event: string, run: () => void): void;
  off(event: string, run: () => void): void;
}

const page = document.querySelector<HTMLElement>("[data-exhibit-a]");
if (page?.dataset.exhibitA === "page") {
  const part = (name: string) => document.querySelector(`script[data-part=${name}]`)?.textContent ?? "";
  mount(page, JSON.parse(part("header")) as Header, part("blocks").trim(), { alone: true });
}
if (page?.dataset.exhibitA === "serve") ask(page);

/** What a notebook calls for every cell that shows a result. */
function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const host = document.createElement("div");
  el.append(host);
  const draw = () =>
    mount(host, JSON.parse(model.get("header") as string) as Header, model.get("blocks") as string, {
      alone: false,
    });
  let forget = draw();
  const redraw = () => {
    forget();
    forget = draw();
  };
  model.on("change:blocks", redraw);
  return () => {
    model.off("change:blocks", redraw);
    forget();
  };
}

export default { render };
