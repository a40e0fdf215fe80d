"""The inner side: the Fleet API of Flower 1.42, as far as a SuperNode needs it.

Every answer comes from what the outer side has pulled before. Of what the SuperNode sends,
one thing is read: which message it answers.
"""

from __future__ import annotations

import http.server
import json
import logging
import socket
import socketserver
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

from flwr.common.serde import message_to_proto
from flwr.proto.fab_pb2 import GetFabRequest, GetFabResponse
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    DeactivateNodeRequest,
    DeactivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
    RegisterNodeFleetRequest,
    RegisterNodeFleetResponse,
    UnregisterNodeFleetRequest,
    UnregisterNodeFleetResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.run_pb2 import GetRunRequest, GetRunResponse
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

from ._egress_desk import Desk

MEDIA_TYPE = "application/protobuf"
BODY_BYTES = 64 << 10
PUSH_BYTES = 4 << 20  # a reply without its parts: their ids, and an error's text
CONNECTIONS = 64
IDLE_SECONDS = 60.0

_log = logging.getLogger("starling.egress")


class Proto(Protocol):
    """Proto is as much of a protobuf message as is used here."""

    def ParseFromString(self, serialized: bytes) -> int:
        """Read a message, or raise DecodeError."""

    def SerializeToString(self) -> bytes:
        """Write the message."""


class RequestError(Exception):
    """RequestError is a request that is not served: a status and a name of a closed set."""

    def __init__(self, status: HTTPStatus, name: str, problem: str) -> None:
        super().__init__(problem)
        self.status = status
        self.name = name
        self.problem = problem


