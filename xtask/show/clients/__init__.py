"""What the client suites share: a live server, a recorder between it and every client, and the tally of checks."""
import atexit
import re
import subprocess
import threading
import time
import traceback

SMOL, QWEN = "SmolLM2", "Qwen2.5-Coder"


class Minfer:
    """`minfer serve` on a free port; ready when this is made."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # nothing stays behind, however this ends
        self.said, self.url, ready = [], None, threading.Event()
        threading.Thread(target=self._listen, args=(ready,), daemon=True).start()
        if not ready.wait(180) or self.process.poll() is not None:
            raise SystemExit("the server did not become ready:\n" + "".join(self.said))

    def _listen(self, ready):
        for line in self.process.stderr:
            self.said.append(line)
            found = re.search(r"listening on (https?://[^\s,]+)", line)
            if found:
                self.url = found.group(1)
            if line.strip() == "ready":
                ready.set()
        ready.set()

    @property
    def port(self):
        return int(self.url.rsplit(":", 1)[1])

    def alive(self):
        return self.process.poll() is None

    def stop(self):
        """Ends it as a user would (Ctrl-C); its exit code, or None if it had to be killed."""
        self.process.send_signal(2)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None


class Tally:
    """Checks that ran, in order. What can't run is NOT RUN, with its reason, and counted."""

    def __init__(self, only, recorder):
        self.only, self.recorder = only, recorder
        self.passed, self.failed, self.missing = 0, 0, 0

    def note(self, suite, name, reason=None, seconds=None):
        """Prints a check that has ended; a response of a wrong shape fails it, too."""
        wrong = self.recorder.take_wrong()
        if reason is None and wrong:
            reason = "shape: " + wrong[0] + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "")
        self.passed += reason is None
        self.failed += reason is not None
        word = "ok    " if reason is None else "FAILED"
        print(f"{word} {suite:<16} {name}" + (f": {short(reason)}" if reason else ""), flush=True)

    def not_run(self, suite, reason):
        self.missing += 1
        print(f"NOT RUN {suite}: {short(reason)}", flush=True)

    def suite(self, name, load):
        """Runs what `load()` returns: functions whose docstring says what must hold."""
        if self.only and name not in self.only:
            return
        try:
            checks = load()
        except ImportError as e:
            return self.not_run(name, f"{type(e).__name__}: {e}")
        self.recorder.take_wrong()
        for check in checks:
            reason = None
            try:
                check()
            except Exception as e:  # any failure of a client is a failure of the check
                reason = why(e)
            self.note(name, check.__doc__.strip(), reason)


def why(e):
    """An exception in a line; for a bare assertion the line that failed."""
    frames = [f for f in traceback.extract_tb(e.__traceback__) if "show/clients" in f.filename.replace("\\", "/")]
    where = f" [{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}]" if frames else ""
    text = str(e) or (frames[-1].line if frames else "")
    return f"{type(e).__name__}{where}: {text}"


def short(text, most=300):
    text = " ".join(str(text).split())
    return text if len(text) <= most else text[:most] + "…"


def raises(kind, call, what=""):
    """The exception of this kind that `call` ends with; `what` was tried."""
    try:
        got = call()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__} {what}: {short(got, 80)}")


def soon(holds, what, seconds=20):
    """Waits until `holds()`."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"after {seconds} s: {what}"
        time.sleep(0.1)
