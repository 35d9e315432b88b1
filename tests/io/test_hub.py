"""Hub names, against an HTTP server on this machine that answers as the hub does; the real library downloads."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entrenar.io import DataError, hub as names, hub_folder, open_weights, save_weights

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CALL = """
import json, sys
from entrenar.io import DataError, hub_folder
try:
    found = [str(hub_folder(*args, **options)) for args, options in json.loads(sys.argv[1])]
    print(json.dumps({"found": found, "imported": "huggingface_hub" in sys.modules}))
except DataError as error:
    print(json.dumps({"error": str(error)}))
"""


class Hub(http.server.ThreadingHTTPServer):
    """``repos``: name -> files.  ``requests``: what was asked, in order.  ``gated``: names of such repos."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos, self.requests, self.gated, self.token = {}, [], set(), None
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(f"{self.command} {path}")
        self.server.token = self.headers.get("Authorization")
        parts = path.strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        parts = parts[2:] if api else parts
        name, action, revision, rest = "/".join(parts[:2]), parts[2], parts[3], "/".join(parts[4:])
        if name in self.server.gated:
            return self.answer(403, X_Error_Code="GatedRepo")
        if name not in self.server.repos:
            return self.answer(401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        if revision not in ("main", COMMIT):
            return self.answer(404, X_Error_Code="RevisionNotFound")
        files = self.server.repos[name]
        if api and action == "revision":
            siblings = [{"rfilename": file} for file in files]
            return self.answer(200, json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode())
        if api and action == "tree":
            listed = [
                {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for file, content in files.items()
            ]
            return self.answer(200, json.dumps(listed).encode(), Content_Type="application/json")
        if action == "resolve" and rest in files:
            etag = f'"{hashlib.sha1(files[rest]).hexdigest()}"'
            return self.answer(200, files[rest], ETag=etag, X_Repo_Commit=COMMIT)
        return self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)

    do_HEAD = do_GET

    def log_message(self, *args):
        pass


@pytest.fixture
def hub(tmp_path):
    server = Hub()
    save_weights(tmp_path / "made", {"a": np.arange(6.0), "b": np.ones((2, 3))}, max_shard_bytes=48)
    needed = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    needed |= {name: f'"{name}"'.encode() for name in ("config.json", "tokenizer.json", "chat_template.jinja")}
    others = ["README.md", "pytorch_model.bin", "onnx/model.onnx", "sub/model.safetensors", "consolidated.safetensors"]
    server.needed = set(needed)
    server.repos["org/model"] = needed | dict.fromkeys(others, b"not needed")
    server.repos["org/pickled"] = {"config.json": b"{}", "pytorch_model.bin": b"x"}
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def call(tmp_path, *calls, **variables):
    """Run ``hub_folder`` for each (arguments, options) in a process of its own: variables are read once."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING", "XDG_"))}
    kept = {key: value for key, value in kept.items() if not key.lower().endswith("_proxy")}
    environment = kept | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_TELEMETRY": "1", **variables}
    run = subprocess.run(
        [sys.executable, "-c", CALL, json.dumps(calls)],
        env=environment,
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def files_of(folder):
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if not path.is_dir()}


MODEL = (["org/model"], {})


def test_first_use_downloads_what_is_needed_and_the_second_does_not_ask(tmp_path, hub):
    (folder,) = call(tmp_path, MODEL, HF_ENDPOINT=hub.url)["found"]
    assert Path(folder).is_relative_to(tmp_path / "home" / "hub")
    assert files_of(folder) == hub.needed
    fetched = {request.split("/")[-1] for request in hub.requests if request.startswith("GET /org/model/resolve")}
    assert fetched == hub.needed
    with open_weights(folder) as weights:
        np.testing.assert_array_equal(weights["a"], np.arange(6.0))
        np.testing.assert_array_equal(weights["b"], np.ones((2, 3)))
    hub.requests.clear()
    assert call(tmp_path, MODEL, MODEL, HF_ENDPOINT=hub.url)["found"] == [folder, folder]
    assert call(tmp_path, MODEL, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1")["found"] == [folder]
    assert hub.requests == []


def test_a_partial_cache_is_completed(tmp_path, hub):
    some = (["org/model"], {"files": ["config.json"]})
    first = call(tmp_path, some, HF_ENDPOINT=hub.url)["found"][0]
    assert files_of(first) == {"config.json"}
    hub.requests.clear()
    assert call(tmp_path, some, HF_ENDPOINT=hub.url)["found"] == [first]
    assert hub.requests == []
    assert call(tmp_path, MODEL, HF_ENDPOINT=hub.url)["found"] == [first]
    assert files_of(first) == hub.needed


def test_what_another_program_left_in_the_cache_is_not_taken_for_whole(tmp_path, hub):
    """transformers and others fetch single files, and leave no list of what there is."""
    fetch = "import huggingface_hub as h; h.hf_hub_download('org/model', 'config.json')"
    variables = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.url}
    subprocess.run([sys.executable, "-c", fetch], env=variables, check=True, capture_output=True)
    (folder,) = call(tmp_path, MODEL, HF_ENDPOINT=hub.url)["found"]
    assert files_of(folder) == hub.needed


def test_cache_dir_revision_and_token(tmp_path, hub):
    options = {"cache_dir": str(tmp_path / "elsewhere"), "revision": COMMIT}
    (folder,) = call(tmp_path, (["org/model"], options), HF_ENDPOINT=hub.url, HF_TOKEN="hf_mine")["found"]
    assert Path(folder).is_relative_to(tmp_path / "elsewhere") and files_of(folder) == hub.needed
    assert hub.token == "Bearer hf_mine"
    assert not list((tmp_path / "home").glob("hub/models--*"))


def test_a_folder_never_touches_the_network(tmp_path, hub):
    folder = tmp_path / "org" / "model"  # the name of a model on the hub too
    folder.mkdir(parents=True)
    answer = call(tmp_path, MODEL, ([str(folder)], {}), (["./org/model"], {}), HF_ENDPOINT=hub.url)
    assert [Path(tmp_path, found).resolve() for found in answer["found"]] == [folder.resolve()] * 3
    assert not answer["imported"]
    assert hub.requests == []
    assert hub_folder(folder) == folder
    with pytest.raises(DataError, match="is a folder: it has no revision 'v1'"):
        hub_folder(folder, revision="v1")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("org/modle", {}, "'org/modle': no folder here, and {url} has no model of that name .*HF_TOKEN"),
        ("org/gated", {}, "'org/gated': access is granted by its authors: ask for it at {url}/org/gated, .*HF_TOKEN"),
        ("org/model", {"revision": "v9"}, "'org/model': {url}/org/model has no revision 'v9'"),
        ("org/pickled", {}, r"'org/pickled' has no \*\.safetensors on the hub.*pytorch_model\.bin, .*a pickle"),
    ],
)
def test_what_the_hub_refuses_is_one_error_that_says_what_to_do(tmp_path, hub, name, options, message):
    hub.gated.add("org/gated")
    error = call(tmp_path, ([name], options), HF_ENDPOINT=hub.url)["error"]
    with pytest.raises(DataError, match=message.format(url=hub.url)):
        raise DataError(error)
    assert hub.requests


def test_a_hub_that_cannot_be_reached(tmp_path, hub):
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as taken:
        closed = f"http://127.0.0.1:{taken.server_port}"
    error = call(tmp_path, MODEL, HF_ENDPOINT=closed)["error"]
    assert error.startswith(f"'org/model': not (whole) in the cache, and {closed} cannot be reached: ConnectError")
    error = call(tmp_path, MODEL, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1")["error"]
    assert error.startswith("'org/model': not (whole) in the cache, and HF_HUB_OFFLINE forbids")
    assert hub.requests == []
    (folder,) = call(tmp_path, MODEL, HF_ENDPOINT=hub.url)["found"]
    assert call(tmp_path, MODEL, HF_ENDPOINT=closed)["found"] == [folder]


def test_a_download_that_fails_half_way_says_so_and_is_resumed(tmp_path, hub):
    lost = "model-00002-of-00002.safetensors"
    content = hub.repos["org/model"][lost]
    served = hub.RequestHandlerClass

    class Loses(served):
        def do_GET(self):
            if self.path.endswith(lost):
                hub.requests.append(self.path)
                return self.answer(403)
            return super().do_GET()

        do_HEAD = do_GET

    hub.RequestHandlerClass = Loses
    error = call(tmp_path, MODEL, HF_ENDPOINT=hub.url)["error"]
    assert error.startswith("'org/model': ") and "HfHubHTTPError: " in error and "\n" not in error
    hub.RequestHandlerClass = served
    (folder,) = call(tmp_path, MODEL, HF_ENDPOINT=hub.url)["found"]
    assert files_of(folder) == hub.needed
    assert (Path(folder) / lost).read_bytes() == content


@pytest.mark.parametrize(
    "path", ["./x", "../x", "a/b/c", "/no/such/x", "x/", "~/no-such-x", "~nobody/x", "a\\b", "", Path("org/model")]
)
def test_a_path_that_does_not_exist_is_no_name(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        hub_folder(path)


@pytest.mark.parametrize(
    "name",
    ["a b", "org/mo del", "org/-x", "org/a--b", "o/a..b", "org/x.git", "org/x.", "-o/x", "é/x", "x" * 97, "x" * 300],
)
def test_what_can_be_no_name_on_the_hub(name):
    with pytest.raises(DataError, match=r"is no folder, and no name on the hub: those are 'org/model'"):
        hub_folder(name)


PARTS = st.lists(st.sampled_from(["a", "Z9", "_", "-", ".", "/", ".git", "\u00e9", " ", "b" * 95]), max_size=5)


@given(PARTS.map("".join))
def test_names_are_those_that_the_library_takes(name):
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
        taken = True
    except HFValidationError:
        taken = False
    assert bool(names.NAME.fullmatch(name)) == taken


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match=r"model\.safetensors is a file: give the folder"):
        hub_folder(tmp_path / "model.safetensors")
