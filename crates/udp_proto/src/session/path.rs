//! Where packets go, and how much may go there before someone there has answered.
//!
//! The first packet of a session may be a copy with a forged source that came before the genuine
//! one. Until the peer acknowledges what was sent to an address, the address follows the newest
//! packet, and gets what came from it and one datagram more; RFC 9000, section 8.1, allows three
//! times as much.

#![warn(clippy::arithmetic_side_effects)]

use core::net::{IpAddr, SocketAddr};

use wire::{Arrival, Transmit};

/// How often the address follows. Each time it may cost one datagram to whoever is there.
const MOVES_MAX: u8 = 8;

/// The address of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    peer: SocketAddr,
    /// The address of ours that packets leave from, where the host has several.
    local: Option<IpAddr>,
    /// What is not yet shown; `None` once the peer has acknowledged what was sent there.
    trial: Option<Trial>,
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
    /// The address that has shown a cookie: it is reached, and gets all it is sent.
    cookie: Option<SocketAddr>,
    moves: u8,
}

impl Path {
    /// The path to a server that has answered from there.
    pub(crate) const fn proved(peer: SocketAddr, local: Option<IpAddr>) -> Self {
        Self {
            peer,
            local,
            trial: None,
        }
    }

    /// The path to where a client's first packet came from. `hello` is what came from there
    /// before and what was sent there, bytes; `cookie` the address that showed a cookie.
    pub(crate) const fn on_trial(
        arrival: &Arrival<SocketAddr>,
        (received, sent): (u64, u64),
        cookie: Option<SocketAddr>,
    ) -> Self {
        Self {
            peer: arrival.peer,
            local: arrival.local,
            trial: Some(Trial {
                received,
                sent,
                since: 0,
                cookie,
                moves: 0,
            }),
        }
    }

    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) const fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// Returns a datagram's way to the peer.
    pub(crate) const fn transmit(&self) -> Transmit<SocketAddr> {
        Transmit {
            source: self.local,
            ..Transmit::to(self.peer)
        }
    }

    /// Takes note of a packet of `len` bytes that opened. `is_newest` where no higher number came
    /// before, `acked` the largest number that the peer has acknowledged, `next` the one that is
    /// sent next.
    pub(crate) fn on_packet(
        &mut self,
        arrival: &Arrival<SocketAddr>,
        (len, is_newest): (u64, bool),
        (acked, next): (Option<u64>, u64),
    ) {
        let Some(trial) = &mut self.trial else { return };
        if arrival.peer == self.peer {
            trial.received = trial.received.saturating_add(len);
            if acked.is_some_and(|acked| acked >= trial.since) {
                self.trial = None;
            }
        } else if is_newest && trial.moves < MOVES_MAX {
            *trial = Trial {
                received: len,
                sent: 0,
                since: next,
                cookie: trial.cookie,
                moves: trial.moves.saturating_add(1),
            };
            self.peer = arrival.peer;
            self.local = arrival.local;
        }
    }

    /// Takes note of bytes that were sent.
    pub(crate) const fn on_sent(&mut self, len: u64) {
        if let Some(trial) = &mut self.trial {
            trial.sent = trial.sent.saturating_add(len);
        }
    }

    /// Returns whether a further datagram may leave.
    pub(crate) fn may_send(&self) -> bool {
        self.trial
            .is_none_or(|trial| trial.cookie == Some(self.peer) || trial.sent <= trial.received)
    }
}
