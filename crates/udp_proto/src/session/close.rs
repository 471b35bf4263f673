//! How a session ends.

use core::time::Duration;

use crypto::Aead;
use wire::Instant;

use super::Session;
use crate::error::{CloseCode, CloseReason};

/// Where a session stands between open and gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Messages flow.
    Open,
    /// The application has closed it; reliable messages are still sent.
    Flushing {
        /// When waiting ends.
        until: Instant,
        last_words: Box<LastWords>,
    },
    /// CLOSE is sent: three times, and again when packets still come.
    Closing {
        /// When the slot is freed.
        gone_at: Instant,
        closes: Box<Closes>,
    },
    /// The peer has closed it: nothing is sent any more.
    Draining {
        /// When the slot is freed.
        gone_at: Instant,
    },
    /// Over.
    Gone,
}

/// What a CLOSE says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastWords {
    code: CloseCode,
    reason: Box<[u8]>,
}

/// The CLOSEs of a closing session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Closes {
    last_words: LastWords,
    /// When the next of the three leaves; `None` after the last.
    pub(super) next_at: Option<Instant>,
    /// How many of the three are left.
    left: u8,
    /// Packets that came since; CLOSE answers the 1st, 2nd, 4th, 8th ...
    arrived: u32,
    /// One of these answers waits to be sent.
    is_answer_due: bool,
}

/// Least time a closing session stays, so that its peer hears of it; TWP/1, section 11.
const CLOSING_MIN: Duration = Duration::from_millis(200);
/// How often CLOSE is sent without being asked for.
const CLOSES: u8 = 3;
/// Longest reason text, bytes.
const REASON_MAX: usize = 128;

impl<A: Aead> Session<A> {
    /// Ends the session in order: reliable messages first, for up to `linger`.
    pub(crate) fn close(&mut self, now: Instant, code: CloseCode, reason: &[u8], linger: Duration) {
        if !self.is_open() {
            return;
        }
        let reason = reason.get(..REASON_MAX).unwrap_or(reason);
        self.phase = Phase::Flushing {
            until: now + linger,
            last_words: Box::new(LastWords {
                code,
                reason: reason.into(),
            }),
        };
        self.run_phase(now);
    }

    /// Ends the session at once: the peer has broken the protocol, or another session replaces it.
    pub(crate) fn abort(&mut self, now: Instant, code: CloseCode) {
        if matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            self.end(CloseReason::Local(code), Box::default());
            self.begin_closing(now, code, Box::default());
        }
    }

    /// Ends the session at once because the application says so.
    pub(crate) fn kick(&mut self, now: Instant, reason: &[u8]) {
        if matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            let reason = reason.get(..REASON_MAX).unwrap_or(reason);
            self.end(CloseReason::Local(CloseCode::Kicked), Box::default());
            self.begin_closing(now, CloseCode::Kicked, reason.into());
        }
    }

    /// Ends a session that never was one for the application: its peer hears why, no event tells.
    pub(crate) fn refuse(&mut self, now: Instant, code: CloseCode) {
        self.begin_closing(now, code, Box::default());
    }

    /// Takes a CLOSE of the peer.
    pub(super) fn on_close(&mut self, now: Instant, code: u16, text: &[u8]) {
        if matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            // What came in the same packet before it can still be read.
            self.tell_readable();
            let reason = CloseReason::Peer(CloseCode::from_wire(code));
            self.end(reason, text.into());
        }
        if !matches!(self.phase, Phase::Draining { .. } | Phase::Gone) {
            self.forget_outbound();
            self.phase = Phase::Draining {
                gone_at: now + self.closing_span(),
            };
        }
    }

    /// Ends the session where `datagram` says that the server has lost it; returns whether it does.
    pub(crate) fn on_reset(&mut self, datagram: &[u8]) -> bool {
        let is_reset = self
            .reset_token
            .as_ref()
            .is_some_and(|token| token.ends(datagram));
        if !is_reset || self.phase == Phase::Gone {
            return false;
        }
        if matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            self.end(CloseReason::Reset, Box::default());
        }
        self.forget_outbound();
        self.phase = Phase::Gone;
        self.news.is_gone = true;
        true
    }

    /// Counts a packet that opened while CLOSE is being sent.
    pub(super) fn on_packet_while_closing(&mut self) {
        if let Phase::Closing { closes, .. } = &mut self.phase {
            closes.arrived = closes.arrived.saturating_add(1);
            if closes.arrived.is_power_of_two() {
                closes.is_answer_due = true;
            }
        }
    }

    /// Moves on where time or an empty queue says so.
    pub(super) fn run_phase(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Flushing { until, last_words } if now >= *until || self.outbox.is_empty() => {
                let code = last_words.code;
                let reason = core::mem::take(&mut last_words.reason);
                self.end(CloseReason::Local(code), Box::default());
                self.begin_closing(now, code, reason);
            }
            Phase::Closing { gone_at, .. } | Phase::Draining { gone_at } if now >= *gone_at => {
                self.phase = Phase::Gone;
                self.news.is_gone = true;
            }
            Phase::Open
            | Phase::Flushing { .. }
            | Phase::Closing { .. }
            | Phase::Draining { .. }
            | Phase::Gone => {}
        }
    }

    /// Tells the application, once.
    pub(super) fn end(&mut self, reason: CloseReason, text: Box<[u8]>) {
        self.outbox.abandon();
        self.news.closed = Some(Box::new((reason, text)));
    }

    /// Returns the CLOSE that is due, and notes that it was sent.
    pub(super) fn take_close(&mut self, now: Instant) -> Option<(CloseCode, Box<[u8]>)> {
        let spacing = self.rtt.pto();
        let Phase::Closing { closes, .. } = &mut self.phase else {
            return None;
        };
        let LastWords { code, reason } = &closes.last_words;
        if closes.next_at.is_some_and(|at| at <= now) && closes.left > 0 {
            closes.left = closes.left.saturating_sub(1);
            closes.next_at = (closes.left > 0).then(|| now + spacing);
            return Some((*code, reason.clone()));
        }
        // An answer goes without the reason: it is shorter than what asked for it.
        core::mem::take(&mut closes.is_answer_due).then(|| (*code, Box::default()))
    }

    fn begin_closing(&mut self, now: Instant, code: CloseCode, reason: Box<[u8]>) {
        let is_own = matches!(code, CloseCode::Idle | CloseCode::TokenUsed);
        // These say what only we can know.
        let code = if is_own { CloseCode::NoError } else { code };
        self.forget_outbound();
        self.phase = Phase::Closing {
            gone_at: now + self.closing_span(),
            closes: Box::new(Closes {
                last_words: LastWords { code, reason },
                next_at: Some(now),
                left: CLOSES,
                arrived: 0,
                is_answer_due: false,
            }),
        };
    }

    /// Gives back what messages and packets of ours hold: nothing of it is sent again. What has come
    /// can still be read.
    fn forget_outbound(&mut self) {
        self.outbox.forget();
        self.sent.forget();
    }

    fn closing_span(&self) -> Duration {
        self.rtt.pto().saturating_mul(3).max(CLOSING_MIN)
    }
}
