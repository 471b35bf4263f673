//! The hub as a machine: inputs in, records, commands and events out.

use wire::{
    CloseCause, CommandId, ConnectionId, Instant, Outbound, PeerIdentity, StreamMachine, UnixTime,
};

use super::clock::Judged;
use super::{Health, Hub, HubEvent, TICK};
use crate::record::{CallError, DownReason, ToHub, ToNode};
use crate::store::{Command, Outcome};

impl StreamMachine for Hub {
    type Event = HubEvent;
    type Command = Command;

    fn handle_opened(&mut self, now: Instant, connection: ConnectionId, peer: &PeerIdentity) {
        self.advance(now);
        self.on_opened(connection, peer);
    }

    fn handle_frame(&mut self, now: Instant, connection: ConnectionId, record: &[u8]) {
        self.advance(now);
        let Some(link) = self.links.get_mut(&connection) else {
            return;
        };
        if link.is_closing() {
            return;
        }
        if link.member().is_some() {
            link.heard = self.now;
        }
        if let Ok(record) = ToHub::decode(record) {
            self.on_record(connection, record);
        } else {
            self.stats.malformed = self.stats.malformed.saturating_add(1);
            self.close(connection, DownReason::Protocol);
        }
    }

    fn handle_credit(&mut self, now: Instant, connection: ConnectionId, bytes: usize) {
        self.advance(now);
        if let Some(link) = self.links.get_mut(&connection) {
            link.credit = link.credit.saturating_add(bytes);
            self.ready.insert(connection);
        }
    }

    fn handle_closed(&mut self, now: Instant, connection: ConnectionId, _cause: CloseCause) {
        self.advance(now);
        self.detach(connection);
        self.links.remove(&connection);
        self.ready.remove(&connection);
    }

    fn poll_outbound(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        self.advance(now);
        // Links take turns, one record each, so that one that has much to read delays none.
        loop {
            let after = ConnectionId(self.turn.0.wrapping_add(1));
            let id = self.ready.range(after..).chain(self.ready.iter()).next();
            self.turn = *id?;
            if let Some(outbound) = self.write(self.turn, buf) {
                return Some(outbound);
            }
            self.ready.remove(&self.turn);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        while let Some(call) = self.calls.time_out(self.now) {
            self.stats.calls_failed = self.stats.calls_failed.saturating_add(1);
            let result = Err(CallError::TimedOut);
            self.send(
                call.caller,
                &ToNode::Reply {
                    call: call.call,
                    result,
                },
            );
        }
        if !self.sweeps.is_empty() && self.next_sweep <= self.now {
            self.run_sweeps();
        }
        if self.next_tick <= self.now {
            self.next_tick = self.now + TICK;
            self.on_tick();
        }
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        self.advance(now);
        match self.ops.complete(id) {
            Some(pending) if !self.has_failed() => {
                self.on_outcome(pending, outcome);
            }
            Some(_) => {}
            None => {
                self.stats.completions_unknown = self.stats.completions_unknown.saturating_add(1);
            }
        }
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.advance(now);
        let wait = self.config.clock_step_wait;
        if self.clock.read(self.now, unix, wait) == Judged::Doubted {
            self.event(HubEvent::ClockDoubted {
                read: unix,
                believed: self.unix_now(),
            });
        }
    }

    fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        if self.has_failed() {
            return None;
        }
        self.feed();
        self.ops.poll()
    }

    fn poll_event(&mut self) -> Option<HubEvent> {
        if self.health == Health::Failing {
            self.health = Health::Failed;
            return Some(HubEvent::StoreFailed);
        }
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let calls = self.calls.deadline().unwrap_or(self.next_tick);
        let sweep = if self.sweeps.is_empty() {
            self.next_tick
        } else {
            self.next_sweep
        };
        Some(calls.min(sweep).min(self.next_tick))
    }
}
