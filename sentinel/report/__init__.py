"""Tables → figures → one HTML page.

`render_report(run_dir, out)` in `sentinel.report.render` reads the files of a run directory and
writes one self-contained page plus one CSV per table and figure; `cross_agent_rows` in
`sentinel.report.summary` gives the paper's central table to the terminal.
"""
