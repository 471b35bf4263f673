//! A node that has sessions with many, and tells nothing of itself.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use crypto::{Identity, Secret32};
use netsim::{App, Handle, Host, LinkConfig};
use udp_proto::{
    AppId, Config, Credentials, Endpoint, Event, Listen, Network, ServerIdentity, SessionId, Target,
};
use wire::{InstanceId, Instant, NodeId, Seed};

use super::crowd::{Crowd, mesh_address};
use crate::harness::ms;
use crate::toy::ToyProvider;

/// Dials all that it knows of, again and again.
#[derive(Default)]
pub(super) struct Mute {
    targets: BTreeMap<SessionId, (NodeId, SocketAddr)>,
    /// Sessions that are up.
    pub(super) up: usize,
}

type MuteHost = Host<Endpoint<ToyProvider>, Mute>;

/// Where it is.
const NUMBER: usize = 1_000;

/// Who it is, and where.
pub(super) fn name(seed: Seed) -> (NodeId, SocketAddr) {
    (identity(seed).node_id(), mesh_address(NUMBER))
}

fn identity(seed: Seed) -> Identity {
    let mut provider = ToyProvider::new(seed.generator(900_000).seed());
    Identity::generate(&mut provider).unwrap()
}

impl Mute {
    fn dial(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<ToyProvider>,
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
        endpoint: &mut Endpoint<ToyProvider>,
        session: SessionId,
    ) {
        if let Some(to) = self.targets.remove(&session) {
            self.dial(now, endpoint, to);
        }
    }
}

impl App<Endpoint<ToyProvider>> for Mute {
    fn on_event(&mut self, now: Instant, machine: &mut Endpoint<ToyProvider>, event: Event) {
        match event {
            Event::Connected { .. } => self.up += 1,
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

/// Has it join a crowd.
pub(super) fn join(crowd: &mut Crowd, seed: Seed) -> Handle<MuteHost> {
    let own = identity(seed);
    let provider = ToyProvider::new(seed.generator(900_001).seed());
    let targets: Vec<_> = (0..)
        .zip(&crowd.ids)
        .map(|(index, id)| (*id, mesh_address(index)))
        .collect();
    let host = crowd.world.add(mesh_address(NUMBER), |now| {
        let app = AppId(0x7469_636b_6d65_7368);
        let mut endpoint = Endpoint::new(Config::default(), app, provider, now).unwrap();
        let network = Network {
            secret: Secret32::new([7; 32]),
            previous: None,
        };
        let listen = Listen::new(own, InstanceId(1)).with_network(network);
        endpoint.listen(now, listen).unwrap();
        let mut mute = Mute::default();
        for to in targets {
            mute.dial(now, &mut endpoint, to);
        }
        Host::new(endpoint, mute)
    });
    for node in crowd.nodes.clone() {
        let line = LinkConfig::default().with_delay(ms(10));
        crowd.world.set_links(host, node, line);
    }
    host
}
