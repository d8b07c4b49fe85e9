// What a page is made of: the header that Python wrote (report/header.py), word for word.

export interface Sequence {
  tokens: string[];
  special: boolean[];
  words?: string[]; // of the text as written, where that is known
  of?: number[]; // the word of every token
  gaps?: string[]; // what stands before each word
}

export interface Mode {
  key: string;
  name: string;
  caption: string;
  limit: number; // of the locked scale, over all heads
  signed: boolean;
  minus?: [string, string]; // drawn as the first of these modes less the second
}

export interface Site {
  name: string;
  short: string;
  queries: string; // names of sequences, or "" where an axis is not of tokens
  keys: string;
  rows: number;
  columns: number;
  heads: number;
  visible?: string; // block: first and last visible key of every row
  foretells?: boolean; // whether a row serves the word after its own
}

export interface Head {
  site: number;
  head: number;
  block: string;
  scales: Record<string, number>; // largest absolute value of each mode
  rests: Record<string, number>; // the same for the mean of what was left out of a row
  kept: Record<string, number>; // share of absolute weight that was kept
  word?: string;
  reason?: string;
  numbers: Record<string, number | null>;
  answers?: Record<string, boolean | null>; // questions about it; null: could not be asked
}

export interface Column {
  key: string;
  name: string;
  help: string;
}

export interface Group {
  modes: string[];
  count: number; // entries kept in every row
}

export interface Maps {
  modes: Mode[];
  sites: Site[];
  heads: Head[];
  columns: Column[];
  words: { word: string; meaning: string }[];
  bits: 8 | 16;
  groups: Group[] | null; // null: every entry is there
  note: string;
}

export interface Slide {
  site: number;
  head: number;
  block: string; // float32: row numbers, raw rows, alternative rows; then the values
  rows: number;
  keys: number;
  width: number;
  bits: 16 | 32; // of the values: steps of the scale, or float32
  scale: number;
}

export interface Slider {
  heads: Slide[];
  note: string;
}

export interface Story {
  maps: Maps; // one site (target, source) with a "head" for every layer
  targets: string;
  sources: string;
  errors: string | null; // block: float32 standard errors of the own share (layer, target)
  note: string;
}

export interface Tree {
  sequence: string;
  root: number;
  reader: number | null;
  layers: number;
  threshold: number;
  penalty: number;
  lowest: number; // threshold below which edges are not in the page
  edges: string; // block: float64 rows of layer, parent, child, score, share
  target: string;
  note: string;
}

export interface Series {
  name: string;
  points: [number, number][];
  band?: [number, number][];
  dots?: boolean;
  dashed?: boolean;
}

export interface Chart {
  title: string;
  x: string;
  y: string;
  series: Series[];
  lines: { at: number; name: string }[];
  caption: string;
}

export interface Table {
  title: string;
  columns: string[];
  rows: (string | number | null)[][];
  caption: string;
}

export interface Picture {
  label: string;
  advice: string; // show, caution, do not show
  mark: string; // the same as a sign
  reason: string;
  p: number;
  probability: number; // that the answer loses without its first words, mean over the cuts
  loss: number; // the same in log-odds
  scores: number[]; // of every word
}

export interface Pictures {
  words: string[];
  pictures: Picture[];
  caption: string;
}

export interface ShadedSentence {
  text: string;
  scores: number[]; // by method
}

export interface Passage {
  loss: number; // of the answer's log-probability, without this passage
  needed: boolean;
  sentences: ShadedSentence[];
}

export interface Passages {
  question: string;
  answer: string;
  methods: string[];
  passages: Passage[];
  caption: string;
}

export interface Scene {
  source: string; // a data URI
  width: number;
  height: number;
  grids: Record<string, number[][]>; // by sequence
  caption: string;
}

export interface Summary {
  advice: string; // the headline; empty where none was given
  answer: [string, number][];
  target: string;
  word: string;
  verdict: string;
  reliance: string[]; // sentences
  carriers: string; // a sentence about the heads that carry the answer
  sequence: string;
  shares: number[]; // of every token, signed
  caption: string;
  skipped: [string, string][];
  truth?: string; // the true label, where it was given
  carrying?: [number, number][]; // site and head of those that carry the answer
  texts?: [string, string][]; // title and sequence of each text; without, the one that is shaded
}

export interface Comparison {
  names: [string, string];
  sentence: string;
  answers: [string, number | null, number | null][]; // label, share in either
  words: [string | null, string | null, number | null, number | null][]; // and its scores
  heads: [string, string, string, number | null, number | null][]; // name, verdicts, shares
  moved: (number | null)[]; // of every head: total variation between the two maps
  first: Header;
  second: Header;
}

export interface Header {
  schema: number;
  kind: string;
  title: string;
  unit: string; // what positions are: word, token, sentence …
  sequences: Record<string, Sequence>;
  scene?: Scene;
  summary?: Summary;
  pictures?: Pictures;
  passages?: Passages;
  comparison?: Comparison;
  maps?: Maps;
  slider?: Slider;
  story?: Story;
  tree?: Tree;
  charts: Chart[];
  tables: Table[];
  tokens?: Panels; // the same panels over tokens, where positions are words
  about: [string, string][];
  checks: [string, string][];
  glossary?: Record<string, string>; // a sentence for each word of the page
  blocks: Record<string, [number, number]>; // place in the text of all blocks
}

export interface Panels {
  sequences?: Record<string, Sequence>;
  scene?: Scene;
  summary?: Summary;
  pictures?: Pictures;
  passages?: Passages;
  maps?: Maps;
  slider?: Slider;
  story?: Story;
  tree?: Tree;
  charts?: Chart[];
  tables?: Table[];
}
