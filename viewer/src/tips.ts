// What a number is, in one sentence: on hover, on focus, and to those who listen.

import { css, h } from "./dom";

const MARGIN = 8; // CSS pixels from the edge of the window

/** Say what an element is; ``focus`` makes it a stop of the Tab key where it is none. */
export function tip<E extends HTMLElement | SVGElement>(element: E, sentence: string | undefined, focus = true): E {
  if (!sentence) return element;
  element.dataset.tip = sentence;
  element.classList.add("tip");
  if (focus && element.tabIndex < 0) element.tabIndex = 0;
  return element;
}

/** One bubble for all of them; what it returns takes it away. */
export function bubbles(page: HTMLElement): () => void {
  const bubble = h("div", { class: "bubble", role: "tooltip", id: "exhibit-a-tip", hidden: true });
  page.append(bubble);
  let shown: Element | null = null;

  function show(event: Event): void {
    const target = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    if (target === shown) return;
    shown?.removeAttribute("aria-describedby");
    shown = target;
    bubble.hidden = !target;
    if (!(target instanceof HTMLElement || target instanceof SVGElement)) return;
    bubble.textContent = target.dataset.tip ?? "";
    target.setAttribute("aria-describedby", bubble.id);
    const place = target.getBoundingClientRect();
    const size = bubble.getBoundingClientRect();
    const left = Math.max(MARGIN, Math.min(place.left, innerWidth - size.width - MARGIN));
    const above = place.top - size.height - MARGIN;
    css(bubble, { left: `${left}px`, top: `${above > MARGIN ? above : place.bottom + MARGIN}px` });
  }
  function hide(event: Event): void {
    if (event instanceof KeyboardEvent && event.key !== "Escape") return;
    shown?.removeAttribute("aria-describedby");
    shown = null;
    bubble.hidden = true;
  }
  const hides = ["focusout", "pointerleave", "keydown", "pointerdown"];
  for (const name of ["pointerover", "focusin"]) page.addEventListener(name, show);
  for (const name of hides) page.addEventListener(name, hide);
  addEventListener("scroll", hide, { passive: true });
  return () => removeEventListener("scroll", hide);
}
