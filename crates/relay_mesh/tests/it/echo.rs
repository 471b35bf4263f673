//! A game server that echoes what it receives.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use netsim::Outbox;
use relay_mesh::proxy_header::{LEN_USUAL, read_datagram};
use wire::{Arrival, Instant};

/// Answers every datagram.
#[derive(Debug, Default)]
pub(crate) struct EchoServer {
    waiting: Vec<(SocketAddr, Vec<u8>)>,
    pub(crate) sources: BTreeMap<SocketAddr, u64>,
    /// Extra copies of each answer.
    pub(crate) copies: usize,
    /// Whether it parses a PROXY header and echoes only the payload behind it.
    pub(crate) takes_headers: bool,
}

impl netsim::Node for EchoServer {
    fn handle_datagram(
        &mut self,
        _now: Instant,
        _local: SocketAddr,
        arrival: Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) {
        *self.sources.entry(arrival.peer).or_default() += 1;
        let header = self.takes_headers.then(|| {
            let header = read_datagram(datagram, LEN_USUAL).expect("a header, or none");
            header.map_or(0, |header| header.len)
        });
        let said = &datagram[header.unwrap_or(0)..];
        for _ in 0..=self.copies {
            self.waiting.push((arrival.peer, said.to_vec()));
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn drain(&mut self, _now: Instant, outbox: &mut Outbox<'_>) {
        for (to, bytes) in self.waiting.drain(..) {
            outbox.send(None, to, None, &bytes);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
