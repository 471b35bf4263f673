//! A node of the mesh.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crypto::{Ring, Secret32};
use hub::JoinFile;
use hub::role::Role;
use relay_mesh::link_state::{Profile, Roles};
use relay_mesh::{Bootstrap, Config, EntryGame, Event, ExitGame, Game, Mode};
use wire::NodeId;

use super::{Failure, Voice};
use crate::keyring;
use crate::message::{News, Order, RouteCause};
use crate::plan::{Duty, Plan, RELAYS};
use crate::wan::Weather;
use daemon::control::ParentPipe;
use daemon::relay::{Emulation, Relay, RelayEvent, Setup, TcpSetup};
use daemon::trust;

/// Relays until the parent lets go.
pub(super) fn run(plan: &Plan, number: u8, directory: &Path) -> Result<(), Failure> {
    let leash: ParentPipe<Order> = ParentPipe::open()?;
    let (voice, writer) = Voice::raise()?;
    let join_file = keyring::join_file(directory)?;
    let nodes = nodes(&join_file)?;
    let weather = Weather::of(plan, plan.relay(number).ip());
    let setup = Setup {
        name: keyring::relay_name(number),
        identity: keyring::identity(directory, &keyring::relay_name(number))?,
        node: config(plan, number, (&join_file, &nodes))?,
        listen: plan.relay(number),
        upstream: Some(plan.relay(number).ip()),
        emulation: Emulation {
            outbound: weather.outbound(),
            inbound: weather.inbound(),
        },
        store: None,
        admin: None,
        tcp: TcpSetup::default(),
    };
    let teller = Teller {
        number,
        nodes,
        voice: voice.clone(),
    };
    let relay = Relay::start(setup, move |event| {
        if let RelayEvent::Event(event) = event {
            teller.tell(event);
        }
    })?;
    voice.say(News::Ready);

    while let Ok(order) = leash.next(PATIENCE) {
        if let Some(Order::Degrade {
            host,
            remote,
            accident,
        }) = order
            && !weather.degrade((host, remote), accident)
        {
            return Err(format!("there is no link between {host} and {remote}").into());
        }
        if !relay.is_running() {
            return Err("the relay's thread has ended".into());
        }
    }
    relay.shutdown(LINGER);
    drop(voice);
    // The writer has nothing left to write, or nobody to write to.
    drop(writer.join());
    Ok(())
}

/// The relays by number, as the join file has them.
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
        roles: roles(plan.duty(number)),
        name: keyring::relay_name(number),
        addresses: vec![plan.relay(number)],
    };
    let members: BTreeMap<NodeId, Roles> = numbered()
        .map(|(other, node)| (node, roles(plan.duty(other))))
        .collect();
    config.members = Some(members);
    let exits: Vec<NodeId> = numbered()
        .filter(|(other, _)| plan.duty(*other) == Duty::Exit)
        .map(|(_, node)| node)
        .collect();
    let game = |name: &str, listen, server| Game {
        name: name.to_owned(),
        mode: Mode::Shadow,
        entry: (plan.duty(number) == Duty::Entry).then(|| EntryGame {
            listen: vec![listen],
            exits: exits.clone(),
        }),
        exit: (plan.duty(number) == Duty::Exit).then_some(ExitGame {
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

const fn roles(duty: Duty) -> Roles {
    match duty {
        Duty::Entry => Roles::ENTRY,
        Duty::Relay => Roles::RELAY,
        Duty::Exit => Roles::EXIT,
    }
}

/// Tells the parent what the node tells.
#[derive(Clone)]
struct Teller {
    number: u8,
    nodes: Vec<NodeId>,
    voice: Voice,
}

impl Teller {
    fn number_of(&self, node: NodeId) -> Option<u8> {
        (0..RELAYS)
            .zip(&self.nodes)
            .find_map(|(number, known)| (*known == node).then_some(number))
    }

    fn tell(&self, event: Event) {
        match event {
            Event::LinkUp { .. } => self.voice.say(News::LinkUp { relay: self.number }),
            Event::RouteChanged {
                to, cause, flows, ..
            } => {
                let nodes = to.relays.iter().chain([&to.destination]);
                self.voice.say(News::Route {
                    relay: self.number,
                    path: nodes.filter_map(|node| self.number_of(*node)).collect(),
                    cause: match cause {
                        relay_mesh::RouteCause::Killed | relay_mesh::RouteCause::Drained => {
                            RouteCause::Killed
                        }
                        relay_mesh::RouteCause::Degraded => RouteCause::Degraded,
                        relay_mesh::RouteCause::Better => RouteCause::Better,
                        relay_mesh::RouteCause::First | _ => RouteCause::First,
                    },
                    flows,
                });
            }
            Event::ListenFailed { game, address } => self.voice.say(News::Failed {
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

/// How often to look whether the relay still runs.
const PATIENCE: Duration = Duration::from_millis(200);
/// Time to take leave of neighbours.
const LINGER: Duration = Duration::from_millis(300);
