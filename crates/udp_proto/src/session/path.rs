//! Where packets go, and how much may go there before someone there has answered.
//!
//! The first packet of a session may be a copy with a forged source that came before the genuine
//! one. Until the peer acknowledges what was sent to an address, the address follows the newest
//! packet, and gets what came from it and one datagram more; RFC 9000, section 8.1, allows three
//! times as much. From then on an address is challenged before the session moves there.

mod migration;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use wire::{Arrival, Generator, Instant, Transmit};

pub(super) use migration::CHALLENGE_LEN_MAX;
use migration::{KNOWN_RATE, Migration, Pace, UNKNOWN_RATE};

/// How often the address follows. Each time it may cost one datagram to whoever is there.
const MOVES_MAX: u8 = 8;

/// The address of the peer.
#[derive(Debug)]
pub(crate) struct Path {
    route: Route,
    stage: Stage,
    /// What is looked at of packets from addresses that nobody of this session was heard at.
    unknown_pace: Pace,
    /// What there is beside the address that packets go to; made when the peer is heard elsewhere.
    migration: Option<Box<Migration>>,
}

/// Both ends of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    peer: SocketAddr,
    /// The address of ours that packets leave from, where the host has several.
    local: Option<IpAddr>,
}

/// What is known of the address that packets go to.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// It is the server's that we dialled: it does not move.
    Fixed,
    /// Nothing sent there was acknowledged.
    Trial(Trial),
    /// The peer has answered from there.
    Proved,
}

/// An address from which nothing sent there was acknowledged.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Bytes that came from it.
    received: u64,
    /// Bytes sent to it.
    sent: u64,
    /// Number of the first packet that may have gone there.
    since: u64,
    /// The address that the handshake reached: it gets all it is sent.
    reached: SocketAddr,
    moves: u8,
}

/// A packet that opened.
pub(super) struct OpenedPacket<'a> {
    pub(super) now: Instant,
    pub(super) arrival: &'a Arrival<SocketAddr>,
    /// Bytes of its datagram.
    pub(super) len: u64,
    /// No higher number came before.
    pub(super) is_newest: bool,
    /// The largest number that the peer has acknowledged.
    pub(super) acked: Option<u64>,
    /// The number that is sent next.
    pub(super) next: u64,
    /// How long an answer may take.
    pub(super) pto: Duration,
}

/// The session's address has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    /// Where the peer is now; its real address where a trusted exit told it.
    pub(super) address: SocketAddr,
    pub(super) span: Span,
    /// How long the challenge took, where it was sent once.
    pub(super) round_trip: Option<Duration>,
}

/// How far an address is from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// Another port of one host: a NAT has bound the peer anew, the way is the same.
    Port,
    /// Another host, by another way.
    Host,
}

impl Path {
    /// The path to a server that has answered from there.
    pub(crate) const fn fixed(peer: SocketAddr, local: Option<IpAddr>) -> Self {
        Self::new(Route { peer, local }, Stage::Fixed)
    }

    /// The path to where a client's first packet came from. `hello` is what came from there
    /// before and what was sent there, bytes; `reached` the address that the handshake reached.
    pub(crate) const fn on_trial(
        arrival: &Arrival<SocketAddr>,
        (received, sent): (u64, u64),
        reached: SocketAddr,
    ) -> Self {
        let trial = Trial {
            received,
            sent,
            since: 0,
            reached,
            moves: 0,
        };
        Self::new(Route::of(arrival), Stage::Trial(trial))
    }

    const fn new(route: Route, stage: Stage) -> Self {
        Self {
            route,
            stage,
            unknown_pace: Pace::IDLE,
            migration: None,
        }
    }

    pub(crate) const fn peer(&self) -> SocketAddr {
        self.route.peer
    }

    pub(crate) const fn local(&self) -> Option<IpAddr> {
        self.route.local
    }

    /// Returns whether the peer has answered from the address that packets go to.
    pub(crate) const fn is_proved(&self) -> bool {
        matches!(self.stage, Stage::Proved)
    }

    /// Returns a datagram's way to the peer.
    pub(crate) const fn transmit(&self) -> Transmit<SocketAddr> {
        self.route.transmit()
    }

    /// Returns whether packets go to `peer`.
    pub(super) fn is_current(&self, peer: &SocketAddr) -> bool {
        *peer == self.route.peer
    }

    /// Returns whether a packet from `peer` changes nothing: it is where packets go, that is proved,
    /// and there is no other address.
    pub(super) fn is_settled_at(&self, peer: &SocketAddr) -> bool {
        matches!(self.stage, Stage::Fixed | Stage::Proved)
            && self.migration.is_none()
            && self.is_current(peer)
    }

    /// Returns whether a packet from `peer` is opened, where packets do not go. What comes from elsewhere than the session's
    /// address is rationed, so that a forger's packets cost a bounded number of opens and take
    /// nothing from the true path; TWP/1, section 8.
    pub(super) fn admits(&mut self, now: Instant, peer: SocketAddr) -> bool {
        let known = self
            .migration
            .as_deref_mut()
            .and_then(|migration| migration.pace_of(peer));
        match known {
            Some(pace) => pace.take(now, KNOWN_RATE),
            None => self.unknown_pace.take(now, UNKNOWN_RATE),
        }
    }

