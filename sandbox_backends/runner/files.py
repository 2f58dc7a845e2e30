"""Files, confined to the session's roots whatever links are planted or swapped there."""

from __future__ import annotations

import errno
import os
import stat as st

from .kernel import LINUX, openat2
from .wire import CHUNK, Failure

TYPE_CHECKING = False  # typing itself costs every place a megabyte and some milliseconds
if TYPE_CHECKING:
    from typing import Any, Iterator, List, Optional, Sequence, Tuple


O_PATH = getattr(os, "O_PATH", 0)
O_DIR = O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
UMASK = 0o022
MAX_LINKS = 40
PATH_MAX = 4096


def explain(error: Exception, path: str) -> Failure:
    """An OSError of a file operation as the Failure that the caller gets."""
    code = {
        errno.ENOENT: "not_found",
        errno.ENOTDIR: "not_a_directory",
        errno.EISDIR: "not_a_file",
        errno.ELOOP: "invalid",
        errno.EACCES: "permission",
        errno.EPERM: "permission",
        errno.EROFS: "permission",
        errno.ETXTBSY: "permission",
        errno.ENOSPC: "no_space",
        errno.EDQUOT: "no_space",
        errno.EFBIG: "no_space",
        errno.ENAMETOOLONG: "too_long",
        errno.ENXIO: "not_a_file",
        errno.EINVAL: "invalid",
    }.get(getattr(error, "errno", 0), "io")
    return Failure(code, "%s: %s" % (path, getattr(error, "strerror", None) or error))


def components(path: str) -> List[str]:
    """The names in ``path``, last first, ready to be popped."""
    return [name for name in path.split("/") if name not in ("", ".")][::-1]


