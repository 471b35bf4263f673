//! An entry that tries to take all of an exit, and what is left for another entry's players.

use core::net::SocketAddr;
use core::time::Duration;

use netsim::provider::SimProvider;
use netsim::{Datagram, Handle, Host};
use relay_mesh::flow_message::FlowMessage;
use relay_mesh::link_state::Roles;
use relay_mesh::{EntryGame, Event, ExitGame, FlowEnd, FlowId, Game, Mode, UnprovedLimits};
use udp_proto::Endpoint;
use wire::Seed;

use crate::harness::{Adjust, EXIT, Mesh, RELAY, START, address, ms, server, shape};
use crate::many_players::gather;
use crate::member::{RELIABLE, Replies, join_at};

/// The player that the member claims to have.
const PLAYER: &str = "198.18.66.6:666";

/// A member with a session to the exit, as an entry has.
struct Greedy {
    mesh: Mesh,
    member: Handle<Host<Endpoint<SimProvider>, Replies>>,
    /// The next flow id in the member's own range.
    next: u64,
}

impl Greedy {
    fn new(number: u64, adjust: Adjust) -> Self {
        let mut mesh = Mesh::new(Seed::from_number(number), &shape(adjust));
        mesh.run(START);
        let member = join_at(&mut mesh, 98, EXIT);
        mesh.run(3_000);
        assert!(mesh.world[member].app.session.is_some(), "connected");
        Self {
            mesh,
            member,
            next: 1,
        }
    }

    fn open(&mut self, flow: u64) {
        let mut message = Vec::new();
        let open = FlowMessage::Open {
            flow: FlowId(flow),
            player: address(PLAYER),
            game: "echo".into(),
            mode: None,
        };
        open.encode(&mut message);
        self.mesh.world.apply(self.member, |host, now| {
            let session = host.app.session.unwrap();
            host.machine.send(now, session, RELIABLE, &message).unwrap();
        });
    }

    fn open_new(&mut self, count: u64) {
        for _ in 0..count {
            self.open(self.next);
            self.next += 2;
        }
    }

    /// Number of flows of the exit.
    fn sockets(&self) -> usize {
        self.mesh.process(EXIT).sockets() - 1
    }

    fn crowded(&self) -> usize {
        let ends = self.mesh.process(EXIT).closed_flows();
        ends.iter().filter(|end| **end == FlowEnd::Evicted).count()
    }
}

fn small_exit(index: usize, config: &mut relay_mesh::Config, _: &[wire::NodeId]) {
    if index == EXIT {
        config.flows_max = 64;
        config.unproved_max = 16;
    }
}

#[test]
fn mesh_a1_an_entry_that_floods_an_exit_displaces_its_own_players_only() {
    let mut harness = Greedy::new(50, small_exit);
    harness.open_new(100);
    harness.mesh.run(500);
    let at = harness.mesh.now();
    // Newcomers need a second to prove their address, and share half of the 16 slots, which the
    // flood fills within 20 ms.
    let many_players = gather(&mut harness.mesh, 7, Duration::from_millis(500));
    for _ in 0..400 {
        harness.open_new(8);
        harness.mesh.run(10);
        assert!(harness.sockets() <= 64);
    }
    assert!(harness.crowded() > 2_000, "{}", harness.crowded());
    assert_eq!(harness.mesh.world[many_players].served(), 7);
    let now = harness.mesh.now();
    let gap = harness.mesh.world[many_players].gap(at + ms(1_000), now);
    assert!(gap < ms(600), "none was thrown out: {gap:?}");
    assert!(harness.mesh.player().gap(at, now) < ms(50));
}

#[test]
fn mesh_a1_a_flow_that_is_refused_ends_no_other() {
    let mut harness = Greedy::new(51, small_exit);
    harness.open_new(15);
    harness.mesh.run(500);
    let before = harness.sockets();
    assert_eq!(before, 16, "and the player's");
    harness.open_new(1);
    harness.mesh.run(500);
    assert_eq!(
        (harness.sockets(), harness.crowded()),
        (17, 0),
        "the last place"
    );
    for _ in 0..20 {
        // Used before, and outside the member's range.
        harness.open(1);
        harness.open(1_000);
    }
    harness.mesh.run(500);
    assert_eq!((harness.sockets(), harness.crowded()), (17, 0));
    harness.open_new(1);
    harness.mesh.run(500);
    assert_eq!((harness.sockets(), harness.crowded()), (17, 1));
}

