//! Finds the fastest route: pings the server's beacon over each route for a few seconds.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::Sender;
use std::time::Duration;

use servicer::Application;
use wire::{Arrival, CommandId, Instant, Machine, Seat, Transmit};

use crate::game_protocol::{BEACON_ANSWER, BEACON_ASK, BEACON_LEN};

/// Pings over all routes of one player.
#[derive(Debug)]
pub(in crate::role) struct RouteProber {
    routes: Vec<EntryRoute>,
    /// Pings to be sent: route, and when it was queued.
    pings: VecDeque<(SocketAddr, Instant)>,
    next_at: Option<Instant>,
    ends_at: Instant,
    latest: Instant,
    found: Option<Vec<Option<Duration>>>,
}

#[derive(Debug)]
struct EntryRoute {
    beacon: SocketAddr,
    round_trips: Vec<Duration>,
}

impl RouteProber {
    pub(in crate::role) fn new(beacons: &[SocketAddr], now: Instant) -> Self {
        let route = |beacon: &SocketAddr| EntryRoute {
            beacon: *beacon,
            round_trips: Vec::new(),
        };
        Self {
            routes: beacons.iter().map(route).collect(),
            pings: VecDeque::new(),
            next_at: Some(now),
            ends_at: now + PROBING_MAX,
            latest: now,
            found: None,
        }
    }

    /// Advances the clock, which never steps back.
    fn advance(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
    }

    #[cfg(test)]
    pub(in crate::role) fn memory_len(&self) -> usize {
        let answers: usize = self
            .routes
            .iter()
            .map(|route| route.round_trips.len())
            .sum();
        size_of::<Self>()
            + answers * size_of::<Duration>()
            + self.pings.len() * size_of::<(SocketAddr, Instant)>()
    }

    /// Returns the median round trip of each route; `None` if too few pings were answered.
    fn medians(&mut self) -> Vec<Option<Duration>> {
        let median = |route: &mut EntryRoute| {
            route.round_trips.sort_unstable();
            let is_sure = route.round_trips.len() >= ANSWERS_MIN;
            let middle = route.round_trips.get(route.round_trips.len() / 2);
            middle.copied().filter(|_| is_sure)
        };
        self.routes.iter_mut().map(median).collect()
    }
}

impl Machine for RouteProber {
    type Peer = SocketAddr;
    /// Median round trip of each route, in the order given.
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
        let route = self
            .routes
            .iter_mut()
            .find(|route| route.beacon == arrival.peer);
        if let Some(route) = route
            && route.round_trips.len() < ANSWERS_MAX
        {
            route.round_trips.push(now.saturating_since(asked_at));
        }
        if self
            .routes
            .iter()
            .all(|route| route.round_trips.len() >= ANSWERS_MAX)
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
            self.pings.clear();
            self.found = Some(self.medians());
        } else if now >= next_at {
            self.pings
                .extend(self.routes.iter().map(|route| (route.beacon, now)));
            self.next_at = Some(now + INTERVAL);
        }
    }

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        let (beacon, asked_at) = self.pings.pop_front()?;
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

pub(super) struct ProbeApp {
    pub(super) seat: Seat,
    pub(super) found: Sender<(Seat, Vec<Option<Duration>>)>,
}

impl Application<RouteProber> for ProbeApp {
    type Request = Infallible;

    fn apply_request(
        &mut self,
        _: Instant,
        _: &mut RouteProber,
        request: Infallible,
    ) -> ControlFlow<()> {
        match request {}
    }

    fn on_event(&mut self, _: Instant, _: &mut RouteProber, found: Vec<Option<Duration>>) {
        // If nobody receives it, the process is ending.
        drop(self.found.send((self.seat, found)));
    }

    fn on_command(&mut self, _: Instant, _: &mut RouteProber, _: CommandId, command: Infallible) {
        match command {}
    }
}

/// How long to ping if some routes do not answer.
pub(super) const PROBING_MAX: Duration = Duration::from_secs(6);
const INTERVAL: Duration = Duration::from_millis(100);
/// Answers of each route after which probing ends.
const ANSWERS_MAX: usize = 25;
/// Minimum answers for a route to count.
const ANSWERS_MIN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_has_its_median_and_a_silent_one_has_none() {
        let beacons = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut route_prober = RouteProber::new(&beacons, Instant::ZERO);
        let mut now = Instant::ZERO;
        let mut question = Vec::new();
        while let Some(due) = route_prober.poll_timeout() {
            now = now.max(due);
            route_prober.handle_timeout(now);
            while let Some(transmit) = route_prober.poll_transmit(now, &mut question) {
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
                route_prober.handle_datagram(now, arrival, &mut question);
                question.clear();
            }
        }
        let found = route_prober.poll_event().unwrap();
        let millis: Vec<_> = found
            .iter()
            .map(|route| route.map(|route| route.as_millis()))
            .collect();
        // The second ping of a round waits while the first is answered.
        assert_eq!(millis, [Some(40), Some(70), None]);
        assert!(now >= Instant::ZERO + PROBING_MAX);
        assert_eq!(route_prober.poll_event(), None);
    }
}
