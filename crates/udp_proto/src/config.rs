//! Configuration. Every field's type enforces its range.

use core::num::NonZeroU32;
use core::time::Duration;

use crypto::{SEALS_MAX, Suite};

use crate::channel::ChannelTable;
use crate::codec::Catalogue;
use crate::slots::CidLen;

/// The configuration of an endpoint.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest datagram to send, in bytes. Default 1,200, which every path must carry.
    pub mtu: Mtu,
    /// Size that every session checks its path for when it opens; none. The result is
    /// [`Event::MtuChecked`](crate::Event::MtuChecked).
    pub mtu_check: Option<Mtu>,
    /// Whether sessions search for a larger MTU: 1,280, 1,352 and 1,452 bytes, every 10 minutes,
    /// with a fallback to 1,200 for a minute if long packets no longer arrive. Off. The driver must
    /// disable IP fragmentation, as `servicer` does.
    pub mtu_search: MtuSearch,
    /// Channels of every session; both ends must agree. Unreliable channel 0 and reliable channel
    /// 1.
    pub channels: ChannelTable,
    /// Types of the application's messages; none. Both ends must agree, or the session is closed
    /// with [`CloseCode::ChannelConfig`](crate::CloseCode::ChannelConfig).
    pub messages: Catalogue,
    /// Silence after which a session times out. Default 10 s. The smaller of both ends' values
    /// applies. A stall of the driver moves the deadline, by at most 10 s.
    pub idle_timeout: IdleTimeout,
    /// Longest time without a packet of ours. Default 1 s, minus a jitter of up to a fifth. At most
    /// a third of the idle timeout, so that two keepalives in a row may be lost.
    pub keepalive: Keepalive,
    /// Reliable payload that may be received and unread, in bytes. Default 1 MiB, and 88 KiB [for a
    /// server](Self::for_server). Each session may hold as much.
    pub receive_window: u32,
    /// How long closing waits for acknowledgements of reliable messages. Default 500 ms.
    pub linger: Duration,
    /// Timeout of connecting, over all addresses. Default 10 s.
    pub connect_timeout: Duration,
    /// Most sessions, attempts included. Default 4,096, at most 65,535. An idle one holds about 3
    /// KiB. Players who replace their own sessions temporarily use up to `half_open_max` more.
    pub sessions_max: u16,
    /// Most sessions of one IPv4 address or IPv6 /64. Default 32. Loopback and trusted exits are
    /// exempt.
    pub sessions_per_source_max: u16,
    /// Most attempts that wait for their first packet. Default 1,024, each up to 640 bytes and the
    /// token's user data.
    pub half_open_max: u16,
    /// Most events that wait for the application. Default 65,536. At the limit, datagrams are
    /// dropped.
    pub events_max: usize,
    /// Most tokens remembered until they expire. Default 65,536, about 120 bytes each. A full cache
    /// refuses new tokens.
    pub token_cache_max: usize,
    /// When a HELLO with a valid token must also carry a cookie.
    pub retry: RetryPolicy,
    /// What happens to a player's session when the player connects with a newer token.
    pub duplicate: DuplicatePolicy,
    /// Most attempts per second with a valid cookie that get elliptic-curve work. Default 1,000,
    /// which takes 12.5 % of a core at 125 microseconds each.
    pub accept_rate: u32,
    /// The same for attempts without a cookie. Default 500.
    pub accept_rate_unvalidated: u32,
    /// Protocol versions to use; version 1. A client starts with the highest, and a server refuses
    /// one lower than both support.
    pub versions: SpokenVersions,
    /// The suite that a server prefers; AES-128-GCM, the fastest with AES in hardware.
    pub suite: Suite,
    /// When keys are updated, and how often one may be used; after 2^20 packets or 15 minutes.
    pub key_limits: KeyLimits,
    /// Length of our connection ids. Default 4 bytes. 0 suits an endpoint that only dials, and
    /// saves 4 bytes in each packet to it. 8 is harder to guess, and required for resets.
    pub cid_len: CidLen,
    /// Rate limit of a session's realtime messages (unreliable, and reliable of priority 0 and 1)
    /// in bytes per second; 256 KiB/s, 32 messages of 100 bytes at 60 Hz plus a third. A path that
    /// loses a fifth of its packets halves it for a while ([`Event::RateChanged`](crate::Event)).
    pub realtime_rate: NonZeroU32,
    /// Burst of realtime messages in bytes. Default 16 KiB, two ticks of a 30 Hz game. At least
    /// 1,452.
    pub realtime_burst: u32,
    /// Rate limit of all of a session's packets in bytes per second; none, since congestion control
    /// limits bulk messages.
    pub send_rate_max: Option<NonZeroU32>,
    /// Rate limit of all sessions together in bytes per second, without HELLOs and replies; none.
    pub endpoint_send_rate_max: Option<NonZeroU32>,
    /// Limits on the packets of one session; excess packets are dropped before decryption.
    pub inbound: InboundLimits,
    /// For how long to ban a peer that violates the protocol: a player by the id in the token, in
    /// open mode the validated IPv4 address or IPv6 /64; by default not. At most 65,536 of each.
    pub block_breaches: Option<Duration>,
    /// Addresses of exits that report players' addresses; per-source limits do not apply to them.
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
    /// Returns settings for an endpoint with many sessions: [`InboundLimits::for_server`], and a
    /// receive window of 88 KiB. A hostile peer that fills all its limits then takes about 240 KiB
    /// of memory. The window allows 1 MiB/s, a server's inbound limit, up to an RTT of 86 ms.
    #[must_use]
    pub fn for_server() -> Self {
        Self {
            receive_window: 90_112,
            inbound: InboundLimits::for_server(),
            ..Self::default()
        }
    }

    pub(crate) fn receive_window(&self) -> usize {
        let configured = usize::try_from(self.receive_window).unwrap_or(usize::MAX);
        self.channels.receive_window(configured)
    }
}

