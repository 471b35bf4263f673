//! The HTTP API of a hub: mail, presence, live messages, drain and metrics without Rust.
//!
//! `docs/guides/hub.md` describes its use, `GET /v1/openapi.json` its requests and responses. It
//! runs on a separate thread. It sends through a node of the hub, with the limits of
//! any node; it reads and clears mailboxes in the store itself.

mod key;
mod key_feed;
mod key_watch;
mod kv;
mod lease;
mod lease_table;
mod link;
mod mail_keys;
mod mailbox;
mod message;
mod metrics;
mod operation;
mod other_shard;
mod parameter;
mod person;
mod presence;
mod sender;
mod shared;
mod statistics;
mod watch;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use crypto::{Identity, Ring};
use hub::join_file::{Grant, NetworkSecret};
use hub::{JoinFile, NodeConfig, Role};
use servicer::{HostCertificate, HubNode, StreamHandle};
use tokio::net::TcpStream;
use wire::{NodeId, SourceKey};

use crate::exit::{Failure, SystemFault};
use crate::http::open_connection::OpenConnection;
use crate::http::tls::Tls;
use crate::http::{BoundPort, Limits, Server};
use crate::hub_client::HubClient;
use crate::trust;
pub use key::{Access, KeyFault};
pub(crate) use key::{create, read_token};
use link::{ApiLink, LinkRequest};
use mail_keys::MailKeyLimits;
use other_shard::Hubs;
pub use person::{PersonPrefix, PersonPrefixError};
use presence::Presence;
use shared::{Peer, Shared};

/// Address and limits of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiConfig {
    /// Address to listen on; with port 0 the system chooses one.
    pub listen: SocketAddr,
    /// TLS; `None` for plain HTTP, which needs a loopback address.
    pub certificate: Option<CertificateFiles>,
    /// The key file: lines of `SHA256 ROLE NAME`.
    pub keys: PathBuf,
    /// Concurrent connections. Default 1,024. A new one replaces the oldest idle one.
    pub connections_max: usize,
    /// Concurrent connections of one source, which is an IPv4 address or an IPv6 /64. Default
    /// 1,024, since the clients are few hosts of the operator.
    pub connections_per_source_max: usize,
    /// Longest request head, bytes. Default 16 KiB.
    pub head_bytes_max: usize,
    /// Time for a TLS handshake, for a request's head, and again for its body. Default 10 s.
    pub read_timeout: Duration,
    /// Time for data that the client does not read, from the first blocked write until nothing is
    /// left to write. Default 10 s.
    pub write_timeout: Duration,
    /// Lifetime of a connection; it ends after the current request. Default 5 minutes. A `WebSocket`
    /// has none.
    pub connection_life: Duration,
    /// Time for an answer of the hub or its disk. Default 10 s.
    pub answer_timeout: Duration,
    /// Entries of one page of mail or presence. Default 1,000.
    pub page_max: usize,
    /// Concurrent `WebSocket`s. Default 256.
    pub watches_max: usize,
    /// Interval of pings to a `WebSocket`. Default 20 s. One that sends nothing for three intervals
    /// is closed.
    pub ping_interval: Duration,
    /// Requests of one source without a valid key, per second. Default 5.
    pub failures_per_second: u32,
    /// Burst of such requests. Default 20.
    pub failures_burst: u32,
    /// How long a stored mail's `Idempotency-Key` is known, in memory. Default 1 h.
    pub mail_key_window: Duration,
    /// Such keys, about 200 bytes each. Default 65,536. Mails with further ones are refused for now.
    pub mail_keys_max: usize,
    /// The same of one API key's name. Default 16,384.
    pub mail_keys_each_max: usize,
    /// The prefix of a player's keys, for exports and deletions of its data.
    pub person_prefix: PersonPrefix,
}

/// Files of a certificate chain and its private key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The host's certificate, and the intermediate ones.
    pub chain: PathBuf,
    /// The private key; only its owner may read it.
    pub key: PathBuf,
}

impl ApiConfig {
    /// Returns the default limits.
    #[must_use]
    pub fn new(listen: SocketAddr, keys: PathBuf, certificate: Option<CertificateFiles>) -> Self {
        Self {
            listen,
            certificate,
            keys,
            connections_max: 1_024,
            connections_per_source_max: 1_024,
            head_bytes_max: 16 << 10,
            read_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            connection_life: Duration::from_secs(300),
            answer_timeout: Duration::from_secs(10),
            page_max: 1_000,
            watches_max: 256,
            ping_interval: Duration::from_secs(20),
            failures_per_second: 5,
            failures_burst: 20,
            mail_key_window: Duration::from_secs(3_600),
            mail_keys_max: 65_536,
            mail_keys_each_max: 16_384,
            person_prefix: PersonPrefix::default(),
        }
    }

    /// Reads the files and opens the port.
    pub(crate) fn bind(self) -> Result<BoundApi, Failure> {
        let listen = self.listen;
        if self.certificate.is_none() && !listen.ip().is_loopback() {
            return Err(Failure::usage(format_args!(
                "plain HTTP is served on loopback addresses only, since requests carry keys; \
                 {listen} is not one: give a certificate"
            )));
        }
        let certificate = match &self.certificate {
            Some(files) => Some(files.read()?),
            None => None,
        };
        let keys = key::KeyRing::read(&self.keys)?;
        let port = BoundPort::bind(listen)?;
        Ok(BoundApi {
            config: self,
            certificate,
            keys,
            port,
        })
    }
}

