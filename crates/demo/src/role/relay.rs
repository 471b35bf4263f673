//! A node of the mesh.

use std::collections::BTreeMap;
use std::time::Duration;

use crypto::{Ring, Secret32};
use hub::{JoinFile, Role};
use relay_mesh::link_state::{Profile, Roles};
use relay_mesh::{Bootstrap, Config, EntryGame, Event, ExitGame, Game, Mode};
use wire::NodeId;

use super::{EventWriter, Failure, Parent, RunOptions};
use crate::keyring;
use crate::link_faults::LinkFaults;
use crate::message::{ChildCommand, ChildEvent};
use crate::plan::{NodeRole, Plan, RELAYS};
use daemon::relay::{Emulation, Relay, RelayEvent, Setup, TcpSetup};
use daemon::trust;

/// Relays until the parent closes the pipe.
pub(super) fn run(
    options: &RunOptions,
    number: u8,
    parent: &Parent,
    events: &EventWriter,
) -> Result<(), Failure> {
    let (plan, directory) = (&options.plan(), &options.directory);
    let join_file = keyring::join_file(directory)?;
    let nodes = nodes(&join_file)?;
    let faults = LinkFaults::of(plan, plan.relay(number).ip());
    let setup = Setup {
        name: keyring::relay_name(number),
        identity: keyring::identity(directory, &keyring::relay_name(number))?,
        node: config(plan, number, (&join_file, &nodes))?,
        listen: plan.relay(number),
        upstream: Some(plan.relay(number).ip()),
        emulation: Emulation {
            outbound: faults.outbound.clone(),
            inbound: faults.inbound.clone(),
        },
        store: None,
        admin: None,
        tcp: TcpSetup::default(),
    };
    let forwarder = EventForwarder {
        number,
        nodes,
        events: events.clone(),
    };
    let relay = Relay::start(setup, move |event| {
        if let RelayEvent::Event(event) = event {
            forwarder.send(event);
        }
    })?;
    events.send(ChildEvent::Ready);

    while let Ok(command) = parent.next(CHECK_INTERVAL) {
        if let Some(ChildCommand::Degrade {
            host,
            remote,
            fault,
        }) = command
            && !faults.degrade((host, remote), fault)
        {
            return Err(format!("there is no link between {host} and {remote}").into());
        }
        if !relay.is_running() {
            return Err("the relay's thread has ended".into());
        }
    }
    relay.shutdown(SHUTDOWN_TIMEOUT);
    Ok(())
}

/// Returns the node ids of the relays, by number, from the join file.
fn nodes(file: &JoinFile) -> Result<Vec<NodeId>, Failure> {
    (0..RELAYS)
        .map(|number| {
            let name = keyring::relay_name(number);
            file.with_role(Role::MeshNode)
                .find(|grant| grant.name.is_some_and(|known| known.to_string() == name))
                .map(|grant| grant.node)
                .ok_or_else(|| format!("the join file has no {name}").into())
        })
        .collect()
}

fn config(
    plan: &Plan,
    number: u8,
    (file, nodes): (&JoinFile, &[NodeId]),
) -> Result<Config, Failure> {
    let mut config = Config::new(
        Secret32::new(*file.network_secret.as_bytes()),
        trust::random_instance(&mut Ring::new())?,
    );
    let numbered = || (0..RELAYS).zip(nodes.iter().copied());
    config.bootstrap = Bootstrap {
        nodes: numbered()
            .map(|(other, node)| (node, plan.relay(other)))
            .collect(),
    };
    config.profile = Profile {
        roles: roles(plan.node_role(number)),
        name: keyring::relay_name(number),
        addresses: vec![plan.relay(number)],
    };
    let members: BTreeMap<NodeId, Roles> = numbered()
        .map(|(other, node)| (node, roles(plan.node_role(other))))
        .collect();
    config.members = Some(members);
    let exits: Vec<NodeId> = numbered()
        .filter(|(other, _)| plan.node_role(*other) == NodeRole::Exit)
        .map(|(_, node)| node)
        .collect();
    let game = |name: &str, listen, server| Game {
        name: name.to_owned(),
        mode: Mode::Shadow,
        entry: (plan.node_role(number) == NodeRole::Entry).then(|| EntryGame {
            listen: vec![listen],
            exits: exits.clone(),
        }),
        exit: (plan.node_role(number) == NodeRole::Exit).then_some(ExitGame {
            server,
            entries: None,
            header: None,
        }),
    };
    config.games = vec![
        game("match", plan.entry(number), plan.server()),
        game("beacon", plan.beacon_entry(number), plan.beacon()),
    ];
    Ok(config)
}

const fn roles(node_role: NodeRole) -> Roles {
    match node_role {
        NodeRole::Entry => Roles::ENTRY,
        NodeRole::Relay => Roles::RELAY,
        NodeRole::Exit => Roles::EXIT,
    }
}

#[derive(Clone)]
struct EventForwarder {
    number: u8,
    nodes: Vec<NodeId>,
    events: EventWriter,
}

impl EventForwarder {
    fn number_of(&self, node: NodeId) -> Option<u8> {
        (0..RELAYS)
            .zip(&self.nodes)
            .find_map(|(number, known)| (*known == node).then_some(number))
    }

    fn send(&self, event: Event) {
        match event {
            Event::LinkUp { .. } => self.events.send(ChildEvent::LinkUp { relay: self.number }),
            Event::RouteChanged { to, .. } => {
                let nodes = to.relays.iter().chain([&to.destination]);
                self.events.send(ChildEvent::Route {
                    relay: self.number,
                    path: nodes.filter_map(|node| self.number_of(*node)).collect(),
                });
            }
            Event::ListenFailed { game, address } => self.events.send(ChildEvent::Failed {
                reason: format!("relay {} cannot open {address} for {game}", self.number),
            }),
            Event::LinkDown { .. }
            | Event::LinkTooSmall { .. }
            | Event::FlowOpened { .. }
            | Event::FlowClosed { .. }
            | Event::Listening { .. }
            | _ => {}
        }
    }
}

const CHECK_INTERVAL: Duration = Duration::from_millis(200);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(300);
