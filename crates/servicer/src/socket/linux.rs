//! System calls of Linux for which no library in use has a safe wrapper.

#![expect(
    unsafe_code,
    reason = "no library in use has a safe getsockopt for SO_MEMINFO, or a safe sendmmsg that \
              takes other control messages for each"
)]

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;
use socket2::SockAddr;
use wire::Ecn;

use super::batch::{RUNS_MAX, Run};

/// Message headers, reused from call to call to avoid allocation.
#[derive(Debug, Default)]
pub(crate) struct Headers(Vec<Header>);

#[derive(Debug)]
struct Header {
    address: SockAddr,
    control: Control,
}

/// Sends `runs`, which are ranges of `bytes`, up to the first that fails, in one call of `sendmmsg`.
/// Returns how many were sent. `to` converts a destination to the socket's address family.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    (runs, bytes): (&[Run], &[u8]),
    headers: &mut Headers,
    to: impl Fn(SocketAddr) -> SocketAddr,
) -> io::Result<usize> {
    headers.0.clear();
    headers
        .0
        .extend(runs.iter().take(RUNS_MAX).map(|run| Header {
            address: SockAddr::from(to(run.outbound.destination)),
            control: Control::of(run),
        }));
    let mut parts = [EMPTY; RUNS_MAX];
    // SAFETY: an all-zero `mmsghdr` is valid: null pointers and zero lengths.
    let mut messages: [libc::mmsghdr; RUNS_MAX] = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut count = 0_u32;
    for (((header, run), part), message) in headers
        .0
        .iter()
        .zip(runs)
        .zip(&mut parts)
        .zip(&mut messages)
    {
        let contents = bytes.get(run.range.clone()).unwrap_or_default();
        part.iov_base = contents.as_ptr().cast_mut().cast();
        part.iov_len = contents.len();
        let hdr = &mut message.msg_hdr;
        hdr.msg_name = header.address.as_ptr().cast_mut().cast();
        hdr.msg_namelen = header.address.len();
        hdr.msg_iov = part;
        hdr.msg_iovlen = 1;
        hdr.msg_control = header.control.bytes.as_ptr().cast_mut().cast();
        hdr.msg_controllen = narrow(header.control.len);
        count = count.saturating_add(1);
    }
    // SAFETY: the first `count` messages point into `headers`, `parts` and `bytes` with their
    // correct lengths. These are alive and do not move until the call returns. The system only
    // writes `msg_len`.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Converts a number to the type that this system's C library uses.
fn narrow<T: TryFrom<usize> + Default>(number: usize) -> T {
    T::try_from(number).unwrap_or_default()
}

const EMPTY: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// Control messages in the kernel's layout: `include/linux/socket.h`, `struct cmsghdr`, each
/// aligned to a word.
#[derive(Debug)]
#[repr(C, align(8))]
struct Control {
    bytes: [u8; CONTROL_LEN],
    len: usize,
}

/// A header (16) with an ECN mark (4), one with the longest source address (20), and one with a
/// segment length (2), each padded to words of 8.
const CONTROL_LEN: usize = 24 + 40 + 24;

impl Control {
    fn of(run: &Run) -> Self {
        let mut control = Self {
            bytes: [0; CONTROL_LEN],
            len: 0,
        };
        let outbound = &run.outbound;
        let mark: libc::c_int = match outbound.ecn {
            None => 0,
            Some(Ecn::Ect1) => 1,
            Some(Ecn::Ect0) => 2,
            Some(Ecn::CongestionExperienced) => 3,
        };
        if outbound.destination.is_ipv4() {
            control.push(libc::IPPROTO_IP, libc::IP_TOS, &mark.to_ne_bytes());
        } else {
            control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &mark.to_ne_bytes());
        }
        match outbound.source {
            // `in_pktinfo`: no interface, the source address, and a field that only receives use.
            Some(IpAddr::V4(ip)) if outbound.destination.is_ipv4() => {
                let [a, b, c, d] = ip.octets();
                let info = [0, 0, 0, 0, a, b, c, d, 0, 0, 0, 0];
                control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            // `in6_pktinfo`: the source address, no interface.
            Some(IpAddr::V6(ip)) if outbound.destination.is_ipv6() => {
                let mut info = [0; 20];
                if let Some(room) = info.first_chunk_mut() {
                    *room = ip.octets();
                }
                control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            Some(_) | None => {}
        }
        if let Some(segment) = outbound.segment_len {
            control.push(libc::SOL_UDP, UDP_SEGMENT, &segment.get().to_ne_bytes());
        }
        control
    }

    /// Adds a message. `CONTROL_LEN` has room for all of them.
    fn push(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        const WORD: usize = size_of::<usize>();
        let len = data.len().saturating_add(WORD + 8);
        let head = len
            .to_ne_bytes()
            .into_iter()
            .chain(level.to_ne_bytes())
            .chain(kind.to_ne_bytes());
        let rooms = self.bytes.iter_mut().skip(self.len);
        for (room, byte) in rooms.zip(head.chain(data.iter().copied())) {
            *room = byte;
        }
        self.len = self.len.saturating_add(len.next_multiple_of(WORD));
    }
}

/// `include/uapi/linux/udp.h`; `libc` does not define it on Android.
const UDP_SEGMENT: libc::c_int = 103;

/// Returns how many datagrams for `socket` the system has dropped: its receive buffer was full, or
/// a checksum was wrong. The count wraps. `None` if the system has no such count.
///
/// Linux can also attach the count to each datagram (`SO_RXQ_OVFL`, socket(7)), but that control
/// message does not fit into the buffer that `quinn-udp` reserves, and displaces the ECN mark.
/// Therefore this reads `SO_MEMINFO` (Linux 4.12).
pub(super) fn receive_drops(socket: BorrowedFd<'_>) -> Option<u32> {
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
pub(super) fn full_buffers() -> Option<u64> {
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
        assert!(full_buffers().is_some());
    }
}
