//! Nodes that open sessions and do nothing with them.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use crypto::{Identity, Provider, Secret32};
use netsim::{App, Handle, Host, LinkConfig};
use relay_mesh::link_state::{Message, Network as MeshNetwork, NodeRecord, Profile, Roles};
use udp_proto::{
    AppId, Config, Credentials, Endpoint, Event, Listen, Network, SendError, ServerIdentity,
    SessionId, Target,
};
use wire::{InstanceId, Instant, NodeId, Seed};

use super::many_nodes::{ManyNodes, mesh_address};
use crate::harness::ms;
use crate::member::RELIABLE;
use crate::test_provider::TestProvider;

/// Dials all nodes it knows, again and again, and sends the same message in each session.
#[derive(Default)]
pub(super) struct Mute {
    words: Vec<u8>,
    targets: BTreeMap<SessionId, (NodeId, SocketAddr)>,
    pub(super) up: usize,
    /// Sessions that were ever up.
    pub(super) opened: usize,
}

type MuteHost = Host<Endpoint<TestProvider>, Mute>;

/// Id and address of the mute node with this number.
pub(super) fn name(seed: Seed, number: usize) -> (NodeId, SocketAddr) {
    (identity(seed, number).node_id(), mesh_address(number))
}

fn identity(seed: Seed, number: usize) -> Identity {
    let purpose = 900_000 + u64::try_from(number).unwrap();
    let mut provider = TestProvider::new(seed.generator(purpose).seed());
    Identity::generate(&mut provider).unwrap()
}

/// The record in which this node claims these roles.
fn record(seed: Seed, number: usize, roles: Roles) -> Vec<u8> {
    let own = identity(seed, number);
    let purpose = 910_000 + u64::try_from(number).unwrap();
    let mut provider = TestProvider::new(seed.generator(purpose).seed());
    let hash = provider.hmac_sha256(&[7; 32], &[b"tw1 mesh network"]);
    let key = provider.signing_key(&own).unwrap();
    let record = NodeRecord {
        key: *own.public_key(),
        version: 1,
        profile: Profile {
            roles,
            name: String::new(),
            addresses: vec![mesh_address(number)],
        },
        neighbours: Vec::new(),
    };
    let network = MeshNetwork(*hash.first_chunk().unwrap());
    let record = record.sign(&mut provider, &key, network).unwrap();
    let mut message = Vec::new();
    Message::NodeRecord(&record).encode(&mut message);
    message
}

impl Mute {
    fn dial(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<TestProvider>,
        (node, address): (NodeId, SocketAddr),
    ) {
        let target = Target {
            addresses: vec![address],
            server: ServerIdentity::Node(node),
            credentials: Credentials::Peer,
        };
        if let Ok(session) = endpoint.connect(now, target) {
            self.targets.insert(session, (node, address));
        }
    }

    fn dial_again(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<TestProvider>,
        session: SessionId,
    ) {
        if let Some(to) = self.targets.remove(&session) {
            self.dial(now, endpoint, to);
        }
    }
}

impl App<Endpoint<TestProvider>> for Mute {
    fn on_event(&mut self, now: Instant, machine: &mut Endpoint<TestProvider>, event: Event) {
        match event {
            Event::Connected { session, .. } => {
                self.up += 1;
                self.opened += 1;
                if !self.words.is_empty() {
                    match machine.send(now, session, RELIABLE, &self.words) {
                        // The session was closed as soon as it was open.
                        Ok(()) | Err(SendError::Closed) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            Event::Readable { session } => {
                let mut message = Vec::new();
                while machine.receive(now, session, &mut message).is_some() {
                    message.clear();
                }
            }
            Event::ConnectFailed { session, .. } => self.dial_again(now, machine, session),
            Event::Closed { session, .. } => {
                self.up = self.up.saturating_sub(1);
                self.dial_again(now, machine, session);
            }
            Event::MtuChecked { .. } | Event::RateChanged { .. } | Event::Settled { .. } | _ => {}
        }
    }
}

/// Adds a mute node that dials the nodes `to`. It publishes a record with these roles, or none.
pub(super) fn join(
    many_nodes: &mut ManyNodes,
    (seed, number): (Seed, usize),
    to: impl IntoIterator<Item = usize>,
    roles: Option<Roles>,
) -> Handle<MuteHost> {
    let own = identity(seed, number);
    let purpose = 920_000 + u64::try_from(number).unwrap();
    let provider = TestProvider::new(seed.generator(purpose).seed());
    let to: Vec<_> = to.into_iter().collect();
    let targets = to.iter().map(|to| (many_nodes.ids[*to], mesh_address(*to)));
    let targets: Vec<_> = targets.collect();
    let host = many_nodes.world.add(mesh_address(number), |now| {
        let app = AppId(0x7469_636b_6d65_7368);
        let mut endpoint = Endpoint::new(Config::default(), app, provider, now).unwrap();
        let network = Network {
            secret: Secret32::new([7; 32]),
            previous: None,
        };
        let listen = Listen::new(own, InstanceId(1)).with_network(network);
        endpoint.listen(now, listen).unwrap();
        let words = roles.map_or_else(Vec::new, |roles| record(seed, number, roles));
        let mut mute = Mute {
            words,
            ..Mute::default()
        };
        for to in targets {
            mute.dial(now, &mut endpoint, to);
        }
        Host::new(endpoint, mute)
    });
    for node in many_nodes.nodes.clone() {
        let line = LinkConfig::default().with_delay(ms(10));
        many_nodes.world.set_links(host, node, line);
    }
    host
}