class Fleet:
    """Fleet answers the requests of the Fleet API from the desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        # A body of a few megabytes can become a hundred times as much when it is parsed.
        self._parsing = threading.Lock()
        self._routes: dict[str, tuple[type[Proto], Callable[[int, Any], Proto]]] = {
            "register-node": (RegisterNodeFleetRequest, self._register),
            "activate-node": (ActivateNodeRequest, self._activate),
            "deactivate-node": (DeactivateNodeRequest, self._deactivate),
            "unregister-node": (UnregisterNodeFleetRequest, self._unregister),
            "send-node-heartbeat": (SendNodeHeartbeatRequest, self._heartbeat),
            "pull-messages": (PullMessagesRequest, self._pull_messages),
            "push-messages": (PushMessagesRequest, self._push_messages),
            "get-run": (GetRunRequest, self._get_run),
            "get-fab": (GetFabRequest, self._get_fab),
            "push-object": (PushObjectRequest, self._push_object),
            "pull-object": (PullObjectRequest, self._pull_object),
            "confirm-message-received": (ConfirmMessageReceivedRequest, self._confirm),
        }

    def limit(self, path: str) -> int:
        """Give the most bytes that a body may have; RequestError for an unknown path."""
        prefix, _, route = path.rpartition("/")
        if prefix != "/v1/fleet" or route not in self._routes:
            raise RequestError(HTTPStatus.NOT_FOUND, "not_found", "there is no such path")
        return PUSH_BYTES if route == "push-messages" else BODY_BYTES

    def serve(self, path: str, body: bytes) -> bytes:
        """Answer a request to a path that `limit` knows."""
        node_id = self._desk.node_id()
        if node_id is None:
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "unavailable",
                "the SuperLink is not reached yet",
            )
        kind, handler = self._routes[path.rpartition("/")[2]]
        with self._parsing:
            request = kind()
            try:
                request.ParseFromString(body)
            except DecodeError:
                raise RequestError(
                    HTTPStatus.BAD_REQUEST, "malformed", "the body is no such message"
                ) from None
            answer = handler(node_id, request)
            del request
        return answer.SerializeToString()

    def _register(self, node_id: int, _: RegisterNodeFleetRequest) -> Proto:
        return RegisterNodeFleetResponse(node_id=node_id)

    def _activate(self, node_id: int, _: ActivateNodeRequest) -> Proto:
        self._desk.restarted()
        return ActivateNodeResponse(node_id=node_id)

    def _deactivate(self, _node_id: int, _: DeactivateNodeRequest) -> Proto:
        return DeactivateNodeResponse()

    def _unregister(self, _node_id: int, _: UnregisterNodeFleetRequest) -> Proto:
        return UnregisterNodeFleetResponse()

    def _heartbeat(self, _node_id: int, _: SendNodeHeartbeatRequest) -> Proto:
        return SendNodeHeartbeatResponse(success=True)

    def _pull_messages(self, _node_id: int, _: PullMessagesRequest) -> Proto:
        held = self._desk.hand_in()
        if held is None:
            return PullMessagesResponse()
        _log.info("handed_in", extra={"round": held.round})
        return PullMessagesResponse(
            messages_list=[message_to_proto(held.message)],
            message_object_trees=[held.tree],
        )

    def _push_messages(self, _node_id: int, request: PushMessagesRequest) -> Proto:
        for message in request.messages_list[:1]:
            self._desk.answered(message.metadata.reply_to_message_id)
        return PushMessagesResponse()  # no parts are wanted

    def _get_run(self, _node_id: int, request: GetRunRequest) -> Proto:
        run = self._desk.run(request.run_id)
        if run is None:
            raise RequestError(HTTPStatus.NOT_FOUND, "unknown_run", "no message was of this run")
        return GetRunResponse(run=run)

    def _get_fab(self, _node_id: int, request: GetFabRequest) -> Proto:
        fab = self._desk.fab(request.run_id, request.hash_str)
        if fab is None:
            raise RequestError(HTTPStatus.NOT_FOUND, "unknown_app", "no run has this app")
        return GetFabResponse(fab=fab)

    def _push_object(self, _node_id: int, _: PushObjectRequest) -> Proto:
        return PushObjectResponse(stored=False)

    def _pull_object(self, _node_id: int, request: PullObjectRequest) -> Proto:
        content = self._desk.object(request.run_id, request.object_id)
        if content is None:
            return PullObjectResponse(object_found=False, object_available=False)
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def _confirm(self, _node_id: int, request: ConfirmMessageReceivedRequest) -> Proto:
        self._desk.received(request.message_object_id)
        return ConfirmMessageReceivedResponse()


class Inner(socketserver.ThreadingTCPServer):
    """Inner is the server at the filter's own address."""

    allow_reuse_address = True  # a restart must not wait for old connections
    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(self, address: tuple[str, int], fleet: Fleet) -> None:
        self.fleet = fleet
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, or close it where all places are taken."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection and give its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """Say nothing: a connection broke, and its text may be the app's."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    server: Inner

    def do_POST(self) -> None:
        try:
            limit = self.server.fleet.limit(self.path)
            body = self._body(limit)
            answer = self.server.fleet.serve(self.path, body)
        except RequestError as err:
            self._refuse(err)
            return
        self._answer(HTTPStatus.OK, MEDIA_TYPE, answer)

    def do_GET(self) -> None:
        try:
            self.server.fleet.limit(self.path)
        except RequestError as err:
            self._refuse(err)
            return
        problem = "the Fleet API has POST alone"
        self._refuse(RequestError(HTTPStatus.METHOD_NOT_ALLOWED, "method", problem))

    do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no HTTP, as Python's parser finds it, without its words."""
        if self.request_version == "HTTP/0.9":
            self.request_version = self.protocol_version
        self._refuse(RequestError(HTTPStatus(code), "malformed", "this is no request"))

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a path can have anything in it."""

    def _body(self, limit: int) -> bytes:
        media = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != MEDIA_TYPE:
            raise RequestError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "media_type",
                f"a body is {MEDIA_TYPE}",
            )
        lengths = self.headers.get_all("content-length", [])
        if self.headers.get("transfer-encoding") is not None or len(lengths) != 1:
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "length", "a request has one Content-Length")
        if not (lengths[0].isascii() and lengths[0].isdigit() and len(lengths[0]) < 20):
            raise RequestError(HTTPStatus.BAD_REQUEST, "malformed", "no Content-Length")
        length = int(lengths[0])
        if length > limit:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "too_long",
                f"at most {limit} bytes",
            )
        body = self.rfile.read(length)
        if len(body) != length:
            raise RequestError(HTTPStatus.BAD_REQUEST, "malformed", "the body ended early")
        return body

    def _refuse(self, err: RequestError) -> None:
        self.close_connection = True  # the body was perhaps not read
        answer = json.dumps({"error": err.name, "problem": err.problem}).encode()
        self._answer(err.status, "application/json", answer)

    def _answer(self, status: HTTPStatus, media: str, body: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
