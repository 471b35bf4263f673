//! A client, a server, and a link with delay and the loss that a test defines.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use udp_proto::{CloseReason, Config, SessionId};
use wire::Instant;

use crate::direct::{Line, Sent};

/// Whether a datagram is lost, given its bytes and whether the client sent it.
type Slower = Box<dyn FnMut(bool, &[u8]) -> bool>;

pub(crate) struct Link {
    pub(crate) line: Line,
    /// One-way delay of a datagram, by whether the client sent it and the client's address.
    pub(crate) delay: fn(bool, SocketAddr) -> Duration,
    loses: Slower,
    /// Datagrams in flight by arrival: whether the client sent it, and the client's address.
    flying: BTreeMap<(Instant, usize), (bool, SocketAddr, Vec<u8>)>,
    sent: usize,
}

impl Link {
    /// A client that dials with a token, 25 ms from the server.
    pub(crate) fn new(
        number: u64,
        config: Config,
        loses: impl FnMut(bool, &[u8]) -> bool + 'static,
    ) -> Self {
        let mut line = Line::with(number, config, |listen| listen);
        let credentials = line.token(1);
        line.client.dial(line.now, &line.keys, credentials);
        Self {
            line,
            delay: |_, _| Duration::from_millis(25),
            loses: Box::new(loses),
            flying: BTreeMap::new(),
            sent: 0,
        }
    }

    /// The session at the client.
    pub(crate) fn dialled(&self) -> Option<SessionId> {
        self.line.client.sessions().last().copied()
    }

    /// The session at the server.
    pub(crate) fn accepted(&self) -> Option<SessionId> {
        self.line.server.sessions().last().copied()
    }

    pub(crate) fn closes(&self) -> Vec<CloseReason> {
        let client = self.line.client.closes();
        client
            .into_iter()
            .chain(self.line.server.closes())
            .collect()
    }

    /// Puts the datagrams of both on the link.
    pub(crate) fn collect(&mut self) {
        let now = self.line.now;
        for (by_client, sent) in [
            (true, self.line.client.drain(now)),
            (false, self.line.server.drain(now)),
        ] {
            for Sent { to, bytes } in sent {
                if (self.loses)(by_client, &bytes) {
                    continue;
                }
                let at = if by_client { self.line.client.at } else { to };
                self.sent += 1;
                let arrival = (now + (self.delay)(by_client, at), self.sent);
                self.flying.insert(arrival, (by_client, at, bytes));
            }
        }
    }

    /// Advances to the next event, at most to `until`. Datagrams to an earlier address of the
    /// client reach it, too.
    pub(crate) fn step(&mut self, until: Instant) {
        self.collect();
        let timeouts = [
            self.line.client.machine.poll_timeout(),
            self.line.server.machine.poll_timeout(),
            self.flying.keys().next().map(|(at, _)| *at),
        ];
        let next = timeouts.into_iter().flatten().fold(until, Instant::min);
        self.line.now = self.line.now.max(next);
        let now = self.line.now;
        while let Some(first) = self.flying.first_entry()
            && first.key().0 <= now
        {
            let (by_client, at, bytes) = first.remove();
            if by_client {
                self.line.server.take(now, at, &bytes);
            } else {
                let from = self.line.server.at;
                self.line.client.take(now, from, &bytes);
            }
        }
        self.line.client.wake(now);
        self.line.server.wake(now);
    }

    pub(crate) fn run(&mut self, millis: u64) {
        let end = self.line.now + Duration::from_millis(millis);
        while self.line.now < end {
            self.step(end);
        }
    }
}
