//! What a session starts from, and its first state.

use core::net::IpAddr;
use core::time::Duration;

use crypto::{Aead, Provider, Role, SessionSecrets, Suite};
use wire::{Generator, Instant};

use super::close::Phase;
use super::flow::Flow;
use super::gate::Gate;
use super::key_update::SealingPhase;
use super::mtu::MtuProbing;
use super::opening::OpeningKeys;
use super::roam::Tokens;
use super::{Confirm, Crowding, News, Path, Ping, Sending, Session, Tally};
use crate::config::Config;
use crate::event::Proof;
use crate::handshake::params::{ACK_DELAY_MAX, Params};
use crate::inbox::Inbox;
use crate::nanos::Nanos;
use crate::outbox::Outbox;
use crate::packet::{Cid, PacketNumber};
use crate::received::Received;
use crate::rtt::RttEstimator;
use crate::sent::SentPackets;
use crate::skip::SkipPolicy;
use crate::timeouts::{Silence, Timeouts};

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
    /// Ours, as they were announced.
    pub(crate) timeouts: Timeouts,
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
        let silence = Silence::new(
            &start.timeouts,
            start.peer_params.idle_timeout,
            start.peer_params.keepalive,
        );
        let window = usize::try_from(start.peer_params.receive_window).unwrap_or(usize::MAX);
        // A client keeps nothing that outlives it; a node does, whichever end dialled.
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
            // With shorter ids, others could have collected it.
            reset_token: start
                .peer_params
                .reset_token
                .filter(|_| may_reset && start.peer_cid.len() == Cid::LEN_MAX),
            proof: start.proof,
            source: start.source,
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
            gate: Gate::new(now, &config.inbound),
            reliable_channels: config.channels.reliable_bits(),
            channels: config.channels.clone(),
            // An accepter speaks at once: the dialler repeats CONFIRM until it hears.
            ping: if confirm.is_none() {
                Ping::Due
            } else {
                Ping::None
            },
            confirm,
            crowding: Crowding::None,
            mtu: MtuProbing::new(config, start.peer_params.datagram_max),
            silence,
            keepalive_at: now + silence.keepalive,
            is_resting: false,
            message_at: now,
            rest_at: now,
            padded_at: now,
            opened_at: now,
            heard_at: now,
            deaf_for: Nanos::ZERO,
            checked_at: now,
            is_readable_told: false,
            news: News::default(),
            tally: Tally::default(),
        }
    }
}
