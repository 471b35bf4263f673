//! Configuration: every field carries its range by type, so nothing is left to check.

use core::num::NonZeroU32;
use core::time::Duration;

use crypto::{SEALS_MAX, Suite};

use crate::channel::ChannelTable;
use crate::codec::Catalogue;
use crate::handshake::SpokenVersions;
use crate::slots::CidLen;

/// What one endpoint allows and how it behaves.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest datagram to send, bytes; 1,200, which every path must carry.
    pub mtu: Mtu,
    /// Size that every session checks its path for when it opens; none. The outcome comes as
    /// [`Event::MtuChecked`](crate::Event::MtuChecked).
    pub mtu_check: Option<Mtu>,
    /// Whether sessions look for a larger size: 1,280, 1,352 and 1,452 bytes, again each 10 minutes, and
    /// back to 1,200 for a minute where long packets arrive no more. Off. The driver must have the
    /// system not split datagrams, as `servicer`'s does.
    pub mtu_search: MtuSearch,
    /// Channels of every session; both ends must have the same. Unreliable 0 and reliable 1.
    pub channels: ChannelTable,
    /// Types of the application's messages; none. Both ends must have the same: a session with
    /// another one is closed with [`CloseCode::ChannelConfig`](crate::CloseCode::ChannelConfig).
    pub messages: Catalogue,
    /// Silence after which a session is given up; 10 s. The smaller of both ends' holds. By what the
    /// driver came more than 250 ms late, 10 s at most, it is longer.
    pub idle_timeout: IdleTimeout,
    /// Longest silence of ours; 1 s, of which up to a fifth is taken off at random. No more than a
    /// third of the idle timeout that holds, the smaller of both ends', so that two keepalives in a
    /// row may be lost: a longer one is cut to that.
    pub keepalive: Keepalive,
    /// Reliable payload taken before the application reads, bytes; 1 MiB, and 88 KiB
    /// [for a server](Self::for_server). Each session may hold as much.
    pub receive_window: u32,
    /// How long closing waits for reliable messages to be acknowledged; 500 ms.
    pub linger: Duration,
    /// How long connecting may take over all addresses; 10 s.
    pub connect_timeout: Duration,
    /// Sessions and attempts at a time; 4,096, at most 65,535. An idle one holds some 3 KiB.
    /// Players who return while their old sessions live take slots beyond it for as long, up to
    /// `half_open_max`; for these, 65,535 is the limit of both together.
    pub sessions_max: u16,
    /// Of these, how many from one IPv4 address or IPv6 /64; 32. Loopback and trusted exits are
    /// exempt.
    pub sessions_per_source_max: u16,
    /// Attempts that wait for their first packet; 1,024, each up to 640 bytes and the token's
    /// user data.
    pub half_open_max: u16,
    /// Events that wait for the application; 65,536. Over it, the endpoint takes no datagram.
    pub events_max: usize,
    /// Tokens remembered until they expire; 65,536, some 120 bytes each. A full cache refuses new
    /// tokens.
    pub token_cache_max: usize,
    /// When a HELLO must bring a cookie although its token is good.
    pub retry: RetryPolicy,
    /// What happens to a player's session when the same player comes with a newer token.
    pub duplicate: DuplicatePolicy,
    /// Attempts a second with a valid cookie for which elliptic-curve work is done; 1,000, which
    /// is 12.5 % of a core at 125 microseconds each.
    pub accept_rate: u32,
    /// The same for attempts without a cookie; 500.
    pub accept_rate_unvalidated: u32,
    /// Versions of the protocol to speak; version 1. A client begins with the highest, and a server
    /// refuses one that asks for less than both speak.
    pub versions: SpokenVersions,
    /// The suite that a server takes where it is offered; AES-128-GCM, the fastest where AES is in
    /// hardware.
    pub suite: Suite,
    /// When keys are changed, and how much one may be used; after 2^20 packets or 15 minutes.
    pub key_limits: KeyLimits,
    /// Length of our connection ids. 4 bytes; 0 serves an endpoint that only dials, which saves 4
    /// bytes in each packet to it, and 8 is harder to guess and needed for resets.
    pub cid_len: CidLen,
    /// What all realtime messages of a session may take: unreliable ones, and reliable ones of
    /// priority 0 and 1. 256 KiB/s, which is 32 messages of 100 bytes 60 times a second and a third
    /// more. What is over it waits, and what is unreliable is dropped when it is too old. A path that
    /// loses a fifth of what is sent halves it for a while ([`Event::RateChanged`](crate::Event)).
    pub realtime_rate: NonZeroU32,
    /// Bytes of realtime messages that may leave at once; 16 KiB, two ticks of a game of 30 Hz. At
    /// least 1,452.
    pub realtime_burst: u32,
    /// Bytes a second that a session sends at most, of all sorts; none, since what is bulk finds the
    /// path's rate by itself.
    pub send_rate_max: Option<NonZeroU32>,
    /// Bytes a second that all sessions together send at most, HELLOs and replies not counted; none.
    pub endpoint_send_rate_max: Option<NonZeroU32>,
    /// What is taken of one session's packets; beyond it they are dropped before they are opened.
    pub inbound: InboundLimits,
    /// For how long who breaks the protocol is kept out: a player by the id in his token, in open mode
    /// the IPv4 address or IPv6 /64 that he has answered from. `None`, as by default, keeps out nobody.
    /// At most 65,536 of each.
    pub block_breaches: Option<Duration>,
    /// Addresses of exits that tell players' real addresses; limits do not hold for them.
    pub trusted_exits: Vec<core::net::IpAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mtu: Mtu::MIN,
            mtu_check: None,
            mtu_search: MtuSearch::Off,
            channels: ChannelTable::default(),
            messages: Catalogue::default(),
            idle_timeout: IdleTimeout(Duration::from_secs(10)),
            keepalive: Keepalive(Duration::from_secs(1)),
            receive_window: 1_048_576,
            linger: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(10),
            sessions_max: 4_096,
            sessions_per_source_max: 32,
            half_open_max: 1_024,
            events_max: 65_536,
            token_cache_max: 65_536,
            retry: RetryPolicy::WhenNeeded,
            duplicate: DuplicatePolicy::Replace,
            accept_rate: 1_000,
            accept_rate_unvalidated: 500,
            versions: SpokenVersions::One,
            suite: Suite::Aes128Gcm,
            key_limits: KeyLimits::default(),
            cid_len: CidLen::Four,
            realtime_rate: REALTIME_RATE,
            realtime_burst: 16 << 10,
            send_rate_max: None,
            endpoint_send_rate_max: None,
            inbound: InboundLimits::default(),
            block_breaches: None,
            trusted_exits: Vec::new(),
        }
    }
}

