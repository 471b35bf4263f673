//! Exits that are believed when they tell whom they speak for.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;
use std::time::Duration;

use wire::Instant;

use super::application::SocketIndex;
use super::counters::Ledger;
use super::intake::Envelope;
use super::proxy_header::{BadHeader, ProxyHeader};

/// Trusted exits, and whom their flows are for.
///
/// A flow is what one address of an exit sends to one of our sockets.
#[derive(Debug, Default)]
pub(super) struct Exits {
    trusted: Vec<IpAddr>,
    flows: BTreeMap<Flow, Told>,
    /// How many flows may be remembered.
    flows_max: usize,
    /// Where the search for a flow that is over goes on.
    searched: Option<Flow>,
}

type Flow = (SocketIndex, SocketAddr);

/// What is known of a flow.
#[derive(Clone, Copy, Debug)]
struct Told {
    source: SocketAddr,
    heard_at: Instant,
}

/// No session lives longer in silence, so no live flow is forgotten.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Flows looked at to make place for one.
const SEARCH_MAX: usize = 16;

impl Exits {
    pub(super) fn new(trusted: &[IpAddr], flows_max: usize) -> Self {
        Self {
            trusted: trusted.iter().map(IpAddr::to_canonical).collect(),
            flows_max,
            ..Self::default()
        }
    }

    /// Takes the header off a datagram, where it is from an exit that is believed and has one; returns
    /// whom the datagram is from, as far as that was told, and what is left of it. `None` where it is
    /// to be dropped.
    pub(super) fn unwrap<'a>(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        datagram: &'a mut [u8],
        ledger: &Ledger,
    ) -> Option<(Option<SocketAddr>, &'a mut [u8])> {
        if !self.trusted.contains(&envelope.remote.ip()) {
            return Some((None, datagram));
        }
        let flow = (envelope.socket, envelope.remote);
        let header = match ProxyHeader::read(datagram) {
            Ok(Some(header)) => header,
            Ok(None) => {
                let told = self.flows.get_mut(&flow);
                let source = told.map(|told| {
                    told.heard_at = now;
                    told.source
                });
                return Some((source, datagram));
            }
            Err(BadHeader) => {
                ledger.dropped_in_exit_header.add(1);
                return None;
            }
        };
        ledger.exit_headers.add(1);
        let rest = datagram.get_mut(header.len..)?;
        let Some(source) = header.source else {
            self.flows.remove(&flow);
            return Some((None, rest));
        };
        if !self.flows.contains_key(&flow) && !self.has_place(now) {
            ledger.dropped_in_exit_full.add(1);
            return None;
        }
        let told = Told {
            source,
            heard_at: now,
        };
        self.flows.insert(flow, told);
        Some((Some(source), rest))
    }

    /// Returns whether there is a place for another flow, and makes one where a flow is over.
    fn has_place(&mut self, now: Instant) -> bool {
        if self.flows.len() < self.flows_max {
            return true;
        }
        let from = self.searched.map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = None;
        let mut over = None;
        for (flow, told) in self.flows.range((from, Bound::Unbounded)).take(SEARCH_MAX) {
            last = Some(*flow);
            if now.saturating_since(told.heard_at) > SILENCE_MAX {
                over = last;
                break;
            }
        }
        // At the end, from the beginning next time.
        self.searched = last;
        over.is_some_and(|flow| self.flows.remove(&flow).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(port: u16) -> Envelope {
        Envelope {
            socket: SocketIndex(0),
            remote: SocketAddr::from(([192, 0, 2, 1], port)),
            local: None,
            ecn: None,
        }
    }

    fn wrapped(last: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\x00\x0C".to_vec();
        bytes.extend_from_slice(&[203, 0, 113, last, 1, 2, 3, 4, 0, 7, 0, 9]);
        bytes.extend_from_slice(rest);
        bytes
    }

    fn take(
        exits: &mut Exits,
        at: u64,
        port: u16,
        bytes: &[u8],
    ) -> Option<(Option<IpAddr>, Vec<u8>)> {
        let mut bytes = bytes.to_vec();
        let (ledger, now) = (Ledger::default(), Instant::from_millis(at));
        let (source, rest) = exits.unwrap(now, &envelope(port), &mut bytes, &ledger)?;
        Some((source.map(|source| source.ip()), rest.to_vec()))
    }

    fn player(last: u8) -> IpAddr {
        IpAddr::from([203, 0, 113, last])
    }

    #[test]
    fn a_flow_is_remembered_and_each_has_its_own() {
        let mut exits = Exits::new(&["::ffff:192.0.2.1".parse().unwrap()], 8);
        assert_eq!(take(&mut exits, 0, 1, b"x"), Some((None, b"x".to_vec())));
        for (port, last) in [(1, 9), (2, 8)] {
            let first = take(&mut exits, 0, port, &wrapped(last, b"hello"));
            assert_eq!(first, Some((Some(player(last)), b"hello".to_vec())));
        }
        assert_eq!(take(&mut exits, 1, 1, b"x").unwrap().0, Some(player(9)));
        assert_eq!(take(&mut exits, 1, 2, b"x").unwrap().0, Some(player(8)));
        // The exit gives the port to somebody else.
        assert_eq!(
            take(&mut exits, 2, 1, &wrapped(7, b"")).unwrap().0,
            Some(player(7))
        );
        assert_eq!(take(&mut exits, 2, 1, b"x").unwrap().0, Some(player(7)));
        let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0x";
        assert_eq!(take(&mut exits, 3, 1, local), Some((None, b"x".to_vec())));
        assert_eq!(take(&mut exits, 3, 1, b"x").unwrap().0, None);
        assert_eq!(take(&mut exits, 3, 1, &wrapped(7, b"")[..20]), None);
    }

    #[test]
    fn others_are_not_believed_and_lose_nothing() {
        let mut exits = Exits::new(&["192.0.2.2".parse().unwrap()], 8);
        let bytes = wrapped(9, b"hello");
        assert_eq!(take(&mut exits, 0, 1, &bytes), Some((None, bytes.clone())));
        assert!(exits.flows.is_empty());
    }

    /// A full table drops what is new and keeps what is known; a flow that has been silent for longer
    /// than a session may be makes place, and 16 are looked at for each that asks.
    #[test]
    fn exit_flows_max_is_held_and_flows_that_are_over_make_place() {
        let mut exits = Exits::new(&["192.0.2.1".parse().unwrap()], 40);
        for port in 1..=40 {
            assert!(take(&mut exits, 0, port, &wrapped(9, b"")).is_some());
        }
        assert_eq!(take(&mut exits, 1, 41, &wrapped(9, b"")), None);
        assert_eq!(take(&mut exits, 1, 1, b"x").unwrap().0, Some(player(9)));
        // All but the last have spoken meanwhile.
        for port in 1..=39 {
            take(&mut exits, 60_000, port, b"x").unwrap();
        }
        let mut tries = 0;
        while take(&mut exits, 120_001, 41, &wrapped(9, b"")).is_none() {
            tries += 1;
            assert!(tries < 8, "never");
        }
        assert!(tries >= 1, "at most 16 at a time");
        assert_eq!(exits.flows.len(), 40);
        assert_eq!(take(&mut exits, 120_001, 40, b"x").unwrap().0, None);
    }
}
