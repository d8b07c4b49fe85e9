// By what way did the words reach the answer? The greedy rules of methods/tree.py.

export interface Edge {
  layer: number;
  parent: number;
  child: number;
  score: number;
  share: number; // of the largest score in its layer
}

export function edgesOf(numbers: Float64Array): Edge[] {
  const edges: Edge[] = [];
  for (let at = 0; at + 4 < numbers.length; at += 5) {
    const [layer, parent, child, score, share] = numbers.subarray(at, at + 5);
    edges.push({ layer, parent, child, score, share });
  }
  return edges;
}

/**
 * From the top layer down, then in reading order, every token joins as soon as it can: below a
 * token that joined in a higher layer, over an edge above the threshold and worth more than the
 * penalty.
 */
export function greedy(edges: Edge[], root: number, threshold: number, penalty: number): Edge[] {
  const entered = new Map([[root, Infinity]]);
  const tree: Edge[] = [];
  for (const edge of edges) {
    if (!(edge.share > threshold) || !(edge.score > penalty)) continue;
    if ((entered.get(edge.parent) ?? -1) <= edge.layer || entered.has(edge.child)) continue;
    entered.set(edge.child, edge.layer);
    tree.push(edge);
  }
  return tree;
}
