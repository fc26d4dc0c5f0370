"""The collections of a service by name: which there are, who answers requests on each of them."""

import logging
import os
import re
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fastapi import Request
from starlette.exceptions import HTTPException

from crossbit._io.files import temporary_path
from crossbit.collection.collection import Collection
from crossbit.errors import DataError, NotFoundError
from crossbit.model.hashmodel import HashModel
from crossbit.server.batching import WorkerPool
from crossbit.server.config import ServerConfig
from crossbit.server.models import CreateRequest
from crossbit.server.security import Grant
from crossbit.server.service import COLLECTIONS, Service

COLLECTION_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
"""Pattern of the name of a collection, which is a part of URLs and the name of a folder."""

_LOG = logging.getLogger(__name__)
_MAX_COLLECTIONS = 1000  # that clients can create
_is_name = re.compile(COLLECTION_NAME).fullmatch


@dataclass(frozen=True)
class Pools:
    """Thread pools by the cost of what they run, so that light requests never wait for heavy ones.

    Args:
        light: Searches, and items by id.
        heavy: Decoding of images, filters, writes, and large bodies.
        slow: Statistics, overviews, checks and all else that reads a whole collection.
        health: Monitoring.
    """

    light: WorkerPool
    heavy: WorkerPool
    slow: WorkerPool
    health: WorkerPool

    @classmethod
    def create(cls, config: ServerConfig) -> Self:
        """Start the threads."""
        size, timeout = config.queue_size, config.request_timeout
        return cls(
            light=WorkerPool(config.threads, size, timeout),
            heavy=WorkerPool(config.threads, size, timeout),
            slow=WorkerPool(1, size, timeout),
            health=WorkerPool(1, size, min(5.0, timeout)),
        )

    def close(self) -> None:
        """Stop the threads."""
        for pool in (self.light, self.heavy, self.slow, self.health):
            pool.close()


