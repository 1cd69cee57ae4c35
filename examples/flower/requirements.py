"""Prints what the installed Flower requires for its simulation engine, with any certifi."""

import re
from importlib.metadata import requires

for line in requires("flwr") or []:
    wanted, _, marker = line.partition(";")
    if "extra ==" not in marker or "simulation" in marker:
        print("certifi" if re.match("certifi", wanted) else wanted.strip())
