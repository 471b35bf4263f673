//! One peer's session. It composes keys, replay window, acknowledgement, loss recovery and
//! channels.

mod breaker;
mod congestion;
mod flow;
mod inbound_limiter;
mod mtu;
mod opening_keys;
mod path;
mod receive;
mod send;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use crypto::{Aead, Exporter, Provider, Role, SealingKey, SessionSecrets, Suite};
use wire::{Generator, Instant};

use crate::channel::Message;
use crate::channel::{ChannelId, ChannelTable, Content as MessageContent, MessageId, SendError};
use crate::config::Timeouts;
use crate::config::{Config, Mtu};
use crate::error::CloseReason;
use crate::event::Proof;
use crate::event::Settled;
use crate::handshake::params::{ACK_DELAY_MAX, Params};
use crate::handshake::reset::ResetToken;
use crate::handshake::{CONFIRM_LEN, IDENTITY_LEN};
use crate::inbox::Inbox;
use crate::nanos::Nanos;
use crate::outbox::Outbox;
use crate::packet::SkipPolicy;
use crate::packet::{Cid, PacketNumber};
use crate::received::Received;
use crate::rtt::RttEstimator;
use crate::sent::{SentPacket, SentPackets, Summary, Timeout};
use crate::stats::SessionStats;
use flow::{Flow, SendContext};
use inbound_limiter::InboundLimiter;
use mtu::MtuProbing;
use opening_keys::OpeningKeys;
use receive::Phase;
use receive::SealingPhase;
use receive::Tokens;
use send::AckDispatch;

pub(crate) use flow::cap;
pub(crate) use mtu::Outcome;
pub(crate) use path::Path;
pub(crate) use receive::Keying;
pub(crate) use receive::{Opened, open};

/// Keys and state shared with one peer, from the end of the handshake to the last CLOSE.
pub(crate) struct Session<A: Aead> {
    /// Open, closing or draining.
    phase: Phase,
    path: Path,
    /// `PATH_CHALLENGE` and `PATH_RESPONSE` tokens of both sides.
    tokens: Tokens,
    /// The connection id of packets to the peer.
    peer_cid: Cid,
    /// Whether this end dialled or accepted.
    pub(crate) role: Role,
    /// The low 7 bytes of the peer's instance id.
    pub(crate) boot_id: [u8; 7],
    /// The token of the peer's stateless reset, if it has one.
    reset_token: Option<ResetToken>,
    /// What the peer has proved.
    pub(crate) proof: Proof,
    /// The address that the endpoint counts this session against.
    pub(crate) counted_source: Option<IpAddr>,

    sealing: SealingKey<A>,
    /// The key phase of `sealing`, and its limits.
    sealing_phase: SealingPhase,
    opening: OpeningKeys<A>,
    pub(crate) exporter: Exporter,
    /// Packet numbers received, and the ACKs due for them.
    received: Received,
    /// Packets in flight, and what they contain.
    sent: SentPackets<Content>,
    /// Chooses the packet numbers that are skipped against optimistic ACKs.
    skips: SkipPolicy,
    rtt: RttEstimator,
    channels: ChannelTable,
    /// Bit n is set if channel n is reliable.
    reliable_channels: u32,
    /// Messages to send.
    outbox: Outbox,
    /// Received messages, until the application reads them.
    inbox: Inbox,
    /// Congestion control, pacing and send limits.
    flow: Flow,
    /// Limits what the peer can make this end decrypt.
    limiter: InboundLimiter,

    /// CONFIRM and IDENTITY. Every packet carries them until one of those packets is acknowledged.
    confirm: Option<(Box<Confirm>, Sending)>,
    ack_deferral: AckDeferral,
    /// Whether the next packet must ask for an acknowledgement.
    ping: Ping,
    mtu: MtuProbing,
    idle_timeouts: IdleTimeouts,
    /// When a packet must be sent to keep the session alive.
    keepalive_at: Instant,
    /// Neither end has sent a message for at least one keepalive interval.
    is_idle: bool,
    /// When the last message was sent or received.
    message_at: Instant,
    /// The earliest time for the next compaction, so that frequent PINGs do not expand keys each
    /// time.
    compact_at: Instant,
    /// When a packet was last padded to provoke a stateless reset.
    padded_at: Instant,
    opened_at: Instant,
    /// When the last packet was received and decrypted.
    received_at: Instant,
    /// Extends the idle timeout by the time for which this process was stalled since `received_at`.
    idle_grace: Nanos,
    /// Deadlines up to this time were handled; the next drain sends what they require.
    checked_at: Instant,
    /// `Readable` was reported, and the application has not read everything since.
    is_readable_reported: bool,
    /// What the endpoint has not taken yet.
    events: SessionEvents,
    /// The counters that no component keeps.
    tally: SessionStats,
}

