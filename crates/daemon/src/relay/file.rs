//! The configuration file of a node.

mod check;
mod game;
mod seed;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crypto::{Identity, Provider, Ring, Secret32, identity_file};
use relay_mesh::config_text::{Expected, TextError};
use relay_mesh::hop::HopKind;
use relay_mesh::link_state::{Profile, Roles};
use relay_mesh::signed_config::{AdminKeys, Holder, Minimum, Protocol, STORED_LEN_MAX};
use relay_mesh::{Bootstrap, Config, Game, Signed, TcpConfig, config_text};
use serde::{Deserialize, Serialize};
use wire::NodeId;

use super::admin::AdminSetup;
use super::emulation::{Emulation, FileLink};
use super::host_names::{self, HostName};
use super::running::Setup;
use super::tcp::TcpSetup;
use crate::exit::{Failure, SystemFault};
use crate::relay::store::write_atomic;
use crate::trust;
pub use game::{FileGame, FileProbe, FileProxies, FileUnprovedLimits};

/// A node's configuration, as JSON. Paths are relative to the file's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileConfig {
    /// Display name; 1 to 32 of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// The node's private key, a PEM file of mode 0600. The node creates it if it does not exist.
    pub identity_file: PathBuf,
    /// The secret that all nodes share: 64 hexadecimal digits in a file of mode 0600.
    pub secret_file: PathBuf,
    /// Address of the mesh socket.
    pub listen: SocketAddr,
    /// Addresses at which other nodes reach it, best first; at most 4. Host names are resolved when
    /// the file is read and every 10 s. Without it, `listen` is advertised, which must then be an
    /// address of this host. If `listen` has port 0, the system chooses the port.
    #[serde(default, deserialize_with = "host_names::addresses")]
    pub advertise: Vec<SocketAddr>,
    /// Roles of the node.
    pub roles: BTreeSet<FileRole>,
    /// Nodes to dial at the start.
    #[serde(default)]
    pub bootstrap: Vec<BootstrapNode>,
    /// Members and their roles; without it, every node that holds the secret is a member with any
    /// role.
    #[serde(default)]
    pub members: Option<Vec<Member>>,
    /// Games that it carries.
    #[serde(default)]
    pub games: Vec<FileGame>,
    /// At an entry: trusted proxies in front of game ports, by game name; also for games of signed
    /// documents.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub proxies: BTreeMap<String, FileProxies>,
    /// At an entry: limits of networks whose players have not proved that they receive, by name of
    /// a UDP game; also for games of signed documents.
    #[serde(default, alias = "rations", skip_serializing_if = "BTreeMap::is_empty")]
    pub unproved_limits: BTreeMap<String, FileUnprovedLimits>,
    /// At an exit: how game servers are measured, by game name; also for games of signed documents.
    /// Without it they are not measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probes: BTreeMap<String, FileProbe>,
    /// Signed documents to take games and members from; the file then has neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<FileSigned>,
    /// The admin interface; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<FileAdmin>,
    /// Limits that differ from the defaults.
    #[serde(default)]
    pub limits: FileLimits,
    /// Source address of packets to game servers.
    #[serde(default)]
    pub upstream_ip: Option<IpAddr>,
    /// Threads that forward frames, each with its share of the labels; 1 to 8, default 1. More than
    /// one requires Linux.
    #[serde(default = "one_shard", skip_serializing_if = "is_one_shard")]
    pub shards: u8,
    /// Protection of frames with other nodes that are configured alike.
    #[serde(default)]
    pub hop_frames: FileHopFrames,
    /// An emulated network, for demonstrations and tests: delay and loss of datagrams to these
    /// hosts.
    #[serde(default)]
    pub links: Vec<FileLink>,
    /// Seed of the losses of `links`.
    #[serde(default)]
    pub seed: u64,
}

const fn one_shard() -> u8 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_one_shard(shards: &u8) -> bool {
    *shards == 1
}

