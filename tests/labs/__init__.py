"""Documents that run: the console blocks of Markdown pages, executed and compared with their output. `labs/README.md` describes
the format."""