class Confined:
    """Opens paths beneath the roots and nothing else, however links are planted or swapped (openat2(2), else a walk).

    The walk holds every directory open from the root down, follows no link by the kernel, and goes back up by closing,
    never by opening ``..``: a directory moved away under it leads nowhere new.
    """

    def __init__(self, roots: Sequence[Sequence[Any]], cwd: str) -> None:
        """``roots``: ``[path]``, or ``[path, device, inode]`` of the directory that must be there. Raises OSError."""
        self.roots = [(root[0], os.open(root[0], O_DIR)) for root in roots]
        for (path, fd), root in zip(self.roots, roots):
            info = os.fstat(fd)
            if root[1:] and [info.st_dev, info.st_ino] != list(root[1:]):
                raise OSError(errno.ESTALE, "it is not the directory that was checked", path)
        self.cwd = cwd
        self.use_openat2 = LINUX

    def split(self, path: str) -> Tuple[int, str]:
        """(fd of the root, the rest of the path) for an absolute or relative path; the longest root wins."""
        if "\0" in path:
            raise Failure("invalid", "%r: a path cannot hold a NUL byte" % path)
        full = path if path.startswith("/") else self.cwd + "/" + path
        best: Optional[Tuple[str, int]] = None
        for root, fd in self.roots:
            if (full == root or full.startswith(root.rstrip("/") + "/")) and (best is None or len(root) > len(best[0])):
                best = (root, fd)
        if best is None:
            raise Failure("refused", "%s: outside the session's directories" % path)
        rest = full[len(best[0]) :].lstrip("/")
        if len(os.fsencode(rest)) >= PATH_MAX:  # the walk could go further, but then nobody could follow
            raise Failure("too_long", "%s…: %s" % (path[:80], os.strerror(errno.ENAMETOOLONG)))
        return best[1], rest

    def open(self, path: str, flags: int) -> int:
        """A descriptor of the file or directory that ``path`` leads to, links inside the roots followed."""
        fd, rest = self.split(path)
        flags |= os.O_CLOEXEC
        if not O_PATH or not flags & O_PATH:
            flags |= os.O_NOCTTY  # openat2 takes no other flag beside O_PATH
        if path.endswith("/"):
            flags |= os.O_DIRECTORY
        try:
            if self.use_openat2:
                try:
                    return openat2(fd, rest or ".", flags)
                except OSError as error:
                    if error.errno in (errno.ENOSYS, errno.EPERM):
                        self.use_openat2 = False
                    elif error.errno not in (errno.EXDEV, errno.ELOOP, errno.EAGAIN):
                        raise
            parent, name = self.locate(path)
            try:
                return os.open(name, flags | os.O_NOFOLLOW, dir_fd=parent)
            finally:
                os.close(parent)
        except OSError as error:
            raise explain(error, path) from error

    def locate(self, path: str, make_parents: bool = False) -> Tuple[int, str]:
        """(open parent directory, last name) after following every link inside the roots, the last one too."""
        fd, rest = self.split(path)
        todo = components(rest)
        stack = [os.dup(fd)]
        links = 0
        try:
            while todo:
                name = todo.pop()
                if name == "..":
                    if len(stack) == 1:
                        raise Failure("refused", "%s: leads outside the session's directories" % path)
                    os.close(stack.pop())
                    continue
                link = self._link(name, stack[-1])
                if link is not None:
                    links += 1
                    if links > MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    if link.startswith("/"):
                        fd, link = self.split(link)
                        while stack:
                            os.close(stack.pop())
                        stack.append(os.dup(fd))
                    todo += components(link)
                elif not todo:
                    return stack.pop(), name
                else:
                    stack.append(self._enter(name, stack[-1], make_parents))
            return stack.pop(), "."
        except OSError as error:
            raise explain(error, path) from error
        finally:
            for held in stack:
                os.close(held)

    def stat(self, path: str) -> os.stat_result:
        """What the last name of ``path`` itself is: a link there is not followed."""
        head, _, last = path.rpartition("/")
        if last in ("", ".", ".."):
            fd = self.open(path or ".", O_PATH or os.O_RDONLY)
            try:
                return os.fstat(fd)
            finally:
                os.close(fd)
        parent = self.open(head or ("/" if path.startswith("/") else "."), O_DIR)
        try:
            return os.stat(last, dir_fd=parent, follow_symlinks=False)
        except (OSError, ValueError) as error:
            raise explain(error, path) from error
        finally:
            os.close(parent)

    def read(self, path: str, offset: int, limit: int) -> Iterator[bytes]:
        """Yield the bytes of a regular file from ``offset``, at most ``limit`` of them, in pieces."""
        fd = self.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if not st.S_ISREG(os.fstat(fd).st_mode):
                raise Failure("not_a_file", "%s: not a regular file" % path)
            while limit > 0:
                data = os.pread(fd, min(CHUNK, limit), offset)
                if not data:
                    return
                yield data
                offset += len(data)
                limit -= len(data)
        except OSError as error:
            raise explain(error, path) from error
        finally:
            os.close(fd)

    def list(self, path: str, limit: int) -> Tuple[List[List[Any]], bool]:
        """(entries sorted by name, whether there were more): each ``[name, kind, size, mode, mtime]``."""
        fd = self.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
        try:
            entries: List[List[Any]] = []
            with os.scandir(fd) as found:
                for entry in found:
                    if len(entries) == limit:
                        return sorted(entries), True
                    try:
                        entries.append([entry.name, *describe(entry.stat(follow_symlinks=False))])
                    except FileNotFoundError:
                        continue  # removed since it was listed
            return sorted(entries), False
        except OSError as error:
            raise explain(error, path) from error
        finally:
            os.close(fd)

    @staticmethod
    def _link(name: str, parent: int) -> Optional[str]:
        try:
            return os.readlink(name, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    @staticmethod
    def _enter(name: str, parent: int, make: bool) -> int:
        try:
            return os.open(name, O_DIR | os.O_NOFOLLOW, dir_fd=parent)
        except FileNotFoundError:
            if not make:
                raise
        try:
            os.mkdir(name, dir_fd=parent)
        except FileExistsError:
            pass
        return os.open(name, O_DIR | os.O_NOFOLLOW, dir_fd=parent)


def describe(info: os.stat_result) -> List[Any]:
    """``[kind, size in bytes, permission bits, mtime in seconds]``."""
    kind = "other"
    for name, test in (("file", st.S_ISREG), ("directory", st.S_ISDIR), ("symlink", st.S_ISLNK)):
        if test(info.st_mode):
            kind = name
    return [kind, info.st_size, st.S_IMODE(info.st_mode), info.st_mtime]


class FileWrite:
    """A file being replaced: written aside, then put in place in one step, or not at all."""

    def __init__(self, files: Confined, path: str, mode: Optional[int]) -> None:
        if path.endswith("/"):
            raise Failure("invalid", "%s: names a directory, not a file" % path)
        self.path = path
        self.parent, self.name = files.locate(path, make_parents=True)
        self.fd = -1
        self.temporary: Optional[str] = None
        try:
            kept = self._check_target()
            self.mode = kept if mode is None else mode
            self._open()
        except OSError as error:
            self.abort()
            raise explain(error, path) from error
        except Failure:
            self.abort()
            raise

    def _check_target(self) -> int:
        try:
            fd = os.open(self.name, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.parent)
        except FileNotFoundError:
            return 0o666 & ~UMASK
        try:
            info = os.fstat(fd)
        finally:
            os.close(fd)
        if not st.S_ISREG(info.st_mode):
            raise Failure("not_a_file", "%s: not a regular file" % self.path)
        return st.S_IMODE(info.st_mode) & 0o777

    def _open(self) -> None:
        if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
            try:  # a file without a name: a crash leaves nothing behind
                self.fd = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=self.parent)
                return
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                    raise
        self.temporary = self._spare_name()
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(self.temporary, flags, 0o600, dir_fd=self.parent)

    @staticmethod
    def _spare_name() -> str:
        return ".bubbles-" + os.urandom(8).hex()

    def write(self, data: bytes) -> None:
        """Append; a failure undoes it all."""
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self.fd, view) :]
        except OSError as error:
            self.abort()
            raise explain(error, self.path) from error

    def commit(self) -> None:
        """Put it in place, with its mode."""
        try:
            os.fchmod(self.fd, self.mode)
            if self.temporary is None:
                if self._link_to(self.name):
                    return
                self.temporary = self._spare_name()
                self._link_to(self.temporary)
            os.rename(self.temporary, self.name, src_dir_fd=self.parent, dst_dir_fd=self.parent)
            self.temporary = None
        except OSError as error:
            raise explain(error, self.path) from error
        finally:
            self.abort()

    def _link_to(self, name: str) -> bool:
        try:
            os.link("/proc/self/fd/%d" % self.fd, name, dst_dir_fd=self.parent, follow_symlinks=True)
        except FileExistsError:
            return False
        return True

    def abort(self) -> None:
        """Leave nothing but the old file; harmless after commit."""
        if self.temporary is not None:
            try:
                os.unlink(self.temporary, dir_fd=self.parent)
            except OSError:
                pass
        for fd in (self.fd, self.parent):
            if fd >= 0:
                os.close(fd)
        self.fd = self.parent = -1
        self.temporary = None
