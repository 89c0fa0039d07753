"""Colours, style and the one script of the report page, and the content policy that allows exactly these two.

Colours have meanings: `bytes` for amounts, `warn` for what waits, `danger` for what needs a hand, `quiet` for what is
at rest. Every one of them is also said in words. `PALETTE` is where a test takes the pairs whose contrast it computes.
"""

from __future__ import annotations

import base64
import hashlib

# name: (light, dark)
PALETTE = {
    "page": ("#ffffff", "#14171a"),
    "panel": ("#f4f6f8", "#1d2226"),
    "ink": ("#1f2328", "#e6e8ea"),
    "muted": ("#566069", "#a3adb7"),
    "line": ("#d0d7de", "#39424a"),
    "bytes": ("#1f6f9f", "#6db3de"),
    "tile": ("#d3e5f1", "#21465f"),
    "quiet": ("#76838f", "#85919c"),
    "warn": ("#8a5a00", "#f0b95a"),
    "danger": ("#b3261e", "#ff8f85"),
}
# Texts on what they stand on, and pictures on theirs.
TEXT_PAIRS = [(text, ground) for text in ("ink", "muted", "warn", "danger", "bytes") for ground in ("page", "panel")]
TEXT_PAIRS.append(("ink", "tile"))
PICTURE_PAIRS = [(shape, "page") for shape in ("bytes", "quiet", "warn", "danger")]

_RULES = """
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1.25rem 4rem;max-width:72rem;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
h1{font-size:1.5rem;margin:0 0 .25rem}
h2{font-size:1.15rem;margin:2.5rem 0 .5rem;padding-top:.75rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.25rem 0 .35rem}
p{margin:.35rem 0;max-width:46rem}
.m{color:var(--muted)}
code,.n,td:not(:first-child){font-variant-numeric:tabular-nums}
code{font:13px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;background:var(--panel);
padding:.1rem .3rem;border-radius:3px;overflow-wrap:anywhere}
dl{display:flex;flex-wrap:wrap;gap:.5rem 2.25rem;margin:1rem 0}
dl div{display:flex;flex-direction:column-reverse}
dt{color:var(--muted);font-size:.85rem}
dd{margin:0;font-size:1.35rem;font-weight:600}
ul{margin:.3rem 0;padding-left:1.2rem}
li{overflow-wrap:anywhere}
.c{border-left:4px solid var(--quiet);background:var(--panel);padding:.6rem .9rem;margin:.6rem 0;
border-radius:0 4px 4px 0}
.c h3{margin:0}
.c.danger,.c.blocker{border-color:var(--danger)}
b.danger,b.blocker{color:var(--danger)}
b.warn{color:var(--warn)}
b.note{color:var(--muted)}
.w{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
caption{text-align:left;color:var(--muted);padding:.25rem 0}
th,td{text-align:left;padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:middle}
thead th{color:var(--muted);font-weight:600;white-space:nowrap;vertical-align:bottom}
tbody th{font-weight:500;overflow-wrap:anywhere;min-width:8rem}
.y{min-width:16rem}
.h{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
.r{text-align:right;white-space:nowrap}
th button{all:unset;cursor:pointer}
th button:focus-visible{outline:2px solid var(--bytes)}
th[aria-sort=ascending] button::after{content:" \\25b2"}
th[aria-sort=descending] button::after{content:" \\25bc"}
svg{display:block}
svg text{font-size:12px;fill:var(--ink)}
.s{display:none}
.t rect{fill:var(--tile);stroke:var(--page);stroke-width:2}
.a{fill:var(--tile)}
.l{fill:none;stroke:var(--bytes);stroke-width:1.5;vector-effect:non-scaling-stroke}
.b{fill:var(--bytes)}
.k{fill:var(--bytes)}.k-dirty{fill:var(--warn)}.k-young{fill:none;stroke:var(--warn)}
.k-blocked{fill:var(--danger)}
.k-due{fill:none;stroke:var(--quiet);stroke-dasharray:2 2}.k-active{fill:none;stroke:var(--bytes)}
.k-plain{fill:var(--quiet)}
.x{max-width:none;display:flex;justify-content:space-between;color:var(--muted);font-size:.85rem}
.key{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;color:var(--muted);font-size:.85rem;margin:.4rem 0;
padding:0;list-style:none}
.key li{display:flex;align-items:center;gap:.4rem}
.f{border:1px solid var(--line)}
details{margin:.6rem 0}
summary{cursor:pointer;color:var(--bytes)}
@media(max-width:40rem){body{padding:1rem .75rem 3rem}dl{gap:.5rem 1.25rem}dd{font-size:1.15rem}
.o{display:none}.s{display:block}}
@media print{body{max-width:none;padding:0;font-size:11px}h2{break-after:avoid}tr,.c{break-inside:avoid}
.w{overflow:visible}table{font-size:9px}th,td{padding:3px 4px}th button{display:contents}
details::details-content{content-visibility:visible;block-size:auto}}
"""

SCRIPT = """
"use strict";
const folded = () => document.querySelectorAll("details");
addEventListener("beforeprint", () => folded().forEach(one => { one.dataset.was = one.open; one.open = true; }));
addEventListener("afterprint", () => folded().forEach(one => { one.open = one.dataset.was === "true"; }));
for (const table of document.querySelectorAll("table[data-sort]")) {
  const heads = Array.from(table.tHead.rows[0].cells), body = table.tBodies[0];
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  heads.forEach((head, column) => {
    if (head.hasAttribute("data-fixed")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.textContent = "";
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = Array.from(body.rows);
      rows.sort((one, other) => {
        const a = value(one, column), b = value(other, column);
        const order = typeof a === "number" ? a - b : String(a).localeCompare(String(b), undefined, {numeric: true});
        return down ? -order : order;
      });
      body.append(...rows);
    });
  });
}
"""


def _variables(column: int) -> str:
    return "".join(f"--{name}:{colours[column]};" for name, colours in PALETTE.items())


def _short(text: str) -> str:
    return text.strip().replace("\n", "")


STYLE = (
    f":root{{color-scheme:light dark;{_variables(0)}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(1)}}}}}"
    f"{_short(_RULES)}"
)


def policy() -> str:
    """Returns the content policy: nothing from anywhere, and only this style and this script."""
    return (
        f"default-src 'none'; style-src '{_digest(STYLE)}'; script-src '{_digest(SCRIPT)}'; base-uri 'none';"
        " form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