class Registry:
    """The collections of a service.

    Collections that were passed open stay as they are. Those of a folder are opened by the first
    request on them, and looked up at every request: what other processes create, replace and
    delete in the folder is noticed without a restart.

    Args:
        collections: Name → open collection. Or a folder, whose subfolders are collections.
        config: Access and limits.
        pools: Where requests run.

    Attributes:
        default: Name of the default collection: that of the configuration, or else the first one;
            None if the folder was empty.
    """

    def __init__(
        self, collections: Mapping[str, Collection] | Path, config: ServerConfig, pools: Pools
    ) -> None:
        self._folder = collections.resolve() if isinstance(collections, Path) else None
        self._config = config
        self._pools = pools
        self._lock = threading.Lock()
        self._services: dict[str, Service] = {}
        self._folders: dict[str, tuple[int, int] | None] = {}  # identities, when they were opened
        self.default = config.default
        names = self.names() if isinstance(collections, Path) else list(collections)
        self.default = self.default or next(iter(names), None)
        if isinstance(collections, Path):
            if self.default in names:
                self._open(str(self.default))
            return
        if self.default not in collections:
            raise DataError(f"unknown default collection {self.default!r}; known: {names}")
        for name, collection in collections.items():
            self._add(check_name(name), collection)

    def names(self) -> list[str]:
        """Return the names of all collections, the default one first."""
        if self._folder is None:
            found = list(self._services)
        else:
            names = (path.name for path in self._folder.iterdir() if _is_name(path.name))
            found = sorted(name for name in names if Collection.exists(self._folder / name))
        return sorted(found, key=lambda name: name != self.default)

    def opened(self) -> list[Service]:
        """Return the collections that are open, without those that are no longer there."""
        return [each for name, each in list(self._services.items()) if self._is_current(name)]

    async def find(self, name: str) -> Service:
        """Return the collection of a name.

        Raises:
            NotFoundError: There is none.
        """
        service = self._services.get(name)
        if service is not None and self._is_current(name):
            return service
        if self._folder is None or not _is_name(name):
            raise _unknown(name)
        return await self._pools.heavy.run(self._open, name)

    def create(self, request: CreateRequest, grant: Grant) -> None:
        """Create a collection in the folder, with a model that is there already."""
        folder = self._writable_folder()
        name = check_name(request.name)
        if len(self.names()) >= _MAX_COLLECTIONS:
            raise DataError(f"there are {_MAX_COLLECTIONS:,} collections; delete some first")
        if request.like is not None:
            grant.check(request.like, writes=False)
            source = folder / request.like
            if not _is_name(request.like) or not Collection.exists(source):
                raise _unknown(request.like)
            with Collection.open(source) as collection:
                model = collection.model
        else:
            place = folder / str(request.model)
            if not _is_name(str(request.model)) or not (place / "config.json").is_file():
                raise NotFoundError(
                    f"there is no model folder {str(request.model)[:100]!r} beside the collections"
                )
            model = HashModel.load(place)
        with self._lock:
            if os.path.lexists(folder / name):
                raise HTTPException(409, f"there is a collection or folder {name!r} already")
            Collection.create(folder / name, model, keep=request.keep).close()

    def delete(self, name: str) -> None:
        """Delete a collection of the folder, with all its items; it cannot be undone."""
        folder = self._writable_folder()
        with self._lock:
            if not _is_name(name) or not Collection.exists(folder / name):
                raise _unknown(name)
            if name in self._services:
                self._drop(name)
            if (folder / name).is_symlink():
                (folder / name).unlink()  # what it leads to is not ours
                return
            hidden = temporary_path(folder / name)
            (folder / name).rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def _writable_folder(self) -> Path:
        if self._folder is None:
            raise DataError(
                "this service has a fixed list of collections; to create and delete them, serve the"
                " folder that contains them: crossbit serve FOLDER --writable"
            )
        return self._folder

    def close(self) -> None:
        """Close the collections that were opened here."""
        if self._folder is not None:
            for name in list(self._services):
                self._drop(name)

    async def read(self, request: Request) -> Service:
        """Return the collection that a request reads: the one in its path, or the default one."""
        return await self._admit(request, writes=False)

    async def write(self, request: Request) -> Service:
        """Return the collection that a request changes."""
        return await self._admit(request, writes=True)

    async def _admit(self, request: Request, *, writes: bool) -> Service:
        """Find a collection for a client that has the right to use it."""
        name = request.path_params.get("collection", self.default)
        request.state.collection = name or ""  # for the access log
        if name is None:
            raise NotFoundError(
                f"there is no default collection; see GET {COLLECTIONS}, or start the service with"
                " --default NAME"
            )
        grant_of(request).check(name, writes=writes)
        return await self.find(name)

    def _is_current(self, name: str) -> bool:
        """Whether a collection that was opened is still the one in the folder."""
        return self._folder is None or _identity(self._folder / name) == self._folders[name]

    def _open(self, name: str) -> Service:
        """Open a collection of the folder; another one that was there before is closed."""
        assert self._folder is not None  # noqa: S101 - only called for a folder
        with self._lock:
            if name in self._services:
                if self._is_current(name):  # another thread has opened it
                    return self._services[name]
                self._drop(name)
            if not Collection.exists(self._folder / name):
                raise _unknown(name)
            self._folders[name] = _identity(self._folder / name)
            return self._add(name, Collection.open(self._folder / name))

    def _add(self, name: str, collection: Collection) -> Service:
        service = Service(collection, self._config, self._pools.light, name)
        self._services[name] = service
        return service

    def _drop(self, name: str) -> None:
        """Close a collection; requests that run on it fail or finish."""
        service = self._services.pop(name)
        try:
            service.collection.close()
        except Exception as error:  # its files may be gone
            _LOG.warning("collection %s: closing it failed (%s)", name, error)


def grant_of(request: Request) -> Grant:
    """Return what the client of a request may do; the middleware has checked its token."""
    grant: Grant = request.state.grant
    return grant


def check_name(name: str) -> str:
    """Return a name that can stand in URLs and name a folder.

    Raises:
        DataError: It cannot.
    """
    if not _is_name(name):
        raise DataError(
            f"name of a collection: expected 1 to 100 letters, digits, '.', '_' and '-', the first"
            f" one a letter or digit; got {name[:100]!r}"
        )
    return name


def _identity(folder: Path) -> tuple[int, int] | None:
    """Device and number of a folder; None if it does not exist."""
    try:
        stat = folder.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(f"there is no collection {name[:100]!r}; see GET {COLLECTIONS}")
