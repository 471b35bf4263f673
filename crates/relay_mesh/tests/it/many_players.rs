//! Many players at once.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use netsim::{Datagram, Handle, Outbox, for_each_seed, test_site};
use relay_mesh::link_state::Roles;
use relay_mesh::{Config, EntryGame, Event, ExitGame, FlowEnd, Game, Mode, RouteCause};
use wire::{Arrival, Instant, NodeId, Seed};

use crate::harness::{Adjust, ENTRY, EXIT, Mesh, RELAY, START, Shape, address, game, link, ms};

/// Players with one address each, which send numbered datagrams in turn.
pub(crate) struct ManyPlayers {
    players: Vec<SocketAddr>,
    /// Interval between two datagrams of one player.
    interval: Duration,
    next_at: Instant,
    /// Datagrams sent by all players.
    sent: u64,
    /// Unanswered datagrams, by player and number.
    open: BTreeMap<(SocketAddr, u64), Instant>,
    /// Arrival times of answers, by player.
    answered: BTreeMap<SocketAddr, Vec<Instant>>,
    /// Answers that were not expected, or reached the wrong player.
    faults: u64,
    is_silent: bool,
}

impl ManyPlayers {
    /// The longest time that any player went without an answer between `from` and `to`.
    pub(crate) fn gap(&self, from: Instant, to: Instant) -> Duration {
        let gaps = self.players.iter().map(|player| {
            let came = self.answered.get(player).into_iter().flatten();
            let came = came.copied().filter(|at| *at >= from && *at <= to);
            let mut last = from;
            came.chain([to])
                .map(|at| at.saturating_since(core::mem::replace(&mut last, at)))
                .fold(Duration::ZERO, Duration::max)
        });
        gaps.fold(Duration::ZERO, Duration::max)
    }

    /// Whether every player got an answer after `from`.
    fn is_served_since(&self, from: Instant) -> bool {
        let newest = |player| self.answered.get(player).and_then(|came| came.last());
        let mut newest = self.players.iter().map(newest);
        newest.all(|newest| newest.is_some_and(|newest| *newest > from))
    }

    /// Number of players that got an answer after `from`.
    pub(crate) fn served_since(&self, from: Instant) -> usize {
        let newest = self.answered.values().filter_map(|came| came.last());
        newest.filter(|newest| **newest >= from).count()
    }

    /// Number of datagrams that were sent between `from` and `to` and not answered.
    pub(crate) fn unanswered(&self, from: Instant, to: Instant) -> usize {
        let sent = self.open.values();
        sent.filter(|sent| (from..to).contains(sent)).count()
    }

    pub(crate) fn first_answer(&self) -> Option<Instant> {
        self.answered.values().flatten().min().copied()
    }

    /// Number of players that ever got an answer.
    pub(crate) fn served(&self) -> usize {
        self.answered.len()
    }
}

