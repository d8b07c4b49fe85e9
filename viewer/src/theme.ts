// Light or dark: as the system says, until the reader says otherwise.

import { h } from "./dom";

export function themed(host: HTMLElement, changed: () => void) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print"); // paper is light
  const isDark = () => !paper.matches && (host.dataset.theme ? host.dataset.theme === "dark" : (around() ?? system.matches));
  const button = h("button", { type: "button", class: "quiet theme", on: { click: () => toggle() } });
  const show = () => {
    host.toggleAttribute("data-dark", isDark());
    button.textContent = isDark() ? "Light" : "Dark";
  };
  const update = () => {
    show();
    changed();
  };
  function toggle(): void {
    host.dataset.theme = isDark() ? "light" : "dark";
    update();
  }
  for (const media of [system, paper]) media.addEventListener("change", update);
  show();
  const forget = () => {
    for (const media of [system, paper]) media.removeEventListener("change", update);
  };
  return { isDark, button, toggle, forget };
}

/** What the notebook around us says of itself: VS Code, JupyterLab, marimo and Colab each have their mark. */
function around(): boolean | undefined {
  const { body, documentElement } = document;
  const kind = body.dataset.vscodeThemeKind;
  if (kind) return kind.includes("dark") || kind === "vscode-high-contrast";
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  if (documentElement.hasAttribute("theme")) return documentElement.getAttribute("theme") === "dark";
  return documentElement.classList.contains("dark") || undefined;
}
