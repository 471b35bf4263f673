//! UDP sockets: binding, kernel limits, and batched sends and receives.

pub(crate) mod batch;
mod bind;
#[cfg(has_linux_calls)]
mod linux;

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU16, NonZeroUsize};
use std::time::Duration;

use quinn_udp::{EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};
use wire::address::canonical;
use wire::{Ecn, Instant};

pub use batch::Batching;
use batch::{DatagramSink, Headers, Run, Sent, is_full, is_of_icmp, is_unreachable, send_in_order};
use bind::Sharing;
pub use bind::{BindCause, BindError, Granted, SocketConfig, SocketReport, Stack};

/// Index of a driver's socket: its position in the list given at the start. Sockets opened later
/// count on from there. No index is reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketIndex(pub u32);

/// A bound UDP socket for a driver.
///
/// Datagrams are sent with the don't-fragment bit. One system call sends and receives several
/// datagrams if the system supports it ([`Batching`]).
#[derive(Debug)]
pub struct UdpSocket {
    pub(crate) io: mio::net::UdpSocket,
    /// The system's capabilities for the socket.
    state: UdpSocketState,
    reach: Reach,
    peer: Option<SocketAddr>,
    report: SocketReport,
    /// Maximum datagrams per segmented send, as found at the start.
    segments_max: usize,
    /// Set after the system rejected a send as malformed, which makes `quinn-udp` disable
    /// segmentation and ECN permanently.
    degraded: bool,
    /// When to next retry segmentation and ECN.
    restore_at: Instant,
    /// Consecutive batch sends that were rejected, although their runs were accepted alone.
    many_refused: u8,
    /// When to next retry batch sends.
    many_at: Instant,
}

impl UdpSocket {
    /// Binds `address`. With port 0, the system chooses the port. An IPv4-mapped address is treated
    /// as IPv4.
    ///
    /// # Errors
    ///
    /// [`BindError`]; its text is one sentence for an operator.
    pub fn bind(address: SocketAddr, config: &SocketConfig) -> Result<Self, BindError> {
        Self::bind_as(address, config, Sharing::Alone)
    }

    /// Binds `count` sockets to one port, for
    /// [`UdpServicer::spawn_shards`](crate::UdpServicer::spawn_shards). With port 0, the system
    /// chooses the port. Another program of the same user can also bind the port, and then receives
    /// a share of the datagrams.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind), and [`BindCause::NotShared`] on
    /// systems other than Linux.
    pub fn bind_shards(
        mut address: SocketAddr,
        config: &SocketConfig,
        count: NonZeroUsize,
    ) -> Result<Vec<Self>, BindError> {
        let mut sockets = Vec::new();
        for _ in 0..count.get() {
            let socket = Self::bind_as(address, config, Sharing::Shared)?;
            address = socket.local_address();
            sockets.push(socket);
        }
        Ok(sockets)
    }

    fn bind_as(
        address: SocketAddr,
        config: &SocketConfig,
        sharing: Sharing,
    ) -> Result<Self, BindError> {
        let (socket, report) = bind::bind(address, config, sharing)?;
        // On other systems a send on a connected socket must not name a destination.
        let peer = config.peer.map(canonical).filter(|_| cfg!(has_linux_calls));
        let peer = peer.filter(|peer| socket.connect(&(*peer).into()).is_ok());
        let mut made =
            Self::from_parts(socket, report).map_err(|error| BindError::new(address, &error))?;
        made.peer = peer;
        Ok(made)
    }

