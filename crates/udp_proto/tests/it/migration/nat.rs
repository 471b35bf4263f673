//! A client behind a NAT that changes its binding.

use core::cell::Cell;
use core::net::SocketAddr;
use std::rc::Rc;

use netsim::{Handle, LinkConfig, Verdict};
use udp_proto::{SessionId, SessionStats};
use wire::Seed;

use crate::harness::{Peer, Scene, address};

/// A scene in which a NAT sets the source of the client's datagrams and drops datagrams to other
/// addresses.
pub(super) struct Nat {
    pub(super) scene: Scene,
    pub(super) client: Handle<Peer>,
    pub(super) session: SessionId,
    public: Rc<Cell<SocketAddr>>,
}

impl Nat {
    pub(super) fn new(seed: Seed, link: LinkConfig) -> Self {
        let mut scene = Scene::new(seed);
        let server = scene.server;
        scene
            .world
            .apply(server, |host, _| host.app.is_echo = false);
        scene.world.set_default_link(link);
        let public = address("203.0.113.1:50000");
        let mapping = Rc::new(Cell::new(public));
        let client = scene.client();
        let inside = Rc::clone(&mapping);
        scene.world.intercept(client, server, move |_, datagram| {
            datagram.source = inside.get();
            Verdict::Pass
        });
        scene.world.bind_address(client, public);
        let unix = scene.world.unix_now();
        let credentials = scene.keys.token(unix, 1, address(crate::harness::SERVER));
        let session = scene.dial(client, credentials);
        Self {
            scene,
            client,
            session,
            public: mapping,
        }
    }

    /// Gives the client another address; returns it.
    pub(super) fn rebind(&mut self, to: SocketAddr) -> SocketAddr {
        let old = self.public.replace(to);
        if old != to {
            self.scene.world.unbind_address(old);
            self.scene.world.bind_address(self.client, to);
        }
        to
    }

    pub(super) fn set_links(&mut self, link: LinkConfig) {
        let server = self.scene.server;
        self.scene.world.set_links(self.client, server, link);
    }

    pub(super) fn public(&self) -> SocketAddr {
        self.public.get()
    }

    /// The server's session.
    pub(super) fn theirs(&self) -> SessionId {
        self.scene.log(self.scene.server).sessions()[0]
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        let server = &self.scene.peer(self.scene.server).machine;
        server.peer_address(self.theirs())
    }

    pub(super) fn server_stats(&self) -> SessionStats {
        let server = &self.scene.peer(self.scene.server).machine;
        server.session_stats(self.theirs()).expect("open")
    }
}
