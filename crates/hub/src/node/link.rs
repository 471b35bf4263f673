//! The link of a node to its hub.

use core::time::Duration;

use wire::{ClientId, CommandId, ConnectionId, Instant, Outbound, PeerIdentity};

use super::queue::ClaimedPlayer;
use super::shard_link::ShardLink;
use super::{DialError, HubLink, NodeCommand, NodeConfig, NodeEvent};
use crate::field::Redacted;
use crate::record::{CallError, ClaimRequest, DownReason, Join, PresenceFilter, ToHub, VERSION};
use crate::stats::{QueryReason, QueryRefusal, encode_answer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    Down {
        redial_at: Instant,
    },
    Dialling {
        /// The dial command; `None` once it has completed, while `handle_opened` is pending.
        id: Option<CommandId>,
        deadline: Instant,
    },
    /// Connected; the join is not answered yet.
    Joining {
        connection: ConnectionId,
        deadline: Instant,
        join_sent: bool,
    },
    Up {
        connection: ConnectionId,
        last_received: Instant,
        heartbeat_at: Instant,
        heartbeat: bool,
    },
    /// The leave record is being written.
    Leaving {
        connection: ConnectionId,
    },
    Ended,
}

impl LinkState {
    pub(super) const fn connection(self) -> Option<ConnectionId> {
        match self {
            Self::Joining { connection, .. }
            | Self::Up { connection, .. }
            | Self::Leaving { connection } => Some(connection),
            Self::Down { .. } | Self::Dialling { .. } | Self::Ended => None,
        }
    }

    /// Returns when a timer of this state is due.
    pub(super) fn deadline(self, config: &NodeConfig) -> Option<Instant> {
        let expires_at = self.expires_at(config)?;
        if let Self::Up { heartbeat_at, .. } = self {
            return Some(expires_at.min(heartbeat_at));
        }
        Some(expires_at)
    }

    /// Returns when this state ends if nothing arrives.
    fn expires_at(self, config: &NodeConfig) -> Option<Instant> {
        match self {
            Self::Down { redial_at } => Some(redial_at),
            Self::Dialling { deadline, .. } | Self::Joining { deadline, .. } => Some(deadline),
            Self::Up { last_received, .. } => Some(last_received + config.silence_max),
            Self::Leaving { .. } | Self::Ended => None,
        }
    }
}

impl HubLink {
    pub(super) const fn up(&self) -> Option<ConnectionId> {
        if let LinkState::Up { connection, .. } = self.link {
            Some(connection)
        } else {
            None
        }
    }

    pub(super) fn on_opened(&mut self, connection: ConnectionId, peer: PeerIdentity) {
        if peer != PeerIdentity::Node(self.hub) {
            self.stats.strangers = self.stats.strangers.saturating_add(1);
            self.closing.push_back(connection);
            return;
        }
        // A dial that timed out may still succeed after the next one has started; keep only one.
        if !matches!(
            self.link,
            LinkState::Down { .. } | LinkState::Dialling { .. }
        ) {
            self.closing.push_back(connection);
            return;
        }
        self.credit = 0;
        if let Some(shard) = &mut self.shard {
            shard.on_opened();
        }
        self.link = LinkState::Joining {
            connection,
            deadline: self.now + self.config.dial_timeout,
            join_sent: false,
        };
    }

    /// Handles the hub's answer to the join.
    pub(super) fn on_joined(&mut self, connection: ConnectionId) {
        self.attempts = 0;
        self.link = LinkState::Up {
            connection,
            last_received: self.now,
            heartbeat_at: self.now + self.config.heartbeat,
            heartbeat: false,
        };
        self.outgoing.rewind();
        self.players.reclaim();
        self.push_presence_filter();
        self.subscribe_again();
        self.counter.on_interval();
        self.statistics.on_joined();
    }

    pub(super) fn on_down(&mut self) {
        let was_up = self.up().is_some();
        self.outbox.clear();
        self.outbox_bytes = 0;
        self.credit = 0;
        self.players.on_down();
        while let Some((call, _)) = self.calls.first_key_value() {
            let call = *call;
            self.end_call(call);
            let result = Err(CallError::HubDown);
            self.events.push_back(NodeEvent::Reply { call, result });
        }
        while let Some(query) = self.statistics.pop_query() {
            let refusal = QueryRefusal::new(QueryReason::HubDown, CallError::HubDown);
            let answer = Redacted(encode_answer(&Err(refusal)).into());
            self.events
                .push_back(NodeEvent::StatsAnswer { query, answer });
        }
        self.events.extend(self.groups.on_down());
        self.on_live_lost();
        self.kv.on_down(&mut self.events);
        if was_up {
            self.events.push_back(NodeEvent::HubDown);
        }
        if matches!(self.link, LinkState::Leaving { .. } | LinkState::Ended) {
            self.link = LinkState::Ended;
            return;
        }
        self.redial_after(self.backoff());
    }

