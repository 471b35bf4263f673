//! One peer: composes keys, windows, acknowledgement, loss and channels, and owns no algorithm.

mod close;
mod fates;
mod key_update;
mod mtu;
mod opening;
mod path;
mod receive;
mod roam;
mod send;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use crypto::{Aead, Exporter, Provider, Role, SealingKey, SessionSecrets, Suite};
use wire::{Generator, Instant};

use crate::channel::{ChannelId, ChannelTable, Content as MessageContent, MessageId, SendError};
use crate::config::Config;
use crate::endpoint::stall::STALL_MAX;
use crate::error::CloseReason;
use crate::event::Proof;
use crate::handshake::params::{ACK_DELAY_MAX, Params};
use crate::handshake::peer::{CONFIRM_LEN, IDENTITY_LEN};
use crate::handshake::reset::ResetToken;
use crate::inbox::Inbox;
use crate::outbox::Outbox;
use crate::outcome::{Message, Settled};
use crate::packet::{Cid, PacketNumber};
use crate::received::Received;
use crate::replay::ReplayWindow;
use crate::rtt::RttEstimator;
use crate::sent::{SentPacket, SentPackets, Summary, Timeout};
use crate::skip::SkipPolicy;
use crate::stats::SessionStats;
use close::Phase;
use fates::Fates;
pub(crate) use key_update::Keying;
use key_update::SealingPhase;
use mtu::MtuCheck;
pub(crate) use mtu::Outcome;
use opening::OpeningKeys;
pub(crate) use path::Path;
pub(crate) use receive::{Opened, open};
use roam::Tokens;

/// Shared keys and state between two peers, from the end of the handshake to the last CLOSE.
pub(crate) struct Session<A: Aead> {
    phase: Phase,
    /// Where packets go.
    path: Path,
    /// Challenges of either side.
    tokens: Tokens,
    /// What packets to the peer bear.
    peer_cid: Cid,
    role: Role,
    /// The low bytes of the peer's instance id.
    boot_id: [u8; 7],
    /// What ends the session where the server has lost it.
    reset_token: Option<ResetToken>,
    proof: Proof,
    /// The address that the endpoint counts this session to.
    source: Option<IpAddr>,

    sealing: SealingKey<A>,
    sealing_phase: SealingPhase,
    opening: OpeningKeys<A>,
    exporter: Exporter,
    /// Packets that opened.
    replay: ReplayWindow,
    /// Packets whose frames were taken, for the ACKs we send.
    received: Received,
    sent: SentPackets<Content>,
    skips: SkipPolicy,
    rtt: RttEstimator,
    channels: ChannelTable,
    /// Which of them are reliable: bit n is channel n.
    reliable_channels: u32,
    outbox: Outbox,
    inbox: Inbox,

    /// CONFIRM and IDENTITY, which every packet carries until one of them is acknowledged.
    confirm: Option<(Box<Confirm>, Sending)>,
    /// Whether ACK and CONFIRM have kept a message out of a packet.
    crowding: Crowding,
    /// PINGs that a probe or the handshake asks for.
    pings_due: u8,
    /// Largest datagram to send, bytes.
    mtu: u16,
    mtu_check: MtuCheck,
    idle_timeout: Duration,
    keepalive: Duration,
    /// When we speak at the latest.
    keepalive_at: Instant,
    /// When the last packet opened.
    heard_at: Instant,
    /// What the idle timeout is longer by since then: we were not there to listen.
    deaf_for: Duration,
    /// Deadlines up to here were seen to; what they ask for waits for the next drain.
    checked_at: Instant,
    /// The application was told that messages wait, and has not taken all since.
    is_readable_told: bool,
    news: News,
    stats: SessionStats,
}

/// What a session starts from.
pub(crate) struct SessionStart {
    pub(crate) role: Role,
    pub(crate) path: Path,
    pub(crate) peer_cid: Cid,
    pub(crate) suite: Suite,
    pub(crate) secrets: SessionSecrets,
    pub(crate) peer_params: Params,
    /// How long the handshake took, as a first sample; `None` where something was sent twice.
    pub(crate) round_trip: Option<Duration>,
    /// What the dialler sends until it is acknowledged.
    pub(crate) confirm: Option<Confirm>,
    pub(crate) proof: Proof,
    pub(crate) source: Option<IpAddr>,
}

/// Body of CONFIRM, and of IDENTITY in peer mode.
pub(crate) type Confirm = ([u8; CONFIRM_LEN], Option<[u8; IDENTITY_LEN]>);

/// Whether something that is sent until acknowledged is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// It waits for the next packet.
    Due,
    /// A packet with it is in flight.
    InFlight,
}

/// Whether what reports has kept messages out of packets since the queue was last empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crowding {
    /// It has not.
    None,
    /// It has: it leaves only when it is due.
    Before,
    /// It has, in the last packet: in the next it makes room.
    LastPacket,
}

