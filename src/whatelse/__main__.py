"""`python -m whatelse`: the command line, where its script is not on the path."""

from whatelse.cli import app

app(prog_name="whatelse")
