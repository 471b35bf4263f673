//! Creation of a node.

use core::num::NonZeroU32;

use crypto::{Identity, Provider, Secret32};
use udp_proto::{AppId, CidLen, Endpoint, Listen, ListenError, Mtu};
use wire::{Instant, NodeId};

#[cfg(feature = "tcp")]
use super::tunnels::Tunnels;
use crate::config::{Config, Game, NewError};
use crate::flow_message::GAME_NAME_MAX;
use crate::label::LabelLimits;
use crate::link_state::{Admission, LinkStateTable, Network, TableConfig};
use crate::server_probe::ServerProbe;
use crate::shard::ShardId;
#[cfg(feature = "tcp")]
use crate::tcp::TcpConfig;
#[cfg(feature = "tcp")]
use crate::tunnel::TunnelIdentity;

/// Checks the configuration.
pub(super) fn check(config: &Config) -> Result<(), NewError> {
    if !(1..=ShardId::COUNT_MAX).contains(&config.shards) {
        return Err(NewError::Shards);
    }
    let is_long = |game: &Game| game.name.len() > GAME_NAME_MAX;
    if config.games.iter().any(is_long) {
        return Err(NewError::GameName);
    }
    #[cfg(feature = "tcp")]
    if config.tcp.iter().flat_map(|tcp| &tcp.games).any(is_long) {
        return Err(NewError::GameName);
    }
    if !config.probes.values().all(ServerProbe::is_valid) {
        return Err(NewError::Probe);
    }
    if config.games.iter().any(Game::has_line_for_datagrams) {
        return Err(NewError::HeaderVersion);
    }
    Ok(())
}

/// Creates the state for TCP games, if configured.
#[cfg(feature = "tcp")]
pub(super) fn tunnels(
    config: Option<TcpConfig>,
    identity: &Identity,
    now: Instant,
) -> Result<Option<Box<Tunnels>>, NewError> {
    let Some(tcp) = config else {
        return Ok(None);
    };
    let identity = TunnelIdentity::new(identity).map_err(|_| NewError::TunnelIdentity)?;
    let tunnels = Tunnels::new(tcp, identity, now);
    Ok(Some(Box::new(tunnels)))
}

pub(super) const fn label_limits(config: &Config) -> LabelLimits {
    LabelLimits {
        labels_max: config.labels_max,
        per_owner_max: config.labels_per_peer_max,
        rate: config.label_rate,
        burst: config.label_rate / 4,
        owner_rate: config.owner_rate,
    }
}

/// Network ids of both secrets.
pub(super) fn networks_of<P: Provider>(
    provider: &P,
    config: &Config,
) -> (Network, Option<Network>) {
    let previous = config.previous_secret.as_ref();
    let previous = previous.map(|secret| network_of(provider, secret));
    (network_of(provider, &config.secret), previous)
}

/// Network id in records: a hash that reveals nothing about the secret.
fn network_of<P: Provider>(provider: &P, secret: &Secret32) -> Network {
    let hash = provider.hmac_sha256(secret.expose(), &[b"tw1 mesh network"]);
    Network(hash.first_chunk().copied().unwrap_or_default())
}

pub(super) fn table(
    config: &Config,
    (network, previous): (Network, Option<Network>),
    own: NodeId,
) -> LinkStateTable {
    let mut limits = TableConfig::default();
    if let Some(members) = &config.members {
        limits.admission = Admission::Listed(members.clone());
    }
    let mut table = LinkStateTable::new(limits, network, own);
    if let Some(previous) = previous {
        table.accept_also(previous);
    }
    table
}

pub(super) fn endpoint<P: Provider>(
    config: &Config,
    identity: Identity,
    provider: P,
    now: Instant,
) -> Result<Endpoint<P>, NewError> {
    let mut sessions = udp_proto::Config::default();
    sessions.sessions_max = u16::try_from(config.links_max.saturating_mul(4)).unwrap_or(u16::MAX);
    sessions.half_open_max = 256;
    sessions.mtu_check = Some(Mtu::MESH);
    sessions.receive_window = RECEIVE_WINDOW;
    sessions.realtime_rate = CONTROL_RATE;
    sessions.realtime_burst = CONTROL_RATE.get() / 4;
    if config.reset_secret.is_some() {
        sessions.cid_len = CidLen::Eight;
    }
    let mut endpoint = Endpoint::new(sessions, APP, provider, now)?;
    let network = udp_proto::Network {
        secret: config.secret.clone(),
        previous: config.previous_secret.clone(),
    };
    let mut listen = Listen::new(identity, config.instance).with_network(network);
    listen.reset_secret.clone_from(&config.reset_secret);
    // A new endpoint with connection ids can fail only for lack of randomness.
    endpoint
        .listen(now, listen)
        .map_err(|_: ListenError| NewError::NoEntropy)?;
    if let Some(members) = &config.members {
        endpoint.set_allowed_nodes(Some(members.keys().copied().collect()));
    }
    Ok(endpoint)
}

/// Application id of the mesh in `udp_proto`, distinct from all games: "tickmesh".
const APP: AppId = AppId(0x7469_636b_6d65_7368);
/// Bytes per second of control traffic with one neighbour. The burst is a quarter of it, so that
/// the answer to a full request is sent at once. Flows do not use sessions.
const CONTROL_RATE: NonZeroU32 = NonZeroU32::new(1 << 20).unwrap();
/// Reliable bytes in flight from a neighbour: twice the answer to a full request.
const RECEIVE_WINDOW: u32 = 192 << 10;