    /// Handles a close by the hub.
    pub(super) fn on_refused(&mut self, connection: ConnectionId, reason: DownReason) {
        self.closing.push_back(connection);
        self.on_down();
        self.events.push_back(NodeEvent::Refused(reason));
        match reason {
            DownReason::Fenced => self.link = LinkState::Ended,
            DownReason::NotListed
            | DownReason::RoleRefused
            | DownReason::ServiceRefused
            | DownReason::Version
            | DownReason::Protocol
            | DownReason::WrongShard
            | DownReason::Replaced => self.redial_after(self.config.refused_wait),
            DownReason::StoreFailed
            | DownReason::Busy
            | DownReason::Silent
            | DownReason::Overrun
            | DownReason::Draining => {}
        }
    }

    pub(super) fn on_dialled(&mut self, id: CommandId, outcome: Result<(), DialError>) {
        match &mut self.link {
            LinkState::Dialling { id: dialling, .. } if *dialling == Some(id) => {
                *dialling = None;
                if outcome.is_err() {
                    self.redial_after(self.backoff());
                }
            }
            // `handle_opened` was called before.
            LinkState::Joining { .. } | LinkState::Up { .. } if outcome.is_ok() => {}
            LinkState::Down { .. }
            | LinkState::Dialling { .. }
            | LinkState::Joining { .. }
            | LinkState::Up { .. }
            | LinkState::Leaving { .. }
            | LinkState::Ended => {
                self.stats.completions_unknown = self.stats.completions_unknown.saturating_add(1);
            }
        }
    }

    pub(super) fn on_link_timeout(&mut self) {
        let now = self.now;
        if let LinkState::Up {
            heartbeat_at,
            heartbeat,
            ..
        } = &mut self.link
            && *heartbeat_at <= now
        {
            *heartbeat_at = now + self.config.heartbeat;
            *heartbeat = true;
        }
        if self.link.expires_at(&self.config).is_none_or(|at| at > now) {
            return;
        }
        match self.link.connection() {
            Some(connection) => {
                self.closing.push_back(connection);
                self.on_down();
            }
            None if matches!(self.link, LinkState::Down { .. }) => self.dial(),
            None => self.redial_after(self.backoff()),
        }
    }

    /// Writes the next record within the credit.
    pub(super) fn write(&mut self, buf: &mut Vec<u8>) -> Option<Outbound> {
        let connection = self.link.connection()?;
        let start = buf.len();
        let source = self.encode_next(buf)?;
        let len = buf.len().saturating_sub(start);
        if len > self.credit {
            buf.truncate(start);
            return None;
        }
        self.credit = self.credit.saturating_sub(len);
        self.on_written(source);
        let close = false;
        Some(Outbound { connection, close })
    }

    /// Encodes the next record. Order: heartbeats, acknowledgements and claims, live records, mail.
    fn encode_next(&self, buf: &mut Vec<u8>) -> Option<Source> {
        match self.link {
            LinkState::Joining {
                join_sent: false, ..
            } => {
                if let Some(view) = self.shard.as_ref().and_then(ShardLink::unsent) {
                    ToHub::Shard(view).encode(buf);
                    return Some(Source::Shard);
                }
                self.join().encode(buf);
                return Some(Source::Join);
            }
            LinkState::Up { heartbeat, .. } => {
                if heartbeat {
                    ToHub::Heartbeat.encode(buf);
                    return Some(Source::Heartbeat);
                }
            }
            LinkState::Leaving { .. } => {
                if let Some((player, upto)) = self.players.next_ack() {
                    ToHub::MailAck { player, upto }.encode(buf);
                    return Some(Source::Ack(player));
                }
                buf.extend_from_slice(self.outbox.front()?);
                return Some(Source::Outbox);
            }
            LinkState::Down { .. }
            | LinkState::Dialling { .. }
            | LinkState::Joining { .. }
            | LinkState::Ended => return None,
        }
        if let Some((player, claim, ack)) = self.players.next_release() {
            match ack {
                Some(upto) => ToHub::MailAck { player, upto }.encode(buf),
                None => ToHub::Release { player, claim }.encode(buf),
            }
            return Some(Source::Release(player));
        }
        if let Some((player, entry)) = self.players.next_claim() {
            encode_claim(player, entry, buf);
            return Some(Source::Claim(player));
        }
        if let Some((player, upto)) = self.players.next_ack() {
            ToHub::MailAck { player, upto }.encode(buf);
            return Some(Source::Ack(player));
        }
        self.encode_data(buf)
    }