impl Config {
    /// Returns what suits an endpoint with many sessions: [`InboundLimits::for_server`], and a receive
    /// window of 88 KiB. With that a hostile peer, which fills all that it may and acknowledges nothing,
    /// makes some 240 KiB of the process resident, and 4,096 of them less than 1 GiB. It lets 1 MiB a second through, which
    /// is what a server takes of one session, up to a round trip of 86 ms. A client has one session, and its
    /// 1 MiB lets 10 MB/s through at a round trip of 100 ms.
    #[must_use]
    pub fn for_server() -> Self {
        Self {
            receive_window: 90_112,
            inbound: InboundLimits::for_server(),
            ..Self::default()
        }
    }

    /// Returns the receive window that the channels need at least.
    pub(crate) fn receive_window(&self) -> usize {
        let configured = usize::try_from(self.receive_window).unwrap_or(usize::MAX);
        self.channels.receive_window(configured)
    }
}

/// 256 KiB a second.
const REALTIME_RATE: NonZeroU32 = NonZeroU32::new(262_144).unwrap();

/// What is taken of one session's packets, from the address where its peer is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboundLimits {
    /// Packets a second; 8,000, and 600 for a server, of whom 60 are what a game of 60 Hz sends.
    /// Each costs some microsecond to open.
    pub packets: u32,
    /// Packets at once; half a second of them.
    pub packets_burst: u32,
    /// Bytes a second, and half of them at once; 8 MiB, and 1 MiB for a server.
    pub bytes: u32,
    /// Frames a second in these packets, messages and all others but padding, and half of them at once, one
    /// full packet at least; 64,000, and 6,000 for a server: three times what
    /// [`Config::realtime_rate`] is made for. Each costs up to a tenth of a microsecond here, and a message as much
    /// more in the application. A packet holds 30 messages and 16 other frames at most.
    pub frames: u32,
    /// What happens to who does not heed that for 10 s.
    pub policy: FloodPolicy,
}

