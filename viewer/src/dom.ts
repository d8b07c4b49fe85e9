// Elements in one line each.

type Child = Node | string | number | null | undefined | false;
type Value = string | number | boolean | null | undefined;
type Handlers = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };
type Props = { on?: Handlers } & { [name: string]: Value | Handlers };

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return dressed(document.createElement(tag), props, children);
}

export function caption(...children: Child[]): HTMLElement {
  return h("p", { class: "caption" }, ...children);
}

export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return dressed(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

export function fill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren(...present(children));
}

/** A style property: set by script, so that no inline style is needed (the page forbids them). */
export function css<E extends HTMLElement | SVGElement>(
  element: E,
  properties: Record<string, string>,
): E {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
  return element;
}

/** Set what is not so already: of a thousand tokens few change, and each change is paid for. */
export function set(element: Element, name: string, value: string): void {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function dressed<E extends Element>(element: E, props: Props, children: Child[]): E {
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") continue;
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, String(value));
  }
  for (const [name, run] of Object.entries(props.on ?? {}))
    element.addEventListener(name, run as EventListener);
  element.append(...present(children));
  return element;
}

function present(children: Child[]): (Node | string)[] {
  return children
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}