    /// Takes over a socket bound elsewhere, for example one inherited from a supervisor.
    ///
    /// # Errors
    ///
    /// The system's error if the socket cannot be made non-blocking or has no address.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        let socket = socket2::Socket::from(socket);
        let report = SocketReport::of(&socket, None)?;
        Self::from_parts(socket, report)
    }

    fn from_parts(socket: socket2::Socket, mut report: SocketReport) -> io::Result<Self> {
        let state = open(UdpSockRef::from(&socket), &socket)?;
        report.may_fragment = state.may_fragment();
        report.segments_out_max = state.max_gso_segments();
        report.segments_in_max = state.gro_segments();
        let reach = if report.address.is_ipv4() {
            Reach::V4
        } else if socket.only_v6()? {
            Reach::V6
        } else {
            Reach::Both
        };
        Ok(Self {
            io: mio::net::UdpSocket::from_std(socket.into()),
            segments_max: state.max_gso_segments(),
            state,
            reach,
            peer: None,
            report,
            degraded: false,
            restore_at: Instant::ZERO,
            many_refused: 0,
            many_at: Instant::ZERO,
        })
    }

    /// Returns the bound address, with the port that the system chose.
    pub const fn local_address(&self) -> SocketAddr {
        self.report.address
    }

    /// Returns the options that were requested and granted.
    pub const fn report(&self) -> &SocketReport {
        &self.report
    }

    /// Returns whether the socket supports the address family of `destination`.
    pub(crate) const fn reaches(&self, destination: SocketAddr) -> bool {
        matches!(
            (self.reach, destination),
            (Reach::V4 | Reach::Both, SocketAddr::V4(_))
                | (Reach::V6 | Reach::Both, SocketAddr::V6(_))
        )
    }

    /// Receives into `buffers`. Returns how many buffers and `metas` are filled. Errors:
    /// `WouldBlock` if the socket is empty. Errors for which
    /// [`is_of_earlier_send`](Self::is_of_earlier_send) returns true do not concern this call.
    pub(crate) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> io::Result<usize> {
        self.io
            .try_io(|| self.state.recv(UdpSockRef::from(&self.io), buffers, metas))
    }

    /// Returns whether `error` may report an earlier datagram: it was undeliverable or, on a
    /// connected socket, caused any ICMP message. The system reports each such error once.
    pub(crate) fn is_of_earlier_send(&self, error: &io::Error) -> bool {
        is_unreachable(error) || (self.peer.is_some() && is_of_icmp(error))
    }

    /// Returns how many datagrams the system has dropped because the receive buffer was full. The
    /// count wraps. `None` if the system has no such count; only Linux 4.12 and later has.
    pub(crate) fn receive_drops(&self) -> Option<u32> {
        drops_of(&self.io)
    }

    /// Maximum datagrams per run to one peer.
    pub(crate) fn segments_max(&self, batching: Batching) -> usize {
        match batching {
            Batching::One | Batching::Many => 1,
            Batching::Segmented => self.segments_now(),
        }
    }

    /// Maximum datagrams that the system currently segments.
    fn segments_now(&self) -> usize {
        if cfg!(tickwire_portable) {
            1
        } else {
            self.state.max_gso_segments()
        }
    }

    /// Sends all of `runs`, which are ranges of `bytes`, in as few system calls as `batching` and
    /// the system allow.
    pub(crate) fn send_all(
        &mut self,
        now: Instant,
        (runs, bytes): (&[Run], &[u8]),
        batching: Batching,
        headers: &mut Headers,
    ) -> Sent {
        self.restore(now);
        let mut sink = SocketSink {
            socket: self,
            now,
            bytes,
            batching,
            headers,
        };
        send_in_order(runs, &mut sink)
    }

    /// Sends `bytes`, split as `outbound` says, with one system call per run of segments.
    pub(crate) fn send(&mut self, now: Instant, outbound: &Outbound, bytes: &[u8]) -> Sent {
        let mut sent = Sent::default();
        let segment = outbound
            .segment_len
            .map_or(bytes.len(), |len| usize::from(len.get()))
            .max(1);
        if !self.reaches(outbound.destination) || outbound.destination.port() == 0 {
            sent.refused = count(bytes.len(), segment);
            return sent;
        }
        self.restore(now);
        let batch = self
            .segments_now()
            .min(SEGMENTED_BYTES_MAX.checked_div(segment).unwrap_or(1))
            .max(1)
            .saturating_mul(segment);
        // An empty datagram is also sent.
        if bytes.is_empty() {
            self.send_one(outbound, bytes, &mut sent);
        }
        for burst in bytes.chunks(batch) {
            if burst.len() <= segment {
                self.send_one(outbound, burst, &mut sent);
            } else {
                self.send_burst(outbound, burst, segment, &mut sent);
            }
        }
        sent
    }

    /// Sends several datagrams at once, or one by one if the system cannot.
    fn send_burst(&mut self, outbound: &Outbound, burst: &[u8], segment: usize, sent: &mut Sent) {
        sent.calls = sent.calls.saturating_add(1);
        let datagrams = count(burst.len(), segment);
        match self.try_send(outbound, burst, Some(segment)) {
            Ok(()) => sent.datagrams = sent.datagrams.saturating_add(datagrams),
            Err(error) if is_full(&error) => sent.full = sent.full.saturating_add(datagrams),
            Err(_) => {
                for datagram in burst.chunks(segment) {
                    self.send_one(outbound, datagram, sent);
                }
            }
        }
    }

    fn send_one(&mut self, outbound: &Outbound, datagram: &[u8], sent: &mut Sent) {
        sent.calls = sent.calls.saturating_add(1);
        let first = self.try_send(outbound, datagram, None);
        match &first {
            Err(error) if self.is_of_earlier_send(error) => {
                // The error reported an earlier datagram (ICMP), and this one was not sent.
                sent.calls = sent.calls.saturating_add(1);
                sent.count_retry(error, &self.try_send(outbound, datagram, None));
            }
            _ => sent.count(&first),
        }
    }

    fn try_send(
        &mut self,
        outbound: &Outbound,
        contents: &[u8],
        segment_size: Option<usize>,
    ) -> io::Result<()> {
        let is_plain =
            segment_size.is_none() && outbound.ecn.is_none() && outbound.source.is_none();
        if is_plain && self.peer == Some(outbound.destination) {
            return self.io.send(contents).map(drop);
        }
        let transmit = quinn_udp::Transmit {
            destination: self.reach.name(outbound.destination),
            ecn: outbound.ecn.map(|ecn| match ecn {
                Ecn::Ect0 => EcnCodepoint::Ect0,
                Ecn::Ect1 => EcnCodepoint::Ect1,
                Ecn::CongestionExperienced => EcnCodepoint::Ce,
            }),
            contents,
            segment_size,
            src_ip: outbound
                .source
                .filter(|source| source.is_ipv4() == outbound.destination.is_ipv4()),
        };
        let result = self
            .io
            .try_io(|| self.state.try_send(UdpSockRef::from(&self.io), &transmit));
        self.degraded |= self.state.max_gso_segments() < self.segments_max
            || matches!(&result, Err(error) if error.kind() == ErrorKind::InvalidInput);
        result
    }

    /// Re-enables segmentation and ECN after a send was rejected as malformed.
    ///
    /// `quinn-udp` takes such an error for a sign of an old kernel and disables both. An invalid
    /// source address also causes it, so a remote peer can trigger it.
    fn restore(&mut self, now: Instant) {
        if !self.degraded || now < self.restore_at {
            return;
        }
        self.restore_at = now + RESTORE_INTERVAL;
        if let Ok(state) = open(UdpSockRef::from(&self.io), &self.io) {
            self.state = state;
            self.degraded = false;
        }
    }
}