/// What happens to a session whose peer has sent more than twice [`InboundLimits`] for 10 s on end.
///
/// It counts only where all that was opened in that time was the peer's: who forges its address
/// cannot end its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloodPolicy {
    /// What is over the limit goes on being dropped.
    Drop,
    /// The session is closed with [`CloseCode::Flood`](crate::CloseCode::Flood).
    Close,
}

impl InboundLimits {
    /// Returns what suits an endpoint with many sessions: 600 packets, 6,000 frames and 1 MiB a second.
    #[must_use]
    pub const fn for_server() -> Self {
        Self {
            packets: 600,
            packets_burst: 300,
            bytes: 1 << 20,
            frames: 6_000,
            policy: FloodPolicy::Drop,
        }
    }
}

impl Default for InboundLimits {
    /// What suits an endpoint with a session that it has asked for.
    fn default() -> Self {
        Self {
            packets: 8_000,
            packets_burst: 4_000,
            bytes: 8 << 20,
            frames: 64_000,
            policy: FloodPolicy::Drop,
        }
    }
}

/// Largest datagram to send, bytes of UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtu(u16);

impl Mtu {
    /// A HELLO fills it, and every path must carry it; RFC 9000, section 14.
    pub const MIN: Self = Self(1_200);
    /// What links of the mesh carry.
    pub const MESH: Self = Self(1_280);
    /// Ethernet less 100 for the headers of a tunnel, 40 (IPv6) and 8 (UDP).
    pub const TUNNEL: Self = Self(1_352);
    /// Ethernet less 40 (IPv6) and 8 (UDP).
    pub const MAX: Self = Self(1_452);

    /// Accepts `bytes` where it lies in range.
    pub const fn new(bytes: u16) -> Option<Self> {
        if bytes >= Self::MIN.0 && bytes <= Self::MAX.0 {
            Some(Self(bytes))
        } else {
            None
        }
    }

    /// Returns the bytes.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Whether sessions look for the largest datagram that their path carries; RFC 8899.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuSearch {
    /// They keep to what is configured.
    Off,
    /// They do.
    On,
}

/// Silence after which a session is given up: 2 to 120 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdleTimeout(Duration);

impl IdleTimeout {
    /// Accepts `span` where it lies in range.
    pub const fn new(span: Duration) -> Option<Self> {
        if span.as_millis() >= 2_000 && span.as_millis() <= 120_000 {
            Some(Self(span))
        } else {
            None
        }
    }

    /// Returns the span.
    pub const fn get(self) -> Duration {
        self.0
    }
}

/// Longest silence of one side: 0.2 to 20 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keepalive(Duration);

impl Keepalive {
    /// Accepts `span` where it lies in range.
    pub const fn new(span: Duration) -> Option<Self> {
        if span.as_millis() >= 200 && span.as_millis() <= 20_000 {
            Some(Self(span))
        } else {
            None
        }
    }

    /// Returns the span.
    pub const fn get(self) -> Duration {
        self.0
    }
}

/// When a HELLO must bring a cookie although its token is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPolicy {
    /// Where half-open slots or the budget run low; costs nobody a round trip in quiet times.
    WhenNeeded,
    /// Always.
    Always,
}

/// What happens to a player's session when the same player comes with a newer token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicatePolicy {
    /// The new session replaces it, once its first packet opens.
    Replace,
    /// The new attempt is refused.
    Reject,
}

/// Separates games and builds: endpoints with different ones do not hear each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppId(pub u64);

/// When keys are changed, and how much one may be used at the very most.
///
/// The defaults are what a session wants; smaller ones are for tests, which cannot wait for a
/// million packets. What is out of range is cut to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLimits {
    phase_packets: u64,
    phase_span: Duration,
    seals_max: u64,
    failed_opens_max: u64,
}

impl KeyLimits {
    /// Packets that did not open, over a session's life, at which it ends: RFC 9001, section 6.6,
    /// allows 2^52 for AES-GCM, and for ChaCha20-Poly1305 no more than this.
    pub const FAILED_OPENS_MAX: u64 = 1 << 36;