    /// Encodes the next record of what may wait: requests to the key-value store, which alternate with
    /// others, then live records, counts, statistics and mail.
    fn encode_data(&self, buf: &mut Vec<u8>) -> Option<Source> {
        let mail = self.outgoing.next();
        let counts = self.counter.next();
        let statistics = self.statistics.next();
        let is_alone =
            self.outbox.is_empty() && counts.is_none() && statistics.is_none() && mail.is_none();
        let keys = if is_alone {
            self.kv.next()
        } else {
            self.kv.next_in_turn()
        };
        if let Some(record) = keys {
            buf.extend_from_slice(&record);
            return Some(Source::Kv);
        }
        if let Some(record) = self.outbox.front() {
            buf.extend_from_slice(record);
            return Some(Source::Outbox);
        }
        if let Some((batch, entries)) = counts {
            let entries = entries.to_vec();
            ToHub::Counts { batch, entries }.encode(buf);
            return Some(Source::Counts);
        }
        if let Some(record) = statistics {
            ToHub::Stats(record).encode(buf);
            return Some(Source::Statistics);
        }
        let mail = mail?;
        mail.encode(self.outgoing.settled(), buf);
        Some(Source::Mail)
    }

    fn on_written(&mut self, source: Source) {
        match source {
            Source::Join => {
                if let LinkState::Joining { join_sent, .. } = &mut self.link {
                    *join_sent = true;
                }
            }
            Source::Shard => {
                if let Some(shard) = &mut self.shard {
                    shard.on_sent();
                }
            }
            Source::Heartbeat => {
                if let LinkState::Up { heartbeat, .. } = &mut self.link {
                    *heartbeat = false;
                }
            }
            Source::Release(player) => self.players.on_release_sent(player),
            Source::Claim(player) => self.players.on_claim_sent(player),
            Source::Ack(player) => self.players.on_ack_sent(player),
            Source::Outbox => {
                self.kv.on_other_written();
                if let Some(record) = self.outbox.pop_front() {
                    self.outbox_bytes = self.outbox_bytes.saturating_sub(record.len());
                }
            }
            Source::Counts => {
                self.kv.on_other_written();
                self.counter.on_sent();
            }
            Source::Statistics => {
                self.kv.on_other_written();
                self.statistics.on_sent();
            }
            Source::Mail => {
                self.kv.on_other_written();
                self.outgoing.on_sent();
            }
            Source::Kv => self.kv.on_written(),
        }
    }

    pub(super) fn watch_presence(&mut self, now: Instant, filter: PresenceFilter) -> bool {
        self.advance(now);
        let is_valid = filter.is_valid();
        if is_valid {
            self.config.presence = Some(filter);
            if self.up().is_some() {
                self.push_presence_filter();
            }
        }
        is_valid
    }

    fn push_presence_filter(&mut self) {
        if let Some(filter) = self
            .config
            .presence
            .clone()
            .filter(PresenceFilter::is_valid)
        {
            self.push(&ToHub::Watch(filter));
        }
    }

    fn join(&self) -> ToHub<'static> {
        let has_filter = self.config.presence.is_some();
        let watch = if has_filter {
            0
        } else {
            self.config.watch_bits()
        };
        ToHub::Join(Join {
            version: VERSION,
            role: self.config.role,
            instance: self.instance,
            epoch: self.epoch,
            watch,
            services: self.config.services.clone(),
        })
    }

    fn dial(&mut self) {
        let turn = self.next_address.checked_rem(self.addresses.len());
        let Some(address) = turn.and_then(|turn| self.addresses.get(turn)).cloned() else {
            return;
        };
        self.next_address = self.next_address.wrapping_add(1);
        self.attempts = self.attempts.saturating_add(1);
        self.last_command = self.last_command.saturating_add(1);
        self.stats.dials = self.stats.dials.saturating_add(1);
        let id = CommandId(self.last_command);
        let hub = self.hub;
        self.commands
            .push_back((id, NodeCommand::Dial { hub, address }));
        self.link = LinkState::Dialling {
            id: Some(id),
            deadline: self.now + self.config.dial_timeout,
        };
    }

    fn redial_after(&mut self, wait: Duration) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        // Random between half and the whole delay, so that nodes do not redial in step.
        let spread = self.generator.between(nanos / 2, nanos);
        self.link = LinkState::Down {
            redial_at: self.now + Duration::from_nanos(spread),
        };
    }

    /// Returns the redial delay, which doubles with each dial.
    fn backoff(&self) -> Duration {
        let doubled = 1_u32.checked_shl(self.attempts.min(16)).unwrap_or(u32::MAX);
        let wait = self.config.redial_min.saturating_mul(doubled / 2);
        wait.clamp(self.config.redial_min, self.config.redial_max)
    }
}

fn encode_claim(player: ClientId, entry: &ClaimedPlayer, buf: &mut Vec<u8>) {
    let claim = ClaimRequest {
        player,
        claim: entry.claim.number,
        lease: entry.lease,
        delivered: entry.delivered,
        acknowledged: entry.acknowledged,
        meta: Redacted(&entry.meta),
    };
    match entry.grant.as_deref() {
        Some(grant) => {
            let grant = grant.as_bytes();
            ToHub::ClaimGranted { claim, grant }.encode(buf);
        }
        None => ToHub::Claim(claim).encode(buf),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Shard,
    Join,
    Heartbeat,
    Release(ClientId),
    Claim(ClientId),
    Ack(ClientId),
    Outbox,
    Counts,
    Statistics,
    Mail,
    Kv,
}
