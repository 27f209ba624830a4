"""The style of a picture. Every rule is below one class, so that a notebook's own page stays as it is."""

_LIGHT = """--ground:#ffffff;--ink:#1f2430;--quiet:#646b78;--faint:#e4e7ec;--panel:#fafbfc;--old:#a9b0bb;
--dense:#2f5d8a;--write:#0072b2;--update:#b97a00;--delete:#c4480c;--consolidate:#00805d;--schema:#4a4f5c;color-scheme:light"""
_DARK = """--ground:#15181e;--ink:#e7e9ee;--quiet:#9aa3b2;--faint:#2b303a;--panel:#1a1e25;--old:#5b6472;
--dense:#8fbfe8;--write:#56b4e9;--update:#f0b13c;--delete:#f5814b;--consolidate:#3fc79c;--schema:#c3c9d4;color-scheme:dark"""

STYLE = f"""
.terrazzo{{{_LIGHT}}}
@media (prefers-color-scheme:dark){{.terrazzo{{{_DARK}}}}}
[data-jp-theme-light="true"] .terrazzo,.vscode-light .terrazzo{{{_LIGHT}}}
[data-jp-theme-light="false"] .terrazzo,.vscode-dark .terrazzo{{{_DARK}}}
.terrazzo{{background:var(--ground);color:var(--ink);font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;
max-width:1120px;margin:0 auto;padding:20px;box-sizing:border-box;text-align:left}}
.terrazzo h1{{font-size:24px;line-height:1.25;font-weight:650;margin:0;overflow-wrap:anywhere;color:inherit}}
.terrazzo h2{{font-size:15px;font-weight:650;margin:30px 0 2px;color:inherit}}
.terrazzo .uri{{color:var(--quiet);font-size:12.5px;overflow-wrap:anywhere;margin:2px 0 0}}
.terrazzo .note{{color:var(--quiet);font-size:12.5px;margin:0 0 8px}}
.terrazzo .facts{{display:flex;flex-wrap:wrap;gap:10px 34px;margin:16px 0 14px;padding:0}}
.terrazzo .facts div{{display:flex;flex-direction:column-reverse}}
.terrazzo .facts dt{{color:var(--quiet);font-size:12px;font-weight:400}}
.terrazzo .facts dd{{margin:0;font-size:19px;font-weight:600;font-variant-numeric:tabular-nums}}
.terrazzo pre{{font:12px/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--panel);color:inherit;
border:1px solid var(--faint);border-radius:6px;padding:10px 12px;margin:0;overflow:auto;max-height:260px}}
.terrazzo svg{{display:block;width:100%;height:auto;font-family:inherit;font-size:11px;fill:var(--ink)}}
.terrazzo .panel{{fill:var(--panel);stroke:var(--faint)}}
.terrazzo .grid,.terrazzo .lane{{stroke:var(--faint);fill:none}}
.terrazzo .pause{{stroke:var(--old);stroke-dasharray:1 4;fill:none}}
.terrazzo .mark{{stroke:var(--old);fill:none}}
.terrazzo .tick{{fill:var(--quiet);font-variant-numeric:tabular-nums}}
.terrazzo .context{{fill:var(--quiet);opacity:.85;font-variant-numeric:tabular-nums}}
.terrazzo .axis{{fill:var(--ink);font-size:12px}}
.terrazzo .message{{fill:var(--quiet);font-size:15px}}
.terrazzo .f{{fill:currentColor;fill-opacity:var(--fill);stroke:currentColor;stroke-width:var(--line)}}
.terrazzo .t{{fill:currentColor;fill-opacity:calc(var(--fill)*.45);stroke:currentColor;stroke-width:.5;stroke-opacity:.75}}
.terrazzo .l{{fill:none;stroke:currentColor;stroke-width:.5;stroke-opacity:.6;pointer-events:none}}
.terrazzo .f:hover,.terrazzo .t:hover{{fill-opacity:.5}}
.terrazzo .current{{fill:none;stroke:var(--ink);stroke-dasharray:6 4;stroke-width:1}}
.terrazzo .filled{{fill:none;stroke:var(--quiet);stroke-dasharray:2 3;stroke-width:1}}
.terrazzo .d{{fill:var(--dense);stroke:none}}
.terrazzo .d0{{opacity:.13}}.terrazzo .d1{{opacity:.28}}.terrazzo .d2{{opacity:.45}}.terrazzo .d3{{opacity:.65}}.terrazzo .d4{{opacity:.9}}
.terrazzo .e{{fill:var(--quiet);stroke:none}}
.terrazzo .create,.terrazzo .evolve{{fill:var(--schema)}}
.terrazzo .evolve{{fill:var(--ground);stroke:var(--schema);stroke-width:1.6}}
.terrazzo .write{{fill:var(--write);fill-opacity:.85}}
.terrazzo .update{{fill:var(--update);color:var(--update)}}
.terrazzo .delete{{color:var(--delete)}}
.terrazzo .consolidate{{fill:var(--consolidate);color:var(--consolidate)}}
.terrazzo .vacuum{{color:var(--quiet)}}
.terrazzo .old{{fill:var(--old);color:var(--old)}}
.terrazzo .later{{opacity:.3}}
.terrazzo .stroke{{fill:none;stroke:currentColor;stroke-width:2;stroke-linecap:round}}
.terrazzo .vacuum .stroke{{stroke-width:1.4}}
.terrazzo .span{{fill:none;stroke:currentColor;stroke-width:2.5;stroke-opacity:.55}}
.terrazzo .many{{font-size:9px;fill:var(--quiet);stroke:none}}
.terrazzo .e:hover{{opacity:.6}}
.terrazzo .key{{display:flex;flex-wrap:wrap;gap:3px 20px;list-style:none;margin:6px 0 0;padding:0;font-size:12px;color:var(--quiet);
font-variant-numeric:tabular-nums;align-items:center}}
.terrazzo .key li{{display:flex;align-items:center;gap:7px;margin:0;padding:0}}
.terrazzo .key i{{width:13px;height:13px;border-radius:3px;display:inline-block;flex:none;box-sizing:border-box}}
.terrazzo .key svg,.terrazzo td svg{{width:16px;height:16px;flex:none;display:inline-block;vertical-align:-3px}}
.terrazzo .key .box{{border:1px dashed var(--ink)}}.terrazzo .key .dots{{border:1px dotted var(--quiet)}}
.terrazzo .key .ramp{{width:120px}}
.terrazzo .key .shade{{background:var(--dense)}}
.terrazzo .scroll{{overflow-x:auto;margin-top:6px}}
.terrazzo table{{border-collapse:collapse;width:100%;font-size:12.5px;margin:0;color:inherit;background:none;border:0;table-layout:auto}}
.terrazzo th{{text-align:left;font-weight:500;color:var(--quiet);padding:5px 14px 5px 0;border:0;border-bottom:1px solid var(--faint);white-space:nowrap;background:none}}
.terrazzo td{{padding:4px 14px 4px 0;border:0;border-bottom:1px solid var(--faint);vertical-align:top;white-space:nowrap;
font-variant-numeric:tabular-nums;text-align:left;background:none}}
.terrazzo th.n,.terrazzo td.n{{text-align:right}}
.terrazzo td.what{{white-space:normal;overflow-wrap:anywhere;width:60%}}
.terrazzo tr.gone td{{color:var(--quiet)}}
"""
