//! Trusted exits, and the player addresses that they report.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use wire::{Instant, Machine};

use super::application::{PeerAddress, SocketIndex};
use super::counters::Ledger;
use super::intake::Envelope;
use super::proxy_header::{BadHeader, ProxyHeader};

/// Trusted exits, and the player address of each of their flows.
///
/// A flow is an address of an exit and one of our sockets. Only the exit's IP address authenticates
/// a header, so anyone who can forge that address could set the player address of any of its flows.
/// Two rules limit this: an active flow keeps its player address, and a flow without a session can
/// keep its entry from others only for the time of a handshake, however often its header is
/// repeated.
///
/// An exit sends its header until it has received a datagram from us. A datagram without a header
/// soon after we have sent is therefore the player's own, and so is any header at its start. For
/// this reason a flow also counts as active while we send: a session that is about to time out
/// sends to a silent player.
#[derive(Debug, Default)]
pub(super) struct Exits {
    list: Vec<Exit>,
    /// Maximum flows per exit.
    flows_max: usize,
    /// When the machine was last asked for its sessions.
    asked_at: Option<Instant>,
}

#[derive(Debug)]
struct Exit {
    ip: IpAddr,
    flows: BTreeMap<Flow, Told>,
}

/// The exit's port, and our socket.
type Flow = (u16, SocketIndex);

/// State of a flow.
#[derive(Clone, Copy, Debug)]
struct Told {
    source: SocketAddr,
    /// When the entry was created, or last had a session.
    placed_at: Instant,
    /// When a datagram was last received from or sent to the flow.
    moved_at: Instant,
    /// Whether it had a session at the last check.
    has_session: bool,
}

impl Told {
    /// Returns whether the flow may be forgotten.
    fn is_over(&self, now: Instant) -> bool {
        !self.has_session && now.saturating_since(self.placed_at) > HANDSHAKE_MAX
    }

    /// Returns whether the flow was silent for long enough to be reassigned.
    fn is_silent(&self, now: Instant) -> bool {
        now.saturating_since(self.moved_at) > HANDSHAKE_MAX
    }
}

/// Time for a flow's handshake, and silence after which a flow may be reassigned.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Minimum time between two session checks. Each iterates over all sessions and all flows.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

impl Exits {
    pub(super) fn new(trusted: &[IpAddr], flows_max: usize) -> Self {
        let exit = |ip: &IpAddr| Exit {
            ip: ip.to_canonical(),
            flows: BTreeMap::new(),
        };
        Self {
            list: trusted.iter().map(exit).collect(),
            flows_max,
            asked_at: None,
        }
    }

