//! Deadlines of a connection.

use wire::Instant;

use super::config::StreamConfig;
use super::connection::Stage;

/// Times of the last activity of a connection, which determine its deadline.
#[derive(Debug)]
pub(super) struct Patience {
    /// When the current stage began.
    staged_at: Instant,
    /// When bytes of a record last arrived.
    heard_at: Instant,
    /// When the current incomplete record or TLS record began.
    partial_since: Option<Instant>,
    /// Since when the socket takes no data.
    stalled_since: Option<Instant>,
    /// Whether the application has paused reading, so silence is not the peer's fault.
    is_paused: bool,
}

/// What a batch of received bytes contained.
#[expect(
    clippy::struct_excessive_bools,
    reason = "three independent observations of the same bytes"
)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    /// Whether TLS produced plaintext from them.
    pub(super) plaintext: bool,
    /// Whether a record ended in them.
    pub(super) record: bool,
    /// Whether a record is incomplete after them.
    pub(super) partial: bool,
}

/// Kinds of deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    Handshake,
    Record,
    Idle,
    Stall,
    Linger,
}

impl Patience {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            staged_at: now,
            heard_at: now,
            partial_since: None,
            stalled_since: None,
            is_paused: false,
        }
    }

    /// Called when a stage begins.
    pub(super) const fn restart(&mut self, now: Instant) {
        self.staged_at = now;
        self.heard_at = now;
    }

    /// Called when bytes arrive.
    pub(super) const fn on_heard(&mut self, now: Instant, heard: Heard) {
        if heard.plaintext {
            self.heard_at = now;
        }
        // Bytes without plaintext are part of an incomplete TLS record.
        if heard.partial || !heard.plaintext {
            if heard.record || self.partial_since.is_none() {
                self.partial_since = Some(now);
            }
        } else {
            self.partial_since = None;
        }
    }

    /// Called when the application pauses reading.
    pub(super) const fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Called when the application resumes reading.
    pub(super) const fn resume(&mut self, now: Instant) {
        if self.is_paused {
            self.is_paused = false;
            self.heard_at = now;
            if self.partial_since.is_some() {
                self.partial_since = Some(now);
            }
        }
    }

    /// Called when the socket takes queued data.
    pub(super) const fn on_written(&mut self) {
        self.stalled_since = None;
    }

    /// Called when the socket takes no more data.
    pub(super) const fn on_blocked(&mut self, now: Instant) {
        if self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
    }

    /// Returns the next deadline and its kind; `None` if there is none.
    pub(super) fn deadline(
        &self,
        stage: Stage,
        config: &StreamConfig,
    ) -> Option<(Instant, Deadline)> {
        let staged = |timeout, deadline| Some((self.staged_at + timeout, deadline));
        match stage {
            Stage::Connecting | Stage::Handshaking => {
                staged(config.handshake_timeout, Deadline::Handshake)
            }
            Stage::Closing => staged(config.record_timeout, Deadline::Linger),
            Stage::Lingering => staged(config.linger_timeout, Deadline::Linger),
            Stage::Open(_) => {
                let stall = self
                    .stalled_since
                    .map(|since| (since + config.stall_timeout, Deadline::Stall));
                let record = self
                    .partial_since
                    .map(|since| (since + config.record_timeout, Deadline::Record));
                let idle = Some((self.heard_at + config.idle_timeout, Deadline::Idle));
                [record, idle]
                    .into_iter()
                    .filter(|_| !self.is_paused)
                    .chain([stall])
                    .flatten()
                    .min_by_key(|(at, _)| *at)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ConnectionId;

    const OPEN: Stage = Stage::Open(ConnectionId(1));

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    fn deadline(patience: &Patience) -> Option<(Instant, Deadline)> {
        patience.deadline(OPEN, &StreamConfig::default())
    }

    const PIECE: Heard = Heard {
        plaintext: true,
        record: false,
        partial: true,
    };

    #[test]
    fn a_record_has_its_time_from_its_first_byte_however_it_trickles() {
        let mut patience = Patience::new(at(0));
        assert_eq!(deadline(&patience), Some((at(60), Deadline::Idle)));
        patience.on_heard(at(1), PIECE);
        patience.on_heard(at(9), PIECE);
        assert_eq!(deadline(&patience), Some((at(11), Deadline::Record)));
        // One record ended, and the next began.
        patience.on_heard(
            at(10),
            Heard {
                record: true,
                ..PIECE
            },
        );
        assert_eq!(deadline(&patience), Some((at(20), Deadline::Record)));
        patience.on_heard(
            at(11),
            Heard {
                record: true,
                partial: false,
                ..PIECE
            },
        );
        assert_eq!(deadline(&patience), Some((at(71), Deadline::Idle)));
        // TLS records that never become plaintext also count.
        patience.on_heard(at(20), Heard::default());
        patience.on_heard(at(25), Heard::default());
        assert_eq!(deadline(&patience), Some((at(30), Deadline::Record)));
    }

    #[test]
    fn no_silence_counts_while_the_application_takes_nothing() {
        let mut patience = Patience::new(at(0));
        patience.on_heard(at(1), PIECE);
        patience.pause();
        assert_eq!(deadline(&patience), None);
        patience.on_blocked(at(2));
        assert_eq!(deadline(&patience), Some((at(32), Deadline::Stall)));
        patience.on_written();
        patience.resume(at(100));
        assert_eq!(deadline(&patience), Some((at(110), Deadline::Record)));
    }
}