/// What a packet in flight carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A message or a fragment of one.
    Message(MessageContent),
    /// The credit of a WINDOW.
    Window(u64),
    /// CONFIRM, with IDENTITY in peer mode.
    Confirm,
    /// PING and padding.
    MtuProbe,
}

/// What the endpoint passes on after it has touched a session.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Messages have come, and the application has not been told.
    pub(crate) is_readable: bool,
    /// The session has ended, and what the peer said to that; told once.
    pub(crate) closed: Option<(CloseReason, Box<[u8]>)>,
    /// Where the peer is now, where that has changed.
    pub(crate) moved: Option<SocketAddr>,
    /// The check of the path's size is over.
    pub(crate) mtu_checked: Option<Outcome>,
    /// Its slot may be freed.
    pub(crate) is_gone: bool,
}

impl<A: Aead> Session<A> {
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
        let idle_timeout = config
            .idle_timeout
            .get()
            .min(start.peer_params.idle_timeout);
        let keepalive = config.keepalive.get().min(idle_timeout / 3);
        let window = usize::try_from(start.peer_params.receive_window).unwrap_or(usize::MAX);
        let mtu = config.mtu.get().min(start.peer_params.datagram_max);
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
            // With shorter ids, others could have collected it.
            reset_token: start
                .peer_params
                .reset_token
                .filter(|_| start.role == Role::Dialler && start.peer_cid.len() == Cid::LEN_MAX),
            proof: start.proof,
            source: start.source,
            sealing: ours.into_sealing_key(provider, start.suite),
            sealing_phase: SealingPhase::new(now),
            opening: OpeningKeys::new(provider, start.suite, theirs),
            exporter,
            replay: ReplayWindow::new(),
            received: Received::new(PacketNumber::ZERO, ACK_DELAY_MAX),
            sent: SentPackets::new(PacketNumber::ZERO),
            skips: SkipPolicy::new(PacketNumber::ZERO, generator),
            rtt,
            outbox: Outbox::new(config.channels.clone(), window, 0),
            inbox: Inbox::new(config.channels.clone(), config.receive_window(), 0),
            reliable_channels: config.channels.reliable_bits(),
            channels: config.channels.clone(),
            // An accepter speaks at once: the dialler repeats CONFIRM until it hears.
            pings_due: u8::from(confirm.is_none()),
            confirm,
            crowding: Crowding::None,
            mtu_check: MtuCheck::new(config.mtu_check, mtu),
            mtu,
            idle_timeout,
            keepalive,
            keepalive_at: now + keepalive,
            heard_at: now,
            deaf_for: Duration::ZERO,
            checked_at: now,
            is_readable_told: false,
            news: News::default(),
            stats: SessionStats::default(),
        }
    }

    /// Queues a message.
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
        self.stats.messages_sent += 1;
        Ok(())
    }

    /// Queues a message whose fate [`poll_settled`](Self::poll_settled) will tell.
    pub(crate) fn send_tracked(
        &mut self,
        now: Instant,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        let number = self.outbox.send_tracked(now, message)?;
        self.stats.messages_sent += 1;
        Ok(number)
    }

    /// Returns whether it is known what became of a tracked message.
    pub(crate) fn has_settled(&self) -> bool {
        self.outbox.has_settled()
    }

    /// Returns what became of the next tracked message.
    pub(crate) fn poll_settled(&mut self) -> Option<Settled> {
        self.outbox.poll_settled()
    }

    /// Takes the next message.
    pub(crate) fn receive(&mut self, out: &mut Vec<u8>) -> Option<ChannelId> {
        let channel = self.inbox.recv(out);
        if channel.is_some() {
            self.stats.messages_received += 1;
        } else {
            self.is_readable_told = false;
        }
        channel
    }

    /// Returns whether the peer is to be told of credit.
    pub(crate) fn has_credit_to_tell(&self) -> bool {
        self.is_open() && self.inbox.window_to_send().is_some()
    }

    /// Takes what has happened since the last call.
    pub(crate) fn take_news(&mut self) -> News {
        core::mem::take(&mut self.news)
    }

    /// Returns whether messages may be sent.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    pub(crate) const fn peer_address(&self) -> SocketAddr {
        self.path.peer()
    }

    /// Returns whether the peer has answered from where it is.
    pub(crate) const fn is_at_proved_address(&self) -> bool {
        self.path.is_proved()
    }

    pub(crate) const fn local(&self) -> Option<IpAddr> {
        self.path.local()
    }

    /// Returns whether the server may say that it has lost the session.
    pub(crate) const fn is_resettable(&self) -> bool {
        self.reset_token.is_some()
    }

    pub(crate) const fn role(&self) -> Role {
        self.role
    }

    pub(crate) const fn boot_id(&self) -> [u8; 7] {
        self.boot_id
    }

    pub(crate) const fn proof(&self) -> &Proof {
        &self.proof
    }

    pub(crate) const fn exporter(&self) -> &Exporter {
        &self.exporter
    }

    pub(crate) const fn counted_source(&self) -> Option<IpAddr> {
        self.source
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
            key_phase_sent: self.sealing_phase.generation(),
            key_phase_received: self.opening.generation(),
            packets_unopened: self.opening.failed(),
            ..self.stats
        }
    }

    /// Returns about how many bytes of memory the session holds.
    pub(crate) fn memory(&self) -> usize {
        let grant = match &self.proof {
            Proof::Token(grant) => grant.user.capacity(),
            Proof::Anonymous | Proof::Node(_) | Proof::Server(_) => 0,
        };
        let confirm = self.confirm.as_ref().map_or(0, |_| size_of::<Confirm>());
        size_of::<Self>()
            + self.outbox.memory()
            + self.inbox.memory()
            + self.sent.memory()
            + self.opening.memory()
            + self.path.memory()
            + grant
            + confirm
    }

    /// Gives back what queues and records grew to, where they are empty.
    fn shrink(&mut self, now: Instant) {
        self.path.shrink(now);
        self.outbox.shrink();
        self.inbox.shrink();
        self.sent.shrink();
    }

    /// Returns when `handle_timeout` is next needed. Deadlines that were seen to and wait for the
    /// drain are left out.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let pending = |at: &Instant| *at > self.checked_at;
        match &self.phase {
            Phase::Open | Phase::Flushing { .. } => {
                let until = match self.phase {
                    Phase::Flushing { until, .. } => Some(until),
                    Phase::Open | Phase::Closing { .. } | Phase::Draining { .. } | Phase::Gone => {
                        None
                    }
                };
                [
                    Some(self.heard_at + self.idle_span()),
                    until,
                    self.received.poll_timeout().filter(pending),
                    Some(self.keepalive_at).filter(pending),
                    self.sent.poll_timeout(&self.rtt),
                    self.outbox.poll_timeout(),
                    self.inbox.poll_timeout(),
                    self.opening.poll_timeout(),
                    self.path.poll_timeout().filter(pending),
                ]
                .into_iter()
                .flatten()
                .min()
            }
            Phase::Closing {
                next_at, gone_at, ..
            } => next_at
                .filter(pending)
                .map_or(Some(*gone_at), |next| Some(next.min(*gone_at))),
            Phase::Draining { gone_at } => Some(*gone_at),
            Phase::Gone => None,
        }
    }

    /// Runs every timer due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.checked_at = self.checked_at.max(now);
        self.opening.handle_timeout(now);
        self.run_phase(now);
        if !matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            return;
        }
        if now >= self.heard_at + self.idle_span() {
            self.end(CloseReason::Timeout, Box::default());
            self.phase = Phase::Gone;
            self.news.is_gone = true;
            return;
        }
        self.outbox.handle_timeout(now);
        self.inbox.handle_timeout(now);
        if now >= self.keepalive_at {
            // A whole keepalive without a packet of ours.
            self.shrink(now);
        }
        let (sent, rtt, mut fates) = self.parts(now);
        let timeout = sent.on_timeout(now, rtt, |content, _| fates.on_lost(content));
        match timeout {
            Timeout::Checked(summary) => self.count(&summary),
            Timeout::Probe => {
                self.outbox.probe();
                if let Some((_, sending)) = &mut self.confirm {
                    *sending = Sending::Due;
                }
                self.pings_due = 1;
            }
        }
    }

    /// Splits the session for a call that reports what became of packets.
    const fn parts(
        &mut self,
        now: Instant,
    ) -> (&mut SentPackets<Content>, &mut RttEstimator, Fates<'_>) {
        let fates = Fates {
            now,
            outbox: &mut self.outbox,
            inbox: &mut self.inbox,
            confirm: &mut self.confirm,
            mtu: &mut self.mtu,
            mtu_check: &mut self.mtu_check,
            news: &mut self.news,
        };
        (&mut self.sent, &mut self.rtt, fates)
    }

    fn count(&mut self, summary: &Summary) {
        self.stats.packets_acknowledged += u64::from(summary.acked_packets);
        self.stats.packets_lost += u64::from(summary.lost_packets);
        self.stats.packets_lost_spuriously += u64::from(summary.spurious_packets);
    }

    /// Moves the idle deadline by a stall of our own process.
    pub(crate) fn on_stall(&mut self, span: Duration) {
        self.deaf_for = self.deaf_for.saturating_add(span).min(STALL_MAX);
    }

    /// Silence after which the session is given up: never less than three probes take.
    fn idle_span(&self) -> Duration {
        self.idle_timeout.max(self.rtt.pto() * 3) + self.deaf_for
    }
}
