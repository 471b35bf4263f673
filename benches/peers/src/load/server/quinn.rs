//! quinn on tokio's single thread, a task for each connection.

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

/// Who is here.
type Connections = Rc<RefCell<Vec<Connection>>>;

/// How often all tasks have their turn without a message that is read, before a tick is over.
const IDLE_TURNS: u32 = 16;

/// Serves as quinn's users do: tasks run as soon as there is something for them.
pub(super) fn serve(plan: Plan) {
    let connections = Connections::default();
    let tasks = LocalSet::new();
    tasks.spawn_local(tick(plan, Rc::clone(&connections)));
    tasks.block_on(&runtime(), accept(connections));
}

/// Serves as a game does that looks at its sockets once a tick: between two of them no task runs.
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

/// Sends what is due, a tick at a time.
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

/// Lets all tasks run until nothing more comes.
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

/// Lets in whoever comes.
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
