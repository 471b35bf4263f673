//! One host with a single address, and as many ports as there are slots.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use netsim::{Handle, Outbox};
use relay_mesh::TurnedAway;
use wire::{Arrival, Instant, Seed};

use crate::harness::{ENTRY, EXIT, Mesh, START, address, game, link, ms, shape};
use crate::many_players::gather;

/// Opens a flow from another port every `gap`, proves each address, and keeps all flows active.
struct Hog {
    ports: u16,
    gap: Duration,
    opened: u16,
    next_open: Instant,
    /// The ports due at each time, with how often each has sent.
    due: BTreeMap<Instant, Vec<(u16, u8)>>,
}

fn hog_port(number: u16) -> SocketAddr {
    SocketAddr::from(([198, 18, 77, 7], 1_000 + number))
}

impl netsim::Node for Hog {
    fn handle_datagram(&mut self, _: Instant, _: SocketAddr, _: Arrival<SocketAddr>, _: &mut [u8]) {
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn drain(&mut self, now: Instant, outbox: &mut Outbox<'_>) {
        while self.next_open <= now && self.opened < self.ports {
            outbox.bind(hog_port(self.opened));
            let due = self.due.entry(self.next_open).or_default();
            due.push((self.opened, 0));
            self.opened += 1;
            self.next_open += self.gap;
        }
        while let Some(entry) = self.due.first_entry().filter(|entry| *entry.key() <= now) {
            let (at, ports) = entry.remove_entry();
            for (port, round) in ports {
                outbox.send_from(hog_port(port), game(), None, &[9; 20]);
                // Every half second until the address is proved, then often enough to avoid the
                // idle timeout.
                let wait = if round < 4 { ms(500) } else { ms(50_000) };
                let next = self.due.entry(at + wait).or_default();
                next.push((port, round.saturating_add(1)));
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = self.due.keys().next().copied();
        let open = (self.opened < self.ports).then_some(self.next_open);
        due.into_iter().chain(open).min()
    }
}

fn hog(mesh: &mut Mesh) -> Handle<Hog> {
    let hog = mesh.world.add(address("198.18.77.7:1"), |now| Hog {
        // The share that an exit gives one entry.
        ports: 447,
        gap: ms(80),
        opened: 0,
        next_open: now,
        due: BTreeMap::new(),
    });
    mesh.world.set_links(hog, mesh.nodes[ENTRY], link(5));
    hog
}

/// Asserts that players of other networks are admitted and play.
fn others_play(mesh: &mut Mesh) {
    let many_players = gather(mesh, 20, ms(500));
    mesh.run(10_000);
    let from = mesh.now();
    mesh.run(10_000);
    let gap = mesh.world[many_players].gap(from, mesh.now());
    assert!(gap < ms(1_000), "{gap:?}");
}

#[test]
fn pgx11_one_host_cannot_use_the_slots_of_all_players() {
    let shape = shape(|_, config, _| {
        config.flows_max = 512;
        config.unproved_max = 128;
    });
    let mut mesh = Mesh::new(Seed::from_number(903), &shape);
    mesh.run(START + 2_000);
    let hog = hog(&mut mesh);
    mesh.run(60_000);
    let routes = mesh.process(ENTRY).node.routes();
    let flows: usize = routes.map(|route| route.flows).sum();
    assert!((200..=257).contains(&flows), "half of all: {flows}");
    assert!(mesh.process(EXIT).sockets() <= 257);
    // Faster than `open_rate`: rejected attempts do not use up others' openings.
    mesh.world.apply(hog, |hog, now| {
        (hog.ports, hog.gap, hog.next_open) = (20_000, ms(3), now);
    });
    others_play(&mut mesh);
}

#[test]
fn pgx11_one_host_excludes_no_other_from_a_small_exit() {
    let shape = shape(|index, config, _| {
        if index == EXIT {
            config.flows_max = 512;
            config.unproved_max = 128;
        }
    });
    let mut mesh = Mesh::new(Seed::from_number(904), &shape);
    mesh.run(START + 2_000);
    let hog = hog(&mut mesh);
    mesh.run(40_000);
    assert!((200..=257).contains(&mesh.process(EXIT).sockets()));
    assert!(mesh.process(EXIT).node.stats().shares_held > 100);
    // Both ends report it: the exit's flows end, or never opened.
    for end in [ENTRY, EXIT] {
        let reported = mesh.turned_away(end);
        let is_share =
            |(reason, count): &(TurnedAway, u64)| *reason == TurnedAway::Share && *count > 0;
        assert!(reported.iter().any(is_share), "{end}: {reported:?}");
    }
    // It retries all the time.
    mesh.world.apply(hog, |hog, _| hog.ports = 20_000);
    others_play(&mut mesh);
}
