// A report in a headless Chromium, wide and narrow, light and dark: axe-core, sideways scrolling, the keyboard, time.
// node browser.mjs TOOLS REPORT.html [SCREENSHOTS]: TOOLS has node_modules (see `make browser`); prints one JSON.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [tools, file, shots] = process.argv.slice(2);
const require = createRequire(path.resolve(tools, "package.json"));
const load = async (name) => {
  const found = await import(pathToFileURL(require.resolve(name)));
  return found.default?.default ?? found.default ?? found;
};
const [chromium, puppeteer] = [await load("@sparticuz/chromium"), await load("puppeteer-core")];
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const browser = await puppeteer.launch({
  args: [...chromium.args, "--no-sandbox"], executablePath: await chromium.executablePath(), headless: "shell",
});

const opened = async (width, height, scheme) => {
  const page = await browser.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (said) => said.type() === "error" && faults.push(said.text()));
  page.on("request", (r) => /^(file|data):/.test(r.url()) || faults.push(`network: ${r.url()}`));
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  const began = Date.now();
  await page.goto(pathToFileURL(file), { waitUntil: "load" });
  return { page, faults, milliseconds: Date.now() - began };
};

// the whole with all that is folded open, cut at what a PNG can hold
const shot = (page, name) => shots && page.screenshot({ path: `${shots}/${name}.png`, fullPage: true });

const views = [];
for (const [width, height] of [[1280, 900], [390, 844]]) {
  for (const scheme of ["light", "dark"]) {
    const { page, faults, milliseconds } = await opened(width, height, scheme);
    const screens = await page.evaluate(() => document.documentElement.scrollHeight / innerHeight);
    await shot(page, `${width}-${scheme}`);
    await page.evaluate(() => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
    const sideways = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    await page.evaluate(() => { document.querySelector(".overview").open = false; });
    await shot(page, `${width}-${scheme}-open`);
    await page.evaluate(axe);
    const violations = await page.evaluate(async () => (await axe.run()).violations.map(
      (v) => `${v.id}, ${v.nodes.length} times: ${v.help}; ${v.nodes[0].html.slice(0, 120)}`));
    views.push({ width, scheme, milliseconds, screens, sideways, faults, violations });
    await page.close();
  }
}

const { page } = await opened(1280, 900, "light");
const images = await page.evaluate(() => {
  document.querySelectorAll("details").forEach((d) => { d.open = true; });
  return document.querySelectorAll("button.enlarge").length;
});
const reached = new Set();
for (let tabs = 0; tabs < 5000 && reached.size < images; tabs += 1) {
  await page.keyboard.press("Tab");
  const at = await page.evaluate(() => [...document.querySelectorAll("button.enlarge")].indexOf(document.activeElement));
  if (at >= 0) reached.add(at);
}
const enlarged = () => page.evaluate(() => {
  const dialog = document.getElementById("enlarged");
  return dialog.open ? document.getElementById("enlarged-words").textContent : "";
});
await page.keyboard.press("Enter");
const first = await enlarged();
await page.keyboard.press("ArrowLeft");
const next = await enlarged();
await page.keyboard.press("Escape");
const closed = (await enlarged()) === "";

// every row of page 1 leads to its findings, also where those lie folded
const links = await page.evaluate(() => [...document.querySelectorAll(".front td a, .front th a")].map((a) => {
  const target = document.getElementById(decodeURIComponent(a.hash.slice(1)));
  return target !== null;
}));
const sorted = await page.evaluate(() => {
  const table = document.querySelector("table.sortable");
  const order = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent.trim());
  const button = table.querySelector("thead button");
  button.click();
  const up = order();
  button.click();
  return { up, down: order() };
});
const values = await page.evaluate(() => document.querySelectorAll('[id*="-value-"] > title').length);
await browser.close();
console.log(JSON.stringify({ views, images, reached: reached.size, first, next, closed, links, sorted, values }));
