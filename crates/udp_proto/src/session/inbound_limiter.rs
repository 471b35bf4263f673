//! Limits on a peer's packets, applied before decryption.

use core::time::Duration;

use wire::{Instant, TokenBucket};

use crate::config::{FloodPolicy, InboundLimits};
use crate::frame::PACKET_FRAMES_MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct InboundLimiter {
    packets: TokenBucket,
    bytes: TokenBucket,
    frames: TokenBucket,
    /// Packets that fail authentication: an attacker that forges the peer's address must not use up
    /// the peer's limits.
    junk: TokenBucket,
    policy: FloodPolicy,
    /// Limits per second: packets, bytes, frames.
    rates: [u32; 3],
    began: Instant,
    second: Second,
    /// Consecutive seconds over the limits.
    flooded: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct Second {
    /// Excess over the limits: packets, bytes, frames. A packet not decrypted counts as full of
    /// frames if the bucket had no room for a full packet.
    over: [u32; 3],
    /// Some accepted packets were forged or duplicates.
    is_foreign: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InboundVerdict {
    Accept,
    OverLimit,
    /// Drop it, and end the session.
    Flood,
}

/// Seconds over the limits before a session is closed.
const FLOODED_MAX: u8 = 10;
/// The limit of failed decryptions, as a multiple of the packet limit. One costs at most 1 µs.
const JUNK_FACTOR: u32 = 16;
const SECOND: Duration = Duration::from_secs(1);

/// Half a second's frames, but at least one full packet.
const fn frames_burst(rate: u32) -> u32 {
    let half = rate / 2;
    if half < PACKET_FRAMES_MAX {
        PACKET_FRAMES_MAX
    } else {
        half
    }
}

impl InboundLimiter {
    pub(super) const fn new(now: Instant, limits: &InboundLimits) -> Self {
        Self {
            packets: TokenBucket::new(limits.packets, limits.packets_burst, now),
            bytes: TokenBucket::new(limits.bytes, limits.bytes / 2, now),
            frames: TokenBucket::new(limits.frames, frames_burst(limits.frames), now),
            junk: TokenBucket::new(
                limits.packets.saturating_mul(JUNK_FACTOR),
                limits.packets_burst.saturating_mul(JUNK_FACTOR),
                now,
            ),
            policy: limits.policy,
            rates: [limits.packets, limits.bytes, limits.frames],
            began: now,
            second: Second {
                over: [0; 3],
                is_foreign: false,
            },
            flooded: 0,
        }
    }

    /// Decides whether to decrypt a packet of `len` bytes. The buckets are charged afterwards.
    pub(super) fn admit(&mut self, now: Instant, len: usize) -> InboundVerdict {
        self.advance(now);
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        // The most that a packet can hold, so that full packets stay within the rate.
        let has_frames = self.frames.holds(now, PACKET_FRAMES_MAX);
        if has_frames
            && self.bytes.holds(now, len)
            && self.packets.holds(now, 1)
            && self.junk.holds(now, 1)
        {
            return InboundVerdict::Accept;
        }
        let [packets, bytes, frames] = &mut self.second.over;
        *packets = packets.saturating_add(1);
        *bytes = bytes.saturating_add(len);
        if !has_frames {
            *frames = frames.saturating_add(PACKET_FRAMES_MAX);
        }
        match self.policy {
            FloodPolicy::Close if self.flooded >= FLOODED_MAX && !self.second.is_foreign => {
                InboundVerdict::Flood
            }
            FloodPolicy::Close | FloodPolicy::Drop => InboundVerdict::OverLimit,
        }
    }

    /// Charges an accepted packet of `len` bytes that authenticated.
    pub(super) fn on_opened(&mut self, now: Instant, len: usize) {
        self.packets.take_forced(now, 1);
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.bytes.take_forced(now, len);
    }

    pub(super) fn on_frames(&mut self, now: Instant, frames: u32) {
        self.frames.take_forced(now, frames);
    }

    /// Charges an accepted packet that failed authentication.
    pub(super) fn on_forged(&mut self, now: Instant) {
        self.junk.take_forced(now, 1);
        self.on_foreign();
    }

    /// Notes a forged or duplicate packet: the excess of this second is not attributed to the peer.
    pub(super) const fn on_foreign(&mut self) {
        self.second.is_foreign = true;
    }

    fn advance(&mut self, now: Instant) {
        let since = now.saturating_since(self.began);
        if since < SECOND {
            return;
        }
        let Second { over, is_foreign } = core::mem::take(&mut self.second);
        // Twice the limit, since a sender that probes for the path's rate exceeds the limit
        // slightly.
        let is_flood = over
            .into_iter()
            .zip(self.rates)
            .any(|(over, rate)| over > rate);
        if is_flood && !is_foreign && since < SECOND.saturating_mul(2) {
            self.flooded = self.flooded.saturating_add(1);
        } else {
            self.flooded = 0;
        }
        self.began = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(policy: FloodPolicy) -> InboundLimiter {
        let mut limits = InboundLimits::for_server();
        limits.policy = policy;
        InboundLimiter::new(Instant::ZERO, &limits)
    }

    /// Sends `each` packets per millisecond; returns how many were accepted, and when a flood ended
    /// it.
    fn flood(
        limiter: &mut InboundLimiter,
        (each, len): (u32, usize),
        millis: u64,
    ) -> (u32, Option<u64>) {
        let mut open = 0;
        for milli in 0..millis {
            for _ in 0..each {
                let now = Instant::from_millis(milli);
                match limiter.admit(now, len) {
                    InboundVerdict::Accept => {
                        limiter.on_opened(now, len);
                        open += 1;
                    }
                    InboundVerdict::OverLimit => {}
                    InboundVerdict::Flood => return (open, Some(milli)),
                }
            }
        }
        (open, None)
    }

    #[test]
    fn b9_packets_and_bytes_are_accepted_at_their_rates() {
        let mut gate_of_packets = limiter(FloodPolicy::Drop);
        assert_eq!(
            flood(&mut gate_of_packets, (10, 40), 20_000),
            (300 + 12_000 - 1, None)
        );
        let mut gate_of_bytes = limiter(FloodPolicy::Drop);
        let (open, _) = flood(&mut gate_of_bytes, (10, 2_000), 20_000);
        let bytes = u64::from(open) * 2_000;
        let allowed = (1 << 19) + 20 * (1 << 20);
        assert!((allowed - 4_000..=allowed).contains(&bytes), "{bytes}");
    }

    #[test]
    fn b9_ten_seconds_of_flood_close_a_session_if_configured() {
        let (_, ended) = flood(&mut limiter(FloodPolicy::Close), (10, 40), 20_000);
        assert!(
            ended.is_some_and(|ended| (10_000..10_100).contains(&ended)),
            "{ended:?}"
        );
        let (_, ended) = flood(&mut limiter(FloodPolicy::Drop), (10, 40), 20_000);
        assert_eq!(ended, None);
    }

    /// A sender that probes for the rate exceeds the limit and backs off.
    #[test]
    fn b9_one_and_a_half_times_the_limit_is_dropped_without_a_flood() {
        let mut limiter = limiter(FloodPolicy::Close);
        let (open, ended) = flood(&mut limiter, (1, 40), 60_000);
        assert_eq!(ended, None);
        assert!(open < 300 + 600 * 60, "{open}");
        let mut second = 0;
        while second < 60_000 {
            // 900 per second against a limit of 600.
            second += 10;
            for _ in 0..9 {
                let now = Instant::from_millis(60_000 + second);
                let entry = limiter.admit(now, 40);
                assert_ne!(entry, InboundVerdict::Flood);
                if entry == InboundVerdict::Accept {
                    limiter.on_opened(now, 40);
                }
            }
        }
    }

    #[test]
    fn a_pause_or_a_forged_packet_resets_the_flood_count() {
        for is_pause in [true, false] {
            let mut limiter = limiter(FloodPolicy::Close);
            for second in 0..30_u64 {
                let is_late = second % 9 == 8;
                if is_late && is_pause {
                    continue;
                }
                if is_late {
                    limiter.on_foreign();
                }
                for part in 0..1_000 {
                    let now = Instant::from_millis(second * 1_000 + part);
                    for _ in 0..5 {
                        let entry = limiter.admit(now, 40);
                        assert_ne!(entry, InboundVerdict::Flood, "{second}");
                        if entry == InboundVerdict::Accept {
                            limiter.on_opened(now, 40);
                        }
                    }
                }
            }
        }
    }
}
