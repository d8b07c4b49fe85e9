// What every view is given: the numbers, the choices, and the colours of the moment.

import { word } from "./format";
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
  workshop: HTMLElement; // where a drawing is put while it is saved
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

/** The positions of a sequence whose word, or token, has the letters that are looked for. */
export function matches(context: Context, name: string): Set<number> {
  const asked = context.store.now.find.trim().toLowerCase();
  const sequence = context.header.sequences[name];
  if (!asked || !sequence) return new Set();
  const { tokens, words, of } = sequence;
  const written = (place: number) => (words && of ? words[of[place]] : word(tokens[place]));
  return new Set(tokens.flatMap((_, place) => (written(place).toLowerCase().includes(asked) ? [place] : [])));
}

/** What a word of the page means, in one sentence. */
export function meaning(context: Context, term: string): string | undefined {
  return context.header.glossary?.[term];
}