    /// Strips the PROXY header of a datagram from a trusted exit. Returns the player's address, if
    /// known, and the rest of the datagram. Returns `None` if the datagram must be dropped.
    pub(super) fn unwrap<'a, M: Machine<Peer: PeerAddress>>(
        &mut self,
        (now, envelope): (Instant, &Envelope),
        datagram: &'a mut [u8],
        machine: &M,
        ledger: &Ledger,
    ) -> Option<(Option<SocketAddr>, &'a mut [u8])> {
        let ip = envelope.remote.ip();
        let Some(place) = self.list.iter().position(|exit| exit.ip == ip) else {
            return Some((None, datagram));
        };
        let flow = (envelope.remote.port(), envelope.socket);
        let known = self.told(place, flow);
        let header = match ProxyHeader::read(datagram) {
            Ok(Some(header)) => header,
            Ok(None) => {
                let source = known.map(|told| {
                    told.moved_at = now;
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
        let before = known.map(|told| told.source);
        if before != header.source && !self.may_change(now, (place, flow), machine) {
            ledger.dropped_in_exit_taken.add(1);
            return None;
        }
        if before.is_none() && header.source.is_some() && !self.has_place(now, place, machine) {
            ledger.dropped_in_exit_full.add(1);
            return None;
        }
        let flows = &mut self.list.get_mut(place)?.flows;
        match header.source {
            Some(source) => {
                let new = Told {
                    source,
                    placed_at: now,
                    moved_at: now,
                    has_session: false,
                };
                if before == Some(source) {
                    flows.entry(flow).or_insert(new).moved_at = now;
                } else {
                    flows.insert(flow, new);
                }
            }
            None => drop(flows.remove(&flow)),
        }
        Some((header.source, rest))
    }

    fn told(&mut self, place: usize, flow: Flow) -> Option<&mut Told> {
        self.list.get_mut(place)?.flows.get_mut(&flow)
    }

    /// Returns whether a flow may be reassigned to another address.
    fn may_change<M: Machine<Peer: PeerAddress>>(
        &mut self,
        now: Instant,
        (place, flow): (usize, Flow),
        machine: &M,
    ) -> bool {
        let is_silent = |told: &mut Told| told.is_silent(now);
        if self.told(place, flow).is_some_and(is_silent) {
            self.ask(now, machine);
        }
        self.told(place, flow)
            .is_none_or(|told| told.is_silent(now) && !told.has_session)
    }

    /// Records a send to `peer`.
    pub(super) fn note_sent<P: PeerAddress>(&mut self, now: Instant, peer: &P) {
        self.each_of(peer, |told| told.moved_at = now);
    }

    /// Calls `act` for the flows of a peer. If the peer names no socket, there may be several.
    fn each_of<P: PeerAddress>(&mut self, peer: &P, act: impl FnMut(&mut Told)) {
        if self.list.is_empty() {
            return;
        }
        let address = peer.address();
        let ip = address.ip().to_canonical();
        let Some(exit) = self.list.iter_mut().find(|exit| exit.ip == ip) else {
            return;
        };
        let any = (SocketIndex(0), SocketIndex(u32::MAX));
        let (first, last) = peer.socket().map_or(any, |socket| (socket, socket));
        let port = address.port();
        let flows = exit.flows.range_mut((port, first)..=(port, last));
        flows.map(|(_, told)| told).for_each(act);
    }

    /// Returns whether an exit may have another flow. Removes expired flows if the limit is
    /// reached.
    fn has_place<M: Machine<Peer: PeerAddress>>(
        &mut self,
        now: Instant,
        place: usize,
        machine: &M,
    ) -> bool {
        let flows_max = self.flows_max;
        let is_full = |exits: &Self| {
            let exit = exits.list.get(place);
            exit.is_none_or(|exit| exit.flows.len() >= flows_max)
        };
        if is_full(self) && self.ask(now, machine) {
            for exit in &mut self.list {
                exit.flows.retain(|_, told| !told.is_over(now));
            }
        }
        !is_full(self)
    }

    /// Updates which flows have a session, unless that was done within [`ASK_INTERVAL`]. Returns
    /// whether it did.
    fn ask<M: Machine<Peer: PeerAddress>>(&mut self, now: Instant, machine: &M) -> bool {
        let is_due = |at: Instant| now.saturating_since(at) >= ASK_INTERVAL;
        if !self.asked_at.is_none_or(is_due) {
            return false;
        }
        self.asked_at = Some(now);
        for exit in &mut self.list {
            for told in exit.flows.values_mut() {
                told.has_session = false;
            }
        }
        machine.tell_peers(&mut |peer| {
            self.each_of(&peer, |told| {
                (told.has_session, told.placed_at) = (true, now);
            });
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use wire::{Arrival, CommandId, Transmit};

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

    /// A machine with sessions for these addresses.
    #[derive(Default)]
    struct Sessions(Vec<SocketAddr>);

    impl Machine for Sessions {
        type Peer = SocketAddr;
        type Event = ();
        type Command = Infallible;

        fn handle_datagram(&mut self, _: Instant, _: Arrival<SocketAddr>, _: &mut [u8]) {}
        fn tell_peers(&self, tell: &mut dyn FnMut(SocketAddr)) {
            self.0.iter().copied().for_each(tell);
        }
        fn handle_timeout(&mut self, _: Instant) {}
        fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
            match outcome {}
        }
        fn poll_transmit(&mut self, _: Instant, _: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
            None
        }
        fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
            None
        }
        fn poll_event(&mut self) -> Option<()> {
            None
        }
        fn poll_timeout(&self) -> Option<Instant> {
            None
        }
    }

    fn take(
        exits: &mut Exits,
        at: u64,
        port: u16,
        bytes: &[u8],
    ) -> Option<(Option<IpAddr>, Vec<u8>)> {
        take_beside(&Sessions::default(), exits, at, (port, bytes))
    }

    fn take_beside(
        sessions: &Sessions,
        exits: &mut Exits,
        at: u64,
        (port, bytes): (u16, &[u8]),
    ) -> Option<(Option<IpAddr>, Vec<u8>)> {
        let mut bytes = bytes.to_vec();
        let (ledger, now) = (Ledger::default(), Instant::from_millis(at));
        let at = (now, &envelope(port));
        let (source, rest) = exits.unwrap(at, &mut bytes, sessions, &ledger)?;
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
        let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0x";
        assert_eq!(take(&mut exits, 3, 3, local), Some((None, b"x".to_vec())));
        assert_eq!(take(&mut exits, 3, 3, b"x").unwrap().0, None);
        assert_eq!(take(&mut exits, 3, 1, &wrapped(7, b"")[..20]), None);
    }

    /// A forged header cannot reassign an active flow.
    #[test]
    fn a_flow_is_given_to_somebody_else_only_where_it_is_idle() {
        let mut exits = Exits::new(&["192.0.2.1".parse().unwrap()], 8);
        let (taken, open) = (Sessions(vec![envelope(1).remote]), Sessions::default());
        let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0x";
        let change = |sessions: &Sessions, exits: &mut Exits, at| {
            let other = take_beside(sessions, exits, at, (1, &wrapped(7, b"")));
            other.map(|(source, _)| source)
        };
        take(&mut exits, 0, 1, &wrapped(9, b"hello")).unwrap();
        assert_eq!(change(&open, &mut exits, 5_000), None, "it was just heard");
        assert_eq!(take(&mut exits, 5_000, 1, local), None);
        assert_eq!(take(&mut exits, 5_000, 1, b"x").unwrap().0, Some(player(9)));
        assert_eq!(change(&open, &mut exits, 10_000), None, "and again");
        assert_eq!(change(&taken, &mut exits, 60_000), None, "it has a session");
        assert_eq!(change(&open, &mut exits, 60_999), None, "as just asked");
        assert_eq!(change(&open, &mut exits, 61_000), Some(Some(player(7))));
        assert_eq!(
            take(&mut exits, 61_001, 1, b"x").unwrap().0,
            Some(player(7))
        );
    }

    /// A session whose player falls silent at 1 s is sent to until it times out at 11 s. A datagram
    /// without a header is then the player's own, since the exit has received ours, and must not
    /// reassign the flow.
    #[test]
    fn a_flow_that_was_just_sent_to_keeps_whom_it_is_for() {
        let mut exits = Exits::new(&["192.0.2.1".parse().unwrap()], 8);
        let none = Sessions::default();
        take(&mut exits, 0, 1, &wrapped(9, b"hello")).unwrap();
        take(&mut exits, 1_000, 1, b"input").unwrap();
        exits.note_sent(Instant::from_millis(11_000), &envelope(1).remote);
        exits.note_sent(Instant::from_millis(30_000), &envelope(2).remote);
        let forge = |exits: &mut Exits, at| {
            let other = take_beside(&none, exits, at, (1, &wrapped(7, b"hello")));
            other.map(|(source, _)| source)
        };
        assert_eq!(forge(&mut exits, 11_100), None);
        assert_eq!(forge(&mut exits, 16_000), None);
        // By now the exit has received nothing for long, and sends its own header first.
        assert_eq!(forge(&mut exits, 16_001), Some(Some(player(7))));
    }

    #[test]
    fn others_are_not_believed_and_lose_nothing() {
        let mut exits = Exits::new(&["192.0.2.2".parse().unwrap()], 8);
        let bytes = wrapped(9, b"hello");
        assert_eq!(take(&mut exits, 0, 1, &bytes), Some((None, bytes.clone())));
        assert!(exits.list[0].flows.is_empty());
    }

    /// A full table rejects new flows and keeps those with a session. Entries of handshakes older
    /// than 5 s are removed, at most once per second. Each exit has its own table.
    #[test]
    fn exit_flows_max_is_held_and_flows_that_are_over_make_place() {
        let trusted = ["192.0.2.1", "192.0.2.7"].map(|ip| ip.parse().unwrap());
        let mut exits = Exits::new(&trusted, 40);
        for port in 1..=40 {
            assert!(take(&mut exits, 0, port, &wrapped(9, b"")).is_some());
        }
        let players = Sessions((1..=39).map(|port| envelope(port).remote).collect());
        let new = |exits: &mut Exits, at, port| {
            take_beside(&players, exits, at, (port, &wrapped(8, b""))).is_some()
        };
        assert!(!new(&mut exits, 4_500, 41), "all are young");
        // More datagrams of a handshake do not extend its entry, with or without a header.
        take_beside(&players, &mut exits, 4_900, (40, &wrapped(9, b"x"))).unwrap();
        take_beside(&players, &mut exits, 5_000, (40, b"x")).unwrap();
        assert!(!new(&mut exits, 5_001, 41), "it was just asked");
        assert!(new(&mut exits, 5_500, 41));
        assert!(!new(&mut exits, 10_000, 42));
        assert!(new(&mut exits, 60_000, 42));
        assert_eq!(exits.list[0].flows.len(), 40);
        for port in 1..=39 {
            let (source, _) = take_beside(&players, &mut exits, 61_000, (port, b"x")).unwrap();
            assert_eq!(source, Some(player(9)), "a session is never forgotten");
        }
        let mut other = envelope(1);
        other.remote.set_ip("192.0.2.7".parse().unwrap());
        let (ledger, mut bytes) = (Ledger::default(), wrapped(9, b""));
        let at = (Instant::from_millis(61_000), &other);
        assert!(exits.unwrap(at, &mut bytes, &players, &ledger).is_some());
    }
}