/// Limits of a node. Defaults are those of [`relay_mesh::Config`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileLimits {
    /// Concurrent flows; 1 to 1,048,576. An exit has at most its limit of open files, less 288 or a
    /// quarter, whichever is smaller, and less its TCP connections.
    #[serde(default)]
    pub flows: Option<u32>,
    /// Idle time after which a flow ends, seconds; 1 to 86,400.
    #[serde(default)]
    pub idle_secs: Option<u64>,
    /// Concurrent neighbours; 1 to 4,096.
    #[serde(default)]
    pub links: Option<usize>,
    /// Bytes per second in one direction of a flow; 1,500 to 1 GiB. Defaults: 1 MiB for a player
    /// over UDP, 16 MiB for all TCP connections of one mode between two nodes.
    #[serde(default)]
    pub flow_bytes_per_second: Option<u32>,
    /// Concurrent TCP connections, of players and to game servers together; default 1,024, at most
    /// 65,536, and at least 1 if the file has TCP games. It is lowered to half of the limit of open
    /// files, less 288 or a quarter, whichever is smaller. One other entry can use seven eighths of
    /// them, and players of one /24 or /48 a quarter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_connections: Option<u32>,
    /// Of these, connections of one address with one exit; default 64, 1 to 65,536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_per_address: Option<u32>,
    /// Longest drain after a signal, seconds; default 120, at most 86,400.
    #[serde(default)]
    pub drain_secs: Option<u64>,
}

impl FileLimits {
    fn set(&self, node: &mut Config) {
        node.flows_max = self.flows.unwrap_or(node.flows_max);
        node.flow_idle = self.idle_secs.map_or(node.flow_idle, Duration::from_secs);
        node.links_max = self.links.unwrap_or(node.links_max);
        node.label_rate = self.flow_bytes_per_second.unwrap_or(node.label_rate);
        node.flow_rate = self.flow_bytes_per_second.unwrap_or(node.flow_rate);
    }
}

/// A node's id, 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(pub NodeId);

impl TryFrom<String> for NodeName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let node = text.parse::<NodeId>();
        node.map(Self).map_err(|error| error.to_string())
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0.to_string()
    }
}

/// A role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRole {
    /// Accepts players.
    Entry,
    /// Forwards packets between nodes.
    Relay,
    /// Sends packets to game servers.
    Exit,
}

/// Protection of frames between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileHopFrames {
    /// Each is sealed again under a key of the link.
    #[default]
    Sealed,
    /// Each carries a tag that does not cover the payload. An attacker who sees a frame and
    /// overtakes it can make the flow lose that packet; for trusted, measured lines only.
    TagOnly,
}

impl FileHopFrames {
    const fn kind(self) -> HopKind {
        match self {
            Self::Sealed => HopKind::Sealed,
            Self::TagOnly => HopKind::TagOnly,
        }
    }
}

/// A node to dial at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootstrapNode {
    /// Its id.
    pub node: NodeName,
    /// Its address; a host name is resolved when the file is read and every 10 s.
    #[serde(deserialize_with = "host_names::address")]
    pub address: SocketAddr,
}

/// A member of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its id.
    pub node: NodeName,
    /// Its permitted roles.
    pub roles: BTreeSet<FileRole>,
}

impl FileConfig {
    /// Makes the configuration of a node without games, members and bootstrap nodes.
    pub(super) fn new(name: &str, identity_file: PathBuf, listen: SocketAddr) -> Self {
        Self {
            name: name.to_owned(),
            secret_file: identity_file.with_file_name(SECRET),
            identity_file,
            listen,
            advertise: Vec::new(),
            roles: BTreeSet::new(),
            bootstrap: Vec::new(),
            members: None,
            games: Vec::new(),
            proxies: BTreeMap::new(),
            unproved_limits: BTreeMap::new(),
            probes: BTreeMap::new(),
            signed: None,
            admin: None,
            limits: FileLimits::default(),
            upstream_ip: None,
            shards: one_shard(),
            hop_frames: FileHopFrames::default(),
            links: Vec::new(),
            seed: 0,
        }
    }

