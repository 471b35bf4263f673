//! The application of the matchmaker's hub node: connects matchmaker, allocator and edge on one
//! thread.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Sender, TrySendError};
use crypto::Ring;
use hub::record::{CallError, DownReason};
use hub::{Addr, CallId, Node, NodeEvent, Ticket};
use matchmaker_core::{
    CancelError, Command, Ending, Event, MatchEnd, Matchmaker, Outcome, ReissueError, ServerLink,
    TicketId, TicketState,
};
use servicer::{Clock, HubApplication};
use wire::{CommandId, Instant, MatchId};

use crate::allocator::{AllocatorCommand, CommandSender, Report};
use crate::matchmaking::{
    Answer, Load, MatchResult, MatchmakerRequest, Submitted, TicketAccess, UnknownTicket,
};

pub(super) struct MatchmakerApplication {
    matchmaker: Matchmaker<Ring>,
    commands: CommandSender,
    /// Signalled when a later run of this matchmaker takes over.
    fence: Sender<()>,
    waiters: Waiters,
    calls: BTreeMap<CallId, CommandId>,
    clock: Clock,
    /// When the wall clock is next set.
    wall_clock_at: Instant,
    reply: Vec<u8>,
    subscriber: Option<Sender<MatchResult>>,
}

impl MatchmakerApplication {
    pub(super) fn new(
        matchmaker: Matchmaker<Ring>,
        commands: CommandSender,
        fence: Sender<()>,
    ) -> Self {
        Self {
            matchmaker,
            commands,
            fence,
            waiters: Waiters::default(),
            calls: BTreeMap::new(),
            clock: Clock::new(),
            wall_clock_at: Instant::ZERO,
            reply: Vec::new(),
            subscriber: None,
        }
    }

    fn pump(&mut self, now: Instant, node: &mut Node) {
        loop {
            if let Some((id, command)) = self.matchmaker.poll_command() {
                self.run_command(now, node, id, command);
            } else if let Some(event) = self.matchmaker.poll_event() {
                self.on_matchmaker_event(&event);
            } else {
                return;
            }
        }
    }

    fn run_command(&mut self, now: Instant, node: &mut Node, id: CommandId, command: Command) {
        let is_begun = match command {
            Command::Spawn { slot, .. } => self
                .commands
                .send(AllocatorCommand::Start { run: id, slot }),
            Command::Stop { slot, .. } => self.commands.send(AllocatorCommand::Stop { id, slot }),
            Command::Call { to, body, timeout } => {
                let call = node.call(now, Addr::Node(to.node), body.into(), timeout);
                call.is_ok_and(|call| self.calls.insert(call, id).is_none())
            }
            _ => false,
        };
        if !is_begun {
            self.matchmaker.handle_completed(now, id, Outcome::Failed);
        }
    }

    fn on_matchmaker_event(&mut self, event: &Event) {
        match event {
            Event::Ticket(ticket) => self.answer_waiters(*ticket),
            Event::Missed(count) => {
                tracing::warn!(count, "events were lost; checking all long polls");
                for ticket in self.waiters.tickets() {
                    self.answer_waiters(ticket);
                }
            }
            Event::MatchLive { match_id, server } => {
                tracing::info!(%match_id, node = %server.node, "a match is live");
            }
            Event::MatchEnded {
                match_id,
                end,
                result,
            } => {
                tracing::info!(%match_id, ?end, "a match has ended");
                self.publish_result(*match_id, *end, result);
            }
            Event::ServerUp(server) => tracing::info!(node = %server.node, "a server is up"),
            Event::ServerDown { server, reason } => {
                tracing::warn!(node = %server.node, ?reason, "a server is down");
            }
            Event::SpawnFailed { slot, failures } => {
                tracing::warn!(%slot, failures, "the server of a slot did not start");
            }
            _ => {}
        }
    }

