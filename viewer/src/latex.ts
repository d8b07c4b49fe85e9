// What can be put into a paper: tables (booktabs), maps and curves (pgfplots), shaded words (xcolor).

type Cell = string | number | null;
type Triple = [number, number, number];

const SIGNS: Record<string, string> = {
  "\\": "\\textbackslash{}",
  "~": "\\textasciitilde{}",
  "^": "\\textasciicircum{}",
  "−": "$-$",
  "→": "$\\to$",
  "×": "$\\times$",
  "≥": "$\\geq$",
  "τ": "$\\tau$",
  "λ": "$\\lambda$",
};

/** Text with everything escaped that LaTeX would read as a command. */
export function escaped(text: string): string {
  return text.replace(/[\\~^−→×≥τλ]|[&%$#_{}]/gu, (sign) => SIGNS[sign] ?? `\\${sign}`);
}

function figure(value: Cell): string {
  if (typeof value === "string") return escaped(value);
  return value === null || Number.isNaN(value) ? "--" : String(Number(value.toPrecision(3)));
}

/** Rows as a table; the first row is its head. */
export function latexTable(rows: Cell[][]): string {
  const columns = rows[0].map((_, column) => (rows.slice(1).every((row) => typeof row[column] !== "string") ? "r" : "l"));
  const line = (row: Cell[]) => `${row.map(figure).join(" & ")} \\\\`;
  return [
    "% needs \\usepackage{booktabs}",
    `\\begin{tabular}{${columns.join("")}}`,
    "\\toprule",
    line(rows[0]),
    "\\midrule",
    ...rows.slice(1).map(line),
    "\\bottomrule",
    "\\end{tabular}",
    "",
  ].join("\n");
}

/** A table of numbers with names on both sides as a map in colours. */
export function latexMap(rows: Cell[][], limit: number): string {
  const [head, ...lines] = rows;
  const names = (values: Cell[]) => values.map((value) => `{${figure(value)}}`).join(",");
  const places = (count: number) => Array.from({ length: count }, (_, place) => place).join(",");
  const points = lines.flatMap((row, y) => row.slice(1).map((value, x) => `${x} ${y} ${figure(value).replace("--", "0")}`));
  return [
    "% needs \\usepackage{pgfplots}",
    "\\begin{tikzpicture}",
    "\\begin{axis}[y dir=reverse, enlargelimits=false, axis on top, colorbar,",
    `  point meta min=${-limit}, point meta max=${limit},`,
    "  colormap={signed}{rgb255=(11,45,91) rgb255=(251,250,246) rgb255=(109,27,5)},",
    `  xtick={${places(head.length - 1)}}, xticklabels={${names(head.slice(1))}}, x tick label style={rotate=90},`,
    `  ytick={${places(lines.length)}}, yticklabels={${names(lines.map((row) => row[0]))}}]`,
    `\\addplot[matrix plot*, point meta=explicit, mesh/cols=${head.length - 1}] table[meta index=2] {`,
    ...points,
    "};",
    "\\end{axis}",
    "\\end{tikzpicture}",
    "",
  ].join("\n");
}

/** Curves by name. */
export function latexChart(x: string, y: string, series: { name: string; points: [number, number][] }[]): string {
  return [
    "% needs \\usepackage{pgfplots}",
    "\\begin{tikzpicture}",
    `\\begin{axis}[xlabel={${escaped(x)}}, ylabel={${escaped(y)}}]`,
    ...series.flatMap((one) => [
      `\\addplot coordinates {${one.points.map(([at, value]) => `(${figure(at)},${figure(value)})`).join(" ")}};`,
      `\\addlegendentry{${escaped(one.name)}}`,
    ]),
    "\\end{axis}",
    "\\end{tikzpicture}",
    "",
  ].join("\n");
}

/** Words on their colours. */
export function latexWords(words: { text: string; colour: Triple | null }[]): string {
  const boxes = words.map(({ text, colour }) =>
    colour ? `\\colorbox[RGB]{${colour.join(",")}}{\\strut ${escaped(text)}}` : escaped(text),
  );
  return `% needs \\usepackage{xcolor}\n{\\setlength{\\fboxsep}{1pt}${boxes.join(" ")}}\n`;
}
