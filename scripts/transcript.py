"""Run the commands of docs/tutorial.md in an empty folder and write what they say to docs/transcript.md.

    python scripts/transcript.py      with the Python of the environment in which whatelse is installed

Stops at the first command that fails or complains. The last one serves: it is ended once it has answered.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
HEAD = """# The tutorial, as it ran

What the commands of the [tutorial](tutorial.md) said, in a folder with nothing in it but `make_table.py`; written by
`scripts/transcript.py`.
"""


def commands() -> list[str]:
    """The tutorial's blocks of commands."""
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def main() -> None:
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    *blocks, serve = commands()
    parts = [HEAD]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(DOCS / "tutorial" / "make_table.py", folder)
        for block in blocks:
            ran = subprocess.run(["bash", "-euc", block], cwd=folder, env=env, capture_output=True, text=True)
            if ran.returncode or ran.stderr:
                sys.exit(f"{block}\n{ran.stdout}\n{ran.stderr}")
            parts.append(shown(block, ran.stdout))
        server = subprocess.Popen(serve.split(), cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        said = server.stdout.readline()
        address = said.split()[3]
        with urllib.request.urlopen(address, timeout=30) as page:
            said += f"\n({address} answers: {page.status})\n"
        server.terminate()
        server.wait(30)
        parts.append(shown(serve, said))
    (DOCS / "transcript.md").write_text("\n".join(parts), encoding="utf-8")


def shown(block: str, said: str) -> str:
    """A block and what it said. Lines of a file that is written in place stand after '>', as bash has it."""
    typed, end = list[str](), None
    for line in block.rstrip().splitlines():
        typed.append(f"> {line}" if end else f"$ {line}")
        opened = re.search(r"<<'(\w+)'", line)
        end = opened[1] if opened else None if line == end else end
    return "\n".join(["```text", *typed, *(line.rstrip() for line in said.rstrip().splitlines()), "```", ""])


if __name__ == "__main__":
    main()
