//! Configuration of a node.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::{NoEntropy, Secret32};
use wire::{InstanceId, NodeId};

use crate::Bootstrap;
use crate::choice::ChoiceConfig;
use crate::cost::CostModel;
use crate::hop::HopKind;
use crate::link_state::{Profile, Roles};
use crate::proxy_header::{TrustedProxies, Version};
use crate::ration::RationLimits;
use crate::server_header::ServerHeader;
use crate::server_probe::ServerProbe;
use crate::signed_config::Holder;

/// What one node is and allows.
#[derive(Debug)]
#[non_exhaustive]
pub struct Config {
    /// What all nodes of the mesh share.
    pub secret: Secret32,
    /// Accepted too, of sessions and records, while nodes change over: give all of them the new
    /// secret here, then swap the two on one node after the other, then take the old one away.
    pub previous_secret: Option<Secret32>,
    /// This run of this node, drawn at random.
    pub instance: InstanceId,
    /// Secret for stateless resets, which end the sessions of an earlier run of this node at its neighbours. It is
    /// kept over restarts, and no other node has it (`crypto::reset_file`). Connection ids have 8 bytes if it is set.
    /// If it is `None`, neighbours notice a restart when they are dialled or after 10 s of silence.
    pub reset_secret: Option<Secret32>,
    /// Whom to dial first.
    pub bootstrap: Bootstrap,
    /// Roles, name and addresses that others learn. The first address is the mesh socket's, as
    /// others reach it.
    pub profile: Profile,
    /// Who may be a member, and as what; `None` lets in all that hold the secret, as anything.
    pub members: Option<BTreeMap<NodeId, Roles>>,
    /// Games carried.
    pub games: Vec<Game>,
    /// Games over TCP, and what they need; `None` carries none.
    #[cfg(feature = "tcp")]
    pub tcp: Option<crate::TcpConfig>,
    /// What the super-admin signed, or who may sign the first of it; `None` leaves games and members to
    /// this configuration. Games and members of a document take the place of these.
    pub signed: Option<Signed>,
    /// How hop frames to and from neighbours are protected; sealed. By tag only saves a sealing and an
    /// opening at each hop, and 8 bytes; it needs both ends of a link to be configured so, else its
    /// frames are sealed. The tag does not cover the payload: an observer of the link who wins a race,
    /// with other bytes behind a header that he saw, costs the flow that packet
    /// ([`HopKey`](crate::hop_key::HopKey)). It is for underlays that are measured and trusted.
    pub hop_kind: HopKind,
    /// The same for neighbours by name, whatever [`hop_kind`](Self::hop_kind) says.
    pub hop_kinds: BTreeMap<NodeId, HopKind>,
    /// How an exit measures its way to game servers, by the games' names, those of a signed document too.
    /// Where a game does not stand here, its server is measured by a connection if it is played over TCP, and
    /// not if over UDP.
    pub probes: BTreeMap<String, ServerProbe>,
    /// At an entry: proxies before the ports of games over UDP, by the games' names, those of a signed document
    /// too. Each datagram of theirs begins with a header of version 2 of the PROXY protocol, whatever
    /// [`HeaderPolicy`](crate::proxy_header::HeaderPolicy) says; it is taken off, and names the player of a flow, whose address
    /// counts for all limits.
    pub proxies: BTreeMap<String, TrustedProxies>,
    /// At an entry: what networks may do in a game whose sources have not proved to receive, by the names
    /// of the games over UDP, those of signed documents too. [`RationLimits::default`] for the others.
    pub rations: BTreeMap<String, RationLimits>,
    /// How routes are priced.
    pub cost: CostModel,
    /// When routes are left.
    pub choice: ChoiceConfig,
    /// Neighbours and dials at a time; 64, as many as a link record names. Who comes beyond it is
    /// closed and counted. Up to three quarters of it, 48, a node is linked with all others. Where
    /// they are more, it chooses a quarter that it needs, the nearest quarter and an eighth by lot;
    /// the other places are for those who chose it. Each link costs some 140 bytes a second of
    /// probes. More than 64 help an exit that many entries need: all those are for guests.
    pub links_max: usize,
    /// Nodes known of at a time; 1,024. Of those beyond it no one is dialled, and who comes is closed
    /// and counted. One that was gone for 10 minutes is forgotten.
    pub peers_max: u16,
    /// Shards, 1 to 8; 1. Each has labels of its own, of which it passes frames on. The first is the node,
    /// where all flows of its own players and servers end; for each of the others a
    /// [`Forwarder`](crate::Forwarder) may run on a thread of its own. The first has the bounds below of
    /// labels and their owners' bytes; each of the others, of `shards` in all, a `shards`th of them besides.
    /// As many bytes may wait to be sent in each.
    pub shards: u8,
    /// Labels given out at a time; 262,144, each 256 bytes: 64 MiB once all are in use, and no more than
    /// were ever in use at a time before.
    pub labels_max: u32,
    /// Labels of one neighbour; 65,536, a quarter of all: 16 MiB.
    pub labels_per_peer_max: u32,
    /// Bytes a second that a label passes; 16 MiB, and a quarter of it at once. All TCP connections of one
    /// mode between an entry and an exit share a label in each direction: that is 134 Mbit/s.
    pub label_rate: u32,
    /// Bytes a second that one player of a game over UDP sends, and as many that one receives; 1 MiB, and a
    /// quarter of it at once. Each end holds what its own side sends: a label's rate is that of a tunnel,
    /// which many connections share.
    pub flow_rate: u32,
    /// Bytes a second that all labels of one neighbour pass together; 256 MiB, and a quarter of it
    /// at once: more than the flows of [`flows_max`](Self::flows_max) at 60 packets of 250 bytes.
    pub owner_rate: u32,
    /// Labels a second that a neighbour may ask for or bind; 4,096, and 16,384 at once.
    pub request_rate: u32,
    /// Flows at a time, of players and for others' players; 16,384, some 4 KiB each. Another entry
    /// has at most seven eighths of them. Where half of all are taken, players of one /24 or /48 get no
    /// more where those of the same entry have an eighth, and 64 in any case.
    pub flows_max: u32,
    /// Of them, those of players who have not proved to receive; 8,192. Over it the oldest of these
    /// ends, as one does where a newcomer finds no other place, or 64 of one /24 or /48 have none:
    /// at an exit the oldest of the entry that has most of these. By
    /// [`open_rate`](Self::open_rate) that leaves each of them 8 s to prove it in a flood.
    pub unproved_max: u32,
    /// New flows a second at an entry; 1,024, and 4,096 at once: 10,000 players who come together
    /// all have a flow within 6 s. Each asks its path's relays for two
    /// labels' worth of their [`request_rate`](Self::request_rate), half of which is left for
    /// moves; and in the 30 s that labels of ended flows may last, it uses less than half of
    /// [`labels_per_peer_max`](Self::labels_per_peer_max). An exit takes twice as many of each other
    /// entry, and 16 times as many at once; so both have the same here, or the exit more.
    pub open_rate: u32,
    /// Silence after which a flow ends; 60 s.
    pub flow_idle: Duration,
    /// Bytes that wait to be sent, 64 more counted for each datagram; 4 MiB. Over it what would be
    /// sent is dropped and counted.
    pub outbox_bytes_max: usize,
    /// Events that wait for the application; 4,096. Over it the oldest are dropped and counted.
    pub events_max: usize,
}

