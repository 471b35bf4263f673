//! Delivery of events to a game on another thread.

use crypto::Ring;
use udp_proto::Endpoint;
use wire::Instant;

use super::Host;
use crate::background::{Offer, Outlet};

/// Result of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// No message was read.
    Idle,
    /// Messages were read, so the endpoint may have credit to send.
    HasRead,
    /// The receiver is gone.
    Gone,
}

impl Host {
    /// Moves events to `outlet` while it has room; the others wait.
    ///
    /// Messages are read only if no other event waits, one per session in turn.
    pub(crate) fn hand_over(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        outlet: &impl Outlet,
    ) -> HandOver {
        let mut has_cried = false;
        let mut outcome = HandOver::Idle;
        loop {
            if self.signals.is_laden() {
                if core::mem::replace(&mut has_cried, true) {
                    return outcome;
                }
                self.signals.cry_for_room();
                continue;
            }
            let Some(event) = self.events.pop_front() else {
                self.last_words = 0;
                let Some(session) = self.readable.pop_front() else {
                    return outcome;
                };
                // One message costs more than 1. A session without a message leaves the list.
                if self.read(now, endpoint, session, 1) > 0 {
                    self.readable.push_back(session);
                    outcome = HandOver::HasRead;
                }
                continue;
            };
            // Counted before it can be taken and subtracted.
            self.signals.load(&event);
            match outlet.offer(event) {
                Ok(()) => {}
                Err(Offer::Gone) => return HandOver::Gone,
                Err(Offer::Full(event)) => {
                    self.signals.lighten(&event);
                    self.events.push_front(event);
                    if core::mem::replace(&mut has_cried, true) {
                        return outcome;
                    }
                    // Taking an event after this wakes the driver. An event taken before it left
                    // room, so the loop tries once more.
                    self.signals.cry_for_room();
                }
            }
        }
    }
}
