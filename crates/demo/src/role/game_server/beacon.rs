//! Answers pings, so that players can measure routes before they have a token.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | 1 request, 2 answer |
//! | 1 | 15 | opaque bytes of the request |
//!
//! An answer is as long as its request and is never answered, so a beacon amplifies nothing and two
//! of them cannot loop.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::ControlFlow;

use servicer::Application;
use wire::{Arrival, CommandId, Instant, Machine, Transmit};

use crate::game_protocol::{BEACON_ANSWER, BEACON_ASK, BEACON_LEN};

#[derive(Debug, Default)]
pub(in crate::role) struct Beacon {
    answers: VecDeque<(SocketAddr, [u8; BEACON_LEN])>,
    stats: BeaconStats,
}

#[cfg(test)]
impl Beacon {
    pub(in crate::role) fn memory_len(&self) -> usize {
        size_of::<Self>() + self.answers.len() * size_of::<(SocketAddr, [u8; BEACON_LEN])>()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BeaconStats {
    answered: u64,
    dropped_length: u64,
    /// Not a request.
    dropped_kind: u64,
    /// The answer queue was full.
    dropped_full: u64,
}

impl Machine for Beacon {
    type Peer = SocketAddr;
    type Event = Infallible;
    type Command = Infallible;

    fn handle_datagram(&mut self, _: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        let Ok(mut answer) = <[u8; BEACON_LEN]>::try_from(&*datagram) else {
            self.stats.dropped_length = self.stats.dropped_length.saturating_add(1);
            return;
        };
        let counter = match &mut answer {
            [kind @ BEACON_ASK, ..] if self.answers.len() < ANSWERS_MAX => {
                *kind = BEACON_ANSWER;
                self.answers.push_back((arrival.peer, answer));
                &mut self.stats.answered
            }
            [BEACON_ASK, ..] => &mut self.stats.dropped_full,
            _ => &mut self.stats.dropped_kind,
        };
        *counter = counter.saturating_add(1);
    }

    fn poll_transmit(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        let (peer, answer) = self.answers.pop_front()?;
        buf.extend_from_slice(&answer);
        Some(Transmit::to(peer))
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

pub(super) struct NoCommands;

impl Application<Beacon> for NoCommands {
    type Request = Infallible;

    fn apply_request(
        &mut self,
        _: Instant,
        _: &mut Beacon,
        request: Infallible,
    ) -> ControlFlow<()> {
        match request {}
    }

    fn on_event(&mut self, _: Instant, _: &mut Beacon, event: Infallible) {
        match event {}
    }

    fn on_command(&mut self, _: Instant, _: &mut Beacon, _: CommandId, command: Infallible) {
        match command {}
    }
}

/// Answers between two drains.
const ANSWERS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    fn next_output(beacon: &mut Beacon, datagram: &[u8]) -> Option<Vec<u8>> {
        let peer = SocketAddr::from(([127, 0, 0, 1], 9));
        beacon.handle_datagram(Instant::ZERO, Arrival::from(peer), &mut datagram.to_vec());
        let mut answer = Vec::new();
        beacon
            .poll_transmit(Instant::ZERO, &mut answer)
            .map(|_| answer)
    }

    #[test]
    fn only_requests_are_answered() {
        let mut beacon = Beacon::default();
        let mut question = [7; BEACON_LEN];
        question[0] = BEACON_ASK;
        let answer = next_output(&mut beacon, &question).unwrap();
        assert_eq!(answer.len(), question.len());
        assert_eq!(answer[1..], question[1..]);
        assert_eq!(
            next_output(&mut beacon, &answer),
            None,
            "an answer asks nothing"
        );
        assert_eq!(next_output(&mut beacon, &question[1..]), None);
        assert_eq!(next_output(&mut beacon, &[]), None);
    }

    #[test]
    fn junk_at_the_beacons_port_is_counted_by_reason() {
        let mut generator = wire::Seed::from_number(1).generator(0);
        let mut question = [7; BEACON_LEN];
        question[0] = BEACON_ASK;
        for kind in 0..3 {
            let mut beacon = Beacon::default();
            let mut answers = 0;
            for _ in 0..10_000 {
                let mut junk = question.to_vec();
                let below = |generator: &mut wire::Generator, bound: usize| {
                    usize::try_from(generator.below(u64::try_from(bound).unwrap())).unwrap()
                };
                match kind {
                    0 => {
                        junk.resize(below(&mut generator, 2 * BEACON_LEN), 0);
                        generator.fill(&mut junk);
                    }
                    1 => junk.truncate(below(&mut generator, BEACON_LEN)),
                    _ => {
                        let bit = below(&mut generator, 8 * BEACON_LEN);
                        junk[bit / 8] ^= 1 << (bit % 8);
                    }
                }
                answers += u64::from(next_output(&mut beacon, &junk).is_some());
            }
            let stats = beacon.stats;
            assert_eq!(stats.answered, answers);
            let dropped = stats.dropped_length + stats.dropped_kind + stats.dropped_full;
            assert_eq!(stats.answered + dropped, 10_000, "{stats:?}");
            // The rest of a request is opaque.
            assert_eq!(stats.answered > 5_000, kind == 2, "{stats:?}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut beacon = Beacon::default();
        let mut question = [0; BEACON_LEN];
        question[0] = BEACON_ASK;
        for _ in 0..2 * ANSWERS_MAX {
            let peer = SocketAddr::from(([127, 0, 0, 1], 9));
            beacon.handle_datagram(Instant::ZERO, Arrival::from(peer), &mut question);
        }
        assert_eq!(beacon.answers.len(), ANSWERS_MAX);
        let stats = beacon.stats;
        assert_eq!((stats.answered, stats.dropped_full), (1_024, 1_024));
    }
}
