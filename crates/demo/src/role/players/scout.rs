//! Which way is the shortest: asks the server's beacon by each of them, for a few seconds.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::Sender;
use std::time::Duration;

use servicer::Application;
use wire::{Arrival, CommandId, Instant, Machine, Seat, Transmit};

use crate::talk::{BEACON_ANSWER, BEACON_ASK, BEACON_LEN};

/// Asks by all ways of one player.
#[derive(Debug)]
pub(in crate::role) struct Scout {
    ways: Vec<Way>,
    /// Questions that wait to be sent: which way, and when it was asked.
    questions: VecDeque<(SocketAddr, Instant)>,
    next_at: Option<Instant>,
    ends_at: Instant,
    /// The latest time it was told.
    latest: Instant,
    found: Option<Vec<Option<Duration>>>,
}

#[derive(Debug)]
struct Way {
    beacon: SocketAddr,
    round_trips: Vec<Duration>,
}

impl Scout {
    /// Begins to ask at `now`.
    pub(in crate::role) fn new(beacons: &[SocketAddr], now: Instant) -> Self {
        let way = |beacon: &SocketAddr| Way {
            beacon: *beacon,
            round_trips: Vec::new(),
        };
        Self {
            ways: beacons.iter().map(way).collect(),
            questions: VecDeque::new(),
            next_at: Some(now),
            ends_at: now + PATIENCE,
            latest: now,
            found: None,
        }
    }

    /// Takes the present time, which does not go back.
    fn advance(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Returns the bytes that it holds.
    #[cfg(test)]
    pub(in crate::role) fn memory_len(&self) -> usize {
        let answers: usize = self.ways.iter().map(|way| way.round_trips.len()).sum();
        size_of::<Self>()
            + answers * size_of::<Duration>()
            + self.questions.len() * size_of::<(SocketAddr, Instant)>()
    }

    /// Returns the median round trip of each way, `None` where too few came back.
    fn medians(&mut self) -> Vec<Option<Duration>> {
        let median = |way: &mut Way| {
            way.round_trips.sort_unstable();
            let is_sure = way.round_trips.len() >= ANSWERS_MIN;
            let middle = way.round_trips.get(way.round_trips.len() / 2);
            middle.copied().filter(|_| is_sure)
        };
        self.ways.iter_mut().map(median).collect()
    }
}

impl Machine for Scout {
    type Peer = SocketAddr;
    /// The median round trip of each way, in the order given.
    type Event = Vec<Option<Duration>>;
    type Command = Infallible;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        let Some((&BEACON_ANSWER, rest)) = datagram.split_first() else {
            return;
        };
        let now = self.advance(now);
        let Some(asked_at) = rest.first_chunk() else {
            return;
        };
        let asked_at = Instant::from_nanos(u64::from_be_bytes(*asked_at));
        let way = self.ways.iter_mut().find(|way| way.beacon == arrival.peer);
        if let Some(way) = way
            && way.round_trips.len() < ANSWERS_MAX
        {
            way.round_trips.push(now.saturating_since(asked_at));
        }
        if self
            .ways
            .iter()
            .all(|way| way.round_trips.len() >= ANSWERS_MAX)
        {
            self.ends_at = self.ends_at.min(now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        let Some(next_at) = self.next_at else {
            return;
        };
        if now >= self.ends_at {
            self.next_at = None;
            self.questions.clear();
            self.found = Some(self.medians());
        } else if now >= next_at {
            self.questions
                .extend(self.ways.iter().map(|way| (way.beacon, now)));
            self.next_at = Some(now + INTERVAL);
        }
    }

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        let (beacon, asked_at) = self.questions.pop_front()?;
        let start = buf.len();
        buf.push(BEACON_ASK);
        buf.extend_from_slice(&asked_at.as_nanos().to_be_bytes());
        buf.resize(start.saturating_add(BEACON_LEN), 0);
        Some(Transmit::to(beacon))
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<Vec<Option<Duration>>> {
        self.found.take()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next_at.map(|next_at| next_at.min(self.ends_at))
    }
}

/// Tells what a scout has found.
pub(super) struct Herald {
    pub(super) seat: Seat,
    pub(super) found: Sender<(Seat, Vec<Option<Duration>>)>,
}

impl Application<Scout> for Herald {
    type Request = Infallible;

    fn apply_request(&mut self, _: Instant, _: &mut Scout, request: Infallible) -> ControlFlow<()> {
        match request {}
    }

    fn on_event(&mut self, _: Instant, _: &mut Scout, found: Vec<Option<Duration>>) {
        // Nobody waits any more where the process ends.
        drop(self.found.send((self.seat, found)));
    }

    fn on_command(&mut self, _: Instant, _: &mut Scout, _: CommandId, command: Infallible) {
        match command {}
    }
}

/// How long to ask where not all answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(6);
/// Time between two questions by each way.
const INTERVAL: Duration = Duration::from_millis(100);
/// Answers by each way after which nothing more is to be learned.
const ANSWERS_MAX: usize = 25;
/// Answers without which a way is not believed in.
const ANSWERS_MIN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_each_way_is_found_and_a_silent_way_is_none() {
        let beacons = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut scout = Scout::new(&beacons, Instant::ZERO);
        let mut now = Instant::ZERO;
        let mut question = Vec::new();
        while let Some(due) = scout.poll_timeout() {
            now = now.max(due);
            scout.handle_timeout(now);
            while let Some(transmit) = scout.poll_transmit(now, &mut question) {
                let delay = match transmit.destination.port() {
                    1 => 40,
                    2 => 30,
                    _ => {
                        question.clear();
                        continue;
                    }
                };
                question[0] = BEACON_ANSWER;
                now += Duration::from_millis(delay);
                let arrival = Arrival::from(transmit.destination);
                scout.handle_datagram(now, arrival, &mut question);
                question.clear();
            }
        }
        let found = scout.poll_event().unwrap();
        let millis: Vec<_> = found
            .iter()
            .map(|way| way.map(|way| way.as_millis()))
            .collect();
        // The second question of a turn waits here while the first is answered.
        assert_eq!(millis, [Some(40), Some(70), None]);
        assert!(now >= Instant::ZERO + PATIENCE);
        assert_eq!(scout.poll_event(), None);
    }
}
