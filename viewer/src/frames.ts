// Drawing once per frame, however often something changed.

export function oncePerFrame(run: () => void): () => void {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      run();
    });
  };
}
