// What the reader has chosen; every view listens for the choices that concern it.

export interface State {
  head: number; // place in maps.heads
  mode: string;
  query: number; // row of the chosen map
  hover: [number, number] | null; // cell under the pointer
  noSpecial: boolean;
  ownScale: boolean; // colours span this head alone, not all heads
  slide: number; // 0: the model's own weights … 1: the alternative
  token: number; // whose story is told
  layer: number;
  threshold: number;
  penalty: number;
  colourBy: string; // "" for the verdict, or a column
  find: string; // a word that is looked for
  match: number; // which of its places is shown
  zoom: number; // CSS pixels a cell of the map; 0: as large as there is room
  wholeLayer: boolean; // lines of all heads of a layer, not of one
}

type Listener = () => void;

export class Store {
  private listeners: { keys: (keyof State)[]; run: Listener }[] = [];

  constructor(private state: State) {}

  get now(): Readonly<State> {
    return this.state;
  }

  set(change: Partial<State>): void {
    const keys = Object.keys(change) as (keyof State)[];
    const changed = keys.filter((key) => this.state[key] !== change[key]);
    if (!changed.length) return;
    this.state = { ...this.state, ...change };
    for (const { keys: wanted, run } of this.listeners)
      if (wanted.some((key) => changed.includes(key))) run();
  }

  /** Run at once, and again whenever one of the choices changes. */
  watch(keys: (keyof State)[], run: Listener): void {
    this.listeners.push({ keys, run });
    run();
  }

  /** Everything once more, as when the colours of the page change. */
  refresh(): void {
    for (const { run } of this.listeners) run();
  }
}
