"""The suites in JavaScript: installed into a scratch folder, run by Node, their lines counted here."""
import json
import os
import shutil
import subprocess
from pathlib import Path

from . import QWEN, SMOL

HERE = Path(__file__).resolve().parent
SUITES = "openai and ai for Node"


def run(tally, url, scratch):
    folder = scratch / "node"
    folder.mkdir()
    for file in ("package.json", "suites.mjs"):
        shutil.copy(HERE / file, folder)
    try:
        subprocess.run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as e:
        return tally.not_run(SUITES, f"npm: {e}")
    env = {**os.environ, "MINFER_URL": url, "SMOL": SMOL, "QWEN": QWEN, "AI_SDK_LOG_WARNINGS": "false"}
    tally.recorder.take_wrong()
    with subprocess.Popen(["node", "suites.mjs"], cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as node:
        ended = False
        for line in node.stdout:
            line = json.loads(line)
            ended = line.get("end", False)
            if not ended:
                tally.note(line["suite"], line["name"], line["reason"])
    if not ended:
        tally.note("node", "all suites run to their end", f"node ended with {node.returncode}")
