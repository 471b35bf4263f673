//! The application of a servicer for members.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use wire::{CommandId, ConnectionId, Instant};

use super::desk::Desk;
use super::dest::Dest;
use super::event::MemberId;
use super::mailbox::Mailbox;
use super::news::{News, ServicerNumber};
use crate::tcp::{Dial, DialError, OpenConnection, StreamApplication};

/// Requests of the server to a servicer.
#[derive(Debug)]
pub(super) enum Order {
    /// Serve this connection.
    Adopt {
        member: MemberId,
        connection: OpenConnection,
        welcome: Bytes,
    },
    Send {
        dest: Dest,
        payload: Bytes,
    },
    Dismiss {
        member: MemberId,
        reason: Bytes,
    },
}

/// The application of a servicer for members.
#[derive(Debug)]
pub(super) struct Worker {
    number: ServicerNumber,
    mailbox: Mailbox<News>,
    arrivals: VecDeque<OpenConnection>,
    /// The shutdown reason for members.
    farewell: Arc<OnceLock<Bytes>>,
}

impl Worker {
    pub(super) const fn new(
        number: ServicerNumber,
        mailbox: Mailbox<News>,
        farewell: Arc<OnceLock<Bytes>>,
    ) -> Self {
        Self {
            number,
            mailbox,
            arrivals: VecDeque::new(),
            farewell,
        }
    }
}

impl Drop for Worker {
    /// Reports the end of the servicer, whatever its cause, as its last event.
    fn drop(&mut self) {
        self.mailbox.put(0, News::Ended(self.number));
    }
}

impl StreamApplication<Desk> for Worker {
    type Request = Order;

    fn apply_request(&mut self, _: Instant, desk: &mut Desk, order: Order) -> ControlFlow<()> {
        match order {
            Order::Adopt {
                member,
                connection,
                welcome,
            } => {
                desk.expect(member, welcome);
                self.arrivals.push_back(connection);
            }
            Order::Send { dest, payload } => desk.send(dest, payload),
            Order::Dismiss { member, reason } => desk.dismiss(member, reason),
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut Desk, news: News) {
        self.mailbox.put(news.bytes(), news);
    }

    fn on_command(
        &mut self,
        _: Instant,
        _: &mut Desk,
        _: CommandId,
        command: Infallible,
    ) -> Option<Dial> {
        match command {}
    }

    fn on_dialled(
        &mut self,
        _: Instant,
        _: &mut Desk,
        _: CommandId,
        _: Result<ConnectionId, DialError>,
    ) {
    }

    fn may_receive(&self, desk: &Desk, _: ConnectionId) -> bool {
        desk.may_receive()
    }

    fn is_busy(&self, desk: &Desk) -> bool {
        desk.is_busy()
    }

    fn poll_arrival(&mut self, _: &mut Desk) -> Option<OpenConnection> {
        self.arrivals.pop_front()
    }

    fn begin_shutdown(&mut self, _: Instant, desk: &mut Desk, _: Instant) {
        desk.shut_down(self.farewell.get().unwrap_or(&Bytes::new()));
    }

    fn is_drained(&self, desk: &Desk) -> bool {
        desk.is_drained()
    }
}
