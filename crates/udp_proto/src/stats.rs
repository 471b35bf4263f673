//! Counters of endpoints and sessions.

/// Counters of one endpoint since its creation.
///
/// Every received datagram increments exactly one of the counters up to `dropped_off_path`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EndpointStats {
    /// Packets decrypted and processed.
    pub packets: u64,
    /// HELLOs answered by a new ACCEPT.
    pub accepted: u64,
    /// HELLOs of a known attempt, answered by the same ACCEPT.
    pub accept_repeated: u64,
    /// HELLOs answered by RETRY.
    pub retried: u64,
    /// HELLOs answered by REFUSE.
    pub refused: u64,
    /// HELLOs answered by VERSION.
    pub version_offered: u64,
    /// Accepted replies to our HELLOs.
    pub replies: u64,
    /// From a blocked address.
    pub dropped_blocked: u64,
    /// Unknown first byte.
    pub dropped_first_byte: u64,
    /// Longer than 1,500 bytes, or empty.
    pub dropped_length: u64,
    /// A handshake datagram with a field out of range.
    pub dropped_malformed: u64,
    /// HELLO for another application. This and the next five may have been answered by a REFUSE
    /// without proof.
    pub dropped_app: u64,
    /// HELLO in a mode that is not served, or any HELLO while not listening.
    pub dropped_mode: u64,
    /// HELLO with a token that is malformed, has an unknown key, fails to decrypt or is for another
    /// instance. While the wall clock is unset, every HELLO with a token.
    pub dropped_token: u64,
    /// HELLO with an expired token. If the token is new, the issuer's clock is behind ours.
    pub dropped_token_expired: u64,
    /// HELLO whose token is from the future or lives for more than 300 s: the issuer's clock is
    /// ahead.
    pub dropped_token_clock: u64,
    /// HELLO with a token that was used, or has four pending attempts.
    pub dropped_token_used: u64,
    /// HELLO with a wrong PSK mac.
    pub dropped_psk: u64,
    /// HELLO over the answer budget of its prefix.
    pub dropped_answer_budget: u64,
    /// HELLO for which no half-open slot was free.
    pub dropped_half_open: u64,
    /// HELLO over the elliptic-curve budget.
    pub dropped_accept_budget: u64,
    /// HELLO with an ephemeral key that is not a point of the curve.
    pub dropped_bad_point: u64,
    /// Reply to none of our HELLOs, or that failed a check.
    pub dropped_reply: u64,
    /// Packet with a connection id or address that matches no session.
    pub dropped_unknown_session: u64,
    /// Packet with a malformed header.
    pub dropped_header: u64,
    /// Packet that is a duplicate, or too old for the replay window.
    pub dropped_replayed: u64,
    /// Packet that failed to authenticate.
    pub dropped_forged: u64,
    /// Packet over the inbound limits of its session, not decrypted.
    pub dropped_over_limit: u64,
    /// First packet of an attempt without CONFIRM (in peer mode: without a valid IDENTITY).
    pub dropped_unconfirmed: u64,
    /// Datagram while `events_max` events waited, or without randomness.
    pub dropped_overload: u64,
    /// Packet of an ended session.
    pub dropped_late: u64,
    /// Packet from an address other than its session's, over the limit for these.
    pub dropped_off_path: u64,
    /// Bytes received, dropped ones included.
    pub bytes_received: u64,
    /// Datagrams passed to the driver.
    pub datagrams_sent: u64,
    /// Bytes passed to the driver.
    pub bytes_sent: u64,
    /// Resets queued for packets of unknown sessions, which count as `dropped_unknown_session`.
    pub resets_sent: u64,
    /// Our sessions that the server reset. The datagram counts as dropped.
    pub resets_taken: u64,
    /// How often the driver was more than 250 ms late, which moved idle deadlines.
    pub stalls: u64,
    /// Half-open attempts evicted: the oldest, at least a second old, of the network with most.
    pub half_open_evicted: u64,
    /// Attempts refused because the peer's identity failed to verify or is not allowed. The
    /// datagram counts as a packet.
    pub refused_identity: u64,
    /// Sessions opened.
    pub sessions_opened: u64,
    /// Players and addresses banned for protocol violations, in total.
    pub blocked_for_breaches: u64,
}

impl EndpointStats {
    /// Returns the number of datagrams received: the sum of all outcomes.
    pub const fn datagrams_received(&self) -> u64 {
        self.taken().saturating_add(self.dropped())
    }

