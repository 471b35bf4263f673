//! Answers pings, so that players find the shortest way before they have a token.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | 1 asks, 2 answers |
//! | 1 | 15 | the asker's, returned as they came |
//!
//! An answer is as long as its question and asks nothing, so a beacon multiplies nobody's bytes
//! and two of them cannot keep each other busy.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::ControlFlow;

use servicer::Application;
use wire::{Arrival, CommandId, Instant, Machine, Transmit};

use crate::talk::{BEACON_ANSWER, BEACON_ASK, BEACON_LEN};

/// Answers each question once.
#[derive(Debug, Default)]
pub(super) struct Beacon {
    answers: VecDeque<(SocketAddr, [u8; BEACON_LEN])>,
}

impl Machine for Beacon {
    type Peer = SocketAddr;
    type Event = Infallible;
    type Command = Infallible;

    fn handle_datagram(&mut self, _: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        let Ok(mut answer) = <[u8; BEACON_LEN]>::try_from(&*datagram) else {
            return;
        };
        if let [kind @ BEACON_ASK, ..] = &mut answer
            && self.answers.len() < ANSWERS_MAX
        {
            *kind = BEACON_ANSWER;
            self.answers.push_back((arrival.peer, answer));
        }
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

/// The beacon has nothing to tell.
pub(super) struct Quiet;

impl Application<Beacon> for Quiet {
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

    fn hear(beacon: &mut Beacon, datagram: &[u8]) -> Option<Vec<u8>> {
        let peer = SocketAddr::from(([127, 0, 0, 1], 9));
        beacon.handle_datagram(Instant::ZERO, Arrival::from(peer), &mut datagram.to_vec());
        let mut answer = Vec::new();
        beacon
            .poll_transmit(Instant::ZERO, &mut answer)
            .map(|_| answer)
    }

    #[test]
    fn questions_are_answered_and_nothing_else() {
        let mut beacon = Beacon::default();
        let mut question = [7; BEACON_LEN];
        question[0] = BEACON_ASK;
        let answer = hear(&mut beacon, &question).unwrap();
        assert_eq!(answer.len(), question.len());
        assert_eq!(answer[1..], question[1..]);
        assert_eq!(hear(&mut beacon, &answer), None, "an answer asks nothing");
        assert_eq!(hear(&mut beacon, &question[1..]), None);
        assert_eq!(hear(&mut beacon, &[]), None);
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
    }
}