#[test]
fn mesh_a1_one_entry_gets_seven_eighths_of_an_exit() {
    let mut harness = Greedy::new(52, |index, config, _| {
        if index == EXIT {
            config.flows_max = 64;
            config.unproved_max = 64;
        }
    });
    harness.open_new(200);
    harness.mesh.run(500);
    assert_eq!(harness.sockets(), 56 + 1);
    let many_players = gather(&mut harness.mesh, 7, Duration::from_millis(500));
    harness.mesh.run(3_000);
    assert_eq!(harness.mesh.world[many_players].served(), 7);
    assert_eq!(harness.sockets(), 64);
}

#[test]
fn open_rate_bounds_the_sockets_that_an_exit_opens_for_one_entry() {
    let mut harness = Greedy::new(54, |index, config, _| {
        if index == EXIT {
            config.open_rate = 4;
            config.unproved_max = 16;
        }
    });
    let opened = |harness: &Greedy| harness.sockets() + harness.crowded();
    let before = opened(&harness);
    // Each message of about 30 bytes opens one socket and closes another.
    for _ in 0..50 {
        harness.open_new(8);
        harness.mesh.run(40);
    }
    harness.mesh.run(500);
    // A burst of 16 times the rate, and twice the rate for 2 to 2.5 s.
    let by_the_flood = opened(&harness) - before;
    assert!(
        (64 + 15..=64 + 21).contains(&by_the_flood),
        "{by_the_flood}"
    );
    let refused = harness.mesh.process(EXIT).node.stats().opens_refused;
    assert_eq!(refused, 400 - u64::try_from(by_the_flood).unwrap());
    // Another entry has its own limit.
    let many_players = gather(&mut harness.mesh, 7, Duration::from_millis(500));
    harness.mesh.run(3_000);
    assert_eq!(harness.mesh.world[many_players].served(), 7);
    assert_eq!(
        harness.mesh.process(EXIT).node.stats().opens_refused,
        refused
    );
}

#[test]
fn a_prefix_at_its_limit_ends_no_flow_of_another_entry() {
    let own_game = address("192.0.2.2:27017");
    // The exit is the entry of a second game, which the first relay serves.
    let mut harness = Greedy::new(53, |index, config, ids| {
        config.games.push(Game {
            name: "second".into(),
            mode: Mode::Shadow,
            entry: (index == EXIT).then(|| EntryGame {
                listen: vec![address("192.0.2.2:27017")],
                exits: vec![ids[RELAY]],
            }),
            exit: (index == RELAY).then(|| ExitGame {
                server: server(),
                entries: None,
                header: None,
            }),
        });
        if index == EXIT || index == RELAY {
            config.profile.roles = Roles::ALL;
        }
        let mut limits = UnprovedLimits::default();
        (limits.newcomers, limits.unproved) = (16, 64);
        config.unproved_limits = [("second".into(), limits)].into();
    });
    harness.open_new(10);
    harness.mesh.run(500);
    // 64 sources of the same /24 at once, then 16 per second.
    for number in 0..144_u16 {
        let from = SocketAddr::from(([198, 18, 66, 7], 2_000 + number));
        let at = u64::from(number.saturating_sub(64)) * 63;
        let datagram = Datagram::new(from, own_game, vec![9; 50]);
        harness.mesh.world.inject(ms(at), datagram);
    }
    harness.mesh.run(6_000);
    let events = &harness.mesh.process(EXIT).events;
    let players = events.iter().filter_map(|(_, event)| {
        if let Event::FlowClosed { player, .. } = event {
            Some(*player)
        } else {
            None
        }
    });
    let players: Vec<SocketAddr> = players.collect();
    assert!(!players.contains(&address(PLAYER)), "{players:?}");
    assert!(players.len() > 70, "each newcomer takes a place of theirs");
}
