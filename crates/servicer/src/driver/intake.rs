//! Receiving: batches from all sockets, split into datagrams.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta};
use wire::Ecn;
use wire::address::canonical;

use super::application::SocketIndex;
use super::counters::Ledger;
use crate::udp::{Batching, UdpSocket};

/// Receive buffers of one system call.
#[derive(Debug)]
pub(super) struct Intake {
    /// Room for `most` receives.
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    /// Maximum receives per system call.
    most: usize,
}

/// The addresses of a datagram, inbound or outbound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    /// The local socket.
    pub(crate) socket: SocketIndex,
    /// The remote address. IPv4 addresses are never in mapped form.
    pub(crate) remote: SocketAddr,
    /// The local address.
    pub(crate) local: Option<IpAddr>,
    /// ECN mark.
    pub(crate) ecn: Option<Ecn>,
}

impl Intake {
    pub(super) fn new(batching: Batching) -> Self {
        let most = match batching {
            Batching::One => 1,
            Batching::Many | Batching::Segmented if cfg!(tickwire_portable) => 1,
            Batching::Many | Batching::Segmented => BATCH_SIZE,
        };
        Self {
            bytes: vec![0; RECEIVE_LEN.saturating_mul(most)],
            metas: [RecvMeta::default(); BATCH_SIZE],
            most,
        }
    }

    /// Makes one receive on `socket` and passes its datagrams to `deliver`.
    pub(super) fn receive(
        &mut self,
        (index, socket): (SocketIndex, &UdpSocket),
        ledger: &Ledger,
        mut deliver: impl FnMut(Envelope, &mut [u8]),
    ) -> Took {
        let mut rooms = self.bytes.chunks_mut(RECEIVE_LEN);
        let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(rooms.next().unwrap_or_default()));
        ledger.receive_calls.add(1);
        let used = buffers.get_mut(..self.most).unwrap_or_default();
        let filled = match socket.receive(used, &mut self.metas) {
            Ok(filled) => filled,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Took::Nothing,
            Err(error) if socket.tells_of_earlier(&error) => {
                ledger.unreachable.add(1);
                return Took::Some(0);
            }
            Err(_) => {
                // An immediate retry could become a busy loop, whatever the error.
                ledger.receive_errors.add(1);
                return Took::Nothing;
            }
        };
        let mut received = 0_usize;
        for (meta, room) in self.metas.iter().zip(&mut buffers).take(filled) {
            let bytes = room.get_mut(..meta.len).unwrap_or_default();
            let envelope = envelope(index, meta);
            if bytes.is_empty() {
                received = received.saturating_add(1);
                take(envelope, &mut [], ledger, &mut deliver);
            }
            for datagram in bytes.chunks_mut(meta.stride.max(1)) {
                received = received.saturating_add(1);
                take(envelope, datagram, ledger, &mut deliver);
            }
        }
        if TELLS_EMPTY && filled < self.most {
            Took::All(received)
        } else {
            Took::Some(received)
        }
    }
}

/// Result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Took {
    /// The socket was empty.
    Nothing,
    /// This many datagrams. There may be more.
    Some(usize),
    /// This many datagrams, and the socket is now empty.
    All(usize),
}

/// Passes one datagram on, unless it cannot be answered.
fn take(
    envelope: Envelope,
    datagram: &mut [u8],
    ledger: &Ledger,
    deliver: &mut impl FnMut(Envelope, &mut [u8]),
) {
    if envelope.remote.port() == 0 {
        ledger.dropped_in_unanswerable.add(1);
    } else {
        deliver(envelope, datagram);
    }
}

fn envelope(socket: SocketIndex, meta: &RecvMeta) -> Envelope {
    let local = meta.dst_ip.map(|ip| ip.to_canonical());
    Envelope {
        socket,
        remote: canonical(meta.addr),
        local: local.filter(|ip| is_own(*ip)),
        ecn: meta.ecn.map(|ecn| match ecn {
            EcnCodepoint::Ect0 => Ecn::Ect0,
            EcnCodepoint::Ect1 => Ecn::Ect1,
            EcnCodepoint::Ce => Ecn::CongestionExperienced,
        }),
    }
}

/// Returns whether `ip` can be the source of an answer: not a multicast, broadcast or unspecified
/// address.
const fn is_own(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !ip.is_multicast() && !ip.is_unspecified() && !is_broadcast
}

/// Whether a receive with free buffers means that the socket is empty. `recvmmsg(2)` of Linux
/// continues until the socket is empty, and a later datagram ends an edge-triggered wait. An error
/// also ends the call early, and it ends the wait too.
const TELLS_EMPTY: bool = cfg!(has_linux_calls);

/// Maximum bytes of one receive: a whole datagram, or several merged by the system.
const RECEIVE_LEN: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_address_is_seen_as_ipv4() {
        let mut meta = RecvMeta::default();
        meta.addr = "[::ffff:192.0.2.1]:9".parse().unwrap();
        meta.dst_ip = Some("::ffff:192.0.2.2".parse().unwrap());
        let envelope = envelope(SocketIndex(3), &meta);
        assert_eq!(envelope.remote, "192.0.2.1:9".parse().unwrap());
        assert_eq!(envelope.local, Some("192.0.2.2".parse().unwrap()));
        assert_eq!(envelope.socket, SocketIndex(3));
    }

    #[test]
    fn a_group_is_no_address_to_answer_from() {
        for ip in ["255.255.255.255", "224.0.0.1", "ff02::1", "0.0.0.0", "::"] {
            assert!(!is_own(ip.parse().unwrap()), "{ip}");
        }
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(is_own("fe80::1".parse().unwrap()));
    }

    #[test]
    fn what_cannot_be_answered_is_dropped_and_counted() {
        let ledger = Ledger::default();
        let mut heard = Vec::new();
        for port in [0, 9] {
            let mut meta = RecvMeta::default();
            meta.addr = SocketAddr::from(([192, 0, 2, 1], port));
            let envelope = envelope(SocketIndex(0), &meta);
            take(envelope, &mut [], &ledger, &mut |envelope, _| {
                heard.push(envelope.remote.port());
            });
        }
        assert_eq!(heard, [9]);
        assert_eq!(ledger.snapshot().dropped_in_unanswerable, 1);
    }
}
