//! How many datagrams the system dropped because a socket's receive buffer was full.
//!
//! Linux counts them for each socket. It can also tell with each datagram (`SO_RXQ_OVFL`, socket(7)), but that
//! control message does not fit into what `quinn-udp` reserves for them, and pushes the congestion mark out. So
//! the driver reads the counter now and then by `SO_MEMINFO`, which is there since Linux 4.12.

#![expect(
    unsafe_code,
    reason = "no library in use has a safe getsockopt for SO_MEMINFO"
)]

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;

/// Returns how many datagrams the system dropped so far instead of queueing them at `socket`: its receive buffer
/// was full, or a checksum was wrong. The count wraps. `None` if the system does not tell.
pub(super) fn read(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut info = [0_u32; WORDS];
    let size = libc::socklen_t::try_from(size_of_val(&info)).ok()?;
    let mut len = size;
    // SAFETY: `info` has `len` bytes, any of which may be written, and both are alive until the call returns.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if outcome != 0 || len < size {
        return None;
    }
    info.last().copied()
}

/// Words of the answer up to `SK_MEMINFO_DROPS`, the last that is of use.
const WORDS: usize = 9;
/// The C library's headers name it; the crate `libc` does not.
const SO_MEMINFO: libc::c_int = if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) {
    0x39
} else {
    55
};
