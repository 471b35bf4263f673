//! After a session was touched: its news are passed on, and what has ended is let go of.

use crypto::Provider;
use wire::Instant;

use super::admission::Admitted;
use super::{Endpoint, Slot};
use crate::event::{Event, Proof};
use crate::handshake::half_open::HalfOpen;
use crate::session::Outcome;
use crate::slots::SessionId;

impl<P: Provider> Endpoint<P> {
    /// After a session was touched: passes its news on, and lets it send or frees its slot.
    pub(crate) fn settle(&mut self, now: Instant, id: SessionId) {
        self.pass_on_news(now, id);
        if self.slots.get(id).is_some() {
            self.arm(id);
        }
    }

    /// Passes a session's news on, and frees the slot where it is over and its end was told.
    pub(crate) fn pass_on_news(&mut self, now: Instant, id: SessionId) {
        let Some(Slot::Session(session)) = self.slots.get_mut(id) else {
            return;
        };
        if !session.has_news() {
            if session.take_readable() {
                self.events.push_back(Event::Readable { session: id });
            }
            return;
        }
        while let Some(settled) = session.poll_settled() {
            self.events.push_back(Event::Settled {
                session: id,
                channel: settled.channel,
                message: settled.message,
                outcome: settled.outcome,
            });
        }
        let news = session.take_news();
        let address = session.peer_address();
        if news.moved.is_some() {
            self.move_resettable(id);
            self.events.push_back(Event::AddressChanged {
                session: id,
                address,
            });
        }
        if let Some(Outcome(mtu)) = news.mtu_checked {
            self.events
                .push_back(Event::MtuChecked { session: id, mtu });
        }
        if let Some(realtime_rate) = news.realtime_rate {
            self.events.push_back(Event::RateChanged {
                session: id,
                realtime_rate,
            });
        }
        if news.is_readable {
            self.events.push_back(Event::Readable { session: id });
        }
        if let Some((reason, text)) = news.closed.map(|told| *told) {
            self.judge_end(now, id, reason);
            self.forget_peer(id);
            self.ended.insert(id, false);
            self.events.push_back(Event::Closed {
                session: id,
                reason,
                text,
            });
        }
        if news.is_gone {
            match self.ended.get_mut(&id) {
                Some(is_gone) => *is_gone = true,
                None => self.remove(now, id),
            }
        }
    }

    /// Lets go of the session whose end was told last: whoever heard of it has read what he wanted.
    pub(crate) fn forget_told_end(&mut self) {
        if let Some(id) = self.told_end.take()
            && self.ended.remove(&id) == Some(true)
        {
            self.remove(self.now, id);
        }
    }

    /// Frees a slot and all that points to it.
    pub(crate) fn remove(&mut self, now: Instant, id: SessionId) {
        self.forget_peer(id);
        let Some(slot) = self.slots.remove(now, id) else {
            return;
        };
        self.timers.set(id.index, None);
        match slot {
            Slot::Dial(dial) => {
                self.dials.remove(&dial.hello_id());
            }
            Slot::HalfOpen(half_open) => {
                self.release_half_open(&half_open);
                self.sources.remove(half_open.source.ip());
                if let Admitted::Token(grant) = &half_open.grant {
                    self.tokens.end(grant.token_id);
                }
            }
            Slot::Session(session) => {
                if self.by_address.get(&session.peer_address()) == Some(&id) {
                    self.by_address.remove(&session.peer_address());
                }
                let is_found = self.resettable.remove(&(session.peer_address(), id));
                if session.is_resettable() && !is_found {
                    self.resettable.retain(|(_, other)| *other != id);
                }
                if let Some(source) = session.counted_source() {
                    self.sources.remove(source);
                }
            }
        }
    }

    /// Takes an attempt off the tables that find half-open ones.
    pub(crate) fn release_half_open(&mut self, half_open: &HalfOpen<Admitted>) {
        if let Some(listener) = &mut self.listener {
            listener.release(half_open);
        }
    }

    /// Lets the player or node of a session that has ended come again.
    fn forget_peer(&mut self, id: SessionId) {
        let Some(Slot::Session(session)) = self.slots.get(id) else {
            return;
        };
        match session.proof() {
            Proof::Token(grant) => {
                if self
                    .players
                    .get(&grant.client_id)
                    .is_some_and(|present| present.session == id)
                {
                    self.players.remove(&grant.client_id);
                }
            }
            Proof::Node(node) => {
                if self.nodes.get(node) == Some(&id) {
                    self.nodes.remove(node);
                }
            }
            Proof::Anonymous | Proof::Server(_) => {}
        }
    }
}
