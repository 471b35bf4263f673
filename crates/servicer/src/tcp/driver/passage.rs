//! Handover of open connections from and to other drivers.

use std::sync::Arc;

use wire::{CloseCause, ConnectionId, Instant, StreamMachine};

use super::StreamDriver;
use super::links::Links;
use super::upper::Upper;
use crate::tcp::application::StreamApplication;
use crate::tcp::connection::{Side, Stage};
use crate::tcp::passage::{LentPlace, OpenConnection};

impl<M: StreamMachine, A: StreamApplication<M>> StreamDriver<M, A> {
    /// Adopts the connections that the application has for the driver.
    pub(super) fn receive_arrivals(&mut self, now: Instant) {
        let Upper {
            machine,
            application,
        } = &mut self.upper;
        while let Some(arrival) = application.poll_arrival(machine) {
            self.links.adopt(now, arrival, machine);
        }
    }

    /// Hands over the connections that the application names. Returns whether there were any.
    pub(super) fn send_departures(&mut self, now: Instant) -> bool {
        let mut told = false;
        while let Some(id) = self
            .upper
            .application
            .poll_departure(&mut self.upper.machine)
        {
            told = true;
            if let Some(departed) = self.links.give_up(now, id, &mut self.upper) {
                let Upper {
                    machine,
                    application,
                } = &mut self.upper;
                application.on_departed(now, machine, departed);
            }
        }
        told
    }
}

impl Links {
    /// Adopts a connection that another driver opened.
    fn adopt<M: StreamMachine>(&mut self, now: Instant, arrival: OpenConnection, machine: &mut M) {
        let OpenConnection {
            mut connection,
            peer,
        } = arrival;
        self.ledger.taken_over.add(1);
        connection.adapt(&self.config);
        let place = self.table.place(now, None, &self.config).ok();
        let opened = place.and_then(|(key, _)| {
            self.register(now, key, *connection)?;
            Some((key, self.table.open(now, key)?))
        });
        match opened {
            Some((key, id)) => {
                machine.handle_opened(now, id, &peer);
                machine.handle_credit(now, id, self.config.credit());
                self.table.schedule(key, &self.config);
                self.mark_dirty(key);
            }
            None => {
                // The machine expects the open event, so it receives open and close together.
                if let Some(id) = self.table.next_id() {
                    self.ledger.closed_reset.add(1);
                    machine.handle_opened(now, id, &peer);
                    machine.handle_closed(now, id, CloseCause::Failed);
                }
            }
        }
    }

    /// Gives up a connection. The machine sees it close.
    fn give_up<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        id: ConnectionId,
        upper: &mut Upper<M, A>,
    ) -> Option<OpenConnection> {
        let key = self.table.key_of(id)?;
        let mut connection = self.table.lend(key)?;
        self.ledger.handed_over.add(1);
        upper.closed(now, id, CloseCause::Local);
        self.registry.deregister(&mut connection.io).ok()?;
        // A connection counts in one table only: one that was lent stays in its lender's.
        if let Side::Accepted(source) = connection.side
            && connection.lent.is_none()
        {
            connection.lent = Some(LentPlace {
                source,
                key,
                returned: Arc::clone(self.table.returned()),
            });
        }
        let peer = connection.peer().ok().flatten()?;
        connection.stage = Stage::Handshaking;
        Some(OpenConnection { connection, peer })
    }
}
