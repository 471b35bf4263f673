//! Configuration of a node.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use crypto::{NoEntropy, Secret32};
use wire::{InstanceId, NodeId};

use crate::Bootstrap;
use crate::choice::ChoiceConfig;
use crate::cost::CostModel;
use crate::game::{Game, ServerProbe};
use crate::hop::HopKind;
use crate::link_state::{Profile, Roles};
use crate::proxy_header::TrustedProxies;
use crate::reply_budget::UnprovedLimits;
use crate::signed_config::Holder;

/// Identity-independent settings and limits of a node.
#[derive(Debug)]
#[non_exhaustive]
pub struct Config {
    /// The mesh's shared secret.
    pub secret: Secret32,
    /// A second accepted secret while nodes change over: set it to the new secret on all nodes,
    /// then swap the two on one node after the other, then remove the old one.
    pub previous_secret: Option<Secret32>,
    /// Random id of this run of the node.
    pub instance: InstanceId,
    /// Secret for stateless resets, which end an earlier run's sessions at its neighbours; kept
    /// across restarts and unique to this node (`crypto::reset_file`). If it is set, connection ids
    /// have 8 bytes. If it is `None`, neighbours notice a restart when they are dialed, or after 10
    /// s of silence.
    pub reset_secret: Option<Secret32>,
    /// Nodes to dial first.
    pub bootstrap: Bootstrap,
    /// Published roles, name and addresses, the mesh socket's first, as others reach it.
    pub profile: Profile,
    /// Members and their roles; `None` admits every holder of the secret, in any role.
    pub members: Option<BTreeMap<NodeId, Roles>>,
    /// Games over UDP.
    pub games: Vec<Game>,
    /// Games over TCP and their settings; `None` carries none.
    #[cfg(feature = "tcp")]
    pub tcp: Option<crate::TcpConfig>,
    /// Signed configuration, or the keys that may sign the first document; `None` uses only this
    /// configuration. A document's games and members replace those given here.
    pub signed: Option<Signed>,
    /// Protection of hop frames to and from neighbours; default sealed. Tag-only saves one sealing
    /// and one opening per hop, and 8 bytes, if both ends of a link are configured for it. Its tag
    /// does not cover the payload ([`HopKey`](crate::hop::HopKey)): use it for underlays that are
    /// measured and trusted.
    pub hop_kind: HopKind,
    /// Overrides [`hop_kind`](Self::hop_kind) per neighbour.
    pub hop_kinds: BTreeMap<NodeId, HopKind>,
    /// How an exit measures game servers, by the game's name, also for games of a signed document.
    /// Without an entry, a TCP game's server is measured by a connection, and a UDP game's not at
    /// all.
    pub probes: BTreeMap<String, ServerProbe>,
    /// At an entry: proxies before the ports of UDP games, by the game's name, also for games of a
    /// signed document. Each of their datagrams must begin with a PROXY protocol header of version
    /// 2, which is removed; it names the player, and that address counts for all limits.
    pub proxies: BTreeMap<String, TrustedProxies>,
    /// At an entry: limits per network for unproved sources of a UDP game, by the game's name, also
    /// for games of signed documents. Default for other games: [`UnprovedLimits::default`].
    pub unproved_limits: BTreeMap<String, UnprovedLimits>,
    /// Cost model of routes.
    pub cost: CostModel,
    /// When routes change.
    pub choice: ChoiceConfig,
    /// Links and dials at a time. Default 64, the capacity of a link record. Sessions beyond it are
    /// closed and counted. Up to three quarters of it, 48, a node links with all others. Above that
    /// it selects a quarter required nodes, a quarter nearest ones and an eighth random ones; the
    /// rest is for inbound peers, and so is all above 64. Each link costs about 140 bytes of probes
    /// per second.
    pub links_max: usize,
    /// Known nodes. Default 1,024. Nodes beyond it are not dialed, and their sessions are closed
    /// and counted. A node is forgotten 10 minutes after it was last seen.
    pub peers_max: u16,
    /// Shards, 1 to 8. Default 1. The first is the node, which terminates all flows of its players
    /// and servers. Each other shard only forwards frames of its own labels, and may run as a
    /// [`Forwarder`](crate::Forwarder) on its own thread. It has a further `1 / shards` of
    /// `labels_max`, `labels_per_peer_max` and `owner_rate`.
    pub shards: u8,
    /// Labels in use. Default 262,144. Each takes 256 bytes: at most 64 MiB,
    /// allocated up to the highest number in use so far.
    pub labels_max: u32,
    /// Labels of one neighbour. Default 65,536, a quarter of all: 16 MiB.
    pub labels_per_peer_max: u32,
    /// Bytes per second and label. Default 16 MiB, with a burst of a quarter of it. All TCP
    /// connections of one mode between an entry and an exit share one label per direction: 134
    /// Mbit/s.
    pub label_rate: u32,
    /// Bytes per second that one player of a UDP game may send, and as many to receive. Default 1
    /// MiB, with a burst of a quarter of it. Each end limits what its own side sends.
    pub flow_rate: u32,
    /// Bytes per second of all labels of one neighbour. Default 256 MiB, a quarter of it as burst.
    pub owner_rate: u32,
    /// Labels per second that a neighbour may request or bind. Default 4,096, burst 16,384.
    pub request_rate: u32,
    /// Flows at a time, of this node's players and for others' players. Default 16,384, each about
    /// 4 KiB. Another entry gets at most seven eighths of them. Once half are in use, a /24 or /48
    /// gets no more if its players of the same entry have an eighth, and at least 64.
    pub flows_max: u32,
    /// Flows of players that have not proved to receive. Default 8,192. Above it the oldest of
    /// these ends; one also ends if a newcomer finds no other slot, or 64 of one /24 or /48 have
    /// none: at an exit the oldest of the entry with most of these. With
    /// [`open_rate`](Self::open_rate) each has 8 s for the proof during a flood.
    pub unproved_max: u32,
    /// New flows per second at an entry. Default 1,024, with a burst of 4,096: 10,000 players that
    /// arrive together all have a flow within 6 s. Each requests two labels, half of
    /// [`request_rate`](Self::request_rate), so that the other half is left for moves. An exit
    /// accepts twice as many from each other entry, with a burst of 16 times as many; set the same
    /// value on both, or a higher one on the exit.
    pub open_rate: u32,
    /// Idle timeout of a flow. Default 60 s.
    pub flow_idle: Duration,
    /// Bytes queued to be sent, plus 64 per datagram. Default 4 MiB. More are dropped and counted.
    pub outbox_bytes_max: usize,
    /// Events queued for the application. Default 4,096. The oldest are dropped and counted.
    pub events_max: usize,
}