/// 256 KiB a second.
const REALTIME_RATE: NonZeroU32 = NonZeroU32::new(262_144).unwrap();

/// Limits on the packets of one session.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboundLimits {
    /// Packets per second. Default 8,000, and 600 for a server. A 60 Hz game sends 60. Each costs
    /// about 1 µs to decrypt.
    pub packets: u32,
    /// Burst of packets; half a second of them.
    pub packets_burst: u32,
    /// Bytes per second, with a burst of half a second. Default 8 MiB, and 1 MiB for a server.
    pub bytes: u32,
    /// Frames per second but padding, with a burst of half a second but at least one full packet.
    /// Default 64,000, and 6,000 for a server: three times what [`Config::realtime_rate`] is
    /// designed for. Each costs up to 0.1 µs here, and a message as much again in the application.
    pub frames: u32,
    /// What happens to a peer that exceeds the limits for 10 s.
    pub policy: FloodPolicy,
}

/// What happens to a session if its peer has sent more than twice [`InboundLimits`] for 10
/// consecutive seconds. Seconds with forged packets do not count: forging an address cannot end a
/// session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloodPolicy {
    /// Excess packets are dropped.
    Drop,
    /// The session is closed with [`CloseCode::Flood`](crate::CloseCode::Flood).
    Close,
}

impl InboundLimits {
    /// Returns limits for an endpoint with many sessions: 600 packets, 6,000 frames and 1 MiB per
    /// second.
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
    /// Limits for a session that this endpoint dialled.
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

/// Largest datagram to send, in bytes of UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtu(u16);

impl Mtu {
    /// The size of a HELLO, which every path must carry; RFC 9000, section 14.
    pub const MIN: Self = Self(1_200);
    /// What mesh links carry.
    pub const MESH: Self = Self(1_280);
    /// Ethernet less 100 for the headers of a tunnel, 40 (IPv6) and 8 (UDP).
    pub const TUNNEL: Self = Self(1_352);
    /// Ethernet less 40 (IPv6) and 8 (UDP).
    pub const MAX: Self = Self(1_452);

    /// Returns `None` if `bytes` is out of range.
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

/// Whether sessions search for the path's MTU; RFC 8899.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuSearch {
    /// No: the configured size is used.
    Off,
    /// Yes.
    On,
}

/// Idle timeout of a session: 2 to 120 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdleTimeout(Duration);

impl IdleTimeout {
    /// Returns `None` if `span` is out of range.
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

/// Keepalive interval: 0.2 to 20 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keepalive(Duration);

impl Keepalive {
    /// Returns `None` if `span` is out of range.
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

/// Timeouts of one session, for [`Endpoint::connect_with`](crate::Endpoint::connect_with) and
/// [`Endpoint::set_timeouts`](crate::Endpoint::set_timeouts).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// Timeout of connecting, over all addresses.
    pub connect: Duration,
    /// Idle timeout; the smaller of both ends' applies.
    pub idle: IdleTimeout,
    /// Keepalive interval; at most a third of the idle timeout in effect, and in an open session at
    /// most its initial value.
    pub keepalive: Keepalive,
}

impl Timeouts {
    /// Returns the timeouts that `config` sets for all sessions.
    #[must_use]
    pub const fn of(config: &Config) -> Self {
        Self {
            connect: config.connect_timeout,
            idle: config.idle_timeout,
            keepalive: config.keepalive,
        }
    }
}

/// The first version, and the only one with a layout of its own.
pub const VERSION_1: u32 = 0x5457_0001;
/// A version with the layout of version 1, on request only, to exercise version negotiation.
pub const VERSION_TRIAL: u32 = 0x5457_0A0A;

/// Versions that an endpoint supports; always includes version 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpokenVersions {
    /// Version 1.
    #[default]
    One,
    /// Version 1 and the trial version, which ranks higher.
    WithTrial,
}

impl SpokenVersions {
    /// Returns the versions, lowest first.
    #[must_use]
    pub const fn as_slice(self) -> &'static [u32] {
        match self {
            Self::One => &[VERSION_1],
            Self::WithTrial => &[VERSION_1, VERSION_TRIAL],
        }
    }

