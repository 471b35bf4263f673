//! What the server says.

use wire::Instant;

use super::session::Session;
use super::{ClientPeer, EVENTS_MAX, LEAVE_COPIES, State};
use crate::event::{ClientEvent, CloseReason, LeaveReason, Refusal};
use crate::input::{Input, encode_into};
use crate::message::{Chunk, DecodeError, Down, Turns, Welcome, decode_down_knowing};

impl<I: Input> ClientPeer<I> {
    /// Reads what the server sent; bundles that are here already are not checked again.
    pub(super) fn decode<'a>(&self, datagram: &'a [u8]) -> Result<Down<'a>, DecodeError> {
        let session = self.session();
        let known = |first_low, index| session?.bundle_near(first_low, index);
        decode_down_knowing(datagram, session.map(Session::shape), known)
    }

    pub(super) fn on_welcome(&mut self, now: Instant, welcome: &Welcome) {
        match &mut self.state {
            State::Waiting => {}
            State::Seated {
                session, ready_at, ..
            } => {
                // The server has not heard us: say it again at once, also where turns of a session
                // before this one came meanwhile.
                *ready_at = Some(now);
                if session.lose_seat(welcome) {
                    let Welcome {
                        shape, match_id, ..
                    } = *welcome;
                    self.events.push_back(ClientEvent::Watching {
                        seats: shape.seats,
                        match_id,
                    });
                }
                return;
            }
            State::Leaving { .. } | State::Closed => return,
        }
        let shape = welcome.shape;
        let refusal = if shape.width != I::WIDTH {
            Some(Refusal::Width {
                theirs: shape.width,
            })
        } else if shape.seats > self.config.seats_max
            || shape.bundle_len_max() > usize::from(self.config.bundle_len_max)
        {
            Some(Refusal::TooLarge { seats: shape.seats })
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.events.push_back(ClientEvent::Refused(refusal));
            self.state = State::Leaving {
                reason: LeaveReason::Refused,
                copies: LEAVE_COPIES,
                at: now,
                is_due: false,
            };
            return;
        }
        let mut neutral = Vec::new();
        encode_into(&I::default(), &mut neutral);
        self.state = State::Seated {
            session: Box::new(Session::new(*welcome, neutral, &self.config)),
            ready_at: Some(now),
            is_due: false,
        };
        self.tell_costs();
        let (seats, match_id) = (shape.seats, welcome.match_id);
        self.events.push_back(match welcome.seat {
            Some(seat) => ClientEvent::Welcome {
                seat,
                seats,
                match_id,
            },
            None => ClientEvent::Watching { seats, match_id },
        });
    }

    pub(super) fn on_chunk(&mut self, now: Instant, chunk: &Chunk<'_>) {
        if let State::Seated {
            session, ready_at, ..
        } = &mut self.state
        {
            *ready_at = None;
            let event = self.exchange.on_chunk(now, chunk, session, &self.config);
            self.events.extend(event);
        }
    }

    pub(super) fn on_turns(&mut self, now: Instant, turns: &Turns<'_>) {
        if let State::Seated {
            session, ready_at, ..
        } = &mut self.state
        {
            self.stall.on_heard(now);
            if let Some(ticks) = session.on_turns(now, turns, &mut self.stats)
                && self.events.len() < EVENTS_MAX
            {
                self.events.push_back(ClientEvent::InputDelay { ticks });
            }
            // A spectator hears with its first turns, maybe none yet, that it was heard.
            if session.boundary().is_some() || session.is_spectator() {
                *ready_at = None;
            }
            if let Some(expected) = session.expected() {
                self.events.extend(self.stall.on_turns(now, &expected));
            }
        }
    }

    pub(super) fn on_bye(&mut self, reason: CloseReason) {
        match &self.state {
            State::Seated { .. } | State::Waiting => {
                self.events.push_back(ClientEvent::Closed(reason));
                self.state = State::Closed;
            }
            State::Leaving { .. } => self.state = State::Closed,
            State::Closed => {}
        }
    }
}
