//! A game over `udp_proto` sessions with an exit that dies.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::Identity;
use netsim::provider::SimProvider;
use netsim::{App, Handle, Host, for_each_seed, test_site};
use relay_mesh::link_state::Roles;
use relay_mesh::{ExitGame, FlowEnd, Mode};
use udp_proto::{
    AppId, ChannelId, Config, Credentials, Endpoint, Event, Listen, ServerIdentity, SessionId,
    Target,
};
use wire::{InstanceId, Instant, Seed};

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, address, game, link, ms};

type Machine = Endpoint<SimProvider>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Player,
    Server,
}

/// Both ends of the game: the player sends a number reliably every 50 ms, and the server echoes it.
struct Talk {
    end: End,
    session: Option<SessionId>,
    next_at: Instant,
    said: u64,
    /// Received numbers with their arrival times.
    incoming: Vec<(Instant, u64)>,
    events: Vec<Event>,
}

const RELIABLE: ChannelId = ChannelId(1);
const INTERVAL: Duration = ms(50);

impl App<Machine> for Talk {
    fn on_event(&mut self, now: Instant, machine: &mut Machine, event: Event) {
        if let Event::Readable { session } = event {
            let mut message = Vec::new();
            while machine.receive(now, session, &mut message).is_some() {
                let number = u64::from_be_bytes(message[..8].try_into().unwrap());
                self.incoming.push((now, number));
                if self.end == End::Server {
                    machine.send(now, session, RELIABLE, &message).unwrap();
                }
                message.clear();
            }
            return;
        }
        if let Event::Connected { session, .. } = event {
            self.session = Some(session);
            self.next_at = now;
        }
        self.events.push(event);
    }

