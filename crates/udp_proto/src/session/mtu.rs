//! MTU discovery: a check at the session's start, and a search; RFC 8899.
//!
//! A probe is a PING padded to a size, sent up to three times. Mesh links check for 1,280 bytes
//! (architecture.md, decision 12). A search tries three larger sizes, repeats every ten minutes,
//! and falls back to the size that every path carries if long packets no longer arrive.

use core::time::Duration;

use crypto::Aead;
use wire::Instant;

use super::{Content, Session};
use crate::config::{Config, Mtu, MtuSearch};
use crate::frame::{Elicits, Frame};
use crate::nanos::Deadline;
use crate::sent::{SentKind, SentPacket, Summary};

#[derive(Clone, Copy, Debug)]
pub(super) struct MtuProbing {
    /// Largest datagram to send, in bytes.
    mtu: u16,
    check: Option<Mtu>,
    ceiling: Option<u16>,
    probe: Probe,
    next_search_at: Deadline,
    /// Long packets lost since the last one acknowledged.
    long_lost: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Idle,
    Due { mtu: Mtu, left: u8 },
    InFlight { mtu: Mtu, left: u8 },
}

/// The result of a check: the size, or `None` if the path does not carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome(pub(crate) Option<Mtu>);

/// Transmissions of a probe; RFC 8899, section 5.1.2.
const PROBES: u8 = 3;
/// Sizes that a search tries: the mesh's, that of tunnels over Ethernet, and Ethernet's over IPv6.
const STEPS: [Mtu; 3] = [Mtu::MESH, Mtu::TUNNEL, Mtu::MAX];
/// Interval between searches; RFC 8899, section 5.1.1.
const SEARCH_INTERVAL: Duration = Duration::from_secs(600);
const INTERVAL_AFTER_BLACK_HOLE: Duration = Duration::from_secs(60);
/// Consecutive losses of long packets that indicate a black hole: by chance 1 in 170,000 at 30 %
/// loss.
const LONG_LOST_MAX: u32 = 10;

impl MtuProbing {
    /// Starts from the configured size. `peer_max` is the largest datagram that the peer accepts.
    pub(super) fn new(config: &Config, peer_max: u16) -> Self {
        let mtu = config.mtu.get().min(peer_max);
        let ceiling = match config.mtu_search {
            MtuSearch::On => Some(peer_max),
            MtuSearch::Off => None,
        };
        let check = config.mtu_check.filter(|check| check.get() > mtu);
        let mut probing = Self {
            mtu,
            check,
            ceiling,
            probe: Probe::Idle,
            next_search_at: Deadline::NEVER,
            long_lost: 0,
        };
        probing.probe = check
            .or_else(|| probing.next_step())
            .map_or(Probe::Idle, Probe::begin);
        probing
    }

    pub(super) const fn get(&self) -> u16 {
        self.mtu
    }

    pub(super) const fn is_due(&self) -> bool {
        matches!(self.probe, Probe::Due { .. })
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.next_search_at.get()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.next_search_at.is_due(now) {
            self.next_search_at = Deadline::NEVER;
            self.advance(now);
        }
    }

    /// Handles the loss of a probe of `mtu` bytes. Returns the result of a check.
    pub(super) fn on_lost(&mut self, now: Instant, mtu: Mtu) -> Option<Outcome> {
        let Probe::InFlight { mtu: tried, left } = self.probe else {
            return None;
        };
        if tried != mtu {
            return None;
        }
        if left > 0 {
            self.probe = Probe::Due { mtu, left };
            return None;
        }
        self.probe = Probe::Idle;
        if self.check != Some(mtu) {
            self.schedule(now, SEARCH_INTERVAL);
            return None;
        }
        // The checked size failed; a search may find a smaller one.
        self.check = None;
        self.advance(now);
        Some(Outcome(None))
    }

    /// Handles the acknowledgement of a probe of `mtu` bytes. Returns the result of a check.
    pub(super) fn on_acknowledged(&mut self, now: Instant, mtu: Mtu) -> Option<Outcome> {
        match self.probe {
            Probe::InFlight { mtu: tried, .. } | Probe::Due { mtu: tried, .. } if tried == mtu => {
                self.mtu = self.mtu.max(mtu.get());
                self.long_lost = 0;
                let is_checked = self.check == Some(mtu);
                self.check = self.check.filter(|_| !is_checked);
                self.advance(now);
                is_checked.then_some(Outcome(Some(mtu)))
            }
            // An earlier step.
            Probe::InFlight { .. } | Probe::Due { .. } | Probe::Idle => None,
        }
    }

    pub(super) fn on_summary(&mut self, now: Instant, summary: &Summary) {
        if summary.long_acked > 0 {
            self.long_lost = 0;
            return;
        }
        self.long_lost = self.long_lost.saturating_add(summary.long_lost);
        if self.long_lost >= LONG_LOST_MAX {
            self.on_black_hole(now);
        }
    }