    /// Takes note of a packet that opened; returns where the session goes, where that moves it.
    pub(super) fn on_packet(&mut self, packet: &OpenedPacket<'_>) -> Option<Move> {
        match &mut self.stage {
            Stage::Fixed => None,
            Stage::Trial(trial) if packet.arrival.peer == self.route.peer => {
                trial.received = trial.received.saturating_add(packet.len);
                if packet.acked.is_some_and(|acked| acked >= trial.since) {
                    self.stage = Stage::Proved;
                }
                None
            }
            Stage::Trial(trial) if trial.moves < MOVES_MAX => {
                if !packet.is_newest {
                    return None;
                }
                *trial = Trial {
                    received: packet.len,
                    sent: 0,
                    since: packet.next,
                    reached: trial.reached,
                    moves: trial.moves.saturating_add(1),
                };
                self.route = Route::of(packet.arrival);
                Some(Move {
                    address: real_address(packet.arrival),
                    span: Span::Port,
                    round_trip: None,
                })
            }
            Stage::Trial(_) | Stage::Proved => self.migrate(packet),
        }
    }

    /// Takes note of a packet of a session that is closing, which follows nobody.
    pub(super) fn on_last_packet(&mut self, from: SocketAddr, len: u64) {
        if let Stage::Trial(trial) = &mut self.stage
            && from == self.route.peer
        {
            trial.received = trial.received.saturating_add(len);
        }
    }

    /// Takes note of a packet of a peer that may only move by way of a challenge.
    fn migrate(&mut self, packet: &OpenedPacket<'_>) -> Option<Move> {
        if packet.arrival.peer == self.route.peer {
            if let Some(migration) = &mut self.migration {
                migration.on_current(packet.now);
            }
            return None;
        }
        if self.migration.is_none() && !packet.is_newest {
            return None;
        }
        let migration = self
            .migration
            .get_or_insert_with(|| Box::new(Migration::new(packet.now)));
        let is_proved = matches!(self.stage, Stage::Proved);
        let back = migration.on_elsewhere(packet, (self.route, is_proved))?;
        let span = self.route.span(back);
        self.route = Route::of(packet.arrival);
        self.stage = Stage::Proved;
        Some(Move {
            address: real_address(packet.arrival),
            span,
            round_trip: None,
        })
    }

    /// Takes the answer to a challenge that came from `from`; returns where the session goes, where
    /// that moves it.
    pub(super) fn on_response(
        &mut self,
        now: Instant,
        (from, token): (SocketAddr, [u8; 8]),
        pto: Duration,
    ) -> Option<Move> {
        let is_proved = matches!(self.stage, Stage::Proved);
        let migration = self.migration.as_deref_mut()?;
        if from == self.route.peer {
            migration.on_current_answer(token);
            return None;
        }
        let won = migration.on_candidate_answer(now, from, token)?;
        migration.leave(now, (self.route, is_proved), (won.route, pto));
        let span = self.route.span(won.route);
        self.route = won.route;
        self.stage = Stage::Proved;
        Some(Move {
            address: won.address,
            span,
            round_trip: won.round_trip,
        })
    }

    /// Returns the challenge that is due, and where it goes; notes that it is sent.
    pub(super) fn poll_challenge(
        &mut self,
        now: Instant,
        generator: &mut Generator,
        pto: Duration,
    ) -> Option<([u8; 8], Transmit<SocketAddr>)> {
        let migration = self.migration.as_deref_mut()?;
        let (token, to) = migration.poll_challenge(now, generator, pto)?;
        Some((token, to.unwrap_or(self.route).transmit()))
    }

    /// Appends the copy that waits of the last packet, for another address than the session's.
    pub(super) fn poll_copy(&mut self, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        let route = self.migration.as_deref_mut()?.poll_copy(buf)?;
        Some(route.transmit())
    }

    /// Counts a datagram of `len` bytes that was sent to the session's address.
    pub(super) fn count_sent(&mut self, len: usize) {
        if let Stage::Trial(trial) = &mut self.stage {
            let len = u64::try_from(len).unwrap_or(u64::MAX);
            trial.sent = trial.sent.saturating_add(len);
        }
    }

    /// Takes note of a datagram that was sent to the session's address, and copies it where another
    /// address is to get it too; returns whether one is.
    pub(super) fn on_sent(&mut self, now: Instant, datagram: &[u8]) -> bool {
        self.count_sent(datagram.len());
        self.migration
            .as_mut()
            .is_some_and(|migration| migration.copy(now, datagram))
    }

    /// Returns whether a further datagram may leave for the session's address.
    pub(super) fn may_send(&self) -> bool {
        match &self.stage {
            Stage::Fixed | Stage::Proved => true,
            Stage::Trial(trial) => trial.reached == self.route.peer || trial.sent <= trial.received,
        }
    }

    /// Returns whether there are addresses beside the session's.
    pub(super) const fn is_migrating(&self) -> bool {
        self.migration.is_some()
    }

    /// Returns when the next challenge is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.migration.as_deref()?.poll_timeout()
    }

    /// Gives back what a change of address took, where it is over.
    pub(super) fn shrink(&mut self, now: Instant) {
        if let Some(migration) = &mut self.migration
            && migration.is_over(now)
        {
            self.migration = None;
        }
    }

    /// Returns about how many bytes of memory are held beside the path itself.
    pub(super) fn memory(&self) -> usize {
        self.migration.as_deref().map_or(0, Migration::memory)
    }
}

impl Route {
    const fn of(arrival: &Arrival<SocketAddr>) -> Self {
        Self {
            peer: arrival.peer,
            local: arrival.local,
        }
    }

    const fn transmit(self) -> Transmit<SocketAddr> {
        Transmit {
            source: self.local,
            ..Transmit::to(self.peer)
        }
    }

    fn span(self, other: Self) -> Span {
        if self.peer.ip().to_canonical() == other.peer.ip().to_canonical() {
            Span::Port
        } else {
            Span::Host
        }
    }
}

/// What the application is told: the player's own address where a trusted exit knows it.
fn real_address(arrival: &Arrival<SocketAddr>) -> SocketAddr {
    arrival.real_source.unwrap_or(arrival.peer)
}
