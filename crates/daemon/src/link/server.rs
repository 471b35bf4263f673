//! The application of a game server's hub node: connects lease, game and hub.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use crossbeam_channel::Sender;
use crypto::{Ring, TokenKey};
use hub::record::{CallError, DownReason, NodeInfo};
use hub::{Addr, CallId, Name, Node, NodeEvent, Ticket};
use matchmaker_core::record::{Intake, Verdict};
use servicer::HubApplication;
use wire::{ClientId, InstanceId, Instant, MatchId, NodeId};

use super::lease::{Lease, LeaseEnd, LeaseEvent, RequestAction};
use super::{GameServer, MATCHMAKER};
use crate::exit::Failure;

pub(super) enum LinkRequest {
    Entered(MatchId),
    Left(MatchId, ClientId),
    Finished(MatchId, Vec<u8>),
    Intake(Intake),
    TokenKey(Box<TokenKey>),
}

// Without the contents, which may be a key.
wire::opaque_debug!(LinkRequest);

pub(super) struct ServerApplication {
    lease: Lease,
    server: Box<dyn GameServer>,
    matchmakers: BTreeSet<NodeId>,
    matchmaker: Name,
    /// The run of the matchmaker seen last.
    seen: Option<(NodeId, InstanceId)>,
    call: Option<CallId>,
    ended: Option<Sender<LeaseEnd>>,
}

impl ServerApplication {
    pub(super) fn new(
        lease: Lease,
        matchmakers: BTreeSet<NodeId>,
        server: Box<dyn GameServer>,
        ended: Sender<LeaseEnd>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            lease,
            server,
            matchmakers,
            matchmaker: Name::new(MATCHMAKER).map_err(Failure::usage)?,
            seen: None,
            call: None,
            ended: Some(ended),
        })
    }

    /// Makes the lease's calls, dispatches its events, and handles its end.
    fn pump(&mut self, now: Instant, node: &mut Node) {
        self.dispatch_events();
        while let Some(body) = self.lease.poll_call(now) {
            let to = Addr::Service(self.matchmaker);
            let timeout = self.lease.call_timeout();
            match node.call(now, to, Bytes::copy_from_slice(&body), timeout) {
                Ok(call) => self.call = Some(call),
                Err(_) => self.lease.handle_answer(now, Err(CallError::HubDown)),
            }
        }
        if let Some(end) = self.lease.end()
            && let Some(ended) = self.ended.take()
        {
            tracing::warn!(%end, "the lease has ended");
            self.server.on_ended(end);
            ended.try_send(end).unwrap_or_default();
            node.leave(now);
        }
    }

    fn dispatch_events(&mut self) {
        while let Some(events) = self.lease.poll_event() {
            match events {
                LeaseEvent::Registered => {
                    tracing::info!("registered with the matchmaker");
                    self.server.on_registered();
                }
                LeaseEvent::Released(match_id) => self.server.on_released(match_id),
                LeaseEvent::RotateKey(id) => self.rotate_key(id),
                LeaseEvent::KeyLapsed(id) => self.server.on_token_key_lapsed(id),
                LeaseEvent::CutOff => {
                    tracing::warn!("the lease expired; running matches may finish");
                    self.server.on_cut_off();
                }
            }
        }
    }

    /// Makes a token key; registers it if the game accepts it.
    fn rotate_key(&mut self, id: u32) {
        let Some(Ok(key)) = id
            .checked_add(1)
            .map(|id| TokenKey::generate(&mut Ring::new(), id))
        else {
            tracing::error!("no new token key could be made; the old one stays");
            return;
        };
        if self.server.on_token_key(&key) {
            tracing::info!(id = key.id(), "new token key");
            self.lease.set_token_key(key);
        }
    }

    fn on_request(&mut self, node: &mut Node, now: Instant, request: (Ticket, NodeId, &[u8])) {
        let (ticket, from, body) = request;
        let verdict = if self.matchmakers.contains(&from) {
            match self.lease.handle_request(body) {
                RequestAction::Answer(verdict) => Ok(verdict),
                RequestAction::Malformed => Err(CallError::Refused),
                RequestAction::Assign(assign) => {
                    let verdict = self.server.on_assigned(&assign);
                    if verdict == Verdict::Taken {
                        self.lease.take(assign);
                    }
                    Ok(verdict)
                }
            }
        } else {
            Err(CallError::Refused)
        };
        let answer = verdict.map(|verdict| {
            let mut answer = Vec::new();
            verdict.encode(&mut answer);
            Bytes::from(answer)
        });
        if node.reply(now, ticket, answer).is_err() {
            tracing::debug!("an answer was dropped: the queue is full");
        }
    }

    fn on_reply(&mut self, now: Instant, call: CallId, result: &Result<Bytes, CallError>) {
        if self.call == Some(call) {
            self.call = None;
            let answer = result.as_ref().map(AsRef::as_ref).map_err(|error| *error);
            self.lease.handle_answer(now, answer);
        }
    }

    fn on_presence(&mut self, node: NodeId, info: Option<&NodeInfo>) {
        let Some(info) = info.filter(|info| info.services.contains(&self.matchmaker)) else {
            return;
        };
        let now_seen = Some((node, info.instance));
        if self.seen != now_seen {
            self.seen = now_seen;
            self.lease.handle_matchmaker();
        }
    }
}

impl HubApplication for ServerApplication {
    type Request = LinkRequest;

    fn apply_request(
        &mut self,
        now: Instant,
        node: &mut Node,
        request: LinkRequest,
    ) -> ControlFlow<()> {
        match request {
            LinkRequest::Entered(match_id) => self.lease.entered(match_id),
            LinkRequest::Left(match_id, client) => self.lease.left(match_id, client),
            LinkRequest::Finished(match_id, result) => self.lease.ended(match_id, &result),
            LinkRequest::Intake(intake) => self.lease.set_intake(intake),
            LinkRequest::TokenKey(key) => self.lease.set_token_key(*key),
        }
        self.pump(now, node);
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            NodeEvent::Joined { .. } => self.lease.handle_joined(),
            NodeEvent::HubDown => self.lease.handle_hub_down(),
            NodeEvent::Refused(reason) => {
                tracing::warn!(%reason, "the hub refuses this node");
                if reason == DownReason::Fenced {
                    self.lease.handle_superseded();
                }
            }
            NodeEvent::Reply { call, result } => {
                self.on_reply(now, call, &result.map(|body| body.0));
            }
            NodeEvent::Request {
                ticket, from, body, ..
            } => self.on_request(node, now, (ticket, from, &body)),
            NodeEvent::NodePresence(other, info) => self.on_presence(other, info.as_ref()),
            NodeEvent::MailStored(_)
            | NodeEvent::MailRefused(..)
            | NodeEvent::Mail { .. }
            | NodeEvent::Claimed(_)
            | NodeEvent::ClaimLost(..)
            | NodeEvent::Broadcast { .. }
            | NodeEvent::PresenceReset
            | NodeEvent::PlayerPresence(..)
            | NodeEvent::PresenceComplete
            | _ => {}
        }
        self.pump(now, node);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lease.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, node: &mut Node) {
        self.lease.handle_timeout(now);
        self.pump(now, node);
    }

    fn begin_shutdown(&mut self, now: Instant, node: &mut Node) {
        self.lease.leave();
        self.pump(now, node);
    }

    fn is_drained(&self) -> bool {
        self.lease.end().is_some()
    }
}