    /// Returns the number of datagrams accepted.
    pub const fn taken(&self) -> u64 {
        sum(&[
            self.packets,
            self.accepted,
            self.accept_repeated,
            self.retried,
            self.refused,
            self.version_offered,
            self.replies,
        ])
    }

    /// Returns the number of datagrams dropped for any reason.
    pub const fn dropped(&self) -> u64 {
        sum(&[
            self.dropped_blocked,
            self.dropped_first_byte,
            self.dropped_length,
            self.dropped_malformed,
            self.dropped_app,
            self.dropped_mode,
            self.dropped_token,
            self.dropped_token_expired,
            self.dropped_token_clock,
            self.dropped_token_used,
            self.dropped_psk,
            self.dropped_answer_budget,
            self.dropped_half_open,
            self.dropped_accept_budget,
            self.dropped_bad_point,
            self.dropped_reply,
            self.dropped_unknown_session,
            self.dropped_header,
            self.dropped_replayed,
            self.dropped_forged,
            self.dropped_over_limit,
            self.dropped_unconfirmed,
            self.dropped_overload,
            self.dropped_late,
            self.dropped_off_path,
        ])
    }
}

/// Counters of one session, and the state of its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SessionStats {
    /// Packets sent.
    pub packets_sent: u64,
    /// Bytes sent, with headers and tags.
    pub bytes_sent: u64,
    /// Packets decrypted.
    pub packets_received: u64,
    /// Bytes of these, with headers and tags.
    pub bytes_received: u64,
    /// Packets over [`Config::inbound`](crate::Config::inbound), dropped before decryption.
    pub packets_over_limit: u64,
    /// Our packets that were acknowledged.
    pub packets_acknowledged: u64,
    /// Our packets that were declared lost.
    pub packets_lost: u64,
    /// Those of them that arrived after all.
    pub packets_lost_spuriously: u64,
    /// Messages passed to `send` and `send_tracked`.
    pub messages_sent: u64,
    /// Messages returned by `receive`.
    pub messages_received: u64,
    /// Unreliable messages displaced by newer ones in a full queue.
    pub messages_displaced: u64,
    /// Unreliable messages that exceeded their TTL while queued.
    pub messages_expired: u64,
    /// Lost frames of unreliable messages: one for a whole message, several for a split one.
    pub message_frames_lost: u64,
    /// Duplicate frames dropped.
    pub message_frames_repeated: u64,
    /// Frames of sequenced messages dropped because a newer message was delivered.
    pub message_frames_overtaken: u64,
    /// Unreliable messages dropped because more than 64 KiB of them were unread.
    pub messages_dropped_unread: u64,
    /// Split unreliable messages dropped: overdue, displaced, or older than a delivered sequenced
    /// one.
    pub messages_dropped_incomplete: u64,
    /// Changes of the peer's address.
    pub address_changes: u64,
    /// Smoothed RTT; zero before the first sample.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "rtt_us", serialize_with = "as_micros")
    )]
    pub rtt: core::time::Duration,
    /// Minimum RTT; zero before the first sample.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "rtt_min_us", serialize_with = "as_micros")
    )]
    pub rtt_min: core::time::Duration,
    /// RTT variation; zero before the first sample.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "rtt_variation_us", serialize_with = "as_micros")
    )]
    pub rtt_variation: core::time::Duration,
    /// Our key updates.
    pub key_phase_sent: u64,
    /// The peer's key updates that we know of.
    pub key_phase_received: u64,
    /// Packets that failed to authenticate: forged, damaged, or of a dropped key.
    pub packets_unopened: u64,
    /// Congestion window in bytes, for bulk messages.
    pub congestion_window: u64,
    /// Bytes in flight.
    pub bytes_in_flight: u64,
    /// Realtime rate in bytes per second: [`Config::realtime_rate`](crate::Config::realtime_rate),
    /// or less on a lossy path.
    pub realtime_rate: u32,
    /// Largest datagram to send, in bytes.
    pub mtu: u16,
}

#[cfg(feature = "serde")]
fn as_micros<S: serde::Serializer>(
    span: &core::time::Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

const fn sum(counters: &[u64]) -> u64 {
    let mut total = 0_u64;
    let mut rest = counters;
    while let [first, tail @ ..] = rest {
        total = total.saturating_add(*first);
        rest = tail;
    }
    total
}
