//! The check that a path carries datagrams of a given size, at the session's start.
//!
//! PING and padding up to the size, three times at the most; RFC 8899 without the search. Links of
//! the mesh ask for 1,280 bytes (architecture.md, decision 12).

use crypto::Aead;
use wire::{Instant, Transmit};

use core::net::SocketAddr;

use super::{Content, Session};
use crate::config::Mtu;
use crate::frame::{Elicits, Frame};
use crate::sent::{Cargo, SentPacket};

/// How far the check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MtuCheck {
    /// None was asked for, or it is over.
    Idle,
    /// A probe waits to be sent.
    Due { mtu: Mtu, left: u8 },
    /// A probe is in flight.
    InFlight { mtu: Mtu, left: u8 },
}

/// What a check found: the size that the path carries, `None` where not the one asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome(pub(crate) Option<Mtu>);

/// How many probes may be lost; RFC 8899, section 5.1.2.
const PROBES: u8 = 3;

impl MtuCheck {
    /// Starts where a size is asked for that is not known to be carried.
    pub(super) const fn new(wanted: Option<Mtu>, known: u16) -> Self {
        match wanted {
            Some(mtu) if mtu.get() > known => Self::Due { mtu, left: PROBES },
            Some(_) | None => Self::Idle,
        }
    }

    /// Takes the loss of a probe; returns whether the check has failed.
    pub(super) const fn on_lost(&mut self) -> bool {
        let Self::InFlight { mtu, left } = *self else {
            return false;
        };
        if left == 0 {
            *self = Self::Idle;
            return true;
        }
        *self = Self::Due { mtu, left };
        false
    }

    /// Takes the acknowledgement of a probe; returns the size that the path carries.
    pub(super) const fn on_acknowledged(&mut self) -> Option<Mtu> {
        match *self {
            Self::InFlight { mtu, .. } | Self::Due { mtu, .. } => {
                *self = Self::Idle;
                Some(mtu)
            }
            Self::Idle => None,
        }
    }
}

impl<A: Aead> Session<A> {
    /// Appends the probe that is due.
    pub(super) fn poll_mtu_probe(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit<SocketAddr>> {
        let MtuCheck::Due { mtu, left } = self.mtu_check else {
            return None;
        };
        // CONFIRM goes first: what comes before it is not heard.
        if self.confirm.is_some() || self.sent.push(Content::MtuProbe).is_err() {
            return None;
        }
        let packet = self.begin(buf, mtu.get());
        Frame::Ping.encode(buf);
        buf.resize(packet.end(), 0);
        let Some(number) = self.finish(buf, &packet) else {
            self.sent.discard();
            return None;
        };
        self.mtu_check = MtuCheck::InFlight {
            mtu,
            left: left.saturating_sub(1),
        };
        let sent = SentPacket {
            number,
            at: now,
            len: mtu.get(),
            elicits: Elicits::Ack,
            cargo: Cargo::Probe,
            described: None,
        };
        self.on_sent(now, sent, 0);
        Some(self.transmit())
    }
}
