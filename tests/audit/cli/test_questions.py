"""A question that nobody answers ends the command in a sentence."""

import os
import pty
import subprocess
import sys
from pathlib import Path

END_OF_INPUT = b"\x04"


def test_a_question_without_an_answer_stops_the_command(tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    command = [str(Path(sys.executable).with_name("fedaudit")), "import", str(tmp_path)]
    os.write(master, END_OF_INPUT)
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=tmp_path) as asked:
        os.close(terminal)
        told = b""
        while True:
            try:
                told += os.read(master, 4096)
            except OSError:  # the other end is closed
                break
    os.close(master)
    assert asked.returncode == 130 and b"not stated)" in told and b"unexpected" not in told, told
