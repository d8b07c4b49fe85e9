// Numbers and tokens as people read them.

/** Three significant digits, never more than a reader can use. */
export function number(value: number | null | undefined, signed = false): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : signed && value > 0 ? "+" : "";
  if (size === 0) return "0";
  if (Number.isInteger(value) && size < 1e6) return sign + size;
  if (size < 1e-3 || size >= 1e6) {
    const [digits, power] = size.toExponential(1).split("e");
    return `${sign}${digits} × 10${raised(Number(power))}`;
  }
  return sign + (size >= 100 ? size.toFixed(0) : size >= 10 ? size.toFixed(1) : size.toFixed(3));
}

/** Two significant digits without trailing zeros, for the ticks of a scale. */
export function brief(value: number): string {
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : value > 0 ? "+" : "";
  if (size !== 0 && size < 1e-3) return number(value, true);
  return sign + Number(size.toPrecision(2));
}

export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  const value = 100 * share;
  if (value !== 0 && Math.abs(value) < 0.005) return `${number(share)}`;
  const digits = Math.abs(value) >= 9.95 || value === 0 ? 0 : Math.abs(value) >= 0.095 ? 1 : 2;
  return `${value < 0 ? "−" : ""}${Math.abs(value).toFixed(digits)} %`;
}

/** The answer to a question that may not have been asked. */
export function yesOrNo(answer: boolean | null): string {
  return answer === null ? "–" : answer ? "yes" : "no";
}

/** A token without the tokenizer's marks for spaces and line ends. */
export function word(token: string): string {
  const bare = token.replace(/[ĠĀ▁ ]/gu, " ").replace(/[Ċ\n]/gu, "⏎");
  return bare.trim() || "␣";
}

export function shorter(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

function raised(power: number): string {
  return [...String(power)].map((sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(sign)] ?? "⁻").join("");
}
