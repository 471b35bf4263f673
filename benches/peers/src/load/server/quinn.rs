//! quinn on tokio's single thread, a task for each connection.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use quinn::{Connection, Endpoint, EndpointConfig, TokioRuntime};
use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval};

use super::{MESSAGE, Plan, Ticks, count, listen, socket};
use crate::stack::quinn_proto::{Certified, server_config};

/// Who is here.
type Connections = Rc<RefCell<Vec<Connection>>>;

pub(super) fn serve(plan: Plan) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("descriptors");
    LocalSet::new().block_on(&runtime, run(plan));
}

async fn run(plan: Plan) {
    let socket = socket();
    let address = socket.local_addr().expect("bound");
    let certified = Certified::new();
    let endpoint = Endpoint::new(
        EndpointConfig::default(),
        Some(server_config(&certified)),
        socket,
        Arc::new(TokioRuntime),
    )
    .expect("a socket");
    listen(address, certified.certificate());
    let connections = Connections::default();
    tokio::task::spawn_local(tick(plan, Rc::clone(&connections)));
    while let Some(incoming) = endpoint.accept().await {
        tokio::task::spawn_local(hear(incoming, Rc::clone(&connections)));
    }
}

/// Sends what is due, a tick at a time.
async fn tick(plan: Plan, connections: Connections) {
    let mut ticks = Ticks::new(plan);
    let mut timer = interval(Duration::from_secs(1) / plan.tick_hz);
    timer.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        timer.tick().await;
        if !ticks.take().sends {
            continue;
        }
        for connection in &*connections.borrow() {
            connection
                .send_datagram(Bytes::copy_from_slice(&MESSAGE))
                .ok();
        }
    }
}

/// Lets one in, and reads what it says until it leaves.
async fn hear(incoming: quinn::Incoming, connections: Connections) {
    let Ok(connection) = incoming.await else {
        return;
    };
    connections.borrow_mut().push(connection.clone());
    while connection.read_datagram().await.is_ok() {
        count(1);
    }
    let id = connection.stable_id();
    connections
        .borrow_mut()
        .retain(|open| open.stable_id() != id);
}
