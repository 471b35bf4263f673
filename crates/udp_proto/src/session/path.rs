//! The session's path, and the amplification limit until its address is validated.
//!
//! The first packet of a session may be a copy with a forged source address that arrived before the
//! original. Until the peer acknowledges a packet sent to its address, the address follows the
//! newest packet, and may be sent the bytes received from it plus one datagram; RFC 9000, section
//! 8.1, allows three times as much. Later changes of address require a challenge.

mod migration;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use wire::{Arrival, Generator, Instant, Transmit};

pub(super) use migration::CHALLENGE_LEN_MAX;
use migration::{KNOWN_RATE, Migration, PacketLimiter, UNKNOWN_RATE};

/// How often an unvalidated address may change. Each change may send one datagram to a third party.
const MOVES_MAX: u8 = 8;

#[derive(Debug)]
pub(crate) struct Path {
    route: Route,
    stage: ValidationState,
    /// Limits packets from addresses unknown to this session.
    unknown_pace: PacketLimiter,
    /// State of other addresses; allocated when a packet arrives from one.
    migration: Option<Box<Migration>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    peer: SocketAddr,
    local: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug)]
enum ValidationState {
    /// The dialled server's address, which never changes.
    Fixed,
    Trial(Trial),
    Proved,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    received: u64,
    sent: u64,
    /// The first packet number that may have been sent to it.
    since: u64,
    /// The address that completed the handshake; it is not limited.
    reached: SocketAddr,
    moves: u8,
}

pub(super) struct OpenedPacket<'a> {
    pub(super) now: Instant,
    pub(super) arrival: &'a Arrival<SocketAddr>,
    /// Datagram length in bytes.
    pub(super) len: u64,
    /// No higher number was received before.
    pub(super) is_newest: bool,
    pub(super) acked: Option<u64>,
    pub(super) next: u64,
    pub(super) pto: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) address: SocketAddr,
    pub(super) span: Span,
    /// The RTT of the challenge, if it was sent once.
    pub(super) round_trip: Option<Duration>,
}

/// How far the peer moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// Another port of the same host: a NAT rebinding, the path is the same.
    Port,
    /// Another host; the path is new.
    Host,
}

impl Path {
    pub(crate) const fn fixed(peer: SocketAddr, local: Option<IpAddr>) -> Self {
        Self::new(Route { peer, local }, ValidationState::Fixed)
    }

    /// The path to the source of a first packet, with the bytes received from and sent to it
    /// before. `reached` is the address that completed the handshake.
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
        Self::new(Route::of(arrival), ValidationState::Trial(trial))
    }

    const fn new(route: Route, stage: ValidationState) -> Self {
        Self {
            route,
            stage,
            unknown_pace: PacketLimiter::IDLE,
            migration: None,
        }
    }

    pub(crate) const fn peer(&self) -> SocketAddr {
        self.route.peer
    }

    pub(crate) const fn local(&self) -> Option<IpAddr> {
        self.route.local
    }

    pub(crate) const fn is_proved(&self) -> bool {
        matches!(self.stage, ValidationState::Proved)
    }

    pub(crate) const fn transmit(&self) -> Transmit<SocketAddr> {
        self.route.transmit()
    }

    pub(super) fn is_current(&self, peer: &SocketAddr) -> bool {
        *peer == self.route.peer
    }

    /// Returns whether a packet from `peer` changes nothing: the validated address, and no other
    /// known.
    pub(super) fn is_unchanged_by(&self, peer: &SocketAddr) -> bool {
        matches!(self.stage, ValidationState::Fixed | ValidationState::Proved)
            && self.migration.is_none()
            && self.is_current(peer)
    }

    /// Returns whether to decrypt a packet from another address. These are rate limited, so that
    /// forged ones cost a bounded number of decryptions; TWP/1, section 8.
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

    pub(super) fn on_packet(&mut self, packet: &OpenedPacket<'_>) -> Option<Move> {
        match &mut self.stage {
            ValidationState::Fixed => None,
            ValidationState::Trial(trial) if packet.arrival.peer == self.route.peer => {
                trial.received = trial.received.saturating_add(packet.len);
                if packet.acked.is_some_and(|acked| acked >= trial.since) {
                    self.stage = ValidationState::Proved;
                }
                None
            }
            ValidationState::Trial(trial) if trial.moves < MOVES_MAX => {
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
            ValidationState::Trial(_) | ValidationState::Proved => self.migrate(packet),
        }
    }

    /// Processes a packet of a closing session; its address no longer changes.
    pub(super) fn on_last_packet(&mut self, from: SocketAddr, len: u64) {
        if let ValidationState::Trial(trial) = &mut self.stage
            && from == self.route.peer
        {
            trial.received = trial.received.saturating_add(len);
        }
    }

    /// Processes a packet of a session that moves only after a challenge.
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
        let is_proved = matches!(self.stage, ValidationState::Proved);
        let back = migration.on_off_path_packet(packet, (self.route, is_proved))?;
        let span = self.route.span(back);
        self.route = Route::of(packet.arrival);
        self.stage = ValidationState::Proved;
        Some(Move {
            address: real_address(packet.arrival),
            span,
            round_trip: None,
        })
    }

    pub(super) fn on_response(
        &mut self,
        now: Instant,
        (from, token): (SocketAddr, [u8; 8]),
        pto: Duration,
    ) -> Option<Move> {
        let is_proved = matches!(self.stage, ValidationState::Proved);
        let migration = self.migration.as_deref_mut()?;
        if from == self.route.peer {
            migration.on_current_answer(token);
            return None;
        }
        let validated = migration.on_candidate_answer(now, from, token)?;
        migration.move_to(now, (self.route, is_proved), (validated.route, pto));
        let span = self.route.span(validated.route);
        self.route = validated.route;
        self.stage = ValidationState::Proved;
        Some(Move {
            address: validated.address,
            span,
            round_trip: validated.round_trip,
        })
    }

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

    /// Appends the pending copy of the last packet for another address.
    pub(super) fn poll_copy(&mut self, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        let route = self.migration.as_deref_mut()?.poll_copy(buf)?;
        Some(route.transmit())
    }

    pub(super) fn count_sent(&mut self, len: usize) {
        if let ValidationState::Trial(trial) = &mut self.stage {
            let len = u64::try_from(len).unwrap_or(u64::MAX);
            trial.sent = trial.sent.saturating_add(len);
        }
    }

    /// Records a sent datagram, and copies it if another address must receive it too. Returns
    /// whether.
    pub(super) fn on_sent(&mut self, now: Instant, datagram: &[u8]) -> bool {
        self.count_sent(datagram.len());
        self.migration
            .as_mut()
            .is_some_and(|migration| migration.copy(now, datagram))
    }

    pub(super) fn may_send(&self) -> bool {
        match &self.stage {
            ValidationState::Fixed | ValidationState::Proved => true,
            ValidationState::Trial(trial) => {
                trial.reached == self.route.peer || trial.sent <= trial.received
            }
        }
    }

    pub(super) const fn is_migrating(&self) -> bool {
        self.migration.is_some()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.migration.as_deref()?.poll_timeout()
    }

    pub(super) fn shrink(&mut self, now: Instant) {
        if let Some(migration) = &mut self.migration
            && migration.is_expired(now)
        {
            self.migration = None;
        }
    }

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

fn real_address(arrival: &Arrival<SocketAddr>) -> SocketAddr {
    arrival.real_source.unwrap_or(arrival.peer)
}
