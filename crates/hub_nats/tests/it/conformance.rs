//! The suite that every backend passes.

use std::sync::atomic::{AtomicU32, Ordering};

use hub::StoreConfig;
use hub::conformance::{Subject, check_backend, check_machine};
use hub_nats::NatsConfig;

use crate::harness::{NatsBackend, Server};

/// A separate log on a server.
struct NatsSubject(NatsConfig);

impl NatsSubject {
    fn new(server: &Server) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut config = server.config();
        config.name = format!("log{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self(config)
    }
}

impl Subject for NatsSubject {
    type Backend = NatsBackend;

    fn open(&mut self, config: StoreConfig) -> NatsBackend {
        NatsBackend::open(&self.0, config)
    }

    fn crash(&mut self, backend: NatsBackend) {
        drop(backend);
    }
}

#[test]
#[ignore = "needs nats-server"]
fn hub_9_the_store_on_nats_conforms() {
    let server = Server::start("");
    check_backend(|| NatsSubject::new(&server));
    check_machine(|| NatsSubject::new(&server));
}
