// Written by report/typescript.py from report/header.py; change it there.

export interface AnswerSummary {
  advice: string;
  answer: [string, number][];
  target: string;
  word: string;
  verdict: string;
  reliance: string[];
  carriers: string;
  sequence: string;
  shares: number[];
  caption: string;
  skipped: [string, string][];
  truth?: string;
  carrying?: [number, number][];
  texts?: [string, string][];
}

export interface Chart {
  title: string;
  x: string;
  y: string;
  series: Series[];
  lines: Line[];
  names: string[];
  caption: string;
}

export interface Column {
  key: string;
  name: string;
  help: string;
}

export interface Comparison {
  names: [string, string];
  sentence: string;
  answers: ([string, number | null, number | null])[];
  words: ([string | null, string | null, number | null, number | null])[];
  heads: ([string, string, string, number | null, number | null])[];
  moved: (number | null)[];
  first: Header;
  second: Header;
}

export interface Group {
  modes: string[];
  count: number;
}

export interface Head {
  site: number;
  head: number;
  block: string;
  scales: Record<string, number>;
  rests: Record<string, number>;
  kept: Record<string, number>;
  word?: string;
  reason?: string;
  numbers: Record<string, number | null>;
  answers?: Record<string, boolean | null>;
}

export interface Header {
  schema: number;
  kind: string;
  title: string;
  unit: string;
  sequences: Record<string, Sequence>;
  scene?: Image;
  summary?: AnswerSummary;
  heat_maps?: HeatMapPanel;
  passages?: Passages;
  comparison?: Comparison;
  maps?: Maps;
  slider?: Slider;
  story?: Story;
  tree?: Tree;
  charts: Chart[];
  tables: Table[];
  tokens?: Panels;
  about: [string, string][];
  checks: [string, string][];
  glossary?: Record<string, string>;
  blocks: Record<string, [number, number]>;
}

export interface HeatMapPanel {
  words: string[];
  rows: HeatMapRow[];
  caption: string;
}

export interface HeatMapRow {
  label: string;
  advice: string;
  mark: string;
  reason: string;
  p: number;
  probability: number;
  loss: number;
  scores: number[];
}

export interface Image {
  source: string;
  width: number;
  height: number;
  grids: Record<string, number[][]>;
  caption: string;
}

export interface Line {
  at: number;
  name: string;
  level?: boolean;
}

export interface Maps {
  modes: Mode[];
  sites: Site[];
  heads: Head[];
  columns: Column[];
  questions: Column[];
  words: Word[];
  bits: 8 | 16;
  groups: Group[] | null;
  note: string;
}

export interface Mode {
  key: string;
  name: string;
  caption: string;
  limit: number;
  signed: boolean;
  minus?: [string, string];
}

export interface Panels {
  sequences?: Record<string, Sequence>;
  scene?: Image;
  summary?: AnswerSummary;
  heat_maps?: HeatMapPanel;
  passages?: Passages;
  maps?: Maps;
  slider?: Slider;
  story?: Story;
  tree?: Tree;
  charts?: Chart[];
  tables?: Table[];
}

export interface Passage {
  loss: number;
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

export interface Sequence {
  tokens: string[];
  special: boolean[];
  words?: string[];
  of?: number[];
  gaps?: string[];
}

export interface Series {
  name: string;
  points: [number, number][];
  band?: [number, number][];
  dashed?: boolean;
  mark: "line" | "marked line" | "dots" | "bars" | "levels" | "boxes";
  role: "" | "reference" | "signed" | "pale";
  like: string;
}

export interface ShadedSentence {
  text: string;
  scores: number[];
}

export interface Site {
  name: string;
  short: string;
  queries: string;
  keys: string;
  rows: number;
  columns: number;
  heads: number;
  visible?: string;
  foretells?: boolean;
}

export interface Slide {
  site: number;
  head: number;
  block: string;
  rows: number;
  keys: number;
  width: number;
  bits: 16 | 32;
  scale: number;
}

export interface Slider {
  heads: Slide[];
  note: string;
}

export interface Story {
  maps: Maps;
  targets: string;
  sources: string;
  errors: string | null;
  note: string;
}

export interface Table {
  title: string;
  columns: string[];
  rows: ((string | number | null)[])[];
  caption: string;
}

export interface Tree {
  sequence: string;
  root: number;
  reader: number | null;
  layers: number;
  threshold: number;
  penalty: number;
  lowest: number;
  edges: string;
  target: string;
  note: string;
}

export interface Word {
  word: string;
  meaning: string;
}
