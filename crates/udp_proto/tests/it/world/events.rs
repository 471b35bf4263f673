//! Events during a storm, in addition to link faults.

use core::cell::Cell;
use core::net::SocketAddr;
use core::time::Duration;
use std::rc::Rc;

use netsim::{Handle, Verdict};

use super::faults::{Axis, Row};
use super::storm::Storm;
use crate::harness::{Peer, SERVER, Testbed, address};

/// A NAT in front of one client: sets the source of its datagrams and drops those to other
/// addresses.
pub(super) struct Nat {
    public: Rc<Cell<SocketAddr>>,
    player: u8,
}

impl Nat {
    /// Binds a client before it dials.
    pub(super) fn before(testbed: &mut Testbed, client: Handle<Peer>, player: u64) -> Self {
        let player = u8::try_from(player).unwrap();
        let first = SocketAddr::from(([192, 88, player, 1], 50_000));
        let public = Rc::new(Cell::new(first));
        let inside = Rc::clone(&public);
        let server = testbed.server;
        testbed.world.intercept(client, server, move |_, datagram| {
            datagram.source = inside.get();
            Verdict::Pass
        });
        testbed.world.bind_address(client, first);
        Self { public, player }
    }
}

impl Storm {
    /// One of 120 steps of about 30 ms.
    pub(super) fn suffer(&mut self, row: Row, step: u16) {
        self.part(row, step);
        self.rebind_endpoint(row, step);
        if row.level(Axis::Mtu) == 2 && step == 60 {
            self.narrow();
        }
        if row.level(Axis::Clock) == 2 && step == 40 {
            let span = Duration::from_millis(self.generator.below(4_000));
            self.testbed.world.stall(self.testbed.server, span);
        }
        match row.level(Axis::Adversary) {
            0 => {}
            1 => (0..4).for_each(|_| self.replay()),
            _ => self.attack(),
        }
    }

    /// Takes the first player's path down for 30 steps, or for 6 s.
    fn part(&mut self, row: Row, step: u16) {
        let client = [self.players[0].client.index()];
        let server = [self.testbed.server.index()];
        match (row.level(Axis::Partition), step) {
            (1, 30) => self.testbed.world.partition(&client, &server),
            (1, 60) => self.testbed.world.heal(&client, &server),
            (2, 50) => {
                self.testbed.world.partition(&client, &server);
                self.testbed.run(6_000);
                self.testbed.world.heal(&client, &server);
            }
            _ => {}
        }
    }

    /// Another port every 30 steps, or another network at two of them.
    fn rebind_endpoint(&mut self, row: Row, step: u16) {
        let is_port = match row.level(Axis::Nat) {
            1 if step % 30 == 29 => true,
            2 if step == 45 || step == 90 => false,
            _ => return,
        };
        for player in &self.players {
            let Some(nat) = &player.nat else { continue };
            let old = nat.public.get();
            let new = if is_port {
                SocketAddr::new(old.ip(), old.port() + 1)
            } else {
                let network = u8::try_from(step).unwrap();
                SocketAddr::from(([198, 18, nat.player, network], 50_000))
            };
            nat.public.set(new);
            self.testbed.world.unbind_address(old);
            self.testbed.world.bind_address(player.client, new);
        }
    }

    /// A router on each path now limits datagrams to 1,200 bytes.
    fn narrow(&mut self) {
        let clients: Vec<_> = self.players.iter().map(|it| it.client.index()).collect();
        let server = [self.testbed.server.index()];
        self.testbed
            .world
            .change_links(&clients, &server, |link| link.with_mtu(1_200));
    }

    /// Sends captures again, modified and from other addresses, and random bytes to both ends.
    fn attack(&mut self) {
        let tap = self.tap();
        let world = &mut self.testbed.world;
        for _ in 0..3 {
            self.adversary.strike(world);
        }
        let captured = world.captured(tap);
        let Some(seen) = captured.back().map(|it| it.datagram.clone()) else {
            return;
        };
        let unknown_address = address("192.0.2.66:6666");
        for (source, destination) in [
            (seen.source, seen.destination),
            (unknown_address, seen.destination),
            (unknown_address, address(SERVER)),
        ] {
            self.adversary
                .forge(world, source, destination, Duration::from_millis(5));
        }
    }
}