    fn publish_result(&mut self, match_id: MatchId, end: MatchEnd, result: &[u8]) {
        let Some(subscriber) = &self.subscriber else {
            return;
        };
        let result = MatchResult {
            match_id,
            end,
            result: result.to_vec(),
        };
        match subscriber.try_send(result) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                tracing::error!(%match_id, "a result was dropped: the queue of results is full");
            }
            Err(TrySendError::Disconnected(_)) => self.subscriber = None,
        }
    }

    /// Answers the long polls of a ticket if its state has settled.
    fn answer_waiters(&mut self, ticket: TicketId) {
        let answer = match self.matchmaker.ticket(ticket) {
            None => Err(UnknownTicket),
            Some(state) if is_settled(state) => Ok(state.clone()),
            Some(_) => return,
        };
        for waiter in self.waiters.take(ticket) {
            // The long poll may have timed out.
            drop(waiter.send(answer.clone()));
        }
    }

    /// Returns the state of a ticket to its holder, and keeps the ticket alive: one that is never
    /// polled expires.
    fn holder_state(
        &mut self,
        now: Instant,
        access: &TicketAccess,
    ) -> Result<&TicketState, UnknownTicket> {
        let is_holder = self.matchmaker.is_holder(access.ticket, &access.resume_key);
        if is_holder {
            self.matchmaker.keep_ticket(now, access.ticket);
        }
        let state = self.matchmaker.ticket(access.ticket);
        state.filter(|_| is_holder).ok_or(UnknownTicket)
    }

    fn cancel(&mut self, now: Instant, access: &TicketAccess) -> Result<TicketState, CancelError> {
        let state = self.holder_state(now, access);
        let state = state.map_err(|UnknownTicket| CancelError::Unknown)?;
        // Cancelling twice succeeds.
        if *state != TicketState::Ended(Ending::Cancelled) {
            self.matchmaker.cancel(now, access.ticket)?;
        }
        self.holder_state(now, access)
            .cloned()
            .map_err(|UnknownTicket| CancelError::Unknown)
    }

    fn reissue(
        &mut self,
        now: Instant,
        access: &TicketAccess,
    ) -> Result<TicketState, ReissueError> {
        let state = self.holder_state(now, access);
        state.map_err(|UnknownTicket| ReissueError::Unknown)?;
        self.matchmaker.reissue(now, access.ticket)?;
        self.holder_state(now, access)
            .cloned()
            .map_err(|UnknownTicket| ReissueError::Unknown)
    }

    fn on_server_call(&mut self, now: Instant, node: &mut Node, call: (Ticket, ServerLink, &[u8])) {
        let (ticket, link, body) = call;
        self.reply.clear();
        self.matchmaker
            .handle_call(now, link, body, &mut self.reply);
        let answer = Bytes::copy_from_slice(&self.reply);
        if node.reply(now, ticket, Ok(answer)).is_err() {
            // The server retries.
            tracing::debug!("an answer was dropped: the queue is full");
        }
    }

    fn on_reply(&mut self, now: Instant, call: CallId, result: Result<Bytes, CallError>) {
        if let Some(id) = self.calls.remove(&call) {
            let outcome = result.map_or(Outcome::Failed, |body| Outcome::Answered(body.into()));
            self.matchmaker.handle_completed(now, id, outcome);
        }
    }

    fn on_report(&mut self, now: Instant, report: Report) {
        match report {
            Report::Completed(id, outcome) => self.matchmaker.handle_completed(now, id, outcome),
            Report::Exited(run) => self.matchmaker.handle_exited(now, run),
        }
    }

    fn update_wall_clock(&mut self, now: Instant) {
        self.wall_clock_at = now + WALL_CLOCK_INTERVAL;
        self.matchmaker.set_unix_time(now, self.clock.unix_time());
    }
}

impl HubApplication for MatchmakerApplication {
    type Request = MatchmakerRequest;

    fn apply_request(
        &mut self,
        now: Instant,
        node: &mut Node,
        request: MatchmakerRequest,
    ) -> ControlFlow<()> {
        // The receiver may be gone.
        match request {
            MatchmakerRequest::Submit(request, answer) => {
                let receipt = self.matchmaker.submit(now, &request);
                let submitted = receipt.map(|receipt| Submitted {
                    state: self
                        .matchmaker
                        .ticket(receipt.ticket)
                        .cloned()
                        .unwrap_or(TicketState::Queued),
                    receipt,
                });
                drop(answer.send(submitted));
            }
            MatchmakerRequest::Get(access, answer) => {
                drop(answer.send(self.holder_state(now, &access).cloned()));
            }
            MatchmakerRequest::Wait(access, answer) => {
                let state = self.holder_state(now, &access).cloned();
                if state.as_ref().is_ok_and(|state| !is_settled(state)) {
                    let refused = self.waiters.add(access.ticket, answer);
                    drop(refused.map_err(|answer| answer.send(state)));
                } else {
                    drop(answer.send(state));
                }
            }
            MatchmakerRequest::Cancel(access, answer) => {
                drop(answer.send(self.cancel(now, &access)));
            }
            MatchmakerRequest::Reissue(access, answer) => {
                drop(answer.send(self.reissue(now, &access)));
            }
            MatchmakerRequest::Load(answer) => drop(answer.send(Load {
                is_joined: node.is_joined(),
                matchmaker: self.matchmaker.load(),
                stats: self.matchmaker.stats(),
            })),
            MatchmakerRequest::Report(report) => self.on_report(now, report),
            MatchmakerRequest::Subscribe(subscriber) => self.subscriber = Some(subscriber),
        }
        self.pump(now, node);
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            NodeEvent::Request {
                ticket,
                from,
                instance,
                body,
                ..
            } => {
                let link = ServerLink {
                    node: from,
                    instance,
                };
                self.on_server_call(now, node, (ticket, link, &body));
            }
            NodeEvent::Reply { call, result } => {
                self.on_reply(now, call, result.map(|body| body.0));
            }
            NodeEvent::Joined { .. } => {
                tracing::info!("joined the hub");
                self.matchmaker.handle_link_up(now);
            }
            NodeEvent::HubDown => {
                tracing::warn!("the link to the hub has ended; leases are frozen");
                self.matchmaker.handle_link_down(now);
            }
            NodeEvent::Refused(reason) => {
                tracing::error!(%reason, "the hub refuses the matchmaker");
                if reason == DownReason::Fenced {
                    self.fence.try_send(()).unwrap_or_default();
                }
            }
            NodeEvent::MailStored(_)
            | NodeEvent::MailRefused(..)
            | NodeEvent::Mail { .. }
            | NodeEvent::Claimed(_)
            | NodeEvent::ClaimLost(..)
            | NodeEvent::Broadcast { .. }
            | NodeEvent::PresenceReset
            | NodeEvent::NodePresence(..)
            | NodeEvent::PlayerPresence(..)
            | NodeEvent::PresenceComplete
            | _ => {}
        }
        self.pump(now, node);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let machine = self.matchmaker.poll_timeout();
        Some(machine.map_or(self.wall_clock_at, |at| at.min(self.wall_clock_at)))
    }

    fn handle_timeout(&mut self, now: Instant, node: &mut Node) {
        if self.wall_clock_at <= now {
            self.update_wall_clock(now);
        }
        if self.matchmaker.poll_timeout().is_some_and(|at| at <= now) {
            self.matchmaker.handle_timeout(now);
        }
        self.pump(now, node);
    }

    fn begin_shutdown(&mut self, now: Instant, node: &mut Node) {
        node.leave(now);
    }
}

