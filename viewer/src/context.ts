// What every view is given: the numbers, the choices, and the colours of the moment.

import type { Head, Header, Maps, Mode, Site } from "./model";
import type { Grids, Payload } from "./payload";
import type { Slides } from "./slides";
import type { Store } from "./state";

/** One head, decoded. */
export interface Opened {
  head: Head;
  site: Site;
  grids: Grids;
  slides: Slides | null;
}

/** A part of the page that shows the head it is given. */
export interface HeadView {
  element: HTMLElement;
  show(opened: Opened): void;
}

export interface Context {
  payload: Payload;
  header: Header;
  store: Store;
  isDark(): boolean;
  say(message: string): void; // to those who see and to those who listen
}

export function tokensOf(header: Header, sequence: string, count: number): string[] {
  return header.sequences[sequence]?.tokens ?? Array.from({ length: count }, (_, i) => String(i));
}

export function specialOf(header: Header, sequence: string): boolean[] {
  return header.sequences[sequence]?.special ?? [];
}

/** The positions of a sequence that are shown. */
export function shownOf(context: Context, sequence: string, count: number): number[] {
  const special = context.store.now.noSpecial ? specialOf(context.header, sequence) : [];
  return Array.from({ length: count }, (_, i) => i).filter((i) => !special[i]);
}

export function modeOf(maps: Maps, key: string): Mode {
  return maps.modes.find((mode) => mode.key === key) ?? maps.modes[0];
}

export function nameOf(site: Site, head: Head): string {
  return site.heads > 1 ? `${site.name}, head ${head.head}` : site.name;
}
