//! The application that turns an endpoint's events into a game's, and keeps its tick.

use core::ops::ControlFlow;
use core::time::Duration;

use crypto::Ring;
use servicer::Application;
use udp_proto::Endpoint;
use wire::{CommandId, Instant};

use crate::Event;

/// Collects events until the game takes them.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) events: Vec<Event>,
    /// When the next tick begins, where the game keeps one.
    next_tick: Option<Instant>,
    /// The tick that was waited for has begun.
    pub(crate) has_ticked: bool,
}

impl Host {
    /// Sees to it that a tick begins `span` after the last one.
    ///
    /// Ticks keep their rhythm: one that was late does not move those behind it, unless it was
    /// late by more than a whole tick, and then the missed ones are left out.
    pub(crate) fn expect_tick(&mut self, now: Instant, span: Duration) {
        self.has_ticked = false;
        let next = match self.next_tick {
            Some(last) if last + span > now => last + span,
            Some(_) | None => now + span,
        };
        self.next_tick = Some(next);
    }
}

impl Application<Endpoint<Ring>> for Host {
    type Request = ();

    fn apply_request(
        &mut self,
        _now: Instant,
        _endpoint: &mut Endpoint<Ring>,
        (): (),
    ) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, event: udp_proto::Event) {
        match event {
            udp_proto::Event::Connected { session, peer } => {
                self.events.push(Event::Connected { session, peer });
            }
            udp_proto::Event::ConnectFailed { failure, .. } => {
                self.events.push(Event::Unreachable { failure });
            }
            udp_proto::Event::Readable { session } => {
                let mut bytes = Vec::new();
                while let Some(channel) = endpoint.receive(now, session, &mut bytes) {
                    self.events.push(Event::Message {
                        session,
                        channel,
                        bytes: core::mem::take(&mut bytes),
                    });
                }
            }
            udp_proto::Event::Closed {
                session,
                reason,
                text,
            } => self.events.push(Event::Disconnected {
                session,
                reason,
                text,
            }),
            // The facade asks for no check of the path, and later events are for later versions.
            udp_proto::Event::MtuChecked { .. } | _ => {}
        }
    }

    fn on_command(
        &mut self,
        _now: Instant,
        _endpoint: &mut Endpoint<Ring>,
        _id: CommandId,
        command: core::convert::Infallible,
    ) {
        match command {}
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next_tick.filter(|_| !self.has_ticked)
    }

    fn handle_timeout(&mut self, now: Instant, _endpoint: &mut Endpoint<Ring>) {
        if self.next_tick.is_some_and(|at| at <= now) {
            self.has_ticked = true;
        }
    }
}