pub(crate) type Confirm = ([u8; CONFIRM_LEN], Option<[u8; IDENTITY_LEN]>);

/// Whether to send a PING.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ping {
    None,
    /// Send one with a message, or with a PING if no message waits.
    Due,
    /// Send one without messages. The peer never acknowledges a packet whose messages it gave up.
    Alone,
}

/// The state of a frame that is repeated until it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Due,
    InFlight,
}

/// Whether ACK and CONFIRM have displaced messages since the queue was last empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckDeferral {
    None,
    /// They have: an ACK is sent only when due.
    UntilDue,
    /// They displaced the messages of the last packet, so the next one leaves room for a message.
    NextPacket,
}

/// What a sent packet contains, for the report that it was acknowledged or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Message(MessageContent),
    /// The window granted to the peer, in bytes.
    Window(u64),
    /// CONFIRM, and IDENTITY in peer mode.
    Confirm,
    /// PING and padding.
    MtuProbe(Mtu),
}

/// Events for the endpoint, until it takes them.
#[derive(Debug, Default)]
pub(crate) struct SessionEvents {
    /// Messages wait, and the application was not notified.
    pub(crate) is_readable: bool,
    /// The session ended, with this reason and the peer's text. Reported once.
    pub(crate) closed: Option<Box<(CloseReason, Box<[u8]>)>>,
    /// The session migrated to another path.
    pub(crate) moved: Option<path::Span>,
    /// A check of the MTU has ended.
    pub(crate) mtu_checked: Option<Outcome>,
    /// The realtime rate changed; bytes per second.
    pub(crate) realtime_rate: Option<u32>,
    /// The session may be removed.
    pub(crate) has_ended: bool,
}

impl SessionEvents {
    /// Returns whether there is any event except `is_readable`.
    const fn is_any(&self) -> bool {
        self.has_ended
            || self.closed.is_some()
            || self.moved.is_some()
            || self.mtu_checked.is_some()
            || self.realtime_rate.is_some()
    }
}

impl<A: Aead> Session<A> {
    pub(crate) fn send(
        &mut self,
        now: Instant,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        self.outbox.send(now, channel, message)?;
        self.tally.messages_sent = self.tally.messages_sent.saturating_add(1);
        Ok(())
    }

    pub(crate) fn send_tracked(
        &mut self,
        now: Instant,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        let number = self.outbox.send_tracked(now, message)?;
        self.tally.messages_sent = self.tally.messages_sent.saturating_add(1);
        Ok(number)
    }

    pub(crate) fn has_settled(&self) -> bool {
        self.outbox.has_settled()
    }

    pub(crate) fn poll_settled(&mut self) -> Option<Settled> {
        self.outbox.poll_settled()
    }

    pub(crate) fn receive(&mut self, out: &mut Vec<u8>) -> Option<ChannelId> {
        let channel = self.inbox.recv(out);
        if channel.is_some() {
            self.tally.messages_received = self.tally.messages_received.saturating_add(1);
        } else {
            self.is_readable_reported = false;
        }
        channel
    }

    /// Returns how many bytes of realtime messages may be sent at once.
    pub(crate) fn realtime_room(&self, now: Instant) -> u32 {
        self.flow.realtime.available(now)
    }

    pub(crate) fn has_credit_to_send(&self) -> bool {
        self.is_open() && self.inbox.window_to_send().is_some()
    }

    pub(crate) const fn take_readable(&mut self) -> bool {
        core::mem::replace(&mut self.events.is_readable, false)
    }

    /// Returns whether there are events other than `Readable`.
    pub(crate) fn has_events(&self) -> bool {
        self.events.is_any() || self.outbox.has_settled()
    }

    pub(crate) fn take_events(&mut self) -> SessionEvents {
        core::mem::take(&mut self.events)
    }

    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    pub(crate) const fn peer_address(&self) -> SocketAddr {
        self.path.peer()
    }

    pub(crate) const fn is_at_proved_address(&self) -> bool {
        self.path.is_proved()
    }

    pub(crate) const fn local(&self) -> Option<IpAddr> {
        self.path.local()
    }

    pub(crate) const fn is_resettable(&self) -> bool {
        self.reset_token.is_some()
    }

    /// Returns whether an attempt begun at `began` crossed this handshake: its initiator could not
    /// know of this session yet.
    pub(crate) fn may_cross(&self, began: Instant) -> bool {
        began <= self.opened_at + self.rtt.ptos(1)
    }