    /// Reads the file at `path`. If it has `PureGamer`'s five fields, the data folder is created.
    ///
    /// # Errors
    ///
    /// One sentence with the file, and its line and field.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        Self::read_with_names(path).map(|(config, _)| config)
    }

    /// As [`read`](Self::read), and returns the host names in the file.
    pub(super) fn read_with_names(path: &Path) -> Result<(Self, Vec<HostName>), Failure> {
        let text = read_small(path, CONFIG_BYTES_MAX)?;
        if seed::is_seed(&text) {
            return seed::read(path, &text).map(|config| (config, Vec::new()));
        }
        let read: Result<Self, _> = config_text::read_json(&text, expected);
        let config = read.map_err(|error| Failure::file(path, error))?;
        let has_rations = has_field(&text, "rations");
        if has_rations {
            let file = path.display();
            tracing::warn!(%file, "the field \"rations\" was renamed to \"unproved_limits\"");
        }
        if let Some(fault) = config.fault() {
            let renamed = fault.field.strip_prefix("unproved_limits");
            let field = match renamed.filter(|_| has_rations) {
                Some(rest) => format!("rations{rest}"),
                None => fault.field,
            };
            let error = TextError::of_field(&text, &field, &fault.text);
            return Err(Failure::file(path, error));
        }
        let names = host_names::names(&text, &config);
        Ok((config, names))
    }

    /// Builds the node's configuration and reads the files that it names; `directory` is the folder
    /// of relative paths.
    ///
    /// # Errors
    ///
    /// One sentence with the file, and the field that names it.
    pub fn setup(&self, directory: &Path) -> Result<Setup, Failure> {
        if let Some(fault) = self.fault() {
            return Err(Failure::file(directory, fault));
        }
        let identity_path = directory.join(&self.identity_file);
        let identity = open_or_create_identity(&identity_path)?;
        let secret = read_secret(&directory.join(&self.secret_file));
        let secret = secret.map_err(in_field("secret_file"))?;
        let mut node = Config::new(secret, trust::random_instance(&mut Ring::new())?);
        node.reset_secret = trust::reset_secret(&identity_path, self.listen, &mut Ring::new());
        node.bootstrap = bootstrap(&self.bootstrap);
        node.profile = Profile {
            roles: roles(&self.roles),
            name: self.name.clone(),
            addresses: if self.advertise.is_empty() {
                vec![self.listen]
            } else {
                self.advertise.clone()
            },
        };
        node.members = self.members.as_ref().map(|members| {
            let members = members.iter();
            members
                .map(|member| (member.node.0, roles(&member.roles)))
                .collect::<BTreeMap<_, _>>()
        });
        node.hop_kind = self.hop_frames.kind();
        node.shards = self.shards;
        node.games = self.games_over(Protocol::Udp);
        node.tcp = self.tcp();
        (node.probes, node.unproved_limits) = (self.server_probes()?, self.unproved_limits_of());
        node.proxies = self.trusted_proxies(Protocol::Udp)?;
        node.signed = self
            .signed
            .as_ref()
            .map(|signed| signed.open(directory))
            .transpose()?;
        self.limits.set(&mut node);
        let emulation = Emulation::default();
        for (stream, link) in (0..).zip(&self.links) {
            emulation.set_link(link, self.seed, stream);
        }
        Ok(Setup {
            name: self.name.clone(),
            identity,
            node,
            listen: self.listen,
            upstream: self.upstream_ip,
            tcp: self.tcp_setup()?,
            emulation,
            store: self
                .signed
                .as_ref()
                .map(|signed| directory.join(&signed.store)),
            admin: self
                .admin
                .as_ref()
                .map(|admin| {
                    let listen = admin.listen;
                    let token = admin.token(directory)?;
                    Ok::<_, Failure>(AdminSetup { listen, token })
                })
                .transpose()?,
        })
    }

    fn games_over(&self, protocol: Protocol) -> Vec<Game> {
        let games = self.games.iter();
        games
            .filter(|game| game.protocol == protocol)
            .map(FileGame::game)
            .collect()
    }

    /// TCP games; `None` if there are none and no signed document can add some.
    fn tcp(&self) -> Option<TcpConfig> {
        let games = self.games_over(Protocol::Tcp);
        if games.is_empty() && self.signed.is_none() {
            return None;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a place in the standard library's time, which nothing is measured by"
        )]
        let epoch = std::time::Instant::now();
        let mut tcp = TcpConfig::new(epoch);
        tcp.games = games;
        tcp.connections_max = self.limits.tcp_connections.unwrap_or(tcp.connections_max);
        let tunnel = &mut tcp.tunnel;
        tunnel.players_max = self.limits.tcp_connections.unwrap_or(tunnel.players_max);
        tunnel.per_address_max = self
            .limits
            .tcp_per_address
            .unwrap_or(tunnel.per_address_max);
        Some(tcp)
    }

    fn tcp_setup(&self) -> Result<TcpSetup, Failure> {
        let mut setup = TcpSetup::default();
        let limits = &self.limits;
        setup.connections_max = limits.tcp_connections.unwrap_or(setup.connections_max);
        setup.proxies = self.trusted_proxies(Protocol::Tcp)?;
        Ok(setup)
    }
}