impl Config {
    /// A node that holds the mesh's `secret` and knows nobody yet.
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
            rations: BTreeMap::new(),
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

/// A node's side of signed configuration.
#[derive(Clone, Debug)]
pub struct Signed {
    /// The document in force, as restored, or the keys that judge the first.
    pub holder: Holder,
    /// Addresses of this host that a document's ports are opened on, at an entry.
    pub listen: Vec<IpAddr>,
}

/// A game that the mesh carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Game {
    /// The same at entry and exit; at most 64 bytes.
    pub name: String,
    /// How flows of this node's sending live through trouble.
    pub mode: Mode,
    /// Where players come in, at an entry.
    pub entry: Option<EntryGame>,
    /// Where packets go, at an exit.
    pub exit: Option<ExitGame>,
}

impl Game {
    /// Returns whether its server would be told in a form that datagrams do not have.
    pub(crate) fn has_line_for_datagrams(&self) -> bool {
        let header = self.exit.as_ref().and_then(|exit| exit.header);
        header.is_some_and(|header| header.version == Version::One)
    }
}

/// A game at an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryGame {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Exits that serve it; the cheapest to reach is taken for each new player.
    pub exits: Vec<NodeId>,
}

/// A game at an exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitGame {
    /// Where its server listens.
    pub server: SocketAddr,
    /// Entries that may send players; `None` allows all members.
    pub entries: Option<BTreeSet<NodeId>>,
    /// How the server is told whom a flow is for; `None` where it is not, and sees this node's address alone.
    pub header: Option<ServerHeader>,
}

/// How a flow lives through trouble on its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// One path; another is taken once it is dead.
    Single,
    /// A second path is kept warm, and carries copies while the first is suspect.
    #[default]
    Shadow,
    /// Two paths carry every packet.
    Dup,
}

/// Why there is no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NewError {
    /// The provider has no randomness.
    NoEntropy,
    /// Name or addresses of the profile break the bounds of a record.
    Profile,
    /// A node has from 1 to 8 shards.
    Shards,
    /// A game's name is longer than 64 bytes.
    GameName,
    /// A game over UDP is to have headers of version 1, which knows of no datagrams.
    HeaderVersion,
    /// A probe of a game server names port 0, or has a query longer than 512 bytes.
    Probe,
    /// TLS does not take the identity, which tunnels prove.
    TunnelIdentity,
}

impl From<NoEntropy> for NewError {
    fn from(_: NoEntropy) -> Self {
        Self::NoEntropy
    }
}

impl fmt::Display for NewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoEntropy => "the provider has no randomness",
            Self::Profile => "name or addresses of the profile break the bounds of a record",
            Self::Shards => "a node has from 1 to 8 shards",
            Self::GameName => "the name of a game is longer than 64 bytes",
            Self::Probe => "a probe names port 0, or its query is longer than 512 bytes",
            Self::TunnelIdentity => "the TLS library refused the identity's key",
            Self::HeaderVersion => {
                "version 1 of the PROXY protocol knows of no datagrams, which a game is made of"
            }
        })
    }
}

impl core::error::Error for NewError {}
