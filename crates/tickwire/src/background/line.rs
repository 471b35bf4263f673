//! What a game's thread and the thread of its socket share.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::Arc;

use servicer::{Clock, RequestError, Requests};
use udp_proto::{ChannelId, ChannelTable, SendError, SessionId};
use wire::Instant;

use crate::Event;
use crate::socket::Socket;

/// What the game asks of the thread.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send a message, for which there is allowance.
    Send(SessionId, ChannelId, Box<[u8]>),
    /// End a session.
    Disconnect(SessionId),
}

/// Where the thread puts events.
pub(crate) trait Outlet {
    /// Puts one in, without waiting.
    fn offer(&self, event: Event) -> Result<(), Offer>;
}

/// Why an event was not taken.
#[derive(Debug)]
pub(crate) enum Offer {
    /// There is no room.
    Full(Event),
    /// Nobody will take it any more.
    Gone,
}

/// The way to the thread of a socket. Copies share it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    requests: Requests<Order>,
    channels: ChannelTable,
    pub(crate) signals: Arc<Signals>,
}

/// What both threads look at.
#[derive(Debug)]
pub(crate) struct Signals {
    pub(crate) allowance: Allowance,
    /// An event found no room: whoever takes one wakes the thread.
    is_crowded: AtomicBool,
    /// When the thread shall have ended, in nanoseconds.
    stop_at_nanos: AtomicU64,
}

impl Line {
    pub(crate) fn to(socket: &Socket) -> Self {
        Self {
            requests: socket.requests(),
            channels: socket.channels().clone(),
            signals: socket.signals(),
        }
    }

    /// Queues a message.
    pub(crate) fn send(
        &self,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.check(channel, message)?;
        if !self.signals.allowance.take(message.len()) {
            return Err(SendError::Full);
        }
        self.queue(session, channel, message)
    }

    /// Refuses what the channel would refuse whenever it came.
    pub(crate) fn check(&self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        let row = self.channels.get(channel);
        let row = row.ok_or(SendError::UnknownChannel(channel))?;
        let (len, max) = (message.len(), row.message_bytes_max);
        if len > max {
            return Err(SendError::TooLarge { len, max });
        }
        Ok(())
    }

    /// Queues a message for which allowance was taken.
    pub(crate) fn queue(
        &self,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        let order = Order::Send(session, channel, message.into());
        self.order(order, message.len())
    }

    /// Asks for the end of a session.
    pub(crate) fn disconnect(&self, session: SessionId) -> Result<(), SendError> {
        if !self.signals.allowance.take(0) {
            return Err(SendError::Full);
        }
        self.order(Order::Disconnect(session), 0)
    }

    fn order(&self, order: Order, len: usize) -> Result<(), SendError> {
        self.requests.send(order).map_err(|refused| {
            self.signals.allowance.give_back(len);
            match refused {
                // The queue has room for all orders that there is allowance for.
                RequestError::Full(_) => SendError::Full,
                RequestError::Ended(_) => SendError::Closed,
            }
        })
    }

    /// Takes note that the game has taken an event.
    pub(crate) fn on_taken(&self) {
        if self.signals.is_crowded.swap(false, Ordering::AcqRel) {
            self.requests.wake();
        }
    }

    /// Asks the thread to end in order within `within`.
    pub(crate) fn stop(&self, within: Duration) {
        let at = Clock::new().now() + within;
        self.signals
            .stop_at_nanos
            .fetch_min(at.as_nanos(), Ordering::AcqRel);
        self.requests.wake();
    }
}

impl Signals {
    /// Returns when the thread shall have ended, once it was asked to.
    pub(crate) fn stop_at(&self) -> Option<Instant> {
        match self.stop_at_nanos.load(Ordering::Acquire) {
            u64::MAX => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    /// Returns what frees all waiting senders when it is dropped.
    pub(crate) const fn announce_end(&self) -> Ended<'_> {
        Ended(self)
    }

    /// Says that an event found no room; whoever takes one from now on wakes the thread.
    pub(crate) fn cry_for_room(&self) {
        self.is_crowded.store(true, Ordering::Release);
    }
}

/// Frees all that wait for room when it is dropped, however the thread ends.
#[derive(Debug)]
pub(crate) struct Ended<'a>(&'a Signals);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.allowance.open();
    }
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            allowance: Allowance::default(),
            is_crowded: AtomicBool::new(false),
            stop_at_nanos: AtomicU64::new(u64::MAX),
        }
    }
}

/// Room for messages on their way from the game to the endpoint's queues.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: AtomicUsize,
    /// Tells those who wait that some was given back.
    #[cfg(feature = "tokio")]
    returned: tokio::sync::Notify,
}

/// Bytes in all.
const ALLOWANCE: usize = 4 << 20;
/// What an order takes beside a message's bytes, so that 4,096 orders take all there is: the queue
/// of the driver has room for so many.
const COST: usize = 1_024;

impl Allowance {
    /// Takes room for a message of `len` bytes; returns whether there was so much.
    pub(crate) fn take(&self, len: usize) -> bool {
        let cost = cost(len);
        self.left
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
                left.checked_sub(cost)
            })
            .is_ok()
    }

    /// Gives back what was taken for a message of `len` bytes.
    pub(crate) fn give_back(&self, len: usize) {
        self.left.fetch_add(cost(len), Ordering::AcqRel);
        #[cfg(feature = "tokio")]
        self.returned.notify_waiters();
    }

    /// Has room for everyone from now on.
    fn open(&self) {
        self.left.store(usize::MAX / 2, Ordering::Release);
        #[cfg(feature = "tokio")]
        self.returned.notify_waiters();
    }

    /// Takes room for a message of `len` bytes, when there is.
    #[cfg(feature = "tokio")]
    pub(crate) async fn take_when_there_is(&self, len: usize) {
        loop {
            let returned = self.returned.notified();
            let mut returned = core::pin::pin!(returned);
            // From here on, what is given back is heard of.
            returned.as_mut().enable();
            if self.take(len) {
                return;
            }
            returned.await;
        }
    }

    /// Returns whether all of it is free.
    #[cfg(test)]
    pub(crate) fn is_whole(&self) -> bool {
        self.left.load(Ordering::Acquire) == ALLOWANCE
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            left: AtomicUsize::new(ALLOWANCE),
            #[cfg(feature = "tokio")]
            returned: tokio::sync::Notify::new(),
        }
    }
}

/// What a message takes; one of 4 MiB and more takes all there is.
const fn cost(len: usize) -> usize {
    let cost = len.saturating_add(COST);
    if cost < ALLOWANCE { cost } else { ALLOWANCE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u17_the_drivers_queue_has_room_for_all_that_there_is_allowance_for() {
        let allowance = Allowance::default();
        let orders = core::iter::repeat_with(|| allowance.take(0)).take_while(|taken| *taken);
        let requests_max = servicer::Config::default().requests_max.get();
        assert_eq!(orders.count(), requests_max);
        assert!(!allowance.take(0));
        for _ in 0..requests_max {
            allowance.give_back(0);
        }
        assert!(allowance.is_whole());
        // The longest message that a channel may allow finds room once all is free.
        assert!(allowance.take(8 << 20));
        assert!(!allowance.take(0));
    }
}