fn bootstrap(nodes: &[BootstrapNode]) -> Bootstrap {
    let nodes = nodes.iter();
    Bootstrap {
        nodes: nodes.map(|known| (known.node.0, known.address)).collect(),
    }
}

fn roles(names: &BTreeSet<FileRole>) -> Roles {
    names.iter().fold(Roles::NONE, |roles, name| {
        roles
            | match name {
                FileRole::Entry => Roles::ENTRY,
                FileRole::Relay => Roles::RELAY,
                FileRole::Exit => Roles::EXIT,
            }
    })
}

/// Reads the node's identity. If the file does not exist, creates it and logs a warning, as the
/// name may be misspelt.
fn open_or_create_identity(path: &Path) -> Result<Identity, Failure> {
    let is_there = path.exists();
    let identity = identity_file::read_or_create(path, &mut Ring::new())
        .map_err(|error| Failure::file(path, error))
        .map_err(in_field("identity_file"))?;
    if !is_there {
        let (file, node) = (path.display(), identity.node_id());
        tracing::warn!(%file, %node, "no identity file was there: a new one was made");
    }
    Ok(identity)
}

fn read_secret(path: &Path) -> Result<Secret32, Failure> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let metadata =
            fs::metadata(path).map_err(|error| Failure::file(path, SystemFault(&error)))?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let fault = format!("has mode {mode:04o}, so others may know the secret; chmod 600 it");
            return Err(Failure::file(path, fault));
        }
    }
    let bytes = read_small(path, SECRET_BYTES_MAX)?;
    // A secret is written like a node id: 64 digits for 32 bytes.
    let text = str::from_utf8(&bytes).map(config_text::without_mark);
    let secret: NodeId = text.unwrap_or_default().trim_end().parse().map_err(|_| {
        let fault = if bytes.is_empty() {
            "the file is empty; expected a secret of 64 hexadecimal digits"
        } else {
            "expected a secret of 64 hexadecimal digits, and nothing else"
        };
        Failure::file(path, fault)
    })?;
    Ok(Secret32::new(secret.0))
}

/// Whether a file's outermost object has a field with this name.
fn has_field(text: &[u8], name: &str) -> bool {
    let fields: Result<BTreeMap<String, serde_json::Value>, _> =
        config_text::read_json(text, |_| None);
    fields.is_ok_and(|fields| fields.contains_key(name))
}

fn read_small(path: &Path, max: u64) -> Result<Vec<u8>, Failure> {
    let fault = |error| Failure::file(path, SystemFault(&error));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(fault)?;
    file.take(max.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(fault)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= max) {
        Ok(bytes)
    } else {
        let fault = format!("is over {max} bytes");
        Err(Failure::file(path, fault))
    }
}

/// Adds the configuration field that names the file.
fn in_field(field: &str) -> impl Fn(Failure) -> Failure {
    move |mut failure| {
        failure.sentence = format!("{failure} ({field:?} names this file)");
        failure
    }
}