    fn on_timeout(&mut self, now: Instant, machine: &mut Machine) {
        while let Some(session) = self.session.filter(|_| self.next_at <= now) {
            let message = self.said.to_be_bytes();
            machine.send(now, session, RELIABLE, &message).unwrap();
            self.said += 1;
            self.next_at += INTERVAL;
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.session
            .filter(|_| self.end == End::Player)
            .map(|_| self.next_at)
    }
}

const fn talk(end: End) -> Talk {
    Talk {
        end,
        session: None,
        next_at: Instant::ZERO,
        said: 0,
        incoming: Vec::new(),
        events: Vec::new(),
    }
}

const APP: AppId = AppId(7);

fn server() -> SocketAddr {
    address("198.51.100.8:7000")
}

/// The last relay is also an exit, at a higher cost.
fn mesh_of_two_exits(seed: Seed, mode: Mode) -> Mesh {
    let shape = Shape {
        mode,
        adjust: |index, config, ids| {
            let game = &mut config.games[0];
            config.probes.clear();
            if index == RELAY + 2 {
                config.profile.roles = Roles::ALL;
            }
            if [EXIT, RELAY + 2].contains(&index) {
                game.exit = Some(ExitGame {
                    server: server(),
                    entries: None,
                    header: None,
                });
            }
            if let Some(entry) = &mut game.entry {
                entry.exits = vec![ids[EXIT], ids[RELAY + 2]];
            }
        },
        ..Shape::default()
    };
    let mut mesh = Mesh::new(seed, &shape);
    mesh.stop_player();
    let nodes = mesh.nodes.clone();
    mesh.world
        .set_links(nodes[ENTRY], nodes[RELAY + 2], link(60));
    mesh
}

/// A server that identifies its players by their sessions, and a player that dials the entry.
fn begin(mesh: &mut Mesh) -> [Handle<Host<Machine, Talk>>; 2] {
    let seed = mesh.seed;
    let provider = |purpose: u64| SimProvider::new(seed.generator(purpose).seed());
    let identity = Identity::generate(&mut provider(71)).unwrap();
    let public = *identity.public_key();
    let server = mesh.world.add(server(), |now| {
        let mut machine = Endpoint::new(Config::default(), APP, provider(72), now).unwrap();
        let listen = Listen::new(identity, InstanceId(9)).with_open_mode();
        machine.listen(now, listen).unwrap();
        Host::new(machine, talk(End::Server))
    });
    let player = mesh.world.add(address("203.0.113.77:5000"), |now| {
        let mut machine = Endpoint::new(Config::default(), APP, provider(73), now).unwrap();
        let target = Target {
            addresses: vec![game()],
            server: ServerIdentity::Keys(vec![public]),
            credentials: Credentials::Open,
        };
        machine.connect(now, target).unwrap();
        Host::new(machine, talk(End::Player))
    });
    let nodes = mesh.nodes.clone();
    mesh.world.set_links(player, nodes[ENTRY], link(5));
    for exit in [EXIT, RELAY + 2] {
        mesh.world.set_links(server, nodes[exit], link(1));
    }
    [server, player]
}

#[test]
fn sim_mesh_m7_a_session_of_udp_proto_continues_over_the_next_exit() {
    for_each_seed(&test_site!(), 3, |seed| {
        for mode in [Mode::Shadow, Mode::Single] {
            let mut mesh = mesh_of_two_exits(seed, mode);
            mesh.run(START);
            let [server, player] = begin(&mut mesh);
            mesh.run(4_000);
            assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
            let at = mesh.now();
            mesh.kill(EXIT);
            mesh.run(12_000);

            let talk = &mesh.world[player].app;
            let is_rate = |event: &&Event| matches!(event, Event::RateChanged { .. });
            let others = talk.events.iter().filter(|event| !is_rate(event));
            let others: Vec<&Event> = others.collect();
            assert!(
                matches!(others[..], [Event::Connected { .. }]),
                "{others:?}"
            );
            let came: Vec<Instant> = talk.incoming.iter().map(|(came, _)| *came).collect();
            let after = came.iter().find(|came| **came > at + ms(500)).copied();
            let gap = after.expect("it lives on").saturating_since(at);
            assert!(gap < ms(6_000), "{mode:?}: {gap:?}");
            // Reliable messages still arrived once and in order.
            for end in [server, player] {
                let incoming = mesh.world[end]
                    .app
                    .incoming
                    .iter()
                    .map(|(_, number)| *number);
                let incoming: Vec<u64> = incoming.collect();
                assert!(
                    incoming.iter().copied().eq(0..incoming.len() as u64),
                    "{incoming:?}"
                );
                assert!(incoming.len() as u64 + 20 > mesh.world[player].app.said);
            }
            let moved = &mesh.world[server].app.events;
            let moved = moved
                .iter()
                .filter(|event| matches!(event, Event::AddressChanged { .. }));
            assert_eq!(moved.count(), 1);
            let closed = mesh.process(ENTRY).closed_flows();
            assert_eq!(closed, [FlowEnd::SessionLost]);
        }
    });
}

/// An exit that was paused or cut off returns before any player has moved: the outage is too short.
#[test]
fn an_exit_paused_for_2_s_keeps_its_players() {
    let mut mesh = mesh_of_two_exits(Seed::from_number(4), Mode::Shadow);
    mesh.run(START);
    let [_, player] = begin(&mut mesh);
    mesh.run(4_000);
    let exit = mesh.nodes[EXIT].index();
    let others = (0..mesh.nodes.len()).filter(|index| *index != EXIT);
    let others: Vec<_> = others.map(|index| mesh.nodes[index].index()).collect();
    mesh.world.partition(&[exit], &others);
    mesh.run(2_000);
    mesh.world.heal(&[exit], &others);
    let at = mesh.now();
    mesh.run(5_000);
    assert_eq!(mesh.process(ENTRY).closed_flows(), []);
    let incoming = &mesh.world[player].app.incoming;
    assert!(incoming.iter().any(|(came, _)| *came > at + ms(3_000)));
}