    /// Handles a black hole: falls back to the size that every path carries.
    pub(super) fn on_black_hole(&mut self, now: Instant) {
        self.long_lost = 0;
        if self.ceiling.is_some() && self.mtu > Mtu::MIN.get() {
            self.mtu = Mtu::MIN.get();
            self.probe = Probe::Idle;
            self.schedule(now, INTERVAL_AFTER_BLACK_HOLE);
        }
    }

    pub(super) fn restart(&mut self) {
        if self.ceiling.is_none() {
            let known = Mtu::new(self.mtu).filter(|mtu| *mtu > Mtu::MIN);
            self.check = self.check.or(known);
        }
        self.mtu = Mtu::MIN.get();
        self.long_lost = 0;
        self.next_search_at = Deadline::NEVER;
        let first = self.check.or_else(|| self.next_step());
        self.probe = first.map_or(Probe::Idle, Probe::begin);
    }

    /// Starts the next step, or schedules the next search.
    fn advance(&mut self, now: Instant) {
        let next = self.check.or_else(|| self.next_step());
        self.probe = next.map_or(Probe::Idle, Probe::begin);
        if self.probe == Probe::Idle {
            self.schedule(now, SEARCH_INTERVAL);
        }
    }

    fn schedule(&mut self, now: Instant, span: Duration) {
        // At the maximum there is nothing to search.
        let next = self.check.or_else(|| self.next_step());
        self.next_search_at = Deadline::new(next.map(|_| now + span));
    }

    fn next_step(&self) -> Option<Mtu> {
        let ceiling = self.ceiling?;
        STEPS
            .into_iter()
            .find(|step| step.get() > self.mtu && step.get() <= ceiling)
    }
}

impl Probe {
    const fn begin(mtu: Mtu) -> Self {
        Self::Due { mtu, left: PROBES }
    }
}

impl<A: Aead> Session<A> {
    pub(super) fn poll_mtu_probe(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<()> {
        let Probe::Due { mtu, left } = self.mtu.probe else {
            return None;
        };
        // CONFIRM first: the peer ignores packets before it.
        if self.confirm.is_some() || self.sent.push(Content::MtuProbe(mtu)).is_err() {
            return None;
        }
        let packet = self.begin(buf, mtu.get());
        Frame::Ping.encode(buf);
        buf.resize(packet.end(), 0);
        let Some(number) = self.finish(buf, &packet) else {
            self.sent.discard();
            return None;
        };
        self.mtu.probe = Probe::InFlight {
            mtu,
            left: left.saturating_sub(1),
        };
        let sent = SentPacket {
            number,
            at: now,
            len: mtu.get(),
            elicits: Elicits::Ack,
            kind: SentKind::MtuProbe,
            described: None,
            untracked_frames: 0,
        };
        self.on_sent(now, &sent, 0);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1_000);

    fn probing(search: MtuSearch, check: Option<Mtu>) -> MtuProbing {
        let config = Config {
            mtu_search: search,
            mtu_check: check,
            ..Config::default()
        };
        MtuProbing::new(&config, 1_452)
    }

    /// Runs probes on a path that carries `carried` bytes until none is due. Returns the results of
    /// checks.
    fn run_probes(probing: &mut MtuProbing, carried: u16) -> Vec<Option<u16>> {
        let mut found = Vec::new();
        while let Probe::Due { mtu, left } = probing.probe {
            probing.probe = Probe::InFlight {
                mtu,
                left: left - 1,
            };
            let outcome = if mtu.get() <= carried {
                probing.on_acknowledged(NOW, mtu)
            } else {
                probing.on_lost(NOW, mtu)
            };
            found.extend(outcome.map(|Outcome(mtu)| mtu.map(Mtu::get)));
        }
        found
    }

    #[test]
    fn u14_a_search_restarts_on_another_path() {
        let mut probing = probing(MtuSearch::On, None);
        run_probes(&mut probing, 1_452);
        assert_eq!(probing.get(), 1_452);
        probing.restart();
        assert_eq!(probing.get(), 1_200);
        run_probes(&mut probing, 1_352);
        assert_eq!(probing.get(), 1_352);
    }

    #[test]
    fn u14_a_failed_check_is_reported_and_the_search_continues_below() {
        let mut probing = probing(MtuSearch::On, Some(Mtu::MAX));
        assert_eq!(run_probes(&mut probing, 1_400), [None]);
        assert_eq!(probing.get(), 1_352);
    }

    #[test]
    fn u14_a_check_reports_its_own_size_despite_a_black_hole() {
        let mut probing = probing(MtuSearch::On, Some(Mtu::MAX));
        probing.mtu = 1_280;
        probing.on_black_hole(NOW);
        assert_eq!(probing.get(), 1_200);
        probing.handle_timeout(NOW + INTERVAL_AFTER_BLACK_HOLE);
        assert_eq!(run_probes(&mut probing, 1_452), [Some(1_452)]);
    }
}
