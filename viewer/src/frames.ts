// Drawing once per frame, however often something changed.

export function oncePerFrame(run: () => void): () => void {
  let asked = false;
  return () => {
    if (matchMedia("print").matches) return run(); // no frame comes before the page is on paper
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      run();
    });
  };
}
