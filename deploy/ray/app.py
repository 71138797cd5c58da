"""minfer on Ray Serve: replicas of `minfer serve`, and routers that lose no answer when one of them dies.

    serve run app:app binary=/usr/local/bin/minfer model=/models/model.gguf replicas=2

Ray starts the replicas, watches them, replaces dead ones and knows where they are. Answers do not pass through it: a
router speaks HTTP with the replica that it chose. What happens when that one dies is in `takeover`.
"""

import asyncio
import json
import logging
import re
import shlex
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import ray
from pydantic import BaseModel
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from takeover import GENERATE, Differs, Events, Said, Surface, choose, opening, parse, pin_seed, unavailable

log = logging.getLogger("ray.serve")

# Seconds for a model to be loaded.
LOAD_S = 600
# Seconds a request waits while no replica is there.
WAIT_S = 60
# Replicas that a request may outlive: one that kills them must not kill all.
ATTEMPTS = 3
# Requests that a replica may have more than the idlest, so that a prompt meets its own cache.
SPILL = 4
# What belongs to one connection, not to the message, and what is said anew.
OF_CONNECTION = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length"}
# How requests that do not generate are told of failures.
OPENAI = GENERATE["completions"]
# Kinds of answers that come piece by piece.
STREAMS = ("text/event-stream", "application/x-ndjson")
# How a replica that has gone shows.
BROKEN = (aiohttp.ClientError, ConnectionError)


class Args(BaseModel):
    """The application's arguments."""

    binary: str = "minfer"
    model: str
    replicas: int = 2
    routers: int = 1
    # Address that replicas listen on; empty: their node's.
    host: str = ""
    # Threads of a replica.
    threads: int = 1
    # Seconds a replica that is to go may finish its answers.
    drain: int = 30
    # More flags of `minfer serve`.
    flags: str = ""


# Without Ray's access log, which would tell of each router's question every second.
@serve.deployment(health_check_period_s=1, health_check_timeout_s=10, logging_config={"enable_access_log": False})
class Engine:
    """One `minfer serve`, a child of this process on a port of its own, and its end if this process ends."""

    def __init__(self, args: Args) -> None:
        self._drain = args.drain
        host = args.host or ray.util.get_node_ip_address()
        # The kernel ends the child, too, if this process is killed.
        command = ["setpriv", "--pdeathsig", "KILL", args.binary, "serve", args.model, "--host", host, "--port", "0"]
        command += ["--threads", str(args.threads), "--drain-timeout", str(args.drain), *shlex.split(args.flags)]
        self._child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._url = self._listening()
        threading.Thread(target=self._tell, daemon=True).start()
        end = time.monotonic() + LOAD_S
        while not self._is_ready():
            if self._child.poll() is not None or time.monotonic() > end:
                self._child.kill()
                raise RuntimeError(f"minfer is not ready (exit code {self._child.wait()}): its words are in this log")
            time.sleep(0.1)

    def _listening(self) -> str:
        said = []
        for line in self._child.stderr or ():
            said.append(line)
            if match := re.search(r"https?://\S+?:\d+", line):
                return match[0]
        raise RuntimeError(f"minfer ended with {self._child.wait()}: {''.join(said)}")

    def _tell(self) -> None:
        for line in self._child.stderr or ():
            log.info("minfer: %s", line.rstrip())

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    async def check_health(self) -> None:
        """Ray asks every second; after three failures it makes a new replica of this one."""
        if self._child.poll() is not None or not await asyncio.to_thread(self._is_ready):
            raise RuntimeError(f"minfer at {self._url} is gone or hangs")

    async def where(self) -> tuple[str, int] | None:
        """Its URL and process, while it lives."""
        return None if self._child.poll() is not None else (self._url, self._child.pid)

    def __del__(self) -> None:
        """Ray lets this replica go: its answers have the drain time to end. A stream that does not is taken over, and so
        are those of a server that hangs."""
        self._child.terminate() if self._is_ready() else self._child.kill()
        try:
            self._child.wait(self._drain + 2)
        except subprocess.TimeoutExpired:
            self._child.kill()


