// The text as it was written: its words, shaded by what the answer took from each.

import { FAINTEST_WORD, inkOn, SignedScale } from "./colour";
import { type Context, matches, meaning } from "./context";
import { css, fill, h, s, set } from "./dom";
import { type Cell, exportsOf } from "./files";
import { number, word } from "./format";
import { latexWords } from "./latex";
import { tip } from "./tips";

export interface Written {
  text: string;
  before: string; // what stands between it and the word before
  places: number[]; // of its tokens
  special: boolean;
}

/** The words of a sequence; its tokens where it is not known how they were written. */
export function wordsOf(context: Context, name: string): Written[] {
  const sequence = context.header.sequences[name];
  if (!sequence) return [];
  const { tokens, special, words, of, gaps } = sequence;
  if (!words || !of || !gaps)
    return tokens.map((token, place) => ({ text: word(token), before: " ", places: [place], special: Boolean(special[place]) }));
  const found = words.map((text, unit) => ({ text, before: gaps[unit], places: [] as number[], special: false }));
  of.forEach((unit, place) => {
    found[unit].places.push(place);
    found[unit].special ||= Boolean(special[place]);
  });
  return found;
}

/** The words of a sequence with the sum of its tokens' scores, and what is said ``below`` them. */
export function textView(context: Context, name: string, scores: number[], label: string, below: HTMLElement | null = null): HTMLElement {
  const { store, header } = context;
  const patches = new Set(header.scene?.grids[name]?.flat()); // shown in the picture
  const words = wordsOf(context, name).filter((one) => !one.places.every((place) => patches.has(place)));
  const sums = words.map(({ places }) => places.reduce((sum, place) => sum + (scores[place] ?? 0), 0));
  const limit = Math.max(...sums.map(Math.abs), FAINTEST_WORD);
  const linear = (score: number) => (score * Math.abs(score)) / limit; // undoes the scale's root
  const text = h("p", { class: "text", role: "group", "aria-label": label, dir: "auto" });
  const buttons = words.map((one, place) => {
    const button = h(
      "button",
      {
        class: one.special ? "token special" : "token",
        type: "button",
        on: { click: () => store.set({ token: one.places[0], query: one.places[0] }) },
      },
      one.text,
    );
    return tip(button, scores.length ? `“${one.text}”: ${number(sums[place], true)}. ${meaning(context, "attribution") ?? ""}` : "");
  });
  store.watch(["noSpecial"], () => {
    const scale = new SignedScale(limit, context.isDark());
    buttons.forEach((button, place) => {
      const colour = linear(sums[place]);
      if (SignedScale.position(colour, limit)) css(button, { "background-color": scale.css(colour), color: scale.ink(colour) });
    });
    const seen = words.flatMap((one, place) => (store.now.noSpecial && one.special ? [] : [place]));
    fill(text, ...seen.flatMap((place) => [...between(words[place].before, place), buttons[place]]));
  });
  store.watch(["token", "find"], () => {
    const found = matches(context, name);
    words.forEach((one, place) => {
      set(buttons[place], "aria-pressed", String(one.places.includes(store.now.token)));
      buttons[place].classList.toggle("found", one.places.some((at) => found.has(at)));
    });
  });
  const shaded = () => {
    const scale = new SignedScale(limit, false);
    return words.map((one, place) => {
      const colour = linear(sums[place]);
      return { text: one.text, colour: SignedScale.position(colour, limit) ? scale.rgb(colour) : null, score: sums[place] };
    });
  };
  return h(
    "div",
    { class: "written" },
    text,
    below,
    scores.length > 0 &&
      exportsOf(context, {
        name: () => "words",
        rows: () => [["word", "score"], ...shaded().map((one): Cell[] => [one.text, one.score])],
        latex: () => latexWords(shaded()),
        drawing: () => flow(shaded()),
      }),
  );
}

/** What stands between two words; the end of a line ends it here, too. */
function between(gap: string, place: number): (Node | string)[] {
  if (!place) return [];
  return gap.includes("\n") ? [h("br")] : [document.createTextNode(gap)];
}

const WIDE = 640;

/** Words on their colours as a drawing, line by line. */
function flow(words: { text: string; colour: number[] | null }[]): SVGSVGElement {
  let [x, y] = [8, 22];
  const parts: SVGElement[] = [];
  for (const { text, colour } of words) {
    const width = 8.2 * text.length + 8;
    if (x + width > WIDE) [x, y] = [8, y + 26];
    if (colour) parts.push(s("rect", { x, y: y - 16, width, height: 22, rx: 3, fill: `rgb(${colour.join(",")})` }));
    parts.push(css(s("text", { x: x + 4, y }, text), { "font-size": "15px", fill: inkOn(colour ?? [255, 255, 255]) }));
    x += width + 2;
  }
  const box = s("svg", { width: WIDE, height: y + 12, viewBox: `0 0 ${WIDE} ${y + 12}` });
  box.append(...parts);
  return box;
}