    pub(crate) fn stats(&self) -> SessionStats {
        let is_measured = self.rtt.latest().is_some();
        let measured = |time| if is_measured { time } else { Duration::ZERO };
        let (outbound, inbound) = (self.outbox.counts(), self.inbox.counts());
        SessionStats {
            messages_displaced: outbound.displaced,
            messages_expired: outbound.expired,
            message_frames_lost: outbound.lost,
            message_frames_repeated: inbound.repeated,
            message_frames_overtaken: inbound.overtaken,
            messages_dropped_unread: inbound.unread_dropped,
            messages_dropped_incomplete: inbound.reassemblies_dropped,
            rtt: measured(self.rtt.smoothed()),
            rtt_min: self.rtt.min().unwrap_or_default(),
            rtt_variation: measured(self.rtt.variation()),
            key_phase_sent: self.sealing_phase.generation,
            key_phase_received: self.opening.generation,
            packets_unopened: self.opening.failed,
            congestion_window: self.flow.congestion.window,
            bytes_in_flight: self.sent.in_flight_bytes().total,
            realtime_rate: self.flow.breaker.rate,
            mtu: self.mtu.get(),
            ..self.tally
        }
    }

    pub(crate) fn memory(&self) -> usize {
        let grant = match &self.proof {
            Proof::Token(grant) => grant.user.capacity(),
            Proof::Anonymous | Proof::Node(_) | Proof::Server(_) => 0,
        };
        let confirm = self.confirm.as_ref().map_or(0, |_| size_of::<Confirm>());
        let parts = [
            size_of::<Self>(),
            self.outbox.memory(),
            self.inbox.memory(),
            self.sent.memory(),
            self.received.memory(),
            self.opening.memory(),
            self.sealing.memory(),
            self.path.memory(),
            grant,
            confirm,
        ];
        parts.into_iter().fold(0, usize::saturating_add)
    }

    fn shrink(&mut self, now: Instant) {
        self.path.shrink(now);
        self.outbox.shrink();
        self.inbox.shrink();
        self.sent.shrink();
    }

    /// If the session is idle, also drops expanded keys and channel state until the next packet.
    fn compact(&mut self, now: Instant) {
        if self.is_idle
            && self.compact_at <= now
            && self.sent.in_flight_packets() == 0
            && !self.received.wants_ack()
            && !self.outbox.has_work()
        {
            self.sealing.drop_expanded();
            self.opening.drop_expanded();
            self.outbox.compact();
            self.sent.shrink_memory();
            self.compact_at = now + self.idle_timeouts.keepalive.divided(2);
        }
    }

    /// Borrows what a call that dispatches acknowledgements and losses needs.
    const fn parts(
        &mut self,
        now: Instant,
    ) -> (
        &mut SentPackets<Content>,
        &mut RttEstimator,
        AckDispatch<'_>,
    ) {
        let dispatch = AckDispatch {
            now,
            outbox: &mut self.outbox,
            inbox: &mut self.inbox,
            confirm: &mut self.confirm,
            mtu: &mut self.mtu,
            events: &mut self.events,
        };
        (&mut self.sent, &mut self.rtt, dispatch)
    }

    fn count(&mut self, now: Instant, summary: &Summary) {
        self.mtu.on_summary(now, summary);
        let context = SendContext {
            now,
            rtt: &self.rtt,
            in_flight: self.sent.in_flight_bytes(),
            len: self.mtu.get(),
        };
        self.flow.on_summary(&context, summary);
        self.sent.set_recovery(self.flow.congestion.recovery);
        self.report_rate();
        self.outbox.on_untracked_lost(summary.untracked_lost);
        self.tally.packets_acknowledged = self
            .tally
            .packets_acknowledged
            .saturating_add(u64::from(summary.acked_packets));
        self.tally.packets_lost = self
            .tally
            .packets_lost
            .saturating_add(u64::from(summary.lost_packets));
        self.tally.packets_lost_spuriously = self
            .tally
            .packets_lost_spuriously
            .saturating_add(u64::from(summary.spurious_packets));
    }

    fn report_rate(&mut self) {
        if let Some(rate) = self.flow.take_rate_change() {
            self.events.realtime_rate = Some(rate);
        }
    }

