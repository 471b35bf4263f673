//! The acceptor: TLS handshakes and join requests, until the application has decided.
//!
//! An unaccepted client has no thread, and is limited to a handshake and one short record. After
//! its join request, the connection is handed to the application and is not read until it is
//! accepted.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use wire::{CloseCause, CommandId, ConnectionId, Instant, Outbound, PeerIdentity, StreamMachine};

use super::config::SocketOptions;
use super::event::JoinRequest;
use super::event_queue::{EventSender, WorkerEvent, WorkerId};
use super::record::{Closing, ReliableRecord};
use crate::tcp::{Dial, OpenConnection, StreamApplication};

#[derive(Debug, Default)]
pub(super) struct AcceptMachine {
    /// Connected clients, with the join payload once it has arrived.
    clients: BTreeMap<ConnectionId, Option<Bytes>>,
    /// Clients with a join payload, in order of arrival.
    joining: VecDeque<ConnectionId>,
    /// Refusal reasons for the connections that are about to be adopted.
    refusals: VecDeque<Bytes>,
    /// Final records. Each connection is closed after its record.
    final_records: VecDeque<(ConnectionId, FinalRecord)>,
}

#[derive(Debug)]
enum FinalRecord {
    Refused(Bytes),
    ShutDown(Bytes),
    /// No record, after a protocol error.
    None,
}

impl AcceptMachine {
    fn shut_down(&mut self, reason: &Bytes) {
        self.joining.clear();
        for id in self.clients.keys() {
            let record = FinalRecord::ShutDown(reason.clone());
            self.final_records.push_back((*id, record));
        }
    }

    /// Removes a client that has left. Its join request is discarded even if the application takes
    /// no events.
    fn remove(&mut self, id: ConnectionId) {
        if let Some(Some(_)) = self.clients.remove(&id) {
            self.joining.retain(|other| *other != id);
        }
    }
}

impl StreamMachine for AcceptMachine {
    type Event = Infallible;
    type Command = Infallible;

    fn handle_opened(&mut self, _: Instant, id: ConnectionId, _: &PeerIdentity) {
        if let Some(reason) = self.refusals.pop_front() {
            self.final_records
                .push_back((id, FinalRecord::Refused(reason)));
        } else {
            self.clients.insert(id, None);
        }
    }

    fn handle_frame(&mut self, _: Instant, id: ConnectionId, record: &[u8]) {
        let Some(request) = self.clients.get_mut(&id) else {
            return;
        };
        match ReliableRecord::decode(record) {
            Some(ReliableRecord::Join(payload)) if request.is_none() => {
                *request = Some(Bytes::copy_from_slice(payload));
                self.joining.push_back(id);
            }
            Some(_) | None => {
                self.remove(id);
                self.final_records.push_back((id, FinalRecord::None));
            }
        }
    }

    fn handle_credit(&mut self, _: Instant, _: ConnectionId, _: usize) {}

    fn handle_closed(&mut self, _: Instant, id: ConnectionId, _: CloseCause) {
        self.remove(id);
    }

    fn poll_outbound(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        let (connection, record) = self.final_records.pop_front()?;
        match &record {
            FinalRecord::Refused(reason) => ReliableRecord::Refused(reason).encode(buf),
            FinalRecord::ShutDown(reason) => {
                ReliableRecord::Closing(Closing::ShutDown, reason).encode(buf);
            }
            FinalRecord::None => {}
        }
        Some(Outbound {
            connection,
            close: true,
        })
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) connection: OpenConnection,
    pub(super) reason: Bytes,
}

#[derive(Debug)]
pub(super) struct JoinHandler {
    pub(super) number: WorkerId,
    pub(super) sender: EventSender<WorkerEvent>,
    pub(super) arrivals: VecDeque<OpenConnection>,
    /// Join payload of the connection that is handed over next.
    pub(super) payload: Option<Bytes>,
    pub(super) options: SocketOptions,
    pub(super) shutdown_reason: Arc<OnceLock<Bytes>>,
}

impl Drop for JoinHandler {
    /// Reports the end of the thread, whatever its cause.
    fn drop(&mut self) {
        self.sender.put(0, WorkerEvent::Ended(self.number));
    }
}

impl StreamApplication<AcceptMachine> for JoinHandler {
    type Request = Refusal;

    fn apply_request(
        &mut self,
        _: Instant,
        machine: &mut AcceptMachine,
        refusal: Refusal,
    ) -> ControlFlow<()> {
        machine.refusals.push_back(refusal.reason);
        self.arrivals.push_back(refusal.connection);
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut AcceptMachine, event: Infallible) {
        match event {}
    }

    fn on_command(
        &mut self,
        _: Instant,
        _: &mut AcceptMachine,
        _: CommandId,
        command: Infallible,
    ) -> Option<Dial> {
        match command {}
    }

    /// Stops reading after the join record: the next record is for the thread of the accepted
    /// client.
    fn may_receive(&self, machine: &AcceptMachine, id: ConnectionId) -> bool {
        !matches!(machine.clients.get(&id), Some(Some(_)))
    }

    fn poll_arrival(&mut self, _: &mut AcceptMachine) -> Option<OpenConnection> {
        self.arrivals.pop_front()
    }

    fn poll_departure(&mut self, machine: &mut AcceptMachine) -> Option<ConnectionId> {
        while !machine.joining.is_empty() && self.sender.has_room() {
            let id = machine.joining.pop_front()?;
            if let Some(Some(payload)) = machine.clients.remove(&id) {
                self.payload = Some(payload);
                return Some(id);
            }
        }
        None
    }

    fn on_handed_over(&mut self, _: Instant, _: &mut AcceptMachine, connection: OpenConnection) {
        let payload = self.payload.take().unwrap_or_default();
        self.options.apply(connection.socket());
        let address = connection.address();
        let request = JoinRequest {
            connection,
            payload,
            address,
        };
        let event = WorkerEvent::Join(Box::new(request));
        self.sender.put(event.bytes(), event);
    }

    fn begin_shutdown(&mut self, _: Instant, machine: &mut AcceptMachine, _: Instant) {
        machine.shut_down(self.shutdown_reason.get().unwrap_or(&Bytes::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_cancelled_before_it_was_seen_leaves_nothing() {
        let mut machine = AcceptMachine::default();
        let now = Instant::ZERO;
        let peer = PeerIdentity::Anonymous;
        let mut request = Vec::new();
        ReliableRecord::Join(b"let me in").encode(&mut request);
        for number in 1..=10_000 {
            let id = ConnectionId(number);
            machine.handle_opened(now, id, &peer);
            machine.handle_frame(now, id, &request);
            assert_eq!(machine.joining, [id]);
            if number % 2 == 0 {
                // The client sends a second record. The driver still reports the close.
                machine.handle_frame(now, id, &request);
                assert_eq!(machine.final_records.pop_front().unwrap().0, id);
            }
            machine.handle_closed(now, id, CloseCause::Failed);
            assert!(machine.joining.is_empty() && machine.clients.is_empty());
        }
    }
}
