//! Several sends in one system call: `sendmmsg` of Linux.
//!
//! Each message has the same control data (ECN mark, source address, segment length) as a single
//! send of `quinn-udp`.

#![expect(
    unsafe_code,
    reason = "no library in use has a safe sendmmsg that takes other control messages for each"
)]

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
pub(crate) struct Heads(Vec<Head>);

#[derive(Debug)]
struct Head {
    address: SockAddr,
    control: Control,
}

/// Sends the first of `runs`, which are ranges of `bytes`, and the following ones up to the first
/// that fails. Returns how many were sent. `to` converts a destination to the socket's address
/// family.
///
/// # Errors
///
/// The system's error for the first run.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    (runs, bytes): (&[Run], &[u8]),
    heads: &mut Heads,
    to: impl Fn(SocketAddr) -> SocketAddr,
) -> io::Result<usize> {
    heads.0.clear();
    heads.0.extend(runs.iter().take(RUNS_MAX).map(|run| Head {
        address: SockAddr::from(to(run.outbound.destination)),
        control: Control::of(run),
    }));
    let mut parts = [EMPTY; RUNS_MAX];
    // SAFETY: an all-zero `mmsghdr` is valid: null pointers and zero lengths.
    let mut messages: [libc::mmsghdr; RUNS_MAX] = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut count = 0_u32;
    for (((head, run), part), message) in
        heads.0.iter().zip(runs).zip(&mut parts).zip(&mut messages)
    {
        let contents = bytes.get(run.range.clone()).unwrap_or_default();
        part.iov_base = contents.as_ptr().cast_mut().cast();
        part.iov_len = contents.len();
        let header = &mut message.msg_hdr;
        header.msg_name = head.address.as_ptr().cast_mut().cast();
        header.msg_namelen = head.address.len();
        header.msg_iov = part;
        header.msg_iovlen = 1;
        header.msg_control = head.control.bytes.as_ptr().cast_mut().cast();
        header.msg_controllen = narrow(head.control.len);
        count = count.saturating_add(1);
    }
    // SAFETY: the first `count` messages point into `heads`, `parts` and `bytes` with their correct
    // lengths. These are alive and do not move until the call returns. The system only writes
    // `msg_len`.
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