@dataclass
class Call:
    """A client's request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    # What chooses its replica.
    key: str
    # Where it goes, if that generates.
    surface: Surface | None
    # Of a stream that can go on elsewhere, what the client has of it.
    said: Said | Events | None
    # Of any stream, whether the client has some of it.
    begun: bool = False
    # Replicas that failed it.
    gone: list[str] = field(default_factory=list)

    @staticmethod
    async def of(request: Request) -> "Call":
        """With its seed pinned, if it generates."""
        path, body, key = request.url.path, await request.body(), ""
        name = path.removeprefix("/v1").strip("/")
        surface = GENERATE.get(name) if request.method == "POST" else None
        if surface:
            try:
                fields = json.loads(body)
            except ValueError:
                fields = None  # The replica says what is wrong with it.
            if isinstance(fields, dict):
                pin_seed(name, fields)
                body, key = json.dumps(fields).encode(), opening(fields)
        headers = {k: v for k, v in request.headers.items() if k not in OF_CONNECTION}
        headers["accept-encoding"] = "identity"  # What is compared must be readable.
        path += f"?{request.url.query}" if request.url.query else ""
        return Call(request.method, path, headers, body, key, surface, surface and surface.said())


@serve.deployment(max_ongoing_requests=10_000)
class Router:
    """Passes requests to replicas and answers to clients."""

    def __init__(self, engines: DeploymentHandle[Any]) -> None:
        self._engines = engines
        self._urls: list[str] = []
        self._loads: Counter[str] = Counter()
        self._counts = Counter(requests=0, broken=0, taken_over=0)
        # No limits of time: a replica that hangs is Ray's to find, and its connections break then.
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0)
        )
        self._look = asyncio.create_task(self._keep_looking())

    async def __call__(self, request: Request) -> Response:
        """Any request: `/router` tells about this router, everything else is a replica's to answer."""
        if request.url.path == "/router":
            return JSONResponse({**self._counts, "loads": {url: self._loads[url] for url in self._urls}})
        call = await Call.of(request)
        self._counts["requests"] += 1
        answers = self._attempts(call)
        try:
            async for answer in answers:
                headers = {k: v for k, v in answer.headers.items() if k.lower() not in OF_CONNECTION}
                headers["x-replica"] = str(answer.url.origin())
                if answer.content_type in STREAMS:
                    return StreamingResponse(self._stream(call, answer, answers), answer.status, headers)
                if (body := await self._whole(call, answer)) is not None:
                    await answers.aclose()
                    return Response(body, answer.status, headers)
        except asyncio.CancelledError:
            await answers.aclose()  # The client has gone: the replica's work ends, too.
            raise
        return JSONResponse(unanswered(call), 503, {"retry-after": "1"})

    async def _whole(self, call: Call, answer: aiohttp.ClientResponse) -> bytes | None:
        """An answer that comes in one piece, unless it breaks."""
        try:
            return await answer.read()
        except BROKEN as e:
            self._broke(call, e)
            return None

    async def _attempts(self, call: Call) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Answers to a call, each another replica's, for as long as they turn out to be broken."""
        while len(call.gone) < ATTEMPTS and (url := await self._choose(call)):
            self._loads[url] += 1
            try:
                request = self._session.request(
                    call.method, url + call.path, data=call.body, headers=call.headers, allow_redirects=False
                )
                async with request as answer:
                    # Full, or about to go: perhaps another one is not.
                    if answer.status not in (429, 503) or not set(self._urls) - {*call.gone, url}:
                        yield answer
            except BROKEN as e:
                self._broke(call, e)
            finally:
                self._loads[url] -= 1
            call.gone.append(url)

    async def _choose(self, call: Call) -> str | None:
        """The replica for a call: if it can be, one that has not failed it yet."""
        for waited in range(WAIT_S):
            if waited or call.gone or not self._urls:
                await self._update()
            urls = [url for url in self._urls if url not in call.gone] or (self._urls if waited else [])
            if urls:
                return choose(call.key, {url: self._loads[url] for url in urls}, SPILL)
            await asyncio.sleep(1)
        return None

    async def _stream(
        self, call: Call, answer: aiohttp.ClientResponse, answers: AsyncGenerator[aiohttp.ClientResponse]
    ) -> AsyncIterator[bytes]:
        """A stream's events; from the replica that answered and then, if that breaks, from others."""
        async with aclosing(answers):
            current: aiohttp.ClientResponse | None = answer
            while current is not None:
                try:
                    async for piece in passed_on(call, current):
                        yield piece
                    return
                except BROKEN as e:
                    self._broke(call, e)
                except Differs as e:
                    log.error("a repetition differs, the stream ends: %s", e)
                    break
                if call.said is None and call.begun:
                    break
                if call.said is not None:
                    self._counts["taken_over"] += call.said.anything
                    call.said.repeat()
                current = await anext(answers, None)
            yield (call.surface or OPENAI).event(unanswered(call))

    def _broke(self, call: Call, e: Exception) -> None:
        self._counts["broken"] += 1
        log.warning("a replica is gone, its request for %s is repeated: %r", call.path, e)

    async def _update(self) -> None:
        """Asks all replicas that Ray knows where they are."""
        try:
            found = await self._engines.broadcast("where").results_async(timeout_s=5, return_exceptions=True)
        except TimeoutError:
            return  # One of them is busy with its end: what was known is the best guess.
        except (DeploymentUnavailableError, RayError) as e:
            log.info("no replicas: %r", e)
            found = []
        self._urls = sorted(place[0] for place in found if isinstance(place, tuple))

    async def _keep_looking(self) -> None:
        while True:
            await self._update()
            await asyncio.sleep(1)


async def passed_on(call: Call, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """An answer's events as they come, without what the client has."""
    if call.said is None or call.surface is None:
        async for piece in answer.content.iter_any():
            call.begun = True
            yield piece
        return
    surface, rest = call.surface, b""
    async for piece in answer.content.iter_any():
        *events, rest = (rest + piece).split(surface.end)
        for raw in events:
            event = parse(raw)
            if event is None:
                yield raw + surface.end
                if raw.endswith(b"[DONE]"):
                    return
            elif gone := unavailable(event):
                raise ConnectionError(gone)
            elif event.get("error"):
                yield raw + surface.end
                return
            else:
                if new := call.said.news(event):
                    yield raw + surface.end if new is event else surface.event(new)
                if surface.is_last(event):
                    return
    raise ConnectionError("the stream ended in the middle")


def unanswered(call: Call) -> dict[str, object]:
    """Nobody could answer, in the surface's words."""
    return (call.surface or OPENAI).failure(f"no replica could answer, {len(call.gone)} failed: try again")


def app(args: Args) -> serve.Application:
    """The application, for `serve run app:app` and configuration files."""
    engines = Engine.options(
        num_replicas=args.replicas,
        graceful_shutdown_timeout_s=args.drain + 5,
        ray_actor_options={"num_cpus": args.threads},
    ).bind(args)
    return Router.options(num_replicas=args.routers, ray_actor_options={"num_cpus": 0}).bind(engines)
