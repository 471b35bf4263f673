//! Times of sessions that are open.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::{Endpoint, Slot};
use crate::channel::ChannelId;
use crate::error::NoSession;
use crate::slots::SessionId;
use crate::timeouts::Timeouts;

impl<P: Provider> Endpoint<P> {
    /// Changes the idle timeout and the keepalive of a session, from now on; `connect` says nothing
    /// here. Returns the idle timeout and the keepalive that hold then.
    ///
    /// The peer does not hear of it. So the idle timeout is never longer than what both ends
    /// announced when the session began, nor shorter than three keepalives of the peer's take; and the
    /// keepalive never more than a third of what was announced.
    ///
    /// # Errors
    ///
    /// [`NoSession`] where it is not open.
    pub fn set_timeouts(
        &mut self,
        now: Instant,
        session: SessionId,
        timeouts: &Timeouts,
    ) -> Result<(Duration, Duration), NoSession> {
        let now = self.advance(now);
        match self.slots.get_mut(session) {
            Some(Slot::Session(open)) if open.is_open() => {
                let held = open.set_timeouts(now, timeouts);
                self.arm(session);
                Ok(held)
            }
            Some(Slot::Session(_) | Slot::Dial(_) | Slot::HalfOpen(_)) | None => Err(NoSession),
        }
    }

    /// Changes how long unreliable messages of `channel` may wait in this session, from the next one
    /// on: those that do not say so [themselves](crate::Message::with_ttl). Returns whether there is
    /// such a channel. The session then holds a channel table of its own, some 40 bytes a channel.
    ///
    /// # Errors
    ///
    /// [`NoSession`] where it is not open.
    pub fn set_ttl(
        &mut self,
        session: SessionId,
        channel: ChannelId,
        ttl: Duration,
    ) -> Result<bool, NoSession> {
        match self.slots.get_mut(session) {
            Some(Slot::Session(open)) if open.is_open() => Ok(open.set_ttl(channel, ttl)),
            Some(Slot::Session(_) | Slot::Dial(_) | Slot::HalfOpen(_)) | None => Err(NoSession),
        }
    }
}