impl netsim::Node for ManyPlayers {
    fn handle_datagram(
        &mut self,
        now: Instant,
        local: SocketAddr,
        _arrival: Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) {
        let number = datagram
            .first_chunk()
            .map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
        if self.open.remove(&(local, number)).is_some() {
            self.answered.entry(local).or_default().push(now);
        } else {
            self.faults += 1;
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn drain(&mut self, now: Instant, outbox: &mut Outbox<'_>) {
        let count = u64::try_from(self.players.len()).unwrap();
        let step = self.interval / u32::try_from(count).unwrap();
        while self.next_at <= now && !self.is_silent {
            let player = self.players[usize::try_from(self.sent % count).unwrap()];
            let number = self.sent / count;
            if number == 0 {
                outbox.bind(player);
            }
            let mut bytes = number.to_be_bytes().to_vec();
            bytes.resize(60, 3);
            outbox.send_from(player, game(), None, &bytes);
            self.open.insert((player, number), now);
            self.sent += 1;
            self.next_at += step;
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.is_silent).then_some(self.next_at)
    }
}

/// Adds `count` players in as many /24s, 5 ms from the entry. Each sends once per `interval`.
pub(crate) fn gather(mesh: &mut Mesh, count: u32, interval: Duration) -> Handle<ManyPlayers> {
    gather_more(mesh, 0..count, interval)
}

/// Like [`gather`], with these player numbers, if players with other numbers are there already.
pub(crate) fn gather_more(
    mesh: &mut Mesh,
    numbers: core::ops::Range<u32>,
    interval: Duration,
) -> Handle<ManyPlayers> {
    let [_, high, low, _] = (numbers.start << 8).to_be_bytes();
    let host = SocketAddr::from(([100, 127 - high, low, 1], 1));
    let players = numbers
        .map(|number| {
            let [_, high, low, _] = (number << 8).to_be_bytes();
            SocketAddr::from(([100, 64 + high, low, 1], 4_000))
        })
        .collect();
    let many_players = mesh.world.add(host, |now| ManyPlayers {
        players,
        interval,
        next_at: now,
        sent: 0,
        open: BTreeMap::new(),
        answered: BTreeMap::new(),
        faults: 0,
        is_silent: false,
    });
    mesh.world
        .set_links(many_players, mesh.nodes[ENTRY], link(5));
    many_players
}

pub(crate) fn silence(mesh: &mut Mesh, many_players: Handle<ManyPlayers>) {
    mesh.world.apply(many_players, |many_players, _| {
        many_players.is_silent = true;
    });
}

fn crowded(seed: Seed, mode: Mode, adjust: Adjust) -> Mesh {
    let shape = Shape {
        mode,
        adjust,
        ..Shape::default()
    };
    let mut mesh = Mesh::new(seed, &shape);
    mesh.run(START);
    mesh
}

/// Selects the seed's random numbers for the moment of a kill.
const KILL: u64 = 41;

/// Kills the relay that carries `count` players. Returns the longest time that any of them went
/// without an answer.
fn kill_under(seed: Seed, count: u32, mode: Mode) -> Duration {
    let mut mesh = crowded(seed, mode, |_, _, _| {});
    let many_players = gather(&mut mesh, count, ms(500));
    mesh.run(u64::from(count) * 4 + 6_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    assert_eq!(
        mesh.world[many_players].served(),
        usize::try_from(count).unwrap()
    );
    mesh.run(seed.generator(KILL).below(1_000));
    let at = mesh.now();
    mesh.kill(RELAY);
    mesh.run(6_000);
    let moves = mesh.moves(ENTRY, at);
    assert!(
        moves.iter().any(|(_, to, cause)| {
            *cause == RouteCause::Killed && !to.relays.contains(&mesh.ids[RELAY])
        }),
        "{moves:?}"
    );
    assert_eq!(mesh.process(ENTRY).closed_flows(), [], "all live on");
    assert_eq!(mesh.world[many_players].faults, 0);
    let now = mesh.now();

    mesh.world[many_players].gap(at, now)
}

#[test]
fn sim_mesh_m6_many_flows_outlive_the_relay_that_carried_them() {
    // Each player sends twice a second, so a gap of half a second is normal.
    for_each_seed(&test_site!(), 1, |seed| {
        for (count, mode, most) in [
            (130, Mode::Shadow, 1_000),
            (1_000, Mode::Shadow, 1_000),
            (1_000, Mode::Single, 2_000),
            (2_000, Mode::Shadow, 1_000),
        ] {
            let gap = kill_under(seed, count, mode);
            eprintln!("{count} flows, {mode:?}: {gap:?}");
            assert!(gap <= ms(most), "{count} {mode:?}: {gap:?}");
        }
    });
}

#[test]
#[expect(clippy::print_stdout, reason = "a goal's figures are shown")]
fn sim_mesh_m6_1000_flows_move_by_two_requests_and_in_shadow_mode_by_none() {
    for_each_seed(&test_site!(), 3, |seed| {
        // Two requests per 64 flows and direction. Only then are other paths tried.
        for (mode, most) in [(Mode::Single, [64, 64, 98]), (Mode::Shadow, [0, 2, 64])] {
            let (before, moved, all) = requests_of_a_kill(seed, mode);
            let case = format!("thousand_flows_{mode:?}").to_lowercase();
            // Each request has one reply.
            println!("figure: {case} messages_before_move {}", before * 2);
            println!("figure: {case} messages_until_all_moved {}", moved * 2);
            println!("figure: {case} messages_in_all {}", all * 2);
            let counts = [before, moved, all];
            assert!(
                counts.iter().zip(&most).all(|(count, most)| count <= most),
                "{counts:?}"
            );
        }
    });
}

/// Kills the relay of a thousand flows. Returns the number of label requests until packets move,
/// until all flows have labels on the new path, and in total.
fn requests_of_a_kill(seed: Seed, mode: Mode) -> (u64, u64, u64) {
    let mut mesh = crowded(seed, mode, |_, _, _| {});
    let many_players = gather(&mut mesh, 1_000, ms(500));
    mesh.run(12_000 + seed.generator(KILL).below(1_000));
    let ends = [ENTRY, EXIT];
    let requests = |mesh: &Mesh| ends.map(|end| mesh.process(end).node.stats().label_requests);
    let (at, held) = (mesh.now(), requests(&mesh));
    mesh.kill(RELAY);
    // Each end moves the flows that it sends on independently.
    let mut last = held;
    while ends.iter().any(|end| mesh.moves(*end, at).is_empty()) {
        let now = requests(&mesh);
        for (index, end) in ends.iter().enumerate() {
            if mesh.moves(*end, at).is_empty() {
                last[index] = now[index];
            }
        }
        mesh.run(1);
    }
    let took = mesh.now().saturating_since(at);
    // Until the new relay has a label for each flow in both directions. Replies are not counted
    // separately: the caller doubles the requests.
    for _ in 0..3_000 {
        if mesh.process(RELAY + 1).node.labels() >= 2_000 {
            break;
        }
        mesh.run(1);
    }
    assert!(mesh.process(RELAY + 1).node.labels() >= 2_000);
    let moved = requests(&mesh);
    mesh.run(1_000);
    assert!(
        mesh.world[many_players].is_served_since(at + ms(100)),
        "by no answer of before"
    );
    mesh.run(5_000);
    let since = |counts: [u64; 2]| counts.iter().sum::<u64>() - held.iter().sum::<u64>();
    let (before, moved, all) = (since(last), since(moved), since(requests(&mesh)));
    eprintln!(
        "{mode:?}: moved after {took:?} and {before} requests; {moved} for all, {all} in all"
    );
    assert_eq!(mesh.world[many_players].faults, 0);
    (before, moved, all)
}

/// Adds a second game with its own players at the entry, and at the nodes that serve it.
fn with_second_game(config: &mut Config, index: usize, exits: Vec<NodeId>, serving: &[usize]) {
    config.games.push(Game {
        name: "other".into(),
        mode: Mode::Shadow,
        entry: (index == ENTRY).then(|| EntryGame {
            listen: vec![other_game()],
            exits,
        }),
        exit: serving.contains(&index).then(|| ExitGame {
            server: crate::harness::server(),
            entries: None,
            header: None,
        }),
    });
}

fn other_game() -> SocketAddr {
    address("192.0.2.1:27016")
}

/// A new player sends to the second game every 1.3 s.
fn knock(mesh: &mut Mesh, times: u16) {
    for number in 0..times {
        let outsider = SocketAddr::from(([198, 18, 9, 1], 2_000 + number));
        let datagram = Datagram::new(outsider, other_game(), vec![9; 50]);
        mesh.world.inject(ms(u64::from(number) * 1_300), datagram);
    }
}

#[test]
fn a_game_that_its_exit_refuses_leaves_the_others_alone() {
    let mut mesh = crowded(Seed::from_number(20), Mode::Shadow, |index, config, ids| {
        with_second_game(config, index, vec![ids[EXIT]], &[]);
    });
    mesh.run(2_000);
    let at = mesh.now();
    knock(&mut mesh, 15);
    mesh.run(20_000);
    let now = mesh.now();
    assert_eq!(mesh.moves(ENTRY, at), [], "nothing happened to the path");
    assert!(mesh.player().gap(at, now) < ms(20));
    let entry = mesh.process(ENTRY);
    assert_eq!(entry.closed_flows(), [FlowEnd::Refused; 15]);
    assert_eq!(entry.node.stats().setups_failed, 0);
}

#[test]
fn players_of_a_refused_game_use_no_openings_of_another() {
    let mut mesh = crowded(Seed::from_number(26), Mode::Shadow, |index, config, ids| {
        with_second_game(config, index, vec![ids[EXIT]], &[]);
    });
    // 200 strangers, each in its own /24, at eight times the default `open_rate` in total.
    for number in 0..20_000_u32 {
        let [_, high, low, _] = ((number % 200) << 8).to_be_bytes();
        let outsider = SocketAddr::from(([101, high, low, 1], 9));
        let datagram = Datagram::new(outsider, other_game(), vec![9; 50]);
        mesh.world
            .inject(Duration::from_micros(u64::from(number) * 500), datagram);
    }
    mesh.run(4_000);
    let before = mesh.process(ENTRY).node.stats().refused_players;
    // Each sends only once, and is answered.
    let many_players = gather(&mut mesh, 40, ms(10_000));
    mesh.run(4_000);
    silence(&mut mesh, many_players);
    mesh.run(1_000);
    let refused = mesh.process(ENTRY).node.stats().refused_players - before;
    assert!(refused > 9_900, "the flood goes on: {refused}");
    assert!(mesh.world[many_players].sent >= 16);
    assert_eq!(mesh.world[many_players].open.len(), 0, "all were answered");
}

#[test]
fn hundreds_of_new_players_do_not_disturb_present_ones() {
    let mut mesh = crowded(Seed::from_number(21), Mode::Shadow, |_, _, _| {});
    mesh.run(2_000);
    let at = mesh.now();
    let many_players = gather(&mut mesh, 1_000, ms(500));
    mesh.run(10_000);
    assert_eq!(mesh.moves(ENTRY, at), []);
    assert!(mesh.player().gap(at, mesh.now()) < ms(20));
    assert_eq!(mesh.world[many_players].served(), 1_000);
    assert_eq!(mesh.process(ENTRY).node.stats().setups_failed, 0);
    assert_eq!(mesh.process(EXIT).node.stats().opens_refused, 0);
}

#[test]
fn forged_sources_block_no_new_players() {
    let mut mesh = crowded(Seed::from_number(22), Mode::Shadow, |index, config, _| {
        if index == ENTRY {
            config.flows_max = 180;
            config.unproved_max = 120;
            config.open_rate = 100;
        }
        if index == EXIT {
            // The forger cannot take the rest of the exit's sockets.
            config.flows_max = 180;
            config.unproved_max = 120;
        }
    });
    mesh.run(1_000);
    // 150 per second for 30 s, each from its own /24.
    for number in 0..4_500_u32 {
        let [_, high, low, _] = (number << 8).to_be_bytes();
        let forged = SocketAddr::from(([101, high, low, 1], 9));
        let datagram = Datagram::new(forged, game(), vec![1; 30]);
        mesh.world
            .inject(ms(u64::from(number) * 1_000 / 150), datagram);
    }
    mesh.run(5_000);
    let at = mesh.now();
    // The interval is not a multiple of the refill interval of `open_rate`.
    let many_players = gather(&mut mesh, 40, ms(47));
    mesh.run(10_000);
    assert_eq!(mesh.world[many_players].served(), 40, "all newcomers play");
    let now = mesh.now();
    let gap = mesh.world[many_players].gap(now.saturating_sub(ms(3_000)), now);
    assert!(gap < ms(60), "and are not thrown out for others: {gap:?}");
    assert!(mesh.player().gap(at, now) < ms(20));
    assert!(mesh.process(EXIT).sockets() <= 1 + 180);
    let ends = mesh.process(ENTRY).closed_flows();
    assert!(ends.iter().filter(|end| **end == FlowEnd::Evicted).count() > 500);
    let flows: usize = mesh
        .process(ENTRY)
        .node
        .routes()
        .map(|route| route.flows)
        .sum();
    // The player, the other players, and the forger's share.
    assert!((41..=41 + 120).contains(&flows), "{flows}");
}

#[test]
fn open_rate_bounds_flows_opened_by_unknown_players() {
    let mut mesh = crowded(Seed::from_number(23), Mode::Shadow, |_, config, _| {
        config.open_rate = 10;
    });
    mesh.run(1_000);
    for number in 0..2_000_u32 {
        let [_, high, low, _] = (number << 8).to_be_bytes();
        let forged = SocketAddr::from(([101, high, low, 1], 9));
        let datagram = Datagram::new(forged, game(), vec![1; 30]);
        mesh.world.inject(ms(u64::from(number)), datagram);
    }
    mesh.run(2_000);
    let opened = mesh.process(ENTRY).events.iter();
    let opened = opened.filter(|(_, event)| matches!(event, Event::FlowOpened { .. }));
    // The player, a burst of 40, and 10 in each of two seconds.
    let opened = opened.count();
    assert!((55..=61).contains(&opened), "{opened}");
}

#[test]
fn an_exit_without_sockets_is_asked_once_a_second_and_another_is_taken() {
    // The first relay is also an exit, farther away.
    let mut mesh = crowded(Seed::from_number(24), Mode::Shadow, |index, config, ids| {
        let serving = [EXIT, RELAY + 2];
        with_second_game(config, index, vec![ids[EXIT], ids[RELAY + 2]], &serving);
        if index == RELAY + 2 {
            config.profile.roles = Roles::ALL;
        }
    });
    let remote = mesh.nodes[RELAY + 2];
    for index in [ENTRY, RELAY, RELAY + 1] {
        mesh.world.set_links(mesh.nodes[index], remote, link(100));
    }
    mesh.world.set_links(remote, mesh.server, link(1));
    mesh.run(3_000);
    let exit = mesh.nodes[EXIT];
    mesh.world
        .apply(exit, |exit, _| exit.sockets_max = exit.sockets());
    // One player that sends 60 times a second.
    let player = address("198.18.9.1:2000");
    let of_player = |mesh: &Mesh| {
        let events = mesh.process(ENTRY).events.iter();
        let opened = events.filter_map(|(_, event)| {
            if let Event::FlowOpened {
                player: whose,
                remote_end,
                ..
            } = event
            {
                (*whose == player).then_some(*remote_end)
            } else {
                None
            }
        });
        opened.collect::<Vec<_>>()
    };
    for number in 0..600_u64 {
        let datagram = Datagram::new(player, other_game(), vec![9; 50]);
        mesh.world.inject(ms(number * 1_000 / 60), datagram);
    }
    mesh.run(10_000);
    let other = mesh.ids[RELAY + 2];
    assert_eq!(
        of_player(&mesh),
        [mesh.ids[EXIT], other],
        "the second has room"
    );
    assert_eq!(mesh.process(ENTRY).closed_flows(), [FlowEnd::Refused]);

    // If there is no other exit, a newcomer retries every second.
    let mut mesh = crowded(Seed::from_number(25), Mode::Shadow, |_, _, _| {});
    mesh.run(1_000);
    let exit = mesh.nodes[EXIT];
    mesh.world
        .apply(exit, |exit, _| exit.sockets_max = exit.sockets());
    for number in 0..600_u64 {
        let datagram = Datagram::new(player, game(), vec![9; 50]);
        mesh.world.inject(ms(number * 1_000 / 60), datagram);
    }
    mesh.run(10_000);
    let tries = of_player(&mesh).len();
    assert!((8..=10).contains(&tries), "{tries}");
}
