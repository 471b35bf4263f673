//! Going on with another server that took over the match.

#![warn(clippy::arithmetic_side_effects)]

use wire::Instant;

use super::{ClientPeer, State};
use crate::input::Input;
use crate::match_server::Past;
use crate::message::{Bundles, Welcome};
use crate::{PeerId, Tick};

impl<I: Input> ClientPeer<I> {
    /// Goes on with `server`, which closes `next` and all later ticks. What is held of those, and
    /// inputs stamped for what is not held yet, are forgotten.
    pub(crate) fn migrate(&mut self, now: Instant, server: PeerId, next: Tick) {
        self.reconnect(now, server);
        if let State::Seated { session, .. } = &mut self.state {
            session.begin_anew(next);
        }
    }

    /// Returns what the match is, where the welcome came.
    pub(crate) fn welcome(&self) -> Option<&Welcome> {
        self.session().map(super::session::Session::welcome)
    }

    /// Returns all that is closed, as far as it is held; `None` before the welcome.
    pub(crate) fn past(&self) -> Option<Past<'_>> {
        Some(self.session()?.past())
    }

    /// Takes closed ticks that another player passed on, those before `end`.
    pub(crate) fn take_closed(
        &mut self,
        now: Instant,
        first: Tick,
        end: Tick,
        bundles: &Bundles<'_>,
    ) {
        if let State::Seated { session, .. } = &mut self.state {
            session.take_closed(now, (first, end), bundles, &mut self.stats);
        }
    }

    /// Appends the bundles of closed ticks from `first` on to `buf`, as many as are `len_max` bytes;
    /// returns how many.
    pub(crate) fn write_closed(&self, first: Tick, len_max: usize, buf: &mut Vec<u8>) -> u32 {
        let Some(session) = self.session() else {
            return 0;
        };
        let start = buf.len();
        let mut tick = first;
        while tick < session.end()
            && let Some(bundle) = session.bundle(tick)
            && buf.len().saturating_sub(start).saturating_add(bundle.len()) <= len_max
        {
            buf.extend_from_slice(bundle);
            tick = tick.plus(1);
        }
        tick.since(first)
    }
}