/// The addresses of a datagram, inbound or outbound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    /// The local socket.
    pub(crate) socket: SocketIndex,
    /// The remote address. IPv4 addresses are never in mapped form.
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: Option<Ecn>,
}

/// A machine's transmit with its peer resolved to addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outbound {
    pub(crate) destination: SocketAddr,
    /// The local address to send from.
    pub(crate) source: Option<IpAddr>,
    /// Length of each datagram if there are several; the last may be shorter.
    pub(crate) segment_len: Option<NonZeroU16>,
    pub(crate) ecn: Option<Ecn>,
}

struct SocketSink<'a> {
    socket: &'a mut UdpSocket,
    now: Instant,
    bytes: &'a [u8],
    batching: Batching,
    #[cfg_attr(
        not(has_linux_calls),
        expect(dead_code, reason = "the system has no call for several")
    )]
    headers: &'a mut Headers,
}

impl DatagramSink for SocketSink<'_> {
    #[cfg(has_linux_calls)]
    fn send_many(&mut self, runs: &[Run]) -> io::Result<usize> {
        use std::os::fd::AsFd;

        let (io, reach) = (&self.socket.io, self.socket.reach);
        let sent = io.try_io(|| {
            let batch = (runs, self.bytes);
            linux::send(io.as_fd(), batch, self.headers, |to| reach.name(to))
        })?;
        self.socket.many_refused = 0;
        Ok(sent)
    }

    #[cfg(not(has_linux_calls))]
    fn send_many(&mut self, _: &[Run]) -> io::Result<usize> {
        Err(ErrorKind::Unsupported.into())
    }

    fn can_send_many(&self) -> bool {
        cfg!(has_linux_calls) && self.batching != Batching::One && self.socket.many_at <= self.now
    }

    fn on_sent_alone(&mut self, sent: &Sent) {
        if sent.is_complete() {
            let refused = &mut self.socket.many_refused;
            *refused = refused.saturating_add(1);
            if *refused >= MANY_REFUSED_MAX {
                // The system has no such call, or forbids it.
                *refused = 0;
                self.socket.many_at = self.now + RESTORE_INTERVAL;
            }
        }
    }

    fn send_alone(&mut self, run: &Run) -> Sent {
        let bytes = self.bytes.get(run.range.clone()).unwrap_or_default();
        self.socket.send(self.now, &run.outbound, bytes)
    }
}

