"""Write requirements.lock: what `pip install .` would take, under constraints.txt, each with its SHA-256.

The hashes are of the files for this machine's system and Python: Linux x86-64, Python 3.11.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = (
    "# pip install --require-hashes -r requirements.lock; pip install --no-deps fedaudit-*.whl (torch: for CPU)\n"
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--report", str(report), "-c", str(ROOT / "constraints.txt"), str(ROOT)]
        subprocess.run(command, check=True)
        found = json.loads(report.read_text())["install"]
    lines = []
    for item in sorted(found, key=lambda i: i["metadata"]["name"].lower()):
        if item["metadata"]["name"] != "fedaudit":
            digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(
                f"{item['metadata']['name']}=={item['metadata']['version']} \\\n    --hash=sha256:{digest}\n"
            )
    (ROOT / "requirements.lock").write_text(HEAD + "".join(lines))


if __name__ == "__main__":
    main()
