// src/dom.ts
function e(e, t = {}, ...n) {
	return i(document.createElement(e), t, n);
}
function t(e, t = {}, ...n) {
	return i(document.createElementNS("http://www.w3.org/2000/svg", e), t, n);
}
function n(e, ...t) {
	e.replaceChildren(...a(t));
}
function r(e, t) {
	for (let [n, r] of Object.entries(t)) e.style.setProperty(n, r);
	return e;
}
function i(e, t, n) {
	for (let [n, r] of Object.entries(t)) n !== "on" && (r === !0 ? e.setAttribute(n, "") : r !== !1 && r != null && e.setAttribute(n, String(r)));
	for (let [n, r] of Object.entries(t.on ?? {})) e.addEventListener(n, r);
	return e.append(...a(n)), e;
}
function a(e) {
	return e.filter((e) => e != null && e !== !1).map((e) => e instanceof Node ? e : String(e));
}
// src/files.ts
function o(e) {
	let t = (e) => {
		let t = e === null ? "" : String(e);
		return /[",\n\r]/.test(t) ? `"${t.replaceAll("\"", "\"\"")}"` : t;
	};
	return e.map((e) => e.map(t).join(",")).join("\n") + "\n";
}
async function s(e, t) {
	let n = t.split("\n").length - 1;
	try {
		await navigator.clipboard.writeText(t), e.say(`Copied ${n} lines of CSV.`);
	} catch {
		c(new Blob([t], { type: "text/csv" }), "exhibit-a.csv"), e.say(`The clipboard is closed to this page, so ${n} lines were saved to a file.`);
	}
}
function c(e, t) {
	let n = document.createElement("a");
	n.href = URL.createObjectURL(e), n.download = t, n.click(), setTimeout(() => URL.revokeObjectURL(n.href), 1e3);
}
function l(e, t) {
	e.toBlob((e) => e && c(e, t), "image/png");
}
function u(e, t) {
	let n = e.cloneNode(!0);
	n.setAttribute("xmlns", "http://www.w3.org/2000/svg"), n.setAttribute("font-family", "system-ui, sans-serif");
	let r = getComputedStyle(e);
	n.setAttribute("color", r.color), n.setAttribute("fill", r.color);
	let i = [e, ...e.querySelectorAll("*")];
	[n, ...n.querySelectorAll("*")].forEach((e, t) => {
		let n = getComputedStyle(i[t]);
		for (let t of [
			"fill",
			"stroke",
			"stroke-width",
			"font-size",
			"opacity"
		]) e.setAttribute(t, n.getPropertyValue(t));
		e.removeAttribute("class");
	});
	let a = new XMLSerializer().serializeToString(n);
	c(new Blob([a], { type: "image/svg+xml" }), t);
}
// src/format.ts
function d(e, t = !1) {
	if (e == null || Number.isNaN(e)) return "–";
	let n = Math.abs(e), r = e < 0 ? "−" : t && e > 0 ? "+" : "";
	if (n === 0) return "0";
	if (Number.isInteger(e) && n < 1e6) return r + n;
	if (n < .001 || n >= 1e6) {
		let [e, t] = n.toExponential(1).split("e");
		return `${r}${e} × 10${g(Number(t))}`;
	}
	return r + (n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(3));
}
function f(e) {
	let t = Math.abs(e);
	return t !== 0 && t < .001 ? d(e, !0) : (e < 0 ? "−" : e > 0 ? "+" : "") + Number(t.toPrecision(2));
}
function p(e) {
	if (e == null || Number.isNaN(e)) return "–";
	let t = 100 * e, n = Math.abs(t) >= 9.95 || t === 0 ? 0 : Math.abs(t) >= .095 ? 1 : 2;
	return `${t < 0 ? "−" : ""}${Math.abs(t).toFixed(n)} %`;
}
function m(e) {
	return e.replace(/[ĠĀ▁ ]/gu, " ").replace(/[Ċ\n]/gu, "⏎").trim() || "␣";
}
function h(e, t) {
	return e.length <= t ? e : `${e.slice(0, t - 1)}…`;
}
function g(e) {
	return [...String(e)].map((e) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(e)] ?? "⁻").join("");
}
// src/chart.ts
var _ = {
	left: 52,
	right: 16,
	top: 18,
	bottom: 40
};
function v(t, r) {
	let i = e("div", { class: "drawing" }), a = null;
	new ResizeObserver(() => {
		a = y(r, Math.max(i.clientWidth, 280)), n(i, a);
	}).observe(i);
	let c = () => [[
		"series",
		r.x,
		r.y
	], ...r.series.flatMap((e) => e.points.map(([t, n]) => [
		e.name,
		t,
		n
	]))];
	return e("section", {
		class: "chart",
		"aria-label": r.title
	}, e("h2", {}, r.title), e("p", { class: "caption" }, r.caption), i, e("ul", { class: "keys" }, ...r.series.slice(0, 16).map((t, n) => e("li", {}, e("span", { class: `stroke s${n % 8}${t.dashed ? " dashed" : ""}` }), t.name))), e("div", { class: "exports" }, e("button", {
		type: "button",
		class: "quiet",
		on: { click: () => void s(t, o(c())) }
	}, "Copy CSV"), e("button", {
		type: "button",
		class: "quiet",
		on: { click: () => a && u(a, "chart.svg") }
	}, "Save SVG")));
}
function y(e, n) {
	let r = e.series.flatMap((e) => [...e.points, ...(e.band ?? []).flatMap(([t, n], r) => [[e.points[r][0], t], [e.points[r][0], n]])]), i = [...r.map(([e]) => e), ...e.lines.map((e) => e.at)], a = r.map(([, e]) => e), [o, s] = b(Math.min(...i), Math.max(...i)), [c, l] = b(Math.min(0, ...a), Math.max(...a)), u = (e) => _.left + (e - o) / (s - o) * (n - _.left - _.right), f = (e) => 260 - _.bottom - (e - c) / (l - c) * (260 - _.top - _.bottom), p = t("svg", {
		width: n,
		height: 260,
		viewBox: `0 0 ${n} 260`,
		role: "img",
		"aria-label": e.title
	});
	for (let e of x(c, l)) p.append(t("line", {
		class: "rule",
		x1: _.left,
		x2: n - _.right,
		y1: f(e),
		y2: f(e)
	}), t("text", {
		class: "level",
		x: _.left - 8,
		y: f(e) + 4,
		"text-anchor": "end"
	}, d(e)));
	for (let e of x(o, s)) p.append(t("text", {
		class: "level",
		x: u(e),
		y: 260 - _.bottom + 16,
		"text-anchor": "middle"
	}, d(e)));
	p.append(t("text", {
		class: "level",
		x: n - _.right,
		y: 254,
		"text-anchor": "end"
	}, `${e.x} →`), t("text", {
		class: "level",
		x: 0,
		y: 11
	}, `↑ ${e.y}`));
	for (let n of e.lines) p.append(t("line", {
		class: "mark",
		x1: u(n.at),
		x2: u(n.at),
		y1: _.top,
		y2: 260 - _.bottom
	}), t("text", {
		class: "mark-name",
		x: u(n.at) + 5,
		y: _.top + 10
	}, n.name));
	return e.series.forEach((e, n) => {
		let r = `s${n % 8}`;
		if (e.band) {
			let n = e.points.map(([t], n) => `${u(t)} ${f(e.band[n][1])}`), i = e.points.map(([t], n) => `${u(t)} ${f(e.band[n][0])}`).reverse();
			p.append(t("path", {
				class: `band ${r}`,
				d: `M${[...n, ...i].join("L")}Z`
			}));
		}
		let i = e.points.map(([e, t]) => `${u(e)} ${f(t)}`).join("L");
		if (e.dots || p.append(t("path", {
			class: `line ${r}${e.dashed ? " dashed" : ""}`,
			d: `M${i}`
		})), !e.dashed) for (let [n, i] of e.points) p.append(t("circle", {
			class: `dot ${r}`,
			cx: u(n),
			cy: f(i),
			r: 3
		}, t("title", {}, `${e.name}: ${d(n)}, ${d(i)}`)));
	}), p;
}
function b(e, t) {
	if (!Number.isFinite(e) || !Number.isFinite(t)) return [0, 1];
	let n = .04 * (t - e || 1);
	return [e === 0 ? 0 : e - n, t + n];
}
function x(e, t) {
	let n = (t - e) / 5, r = 10 ** Math.floor(Math.log10(n)), i = [
		1,
		2,
		5,
		10
	].map((e) => e * r).find((e) => e >= n), a = Math.ceil(e / i), o = Math.floor(t / i) - a + 1;
	return Array.from({ length: o }, (e, t) => Number(((a + t) * i).toPrecision(6)));
}
// src/keyboard.ts
function S(e, t, n) {
	let r = (t) => {
		t instanceof KeyboardEvent && C(e, t, n) && t.preventDefault();
	};
	return t.addEventListener("keydown", r), () => t.removeEventListener("keydown", r);
}
function C(e, t, n) {
	let { store: r, header: i } = e, a = i.maps, o = t.composedPath()[0];
	if (t.ctrlKey || t.metaKey || t.altKey || o instanceof HTMLInputElement && o.type !== "checkbox" || o instanceof HTMLSelectElement || o instanceof HTMLTextAreaElement) return !1;
	if (t.key === "t") return T(n);
	if (!a) return !1;
	let s = a.heads[r.now.head], c = a.sites[s.site].rows;
	switch (t.key) {
		case "ArrowLeft": return w(e, s.site, s.head - 1);
		case "ArrowRight": return w(e, s.site, s.head + 1);
		case "ArrowUp": return w(e, s.site - 1, s.head);
		case "ArrowDown": return w(e, s.site + 1, s.head);
		case "j": return T(() => r.set({ query: Math.min(r.now.query + 1, c - 1) }));
		case "k": return T(() => r.set({ query: Math.max(r.now.query - 1, 0) }));
		case "s": return T(() => r.set({ noSpecial: !r.now.noSpecial }));
		case "[":
		case "]": {
			let e = t.key === "]" ? .1 : -.1, n = Math.min(1, Math.max(0, Math.round(10 * (r.now.slide + e)) / 10));
			return T(() => r.set({
				slide: n,
				mode: i.slider ? "raw" : r.now.mode
			}));
		}
	}
	let l = a.modes[Number(t.key) - 1];
	return l ? T(() => r.set({ mode: l.key })) : !1;
}
function w(e, t, n) {
	let r = e.header.maps, i = r.heads.filter((e) => e.site === t);
	if (!i.length) return !1;
	let a = Math.min(Math.max(n, 0), i.length - 1);
	return T(() => e.store.set({ head: r.heads.indexOf(i[a]) }));
}
function T(e) {
	return e(), !0;
}
// src/colour.ts
var E = [
	[-1, "#0b2d5b"],
	[-.66, "#1f6db3"],
	[-.3, "#94c1e4"],
	[0, "#fbfaf6"],
	[.3, "#f7c48f"],
	[.66, "#d8611b"],
	[1, "#6d1b05"]
], D = [
	[-1, "#d8ebff"],
	[-.66, "#4d9ced"],
	[-.3, "#214e7f"],
	[0, "#191b21"],
	[.3, "#74401a"],
	[.66, "#f28c3e"],
	[1, "#ffe6cb"]
], O = 255, k = class e {
	limit;
	table;
	pixels;
	constructor(e, t) {
		this.limit = e, this.table = j(t), this.pixels = N(t);
	}
	pixel(e) {
		if (Number.isNaN(e)) return 0;
		let t = Math.sqrt(Math.min(Math.abs(e) / (this.limit || 1), 1));
		return this.pixels[O + Math.round(O * (e < 0 ? -t : t))];
	}
	static position(e, t) {
		return !(t > 0) || Number.isNaN(e) ? 0 : Math.sign(e) * Math.sqrt(Math.min(Math.abs(e) / t, 1));
	}
	rgb(t) {
		let n = 3 * (O + Math.round(O * e.position(t, this.limit)));
		return [
			this.table[n],
			this.table[n + 1],
			this.table[n + 2]
		];
	}
	css(e) {
		return `rgb(${this.rgb(e).join(" ")})`;
	}
	ink(e) {
		let [t, n, r] = this.rgb(e);
		return .299 * t + .587 * n + .114 * r > 140 ? "#1b1a17" : "#ffffff";
	}
}, A = /* @__PURE__ */ new Map();
function j(e) {
	let t = A.get(e);
	if (t) return t;
	let n = (e ? D : E).map(([e, t]) => [e, F(P(t))]), r = /* @__PURE__ */ new Uint8ClampedArray(1533);
	for (let e = -255; e <= O; e++) {
		let t = e / O, i = Math.max(1, n.findIndex(([e]) => e >= t)), [a, o] = n[i - 1], [s, c] = n[i], l = (t - a) / (s - a), u = o.map((e, t) => e + l * (c[t] - e));
		r.set(I(u), 3 * (e + O));
	}
	return A.set(e, r), r;
}
var M = /* @__PURE__ */ new Map();
function N(e) {
	let t = M.get(e);
	if (t) return t;
	let n = j(e), r = new Uint8Array(4 * n.length / 3).fill(255);
	for (let e = 0; e < n.length; e++) r[e + Math.floor(e / 3)] = n[e];
	let i = new Uint32Array(r.buffer);
	return M.set(e, i), i;
}
function P(e) {
	return [
		1,
		3,
		5
	].map((t) => parseInt(e.slice(t, t + 2), 16) / 255);
}
function F(e) {
	let [t, n, r] = e.map((e) => e <= .04045 ? e / 12.92 : ((e + .055) / 1.055) ** 2.4), i = Math.cbrt(.4122214708 * t + .5363325363 * n + .0514459929 * r), a = Math.cbrt(.2119034982 * t + .6806995451 * n + .1073969566 * r), o = Math.cbrt(.0883024619 * t + .2817188376 * n + .6299787005 * r);
	return [
		.2104542553 * i + .793617785 * a - .0040720468 * o,
		1.9779984951 * i - 2.428592205 * a + .4505937099 * o,
		.0259040371 * i + .7827717662 * a - .808675766 * o
	];
}
function I([e, t, n]) {
	let r = (e + .3963377774 * t + .2158037573 * n) ** 3, i = (e - .1055613458 * t - .0638541728 * n) ** 3, a = (e - .0894841775 * t - 1.291485548 * n) ** 3;
	return [
		4.0767416621 * r - 3.3077115913 * i + .2309699292 * a,
		-1.2684380046 * r + 2.6097574011 * i - .3413193965 * a,
		-.0041960863 * r - .7034186147 * i + 1.707614701 * a
	].map((e) => 255 * (e <= .0031308 ? 12.92 * e : 1.055 * e ** (1 / 2.4) - .055));
}
// src/context.ts
function L(e, t, n) {
	return e.sequences[t]?.tokens ?? Array.from({ length: n }, (e, t) => String(t));
}
function R(e, t) {
	return e.sequences[t]?.special ?? [];
}
function z(e, t, n) {
	let r = e.store.now.noSpecial ? R(e.header, t) : [];
	return Array.from({ length: n }, (e, t) => t).filter((e) => !r[e]);
}
function B(e, t) {
	return e.modes.find((e) => e.key === t) ?? e.modes[0];
}
function V(e, t) {
	return e.heads > 1 ? `${e.name}, head ${t.head}` : e.name;
}
// src/drawing.ts
var H = 32, ee = 8.5, te = "\"Avenir Next\", \"Segoe UI\", system-ui, sans-serif";
function ne(e, t, n, r) {
	let i = (e, t) => Math.max(0, ...t.map((t) => Math.min(m(e[t]).length, 12))), a = (e) => Math.min(12, Math.max(8, e * .62)), o = (e) => {
		let o = .58 * a(e), s = e >= ee;
		return [s ? 12 + o * i(r[0], t) : 2, s ? 12 + o * i(r[1], n) : 2];
	}, s = Math.min(H, e / Math.max(n.length, 1));
	for (let t = 0; t < 3; t++) s = Math.min(H, (e - o(s)[0] - 2) / Math.max(n.length, 1));
	s > 3 && (s = Math.floor(s * 4) / 4);
	let [c, l] = o(s);
	return {
		left: c,
		top: l,
		cell: s,
		width: c + s * n.length + 2,
		height: l + s * t.length + 2,
		rows: t,
		columns: n,
		labelled: s >= ee
	};
}
function re(e, t, n, r, i, a, o) {
	let s = Math.max(window.devicePixelRatio || 1, 1);
	e.width = Math.round(t.width * s), e.height = Math.round(t.height * s), e.style.width = `${t.width}px`, e.style.height = `${t.height}px`;
	let c = e.getContext("2d");
	c.scale(s, s);
	let l = t.cell * t.columns.length, u = t.cell * t.rows.length;
	if (!t.rows.length || !t.columns.length) return;
	c.imageSmoothingEnabled = t.cell < 1, c.drawImage(ie(n, t, r), t.left, t.top, l, u), t.cell >= 7 && ae(c, t, a), c.strokeStyle = a.faint, c.lineWidth = 1, c.strokeRect(t.left - .5, t.top - .5, l + 1, u + 1);
	let d = t.rows.indexOf(o.query);
	if (t.labelled && oe(c, t, i, a, d, o.hover), c.strokeStyle = a.accent, c.lineWidth = 1.5, d >= 0 && c.strokeRect(t.left - 1, t.top + d * t.cell - .5, l + 2, t.cell + 1), o.hover) {
		let e = t.rows.indexOf(o.hover[0]), n = t.columns.indexOf(o.hover[1]), r = Math.max(t.cell, 4);
		e >= 0 && n >= 0 && c.strokeRect(t.left + n * t.cell - (r - t.cell) / 2, t.top + e * t.cell - (r - t.cell) / 2, r, r);
	}
}
function U(e, t, n) {
	let r = Math.floor((t - e.left) / e.cell), i = Math.floor((n - e.top) / e.cell);
	return i < 0 || r < 0 || i >= e.rows.length || r >= e.columns.length ? null : [e.rows[i], e.columns[r]];
}
function ie(e, t, n) {
	let r = document.createElement("canvas");
	r.width = t.columns.length, r.height = t.rows.length;
	let i = r.getContext("2d"), a = i.createImageData(r.width, r.height), o = new Uint32Array(a.data.buffer), s = 0;
	for (let r of t.rows) {
		let i = r * e.columns;
		for (let r of t.columns) o[s++] = n.pixel(e.values[i + r]);
	}
	return i.putImageData(a, 0, 0), r;
}
function ae(e, t, n) {
	e.strokeStyle = n.faint, e.globalAlpha = .35, e.lineWidth = .5, e.beginPath();
	for (let n = 1; n < t.columns.length; n++) e.moveTo(t.left + n * t.cell, t.top), e.lineTo(t.left + n * t.cell, t.top + t.cell * t.rows.length);
	for (let n = 1; n < t.rows.length; n++) e.moveTo(t.left, t.top + n * t.cell), e.lineTo(t.left + t.cell * t.columns.length, t.top + n * t.cell);
	e.stroke(), e.globalAlpha = 1;
}
function oe(e, t, n, r, i, a) {
	let o = Math.min(12, Math.max(8, t.cell * .62)), s = (e) => `${e ? 700 : 400} ${o}px ${te}`;
	e.textBaseline = "middle", e.textAlign = "right", t.rows.forEach((o, c) => {
		let l = c === i || a?.[0] === o;
		e.font = s(l), e.fillStyle = l ? r.accent : r.text;
		let u = h(m(n[0][o]), 12);
		e.fillText(u, t.left - 6, t.top + (c + .5) * t.cell);
	}), e.textAlign = "left", t.columns.forEach((i, o) => {
		e.font = s(a?.[1] === i), e.fillStyle = a?.[1] === i ? r.accent : r.text, e.save(), e.translate(t.left + (o + .5) * t.cell, t.top - 6), e.rotate(-Math.PI / 2), e.fillText(h(m(n[1][i]), 12), 0, 0), e.restore();
	});
}
// src/frames.ts
function W(e) {
	let t = !1;
	return () => {
		t || (t = !0, requestAnimationFrame(() => {
			t = !1, e();
		}));
	};
}
// src/payload.ts
var se = 32, ce = class {
	header;
	text;
	decoded = /* @__PURE__ */ new Map();
	constructor(e, t) {
		this.header = e, this.text = t;
	}
	async bytes(e) {
		let t = this.header.blocks[e];
		if (!t) throw Error(`the page has no block ${e}`);
		let n = atob(this.text.slice(t[0], t[0] + t[1])), r = new Uint8Array(n.length);
		for (let e = 0; e < n.length; e++) r[e] = n.charCodeAt(e);
		return le(r);
	}
	async floats(e) {
		return new Float32Array((await this.bytes(e)).buffer);
	}
	async doubles(e) {
		return new Float64Array((await this.bytes(e)).buffer);
	}
	head(e, t) {
		let n = this.decoded.get(t.block);
		if (n) return this.decoded.delete(t.block), this.decoded.set(t.block, n), n;
		let r = this.decode(e, t);
		this.decoded.set(t.block, r);
		let i = this.decoded.keys().next().value;
		return this.decoded.size > se && i !== void 0 && this.decoded.delete(i), r;
	}
	async decode(e, t) {
		let n = e.sites[t.site], r = await this.bytes(t.block);
		return e.groups ? de(r, e, t, n, n.visible ? new Uint16Array((await this.bytes(n.visible)).buffer) : null) : ue(r, e, t, n);
	}
};
async function le(e) {
	let t = new DecompressionStream("deflate"), n = t.writable.getWriter(), r = n.write(e).then(() => n.close()), i = [], a = 0, o = t.readable.getReader();
	for (;;) {
		let { value: e, done: t } = await o.read();
		if (t) break;
		i.push(e), a += e.length;
	}
	await r;
	let s = new Uint8Array(a), c = 0;
	for (let e of i) s.set(e, c), c += e.length;
	return s;
}
function ue(e, t, n, r) {
	let i = r.rows * r.columns, a = {}, o = 0;
	for (let s of t.modes) {
		if (s.minus) continue;
		let c = t.bits === 16 ? new Int16Array(e.buffer, o, i) : new Int8Array(e.buffer, o, i);
		o += c.byteLength, a[s.key] = {
			rows: r.rows,
			columns: r.columns,
			values: G(c, t.bits, n.scales[s.key] ?? 0)
		};
	}
	return a;
}
function de(e, t, n, r, i) {
	let a = {}, o = 0;
	for (let s of t.groups ?? []) {
		let t = s.count, c = r.rows * t, l = new Uint16Array(c);
		for (let n = 0; n < r.rows; n++) {
			let r = 0;
			for (let i = n * t; i < (n + 1) * t; i++) r += e[o + i] * 256 + e[o + c + i], l[i] = r;
		}
		o += 2 * c;
		for (let u of s.modes) {
			let s = G(new Int8Array(e.buffer, o, c), 8, n.scales[u] ?? 0), d = G(new Int8Array(e.buffer, o + c, r.rows), 8, n.rests[u] ?? 0);
			o += c + r.rows;
			let f = new Float32Array(r.rows * r.columns);
			for (let e = 0; e < r.rows; e++) {
				let n = e * r.columns, a = i ? i[2 * e] : 0, o = i ? i[2 * e + 1] : r.columns - 1;
				f.fill(d[e], n + a, n + o + 1);
				for (let r = e * t; r < (e + 1) * t; r++) f[n + l[r]] = s[r];
			}
			a[u] = {
				rows: r.rows,
				columns: r.columns,
				values: f
			};
		}
	}
	return a;
}
function G(e, t, n) {
	let r = 2 ** (t - 1) - 1, i = new Float32Array(e.length);
	for (let t = 0; t < e.length; t++) i[t] = e[t] < -r ? NaN : e[t] / r * n;
	return i;
}
function fe(e, t, n) {
	let r = t.modes.find((e) => e.key === n);
	if (!r?.minus) return e[n];
	let [i, a] = r.minus.map((t) => e[t]);
	return {
		rows: i.rows,
		columns: i.columns,
		values: i.values.map((e, t) => e - a.values[t])
	};
}
// src/matrix.ts
var pe = 1e4;
function K(e) {
	return /_(low|high)$/.test(e.key);
}
function me(e, t) {
	let [n, r] = ["low", "high"].map((n) => e.numbers[`${t.key}_${n}`]);
	return n == null ? "" : ` (${d(n)} to ${d(r)})`;
}
function he(e) {
	let t = getComputedStyle(e), n = (e) => t.getPropertyValue(e).trim();
	return {
		text: n("--ink"),
		faint: n("--line-strong"),
		accent: n("--accent")
	};
}
function ge(e, t, n, r) {
	if (!(e.slides && r > 0 && e.grids.raw)) return fe(e.grids, t, n);
	let i = e.slides.moved(e.grids.raw, r);
	return fe({
		...e.grids,
		raw: i
	}, t, n);
}
function q(e, t, n, r) {
	let i = B(t, n);
	if (!r) return i.limit;
	let a = t.modes.filter((e) => e.limit === i.limit).map((e) => e.key);
	return Math.max(...a.map((t) => e.head.scales[t] ?? 0)) || i.limit;
}
function _e(i, a) {
	let { store: c } = i, h = null, g = null, _ = null, v = e("h2", {
		class: "head-name",
		"aria-live": "polite"
	}), y = e("p", { class: "facts" }), b = e("canvas", {
		role: "img",
		tabindex: 0
	}), x = e("div", { class: "frame" }, b), S = e("p", {
		class: "readout",
		"aria-live": "off"
	}), C = e("p", { class: "caption" }), w = e("div", { class: "legend" }), T = e("p", { class: "caption" }, a.note), E = () => [L(i.header, h.site.queries, h.site.rows), L(i.header, h.site.keys, h.site.columns)], D = W(() => {
		if (!h) return;
		let { mode: e, slide: t, ownScale: n, query: r, hover: o } = c.now;
		_ = ge(h, a, e, t);
		let s = z(i, h.site.queries, h.site.rows), l = z(i, h.site.keys, h.site.columns);
		g = ne(Math.max(x.clientWidth, 240), s, l, E());
		let u = new k(q(h, a, e, n), i.isDark());
		re(b, g, _, u, E(), he(x), {
			query: r,
			hover: o
		}), b.dataset.shown = `${h.site.name} ${h.head.head} ${e}`, O();
	});
	function O() {
		if (!h || !_) return;
		let { mode: t, hover: r, query: i, slide: o } = c.now, [s, l] = E(), u = B(a, t);
		if (b.setAttribute("aria-label", `${u.name} of ${V(h.site, h.head)}: ${_.rows} queries by ${_.columns} keys`), !r) {
			S.textContent = `Point at a cell for its number; choose a row to read it below. Row: “${m(s[i] ?? "")}”.`;
			return;
		}
		let f = _.values[r[0] * _.columns + r[1]], p = (u.minus ?? [u.key]).reduce((e, t) => e + (h.head.scales[t] ?? 0), 0), g = a.bits === 16 ? p / 65534 : p / 254;
		n(S, e("b", {}, m(s[r[0]])), " → ", e("b", {}, m(l[r[1]])), ` (${r[0]} → ${r[1]}): `, e("b", { class: "figure" }, d(f, u.signed)), ` ± ${d(g)} from storage`, o > 0 && h.slides && ", slider moved");
	}
	function A() {
		if (!h) return;
		let { mode: t, ownScale: o } = c.now, s = q(h, a, t, o), l = new k(s, i.isDark()), u = e("canvas", {
			width: 256,
			height: 1,
			class: "ramp",
			"aria-hidden": "true"
		}), d = u.getContext("2d");
		for (let e = 0; e < 256; e++) {
			let t = 2 * e / 255 - 1;
			d.fillStyle = l.css(Math.sign(t) * t * t * s), d.fillRect(e, 0, 1, 1);
		}
		let p = [
			-1,
			-.5,
			0,
			.5,
			1
		].map((t) => r(e("span", {}, f(Math.sign(t) * t * t * s)), { left: `${50 * (t + 1)}%` }));
		n(w, u, e("div", { class: "ticks" }, ...p), e("p", { class: "caption" }, `Root scale, zero in the middle, locked ${o ? "for this head" : "across all heads"}.`));
	}
	function j() {
		if (!h) return;
		let { head: t, site: r } = h;
		n(v, V(r, t), t.word && e("span", {
			class: "verdict",
			"data-word": t.word
		}, t.word)), n(y, t.reason && e("span", { class: "reason" }, t.reason), ...a.columns.filter((e) => !K(e)).map((n) => e("span", {
			class: "fact",
			title: n.help
		}, `${n.name} `, e("b", { class: "figure" }, d(t.numbers[n.key])), me(t, n))));
		let i = B(a, c.now.mode), o = t.kept[i.minus?.[0] ?? i.key], { slide: s } = c.now, l = s > 0 && h.slides && [i.key, ...i.minus ?? []].includes("raw");
		n(C, l ? `Not what the model used: ${p(s)} of the way from its weights to other valid ones with the same output.` : i.caption, o !== void 0 && o < .9995 && ` Kept here: ${p(o)} of the absolute weight.`);
	}
	let M = e("div", {
		class: "segmented",
		role: "radiogroup",
		"aria-label": "what the map shows"
	}, ...a.modes.map((t, n) => e("button", {
		type: "button",
		role: "radio",
		"data-mode": t.key,
		title: `${t.caption} (key ${n + 1})`,
		on: { click: () => c.set({ mode: t.key }) }
	}, t.name)));
	c.watch(["mode"], () => {
		for (let e of M.children) e.setAttribute("aria-checked", String(e.dataset.mode === c.now.mode));
		j(), A();
	}), c.watch([
		"mode",
		"slide",
		"noSpecial",
		"ownScale",
		"query",
		"hover"
	], D), c.watch(["ownScale"], A), c.watch(["slide"], j), b.addEventListener("pointermove", (e) => {
		let t = g && U(g, e.offsetX, e.offsetY), n = c.now.hover;
		(t?.[0] !== n?.[0] || t?.[1] !== n?.[1]) && c.set({ hover: t });
	}), b.addEventListener("pointerleave", () => c.set({ hover: null })), b.addEventListener("click", (e) => {
		let t = g && U(g, e.offsetX, e.offsetY);
		t && c.set({ query: t[0] });
	}), new ResizeObserver(() => D()).observe(x);
	let N = (t, n) => {
		let r = e("input", {
			type: "checkbox",
			on: { change: () => c.set({ [n]: r.checked }) }
		});
		return c.watch([n], () => r.checked = c.now[n]), e("label", { class: "check" }, r, ` ${t}`);
	}, P = () => `${V(h.site, h.head)} ${c.now.mode}`.replace(/[^\w-]+/g, "-"), F = Object.values(i.header.sequences).some((e) => e.special.some(Boolean)), I = (t, n) => e("button", {
		type: "button",
		class: "quiet",
		on: { click: n }
	}, t), R = e("section", {
		class: "head",
		"aria-label": "one head"
	}, v, y, e("div", { class: "controls" }, e("div", {}, M, e("div", { class: "options" }, F && N("hide special tokens", "noSpecial"), a.heads.length > 1 && N("scale of this head alone", "ownScale"))), w), C, x, S, T, e("div", { class: "exports" }, I("Copy CSV", () => _ && void s(i, o(ve(_, g, E())))), I("Save SVG", () => _ && u(H(_), `${P()}.svg`)), I("Save PNG", () => l(b, `${P()}.png`))));
	function H(e) {
		let n = new k(q(h, a, c.now.mode, c.now.ownScale), i.isDark()), r = t("svg", {
			viewBox: `0 0 ${g.width} ${g.height}`,
			width: g.width,
			height: g.height
		});
		return x.append(r), r.append(...ye(e, g, n, E())), queueMicrotask(() => r.remove()), r;
	}
	return {
		element: R,
		show(e) {
			h = e, j(), A(), D();
		}
	};
}
function ve(e, t, n) {
	return [["query \\ key", ...t.columns.map((e) => n[1][e])], ...t.rows.map((r) => [n[0][r], ...t.columns.map((t) => Number(e.values[r * e.columns + t].toPrecision(5)))])];
}
function ye(e, n, r, i) {
	let a = n.cell, o = Math.min(12, Math.max(8, a * .62)), s = [];
	if (n.rows.length * n.columns.length > pe) {
		let i = ie(e, n, r).toDataURL("image/png"), [o, s] = [a * n.columns.length, a * n.rows.length];
		return [t("image", {
			href: i,
			x: n.left,
			y: n.top,
			width: o,
			height: s
		})];
	}
	return n.rows.forEach((i, o) => {
		n.columns.forEach((c, l) => {
			let u = e.values[i * e.columns + c];
			Math.abs(k.position(u, r.limit)) < 1 / 255 || s.push(t("rect", {
				x: n.left + l * a,
				y: n.top + o * a,
				width: a,
				height: a,
				fill: r.css(u)
			}));
		});
	}), n.labelled && (n.rows.forEach((e, r) => {
		let c = n.top + (r + .7) * a;
		s.push(t("text", {
			x: n.left - 6,
			y: c,
			"text-anchor": "end",
			"font-size": o
		}, m(i[0][e])));
	}), n.columns.forEach((e, r) => {
		let c = `translate(${n.left + (r + .7) * a} ${n.top - 6}) rotate(-90)`;
		s.push(t("text", {
			transform: c,
			"font-size": o
		}, m(i[1][e])));
	})), s;
}
// src/overview.ts
function be(t, i) {
	let { store: a } = t, o = i.heads.some((e) => e.word), s = e("div", {
		class: "grid",
		role: "grid",
		"aria-label": "heads by layer"
	}), c = /* @__PURE__ */ new Map(), l = Math.max(...i.sites.map((e) => e.heads));
	r(s, { "--heads": String(l) }), s.append(e("div", {
		class: "row numbers",
		"aria-hidden": "true"
	}, e("span", { class: "layer" }), ...Array.from({ length: l }, (t, n) => e("span", { class: "number" }, l <= 16 || n % 4 == 0 ? n : "")))), i.sites.forEach((t, n) => {
		let r = e("div", {
			class: "row",
			role: "row"
		});
		r.append(e("span", {
			class: "layer",
			role: "rowheader",
			title: t.name
		}, t.short)), i.heads.forEach((o, s) => {
			if (o.site !== n) return;
			let l = e("button", {
				class: "cell",
				type: "button",
				role: "gridcell",
				tabindex: -1,
				"aria-label": `${V(t, o)}${o.word ? `: ${o.word}` : ""}`,
				on: { click: () => a.set({ head: s }) }
			});
			l.title = Se(i, o, V(t, o)), c.set(s, l), r.append(l);
		}), s.append(r);
	}), a.watch(["colourBy"], () => {
		let e = a.now.colourBy, n = i.heads.map((t) => Math.abs(t.numbers[e] ?? 0)), r = new k(Math.max(...n, 0), t.isDark());
		c.forEach((t, n) => {
			let a = i.heads[n];
			t.dataset.word = e ? "" : a.word ?? "", t.style.backgroundColor = e ? r.css(a.numbers[e] ?? 0) : "";
		});
	}), a.watch(["head"], () => {
		c.forEach((e, t) => {
			let n = t === a.now.head;
			e.tabIndex = n ? 0 : -1, e.setAttribute("aria-selected", String(n)), n && e.getRootNode() instanceof ShadowRoot && e.getRootNode().activeElement?.classList.contains("cell") && e.focus();
		});
	});
	let u = e("ul", { class: "words" });
	a.watch(["colourBy"], () => n(u, ...xe(t, i)));
	let d = e("select", {
		"aria-label": "colour the heads by",
		on: { change: (e) => a.set({ colourBy: e.target.value }) }
	}, o && e("option", { value: "" }, "verdict"), ...i.columns.filter((e) => !K(e)).map((t) => e("option", { value: t.key }, t.name)));
	return d.value = a.now.colourBy, e("section", {
		class: "overview",
		"aria-label": "overview of all heads"
	}, e("h2", {}, i.words.length ? "Every head, judged" : "Every head"), e("p", { class: "caption" }, "A row is a layer, a square is a head. Choose one, or walk with the arrow keys."), (o || i.columns.length > 0) && e("label", { class: "choice" }, "Colour by ", d), s, u);
}
function xe(t, n) {
	let { colourBy: r } = t.store.now;
	if (!r) return n.words.map(({ word: t, meaning: r }) => {
		let i = n.heads.filter((e) => e.word === t).length;
		return e("li", {}, e("span", {
			class: "swatch",
			"data-word": t
		}), e("b", {}, `${t} `), e("span", { class: "count" }, `${i} · `), r);
	});
	let i = n.columns.find((e) => e.key === r), a = n.heads.map((e) => e.numbers[r] ?? 0), o = `${d(Math.min(...a))} to ${d(Math.max(...a))}`;
	return [e("li", {}, e("b", {}, `${i.name}: `), `${i.help} Here ${o}.`)];
}
function Se(e, t, n) {
	let r = e.columns.map((e) => `${e.name} ${d(t.numbers[e.key])}`);
	return [t.word ? `${n}: ${t.word}` : n, ...r].join("\n");
}
// src/rowview.ts
var Ce = 132, J = 34, we = 15;
function Te(r, i) {
	let { store: a } = r, o = null, s = e("h3", {}), c = e("div", { class: "bars" }), l = e("p", { class: "caption" }), u = W(() => {
		if (!o) return;
		let { mode: u, query: f, slide: p, ownScale: g, hover: _ } = a.now, { site: v } = o, y = ge(o, i, u, p), b = Math.min(f, v.rows - 1), x = y.values.subarray(b * y.columns, (b + 1) * y.columns), S = L(r.header, v.queries, v.rows), C = L(r.header, v.keys, v.columns), w = z(r, v.keys, v.columns), T = Math.max(c.clientWidth, 240), E = Math.floor((T - J) / we), D = De(w, x, p > 0 && o.slides?.rows.includes(b) ? E : Math.min(E, Ee(i, u))), O = q(o, i, u, g), A = new k(O, r.isDark()), j = Math.max(...D.map((e) => Math.abs(x[e])), 1e-12), M = Math.min(0, ...D.map((e) => x[e])) < 0 ? Ce * .62 : 126, N = (M - 16) / j, P = Math.min((T - J) / Math.max(D.length, 1), 44), F = o.grids.raw, I = F && u !== "attribution" && (u !== "raw" || p > 0), R = t("svg", {
			width: T,
			height: 194,
			role: "img",
			"aria-label": `weights from ${S[b]} to every key`
		});
		R.append(t("line", {
			class: "axis",
			x1: J,
			x2: T,
			y1: M,
			y2: M
		})), D.forEach((e, n) => {
			let r = x[e], i = J + n * P, a = Math.min(Math.abs(r) * N, r < 0 ? Ce - M : M - 14);
			if (R.append(t("rect", {
				x: i + 1,
				y: r < 0 ? M : M - a,
				width: Math.max(P - 3, 1),
				height: Math.max(a, .5),
				fill: A.css(Math.sign(r) * Math.max(Math.abs(r), O * .06)),
				class: _?.[1] === e && _[0] === b ? "bar hovered" : "bar"
			}, t("title", {}, `${m(C[e])} (${e}): ${d(r, !0)}`))), I) {
				let n = M - Math.min(F.values[b * F.columns + e] * N, M - 2);
				R.append(t("line", {
					class: "ghost",
					x1: i,
					x2: i + P - 1,
					y1: n,
					y2: n
				}));
			}
			Math.abs(r) >= j * .999 && R.append(t("text", {
				class: "value",
				x: i + P / 2,
				y: r < 0 ? M - 4 : M - a - 4,
				"text-anchor": "middle"
			}, d(r, !0))), R.append(t("text", {
				class: e === b && v.queries === v.keys ? "key own" : "key",
				transform: `translate(${i + P / 2 + 3} 142) rotate(-52)`,
				"text-anchor": "end"
			}, h(m(C[e]), 10)));
		}), n(s, `${B(i, u).name} from `, e("q", {}, m(S[b] ?? "")), ` (${b})`), n(c, R);
		let V = w.filter((e) => !D.includes(e)), H = V.reduce((e, t) => e + Math.abs(x[t]), 0);
		l.textContent = [V.length && `The ${D.length} largest of ${w.length} keys; the others hold ${d(H)} together.`, I && "Thin lines: the weights the model used."].filter(Boolean).join(" ");
	});
	return a.watch([
		"mode",
		"query",
		"slide",
		"noSpecial",
		"ownScale",
		"hover"
	], u), new ResizeObserver(() => u()).observe(c), {
		element: e("section", {
			class: "row-view",
			"aria-label": "one row"
		}, s, c, l),
		show(e) {
			o = e, u();
		}
	};
}
function Ee(e, t) {
	let n = B(e, t).minus?.[0] ?? t;
	return e.groups?.find((e) => e.modes.includes(n))?.count ?? Infinity;
}
function De(e, t, n) {
	return e.length <= n ? e : [...e].sort((e, n) => Math.abs(t[n]) - Math.abs(t[e])).slice(0, n).sort((e, t) => e - t);
}
// src/slides.ts
var Oe = class e {
	rows;
	own;
	other;
	values;
	keys;
	width;
	bits;
	constructor(e, t, n, r, i, a, o) {
		this.rows = e, this.own = t, this.other = n, this.values = r, this.keys = i, this.width = a, this.bits = o;
	}
	static async load(t, n) {
		let r = await t.bytes(n.block), i = n.rows * n.keys, a = new Float32Array(r.buffer, 0, n.rows + 2 * i), o = n.keys * n.width, s = n.bits === 32 ? new Float32Array(r.buffer, a.byteLength, o) : Float32Array.from(new Int16Array(r.buffer, a.byteLength, o), (e) => e / 32767 * n.scale);
		return new e(Array.from(a.subarray(0, n.rows)), a.subarray(n.rows, n.rows + i), a.subarray(n.rows + i), s, n.keys, n.width, n.bits);
	}
	row(e, t) {
		let n = this.rows.indexOf(e);
		if (n < 0) return null;
		let r = n * this.keys;
		return Float32Array.from({ length: this.keys }, (e, n) => {
			let i = this.own[r + n];
			return i + t * (this.other[r + n] - i);
		});
	}
	output(e) {
		let t = new Float64Array(this.width);
		for (let n = 0; n < this.keys; n++) for (let r = 0; r < this.width; r++) t[r] += e[n] * this.values[n * this.width + r];
		return t;
	}
	moved(e, t) {
		if (t === 0) return e;
		let n = e.values.slice();
		for (let r of this.rows) n.set(this.row(r, t), r * e.columns);
		return {
			...e,
			values: n
		};
	}
};
function ke(e, t) {
	let n = 0;
	for (let r = 0; r < e.length; r++) n += Math.abs(e[r] - t[r]);
	return n / 2;
}
function Ae(e, t) {
	let n = 0;
	for (let r = 0; r < e.length; r++) n = Math.max(n, Math.abs(e[r] - t[r]));
	return n;
}
// src/slideview.ts
function je(t, r) {
	let { store: i } = t, a = null, o = e("input", {
		type: "range",
		min: 0,
		max: 100,
		step: 1,
		"aria-label": "from the model's attention to another with the same output",
		on: { input: () => {
			let e = i.now.mode === "raw" || i.now.mode === "difference" ? {} : { mode: "raw" };
			i.set({
				slide: Number(o.value) / 100,
				...e
			});
		} }
	}), s = e("canvas", {
		class: "strip",
		height: 1,
		"aria-hidden": "true"
	}), c = e("canvas", {
		class: "strip",
		height: 1,
		"aria-hidden": "true"
	}), l = e("p", {
		class: "outcome",
		"aria-live": "polite"
	}), u = e("div", {}, e("div", { class: "ends" }, e("span", {}, "the model’s weights"), e("span", {}, "other valid weights")), o, e("div", { class: "strips" }, e("span", {}, "output"), s, e("span", {}, "output now"), c), l), f = e("p", { class: "caption" });
	function p() {
		if (!a) return;
		let { query: p, slide: g } = i.now, _ = a.slides;
		if (u.hidden = !_, f.hidden = !!_, !_) {
			let e = r.heads.length;
			n(f, `${V(a.site, a.head)} offers nothing to slide: its rows are the only valid ones, or it was left out. `, e > 0 && `${e} heads can slide.`);
			return;
		}
		o.value = String(Math.round(100 * g));
		let v = _.rows.includes(p) ? p : _.rows[0], y = _.row(v, 0), b = _.row(v, g), [x, S] = [_.output(y), _.output(b)], C = Math.max(...Array.from(x, Math.abs), 1e-12);
		h(s, x, C), h(c, S, C);
		let w = Ae(x, S), T = m(L(t.header, a.site.queries, a.site.rows)[v]);
		l.dataset.change = String(w / C), l.dataset.moved = String(ke(y, b)), n(l, "Row of ", e("q", {}, T), ": weight moved ", e("b", { class: "figure" }, d(ke(y, b))), ", output changed by ", e("b", { class: "figure" }, d(w / C)), ` of its largest part (computed here, from ${_.bits}-bit values). ${_.rows.length} rows of this head move together.`, v !== p && " The chosen row is not among them.");
	}
	function h(e, n, r) {
		e.width = n.length;
		let i = new k(r, t.isDark()), a = e.getContext("2d");
		n.forEach((e, t) => {
			a.fillStyle = i.css(e), a.fillRect(t, 0, 1, 1);
		});
	}
	return i.watch(["query", "slide"], p), {
		element: e("section", {
			class: "slide",
			"aria-label": "same output, other attention"
		}, e("h3", {}, "Same output, other attention"), e("p", { class: "caption" }, "Each step is a proper attention map: no weight is negative, rows keep their sum. What the head passes on does not move."), u, f, r.note && e("p", { class: "caption" }, r.note)),
		show(e) {
			a = e, p();
		}
	};
}
// src/state.ts
var Me = class {
	state;
	listeners = [];
	constructor(e) {
		this.state = e;
	}
	get now() {
		return this.state;
	}
	set(e) {
		let t = Object.keys(e).filter((t) => this.state[t] !== e[t]);
		if (t.length) {
			this.state = {
				...this.state,
				...e
			};
			for (let { keys: e, run: n } of this.listeners) e.some((e) => t.includes(e)) && n();
		}
	}
	watch(e, t) {
		this.listeners.push({
			keys: e,
			run: t
		}), t();
	}
	refresh() {
		for (let { run: e } of this.listeners) e();
	}
}, Ne = 13, Pe = 5;
function Fe(t, r) {
	let { store: i, payload: a, header: c } = t, u = r.maps.sites[0], d = r.maps.heads.length, f = L(c, r.targets, u.rows), h = L(c, r.sources, u.columns), g = r.maps.modes[0].limit, _ = [], v = null, y = null, b = e("canvas", { role: "img" }), x = e("div", { class: "frame" }, b), S = e("p", {
		class: "outcome",
		"aria-live": "polite"
	}), C = e("select", {
		"aria-label": "whose story",
		on: { change: () => i.set({ token: Number(C.value) }) }
	}, ...f.map((t, n) => e("option", { value: n }, `${n} · ${m(t)}`))), w = e("input", {
		type: "range",
		min: 0,
		max: d - 1,
		step: 1,
		"aria-label": "layer",
		on: { input: () => i.set({ layer: Number(w.value) }) }
	}), T = e("b", { class: "figure" }), E = () => [_.map((e, t) => t ? `after ${t - 1}` : "input"), h], D = () => {
		let e = new Float32Array(d * u.columns), t = Math.min(i.now.token, u.rows - 1);
		return _.forEach((n, r) => e.set(n.values.subarray(t * u.columns, (t + 1) * u.columns), r * u.columns)), {
			rows: d,
			columns: u.columns,
			values: e
		};
	}, O = W(() => {
		if (!_.length) return;
		let { token: a, layer: o } = i.now, s = Math.min(a, u.rows - 1), c = D(), l = Math.max(x.clientWidth, 240), d = Float32Array.from({ length: u.columns }, (e, t) => Math.max(..._.map((e, n) => c.values[n * u.columns + t]))), O = z(t, r.sources, u.columns), A = De(O, d, Math.floor((l - 64) / Ne));
		y = ne(l, _.map((e, t) => t), A, E());
		let j = new k(g, t.isDark());
		re(b, y, c, j, E(), he(x), {
			query: o,
			hover: null
		}), b.setAttribute("aria-label", `who is in ${f[s]}, by layer`), C.value = String(s), w.value = String(o), T.textContent = o ? `after layer ${o - 1}` : "at the input";
		let M = c.values.subarray(o * u.columns, (o + 1) * u.columns), N = Array.from(M.keys()).sort((e, t) => M[t] - M[e]).slice(0, Pe), P = r.targets === r.sources ? M[s] : NaN, F = v ? v[o * u.rows + s] : 0;
		n(S, `${o ? `After layer ${o - 1}` : "At the input"}, the vector of `, e("q", {}, m(f[s])), !Number.isNaN(P) && " is ", !Number.isNaN(P) && e("b", { class: "figure" }, p(P)), !Number.isNaN(P) && (F > 0 ? ` itself (± ${p(2 * F)}, two standard errors). ` : " itself. "), "Most in it: ", ...N.flatMap((t, n) => [
			n ? ", " : "",
			e("q", {}, m(h[t])),
			` ${p(M[t])}`
		]), A.length < O.length && `. Drawn: the ${A.length} largest of ${O.length} sources`, ".");
	});
	Promise.all([...r.maps.heads.map(async (e) => (await a.head(r.maps, e))[r.maps.modes[0].key])]).then(async (e) => {
		_ = e, v = r.errors ? await a.floats(r.errors) : null, O();
	}), i.watch([
		"token",
		"layer",
		"noSpecial"
	], O), new ResizeObserver(() => O()).observe(x), b.addEventListener("click", (e) => {
		let t = y && U(y, e.offsetX, e.offsetY);
		t && i.set({ layer: t[0] });
	});
	let A = () => [["layer", ...h], ..._.map((e, t) => [E()[0][t], ...D().values.subarray(t * u.columns, (t + 1) * u.columns)])];
	return e("section", {
		class: "story",
		"aria-label": "token story"
	}, e("h2", {}, "Who is in this vector?"), e("p", { class: "caption" }, "How strongly a hidden vector reacts to every input token, as shares of one. A token’s own share falls as layers mix their neighbours in."), e("div", { class: "options" }, e("label", { class: "choice" }, "Token ", C), e("label", { class: "choice wide" }, "Layer ", w, T)), x, S, r.note && e("p", { class: "caption" }, r.note), e("div", { class: "exports" }, e("button", {
		type: "button",
		class: "quiet",
		on: { click: () => void s(t, o(A())) }
	}, "Copy CSV"), e("button", {
		type: "button",
		class: "quiet",
		on: { click: () => l(b, "token-story.png") }
	}, "Save PNG")));
}
// src/style.css?inline
var Ie = ":host{--paper:#fbfaf6;--card:#fff;--ink:#1d1b17;--soft:#6a655b;--line:#e6e2d8;--line-strong:#b9b3a5;--accent:#0b5fa5;--accent-soft:#e4eef7;--evidence:#14806f;--partial:#e3b341;--contested:#c2410c;--no-effect:#cfcabf;--on-no-effect:#1d1b17;--serif:\"Iowan Old Style\", \"Palatino Linotype\", Palatino, \"Book Antiqua\", Georgia, serif;--sans:\"Avenir Next\", \"Segoe UI\", system-ui, -apple-system, \"Helvetica Neue\", Arial, sans-serif;--lightningcss-light:initial;--lightningcss-dark: ;color-scheme:light;background:var(--paper);color:var(--ink);font:15px/1.5 var(--sans);-webkit-text-size-adjust:100%;display:block}:host([data-theme=dark]){--paper:#111318;--card:#191b21;--ink:#eceae4;--soft:#a09b90;--line:#2a2d35;--line-strong:#565b67;--accent:#7ab8f5;--accent-soft:#1d2c3d;--evidence:#35b8a0;--partial:#d9a92f;--contested:#f0743a;--no-effect:#474b55;--on-no-effect:#fff;--lightningcss-light: ;--lightningcss-dark:initial;color-scheme:dark}@media (prefers-color-scheme:dark){:host(:not([data-theme=light])){--paper:#111318;--card:#191b21;--ink:#eceae4;--soft:#a09b90;--line:#2a2d35;--line-strong:#565b67;--accent:#7ab8f5;--accent-soft:#1d2c3d;--evidence:#35b8a0;--partial:#d9a92f;--contested:#f0743a;--no-effect:#474b55;--on-no-effect:#fff;--lightningcss-light: ;--lightningcss-dark:initial;color-scheme:dark}}*{box-sizing:border-box}[hidden]{display:none!important}:focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:3px}.page{max-width:1240px;margin:0 auto;padding:20px 28px 56px;container-type:inline-size}.page>section,.exhibit,footer{border-top:1px solid var(--line);margin-top:44px;padding-top:28px}h1,h2{font-family:var(--serif);letter-spacing:-.01em;text-wrap:balance;margin:0;font-weight:600}h1{max-width:30em;font-size:clamp(24px,3.2cqi,38px);line-height:1.16}h2{font-size:22px;line-height:1.25}h3{margin:0 0 4px;font-size:15px;font-weight:650}p{margin:0}q{quotes:\"“\" \"”\";font-weight:600}.caption{color:var(--soft);max-width:68ch;margin-top:6px;font-size:13px;line-height:1.45}.figure,td.figure{font-variant-numeric:tabular-nums}.bar{justify-content:space-between;align-items:center;margin-bottom:30px;display:flex}.bar .mark{align-items:baseline;gap:12px;display:flex}.bar .mark b{font:700 12px/1 var(--sans);letter-spacing:.16em;text-transform:uppercase;border:1.5px solid var(--ink);white-space:nowrap;border-radius:2px;padding:6px 8px 5px}.bar .mark span{font:italic 14px var(--serif);color:var(--soft)}button,select,input,textarea{font:inherit;color:inherit}button{cursor:pointer}button.quiet,a.quiet{border:1px solid var(--line-strong);color:var(--ink);background:0 0;border-radius:999px;padding:3px 12px;font-size:13px;text-decoration:none}button.quiet:hover,a.quiet:hover{background:var(--accent-soft);border-color:var(--accent)}select{background:var(--card);border:1px solid var(--line-strong);border-radius:6px;max-width:100%;padding:3px 6px}input[type=range]{accent-color:var(--accent);width:100%;min-width:0}input[type=checkbox]{accent-color:var(--accent)}.counts{font:17px/1.45 var(--serif);color:var(--soft);max-width:60em;margin-top:8px}.kicker{color:var(--soft);margin-bottom:8px;font-size:13px}.case{grid-template-columns:minmax(0,2.2fr) minmax(0,1fr);gap:16px 48px;margin-top:26px;display:grid}.label{font:600 12px var(--sans);color:var(--soft);text-transform:uppercase;letter-spacing:.08em;margin-bottom:8px}.text{font-family:var(--serif);max-height:12em;padding:2px;font-size:19px;line-height:1.75;overflow:auto}.token{font:inherit;background:0 0;border:0;border-radius:4px;padding:1px 5px}.token[aria-pressed=true]{box-shadow:0 0 0 2px var(--accent)}.answer{gap:6px;margin:0;display:grid}.answer dt{font-size:14px;font-weight:600}.answer dd{align-items:center;gap:10px;margin:0;display:flex}.answer .bar{background:var(--accent);border-radius:2px;flex:none;max-width:70%;height:10px;margin:0}.skipped{color:var(--soft);margin-top:14px;font-size:13px}.skipped dt{color:var(--ink);font-weight:600}.skipped dd{margin:0 0 6px}.exhibit{grid-template-columns:minmax(300px,400px) minmax(0,1fr);align-items:start;gap:48px;display:grid}.side{gap:36px;display:grid}.centre{gap:26px;min-width:0;display:grid}.grid{gap:3px;margin:12px 0 14px;display:grid}.grid .row{grid-template-columns:3.4em repeat(var(--heads), minmax(0, 32px));align-items:center;gap:3px;display:grid}.grid .layer,.grid .number{color:var(--soft);white-space:nowrap;font-variant-numeric:tabular-nums;font-size:11px}.grid .number{text-align:center}.cell{aspect-ratio:1;background:var(--line);border:0;border-radius:3px;width:100%;min-width:0;max-height:30px;padding:0;position:relative}.cell:hover{filter:brightness(1.12)saturate(1.2)}.cell[aria-selected=true]{box-shadow:0 0 0 2px var(--paper), 0 0 0 4px var(--ink);z-index:1}[data-word=evidence].cell,.swatch[data-word=evidence],.verdict[data-word=evidence]{background:var(--evidence)}[data-word=partial].cell,.swatch[data-word=partial],.verdict[data-word=partial]{background:var(--partial)}[data-word=contested].cell,.swatch[data-word=contested],.verdict[data-word=contested]{background:var(--contested)}[data-word=no\\ effect].cell,.swatch[data-word=no\\ effect],.verdict[data-word=no\\ effect]{background:var(--no-effect)}.cell[data-word=evidence]:after,.cell[data-word=partial]:after,.cell[data-word=contested]:after{content:\"\";width:36%;height:36%;margin:auto;position:absolute;inset:0}.cell[data-word=evidence]:after{background:#fff;border-radius:50%}.cell[data-word=partial]:after{border:1.5px solid #3d2f05;border-radius:50%}.cell[data-word=contested]:after{background:linear-gradient(45deg,#0000 42%,#fff 42% 58%,#0000 58%),linear-gradient(-45deg,#0000 42%,#fff 42% 58%,#0000 58%)}.words{color:var(--soft);gap:5px;margin:0;padding:0;font-size:13px;line-height:1.4;list-style:none;display:grid}.words li{padding-left:20px;position:relative}.words b{color:var(--ink)}.words .count{font-variant-numeric:tabular-nums}.swatch{border-radius:3px;width:12px;height:12px;position:absolute;top:4px;left:0}.choice{color:var(--soft);align-items:center;gap:8px;margin-top:8px;font-size:13px;display:inline-flex}.choice.wide{flex:220px;min-width:0;max-width:min(420px,100%)}.choice.wide input{flex:60px;width:60px;margin:2px 0}.choice b{color:var(--ink);white-space:nowrap;min-width:5.5em}.head-name{flex-wrap:wrap;align-items:center;gap:6px 12px;display:flex}.verdict{font:650 13px/1 var(--sans);color:#fff;letter-spacing:0;border-radius:999px;padding:5px 10px}.verdict[data-word=partial]{color:#1d1b17}.verdict[data-word=no\\ effect]{color:var(--on-no-effect)}.facts{color:var(--soft);flex-wrap:wrap;gap:2px 18px;margin-top:6px;font-size:13px;display:flex}.facts .reason{color:var(--ink);flex-basis:100%;font-size:14px}.fact{white-space:nowrap}.fact b{color:var(--ink)}.segmented{border:1px solid var(--line-strong);border-radius:8px;flex-wrap:wrap;display:inline-flex;overflow:hidden}.segmented button{background:var(--card);border:0;border-right:1px solid var(--line);padding:6px 14px;font-size:14px}.segmented button:last-child{border-right:0}.segmented button[aria-checked=true]{background:var(--ink);color:var(--paper)}.segmented button:focus-visible{outline-offset:-3px}.options{flex-wrap:wrap;align-items:center;gap:4px 22px;margin-top:10px;display:flex}.check{align-items:center;gap:6px;font-size:13px;display:inline-flex}.frame{min-width:0;margin-top:12px;overflow:hidden}.frame canvas{cursor:crosshair;touch-action:pan-y;display:block}.readout{color:var(--soft);min-height:1.5em;margin-top:4px;font-size:13px}.readout b{color:var(--ink)}.controls{flex-wrap:wrap;justify-content:space-between;align-items:flex-start;gap:8px 28px;margin-top:14px;display:flex}.legend{flex:0 250px;min-width:200px}.legend .caption{margin:0;font-size:12px}.ramp{border:1px solid var(--line-strong);border-radius:2px;width:100%;height:12px;display:block}.ticks{height:18px;color:var(--soft);font-variant-numeric:tabular-nums;font-size:11px;position:relative}.ticks span{white-space:nowrap;position:absolute;top:3px;transform:translate(-50%)}.ticks span:first-child{transform:none}.ticks span:last-child{transform:translate(-100%)}.exports{flex-wrap:wrap;gap:8px;margin-top:12px;display:flex}.bars,.drawing{min-width:0;overflow-x:auto}svg{font-family:var(--sans);display:block;overflow:visible}.axis,.rule{stroke:var(--line);stroke-width:1px}.axis{stroke:var(--line-strong)}.bar.hovered,rect.hovered{stroke:var(--accent);stroke-width:2px}.ghost{stroke:var(--ink);stroke-width:1.2px}svg text{fill:var(--soft);font-size:11.5px}svg text.value{fill:var(--ink);font-weight:600}svg text.key{fill:var(--ink)}svg text.own{fill:var(--accent);font-weight:700}svg text.word{cursor:pointer}svg text.inside{fill:var(--ink);font-weight:600}.slide .ends{color:var(--soft);justify-content:space-between;margin-top:12px;font-size:13px;display:flex}.strips{color:var(--soft);grid-template-columns:auto 1fr;align-items:center;gap:3px 10px;margin-top:10px;font-size:12px;display:grid}.strip{width:100%;height:18px;image-rendering:pixelated;border:1px solid var(--line-strong);border-radius:2px}.outcome{max-width:72ch;margin-top:10px;font-size:14px}.edge{fill:none;stroke:var(--accent);opacity:.6}.edge:hover,.edge.chosen{opacity:1;stroke:var(--contested)}.node{fill:var(--accent)}.node.chosen,.node.root{fill:var(--contested)}.drop{stroke:var(--line-strong);stroke-width:.75px;stroke-dasharray:2 3}.mark{stroke:var(--contested);stroke-width:1.25px;stroke-dasharray:4 3}svg text.mark-name{fill:var(--contested);font-weight:600}.line{fill:none;stroke-width:2px}.dashed{stroke-dasharray:5 4}.band{opacity:.16}.s0{--tone:#0072b2}.s1{--tone:#d55e00}.s2{--tone:#009e73}.s3{--tone:#cc79a7}.s4{--tone:#56b4e9}.s5{--tone:#e69f00}.s6{--tone:#8a6fd1}.s7{--tone:#7f7f7f}.line{stroke:var(--tone)}.dot,.band{fill:var(--tone)}.keys{color:var(--soft);flex-wrap:wrap;gap:4px 18px;margin:6px 0 0;padding:0;font-size:13px;list-style:none;display:flex}.keys li{align-items:center;gap:6px;display:flex}.stroke{border-top:3px solid var(--tone);width:18px;height:0}.stroke.dashed{border-top-style:dashed}.scroll{border:1px solid var(--line);background:var(--card);border-radius:8px;max-height:460px;margin-top:12px;overflow:auto}table{border-collapse:collapse;width:100%;font-size:13px}th{background:var(--card);text-align:right;z-index:1;box-shadow:inset 0 -1px var(--line-strong);position:sticky;top:0}th:first-child,td:first-child{text-align:left}th button{width:100%;text-align:inherit;color:var(--soft);background:0 0;border:0;padding:8px 10px;font-size:12px;font-weight:600}th[aria-sort] button{color:var(--ink)}th[aria-sort=descending] button:after{content:\" ↓\"}th[aria-sort=ascending] button:after{content:\" ↑\"}td{text-align:right;border-top:1px solid var(--line);white-space:nowrap;padding:4px 10px}tr[aria-selected=true] td{background:var(--accent-soft)}.heads tbody tr{cursor:pointer}td[data-word]:before{content:\"\";background:var(--no-effect);border-radius:2px;width:9px;height:9px;margin-right:7px;display:inline-block}td[data-word=evidence]:before{background:var(--evidence)}td[data-word=partial]:before{background:var(--partial)}td[data-word=contested]:before{background:var(--contested)}td[data-word]{text-align:left}.link{text-align:left;background:0 0;border:0;padding:0}.link:hover{text-decoration:underline}.glossary{color:var(--soft);grid-template-columns:max-content 1fr;gap:2px 16px;max-width:90ch;margin:14px 0 0;font-size:13px;display:grid}.glossary dt{color:var(--ink);font-weight:600}.glossary dd,.origin dd{margin:0}footer{grid-template-columns:repeat(2,minmax(0,1fr));gap:28px 48px;display:grid}.origin{grid-template-columns:minmax(0,1fr) minmax(0,1.2fr);gap:4px 16px;margin:12px 0 0;font-size:13px;display:grid}.origin dt{color:var(--soft)}.origin dd{overflow-wrap:anywhere;font-variant-numeric:tabular-nums}.keys-help{grid-column:1/-1;max-width:none}kbd{font:12px var(--sans);border:1px solid var(--line-strong);color:var(--ink);border-radius:4px;margin-left:10px;padding:1px 6px}.toast{background:var(--ink);color:var(--paper);z-index:9;border-radius:999px;padding:8px 16px;font-size:13px;position:fixed;bottom:18px;left:50%;transform:translate(-50%)}.toast:empty{display:none}.ask{gap:10px;display:grid}.ask .fields{grid-template-columns:2fr 1fr;gap:10px;display:grid}.ask textarea,.ask input{background:var(--card);border:1px solid var(--line-strong);border-radius:8px;width:100%;min-width:0;padding:9px 12px}.ask .actions{flex-wrap:wrap;align-items:center;gap:12px;display:flex}.ask .choice{margin:0}.ask progress{width:100%;height:6px;accent-color:var(--accent)}.primary{background:var(--ink);color:var(--paper);border:0;border-radius:8px;padding:8px 20px;font-weight:600}.primary:disabled{opacity:.5;cursor:default}.serve{padding-bottom:0}.status{color:var(--soft);min-height:1.5em;font-size:14px}@container (width<=820px){.exhibit,.case,footer{grid-template-columns:minmax(0,1fr);gap:28px}.side,.centre{display:contents}.overview{order:1}.head{order:2}.row-view{order:3}.slide{order:4}.legend{flex:100%}.glossary{grid-template-columns:1fr}.glossary dd{margin-bottom:6px}}@media (max-width:520px){.page{padding:14px 16px 40px}.bar{margin-bottom:20px}.bar .mark span{display:none}.segmented{display:flex}.segmented button{flex:1;padding:7px 4px;font-size:13px}.text{font-size:17px}.ask .fields{grid-template-columns:1fr}}@media (prefers-reduced-motion:no-preference){.cell,.segmented button,.quiet{transition:background-color .12s,filter .12s}}@media print{.exports,.options,.theme,.keys-help{display:none}}";
// src/summary.ts
function Le(t) {
	let { header: r, store: i } = t, a = r.summary, o = r.about.find(([e]) => e === "model")?.[1] ?? "";
	if (!a) return e("header", { class: "summary" }, e("p", { class: "kicker" }, r.kind, " · ", o), e("h1", {}, r.title));
	let [s, c] = a.verdict.split(/(?<=[.!?]) (?=Of )/u), l = e("p", {
		class: "text",
		"aria-label": "the text, shaded by contribution"
	});
	return i.watch(["token", "noSpecial"], () => n(l, ...Re(t))), e("header", { class: "summary" }, e("p", { class: "kicker" }, r.title), e("h1", {}, s), c && e("p", { class: "counts" }, c), e("div", { class: "case" }, e("div", {}, e("h2", { class: "label" }, "The text"), l, e("p", { class: "caption" }, a.caption)), e("div", {}, e("h2", { class: "label" }, "The answer"), ze(a.answer), e("p", { class: "caption" }, a.target && `Explained below: the ${a.target}.`))), a.skipped.length > 0 && e("details", { class: "skipped" }, e("summary", {}, `${a.skipped.length} methods did not apply`), e("dl", {}, ...a.skipped.flatMap(([t, n]) => [e("dt", {}, t), e("dd", {}, n)]))));
}
function Re(t) {
	let { header: n, store: i } = t, a = n.summary, o = n.sequences[a.sequence], s = Math.max(...a.shares.map(Math.abs), 0), c = new k(s, t.isDark());
	return o.tokens.flatMap((t, n) => {
		if (i.now.noSpecial && o.special[n]) return [];
		let l = a.shares[n] ?? 0, u = e("button", {
			class: "token",
			type: "button",
			title: `${t}: ${d(l, !0)}`,
			"aria-pressed": String(i.now.token === n),
			on: { click: () => i.set({
				token: n,
				query: n
			}) }
		}, m(t)), f = s > 0 ? l * Math.abs(l) / s : 0;
		return f && r(u, {
			"background-color": c.css(f),
			color: c.ink(f)
		}), [u, document.createTextNode(" ")];
	});
}
function ze(t) {
	let n = t.every(([, e]) => e >= 0 && e <= 1);
	return e("dl", { class: "answer" }, ...t.flatMap(([t, i]) => [e("dt", {}, t), e("dd", {}, n && r(e("span", { class: "bar" }), { width: `${Math.max(100 * i, .5)}%` }), e("span", { class: "figure" }, n ? p(i) : d(i, !0)))]));
}
// src/tableview.ts
function Be(t, n) {
	let { store: r } = t, i = n.heads.some((e) => e.word), { element: a, body: o } = He(t, [
		"head",
		...i ? ["verdict"] : [],
		...n.columns.map((e) => e.name)
	], n.heads.map((e) => [
		V(n.sites[e.site], e),
		...i ? [e.word ?? ""] : [],
		...n.columns.map((t) => e.numbers[t.key] ?? null)
	]), [
		"",
		...i ? [""] : [],
		...n.columns.map((e) => e.help)
	], (e) => r.set({ head: e }));
	return r.watch(["head"], () => {
		for (let e of o.children) e.setAttribute("aria-selected", String(e.dataset.place === String(r.now.head)));
	}), e("section", {
		class: "heads",
		"aria-label": "table of heads"
	}, e("h2", {}, "All heads in numbers"), e("p", { class: "caption" }, "Choose a heading to sort by it, a row to open its head."), a, n.columns.length > 0 && e("dl", { class: "glossary" }, ...n.columns.flatMap((t) => [e("dt", {}, t.name), e("dd", {}, t.help)])));
}
function Ve(t, n) {
	return e("section", {
		class: "table",
		"aria-label": n.title
	}, e("h2", {}, n.title), n.caption && e("p", { class: "caption" }, n.caption), He(t, n.columns, n.rows, [], null).element);
}
function He(t, r, i, a, c) {
	let l = -1, u = !0, f = e("tbody", {}), p = r.map((t, n) => e("th", {
		scope: "col",
		title: a[n] || null
	}, e("button", {
		type: "button",
		on: { click: () => h(n) }
	}, t))), m = i.map((t, n) => {
		let i = e("tr", { "data-place": n }, ...t.map((t, i) => e("td", {
			class: typeof t == "string" ? "" : "figure",
			"data-word": r[i] === "verdict" ? t : null
		}, typeof t == "string" ? i === 0 && c ? e("button", {
			type: "button",
			class: "link",
			on: { click: () => c(n) }
		}, t) : t : d(t))));
		return c && i.addEventListener("click", () => c(n)), i;
	});
	function h(e) {
		u = l === e ? !u : typeof i[0]?.[e] != "string", l = e;
		let t = i.map((e, t) => t).sort((t, n) => {
			let r = Ue(i[t][e], i[n][e]);
			return u ? -r : r;
		});
		p.forEach((t, n) => n === e ? t.setAttribute("aria-sort", u ? "descending" : "ascending") : t.removeAttribute("aria-sort")), n(f, ...t.map((e) => m[e]));
	}
	return n(f, ...m), {
		element: e("div", {}, e("div", {
			class: "scroll",
			tabindex: 0
		}, e("table", {}, e("thead", {}, e("tr", {}, ...p)), f)), e("div", { class: "exports" }, e("button", {
			type: "button",
			class: "quiet",
			on: { click: () => void s(t, o([r, ...i])) }
		}, "Copy CSV"))),
		body: f
	};
}
function Ue(e, t) {
	return typeof e == "number" && typeof t == "number" ? e - t : e === null || t === null ? (t === null) - +(e === null) : String(e).localeCompare(String(t), "en", { numeric: !0 });
}
// src/theme.ts
function We(t, n) {
	let r = matchMedia("(prefers-color-scheme: dark)"), i = () => t.dataset.theme ? t.dataset.theme === "dark" : r.matches, a = e("button", {
		type: "button",
		class: "quiet theme",
		on: { click: () => c() }
	}), o = () => a.textContent = i() ? "Light" : "Dark", s = () => {
		o(), n();
	};
	function c() {
		t.dataset.theme = i() ? "light" : "dark", s();
	}
	return r.addEventListener("change", s), o(), {
		isDark: i,
		button: a,
		toggle: c,
		forget: () => r.removeEventListener("change", s)
	};
}
// src/tree.ts
function Ge(e) {
	let t = [];
	for (let n = 0; n + 4 < e.length; n += 5) {
		let [r, i, a, o, s] = e.subarray(n, n + 5);
		t.push({
			layer: r,
			parent: i,
			child: a,
			score: o,
			share: s
		});
	}
	return t;
}
function Ke(e, t, n, r) {
	let i = /* @__PURE__ */ new Map([[t, Infinity]]), a = [];
	for (let t of e) t.share > n && t.score > r && ((i.get(t.parent) ?? -1) <= t.layer || i.has(t.child) || (i.set(t.child, t.layer), a.push(t)));
	return a;
}
// src/treeview.ts
var Y = 40, X = 58, qe = 96, Je = 40;
function Ye(r, i) {
	let { store: a, payload: c, header: l } = r, f = L(l, i.sequence, 0), p = [], g = [], _ = null, v = e("div", {
		class: "drawing",
		tabindex: 0,
		role: "group",
		"aria-label": "attribution tree"
	}), y = e("p", {
		class: "outcome",
		"aria-live": "polite"
	}), b = {
		threshold: e("b", { class: "figure" }),
		penalty: e("b", { class: "figure" })
	}, x = {
		threshold: Z("threshold τ", 100, (e) => a.set({ threshold: i.lowest + (.98 - i.lowest) * e })),
		penalty: Z("penalty λ", 100, (e) => a.set({ penalty: C(e) }))
	}, S = () => Math.max(...p.map((e) => e.score), 1e-12), C = (e) => e === 0 ? 0 : S() * 10 ** (4 * (e - 1));
	function w() {
		let { threshold: t, penalty: r, token: o } = a.now;
		g = Ke(p, i.root, t, r), b.threshold.textContent = d(t), b.penalty.textContent = d(r), x.threshold.value = String(Math.round(100 * (t - i.lowest) / (.98 - i.lowest))), x.penalty.value = String(r > 0 ? Math.max(1, Math.round(100 * (1 + Math.log10(r / S()) / 4))) : 0), _ = T(o), n(v, _);
		let s = g.reduce((e, t) => e + t.score - r, 0);
		E.dataset.penalty = String(r), E.dataset.threshold = String(t), n(y, e("b", { class: "figure" }, g.length), ` of ${p.length} possible edges; together, less the penalty, they contribute `, e("b", { class: "figure" }, d(s, !0)), ` to the ${i.target}. Root: `, e("q", {}, m(f[i.root])), ".");
	}
	function T(e) {
		let n = new Map(g.map((e) => [e.child, e.layer]));
		n.set(i.root, i.layers);
		let r = f.map((e, t) => t).filter((e) => f.length <= Je || n.has(e)), o = Math.max(v.clientWidth, 300), s = Math.min(Math.max((o - X - 12) / Math.max(r.length, 1), 22), qe), c = Math.max(X + s * r.length + 12, 240), l = 24 + Y * (i.layers + 1), u = (e) => [X + s * (r.indexOf(e) + .5), 24 + Y * (i.layers - (n.get(e) ?? 0))], p = t("svg", {
			width: c,
			height: l + 64,
			viewBox: `0 0 ${c} ${l + 64}`
		});
		for (let e = 0; e <= i.layers; e++) {
			let n = 24 + Y * (i.layers - e);
			p.append(t("line", {
				class: "rule",
				x1: 50,
				x2: c - 6,
				y1: n,
				y2: n
			}), t("text", {
				class: "level",
				x: 0,
				y: n + 4
			}, e === i.layers ? "answer" : `layer ${e}`));
		}
		let _ = Math.max(...g.map((e) => e.score), 1e-12);
		for (let n of g) {
			let [[r, i], [a, o]] = [u(n.parent), u(n.child)], s = (i + o) / 2;
			p.append(t("path", {
				class: n.child === e ? "edge chosen" : "edge",
				d: `M${r} ${i} C${r} ${s} ${a} ${s} ${a} ${o}`,
				"stroke-width": (1 + 4.5 * Math.sqrt(n.score / _)).toFixed(2)
			}, t("title", {}, `${m(f[n.parent])} ← ${m(f[n.child])}, layer ${n.layer}, ${d(n.score, !0)}`)));
		}
		for (let o of r) {
			let r = n.has(o), [s, c] = u(o);
			r && p.append(t("line", {
				class: "drop",
				x1: s,
				x2: s,
				y1: c + 5,
				y2: l - 12
			}), t("circle", {
				class: o === i.root ? "node root" : o === e ? "node chosen" : "node",
				cx: s,
				cy: c,
				r: o === i.root ? 7 : 5
			})), p.append(t("text", {
				class: r ? "word inside" : "word",
				transform: `translate(${s + 4} ${l}) rotate(-48)`,
				"text-anchor": "end",
				on: { click: () => a.set({ token: o }) }
			}, h(m(f[o]), 11)));
		}
		return p;
	}
	let E = e("section", {
		class: "tree",
		"aria-label": "attribution tree"
	});
	c.doubles(i.edges).then((e) => {
		p = Ge(e), w();
	}), a.watch([
		"threshold",
		"penalty",
		"token"
	], w), new ResizeObserver(() => w()).observe(v);
	let D = () => [[
		"layer",
		"parent",
		"child",
		"score"
	], ...g.map((e) => [
		e.layer,
		f[e.parent],
		f[e.child],
		e.score
	])];
	return E.append(e("h2", {}, "By what way did the words reach the answer?"), e("p", { class: "caption" }, "Edges of all heads together that contributed to the answer. τ: share of the layer’s largest edge that an edge must exceed. λ: what an edge must be worth."), e("div", { class: "options" }, e("label", { class: "choice wide" }, "τ ", x.threshold, b.threshold), e("label", { class: "choice wide" }, "λ ", x.penalty, b.penalty)), v, y, e("p", { class: "caption" }, i.note), e("div", { class: "exports" }, e("button", {
		type: "button",
		class: "quiet",
		on: { click: () => void s(r, o(D())) }
	}, "Copy CSV"), e("button", {
		type: "button",
		class: "quiet",
		on: { click: () => _ && u(_, "attribution-tree.svg") }
	}, "Save SVG"))), E;
}
function Z(t, n, r) {
	let i = e("input", {
		type: "range",
		min: 0,
		max: n,
		step: 1,
		"aria-label": t,
		on: { input: () => r(Number(i.value) / n) }
	});
	return i;
}
// src/app.ts
function Q(t, n, r, i) {
	let a = t.shadowRoot ?? t.attachShadow({ mode: "open" }), o = new CSSStyleSheet();
	o.replaceSync(Ie), a.adoptedStyleSheets = [o];
	let s = new Me(Qe(n)), c = e("p", {
		class: "toast",
		role: "status"
	}), l = We(t, () => s.refresh()), u = {
		payload: new ce(n, r),
		header: n,
		store: s,
		isDark: l.isDark,
		say: (e) => {
			c.textContent = e, setTimeout(() => c.textContent === e && (c.textContent = ""), 4e3);
		}
	}, d = e("main", { class: "page" }, e("nav", { class: "bar" }, e("span", { class: "mark" }, e("b", {}, "Exhibit A"), e("span", {}, "attention, on the stand")), l.button), Le(u), n.maps ? Xe(u, n.maps) : null, n.story ? Fe(u, n.story) : null, n.tree ? Ye(u, n.tree) : null, ...n.charts.map((e) => v(u, e)), n.maps && n.maps.columns.length > 0 ? Be(u, n.maps) : null, ...n.tables.map((e) => Ve(u, e)), $e(n), c);
	a.replaceChildren(d);
	let f = S(u, i.alone ? document : d, l.toggle);
	return () => {
		f(), l.forget(), a.replaceChildren();
	};
}
function Xe(t, n) {
	let { store: r, payload: i, header: a } = t, o = [
		_e(t, n),
		Te(t, n),
		...a.slider ? [je(t, a.slider)] : []
	], s = n.words.length > 0 && !a.slider, [c, ...l] = o.map((e) => e.element);
	return r.watch(["head"], () => {
		let e = r.now.head, t = n.heads[e], s = n.sites[t.site], l = a.slider?.heads.find((e) => e.site === t.site && e.head === t.head);
		Promise.all([i.head(n, t), l ? Oe.load(i, l) : null]).then(([n, i]) => {
			if (r.now.head !== e) return;
			let a = {
				head: t,
				site: s,
				grids: n,
				slides: i
			}, l = Math.min(r.now.query, s.rows - 1);
			r.set({
				slide: 0,
				hover: null,
				query: l
			});
			for (let e of o) e.show(a);
			c.dataset.shown = String(e);
		});
	}), e("div", { class: "exhibit" }, e("div", { class: "side" }, n.heads.length > 1 && be(t, n), ...l.slice(1), s && Ze()), e("div", { class: "centre" }, c, l[0]));
}
function Ze() {
	return e("section", {
		class: "slide",
		"aria-label": "same output, other attention"
	}, e("h3", {}, "Same output, other attention"), e("p", { class: "caption" }, "None was found: no row of this text could be moved without changing what its head passes on."));
}
function Qe(e) {
	let t = e.maps?.heads ?? [], n = (e) => t[e].numbers.share ?? 0, r = t.reduce((e, t, r) => n(r) > n(e) ? r : e, 0), i = e.tree?.root ?? 0;
	return {
		head: r,
		mode: e.maps?.modes[0]?.key ?? "",
		query: e.tree?.reader ?? 0,
		hover: null,
		noSpecial: !1,
		ownScale: !1,
		slide: 0,
		token: i,
		layer: (e.story?.maps.heads.length ?? 1) - 1,
		threshold: e.tree?.threshold ?? 0,
		penalty: e.tree?.penalty ?? 0,
		colourBy: t.some((e) => e.word) ? "" : e.maps?.columns[0]?.key ?? ""
	};
}
function $e(t) {
	let n = (t) => e("dl", { class: "origin" }, ...t.flatMap(([t, n]) => [e("dt", {}, t), e("dd", {}, n)]));
	return e("footer", {}, e("section", { "aria-label": "checks" }, e("h2", {}, "How far to trust these numbers"), t.checks.length ? n(t.checks) : e("p", { class: "caption" }, "This result carries no checks.")), e("section", { "aria-label": "origin" }, e("h2", {}, "Where they come from"), n(t.about)), e("p", { class: "keys-help caption" }, "Keys: ", ...[
		["← → ↑ ↓", "heads"],
		["1–4", "modes"],
		["j k", "rows"],
		["[ ]", "slide"],
		["s", "special tokens"],
		["t", "light or dark"]
	].flatMap(([t, n]) => [e("kbd", {}, t), ` ${n}  `])));
}
// src/serve.ts
function et(t) {
	let n = (t.dataset.models ?? "").split("\n").filter(Boolean), r = t.attachShadow({ mode: "open" }), i = new CSSStyleSheet();
	i.replaceSync(Ie), r.adoptedStyleSheets = [i];
	let a = e("textarea", {
		name: "text",
		rows: 2,
		required: !0,
		maxlength: t.dataset.longest ?? "4000",
		placeholder: "a gripping , beautifully shot film",
		"aria-label": "the text"
	}), o = e("input", {
		name: "pair",
		"aria-label": "the second text, for models of pairs",
		placeholder: "second text, for models of pairs"
	}), s = e("select", { "aria-label": "model" }, ...n.map((t) => e("option", { value: t }, t))), c = e("button", {
		type: "submit",
		class: "primary"
	}, "Examine"), l = e("button", {
		type: "button",
		class: "quiet",
		hidden: !0
	}, "Stop"), u = e("p", {
		class: "status",
		role: "status",
		"aria-live": "polite"
	}), d = e("progress", {
		max: 1,
		value: 0,
		hidden: !0
	}), f = e("a", {
		class: "quiet",
		hidden: !0
	}, "Save this page"), p = e("div", { class: "result" }), m = null, h = e("form", {
		class: "ask",
		on: { submit: (e) => {
			e.preventDefault(), g();
		} }
	}, e("div", { class: "fields" }, a, o), e("div", { class: "actions" }, e("label", { class: "choice" }, "Model ", s), c, l, f), d, u);
	l.addEventListener("click", () => m?.abort()), r.append(e("div", { class: "page serve" }, h), p);
	async function g() {
		m = new AbortController(), v(!0);
		try {
			let e = {
				text: a.value,
				pair: o.value || null,
				model: s.value
			}, t = await fetch("explain", {
				method: "POST",
				headers: { "content-type": "application/json" },
				body: JSON.stringify(e),
				signal: m.signal
			});
			if (!t.ok || !t.body) throw Error(await t.text() || t.statusText);
			for await (let e of tt(t.body)) await _(e);
		} catch (e) {
			u.textContent = m.signal.aborted ? "Stopped." : `${e.message}`;
		} finally {
			v(!1);
		}
	}
	async function _(t) {
		if (t.state === "waiting" && (u.textContent = t.ahead ? `Waiting: ${t.ahead} before you.` : "Waiting."), t.state === "working" && (d.value = (t.step ?? 0) / (t.steps ?? 1), u.textContent = `Working: ${t.stage} (${(t.step ?? 0) + 1} of ${t.steps}).`), t.state === "failed" && (u.textContent = t.error ?? "It failed."), t.state === "done") {
			let n = await (await fetch(`result/${t.id}`)).json(), r = e("div", {});
			p.replaceChildren(r), Q(r, n.header, n.blocks, { alone: !1 }), f.href = `page/${t.id}`, f.download = "exhibit-a.html", f.hidden = !1, u.textContent = "Done.";
		}
	}
	function v(e) {
		c.disabled = e, l.hidden = !e, d.hidden = !e, e && (d.value = 0);
	}
}
async function* tt(e) {
	let t = e.pipeThrough(new TextDecoderStream()).getReader(), n = "";
	for (;;) {
		let { value: e, done: r } = await t.read();
		if (r) return;
		let i = (n + e).split("\n");
		n = i.pop() ?? "";
		for (let e of i.filter(Boolean)) yield JSON.parse(e);
	}
}
// src/main.ts
var $ = document.querySelector("[data-exhibit-a]");
if ($?.dataset.exhibitA === "page") {
	let e = (e) => document.querySelector(`script[data-part=${e}]`)?.textContent ?? "";
	Q($, JSON.parse(e("header")), e("blocks").trim(), { alone: !0 });
}
$?.dataset.exhibitA === "serve" && et($);
function nt({ model: e, el: t }) {
	let n = document.createElement("div");
	t.append(n);
	let r = () => Q(n, JSON.parse(e.get("header")), e.get("blocks"), { alone: !1 }), i = r(), a = () => {
		i(), i = r();
	};
	return e.on("change:blocks", a), () => {
		e.off("change:blocks", a), i();
	};
}
var rt = { render: nt };
export { rt as default };