/// The address families that a socket supports.
#[derive(Clone, Copy, Debug)]
enum Reach {
    V4,
    V6,
    Both,
}

impl Reach {
    /// Converts an address to the socket's address family.
    fn name(self, address: SocketAddr) -> SocketAddr {
        match (self, address) {
            (Self::Both, SocketAddr::V4(address)) => {
                (address.ip().to_ipv6_mapped(), address.port()).into()
            }
            (_, address) => address,
        }
    }
}

/// Configures a socket for batches, ECN marks and local addresses.
///
/// `quinn-udp` 0.6.3 also enables receive timestamps on Linux, which are not needed here. With
/// them, the control data of merged datagrams (120 bytes) exceeds the 96 bytes reserved, and the
/// ECN mark is lost. Without them it has 88.
#[cfg(has_linux_calls)]
fn open(socket: UdpSockRef<'_>, descriptor: &impl std::os::fd::AsFd) -> io::Result<UdpSocketState> {
    use nix::sys::socket::{setsockopt, sockopt::ReceiveTimestampns};

    let state = UdpSocketState::new(socket)?;
    setsockopt(descriptor, ReceiveTimestampns, &false)?;
    Ok(state)
}

/// Configures a socket for batches, ECN marks and local addresses.
#[cfg(not(has_linux_calls))]
fn open<S>(socket: UdpSockRef<'_>, _: &S) -> io::Result<UdpSocketState> {
    UdpSocketState::new(socket)
}

#[cfg(has_linux_calls)]
fn drops_of(descriptor: &impl std::os::fd::AsFd) -> Option<u32> {
    linux::receive_drops(descriptor.as_fd())
}

/// Returns how many datagrams the system has dropped on all sockets because a receive buffer was
/// full.
#[cfg(has_linux_calls)]
pub(crate) fn full_buffers() -> Option<u64> {
    linux::full_buffers()
}

/// Always `None`: this system has no such count.
#[cfg(not(has_linux_calls))]
pub(crate) const fn full_buffers() -> Option<u64> {
    None
}

#[cfg(not(has_linux_calls))]
const fn drops_of<S>(_: &S) -> Option<u32> {
    None
}

fn count(bytes: usize, segment: usize) -> u64 {
    let segments = bytes.div_ceil(segment).max(1);
    u64::try_from(segments).unwrap_or(u64::MAX)
}

/// Maximum bytes of a segmented send: an IPv4 packet without its longest header (60) and UDP's (8),
/// RFC 791 section 3.1.
const SEGMENTED_BYTES_MAX: usize = 65_535 - 60 - 8;

/// Consecutive batch sends that the system may reject, while it accepts their runs alone, before
/// batch sends are suspended.
const MANY_REFUSED_MAX: u8 = 8;

/// Minimum time between two retries of segmentation and ECN, or of batch sends.
const RESTORE_INTERVAL: Duration = Duration::from_secs(1);
