//! Datagrams that the system dropped because a socket's receive buffer was full.
//!
//! Linux counts them per socket. It can also attach the count to each datagram (`SO_RXQ_OVFL`,
//! socket(7)), but that control message does not fit into the buffer that `quinn-udp` reserves, and
//! displaces the ECN mark. The driver therefore reads the counter periodically with `SO_MEMINFO`
//! (Linux 4.12).

#![expect(
    unsafe_code,
    reason = "no library in use has a safe getsockopt for SO_MEMINFO"
)]

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;

/// Returns how many datagrams for `socket` the system has dropped: its receive buffer was full, or
/// a checksum was wrong. The count wraps. `None` if the system has no such count.
pub(super) fn read(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut info = [0_u32; WORDS];
    let size = libc::socklen_t::try_from(size_of_val(&info)).ok()?;
    let mut len = size;
    // SAFETY: `info` has `len` writable bytes, and both outlive the call.
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

/// Returns how many datagrams the system has dropped in this network namespace because a receive
/// buffer was full. Datagrams with a wrong checksum, which anyone can send, do not count. `None` if
/// the system has no such count.
pub(super) fn read_full_buffers() -> Option<u64> {
    let ipv4 = fs::read_to_string("/proc/thread-self/net/snmp").ok()?;
    let ipv6 = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
    Some(full_buffers_ipv4(&ipv4)?.saturating_add(full_buffers_ipv6(&ipv6).unwrap_or(0)))
}

/// Two lines that begin with `Udp:`: names, then numbers.
fn full_buffers_ipv4(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let mut fields = names.split_whitespace().zip(numbers.split_whitespace());
    let (_, number) = fields.find(|(name, _)| *name == "RcvbufErrors")?;
    number.parse().ok()
}

/// Lines of a name and a number.
fn full_buffers_ipv6(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix("Udp6RcvbufErrors")?.trim().parse().ok())
}

/// Words of the answer up to `SK_MEMINFO_DROPS`.
const WORDS: usize = 9;
/// Defined in the C library's headers, but not in the crate `libc`.
const SO_MEMINFO: libc::c_int = if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) {
    0x39
} else {
    55
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_buffers_are_read_from_the_tables_of_the_system() {
        let ipv4 = "Tcp: InErrs\nTcp: 7\nUdp: InDatagrams InErrors RcvbufErrors InCsumErrors\nUdp: 9 8 5 3\n\
                    UdpLite: RcvbufErrors\nUdpLite: 4\n";
        assert_eq!(full_buffers_ipv4(ipv4), Some(5));
        assert_eq!(full_buffers_ipv4("Udp: InDatagrams\nUdp: 9\n"), None);
        assert_eq!(full_buffers_ipv4(""), None);
        let ipv6 = "Udp6InErrors  \t3\nUdp6RcvbufErrors         \t2\nUdpLite6RcvbufErrors \t1\n";
        assert_eq!(full_buffers_ipv6(ipv6), Some(2));
        assert_eq!(full_buffers_ipv6(""), None);
        assert!(read_full_buffers().is_some());
    }
}