const fn is_settled(state: &TicketState) -> bool {
    matches!(state, TicketState::Assigned(_) | TicketState::Ended(_))
}

const WALL_CLOCK_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Waiters {
    by_ticket: BTreeMap<TicketId, Vec<Waiter>>,
    count: usize,
}

impl Waiters {
    /// Adds a long poll; returns it if there are too many.
    pub(super) fn add(&mut self, ticket: TicketId, answer: Waiter) -> Result<(), Waiter> {
        if self.count >= WAITERS_MAX {
            // Timed-out polls are only found by looking at each.
            self.drop_closed();
            if self.count >= WAITERS_MAX {
                return Err(answer);
            }
        }
        let waiting = self.by_ticket.entry(ticket).or_default();
        let before = waiting.len();
        waiting.retain(|answer| !answer.is_closed());
        waiting.push(answer);
        let after = waiting.len();
        self.count = self.count.saturating_sub(before).saturating_add(after);
        Ok(())
    }

    pub(super) fn take(&mut self, ticket: TicketId) -> Vec<Waiter> {
        let waiting = self.by_ticket.remove(&ticket).unwrap_or_default();
        self.count = self.count.saturating_sub(waiting.len());
        waiting
    }

    pub(super) fn tickets(&self) -> Vec<TicketId> {
        self.by_ticket.keys().copied().collect()
    }

    fn drop_closed(&mut self) {
        self.by_ticket.retain(|_, waiting| {
            waiting.retain(|answer| !answer.is_closed());
            !waiting.is_empty()
        });
        self.count = self.by_ticket.values().map(Vec::len).sum();
    }
}

type Waiter = Answer<TicketState, UnknownTicket>;

/// Concurrent long polls; the edge allows fewer.
const WAITERS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn closed_waiters_free_their_slots() {
        let mut waiters = Waiters::default();
        let mut patient = Vec::new();
        for number in 0..WAITERS_MAX {
            let (answer, wait) = oneshot::channel();
            waiters.add(TicketId(number as u64 / 4), answer).unwrap();
            patient.push(wait);
        }
        let (answer, _wait) = oneshot::channel();
        let answer = waiters.add(TicketId(1), answer).unwrap_err();
        assert_eq!(waiters.take(TicketId(0)).len(), 4);
        patient.truncate(8);
        waiters.add(TicketId(2), answer).unwrap();
        assert_eq!(
            waiters.take(TicketId(2)).len(),
            1,
            "the four closed ones are removed"
        );
        waiters.drop_closed();
        assert_eq!((waiters.count, waiters.tickets()), (4, vec![TicketId(1)]));
    }

    #[test]
    fn repeated_polls_hold_one_slot() {
        let mut waiters = Waiters::default();
        for _ in 0..1_000 {
            let (answer, wait) = oneshot::channel();
            waiters.add(TicketId(7), answer).unwrap();
            drop(wait);
        }
        assert_eq!(waiters.count, 1);
    }
}