    /// Changes keys after so many packets of a phase; 1 to 2^23, 2^20 unless told.
    #[must_use]
    pub const fn with_phase_packets(mut self, packets: u64) -> Self {
        self.phase_packets = within(packets, SEALS_MAX);
        self
    }

    /// Changes keys after so long; 15 minutes unless told.
    ///
    /// However short, keys are changed only when a packet of the present phase was acknowledged
    /// and three probe timeouts have passed.
    #[must_use]
    pub const fn with_phase_span(mut self, span: Duration) -> Self {
        self.phase_span = span;
        self
    }

    /// Ends a session, rather than seal more packets under one key; 1 to 2^23, which is also what
    /// holds unless told. The last 64 are kept for CLOSE: with 64 or fewer, nothing else is sent.
    #[must_use]
    pub const fn with_seals_max(mut self, packets: u64) -> Self {
        self.seals_max = within(packets, SEALS_MAX);
        self
    }

    /// Ends a session when so many packets for it did not open; 1 to 2^36, which is also what holds
    /// unless told.
    #[must_use]
    pub const fn with_failed_opens_max(mut self, packets: u64) -> Self {
        self.failed_opens_max = within(packets, Self::FAILED_OPENS_MAX);
        self
    }

    /// Returns after how many packets of a phase the next one begins.
    #[must_use]
    pub const fn phase_packets(&self) -> u64 {
        self.phase_packets
    }

    /// Returns after how long a phase ends.
    #[must_use]
    pub const fn phase_span(&self) -> Duration {
        self.phase_span
    }

    /// Returns how many packets a key seals at most.
    #[must_use]
    pub const fn seals_max(&self) -> u64 {
        self.seals_max
    }

    /// Returns how many packets may fail to open.
    #[must_use]
    pub const fn failed_opens_max(&self) -> u64 {
        self.failed_opens_max
    }
}

impl Default for KeyLimits {
    fn default() -> Self {
        Self {
            phase_packets: 1 << 20,
            phase_span: Duration::from_secs(15 * 60),
            seals_max: SEALS_MAX,
            failed_opens_max: Self::FAILED_OPENS_MAX,
        }
    }
}

/// `value`, cut to 1 to `most`.
const fn within(value: u64, most: u64) -> u64 {
    if value == 0 {
        1
    } else if value > most {
        most
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_held_by_type() {
        assert_eq!(Mtu::new(1_199), None);
        assert_eq!(Mtu::new(1_453), None);
        assert_eq!(Mtu::new(1_280), Some(Mtu::MESH));
        assert!(IdleTimeout::new(Duration::from_millis(1_999)).is_none());
        assert!(IdleTimeout::new(Duration::from_secs(121)).is_none());
        assert!(Keepalive::new(Duration::from_millis(199)).is_none());
        assert!(Keepalive::new(Duration::from_secs(21)).is_none());
    }

    /// What that comes to in memory is measured by the test `resident`.
    #[test]
    fn a_server_grants_each_session_a_window_for_the_longest_message_and_no_more() {
        let config = Config::for_server();
        assert_eq!(config.receive_window(), 88 << 10);
        assert!(config.channels.receive_window(0) <= 88 << 10);
        assert_eq!(Config::default().receive_window(), 1 << 20);
    }

    #[test]
    fn ranges_are_held() {
        let limits = KeyLimits::default();
        assert_eq!(
            (limits.phase_packets(), limits.seals_max()),
            (1 << 20, 1 << 23)
        );
        assert_eq!(limits.phase_span(), Duration::from_secs(900));
        assert_eq!(limits.failed_opens_max(), 1 << 36);
        for (asked, held) in [(0, 1), (1, 1), (64, 64)] {
            let limits = limits
                .with_phase_packets(asked)
                .with_seals_max(asked)
                .with_failed_opens_max(asked);
            assert_eq!(limits.phase_packets(), held);
            assert_eq!(limits.seals_max(), held);
            assert_eq!(limits.failed_opens_max(), held);
        }
        let limits = limits
            .with_phase_packets(u64::MAX)
            .with_seals_max(u64::MAX)
            .with_failed_opens_max(u64::MAX);
        assert_eq!(
            (limits.phase_packets(), limits.seals_max()),
            (1 << 23, 1 << 23)
        );
        assert_eq!(limits.failed_opens_max(), 1 << 36);
    }
}
