"""Windows 10 and later. Written against the documented calls and type-checked; not run by our tests."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import msvcrt
import os
import sys
from ctypes import wintypes
from pathlib import Path

import psutil

from ..errors import Failure

assert sys.platform == "win32"  # tells mypy to pass over this file when it checks for other systems

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)

_CreateFileW = _kernel32.CreateFileW
_CreateFileW.argtypes = [
    wintypes.LPCWSTR,
    wintypes.DWORD,
    wintypes.DWORD,
    wintypes.LPVOID,
    wintypes.DWORD,
    wintypes.DWORD,
    wintypes.HANDLE,
]
_CreateFileW.restype = wintypes.HANDLE
_OpenProcess = _kernel32.OpenProcess
_OpenProcess.argtypes = [wintypes.DWORD, wintypes.BOOL, wintypes.DWORD]
_OpenProcess.restype = wintypes.HANDLE
_GetProcessTimes = _kernel32.GetProcessTimes
_GetProcessTimes.argtypes = [wintypes.HANDLE] + [ctypes.POINTER(wintypes.FILETIME)] * 4
_GetProcessTimes.restype = wintypes.BOOL
_WaitForSingleObject = _kernel32.WaitForSingleObject
_WaitForSingleObject.argtypes = [wintypes.HANDLE, wintypes.DWORD]
_WaitForSingleObject.restype = wintypes.DWORD
_CloseHandle = _kernel32.CloseHandle
_CloseHandle.argtypes = [wintypes.HANDLE]
_CloseHandle.restype = wintypes.BOOL

_INVALID_HANDLE = ctypes.c_void_p(-1).value
_GENERIC_READ_WRITE = 0xC0000000
_SHARE_ALL = 0x7  # read, write, delete
_CREATE_NEW = 1
_OPEN_EXISTING = 3
_ATTRIBUTES = 0x2100  # temporary (kept in memory while there is room), not indexed
_OPEN_LINK_ITSELF = 0x00200000
_QUERY_LIMITED = 0x1000
_SYNCHRONIZE = 0x00100000
_WAIT_TIMEOUT = 0x102
_DISK_FULL = (39, 112)  # ERROR_HANDLE_DISK_FULL, ERROR_DISK_FULL
_EPOCH_100NS = 116_444_736_000_000_000  # 1601 to 1970


def process_start_ns(pid: int) -> int | None:
    """When a process began, in nanoseconds since 1970, or None when there is none.

    A process that has ended but is still held open by someone counts as gone.
    """
    if pid <= 0 or pid > 0xFFFFFFFF:
        return None
    handle = _OpenProcess(_QUERY_LIMITED | _SYNCHRONIZE, False, pid)
    if not handle:
        return None
    try:
        if _WaitForSingleObject(handle, 0) != _WAIT_TIMEOUT:
            return None
        begun, ended, kernel, user = (wintypes.FILETIME() for _ in range(4))
        times = (ctypes.byref(t) for t in (begun, ended, kernel, user))
        if not _GetProcessTimes(handle, *times):
            return None
        return (((begun.dwHighDateTime << 32) | begun.dwLowDateTime) - _EPOCH_100NS) * 100
    finally:
        _CloseHandle(handle)


def allow_many_files() -> None:
    """Nothing to do here: there is no limit that matters."""


def lower_priority(lowest: bool = False) -> None:
    """Let the game go first: below normal, or the `lowest` there is."""
    with contextlib.suppress(psutil.Error, OSError):
        psutil.Process().nice(psutil.IDLE_PRIORITY_CLASS if lowest else psutil.BELOW_NORMAL_PRIORITY_CLASS)


def user_tag() -> str:
    """A short name of the user for file names. Our folders lie in the user's profile, so any will do."""
    return "0"


def private_folder(path: Path) -> Path:
    """Make sure that `path` is a folder, and return it.

    The folders we use lie in the user's profile, whose access list keeps other users out and is
    inherited. Raises Failure bad-file when it is no folder.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"cannot make the folder {path}: {error.strerror}", "bad-file") from None
    if path.is_symlink() or not path.is_dir():
        raise Failure(f"{path} must be a folder, not a link or a file", "bad-file")
    return path


def mapping_folders(runtime: Path) -> list[Path]:
    """Where mapping files may lie, best first. `runtime` is the private runtime folder."""
    return [runtime]


def _open(path: Path, disposition: int) -> int:
    """A C file descriptor of `path`, shared for read, write and delete. Raises OSError."""
    flags = _OPEN_LINK_ITSELF | (_ATTRIBUTES if disposition == _CREATE_NEW else 0)
    handle = _CreateFileW(str(path), _GENERIC_READ_WRITE, _SHARE_ALL, None, disposition, flags, None)
    if handle is None or handle == _INVALID_HANDLE:
        raise ctypes.WinError(ctypes.get_last_error())
    try:
        return msvcrt.open_osfhandle(handle, os.O_RDWR | os.O_BINARY | os.O_NOINHERIT)
    except OSError:
        _CloseHandle(handle)
        raise


def _no_room(error: OSError) -> bool:
    return error.errno == errno.ENOSPC or getattr(error, "winerror", None) in _DISK_FULL


def create_mapping_file(path: Path, size: int) -> None:
    """Create a file of `size` zero bytes, shared for read, write and delete.

    Raises Failure no-space when there is no room (nothing is left behind), bad-file when the file
    exists or the folder cannot be written.
    """
    try:
        fd = _open(path, _CREATE_NEW)
    except OSError as error:
        code = "no-space" if _no_room(error) else "bad-file"
        raise Failure(f"cannot create the mapping {path}: {error.strerror}", code) from None
    failed: OSError | None = None
    try:
        block = bytes(1 << 20)
        left = size
        while left:
            left -= os.write(fd, block[: min(left, len(block))])
    except OSError as error:
        failed = error
    finally:
        os.close(fd)
    if failed is not None:
        remove_file(path)
        code = "no-space" if _no_room(failed) else "bad-file"
        raise Failure(f"no room for {size} bytes at {path}: {failed.strerror}", code)


def map_file(path: Path, size: int) -> mmap.mmap:
    """Map a mapping file of exactly `size` bytes, shared, to read and write.

    Raises Failure bad-file when it is gone or of another size.
    """
    try:
        fd = _open(path, _OPEN_EXISTING)
    except OSError as error:
        raise Failure(f"cannot open the mapping {path}: {error.strerror}", "bad-file") from None
    try:
        found = os.fstat(fd).st_size
        if found != size:
            raise Failure(f"{path} has {found} bytes; {size} were announced", "bad-file")
        return mmap.mmap(fd, size, access=mmap.ACCESS_WRITE)
    except (OSError, ValueError, OverflowError) as error:
        raise Failure(f"cannot map {path}: {error}", "bad-file") from None
    finally:
        os.close(fd)


def remove_file(path: Path) -> bool:
    """Remove a file. True when it is gone afterwards; False while another process maps it: ask again."""
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
        """Give it back and remove its file, which Windows refuses while somebody else has it open."""
        if self._fd is not None:
            os.close(self._fd)  # closing unlocks
            self._fd = None
            with contextlib.suppress(OSError):
                self._path.unlink()


def lock_file(path: Path) -> FileLock | None:
    """Take the lock that `path` stands for; None when another process (or lock) has it.

    Raises Failure bad-file when the file cannot be created.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_BINARY | os.O_NOINHERIT, 0o600)
    except OSError as error:
        raise Failure(f"cannot open the lock {path}: {error.strerror}", "bad-file") from None
    try:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    except OSError:
        os.close(fd)
        return None
    return FileLock(fd, path)
