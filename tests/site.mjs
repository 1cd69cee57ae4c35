// Pages of the site in a headless Chromium, wide and narrow, light and dark: axe-core, sideways scrolling, faults.
// node site.mjs TOOLS SITE SCREENSHOTS PAGE...: TOOLS has node_modules (see `make browser`); prints one JSON.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [tools, site, shots, ...pages] = process.argv.slice(2);
const require = createRequire(path.resolve(tools, "package.json"));
const load = async (name) => {
  const found = await import(pathToFileURL(require.resolve(name)));
  return found.default?.default ?? found.default ?? found;
};
const [chromium, puppeteer] = [await load("@sparticuz/chromium"), await load("puppeteer-core")];
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const browser = await puppeteer.launch({
  args: [...chromium.args, "--no-sandbox", "--allow-file-access-from-files"],
  executablePath: await chromium.executablePath(), headless: "shell",
});

const views = [];
for (const name of pages) {
  for (const [width, height] of [[1280, 900], [390, 844]]) {
    for (const scheme of ["light", "dark"]) {
      const page = await browser.newPage();
      await page.evaluateOnNewDocument(() => localStorage.clear());  // no colours are remembered
      const faults = [];
      page.on("pageerror", (error) => faults.push(String(error)));
      page.on("request", (r) => /^(file|data|blob):/.test(r.url()) || faults.push(`network: ${r.url()}`));
      await page.setViewport({ width, height });
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      await page.goto(pathToFileURL(path.join(site, name)), { waitUntil: "load" });
      await page.waitForFunction(  // the theme chooses its colours after the page has loaded
        (wanted) => document.body.dataset.mdColorScheme === wanted, { timeout: 5000 },
        scheme === "dark" ? "slate" : "default");
      const file = `${name.replace(/\W/g, "-")}-${width}-${scheme}.png`;
      if (shots) await page.screenshot({ path: path.join(shots, file), fullPage: process.env.WHOLE === "1" });
      const sideways = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      await page.evaluate(axe);
      const violations = await page.evaluate(async () => (await axe.run()).violations.map(
        (v) => `${v.id}, ${v.nodes.length} times: ${v.help}; ${v.nodes[0].html.slice(0, 160)} ${v.nodes[0].any?.[0]?.message ?? ""}`));
      views.push({ name, width, scheme, sideways, faults, violations });
      await page.close();
    }
  }
}
await browser.close();
console.log(JSON.stringify(views, null, 1));