    pub(crate) fn new<P: Provider<Aead = A>>(
        now: Instant,
        config: &Config,
        provider: &P,
        generator: &mut Generator,
        start: SessionStart,
    ) -> Self {
        let (ours, theirs, exporter) = start.secrets.split(start.role);
        let mut rtt = RttEstimator::new(start.peer_params.ack_delay_max);
        if let Some(round_trip) = start.round_trip {
            rtt.on_sample(round_trip, Duration::ZERO);
        }
        let idle_timeouts = IdleTimeouts::new(
            &start.timeouts,
            start.peer_params.idle_timeout,
            start.peer_params.keepalive,
        );
        let window = usize::try_from(start.peer_params.receive_window).unwrap_or(usize::MAX);
        // Clients keep no state across a restart, so only servers and nodes send resets.
        let may_reset = start.role == Role::Dialler || matches!(start.proof, Proof::Node(_));
        let confirm = start
            .confirm
            .map(|confirm| (Box::new(confirm), Sending::Due));
        Self {
            phase: Phase::Open,
            path: start.path,
            tokens: Tokens::default(),
            peer_cid: start.peer_cid,
            role: start.role,
            boot_id: start.peer_params.boot_id,
            // Shorter connection ids are reused, so others could have collected the token.
            reset_token: start
                .peer_params
                .reset_token
                .filter(|_| may_reset && start.peer_cid.len() == Cid::LEN_MAX),
            proof: start.proof,
            counted_source: start.source,
            sealing: ours.into_sealing_key(provider, start.suite),
            sealing_phase: SealingPhase::new(now),
            opening: OpeningKeys::new(provider, start.suite, theirs),
            exporter,
            received: Received::new(PacketNumber::ZERO, ACK_DELAY_MAX),
            sent: SentPackets::new(PacketNumber::ZERO),
            skips: SkipPolicy::new(PacketNumber::ZERO, generator),
            rtt,
            outbox: Outbox::new(config.channels.clone(), window, 0),
            inbox: Inbox::new(config.channels.clone(), config.receive_window(), 0),
            flow: Flow::new(now, config),
            limiter: InboundLimiter::new(now, &config.inbound),
            reliable_channels: config.channels.reliable_bits(),
            channels: config.channels.clone(),
            // The accepter sends at once, since the dialler repeats CONFIRM until it receives a
            // packet.
            ping: if confirm.is_none() {
                Ping::Due
            } else {
                Ping::None
            },
            confirm,
            ack_deferral: AckDeferral::None,
            mtu: MtuProbing::new(config, start.peer_params.datagram_max),
            idle_timeouts,
            keepalive_at: now + idle_timeouts.keepalive,
            is_idle: false,
            message_at: now,
            compact_at: now,
            padded_at: now,
            opened_at: now,
            received_at: now,
            idle_grace: Nanos::ZERO,
            checked_at: now,
            is_readable_reported: false,
            events: SessionEvents::default(),
            tally: SessionStats::default(),
        }
    }

