//! The node as a machine: inputs in, records, commands and events out.

use wire::{CloseCause, CommandId, ConnectionId, Instant, Outbound, PeerIdentity, StreamMachine};

use super::{DialError, Node, NodeCommand, NodeEvent};
use crate::record::CallError;

impl StreamMachine for Node {
    type Event = NodeEvent;
    type Command = NodeCommand;

    fn handle_opened(&mut self, now: Instant, connection: ConnectionId, peer: &PeerIdentity) {
        self.advance(now);
        self.on_opened(connection, *peer);
    }

    fn handle_frame(&mut self, now: Instant, connection: ConnectionId, record: &[u8]) {
        self.advance(now);
        self.on_frame(connection, record);
    }

    fn handle_credit(&mut self, now: Instant, connection: ConnectionId, bytes: usize) {
        self.advance(now);
        if self.link.connection() == Some(connection) {
            self.credit = self.credit.saturating_add(bytes);
        }
    }

    fn handle_closed(&mut self, now: Instant, connection: ConnectionId, _cause: CloseCause) {
        self.advance(now);
        self.closing.retain(|closing| *closing != connection);
        if self.link.connection() == Some(connection) {
            self.on_down();
        }
    }

    fn poll_outbound(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        if let Some(connection) = self.closing.pop_front() {
            return Some(Outbound {
                connection,
                close: true,
            });
        }
        self.write(buf)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        while let Some((deadline, call)) = self.call_deadlines.first().copied()
            && deadline <= self.now
        {
            self.end_call(call);
            let result = Err(CallError::TimedOut);
            self.events.push_back(NodeEvent::Reply { call, result });
        }
        if self.next_counts <= self.now && !self.counter.is_empty() {
            self.next_counts = self.now + self.config.counts_interval;
            self.counter.on_interval();
        }
        self.outgoing.handle_timeout(self.now);
        self.on_link_timeout();
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Result<(), DialError>) {
        self.advance(now);
        self.on_dialled(id, outcome);
    }

    fn poll_command(&mut self) -> Option<(CommandId, NodeCommand)> {
        self.commands.pop_front()
    }

    fn poll_event(&mut self) -> Option<NodeEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let call = self.call_deadlines.first().map(|(deadline, _)| *deadline);
        let counts = (!self.counter.is_empty()).then_some(self.next_counts);
        let candidates = [
            call,
            counts,
            self.outgoing.paused_until(),
            self.link.deadline(&self.config),
        ];
        candidates.into_iter().flatten().min()
    }
}
