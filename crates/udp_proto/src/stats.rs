//! Counters of an endpoint and of a session: plain numbers, read without a lock.

/// What one endpoint has counted since it was made.
///
/// Every datagram that comes in adds to exactly one of the counters up to `dropped_off_path`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EndpointStats {
    /// Packets that opened and whose frames were taken.
    pub packets: u64,
    /// HELLOs that were answered by a new ACCEPT.
    pub accepted: u64,
    /// HELLOs of a known attempt that got the same ACCEPT again.
    pub accept_repeated: u64,
    /// HELLOs answered by RETRY.
    pub retried: u64,
    /// HELLOs answered by REFUSE.
    pub refused: u64,
    /// HELLOs answered by VERSION.
    pub version_offered: u64,
    /// Replies to our own HELLOs that were taken.
    pub replies: u64,
    /// From a blocked address.
    pub dropped_blocked: u64,
    /// First byte is none of ours.
    pub dropped_first_byte: u64,
    /// Longer than 1,500 bytes, or empty.
    pub dropped_length: u64,
    /// A handshake datagram with a field out of range.
    pub dropped_malformed: u64,
    /// HELLO for another application. This and the next five may have been answered by a REFUSE without
    /// proof.
    pub dropped_app: u64,
    /// HELLO in a mode that is not served, or any HELLO where nothing listens.
    pub dropped_mode: u64,
    /// HELLO whose token does not open, or names another instance; or any while we have no wall clock.
    pub dropped_token: u64,
    /// HELLO whose token has expired; where it is new, the clock of who made it is behind ours.
    pub dropped_token_expired: u64,
    /// HELLO whose token is of the future, or would live for more than 300 s: the clock of who made it is
    /// ahead of ours, or it lets tokens live for longer than is allowed.
    pub dropped_token_clock: u64,
    /// HELLO whose token opened a session before, or has four attempts waiting.
    pub dropped_token_used: u64,
    /// HELLO whose PSK mac is wrong.
    pub dropped_psk: u64,
    /// HELLO over the answer budget of its prefix.
    pub dropped_answer_budget: u64,
    /// HELLO for which no half-open slot was free.
    pub dropped_half_open: u64,
    /// HELLO over the elliptic-curve budget.
    pub dropped_accept_budget: u64,
    /// HELLO whose ephemeral key is no point of the curve.
    pub dropped_bad_point: u64,
    /// Reply to no HELLO of ours, or one that failed a check.
    pub dropped_reply: u64,
    /// Packet whose connection id or address names no session.
    pub dropped_unknown_session: u64,
    /// Packet whose header could not be read.
    pub dropped_header: u64,
    /// Packet that was accepted before, or is too old to tell.
    pub dropped_replayed: u64,
    /// Packet that did not open.
    pub dropped_forged: u64,
    /// Packet over the inbound limits of its session; it was not opened.
    pub dropped_over_limit: u64,
    /// First packet of an attempt without CONFIRM (in peer mode: without a valid IDENTITY).
    pub dropped_unconfirmed: u64,
    /// Datagram while the application left 65,536 events unread, or a fault of the random source.
    pub dropped_overload: u64,
    /// Packet for a session that is over.
    pub dropped_late: u64,
    /// Packet for a session from another address than its own, over what is opened of these.
    pub dropped_off_path: u64,
    /// Bytes received, dropped ones included.
    pub bytes_received: u64,
    /// Datagrams given to the driver.
    pub datagrams_sent: u64,
    /// Bytes given to the driver.
    pub bytes_sent: u64,
    /// Resets that were queued for packets of unknown sessions; `dropped_unknown_session` counts
    /// these packets.
    pub resets_sent: u64,
    /// Sessions of ours that their server has reset. The datagram counts as dropped.
    pub resets_taken: u64,
    /// How often the driver came more than 250 ms late; idle deadlines moved by that.
    pub stalls: u64,
    /// Half-open attempts that made place for others: more than half of
    /// [`Config::half_open_max`](crate::Config::half_open_max) were taken, and theirs was the oldest, a second at
    /// least, of the network with most of them.
    pub half_open_evicted: u64,
    /// Peers whose attempt was refused as their identity did not verify or is not allowed. The datagram counts as a
    /// packet.
    pub refused_identity: u64,
    /// Sessions that were opened.
    pub sessions_opened: u64,
    /// Players and addresses that are or were kept out because they broke the protocol.
    pub blocked_for_breaches: u64,
}