    /// Returns when `handle_timeout` is next due. Handled deadlines wait for the drain.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let pending = |at: &Instant| *at > self.checked_at;
        match &self.phase {
            Phase::Open => Some(self.first_deadline()),
            Phase::Flushing { until, .. } => Some(self.first_deadline().min(*until)),
            Phase::Closing { ends_at, closes } => closes
                .next_at
                .filter(pending)
                .map_or(Some(*ends_at), |next| Some(next.min(*ends_at))),
            Phase::Draining { ends_at } => Some(*ends_at),
            Phase::Gone => None,
        }
    }

    /// Returns the earliest deadline. Called on each drain, so it builds no list.
    fn first_deadline(&self) -> Instant {
        let mut first = self.received_at + self.idle_span();
        let mut always = |at: Option<Instant>| {
            if let Some(at) = at {
                first = first.min(at);
            }
        };
        always(self.sent.poll_timeout(&self.rtt));
        always(self.outbox.poll_timeout());
        always(self.inbox.poll_timeout());
        always(self.opening.poll_timeout());
        always(self.mtu.poll_timeout());
        let mut pending = |at: Option<Instant>| {
            if let Some(at) = at
                && at > self.checked_at
            {
                first = first.min(at);
            }
        };
        pending(self.received.poll_timeout());
        pending(Some(self.keepalive_at));
        pending(self.path.poll_timeout());
        pending(self.flow.wake_at.get());
        first
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.checked_at = self.checked_at.max(now);
        self.opening.handle_timeout(now);
        self.run_phase(now);
        if !matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            return;
        }
        if now >= self.received_at + self.idle_span() {
            self.end(CloseReason::Timeout, Box::default());
            self.phase = Phase::Gone;
            self.events.has_ended = true;
            return;
        }
        self.outbox.handle_timeout(now);
        self.inbox.handle_timeout(now);
        self.mtu.handle_timeout(now);
        if now >= self.keepalive_at {
            // A whole keepalive interval passed without a packet of ours.
            self.is_idle = true;
            self.shrink(now);
        }
        // If packets were lost, a probe for later ones may be due as well.
        self.run_recovery(now);
        self.run_recovery(now);
    }

    /// Declares overdue packets lost, or sends a probe.
    fn run_recovery(&mut self, now: Instant) {
        let (sent, rtt, mut dispatch) = self.parts(now);
        let timeout = sent.on_timeout(now, rtt, |content, _| dispatch.on_lost(content));
        match timeout {
            Timeout::Checked(summary) => self.count(now, &summary),
            Timeout::Probe => {
                if self.flow.detect_silence(now, &self.rtt) {
                    self.mtu.on_black_hole(now);
                }
                self.sent.set_recovery(self.flow.congestion.recovery);
                self.report_rate();
                self.outbox.probe();
                if let Some((_, sending)) = &mut self.confirm {
                    *sending = Sending::Due;
                }
                self.ping = if self.outbox.is_keeping() {
                    Ping::Alone
                } else {
                    Ping::Due
                };
            }
        }
    }

    /// Changes idle timeout and keepalive. Returns the values in effect.
    pub(crate) fn set_timeouts(
        &mut self,
        now: Instant,
        timeouts: &Timeouts,
    ) -> (Duration, Duration) {
        self.idle_timeouts.set(timeouts);
        // Earlier than before; a longer keepalive takes effect with the next packet.
        self.keepalive_at = self.keepalive_at.min(now + self.idle_timeouts.keepalive);
        (
            self.idle_timeouts.idle.get(),
            self.idle_timeouts.keepalive.get(),
        )
    }

    pub(crate) fn set_ttl(&mut self, channel: ChannelId, ttl: Duration) -> bool {
        self.outbox.set_ttl(channel, ttl)
    }

    /// Extends the idle deadline by a stall of this process.
    pub(crate) fn on_stall(&mut self, span: Duration) {
        self.idle_grace = (self.idle_grace + Nanos::of(span)).min(Nanos::of(STALL_MAX));
    }

    /// Returns the idle timeout, which is at least three probe timeouts.
    fn idle_span(&self) -> Nanos {
        self.idle_timeouts.idle.max(self.rtt.ptos(3)) + self.idle_grace
    }
}

pub(crate) struct SessionStart {
    pub(crate) role: Role,
    pub(crate) path: Path,
    pub(crate) peer_cid: Cid,
    pub(crate) suite: Suite,
    pub(crate) secrets: SessionSecrets,
    pub(crate) peer_params: Params,
    /// The first RTT sample: the handshake's duration, or `None` if a datagram of it was repeated.
    pub(crate) round_trip: Option<Duration>,
    pub(crate) confirm: Option<Confirm>,
    pub(crate) proof: Proof,
    pub(crate) source: Option<IpAddr>,
    pub(crate) timeouts: Timeouts,
}

/// The idle timeout and the keepalive interval of a session, within what both ends announced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleTimeouts {
    /// The smaller of both ends' idle timeouts; the longest possible one.
    agreed: Nanos,
    /// The peer's longest keepalive interval.
    theirs: Nanos,
    /// Our keepalive interval, as announced; the longest possible one.
    announced: Nanos,
    /// The session ends after this time without a packet from the peer.
    pub(crate) idle: Nanos,
    /// Time between our packets if nothing else is sent.
    pub(crate) keepalive: Nanos,
}

impl IdleTimeouts {
    /// Negotiates with a peer that announced these.
    pub(crate) fn new(ours: &Timeouts, their_idle: Duration, their_keepalive: Duration) -> Self {
        let agreed = ours.idle.get().min(their_idle);
        let third = agreed.checked_div(3).unwrap_or_default();
        let announced = Nanos::of(ours.keepalive.get().min(third));
        let theirs = Nanos::of(their_keepalive.min(third));
        let agreed = Nanos::of(agreed);
        Self {
            agreed,
            theirs,
            announced,
            idle: agreed,
            keepalive: announced,
        }
    }

    /// Changes our values. The peer relies on the announced ones: its keepalives do not become more
    /// frequent, so our idle timeout is at least three of them, and ours do not become rarer.
    pub(crate) fn set(&mut self, timeouts: &Timeouts) {
        let floor = self.theirs.saturating_mul(3).min(self.agreed);
        self.idle = Nanos::of(timeouts.idle.get()).clamp(floor, self.agreed);
        let most = self.announced.min(self.idle.divided(3));
        self.keepalive = Nanos::of(timeouts.keepalive.get()).min(most);
    }
}

/// Limit of [`Session::on_stall`]: of one stall, and of all until a peer's next packet.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(10);