/// The expected value of a field, if the type does not tell.
fn expected(field: &str) -> Option<Expected> {
    Some(match field {
        "listen" | "games.listen" | "admin.listen" => Expected::Address,
        "advertise" | "bootstrap.address" | "games.server" => Expected::Target,
        "signed.listen" | "upstream_ip" | "links.remote" => {
            Expected::Form("an IP address without a port, like \"192.0.2.7\"")
        }
        "bootstrap.node" | "members.node" | "games.exits" | "games.entries" => {
            Expected::Form("a node id of 64 hexadecimal digits")
        }
        "identity_file" | "secret_file" | "signed.store" | "admin.token_file" => {
            Expected::Form("the path of a file, relative to this file's folder")
        }
        "roles" | "members.roles" => Expected::Form("one of \"entry\", \"relay\", \"exit\""),
        "games.protocol" => Expected::Form("\"udp\" or \"tcp\""),
        "shards" => Expected::Form("1 to 8"),
        "games.mode" => Expected::Form("one of \"single\", \"shadow\", \"dup\""),
        "hop_frames" => Expected::Form("\"sealed\" or \"tag_only\""),
        _ => return None,
    })
}

/// Name of the secret's file in a folder that this program fills.
pub(super) const SECRET: &str = "secret";
/// Longest configuration file, for a thousand members and games.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Longest secret file: a byte order mark, the digits and the line end.
const SECRET_BYTES_MAX: u64 = 69;

/// The admin interface: HTTP on a loopback address, with a bearer token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileAdmin {
    /// Its address; loopback only, since it has no TLS.
    pub listen: SocketAddr,
    /// The token: 64 hexadecimal digits in a file of mode 0600. The node creates it if it does not
    /// exist.
    pub token_file: PathBuf,
}

impl FileAdmin {
    fn token(&self, directory: &Path) -> Result<Secret32, Failure> {
        let path = directory.join(&self.token_file);
        if matches!(fs::metadata(&path), Err(error) if error.kind() == ErrorKind::NotFound) {
            let mut token = [0; 32];
            Ring::new()
                .random(&mut token)
                .map_err(|_| trust::no_entropy())?;
            // A token is written like a node id.
            let digits = NodeId(token).to_string();
            write_atomic(&path, digits.as_bytes())
                .map_err(|error| {
                    Failure::file(&path, format_args!("the token cannot be written: {error}"))
                })
                .map_err(in_field("admin.token_file"))?;
        }
        read_secret(&path).map_err(in_field("admin.token_file"))
    }
}

/// Signed configuration; its games and members replace the file's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSigned {
    /// The network's name in documents.
    pub network: String,
    /// Signers of the first document; each later document is checked against the previous one.
    pub admins: AdminKeys,
    /// File for the document in force; the node creates it.
    pub store: PathBuf,
    /// A document that later ones must descend from; without it, any that the admins' keys lead to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<FileMinimum>,
    /// At an entry: addresses of this host on which a document's ports are opened.
    #[serde(default)]
    pub listen: Vec<IpAddr>,
}

/// The document that last changed the admin keys. Keys retired before it are not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileMinimum {
    /// Its version.
    pub version: u64,
    /// SHA-256 of its text, 64 hexadecimal digits.
    #[serde(with = "sha256_hex")]
    pub sha256: [u8; 32],
}

mod sha256_hex {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use wire::NodeId;

    pub(super) fn serialize<S: Serializer>(hash: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&NodeId(*hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let hash = text.parse::<NodeId>();
        hash.map(|hash| hash.0).map_err(|_| {
            let found = de::Unexpected::Str(&text);
            de::Error::invalid_value(found, &"a SHA-256 of 64 hexadecimal digits")
        })
    }
}

impl FileSigned {
    /// Reads the stored document and verifies it again.
    fn open(&self, directory: &Path) -> Result<Signed, Failure> {
        let path = directory.join(&self.store);
        let (network, admins) = (self.network.clone(), self.admins.clone());
        let is_new =
            matches!(fs::metadata(&path), Err(error) if error.kind() == ErrorKind::NotFound);
        let mut holder = Holder::new(network, admins);
        if let Some(FileMinimum { version, sha256 }) = self.minimum {
            holder = holder.with_minimum(Minimum { version, sha256 });
        }
        let holder = if is_new {
            holder
        } else {
            let limit = u64::try_from(STORED_LEN_MAX).unwrap_or(u64::MAX);
            let stored = read_small(&path, limit)?;
            holder
                .load(&Ring::new(), &stored)
                .map_err(|error| Failure::file(&path, error))?
        };
        Ok(Signed {
            holder,
            listen: self.listen.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