    /// Returns the highest version.
    #[must_use]
    pub const fn best(self) -> u32 {
        match self {
            Self::One => VERSION_1,
            Self::WithTrial => VERSION_TRIAL,
        }
    }

    /// Returns whether `version` is supported.
    #[must_use]
    pub fn contains(self, version: u32) -> bool {
        self.as_slice().contains(&version)
    }
}

/// When a HELLO with a valid token must also carry a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPolicy {
    /// When half-open slots or the budget run low; normally this costs no round trip.
    WhenNeeded,
    /// Always.
    Always,
}

/// What happens to a player's session when the player connects with a newer token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicatePolicy {
    /// The new session replaces it once its first packet authenticates.
    Replace,
    /// The new attempt is refused.
    Reject,
}

/// Identifies a game and build; endpoints with different ids ignore each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppId(pub u64);

/// When keys are updated, and how often one may be used. Values out of range are clamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLimits {
    phase_packets: u64,
    phase_span: Duration,
    seals_max: u64,
    failed_opens_max: u64,
}

impl KeyLimits {
    /// Packets that failed to authenticate, over a session's life, after which it ends. RFC 9001,
    /// section 6.6, allows 2^52 for AES-GCM, and this for ChaCha20-Poly1305.
    pub const FAILED_OPENS_MAX: u64 = 1 << 36;

    /// Updates keys after this many packets of a phase; 1 to 2^23, 2^20 by default.
    #[must_use]
    pub const fn with_phase_packets(mut self, packets: u64) -> Self {
        self.phase_packets = within(packets, SEALS_MAX);
        self
    }

    /// Updates keys after this time in one phase. Default 15 minutes. An update of our own also
    /// waits for an acknowledged packet of the phase, and three probe timeouts since its start. A
    /// response to the peer's update does not wait.
    #[must_use]
    pub const fn with_phase_span(mut self, span: Duration) -> Self {
        self.phase_span = span;
        self
    }

    /// Closes a session before a key seals more packets than this; 1 to 2^23, the default. The last
    /// 64 are reserved for CLOSE: with 64 or fewer, nothing else is sent.
    #[must_use]
    pub const fn with_seals_max(mut self, packets: u64) -> Self {
        self.seals_max = within(packets, SEALS_MAX);
        self
    }

    /// Closes a session after this many packets failed to authenticate; 1 to 2^36, the default.
    #[must_use]
    pub const fn with_failed_opens_max(mut self, packets: u64) -> Self {
        self.failed_opens_max = within(packets, Self::FAILED_OPENS_MAX);
        self
    }

    /// Returns the packets of a phase after which keys are updated.
    #[must_use]
    pub const fn phase_packets(&self) -> u64 {
        self.phase_packets
    }

    /// Returns the duration of a phase.
    #[must_use]
    pub const fn phase_span(&self) -> Duration {
        self.phase_span
    }

    /// Returns the most packets that a key seals.
    #[must_use]
    pub const fn seals_max(&self) -> u64 {
        self.seals_max
    }

    /// Returns the most packets that may fail to authenticate.
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

/// `value`, clamped to 1 to `most`.
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
    fn the_types_hold_ranges() {
        assert_eq!(Mtu::new(1_199), None);
        assert_eq!(Mtu::new(1_453), None);
        assert_eq!(Mtu::new(1_280), Some(Mtu::MESH));
        assert!(IdleTimeout::new(Duration::from_millis(1_999)).is_none());
        assert!(IdleTimeout::new(Duration::from_secs(121)).is_none());
        assert!(Keepalive::new(Duration::from_millis(199)).is_none());
        assert!(Keepalive::new(Duration::from_secs(21)).is_none());
    }

    /// The test `resident` measures the resulting memory.
    #[test]
    fn a_server_grants_a_window_for_the_longest_message_and_no_more() {
        let config = Config::for_server();
        assert_eq!(config.receive_window(), 88 << 10);
        assert!(config.channels.receive_window(0) <= 88 << 10);
        assert_eq!(Config::default().receive_window(), 1 << 20);
    }

    #[test]
    fn ranges_are_checked() {
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
