"""Linux, macOS and the BSDs. Only Linux is tested."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import resource
import stat
import sys
from pathlib import Path

import psutil

from ..errors import Failure

assert sys.platform != "win32"  # tells mypy to pass over this file when it checks for Windows

SHARED_MEMORY = Path("/dev/shm")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_FALLOCATE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def process_start_ns(pid: int) -> int | None:
    """When a process began, or None when there is none (a zombie counts as gone). Raises OSError when that
    cannot be found out now, as when no more files can be opened.

    On Linux nanoseconds since boot (field 22 of /proc/PID/stat, in clock ticks), so that a change of
    the wall clock does not change it; elsewhere since 1970. Only ever compared with itself.
    """
    if pid <= 0:
        return None
    if sys.platform != "linux":
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return int(process.create_time() * 1e9)
        except (psutil.Error, ValueError, OverflowError):
            return None
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        text = os.read(fd, 4096)
    except ProcessLookupError:  # it died between the two calls
        return None
    finally:
        os.close(fd)
    # The command name stands in brackets and may hold anything, brackets included: count from the last.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X", b"x"):
        return None
    return int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def allow_many_files() -> None:
    """Raise the number of files this process may have open as far as the system lets it."""
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def lower_priority(lowest: bool = False) -> None:
    """Let the game go first: below normal, or the `lowest` there is. Never raises the priority again."""
    with contextlib.suppress(OSError):
        now = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, max(now, 19 if lowest else 5))


def user_tag() -> str:
    """A short name of the user for file names in folders that all users share."""
    return str(os.getuid())


def private_folder(path: Path) -> Path:
    """Make sure that `path` is a folder of ours that no one else can enter, and return it.

    Raises Failure bad-file when it is a link, another user's, or was open for others to write.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(path)
    except OSError as error:
        raise Failure(f"cannot make the folder {path}: {error.strerror}", "bad-file") from None
    if not stat.S_ISDIR(found.st_mode):
        raise Failure(f"{path} must be a folder, not a link or a file", "bad-file")
    if found.st_uid != os.getuid():
        raise Failure(f"{path} belongs to user {found.st_uid}; it must be ours ({os.getuid()})", "bad-file")
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o022:  # somebody may have put something in already
        raise Failure(f"others may write into {path} (mode {mode:o}); it must have mode 700", "bad-file")
    if mode & 0o077:
        os.chmod(path, 0o700)
    return path


def mapping_folders(runtime: Path) -> list[Path]:
    """Where mapping files may lie, best first. `runtime` is the private runtime folder."""
    if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK | os.X_OK):
        return [SHARED_MEMORY, runtime]
    return [runtime]


def create_mapping_file(path: Path, size: int) -> None:
    """Create a file of `size` zero bytes whose room is really there, readable by this user only.

    Raises Failure no-space when there is no room (nothing is left behind), bad-file when the file
    exists or the folder cannot be written.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        code = "no-space" if error.errno in NO_ROOM else "bad-file"
        raise Failure(f"cannot create the mapping {path}: {error.strerror}", code) from None
    try:
        _reserve(fd, size)
    except OSError as error:
        remove_file(path)
        code = "no-space" if error.errno in NO_ROOM else "bad-file"
        raise Failure(f"no room for {size} bytes at {path}: {error.strerror}", code) from None
    finally:
        os.close(fd)


def _reserve(fd: int, size: int) -> None:
    # A sparse file would be created happily on a full tmpfs and kill whoever writes it with SIGBUS.
    if sys.platform != "darwin":
        try:
            os.posix_fallocate(fd, 0, size)
            return
        except OSError as error:
            if error.errno not in NO_FALLOCATE:
                raise
    block = bytes(1 << 20)
    left = size
    while left:
        left -= os.write(fd, block[: min(left, len(block))])


def map_file(path: Path, size: int) -> mmap.mmap:
    """Map a mapping file of exactly `size` bytes, shared, to read and write.

    Raises Failure bad-file when it is gone, a link, another user's, or of another size.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise Failure(f"cannot open the mapping {path}: {error.strerror}", "bad-file") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            raise Failure(f"{path} is not a file of this user", "bad-file")
        if found.st_size != size:
            raise Failure(f"{path} has {found.st_size} bytes; {size} were announced", "bad-file")
        return mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    except (OSError, ValueError, OverflowError) as error:
        raise Failure(f"cannot map {path}: {error}", "bad-file") from None
    finally:
        os.close(fd)


def remove_file(path: Path) -> bool:
    """Remove a file. True when it is gone afterwards, also when it was gone before."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class FileLock:
    """A lock held until `release` or the end of the process, however it ends."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd: int | None = fd
        self._path = path

    def release(self) -> None:
        """Give it back and remove its file, in the order that `lock_file` counts on."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._fd)
            self._fd = None


def lock_file(path: Path) -> FileLock | None:
    """Take the lock that `path` stands for; None when another process (or lock) has it.

    Raises Failure bad-file when the file cannot be created.
    """
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise Failure(f"cannot open the lock {path}: {error.strerror}", "bad-file") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError as error:
            os.close(fd)
            raise Failure(f"cannot lock {path}: {error.strerror}", "bad-file") from None
        # The last holder may have removed the file between our opening and locking it: then what we hold
        # stands for nothing, and somebody else may hold the new file.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return FileLock(fd, path)
        os.close(fd)
