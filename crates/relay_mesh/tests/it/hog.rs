//! One host with one address and a port for each place that there is.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use netsim::Outbox;
use wire::{Arrival, Instant, Seed};

use crate::crowd::gather;
use crate::harness::{ENTRY, EXIT, Mesh, START, address, game, link, ms, shape};

/// Begins from a port more each 80 ms, proves that it receives at each, and keeps them all in use.
struct Hog {
    ports: u16,
    opened: u16,
    next_open: Instant,
    /// Who speaks when, and how often it has.
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
            self.next_open += ms(80);
        }
        while let Some(entry) = self.due.first_entry().filter(|entry| *entry.key() <= now) {
            let (at, ports) = entry.remove_entry();
            for (port, round) in ports {
                outbox.send_from(hog_port(port), game(), None, &[9; 20]);
                // Until it has proved, each half second; then often enough to be no idle flow.
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

#[test]
fn pgx11_one_host_does_not_take_the_places_of_all_players() {
    let shape = shape(|_, config, _| {
        config.flows_max = 512;
        config.unproved_max = 128;
    });
    let mut mesh = Mesh::new(Seed::from_number(903), &shape);
    mesh.run(START + 2_000);
    let hog = mesh.world.add(address("198.18.77.7:1"), |now| Hog {
        // What an exit lets one entry have.
        ports: 447,
        opened: 0,
        next_open: now,
        due: BTreeMap::new(),
    });
    mesh.world.set_links(hog, mesh.nodes[ENTRY], link(5));
    mesh.run(60_000);
    let routes = mesh.process(ENTRY).node.routes();
    let flows: usize = routes.map(|route| route.flows).sum();
    assert!((200..=257).contains(&flows), "half of all: {flows}");
    assert!(mesh.process(EXIT).sockets() <= 257);
    let crowd = gather(&mut mesh, 20, ms(500));
    mesh.run(10_000);
    let from = mesh.now();
    mesh.run(10_000);
    let gap = mesh.world[crowd].gap(from, mesh.now());
    assert!(gap < ms(1_000), "{gap:?}");
}
