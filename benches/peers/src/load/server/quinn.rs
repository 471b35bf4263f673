//! quinn on tokio's single-threaded runtime, with a task per connection.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use quinn::{Connection, Endpoint, EndpointConfig, TokioRuntime};
use tokio::runtime::Runtime;
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::{MissedTickBehavior, interval};

use super::{MESSAGE, Plan, Ticks, count, listen, received, socket};
use crate::stack::quinn_proto::{Certified, server_config};

/// The open connections.
type Connections = Rc<RefCell<Vec<Connection>>>;

/// Consecutive turns of all tasks without a received message after which a tick ends.
const IDLE_TURNS: u32 = 16;

/// Serves as quinn's users do: a task runs as soon as it has work.
pub(super) fn serve(plan: Plan) {
    let connections = Connections::default();
    let tasks = LocalSet::new();
    tasks.spawn_local(tick(plan, Rc::clone(&connections)));
    tasks.block_on(&runtime(), accept(connections));
}

/// Serves like a game which polls its sockets once per tick: no task runs between ticks.
pub(super) fn serve_ticked(plan: Plan) {
    let connections = Connections::default();
    let (runtime, tasks) = (runtime(), LocalSet::new());
    tasks.spawn_local(accept(Rc::clone(&connections)));
    tasks.block_on(&runtime, settle());
    let mut ticks = Ticks::new(plan);
    loop {
        if ticks.wait().sends {
            send_to_all(&connections);
        }
        tasks.block_on(&runtime, settle());
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("descriptors")
}

/// Sends due messages in each tick.
async fn tick(plan: Plan, connections: Connections) {
    let mut ticks = Ticks::new(plan);
    let mut timer = interval(Duration::from_secs(1) / plan.tick_hz);
    timer.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        timer.tick().await;
        if ticks.take().sends {
            send_to_all(&connections);
        }
    }
}

/// Runs all tasks until nothing more arrives.
async fn settle() {
    let mut idle = 0;
    while idle < IDLE_TURNS {
        let before = received();
        yield_now().await;
        idle = if received() == before { idle + 1 } else { 0 };
    }
}

fn send_to_all(connections: &Connections) {
    for connection in &*connections.borrow() {
        connection
            .send_datagram(Bytes::copy_from_slice(&MESSAGE))
            .ok();
    }
}

/// Accepts connections.
async fn accept(connections: Connections) {
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
    while let Some(incoming) = endpoint.accept().await {
        spawn_local(hear(incoming, Rc::clone(&connections)));
    }
}

/// Accepts a connection and reads its messages until it closes.
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
