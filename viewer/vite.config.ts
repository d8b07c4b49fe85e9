import { defineConfig } from "vite";

// One ES module with its style sheet inside. The static page carries it inline, the notebook
// imports it, the server sends it: the same bytes in three homes.
export default defineConfig({
  build: {
    target: "es2022",
    outDir: "../src/exhibit_a/report/static",
    emptyOutDir: true,
    modulePreload: false,
    lib: { entry: "src/main.ts", formats: ["es"], fileName: () => "viewer.js" },
    rolldownOptions: { output: { minify: true } }, // a library's white space is kept unless asked
  },
});