/// Longest chain of a certificate, and longest key, bytes of PEM.
const PEM_BYTES_MAX: u64 = 128 << 10;

impl CertificateFiles {
    fn texts(&self) -> Result<(String, zeroize::Zeroizing<String>), Failure> {
        let chain = std::fs::read_to_string(&self.chain)
            .map_err(|error| Failure::file(&self.chain, SystemFault(&error)))?;
        let key = trust::read_private(&self.key, "the private key", PEM_BYTES_MAX)?;
        Ok((chain, key))
    }

    fn read(&self) -> Result<HostCertificate, Failure> {
        let (chain, key) = self.texts()?;
        HostCertificate::from_pem(&chain, &key).map_err(|error| Failure::file(&self.chain, error))
    }

    fn reload(&self, certificate: &HostCertificate) -> Result<(), Failure> {
        let (chain, key) = self.texts()?;
        let replaced = certificate.replace(&chain, &key);
        replaced.map_err(|error| Failure::file(&self.chain, error))
    }
}

#[derive(Debug)]
pub(crate) struct BoundApi {
    config: ApiConfig,
    certificate: Option<HostCertificate>,
    keys: key::KeyRing,
    port: BoundPort,
}

impl BoundApi {
    /// Joins the hub with its own identity, and serves. `own` is from [`own_link`].
    pub(crate) fn start(
        self,
        client: HubClient,
        identity: &Identity,
        own: &JoinFile,
    ) -> Result<HubApi, Failure> {
        let mut ring = Ring::new();
        let instance = trust::random_instance(&mut ring)?;
        let [run @ .., _, _, _, _] = instance.0.to_be_bytes();
        let run = u32::from_be_bytes(run);
        let presence = Presence::new(run);
        let node = HubNode {
            identity,
            join_file: own,
            instance,
        };
        let mut node_config = NodeConfig::default();
        node_config.role = Role::Admin;
        node_config.watch_players = true;
        let mail_keys = MailKeyLimits {
            window: self.config.mail_key_window,
            keys_max: self.config.mail_keys_max,
            keys_each_max: self.config.mail_keys_each_max,
        };
        node_config.shards.only = Some(own.shard_of(identity.node_id()).index());
        let link = node.spawn(
            "hub api link",
            node_config,
            ApiLink::new(identity.node_id(), presence.clone(), run, mail_keys),
        )?;
        let tls = match &self.certificate {
            Some(certificate) => Some(Tls::new(certificate, self.config.read_timeout)?),
            None => None,
        };
        let files = (self.config.keys.clone(), self.config.certificate.clone());
        let shared = Arc::new(Shared::new(
            self.config,
            self.keys.clone(),
            (client, link.requests(), presence),
            Hubs::new(own, identity.node_id()),
        ));
        let server = self.port.serve("hub api", move |stream, peer| {
            admit(stream, peer, &shared, tls.as_ref());
        });
        let server = server.map_err(|error| {
            Failure::refused(format_args!("the HTTP API cannot start: {error}"))
        })?;
        Ok(HubApi {
            server,
            link,
            keys: self.keys,
            certificate: self.certificate,
            files,
        })
    }
}

/// The join file of the API's node: the hubs alone, with the address on which this one listens. A node
/// makes no use of the network's secret.
pub(crate) fn own_link(join_file: &JoinFile, hub: NodeId, hub_address: SocketAddr) -> JoinFile {
    let mut address = hub_address;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let mut own = JoinFile::new(NetworkSecret::new([0; 32]));
    let hubs = join_file.hubs().map(|grant| grant.node);
    own.grants
        .extend(hubs.map(|hub| Grant::new(Role::Hub, hub)));
    if own.grant(hub, Role::Hub).is_none() {
        // A hub of statistics is not among them.
        own.grants = vec![Grant::new(Role::Hub, hub)];
    }
    let mut grants = own.grants.iter_mut();
    if let Some(grant) = grants.find(|grant| grant.node == hub) {
        grant.addresses.push(address.to_string());
    }
    own
}

/// A running API. Dropping it closes the port and all connections.
#[derive(Debug)]
pub(crate) struct HubApi {
    server: Server,
    link: StreamHandle<LinkRequest>,
    keys: key::KeyRing,
    certificate: Option<HostCertificate>,
    files: (PathBuf, Option<CertificateFiles>),
}

impl HubApi {
    pub(crate) const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.server.is_running() && self.link.is_running()
    }

    /// Reads the keys and the certificate again.
    pub(crate) fn reload(&self) -> Result<(), Failure> {
        let (keys, certificate) = &self.files;
        self.keys.reload(keys)?;
        if let (Some(files), Some(certificate)) = (certificate, &self.certificate) {
            files.reload(certificate)?;
        }
        Ok(())
    }
}

fn admit(stream: TcpStream, peer: SocketAddr, shared: &Arc<Shared>, tls: Option<&Tls>) {
    let source = SourceKey::of(peer.ip());
    let admitted = OpenConnection::admit(&shared.connections, &shared.counter, Some(source));
    let Some(open) = admitted else {
        return;
    };
    let config = &shared.config;
    let limits = Limits {
        head_bytes_max: config.head_bytes_max,
        read_timeout: config.read_timeout,
        write_timeout: config.write_timeout,
        life: config.connection_life,
    };
    let routes = operation::routes(shared).layer(Extension(Peer(source)));
    match tls {
        Some(tls) => drop(tokio::spawn(open.serve_tls(
            stream,
            tls.clone(),
            routes,
            limits,
        ))),
        None => drop(tokio::spawn(open.serve(stream, routes, limits))),
    }
}
