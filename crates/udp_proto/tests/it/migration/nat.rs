//! A client behind a NAT that changes its binding.

use core::cell::Cell;
use core::net::SocketAddr;
use std::rc::Rc;

use netsim::{Handle, LinkConfig, Verdict};
use udp_proto::{SessionId, SessionStats};
use wire::Seed;

use crate::harness::{Peer, Testbed, address};

/// A testbed in which a NAT sets the source of the client's datagrams and drops datagrams to other
/// addresses.
pub(super) struct Nat {
    pub(super) testbed: Testbed,
    pub(super) client: Handle<Peer>,
    pub(super) session: SessionId,
    public: Rc<Cell<SocketAddr>>,
}

impl Nat {
    pub(super) fn new(seed: Seed, link: LinkConfig) -> Self {
        let mut testbed = Testbed::new(seed);
        let server = testbed.server;
        testbed
            .world
            .apply(server, |host, _| host.app.is_echo = false);
        testbed.world.set_default_link(link);
        let public = address("203.0.113.1:50000");
        let mapping = Rc::new(Cell::new(public));
        let client = testbed.client();
        let inside = Rc::clone(&mapping);
        testbed.world.intercept(client, server, move |_, datagram| {
            datagram.source = inside.get();
            Verdict::Pass
        });
        testbed.world.bind_address(client, public);
        let unix = testbed.world.unix_now();
        let credentials = testbed.keys.token(unix, 1, address(crate::harness::SERVER));
        let session = testbed.dial(client, credentials);
        Self {
            testbed,
            client,
            session,
            public: mapping,
        }
    }

    /// Gives the client another address; returns it.
    pub(super) fn rebind(&mut self, to: SocketAddr) -> SocketAddr {
        let old = self.public.replace(to);
        if old != to {
            self.testbed.world.unbind_address(old);
            self.testbed.world.bind_address(self.client, to);
        }
        to
    }

    pub(super) fn set_links(&mut self, link: LinkConfig) {
        let server = self.testbed.server;
        self.testbed.world.set_links(self.client, server, link);
    }

    pub(super) fn public(&self) -> SocketAddr {
        self.public.get()
    }

    /// The server's session.
    pub(super) fn theirs(&self) -> SessionId {
        self.testbed.log(self.testbed.server).sessions()[0]
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        let server = &self.testbed.peer(self.testbed.server).machine;
        server.peer_address(self.theirs())
    }

    pub(super) fn server_stats(&self) -> SessionStats {
        let server = &self.testbed.peer(self.testbed.server).machine;
        server.session_stats(self.theirs()).expect("open")
    }
}
