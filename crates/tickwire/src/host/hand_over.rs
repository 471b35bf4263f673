//! Events on their way to a game on another thread.

use crypto::Ring;
use udp_proto::Endpoint;
use wire::Instant;

use super::Host;
use crate::background::{Offer, Outlet};

/// How a hand-over went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// No message was read.
    Idle,
    /// Messages were read: the endpoint may have credit to tell of.
    HasRead,
    /// Nobody takes events any more.
    Gone,
}

impl Host {
    /// Gives what has happened to `outlet` while that has room; what does not fit waits.
    ///
    /// Messages are read where no other event waits, one of each session in turn.
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
                // One message costs more than 1; who has no more is forgotten.
                if self.read(now, endpoint, session, 1) > 0 {
                    self.readable.push_back(session);
                    outcome = HandOver::HasRead;
                }
                continue;
            };
            // Before it can be taken, and counted off.
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
                    // Whoever takes one after this wakes the driver; one taken before it leaves
                    // room for another try.
                    self.signals.cry_for_room();
                }
            }
        }
    }
}