impl EndpointStats {
    /// Returns how many datagrams were received: the sum of all their fates.
    pub const fn datagrams_received(&self) -> u64 {
        self.taken().saturating_add(self.dropped())
    }

    /// Returns how many datagrams were taken.
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

    /// Returns how many datagrams were dropped, for whatever reason.
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

/// What one session has counted, and how its path looks now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SessionStats {
    /// Packets sent.
    pub packets_sent: u64,
    /// Bytes sent, headers and tags included.
    pub bytes_sent: u64,
    /// Packets that opened.
    pub packets_received: u64,
    /// Bytes of these, headers and tags included.
    pub bytes_received: u64,
    /// Packets that were dropped, and not opened, since the peer sends more than
    /// [`Config::inbound`](crate::Config::inbound) allows.
    pub packets_over_limit: u64,
    /// Packets of ours that were acknowledged.
    pub packets_acknowledged: u64,
    /// Packets of ours that count as lost.
    pub packets_lost: u64,
    /// Of these, how many arrived after all.
    pub packets_lost_spuriously: u64,
    /// Messages given to `send` and `send_tracked`.
    pub messages_sent: u64,
    /// Messages taken by `receive`.
    pub messages_received: u64,
    /// Unreliable messages given to `send` that made place for newer ones in a full queue.
    pub messages_displaced: u64,
    /// Unreliable messages given to `send` that waited longer than their channel's ttl.
    pub messages_expired: u64,
    /// Frames of unreliable messages that count as lost: one for each lost message, and for a split
    /// one as many as were lost of it.
    pub message_frames_lost: u64,
    /// Frames of messages that came again, and were dropped.
    pub message_frames_repeated: u64,
    /// Frames of sequenced messages that came behind a newer message, and were dropped.
    pub message_frames_overtaken: u64,
    /// Unreliable messages that came and were dropped because the application did not read them:
    /// more than 64 KiB of them waited.
    pub messages_dropped_unread: u64,
    /// Split unreliable messages that were dropped because not all of their fragments came in time,
    /// because they were in the way of newer ones, or because a newer one of their sequenced channel
    /// was delivered.
    pub messages_dropped_incomplete: u64,
    /// How often the peer's address has changed.
    pub address_changes: u64,
    /// Smoothed round trip; zero before the first sample.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "rtt_us", serialize_with = "as_micros")
    )]
    pub rtt: core::time::Duration,
    /// Smallest round trip seen; zero before the first sample.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "rtt_min_us", serialize_with = "as_micros")
    )]
    pub rtt_min: core::time::Duration,
    /// Mean deviation of the round trip; zero before the first sample.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "rtt_variation_us", serialize_with = "as_micros")
    )]
    pub rtt_variation: core::time::Duration,
    /// How often our key was changed.
    pub key_phase_sent: u64,
    /// How often the peer has changed its key, as far as we heard.
    pub key_phase_received: u64,
    /// Packets for the session that did not open: forged or damaged, or of a key that is gone.
    pub packets_unopened: u64,
    /// Bytes that may be in flight before bulk messages wait.
    pub congestion_window: u64,
    /// Bytes in flight.
    pub bytes_in_flight: u64,
    /// Bytes of realtime messages that may be sent in a second:
    /// [`Config::realtime_rate`](crate::Config::realtime_rate), or less on a path that loses much.
    pub realtime_rate: u32,
    /// Largest datagram that is sent, bytes.
    pub mtu: u16,
}

/// Writes a span as whole microseconds.
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
