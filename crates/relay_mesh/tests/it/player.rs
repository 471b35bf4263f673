//! A player that sends at a rate, and the answers it got.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use netsim::Outbox;
use wire::{Arrival, Instant};

/// Sends numbered datagrams at a rate and records when their answers arrive.
#[derive(Debug)]
pub(crate) struct Player {
    server: SocketAddr,
    interval: Duration,
    len: usize,
    next_at: Instant,
    next: u64,
    /// Number, send time, arrival time.
    pub(crate) answers: Vec<(u64, Instant, Instant)>,
    sent: BTreeMap<u64, Instant>,
    /// Answers that differ from what was sent, or arrived twice.
    pub(crate) faults: u64,
    pub(crate) is_silent: bool,
    /// Header that a proxy in front of the game's port prepends.
    pub(crate) header: Vec<u8>,
}

impl Player {
    pub(crate) fn new(server: SocketAddr, rate: u32, len: usize, now: Instant) -> Self {
        Self {
            server,
            interval: Duration::from_secs(1) / rate,
            len,
            next_at: now,
            next: 0,
            answers: Vec::new(),
            sent: BTreeMap::new(),
            faults: 0,
            is_silent: false,
            header: Vec::new(),
        }
    }

    fn datagram(&self, number: u64) -> Vec<u8> {
        let fill = u8::try_from(number % 251).unwrap();
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.resize(self.len, fill);
        bytes
    }

    pub(crate) const fn sent(&self) -> u64 {
        self.next
    }

    /// Unanswered datagrams so far.
    pub(crate) fn missing(&self) -> u64 {
        u64::try_from(self.sent.len()).unwrap()
    }

    /// Unanswered datagrams with number `first` or higher.
    pub(crate) fn missing_from(&self, first: u64) -> usize {
        self.sent.range(first..).count()
    }

    /// Longest time without an answer between `from` and `to`.
    pub(crate) fn gap(&self, from: Instant, to: Instant) -> Duration {
        let mut last = from;
        let mut gap = Duration::ZERO;
        let mut came: Vec<Instant> = self.answers.iter().map(|answer| answer.2).collect();
        came.sort_unstable();
        for at in came
            .into_iter()
            .filter(|at| *at >= from && *at <= to)
            .chain([to])
        {
            gap = gap.max(at.saturating_since(last));
            last = at;
        }
        gap
    }

    /// Median round trip of the answers that arrived between `from` and `to`.
    pub(crate) fn round_trip(&self, from: Instant, to: Instant) -> Duration {
        let mut trips: Vec<Duration> = self
            .answers
            .iter()
            .filter(|(_, _, came)| *came >= from && *came <= to)
            .map(|(_, sent, came)| came.saturating_since(*sent))
            .collect();
        trips.sort_unstable();
        trips.get(trips.len() / 2).copied().unwrap_or(Duration::MAX)
    }

    /// Resumes at `now` without catching up.
    pub(crate) fn wake(&mut self, now: Instant) {
        self.is_silent = false;
        self.next_at = now;
    }
}

impl netsim::Node for Player {
    fn handle_datagram(
        &mut self,
        now: Instant,
        _local: SocketAddr,
        _arrival: Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) {
        let number = datagram
            .first_chunk()
            .map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
        match self.sent.remove(&number) {
            Some(sent) if self.datagram(number) == datagram => {
                self.answers.push((number, sent, now));
            }
            _ => self.faults += 1,
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn drain(&mut self, now: Instant, outbox: &mut Outbox<'_>) {
        while self.next_at <= now && !self.is_silent {
            let bytes = self.datagram(self.next);
            self.sent.insert(self.next, now);
            let bytes = [self.header.as_slice(), &bytes].concat();
            outbox.send(None, self.server, None, &bytes);
            self.next += 1;
            self.next_at += self.interval;
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.is_silent).then_some(self.next_at)
    }
}