impl Config {
    /// Creates a node's configuration with the mesh's `secret` and no bootstrap nodes.
    #[must_use]
    pub fn new(secret: Secret32, instance: InstanceId) -> Self {
        Self {
            secret,
            previous_secret: None,
            instance,
            reset_secret: None,
            bootstrap: Bootstrap::default(),
            profile: Profile::default(),
            members: None,
            games: Vec::new(),
            #[cfg(feature = "tcp")]
            tcp: None,
            signed: None,
            hop_kind: HopKind::Sealed,
            hop_kinds: BTreeMap::new(),
            probes: BTreeMap::new(),
            proxies: BTreeMap::new(),
            unproved_limits: BTreeMap::new(),
            cost: CostModel::default(),
            choice: ChoiceConfig::default(),
            links_max: 64,
            peers_max: 1_024,
            shards: 1,
            labels_max: 262_144,
            labels_per_peer_max: 65_536,
            label_rate: 16 << 20,
            flow_rate: 1 << 20,
            owner_rate: 256 << 20,
            request_rate: 4_096,
            flows_max: 16_384,
            unproved_max: 8_192,
            open_rate: 1_024,
            flow_idle: Duration::from_secs(60),
            outbox_bytes_max: 4 << 20,
            events_max: 4_096,
        }
    }
}

/// A node's signed configuration.
#[derive(Clone, Debug)]
pub struct Signed {
    /// The restored document in force, or the keys that verify the first one.
    pub holder: Holder,
    /// This host's addresses that an entry opens a document's ports on.
    pub listen: Vec<IpAddr>,
}

/// Why a node cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NewError {
    /// The provider's source of randomness failed.
    NoEntropy,
    /// Name or addresses of the profile exceed the bounds of a record.
    Profile,
    /// The number of shards is not 1 to 8.
    Shards,
    /// A game's name is longer than 64 bytes.
    GameName,
    /// A UDP game has headers of version 1, which does not support datagrams.
    HeaderVersion,
    /// A server probe names port 0, or its query is longer than 512 bytes.
    Probe,
    /// TLS rejects the identity, which tunnels prove.
    TunnelIdentity,
}

impl From<NoEntropy> for NewError {
    fn from(_: NoEntropy) -> Self {
        Self::NoEntropy
    }
}

wire::error_text! { NewError {
    Self::NoEntropy => "the provider has no randomness",
    Self::Profile => "name or addresses of the profile exceed the bounds of a record",
    Self::Shards => "a node has from 1 to 8 shards",
    Self::GameName => "the name of a game is longer than 64 bytes",
    Self::Probe => "a probe names port 0, or its query is longer than 512 bytes",
    Self::TunnelIdentity => "the TLS library refused the identity's key",
    Self::HeaderVersion =>
        "version 1 of the PROXY protocol knows of no datagrams, which a game is made of",
}}
